#include "calib/work_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/file.h"

enum { MAX_PATH = 4096, MAX_KEY = 4096 };

struct ht_work_folder {
    char path[MAX_PATH];
};

static const char part_name[] = "part"; /* what is being written */

static ht_status join(char out[MAX_PATH + 128], const ht_work_folder* work, const char* step, ht_error* err)
{
    const int n = snprintf(out, MAX_PATH + 128, "%s/%s", work->path, step);
    return n < MAX_PATH + 128 ? HT_STATUS_OK : ht_fail(err, HT_STATUS_ARG, "the path of the work folder is too long");
}

static void empty_folder(const ht_work_folder* work)
{
    DIR* dir = opendir(work->path);
    if (!dir) { return; }
    for (struct dirent* entry = readdir(dir); entry; entry = readdir(dir)) {
        char file[MAX_PATH + 300];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) { continue; }
        snprintf(file, sizeof file, "%s/%s", work->path, entry->d_name);
        (void)unlink(file);
    }
    (void)closedir(dir);
}

/* The keys are lines; name the first that differs. */
static ht_status compare_keys(const char* found, const char* key, ht_error* err)
{
    while (*found && *found == *key) {
        found++;
        key++;
    }
    if (*found == *key) { return HT_STATUS_OK; }
    return ht_fail(err, HT_STATUS_ARG, "--resume: the work folder belongs to another task (it differs at \"%.*s\", here \"%.*s\"); start without --resume",
                   (int)strcspn(found, "\n"), found, (int)strcspn(key, "\n"), key);
}

ht_status ht_work_folder_open(ht_work_folder** out, const char* path, const char* key, bool resume, ht_error* err)
{
    ht_status       st    = HT_STATUS_OK;
    char*           found = NULL;
    size_t          n     = 0;
    char            file[MAX_PATH + 128];
    ht_work_folder* work  = calloc(1, sizeof *work);
    HT_CHECK(work, NOMEM, "work folder");
    HT_CHECK(snprintf(work->path, sizeof work->path, "%s.work", path) < MAX_PATH, ARG, "the path of the work folder is too long");
    HT_CHECK(mkdir(work->path, 0777) == 0 || errno == EEXIST, IO, "cannot make the work folder %s: %s", work->path, strerror(errno));
    HT_TRY(join(file, work, "key", err));
    if (resume && ht_file_exists(file)) {
        HT_TRY(ht_text_read(&found, &n, file, MAX_KEY, err));
        HT_TRY(compare_keys(found, key, err));
    } else {
        empty_folder(work);
        HT_TRY(ht_work_write(work, "key", key, strlen(key), err));
    }
    *out = work;
    work = NULL;
done:
    free(found);
    free(work);
    return st;
}

void ht_work_folder_close(ht_work_folder* work) { free(work); }

void ht_work_folder_remove(ht_work_folder* work)
{
    empty_folder(work);
    (void)rmdir(work->path);
}

bool ht_work_has(const ht_work_folder* work, const char* step)
{
    char file[MAX_PATH + 128];
    return join(file, work, step, NULL) == HT_STATUS_OK && ht_file_exists(file);
}

ht_status ht_work_begin(const ht_work_folder* work, const char* step, FILE** out, ht_error* err)
{
    char            file[MAX_PATH + 128];
    const ht_status st = join(file, work, part_name, err);
    (void)step;
    if (st != HT_STATUS_OK) { return st; }
    *out = fopen(file, "wb");
    return *out ? HT_STATUS_OK : ht_fail(err, HT_STATUS_IO, "cannot write %s: %s", file, strerror(errno));
}

/* No fsync: a killed process loses nothing that it wrote, and after a power cut the statistics are made anew. */
ht_status ht_work_commit(const ht_work_folder* work, const char* step, FILE* f, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    char      part[MAX_PATH + 128], file[MAX_PATH + 128];
    const bool ok = fclose(f) == 0;
    HT_CHECK(ok, IO, "cannot write to %s: %s", work->path, strerror(errno));
    HT_TRY(join(part, work, part_name, err));
    HT_TRY(join(file, work, step, err));
    HT_CHECK(rename(part, file) == 0, IO, "cannot rename to %s: %s", file, strerror(errno));
done:
    return st;
}

void ht_work_abandon(const ht_work_folder* work, FILE* f)
{
    (void)work;
    if (f) { (void)fclose(f); }
}

ht_status ht_work_write(const ht_work_folder* work, const char* step, const void* data, size_t n_bytes, ht_error* err)
{
    FILE*     f  = NULL;
    ht_status st = ht_work_begin(work, step, &f, err);
    if (st != HT_STATUS_OK) { return st; }
    if (fwrite(data, 1, n_bytes, f) != n_bytes) {
        st = ht_fail(err, HT_STATUS_IO, "cannot write %zu bytes to %s: %s", n_bytes, work->path, strerror(errno));
        (void)fclose(f);
        return st;
    }
    return ht_work_commit(work, step, f, err);
}

ht_status ht_work_open(const ht_work_folder* work, const char* step, FILE** out, ht_error* err)
{
    char            file[MAX_PATH + 128];
    const ht_status st = join(file, work, step, err);
    if (st != HT_STATUS_OK) { return st; }
    *out = fopen(file, "rb");
    return *out ? HT_STATUS_OK : ht_fail(err, HT_STATUS_IO, "cannot read %s: %s", file, strerror(errno));
}

ht_status ht_work_read(const ht_work_folder* work, const char* step, void* data, size_t n_bytes, ht_error* err)
{
    FILE*     f  = NULL;
    ht_status st = ht_work_open(work, step, &f, err);
    if (st != HT_STATUS_OK) { return st; }
    char       more;
    const bool ok = fread(data, 1, n_bytes, f) == n_bytes && fread(&more, 1, 1, f) == 0;
    (void)fclose(f);
    return ok ? HT_STATUS_OK : ht_fail(err, HT_STATUS_IO, "%s/%s does not have %zu bytes", work->path, step, n_bytes);
}

void ht_work_remove(const ht_work_folder* work, const char* step)
{
    char file[MAX_PATH + 128];
    if (join(file, work, step, NULL) == HT_STATUS_OK) { (void)unlink(file); }
}

void* ht_work_scratch(const ht_work_folder* work, size_t n_bytes)
{
    char  file[MAX_PATH + 128];
    void* map = MAP_FAILED;
    int   fd  = -1;
    if (n_bytes == 0 || join(file, work, "scratch-XXXXXX", NULL) != HT_STATUS_OK) { return NULL; }
    fd = mkstemp(file);
    if (fd < 0) { return NULL; }
    (void)unlink(file); /* goes with the last descriptor or mapping */
    if (posix_fallocate(fd, 0, (off_t)n_bytes) == 0) { map = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); }
    (void)close(fd);
    return map == MAP_FAILED ? NULL : map;
}

void ht_work_scratch_free(void* scratch, size_t n_bytes)
{
    if (scratch) { (void)munmap(scratch, n_bytes); }
}
