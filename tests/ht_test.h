/* What every C test starts with: cmocka with its prerequisites, the folder of reference data, small file helpers. */
#ifndef HT_TESTS_HT_TEST_H
#define HT_TESTS_HT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define HT_TEST_SKIPPED 77

/* Path of a file below the shared reference data, or NULL when the data is absent. The buffer is static. */
static inline const char* ht_test_shared(const char* name)
{
    static char path[1024];
    struct stat info;
    const char* root = getenv("HT_SHARED");
    snprintf(path, sizeof path, "%s/%s", root ? root : "../shared", name);
    return stat(path, &info) == 0 ? path : NULL;
}

/* Path of a file of the source tree. The buffer is static. */
static inline const char* ht_test_source(const char* name)
{
    static char path[1024];
    const char* root = getenv("HT_SOURCE");
    snprintf(path, sizeof path, "%s/%s", root ? root : ".", name);
    return path;
}

/* A whole file in memory, malloc'd; fails the test when it cannot be read. */
static inline void* ht_test_load(const char* path, size_t* n_bytes)
{
    FILE* f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    const long n = ftell(f);
    rewind(f);
    void* data = malloc((size_t)n + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)n, f), (size_t)n);
    fclose(f);
    ((char*)data)[n] = '\0';
    if (n_bytes) { *n_bytes = (size_t)n; }
    return data;
}

/* splitmix64: the seeded generator of all tests. */
static inline uint64_t ht_test_random(uint64_t* state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Roughly normal(0, 1): the sum of 12 uniforms. */
static inline float ht_test_normal(uint64_t* state)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++) { sum += (double)(ht_test_random(state) >> 11) * 0x1p-53; }
    return (float)sum;
}

#endif
