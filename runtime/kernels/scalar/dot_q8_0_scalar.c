/*
 * Weights in blocks of 32 times Q8_0 activations, the definition: per block an integer sum, times both scales; types with an offset m add
 * m * d * (sum of q).
 */
#include "formats/base/bytes.h"
#include "formats/block_iq4_nl.h"
#include "formats/block_mxfp4.h"
#include "formats/block_q4_0.h"
#include "formats/block_q4_1.h"
#include "formats/block_q5_0.h"
#include "formats/block_q5_1.h"
#include "formats/block_q8_0.h"
#include "runtime/kernels/scalar/panel_scalar.h"

/* Defines the kernel of a type from: its scale, its code j (0..31) of block *w as an integer, and what the block adds beside the sum. */
#define DOT_Q8_0(stem, scale, code, extra)                                                    \
    static float dot_row_##stem(const void* row, ht_act_row a, int64_t n_cols)                \
    {                                                                                         \
        const ht_block_##stem* w = row;                                                       \
        float                  y = 0.0f;                                                      \
        for (int64_t b = 0; b < n_cols / 32; b++, w++) {                                      \
            int sum = 0;                                                                      \
            for (int j = 0; j < 32; j++) { sum += (code) * a.q[32 * b + j]; }                 \
            y += (scale) * a.d[b] * (float)sum + (extra);                                     \
        }                                                                                     \
        return y;                                                                             \
    }                                                                                         \
    void ht_dot_##stem##_scalar(const ht_panel* p) { ht_panel_each_pair(p, dot_row_##stem, ht_act_row_q8_0); }

/* Code j of sixteen bytes of nibbles: low nibbles first. */
#define NIBBLE(qs, j) ((qs)[(j) % 16] >> (4 * ((j) / 16)) & 15)
#define FIFTH_BIT(qh, j) ((int)(ht_load_u32le(qh) >> (j) & 1) << 4)

DOT_Q8_0(q4_0, ht_f16_to_f32(w->d), NIBBLE(w->qs, j) - 8, 0.0f)
DOT_Q8_0(q4_1, ht_f16_to_f32(w->d), NIBBLE(w->qs, j), ht_f16_to_f32(w->m) * a.sum_d[b])
DOT_Q8_0(q5_0, ht_f16_to_f32(w->d), (NIBBLE(w->qs, j) | FIFTH_BIT(w->qh, j)) - 16, 0.0f)
DOT_Q8_0(q5_1, ht_f16_to_f32(w->d), NIBBLE(w->qs, j) | FIFTH_BIT(w->qh, j), ht_f16_to_f32(w->m) * a.sum_d[b])
DOT_Q8_0(q8_0, ht_f16_to_f32(w->d), w->qs[j], 0.0f)
DOT_Q8_0(iq4_nl, ht_f16_to_f32(w->d), ht_iq4_values[NIBBLE(w->qs, j)], 0.0f)
DOT_Q8_0(mxfp4, ht_e8m0_half_to_f32(w->e), ht_fp4_values[NIBBLE(w->qs, j)], 0.0f)
