/*
 * Float weights times f32 activations in tiles of 4 rows x up to 6 tokens: 24 accumulators, so that a loaded vector takes part in 4 or 6 products.
 * Every product has one accumulator of 16 lanes, value i in lane i % 16, whatever the tile: the promise of kernels.h.
 */
#if defined(__AVX512F__) && defined(__AVX512VL__)
#include <immintrin.h>

#include "runtime/kernels/variants.h"

enum { TILE_ROWS = 4, TILE_TOKENS = 6 };

typedef __m512 (*load_fn)(const unsigned char* row, int64_t i, __mmask16 mask);

static inline __m512 load_f32(const unsigned char* row, int64_t i, __mmask16 mask)
{
    return _mm512_maskz_loadu_ps(mask, row + 4 * i);
}

static inline __m512 load_f16(const unsigned char* row, int64_t i, __mmask16 mask)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, row + 2 * i));
}

static inline __m512 load_bf16(const unsigned char* row, int64_t i, __mmask16 mask)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, row + 2 * i)), 16));
}

/* 16 lanes to 4. */
static inline __m128 fold(__m512 v)
{
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

/* The sums of four vectors. */
static inline __m128 sum4(const __m512 v[4])
{
    const __m128 a = fold(v[0]), b = fold(v[1]), c = fold(v[2]), d = fold(v[3]);
    const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b)), cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
    return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}

/* Rows r .. r + 3 (the last one stands in for those beyond the panel) times tokens t .. t + n_tokens - 1. */
static inline __attribute__((always_inline)) void tile(const ht_panel* p, int64_t r, int64_t t, load_fn load, const int n_tokens)
{
    const int64_t        n_rows = p->n_rows - r < TILE_ROWS ? p->n_rows - r : TILE_ROWS;
    const unsigned char *w[TILE_ROWS], *a[TILE_TOKENS];
    __m512               sums[TILE_TOKENS][TILE_ROWS];
    for (int k = 0; k < TILE_ROWS; k++) { w[k] = (const unsigned char*)p->w + (size_t)(r + (k < n_rows ? k : n_rows - 1)) * p->w_stride; }
#pragma GCC unroll 6
    for (int j = 0; j < n_tokens; j++) {
        a[j] = (const unsigned char*)p->a + (size_t)(t + j) * p->a_stride;
#pragma GCC unroll 4
        for (int k = 0; k < TILE_ROWS; k++) { sums[j][k] = _mm512_setzero_ps(); }
    }
    for (int64_t i = 0; i < p->n_cols; i += 16) {
        const int64_t   left = p->n_cols - i;
        const __mmask16 mask = left >= 16 ? (__mmask16)0xFFFF : (__mmask16)((1u << left) - 1u);
        __m512          wv[TILE_ROWS];
#pragma GCC unroll 4
        for (int k = 0; k < TILE_ROWS; k++) { wv[k] = load(w[k], i, mask); }
#pragma GCC unroll 6
        for (int j = 0; j < n_tokens; j++) {
            const __m512 av = load_f32(a[j], i, mask);
#pragma GCC unroll 4
            for (int k = 0; k < TILE_ROWS; k++) { sums[j][k] = _mm512_fmadd_ps(wv[k], av, sums[j][k]); }
        }
    }
    const __mmask8 store = (__mmask8)((1u << n_rows) - 1u);
#pragma GCC unroll 6
    for (int j = 0; j < n_tokens; j++) { _mm_mask_storeu_ps(p->y + (t + j) * p->y_stride + r, store, sum4(sums[j])); }
}

static inline __attribute__((always_inline)) void multiply(const ht_panel* p, load_fn load)
{
    int64_t t = 0;
    for (; t + TILE_TOKENS <= p->n_tokens; t += TILE_TOKENS) {
        for (int64_t r = 0; r < p->n_rows; r += TILE_ROWS) { tile(p, r, t, load, TILE_TOKENS); }
    }
    for (int64_t r = 0; r < p->n_rows; r += TILE_ROWS) {
        switch (p->n_tokens - t) {
        case 5: tile(p, r, t, load, 5); break;
        case 4: tile(p, r, t, load, 4); break;
        case 3: tile(p, r, t, load, 3); break;
        case 2: tile(p, r, t, load, 2); break;
        case 1: tile(p, r, t, load, 1); break;
        default: break;
        }
    }
}

void ht_dot_f32_avx512(const ht_panel* panel) { multiply(panel, load_f32); }
void ht_dot_f16_avx512(const ht_panel* panel) { multiply(panel, load_f16); }
void ht_dot_bf16_avx512(const ht_panel* panel) { multiply(panel, load_bf16); }
#endif
