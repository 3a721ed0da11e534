/*
 * Weights in super-blocks of 256 times Q8_K activations, the definition: group sums times integer group scales add up in integers, then both
 * scales; types with minima subtract dmin * d * sum of mn[g] * (sum of q of the group).
 */
#include "formats/block_iq4_xs.h"
#include "formats/block_q2_k.h"
#include "formats/block_q3_k.h"
#include "formats/block_q4_k.h"
#include "formats/block_q5_k.h"
#include "formats/block_q6_k.h"
#include "runtime/kernels/scalar/panel_scalar.h"

/* A super-block in integers: x[i] = d * sc[i / 16] * q[i] - dmin * mn[i / 16]. Groups of 32 appear as two of 16. */
typedef struct super_block {
    float  d, dmin;
    int    sc[16], mn[16];
    int8_t q[256];
} super_block;

static void unpack_q2_k(const ht_block_q2_k* w, super_block* s)
{
    s->d    = ht_f16_to_f32(w->d);
    s->dmin = ht_f16_to_f32(w->dmin);
    for (int g = 0; g < 16; g++) {
        s->sc[g] = w->scales[g] & 15;
        s->mn[g] = w->scales[g] >> 4;
    }
    for (int i = 0; i < 256; i++) { s->q[i] = (int8_t)(w->qs[32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3); }
}

static void unpack_q3_k(const ht_block_q3_k* w, super_block* s)
{
    int8_t sc[16];
    ht_k3_scales_unpack(w->scales, sc);
    s->d = ht_f16_to_f32(w->d);
    for (int g = 0; g < 16; g++) { s->sc[g] = sc[g]; }
    for (int i = 0; i < 256; i++) {
        const int low = w->qs[32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3, high = w->hmask[i % 32] >> (i / 32) & 1;
        s->q[i] = (int8_t)((low | high << 2) - 4);
    }
}

static void unpack_k4_scales(const uint8_t packed[12], super_block* s)
{
    uint8_t sc[8], mn[8];
    ht_k4_scales_unpack(packed, sc, mn);
    for (int g = 0; g < 16; g++) {
        s->sc[g] = sc[g / 2];
        s->mn[g] = mn[g / 2];
    }
}

static void unpack_q4_k(const ht_block_q4_k* w, super_block* s)
{
    s->d    = ht_f16_to_f32(w->d);
    s->dmin = ht_f16_to_f32(w->dmin);
    unpack_k4_scales(w->scales, s);
    for (int i = 0; i < 256; i++) { s->q[i] = (int8_t)(w->qs[32 * (i / 64) + i % 32] >> (4 * (i / 32 % 2)) & 15); }
}

static void unpack_q5_k(const ht_block_q5_k* w, super_block* s)
{
    s->d    = ht_f16_to_f32(w->d);
    s->dmin = ht_f16_to_f32(w->dmin);
    unpack_k4_scales(w->scales, s);
    for (int i = 0; i < 256; i++) {
        const int low = w->qs[32 * (i / 64) + i % 32] >> (4 * (i / 32 % 2)) & 15, high = w->qh[i % 32] >> (i / 32) & 1;
        s->q[i] = (int8_t)(low | high << 4);
    }
}

static void unpack_q6_k(const ht_block_q6_k* w, super_block* s)
{
    s->d = ht_f16_to_f32(w->d);
    for (int g = 0; g < 16; g++) { s->sc[g] = w->scales[g]; }
    for (int i = 0; i < 256; i++) {
        const int run = i / 128, low = w->ql[64 * run + i % 64] >> (4 * (i / 64 % 2)) & 15;
        const int high = w->qh[32 * run + i % 32] >> (2 * (i / 32 % 4)) & 3;
        s->q[i] = (int8_t)((low | high << 4) - 32);
    }
}

static void unpack_iq4_xs(const ht_block_iq4_xs* w, super_block* s)
{
    s->d = ht_f16_to_f32(w->d);
    for (int g = 0; g < 16; g++) {
        const int low = w->scales_l[g / 4] >> (4 * (g / 2 % 2)) & 15, high = w->scales_h >> (2 * (g / 2)) & 3;
        s->sc[g] = (low | high << 4) - 32;
    }
    for (int i = 0; i < 256; i++) { s->q[i] = ht_iq4_values[w->qs[16 * (i / 32) + i % 16] >> (4 * (i / 16 % 2)) & 15]; }
}

/* Integer sums stay below 2^31: at most 256 * 127 * 127 * 128. */
static float dot_super_block(const super_block* s, const int8_t* q, const int16_t* sums, float d)
{
    int sum = 0, min_sum = 0;
    for (int i = 0; i < 256; i++) { sum += s->sc[i / 16] * s->q[i] * q[i]; }
    for (int g = 0; g < 16; g++) { min_sum += s->mn[g] * sums[g]; }
    return s->d * d * (float)sum - s->dmin * d * (float)min_sum;
}

#define DOT_Q8_K(stem)                                                                                                  \
    static float dot_row_##stem(const void* row, ht_act_row a, int64_t n_cols)                                          \
    {                                                                                                                   \
        const ht_block_##stem* w = row;                                                                                 \
        float                  y = 0.0f;                                                                                \
        for (int64_t b = 0; b < n_cols / 256; b++, w++) {                                                               \
            super_block s = { .dmin = 0.0f };                                                                           \
            unpack_##stem(w, &s);                                                                                       \
            y += dot_super_block(&s, a.q + 256 * b, a.sums + 16 * b, a.d[b]);                                           \
        }                                                                                                               \
        return y;                                                                                                       \
    }                                                                                                                   \
    void ht_dot_##stem##_scalar(const ht_panel* p) { ht_panel_each_pair(p, dot_row_##stem, ht_act_row_q8_k); }

HT_DOT_Q8_K_TYPES(DOT_Q8_K)
