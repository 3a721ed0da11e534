/*
 * What a fuzz target includes. The target defines, for input that may be anything,
 *
 *   int    LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes);   must neither crash nor leak, whatever it is given
 *   size_t fuzz_seed(int index, uint8_t** out);                           a well-formed input (malloc'd), 0 past the last one
 *
 * Built as it is, the program replays: every seed, FUZZ_MUTATIONS inputs mutated from them (always the same ones), and the files
 * given as arguments. Built with -DHT_LIBFUZZER=ON it is a libFuzzer program, which the seeds reach through `program --write-seeds FOLDER`
 * of the replaying build:
 *
 *   CC=clang cmake -S . -B build-fuzz -G Ninja -DHT_LIBFUZZER=ON -DHT_SANITIZE=address,undefined && ninja -C build-fuzz fuzz_gguf
 *   mkdir corpus && build/fuzz_gguf --write-seeds corpus && build-fuzz/fuzz_gguf -max_total_time=300 corpus
 */
#ifndef HT_TESTS_FUZZ_REPLAY_H
#define HT_TESTS_FUZZ_REPLAY_H

#include <sys/mman.h>
#include <unistd.h>

#include "tests/ht_test.h"

int    LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes);
size_t fuzz_seed(int index, uint8_t** out);

/* The bytes as a file in memory; *out_fd is closed by the caller. The path stays valid until the next call. */
static inline const char* fuzz_file(const uint8_t* data, size_t n_bytes, int* out_fd)
{
    static char path[64];
    *out_fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (*out_fd < 0 || write(*out_fd, data, n_bytes) != (ssize_t)n_bytes) { abort(); }
    snprintf(path, sizeof path, "/proc/self/fd/%d", *out_fd);
    return path;
}

#ifndef HT_LIBFUZZER

enum { FUZZ_MUTATIONS = 20000 };

/* One change: a bit, a byte, a number that likes to be wrong, a piece of JSON, a cut, a range doubled or dropped. Returns the new length. */
static inline size_t fuzz_mutate(uint8_t* data, size_t n, uint64_t* seed)
{
    static const uint64_t numbers[] = { 0, 1, 3, 31, 32, 33, 63, 64, 255, 65536, INT32_MAX, UINT32_MAX, 1ull << 40, INT64_MAX, 1ull << 63, UINT64_MAX };
    const uint64_t        r         = ht_test_random(seed);
    static const char* const pieces[16] = { "\"", "\\", "\\u0000", "\\ud800", "{", "}", "[", "]", ",", ":", "-1", "1e999", "null", "\xff", "9007199254740993",
                                            "18446744073709551616" };
    const char*           piece   = pieces[r >> 8 & 15];
    const size_t          at = n ? (size_t)(ht_test_random(seed) % n) : 0, left = n - at;
    const uint64_t        number = numbers[r >> 8 & 15];
    const size_t          range  = left ? (size_t)(ht_test_random(seed) % (left < 64 ? left : 64)) + 1 : 0;
    if (n == 0) { return 0; }
    switch (r & 7) {
    case 0: data[at] ^= (uint8_t)(1u << (r >> 8 & 7)); break;
    case 1: data[at] = (uint8_t)(r >> 8); break;
    case 2: memcpy(data + at, &number, left < 4 ? left : 4); break;
    case 3: memcpy(data + at, &number, left < 8 ? left : 8); break;
    case 4:
        memmove(data + at + strlen(piece), data + at, left);
        memcpy(data + at, piece, strlen(piece));
        return n + strlen(piece);
    case 5: return at; /* a cut */
    case 6:
        memmove(data + at + range, data + at, left);
        return n + range;
    default: memmove(data + at, data + at + range, left - range); return n - range;
    }
    return n;
}

static inline int fuzz_write_seeds(const char* folder)
{
    uint8_t* data = NULL;
    for (size_t i = 0, n; (n = fuzz_seed((int)i, &data)) > 0; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/seed-%zu", folder, i);
        FILE* f = fopen(path, "wb");
        if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) { return 1; }
        free(data);
    }
    return 0;
}

int main(int argc, char** argv)
{
    uint64_t random = 20261201;
    int      n_seeds = 0;
    uint8_t* data   = NULL;
    if (argc == 3 && strcmp(argv[1], "--write-seeds") == 0) { return fuzz_write_seeds(argv[2]); }
    for (size_t n; (n = fuzz_seed(n_seeds, &data)) > 0; n_seeds++) {
        LLVMFuzzerTestOneInput(data, n);
        free(data);
    }
    for (int i = 0; i < FUZZ_MUTATIONS; i++) {
        enum { MAX_CHANGES = 4, MAX_RANGE = 64 };
        size_t   n       = fuzz_seed(i % n_seeds, &data);
        uint8_t* mutated = malloc(n + MAX_CHANGES * MAX_RANGE);
        memcpy(mutated, data, n);
        free(data);
        for (uint64_t k = ht_test_random(&random) % MAX_CHANGES + 1; k > 0; k--) { n = fuzz_mutate(mutated, n, &random); }
        LLVMFuzzerTestOneInput(mutated, n);
        free(mutated);
    }
    for (int i = 1; i < argc; i++) {
        size_t n = 0;
        data     = ht_test_load(argv[i], &n);
        LLVMFuzzerTestOneInput(data, n);
        free(data);
    }
    printf("%d seeds, %d mutations\n", n_seeds, FUZZ_MUTATIONS);
    return 0;
}

#endif
#endif
