/* A scratch folder for one test, and files in it. All failures fail the test. */
#ifndef HT_TESTS_TEMP_FOLDER_H
#define HT_TESTS_TEMP_FOLDER_H

#include <ftw.h>
#include <unistd.h>

#include "formats/base/log.h"
#include "tests/ht_test.h"

typedef struct temp_folder { char path[256]; } temp_folder;

static inline temp_folder temp_folder_create(void)
{
    temp_folder t;
    const char* root = getenv("TMPDIR");
    snprintf(t.path, sizeof t.path, "%s/halftone-test-XXXXXX", root && *root ? root : "/tmp");
    assert_non_null(mkdtemp(t.path));
    return t;
}

static inline int temp_remove_entry(const char* path, const struct stat* info, int kind, struct FTW* walk)
{
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

static inline void temp_folder_remove(const temp_folder* t) { nftw(t->path, temp_remove_entry, 16, FTW_DEPTH | FTW_PHYS); }

/* "<folder>/name"; stays valid for the next three calls. */
static inline const char* temp_path(const temp_folder* t, const char* name)
{
    static char ring[4][512];
    static int  n;
    char*       to = ring[n++ % 4];
    snprintf(to, sizeof ring[0], "%s/%s", t->path, name);
    return to;
}

static inline void temp_write(const temp_folder* t, const char* name, const void* data, size_t n_bytes)
{
    FILE* f = fopen(temp_path(t, name), "wb");
    assert_non_null(f);
    if (n_bytes > 0) { assert_int_equal(fwrite(data, 1, n_bytes, f), n_bytes); }
    assert_int_equal(fclose(f), 0);
}

static inline void temp_write_text(const temp_folder* t, const char* name, const char* text) { temp_write(t, name, text, strlen(text)); }

/* A .safetensors file of a header as given and `n_data` bytes of data (NULL: zeros, sparse). */
static inline void temp_write_safetensors(const temp_folder* t, const char* name, const char* header, size_t n_header, const void* data, size_t n_data)
{
    const uint64_t n = n_header;
    FILE*          f = fopen(temp_path(t, name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(&n, 8, 1, f), 1);
    assert_int_equal(fwrite(header, 1, n_header, f), n_header);
    if (data) { assert_int_equal(fwrite(data, 1, n_data, f), n_data); }
    assert_int_equal(fflush(f), 0);
    assert_int_equal(ftruncate(fileno(f), (off_t)(8 + n_header + n_data)), 0);
    assert_int_equal(fclose(f), 0);
}

/* Log callback that keeps everything, one line each. */
typedef struct test_log {
    char   text[8192];
    size_t n;
} test_log;

static inline void test_log_keep(void* user, ht_log_level level, const char* text)
{
    test_log* log = user;
    (void)level;
    if (log->n + 1 < sizeof log->text) { log->n += (size_t)snprintf(log->text + log->n, sizeof log->text - log->n, "%s\n", text); }
    if (log->n > sizeof log->text) { log->n = sizeof log->text - 1; }
}

static inline void assert_contains(const char* text, const char* part)
{
    if (!strstr(text, part)) { fail_msg("\"%s\" does not contain \"%s\"", text, part); }
}

#endif
