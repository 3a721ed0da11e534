/* Declarations of all kernel variants, for the files that define them and the table in select.c. */
#ifndef HT_RUNTIME_VARIANTS_H
#define HT_RUNTIME_VARIANTS_H

#include "runtime/kernels/kernels.h"

/* Expands X(stem) for the weight types that have kernels, by what they are multiplied with. */
#define HT_DOT_FLOAT_TYPES(X) X(f32) X(f16) X(bf16)
#define HT_DOT_Q8_0_TYPES(X) X(q4_0) X(q4_1) X(q5_0) X(q5_1) X(q8_0) X(iq4_nl) X(mxfp4)
#define HT_DOT_Q8_K_TYPES(X) X(q2_k) X(q3_k) X(q4_k) X(q5_k) X(q6_k) X(iq4_xs)
#define HT_DOT_ALL_TYPES(X) HT_DOT_FLOAT_TYPES(X) HT_DOT_Q8_0_TYPES(X) HT_DOT_Q8_K_TYPES(X)

#define HT_DECLARE(stem) void ht_dot_##stem##_scalar(const ht_panel* panel);
HT_DOT_ALL_TYPES(HT_DECLARE)
#undef HT_DECLARE
#define HT_DECLARE(stem) void ht_dot_##stem##_avx2(const ht_panel* panel);
HT_DOT_ALL_TYPES(HT_DECLARE)
#undef HT_DECLARE
#define HT_DECLARE(stem) void ht_dot_##stem##_avx512(const ht_panel* panel);
HT_DOT_FLOAT_TYPES(HT_DECLARE)
#undef HT_DECLARE

#define HT_DECLARE(stem) void ht_dot_##stem##_avx512vnni(const ht_panel* panel);
HT_DOT_Q8_0_TYPES(HT_DECLARE)
HT_DOT_Q8_K_TYPES(HT_DECLARE)
#undef HT_DECLARE

void ht_round_q8_0_scalar(const float* restrict x, void* restrict row, int64_t n_cols);
void ht_round_q8_k_scalar(const float* restrict x, void* restrict row, int64_t n_cols);
void ht_round_q8_0_avx2(const float* restrict x, void* restrict row, int64_t n_cols);
void ht_round_q8_k_avx2(const float* restrict x, void* restrict row, int64_t n_cols);
void ht_round_q8_0_avx512(const float* restrict x, void* restrict row, int64_t n_cols);
void ht_round_q8_k_avx512(const float* restrict x, void* restrict row, int64_t n_cols);

#endif
