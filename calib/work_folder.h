/*
 * A folder of finished steps, so that long work goes on after it was killed: each step's result is a file that appears under its name only when it is whole. The folder
 * belongs to one task, told by its key.
 */
#ifndef HT_CALIB_WORK_FOLDER_H
#define HT_CALIB_WORK_FOLDER_H

#include <stdbool.h>
#include <stdio.h>

#include "formats/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_work_folder ht_work_folder;

/*
 * `path` + ".work". With `resume` an existing folder is used if its key is equal (else ARG, with the first line that differs); without, it is emptied.
 * Errors: IO; ARG; NOMEM.
 */
ht_status ht_work_folder_open(ht_work_folder** out, const char* path, const char* key, bool resume, ht_error* err);
void      ht_work_folder_close(ht_work_folder* work);  /* NULL allowed; the folder stays */
void      ht_work_folder_remove(ht_work_folder* work); /* the folder and its steps       */

bool      ht_work_has(const ht_work_folder* work, const char* step);
ht_status ht_work_write(const ht_work_folder* work, const char* step, const void* data, size_t n_bytes, ht_error* err);
ht_status ht_work_read(const ht_work_folder* work, const char* step, void* data, size_t n_bytes, ht_error* err); /* exactly n_bytes long */
void      ht_work_remove(const ht_work_folder* work, const char* step);

/*
 * Memory of n_bytes (zeros) that lies in a file of the folder and not in RAM when that is short: the system writes it out as it needs to. Free with
 * ht_work_scratch_free; nothing of it outlives the process. NULL when out of space.
 */
void* ht_work_scratch(const ht_work_folder* work, size_t n_bytes);
void  ht_work_scratch_free(void* scratch, size_t n_bytes); /* NULL allowed */

/* For results written in parts: begin, fwrite, then commit (closes) or abandon (closes; NULL allowed). */
ht_status ht_work_begin(const ht_work_folder* work, const char* step, FILE** out, ht_error* err);
ht_status ht_work_commit(const ht_work_folder* work, const char* step, FILE* file, ht_error* err);
void      ht_work_abandon(const ht_work_folder* work, FILE* file);
ht_status ht_work_open(const ht_work_folder* work, const char* step, FILE** out, ht_error* err); /* to read */

#ifdef __cplusplus
}
#endif
#endif
