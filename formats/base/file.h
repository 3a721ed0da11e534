/*
 * Reading and writing files safely.
 *
 * Reading is by bounded pread: no length is trusted, a file that shrinks under us gives an error and never a signal, and resident memory
 * does not grow with the file (a mapping would count every page touched). Writing goes to a temporary file in the target's folder; only
 * ht_out_file_commit (fsync, rename, fsync of the folder) gives it the final name.
 */
#ifndef HT_BASE_FILE_H
#define HT_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_file ht_file;

/* Open a regular file for reading. Errors: IO (named), ARG for a directory or device. Close with ht_file_close (NULL allowed). */
ht_status   ht_file_open(ht_file** out, const char* path, ht_error* err);
void        ht_file_close(ht_file* file);
uint64_t    ht_file_size(const ht_file* file);
const char* ht_file_path(const ht_file* file); /* as given; owned by `file` */

/* Whether something of that name can be opened for reading: for files that a folder may lack. */
bool ht_file_exists(const char* path);

/*
 * Exactly `n_bytes` at `offset`. Errors: BOUNDS when the range leaves the file (need and has are in the message), IO.
 * Thread-safe: any number of threads may read one ht_file.
 */
ht_status ht_file_read_at(const ht_file* file, uint64_t offset, void* buf, size_t n_bytes, ht_error* err);

/*
 * A whole text: plain, or gzip (recognised by its magic bytes, inflated through zlib). `path` "-" reads standard input.
 * *out is malloc'd, NUL-terminated beyond *out_n; the caller frees it. Errors: IO, FORMAT (broken gzip), BOUNDS above `max_bytes`.
 */
ht_status ht_text_read(char** out, size_t* out_n, const char* path, size_t max_bytes, ht_error* err);

/* Lower-case hex SHA-256 of a buffer (of the whole file). */
ht_status ht_sha256_hex(char out[65], const void* data, size_t n_bytes, ht_error* err);
ht_status ht_file_sha256_hex(char out[65], const ht_file* file, ht_error* err);

/* --- output ------------------------------------------------------------------------------------------------------------ */

typedef struct ht_out_file ht_out_file;

/*
 * Start writing `path`: checks at once that the folder exists and is writable, that the target is not a directory, that it does not
 * exist unless `force`, and that the disk has room for `n_bytes` (0: unknown), then creates a temporary file beside it.
 * Errors: ARG (exists, is a directory), IO (no folder, no permission, no space: needs N, free M).
 */
ht_status ht_out_file_create(ht_out_file** out, const char* path, uint64_t n_bytes, bool force, ht_error* err);

/*
 * The same for work of hours: the temporary file is "<path>.part", stays when the process is killed, and with `resume` is gone on with. Its content has to be checked by
 * the caller. Errors: also IO another process is writing it.
 */
ht_status ht_out_file_create_part(ht_out_file** out, const char* path, uint64_t n_bytes, bool force, bool resume, ht_error* err);

/* Read back what was written. False when there is less. */
bool ht_out_file_read_at(ht_out_file* file, uint64_t offset, void* buf, size_t n_bytes);

/* Write at an absolute offset. Thread-safe for disjoint ranges. Errors: IO with the system's reason. */
ht_status ht_out_file_write_at(ht_out_file* file, uint64_t offset, const void* buf, size_t n_bytes, ht_error* err);

/* Flush to disk and rename to the final name. The handle is freed on success and failure; on failure nothing is left behind. */
ht_status ht_out_file_commit(ht_out_file* file, ht_error* err);

/* Close and leave the temporary file for a later run. NULL is allowed. */
void ht_out_file_keep(ht_out_file* file);

/* Give up: close and remove the temporary file. NULL is allowed. */
void ht_out_file_discard(ht_out_file* file);

#ifdef __cplusplus
}
#endif
#endif
