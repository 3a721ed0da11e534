/*
 * Small floating-point formats, scalar and exact. Every conversion to a narrower format rounds to nearest, ties to even.
 *   f16   IEEE 754 binary16; overflow gives Inf, NaN stays NaN (made quiet, payload truncated)
 *   bf16  upper half of binary32; NaN made quiet
 *   f8    E4M3 ("fn": no Inf, 0x7F/0xFF are NaN) and E5M2 (IEEE-like), OCP 8-bit floating point specification 1.0
 *   e8m0  power-of-two scale of the OCP microscaling formats: 2^(e - 127), 0xFF is NaN
 * Rows are the hot path of readers; they are plain loops that the compiler vectorises.
 */
#ifndef HT_BASE_HALF_H
#define HT_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float ht_f32_from_bits(uint32_t u) { float f; memcpy(&f, &u, sizeof f); return f; }
static inline uint32_t ht_f32_to_bits(float f) { uint32_t u; memcpy(&u, &f, sizeof u); return u; }

static inline float ht_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t exp  = (h >> 10) & 0x1Fu;
    const uint32_t frac = h & 0x3FFu;
    if (exp == 0x1F) { return ht_f32_from_bits(sign | 0x7F800000u | (frac << 13) | (frac ? 0x400000u : 0u)); }
    if (exp == 0) { /* zero or subnormal: frac * 2^-24, exact in f32 */
        const float magnitude = (float)frac * 0x1p-24f;
        return ht_f32_from_bits(sign | ht_f32_to_bits(magnitude));
    }
    return ht_f32_from_bits(sign | ((exp + 112u) << 23) | (frac << 13));
}

static inline uint16_t ht_f32_to_f16(float f)
{
    const uint32_t u    = ht_f32_to_bits(f);
    const uint32_t sign = (u >> 16) & 0x8000u;
    const uint32_t mag  = u & 0x7FFFFFFFu;
    if (mag > 0x7F800000u) { return (uint16_t)(sign | 0x7E00u | ((mag >> 13) & 0x1FFu)); }
    if (mag >= 0x477FF000u) { return (uint16_t)(sign | 0x7C00u); } /* 65520 and up round to Inf */
    if (mag < 0x38800000u) {                                       /* below 2^-14: subnormal, unit 2^-24 */
        /* adding 0.5 puts the unit of 2^-24 at the last bit of the sum, so the FPU rounds to even for us */
        const float shifted = ht_f32_from_bits(mag) + 0.5f;
        return (uint16_t)(sign | (ht_f32_to_bits(shifted) - 0x3F000000u));
    }
    return (uint16_t)(sign | ((mag - 0x38000000u + 0xFFFu + ((mag >> 13) & 1u)) >> 13));
}

static inline float ht_bf16_to_f32(uint16_t h) { return ht_f32_from_bits((uint32_t)h << 16); }

static inline uint16_t ht_f32_to_bf16(float f)
{
    const uint32_t u = ht_f32_to_bits(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) { return (uint16_t)((u >> 16) | 0x40u); }
    return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

static inline float ht_f8_e4m3_to_f32(uint8_t b)
{
    const uint32_t exp = (b >> 3) & 0xFu, frac = b & 7u;
    const float    sign = b & 0x80u ? -1.0f : 1.0f;
    if (exp == 0xF && frac == 7) { return ht_f32_from_bits(0x7FC00000u | (uint32_t)(b & 0x80u) << 24); }
    if (exp == 0) { return sign * (float)frac * 0x1p-9f; }
    return ht_f32_from_bits((uint32_t)(b & 0x80u) << 24 | (exp + 120u) << 23 | frac << 20);
}

static inline float ht_f8_e5m2_to_f32(uint8_t b) { return ht_f16_to_f32((uint16_t)((uint16_t)b << 8)); }

static inline float ht_e8m0_to_f32(uint8_t e)
{
    if (e == 0xFF) { return ht_f32_from_bits(0x7FC00000u); }
    return ht_f32_from_bits(e == 0 ? 0x00400000u : (uint32_t)e << 23);
}

#endif
