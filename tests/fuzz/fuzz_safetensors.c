/*
 * Safetensors headers from hostile bytes: open, look up every tensor, read its first and last values. Nothing may crash, hang or read outside.
 * As a libFuzzer target (-DHT_LIBFUZZER -fsanitize=fuzzer) or, here, a plain program that replays seeded mutations of sound files.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes);

static void touch(const ht_safetensors* s, const ht_st_tensor* t)
{
    float    values[4];
    uint64_t raw[4];
    ht_error err = HT_ERROR_INIT;
    if (ht_safetensors_find(s, t->name) != t) { abort(); }
    const int64_t n = t->n_elems < 4 ? t->n_elems : 4;
    if (ht_safetensors_read_raw(s, t, t->n_elems - n, n, raw, &err) != HT_STATUS_OK) { abort(); }
    if (ht_dtype_is_float(t->dtype) && ht_safetensors_read_f32(s, t, 0, n, values, &err) != HT_STATUS_OK) { abort(); }
    if (ht_safetensors_read_raw(s, t, t->n_elems, 1, raw, &err) != HT_STATUS_BOUNDS) { abort(); }
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes)
{
    char            path[64];
    ht_safetensors* s   = NULL;
    ht_error        err = HT_ERROR_INIT;
    const int       fd  = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, n_bytes) != (ssize_t)n_bytes) { abort(); }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (ht_safetensors_open(&s, path, NULL, &err) == HT_STATUS_OK) {
        for (int64_t i = 0; i < ht_safetensors_n_tensors(s); i++) { touch(s, ht_safetensors_tensor_at(s, i)); }
        ht_safetensors_close(s);
    } else if (err.message[0] == '\0') {
        abort(); /* every refusal has its reason */
    }
    close(fd);
    return 0;
}

#ifndef HT_LIBFUZZER

static const char* const seeds[] = {
    "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[8,16]}}",
    "{\"__metadata__\":{\"format\":\"pt\",\"\\u00e9\\ud83d\\ude00\":\"x\"},\"s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
    "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4,0],\"data_offsets\":[0,0]},\"c\":{\"dtype\":\"F64\",\"shape\":[1,2,1],\"x\":[1,{\"y\":null}],\"data_offsets\":[0,16]}}",
};

/* Pieces that make a mutation land on something that means something. */
static const char* const pieces[] = { "\"", "\\", "\\u0000", "\\ud800", "{", "}", "[", "]", ",", ":", "-1", "1e9", "18446744073709551615", "18446744073709551616",
                                      "9223372036854775807", "\"dtype\"", "\"shape\"", "\"data_offsets\"", "\"__metadata__\"", "null", "\"w\"", "\xff", "0" };

static uint64_t next(uint64_t* state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* Up to three changes: a flipped bit, a piece put over or between, a cut. Returns the new length. */
static size_t mutate(uint8_t* bytes, size_t n, size_t room, uint64_t* state)
{
    for (uint64_t k = next(state) % 4; k > 0 && n > 0; k--) {
        const size_t at      = next(state) % n;
        const char*  piece   = pieces[next(state) % (sizeof pieces / sizeof *pieces)];
        const size_t n_piece = strlen(piece);
        switch (next(state) % 4) {
        case 0: bytes[at] = (uint8_t)(bytes[at] ^ 1u << next(state) % 8); break;
        case 1:
            if (at + n_piece <= n) { memcpy(bytes + at, piece, n_piece); }
            break;
        case 2:
            if (n + n_piece > room) { break; }
            memmove(bytes + at + n_piece, bytes + at, n - at);
            memcpy(bytes + at, piece, n_piece);
            n += n_piece;
            break;
        default: n = next(state) % 8 == 0 ? at : n; break;
        }
    }
    return n;
}

int main(int argc, char** argv)
{
    enum { ROOM = 1024, N_DATA = 16 };
    const long n_runs = argc > 1 ? strtol(argv[1], NULL, 10) : 30000;
    uint64_t   state  = 0x243F6A8885A308D3u;
    for (long i = 0; i < n_runs; i++) {
        const size_t which       = (size_t)i % (sizeof seeds / sizeof *seeds);
        const size_t n_header    = strlen(seeds[which]);
        uint8_t      bytes[ROOM] = { 0 };
        memcpy(bytes + 8, seeds[which], n_header);
        const size_t   n      = mutate(bytes + 8, n_header, ROOM - 8 - N_DATA, &state);
        const uint64_t length = next(&state) % 16 == 0 ? next(&state) >> next(&state) % 64 : n; /* now and then a false header length */
        memcpy(bytes, &length, sizeof length);
        memset(bytes + 8 + n, 0, N_DATA);
        LLVMFuzzerTestOneInput(bytes, 8 + n + (which == 1 ? 1 : N_DATA));
    }
    printf("%ld inputs\n", n_runs);
    return 0;
}

#endif
