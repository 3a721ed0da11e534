/* How fast a model runs, and how fast memory can be read on this machine. */
#ifndef HT_RUNTIME_SPEED_H
#define HT_RUNTIME_SPEED_H

#include "runtime/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_speed {
    double prompt_s; /* until the logits of the first new token are there */
    double decode_s; /* for n_gen tokens after it, one at a time          */
} ht_speed;

/*
 * One run from an empty cache: n_prompt seeded pseudo-random ids at once, then n_gen likeliest tokens one by one.
 * `session` needs room for n_prompt + n_gen. Errors: those of ht_session_eval.
 */
ht_status ht_speed_run(ht_session* session, const ht_model* model, int64_t n_prompt, int64_t n_gen, uint64_t seed, ht_speed* out, ht_error* err);

/*
 * Read bandwidth of main memory in bytes/s with n_threads threads: the best of a few passes over a buffer larger than any cache
 * (n_bytes; 512 MiB is plenty). 0 when the buffer cannot be had.
 */
double ht_read_bandwidth(int n_threads, size_t n_bytes);

/* Index of the largest value; the first of equals. */
int32_t ht_arg_max(const float* x, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
