/* Float weights times f32 activations, the definition. Sixteen partial sums per product keep rounding errors small and look like the vector
 * variants; value i goes to sum i % 16. */
#include <string.h>

#include "formats/base/half.h"
#include "runtime/kernels/variants.h"

#define DOT_FLOAT(stem, type, to_f32)                                                              \
    void ht_dot_##stem##_scalar(const ht_panel* p)                                                 \
    {                                                                                              \
        for (int64_t t = 0; t < p->n_tokens; t++) {                                                \
            for (int64_t r = 0; r < p->n_rows; r++) {                                              \
                const unsigned char* w = (const unsigned char*)p->w + (size_t)r * p->w_stride;     \
                const unsigned char* a = (const unsigned char*)p->a + (size_t)t * p->a_stride;     \
                float sums[16] = { 0.0f }, y = 0.0f;                                               \
                for (int64_t i = 0; i < p->n_cols; i++) {                                          \
                    type  wi;                                                                      \
                    float ai;                                                                      \
                    memcpy(&wi, w + (size_t)i * sizeof wi, sizeof wi);                             \
                    memcpy(&ai, a + (size_t)i * sizeof ai, sizeof ai);                             \
                    sums[i % 16] += to_f32(wi) * ai;                                               \
                }                                                                                  \
                for (int k = 0; k < 16; k++) { y += sums[k]; }                                     \
                p->y[t * p->y_stride + r] = y;                                                     \
            }                                                                                      \
        }                                                                                          \
    }

#define SAME(v) (v)
DOT_FLOAT(f32, float, SAME)
DOT_FLOAT(f16, uint16_t, ht_f16_to_f32)
DOT_FLOAT(bf16, uint16_t, ht_bf16_to_f32)
