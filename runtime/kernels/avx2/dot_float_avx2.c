/*
 * Float weights times f32 activations in tiles of 4 rows x up to 2 tokens: 8 accumulators and 4 weight vectors fit the 16 registers.
 * Every product has one accumulator of 8 lanes, value i in lane i % 8, whatever the tile: the promise of kernels.h. What does not fill a vector is
 * copied to a zero-padded one.
 */
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#include <string.h>

#include "runtime/kernels/variants.h"

enum { TILE_ROWS = 4, TILE_TOKENS = 2 };

typedef __m256 (*load_fn)(const unsigned char* p);

static inline __m256 load_f32(const unsigned char* p) { return _mm256_loadu_ps((const float*)(const void*)p); }

static inline __m256 load_f16(const unsigned char* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(const void*)p)); }

static inline __m256 load_bf16(const unsigned char* p)
{
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)(const void*)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline __m256 load_tail(load_fn load, const unsigned char* p, size_t n_bytes)
{
    unsigned char padded[32] = { 0 };
    memcpy(padded, p, n_bytes);
    return load(padded);
}

/* The sums of four vectors. */
static inline __m128 sum4(const __m256 v[4])
{
    __m128 s[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) { s[k] = _mm_add_ps(_mm256_castps256_ps128(v[k]), _mm256_extractf128_ps(v[k], 1)); }
    const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(s[0], s[1]), _mm_unpackhi_ps(s[0], s[1]));
    const __m128 cd = _mm_add_ps(_mm_unpacklo_ps(s[2], s[3]), _mm_unpackhi_ps(s[2], s[3]));
    return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}

/* Rows r .. r + 3 (the last one stands in for those beyond the panel) times tokens t .. t + n_tokens - 1. */
static inline __attribute__((always_inline)) void tile(const ht_panel* p, int64_t r, int64_t t, load_fn load, const size_t elem_bytes,
                                                       const int n_tokens)
{
    const int64_t        n_rows = p->n_rows - r < TILE_ROWS ? p->n_rows - r : TILE_ROWS;
    const unsigned char *w[TILE_ROWS], *a[TILE_TOKENS];
    __m256               sums[TILE_TOKENS][TILE_ROWS], wv[TILE_ROWS];
    for (int k = 0; k < TILE_ROWS; k++) { w[k] = (const unsigned char*)p->w + (size_t)(r + (k < n_rows ? k : n_rows - 1)) * p->w_stride; }
#pragma GCC unroll 2
    for (int j = 0; j < n_tokens; j++) {
        a[j] = (const unsigned char*)p->a + (size_t)(t + j) * p->a_stride;
#pragma GCC unroll 4
        for (int k = 0; k < TILE_ROWS; k++) { sums[j][k] = _mm256_setzero_ps(); }
    }
    const size_t n_cols = (size_t)p->n_cols, n_whole = n_cols / 8 * 8;
    for (size_t i = 0; i < n_whole; i += 8) {
#pragma GCC unroll 4
        for (int k = 0; k < TILE_ROWS; k++) { wv[k] = load(w[k] + i * elem_bytes); }
#pragma GCC unroll 2
        for (int j = 0; j < n_tokens; j++) {
            const __m256 av = load_f32(a[j] + 4 * i);
#pragma GCC unroll 4
            for (int k = 0; k < TILE_ROWS; k++) { sums[j][k] = _mm256_fmadd_ps(wv[k], av, sums[j][k]); }
        }
    }
    if (n_whole < n_cols) {
#pragma GCC unroll 4
        for (int k = 0; k < TILE_ROWS; k++) { wv[k] = load_tail(load, w[k] + n_whole * elem_bytes, (n_cols - n_whole) * elem_bytes); }
#pragma GCC unroll 2
        for (int j = 0; j < n_tokens; j++) {
            const __m256 av = load_tail(load_f32, a[j] + 4 * n_whole, (n_cols - n_whole) * 4);
#pragma GCC unroll 4
            for (int k = 0; k < TILE_ROWS; k++) { sums[j][k] = _mm256_fmadd_ps(wv[k], av, sums[j][k]); }
        }
    }
#pragma GCC unroll 2
    for (int j = 0; j < n_tokens; j++) {
        float y[4];
        _mm_storeu_ps(y, sum4(sums[j]));
        memcpy(p->y + (t + j) * p->y_stride + r, y, (size_t)n_rows * sizeof *y);
    }
}

static inline __attribute__((always_inline)) void multiply(const ht_panel* p, load_fn load, const size_t elem_bytes)
{
    int64_t t = 0;
    for (; t + TILE_TOKENS <= p->n_tokens; t += TILE_TOKENS) {
        for (int64_t r = 0; r < p->n_rows; r += TILE_ROWS) { tile(p, r, t, load, elem_bytes, TILE_TOKENS); }
    }
    for (int64_t r = 0; t < p->n_tokens && r < p->n_rows; r += TILE_ROWS) { tile(p, r, t, load, elem_bytes, 1); }
}

void ht_dot_f32_avx2(const ht_panel* panel) { multiply(panel, load_f32, 4); }
void ht_dot_f16_avx2(const ht_panel* panel) { multiply(panel, load_f16, 2); }
void ht_dot_bf16_avx2(const ht_panel* panel) { multiply(panel, load_bf16, 2); }
#endif
