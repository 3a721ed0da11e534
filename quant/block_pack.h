/*
 * Scales, minima and codes to the bits of a block, and back: one pair per type (block_parts.h). The pictures of the blocks are in formats/block_<stem>.h.
 * Static, because the encoders are compiled once per instruction set and pack in their inner loop.
 */
#ifndef HT_QUANT_BLOCK_PACK_H
#define HT_QUANT_BLOCK_PACK_H

#include <string.h>

#include "formats/block_iq4_nl.h"
#include "formats/block_iq4_xs.h"
#include "formats/block_mxfp4.h"
#include "formats/block_q2_k.h"
#include "formats/block_q3_k.h"
#include "formats/block_q4_0.h"
#include "formats/block_q4_1.h"
#include "formats/block_q4_k.h"
#include "formats/block_q5_0.h"
#include "formats/block_q5_1.h"
#include "formats/block_q5_k.h"
#include "formats/block_q6_k.h"
#include "formats/block_q8_0.h"
#include "quant/block_parts.h"

#define HT_PACK static inline __attribute__((unused)) void

/* --- runs of codes --------------------------------------------------------------------------------------------------------------- */

/* qs[j] = c[j] | c[j + n] << 4, of the low four bits */
HT_PACK nibbles_pack(uint8_t* qs, const uint8_t* c, int n)
{
    for (int j = 0; j < n; j++) { qs[j] = (uint8_t)((c[j] & 15) | (c[j + n] & 15) << 4); }
}

HT_PACK nibbles_unpack(const uint8_t* qs, uint8_t* c, int n)
{
    for (int j = 0; j < n; j++) {
        c[j]     = qs[j] & 15;
        c[j + n] = qs[j] >> 4;
    }
}

/* The fifth bits of 32 codes, bit i of a little-endian word for code i. */
HT_PACK fifth_bits_pack(uint8_t qh[4], const uint8_t* c)
{
    uint32_t high = 0;
    for (int i = 0; i < 32; i++) { high |= (uint32_t)(c[i] >> 4) << i; }
    for (int k = 0; k < 4; k++) { qh[k] = (uint8_t)(high >> (8 * k)); }
}

HT_PACK fifth_bits_add(const uint8_t qh[4], uint8_t* c)
{
    for (int i = 0; i < 32; i++) { c[i] = (uint8_t)(c[i] | (qh[i / 8] >> (i % 8) & 1) << 4); }
}

/* Four codes of two bits per byte: qs[j] = c[j] | c[j + 32] << 2 | c[j + 64] << 4 | c[j + 96] << 6, of `shift`ed codes */
HT_PACK pairs_pack(uint8_t qs[32], const uint8_t* c, int shift)
{
    for (int j = 0; j < 32; j++) {
        qs[j] = (uint8_t)((c[j] >> shift & 3) | (c[32 + j] >> shift & 3) << 2 | (c[64 + j] >> shift & 3) << 4 | (c[96 + j] >> shift & 3) << 6);
    }
}

HT_PACK pairs_add(const uint8_t qs[32], uint8_t* c, int shift)
{
    for (int j = 0; j < 128; j++) { c[j] = (uint8_t)(c[j] | (qs[j % 32] >> (2 * (j / 32)) & 3) << shift); }
}

/* Bit g of bits[j] is bit `shift` of code 32 g + j. */
HT_PACK planes_pack(uint8_t bits[32], const uint8_t* c, int shift)
{
    for (int j = 0; j < 32; j++) {
        int b = 0;
        for (int g = 0; g < 8; g++) { b |= (c[32 * g + j] >> shift & 1) << g; }
        bits[j] = (uint8_t)b;
    }
}

HT_PACK planes_add(const uint8_t bits[32], uint8_t* c, int shift)
{
    for (int i = 0; i < 256; i++) { c[i] = (uint8_t)(c[i] | (bits[i % 32] >> (i / 32) & 1) << shift); }
}

/* --- blocks of 32 ------------------------------------------------------------------------------------------------------------------ */

HT_PACK parts_init(ht_block_parts* p, uint16_t d, uint16_t m)
{
    memset(p, 0, sizeof *p);
    p->d = d;
    p->m = m;
    memset(p->sc, 1, sizeof p->sc);
}

HT_PACK q4_0_pack(void* block, const ht_block_parts* p)
{
    ht_block_q4_0* b = block;
    b->d = p->d;
    nibbles_pack(b->qs, p->codes, 16);
}

HT_PACK q4_0_unpack(const void* block, ht_block_parts* p)
{
    const ht_block_q4_0* b = block;
    parts_init(p, b->d, 0);
    nibbles_unpack(b->qs, p->codes, 16);
}

HT_PACK q4_1_pack(void* block, const ht_block_parts* p)
{
    ht_block_q4_1* b = block;
    b->d = p->d;
    b->m = p->m;
    nibbles_pack(b->qs, p->codes, 16);
}

HT_PACK q4_1_unpack(const void* block, ht_block_parts* p)
{
    const ht_block_q4_1* b = block;
    parts_init(p, b->d, b->m);
    nibbles_unpack(b->qs, p->codes, 16);
}

HT_PACK q5_0_pack(void* block, const ht_block_parts* p)
{
    ht_block_q5_0* b = block;
    b->d = p->d;
    nibbles_pack(b->qs, p->codes, 16);
    fifth_bits_pack(b->qh, p->codes);
}

HT_PACK q5_0_unpack(const void* block, ht_block_parts* p)
{
    const ht_block_q5_0* b = block;
    parts_init(p, b->d, 0);
    nibbles_unpack(b->qs, p->codes, 16);
    fifth_bits_add(b->qh, p->codes);
}

HT_PACK q5_1_pack(void* block, const ht_block_parts* p)
{
    ht_block_q5_1* b = block;
    b->d = p->d;
    b->m = p->m;
    nibbles_pack(b->qs, p->codes, 16);
    fifth_bits_pack(b->qh, p->codes);
}

HT_PACK q5_1_unpack(const void* block, ht_block_parts* p)
{
    const ht_block_q5_1* b = block;
    parts_init(p, b->d, b->m);
    nibbles_unpack(b->qs, p->codes, 16);
    fifth_bits_add(b->qh, p->codes);
}

/* Codes are values + 127; -128, which no encoder writes, is read as -127. */
HT_PACK q8_0_pack(void* block, const ht_block_parts* p)
{
    ht_block_q8_0* b = block;
    b->d = p->d;
    for (int j = 0; j < 32; j++) { b->qs[j] = (int8_t)(p->codes[j] - 127); }
}

HT_PACK q8_0_unpack(const void* block, ht_block_parts* p)
{
    const ht_block_q8_0* b = block;
    parts_init(p, b->d, 0);
    for (int j = 0; j < 32; j++) { p->codes[j] = (uint8_t)(b->qs[j] < -127 ? 0 : b->qs[j] + 127); }
}

HT_PACK iq4_nl_pack(void* block, const ht_block_parts* p)
{
    ht_block_iq4_nl* b = block;
    b->d = p->d;
    nibbles_pack(b->qs, p->codes, 16);
}

HT_PACK iq4_nl_unpack(const void* block, ht_block_parts* p)
{
    const ht_block_iq4_nl* b = block;
    parts_init(p, b->d, 0);
    nibbles_unpack(b->qs, p->codes, 16);
}

HT_PACK mxfp4_pack(void* block, const ht_block_parts* p)
{
    ht_block_mxfp4* b = block;
    b->e = (uint8_t)p->d;
    nibbles_pack(b->qs, p->codes, 16);
}

HT_PACK mxfp4_unpack(const void* block, ht_block_parts* p)
{
    const ht_block_mxfp4* b = block;
    parts_init(p, b->e, 0);
    nibbles_unpack(b->qs, p->codes, 16);
}

/* --- super-blocks of 256 --------------------------------------------------------------------------------------------------------------- */

HT_PACK q2_k_pack(void* block, const ht_block_parts* p)
{
    ht_block_q2_k* b = block;
    b->d    = p->d;
    b->dmin = p->m;
    for (int g = 0; g < 16; g++) { b->scales[g] = (uint8_t)(p->sc[g] | p->mn[g] << 4); }
    for (int r = 0; r < 2; r++) { pairs_pack(b->qs + 32 * r, p->codes + 128 * r, 0); }
}

HT_PACK q2_k_unpack(const void* block, ht_block_parts* p)
{
    const ht_block_q2_k* b = block;
    parts_init(p, b->d, b->dmin);
    for (int g = 0; g < 16; g++) {
        p->sc[g] = (int8_t)(b->scales[g] & 15);
        p->mn[g] = (int8_t)(b->scales[g] >> 4);
    }
    for (int r = 0; r < 2; r++) { pairs_add(b->qs + 32 * r, p->codes + 128 * r, 0); }
}

HT_PACK q3_k_pack(void* block, const ht_block_parts* p)
{
    ht_block_q3_k* b = block;
    b->d = p->d;
    ht_k3_scales_pack(b->scales, p->sc);
    for (int r = 0; r < 2; r++) { pairs_pack(b->qs + 32 * r, p->codes + 128 * r, 0); }
    planes_pack(b->hmask, p->codes, 2);
}

HT_PACK q3_k_unpack(const void* block, ht_block_parts* p)
{
    const ht_block_q3_k* b = block;
    parts_init(p, b->d, 0);
    ht_k3_scales_unpack(b->scales, p->sc);
    for (int r = 0; r < 2; r++) { pairs_add(b->qs + 32 * r, p->codes + 128 * r, 0); }
    planes_add(b->hmask, p->codes, 2);
}

HT_PACK k4_scales_pack(uint8_t packed[12], const ht_block_parts* p)
{
    uint8_t sc[8], mn[8];
    for (int g = 0; g < 8; g++) {
        sc[g] = (uint8_t)p->sc[g];
        mn[g] = (uint8_t)p->mn[g];
    }
    ht_k4_scales_pack(packed, sc, mn);
}

HT_PACK k4_scales_unpack(const uint8_t packed[12], ht_block_parts* p)
{
    uint8_t sc[8], mn[8];
    ht_k4_scales_unpack(packed, sc, mn);
    for (int g = 0; g < 8; g++) {
        p->sc[g] = (int8_t)sc[g];
        p->mn[g] = (int8_t)mn[g];
    }
}

HT_PACK q4_k_pack(void* block, const ht_block_parts* p)
{
    ht_block_q4_k* b = block;
    b->d    = p->d;
    b->dmin = p->m;
    k4_scales_pack(b->scales, p);
    for (int r = 0; r < 4; r++) { nibbles_pack(b->qs + 32 * r, p->codes + 64 * r, 32); }
}

HT_PACK q4_k_unpack(const void* block, ht_block_parts* p)
{
    const ht_block_q4_k* b = block;
    parts_init(p, b->d, b->dmin);
    k4_scales_unpack(b->scales, p);
    for (int r = 0; r < 4; r++) { nibbles_unpack(b->qs + 32 * r, p->codes + 64 * r, 32); }
}

HT_PACK q5_k_pack(void* block, const ht_block_parts* p)
{
    ht_block_q5_k* b = block;
    b->d    = p->d;
    b->dmin = p->m;
    k4_scales_pack(b->scales, p);
    for (int r = 0; r < 4; r++) { nibbles_pack(b->qs + 32 * r, p->codes + 64 * r, 32); }
    planes_pack(b->qh, p->codes, 4);
}

HT_PACK q5_k_unpack(const void* block, ht_block_parts* p)
{
    const ht_block_q5_k* b = block;
    parts_init(p, b->d, b->dmin);
    k4_scales_unpack(b->scales, p);
    for (int r = 0; r < 4; r++) { nibbles_unpack(b->qs + 32 * r, p->codes + 64 * r, 32); }
    planes_add(b->qh, p->codes, 4);
}

HT_PACK q6_k_pack(void* block, const ht_block_parts* p)
{
    ht_block_q6_k* b = block;
    b->d = p->d;
    for (int g = 0; g < 16; g++) { b->scales[g] = p->sc[g]; }
    for (int r = 0; r < 2; r++) {
        nibbles_pack(b->ql + 64 * r, p->codes + 128 * r, 64);
        pairs_pack(b->qh + 32 * r, p->codes + 128 * r, 4);
    }
}

HT_PACK q6_k_unpack(const void* block, ht_block_parts* p)
{
    const ht_block_q6_k* b = block;
    parts_init(p, b->d, 0);
    for (int g = 0; g < 16; g++) { p->sc[g] = b->scales[g]; }
    for (int r = 0; r < 2; r++) {
        nibbles_unpack(b->ql + 64 * r, p->codes + 128 * r, 64);
        pairs_add(b->qh + 32 * r, p->codes + 128 * r, 4);
    }
}

HT_PACK iq4_xs_pack(void* block, const ht_block_parts* p)
{
    ht_block_iq4_xs* b    = block;
    int              high = 0;
    b->d = p->d;
    memset(b->scales_l, 0, sizeof b->scales_l);
    for (int g = 0; g < 8; g++) {
        const int v = p->sc[g] + 32;
        high |= v >> 4 << (2 * g);
        b->scales_l[g / 2] = (uint8_t)(b->scales_l[g / 2] | (v & 15) << (4 * (g % 2)));
        nibbles_pack(b->qs + 16 * g, p->codes + 32 * g, 16);
    }
    b->scales_h = (uint16_t)high;
}

HT_PACK iq4_xs_unpack(const void* block, ht_block_parts* p)
{
    const ht_block_iq4_xs* b = block;
    parts_init(p, b->d, 0);
    for (int g = 0; g < 8; g++) {
        p->sc[g] = (int8_t)(((b->scales_l[g / 2] >> (4 * (g % 2)) & 15) | (b->scales_h >> (2 * g) & 3) << 4) - 32);
        nibbles_unpack(b->qs + 16 * g, p->codes + 32 * g, 16);
    }
}

#undef HT_PACK
#endif
