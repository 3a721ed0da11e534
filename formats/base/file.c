#include "formats/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>

_Static_assert(sizeof(off_t) == 8, "files beyond 2 GiB need 64-bit offsets");

struct ht_file {
    int      fd;
    uint64_t size;
    char*    path;
};

ht_status ht_file_open(ht_file** out, const char* path, ht_error* err)
{
    ht_status   st   = HT_STATUS_OK;
    struct stat info;
    ht_file*    file = calloc(1, sizeof *file);
    HT_CHECK(file, NOMEM, "file handle");
    file->fd   = open(path, O_RDONLY | O_CLOEXEC);
    file->path = strdup(path);
    HT_CHECK(file->path, NOMEM, "file name");
    HT_CHECK(file->fd >= 0, IO, "cannot open: %s", strerror(errno));
    HT_CHECK(fstat(file->fd, &info) == 0, IO, "cannot stat: %s", strerror(errno));
    HT_CHECK(S_ISREG(info.st_mode), ARG, "not a regular file");
    file->size = (uint64_t)info.st_size;
    *out = file;
    file = NULL;
done:
    ht_file_close(file);
    if (st != HT_STATUS_OK) { ht_error_set_file(err, path); }
    return st;
}

void ht_file_close(ht_file* file)
{
    if (!file) { return; }
    if (file->fd >= 0) { close(file->fd); }
    free(file->path);
    free(file);
}

bool ht_file_exists(const char* path) { return access(path, R_OK) == 0; }

uint64_t    ht_file_size(const ht_file* file) { return file->size; }
const char* ht_file_path(const ht_file* file) { return file->path; }

ht_status ht_file_read_at(const ht_file* file, uint64_t offset, void* buf, size_t n_bytes, ht_error* err)
{
    ht_status st   = HT_STATUS_OK;
    char*     to   = buf;
    size_t    left = n_bytes;
    if (offset > file->size || n_bytes > file->size - offset) {
        st = ht_fail_at(err, HT_STATUS_BOUNDS, offset, "need %zu bytes here, the file has %" PRIu64 " left", n_bytes,
                        offset > file->size ? (uint64_t)0 : file->size - offset);
    }
    while (st == HT_STATUS_OK && left > 0) {
        const ssize_t n = pread(file->fd, to, left, (off_t)offset);
        if (n > 0) {
            to += n;
            left -= (size_t)n;
            offset += (uint64_t)n;
        } else if (n == 0) {
            st = ht_fail_at(err, HT_STATUS_BOUNDS, offset, "the file became shorter while it was read");
        } else if (errno != EINTR) {
            st = ht_fail_at(err, HT_STATUS_IO, offset, "read failed: %s", strerror(errno));
        }
    }
    if (st != HT_STATUS_OK) { ht_error_set_file(err, file->path); }
    return st;
}

/* gzread passes plain bytes through unchanged, so one loop serves both kinds of text. */
ht_status ht_text_read(char** out, size_t* out_n, const char* path, size_t max_bytes, ht_error* err)
{
    ht_status   st   = HT_STATUS_OK;
    const bool  is_stdin = strcmp(path, "-") == 0;
    const int   fd   = is_stdin ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    gzFile      gz   = NULL;
    char*       text = NULL;
    size_t      n = 0, capacity = 0;
    struct stat info;

    HT_CHECK(fd >= 0, IO, "cannot open: %s", strerror(errno));
    HT_CHECK(fstat(fd, &info) == 0 && !S_ISDIR(info.st_mode), ARG, "not a text file but a folder");
    gz = gzdopen(fd, "rb");
    HT_CHECK(gz, NOMEM, "gzip stream");
    gzbuffer(gz, 1u << 17);
    for (;;) {
        if (capacity - n < 2) {
            capacity    = capacity ? capacity * 2 : (size_t)1 << 16;
            char* grown = realloc(text, capacity);
            HT_CHECK(grown, NOMEM, "text of %zu bytes", capacity);
            text = grown;
        }
        const size_t   room = capacity - n - 1;
        const unsigned want = room > 1u << 30 ? 1u << 30 : (unsigned)room;
        const int      got  = gzread(gz, text + n, want);
        int            code = Z_OK;
        if (got < 0) {
            const char* reason = gzerror(gz, &code);
            HT_CHECK(0, FORMAT, "broken gzip data after %zu bytes of text: %s", n, code == Z_ERRNO ? strerror(errno) : reason);
        }
        if (got == 0) { break; }
        n += (size_t)got;
        HT_CHECK(n <= max_bytes, BOUNDS, "the text is longer than the limit of %zu bytes", max_bytes);
    }
    const int close_code = gzclose(gz); /* reports a gzip stream that ends early */
    gz = NULL;
    HT_CHECK(close_code == Z_OK, FORMAT, "gzip data ends early after %zu bytes of text", n);
    text[n] = '\0';
    *out    = text;
    *out_n  = n;
    text    = NULL;
done:
    if (gz) { gzclose(gz); }
    else if (st != HT_STATUS_OK && fd >= 0 && !text) { close(fd); }
    free(text);
    if (st != HT_STATUS_OK) { ht_error_set_file(err, is_stdin ? "standard input" : path); }
    return st;
}

static ht_status hex_of(char out[65], EVP_MD_CTX* md, ht_error* err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned      n = 0;
    if (EVP_DigestFinal_ex(md, digest, &n) != 1 || n != 32) { return ht_fail(err, HT_STATUS_NOMEM, "SHA-256 failed"); }
    for (unsigned i = 0; i < n; i++) { snprintf(out + 2 * i, 3, "%02x", digest[i]); }
    return HT_STATUS_OK;
}

ht_status ht_sha256_hex(char out[65], const void* data, size_t n_bytes, ht_error* err)
{
    ht_status   st = HT_STATUS_OK;
    EVP_MD_CTX* md = EVP_MD_CTX_new();
    HT_CHECK(md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1 && EVP_DigestUpdate(md, data, n_bytes) == 1, NOMEM,
             "SHA-256 context");
    HT_TRY(hex_of(out, md, err));
done:
    EVP_MD_CTX_free(md);
    return st;
}

ht_status ht_file_sha256_hex(char out[65], const ht_file* file, ht_error* err)
{
    enum { PIECE = 1 << 20 };
    ht_status   st  = HT_STATUS_OK;
    EVP_MD_CTX* md  = EVP_MD_CTX_new();
    char*       buf = malloc(PIECE);
    HT_CHECK(md && buf && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1, NOMEM, "SHA-256 context");
    for (uint64_t at = 0; at < file->size; at += PIECE) {
        const size_t n = file->size - at < PIECE ? (size_t)(file->size - at) : PIECE;
        HT_TRY(ht_file_read_at(file, at, buf, n, err));
        HT_CHECK(EVP_DigestUpdate(md, buf, n) == 1, NOMEM, "SHA-256 update");
    }
    HT_TRY(hex_of(out, md, err));
done:
    EVP_MD_CTX_free(md);
    free(buf);
    return st;
}

/* --- output ---------------------------------------------------------------------------------------------------------- */

struct ht_out_file {
    int   fd;
    char* path;      /* final name                     */
    char* temp_path; /* "<path>.tmp-XXXXXX" beside it  */
};

/* The folder of `path`, malloc'd: "a/b" -> "a", "b" -> ".", "/b" -> "/". */
static char* folder_of(const char* path)
{
    const char* slash = strrchr(path, '/');
    if (!slash) { return strdup("."); }
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

static void out_file_free(ht_out_file* file)
{
    if (!file) { return; }
    if (file->fd >= 0) { close(file->fd); }
    free(file->path);
    free(file->temp_path);
    free(file);
}

typedef enum temp_kind { TEMP_NEW, TEMP_PART, TEMP_PART_RESUME } temp_kind;

static ht_status open_temp(ht_out_file* file, temp_kind kind, const char* folder, ht_error* err)
{
    const size_t n = strlen(file->path) + 16;
    ht_status    st = HT_STATUS_OK;
    file->temp_path = malloc(n);
    HT_CHECK(file->temp_path, NOMEM, "output name");
    snprintf(file->temp_path, n, kind == TEMP_NEW ? "%s.tmp-XXXXXX" : "%s.part", file->path);
    file->fd = kind == TEMP_NEW ? mkstemp(file->temp_path) : open(file->temp_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file->fd < 0 || (kind != TEMP_NEW && flock(file->fd, LOCK_EX | LOCK_NB) != 0)) {
        const int why = errno;
        file->temp_path[0] = '\0'; /* not ours to remove */
        HT_CHECK(file->fd < 0, IO, "%s.part is being written by another process", file->path);
        HT_CHECK(0, IO, "cannot write in the folder \"%s\": %s", folder, strerror(why));
    }
    HT_CHECK(kind != TEMP_PART || ftruncate(file->fd, 0) == 0, IO, "cannot empty %s: %s", file->temp_path, strerror(errno));
done:
    return st;
}

static ht_status out_file_create(ht_out_file** out, const char* path, uint64_t n_bytes, bool force, temp_kind kind, ht_error* err)
{
    ht_status      st     = HT_STATUS_OK;
    char*          folder = folder_of(path);
    ht_out_file*   file   = calloc(1, sizeof *file);
    struct stat    info;
    struct statvfs disk;

    HT_CHECK(file && folder, NOMEM, "output handle");
    file->fd   = -1;
    file->path = strdup(path);
    HT_CHECK(file->path, NOMEM, "output name");
    HT_CHECK(stat(folder, &info) == 0, IO, "the output folder \"%s\" does not exist", folder);
    HT_CHECK(S_ISDIR(info.st_mode), ARG, "\"%s\" is not a folder", folder);
    if (stat(path, &info) == 0) {
        HT_CHECK(!S_ISDIR(info.st_mode), ARG, "the output is a folder");
        HT_CHECK(force, ARG, "the output exists already (--force replaces it)");
    }
    if (n_bytes > 0 && kind != TEMP_PART_RESUME && statvfs(folder, &disk) == 0) {
        const uint64_t n_free = (uint64_t)disk.f_bavail * disk.f_frsize;
        HT_CHECK(n_free >= n_bytes, IO, "no space left: the file needs %" PRIu64 " bytes, %" PRIu64 " are free", n_bytes, n_free);
    }
    HT_TRY(open_temp(file, kind, folder, err));
    *out = file;
    file = NULL;
done:
    free(folder);
    out_file_free(file);
    if (st != HT_STATUS_OK) { ht_error_set_file(err, path); }
    return st;
}

ht_status ht_out_file_create(ht_out_file** out, const char* path, uint64_t n_bytes, bool force, ht_error* err)
{
    return out_file_create(out, path, n_bytes, force, TEMP_NEW, err);
}

ht_status ht_out_file_create_part(ht_out_file** out, const char* path, uint64_t n_bytes, bool force, bool resume, ht_error* err)
{
    return out_file_create(out, path, n_bytes, force, resume ? TEMP_PART_RESUME : TEMP_PART, err);
}

bool ht_out_file_read_at(ht_out_file* file, uint64_t offset, void* buf, size_t n_bytes)
{
    char* to = buf;
    while (n_bytes > 0) {
        const ssize_t n = pread(file->fd, to, n_bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) { continue; }
        if (n <= 0) { return false; }
        to += n;
        offset += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return true;
}

void ht_out_file_keep(ht_out_file* file) { out_file_free(file); }

ht_status ht_out_file_write_at(ht_out_file* file, uint64_t offset, const void* buf, size_t n_bytes, ht_error* err)
{
    const char* from = buf;
    while (n_bytes > 0) {
        const ssize_t n = pwrite(file->fd, from, n_bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) { continue; }
        if (n <= 0) {
            const ht_status st = ht_fail_at(err, HT_STATUS_IO, offset, "write failed: %s (%zu bytes still to write here)",
                                            strerror(n < 0 ? errno : ENOSPC), n_bytes);
            ht_error_set_file(err, file->path);
            return st;
        }
        from += n;
        offset += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return HT_STATUS_OK;
}

static void sync_folder(const char* path)
{
    char*     folder = folder_of(path);
    const int fd     = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd); /* best effort: some file systems do not offer it for folders */
        close(fd);
    }
    free(folder);
}

ht_status ht_out_file_commit(ht_out_file* file, ht_error* err)
{
    ht_status    st   = HT_STATUS_OK;
    const mode_t mask = umask(0);
    umask(mask);
    HT_CHECK(fchmod(file->fd, 0666 & ~mask) == 0, IO, "cannot set permissions: %s", strerror(errno));
    HT_CHECK(fsync(file->fd) == 0, IO, "cannot flush to disk: %s", strerror(errno));
    const int close_code = close(file->fd);
    file->fd = -1;
    HT_CHECK(close_code == 0, IO, "cannot close: %s", strerror(errno));
    HT_CHECK(rename(file->temp_path, file->path) == 0, IO, "cannot rename to the final name: %s", strerror(errno));
    sync_folder(file->path);
    out_file_free(file);
    return HT_STATUS_OK;
done:
    ht_error_set_file(err, file->path);
    ht_out_file_discard(file);
    return st;
}

void ht_out_file_discard(ht_out_file* file)
{
    if (!file) { return; }
    unlink(file->temp_path);
    out_file_free(file);
}
