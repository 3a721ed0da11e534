#include "formats/block_tq1_0.h"

/* Digit n, 0..2, of a byte. */
static int digit(uint8_t byte, int n)
{
    static const uint8_t power[5] = { 1, 3, 9, 27, 81 };
    return (uint8_t)(byte * power[n]) * 3 >> 8;
}

void ht_tq1_0_decode_row_ref(const void* restrict blocks, float* restrict out, int64_t n_elems)
{
    const ht_block_tq1_0* b = blocks;
    for (int64_t i = 0; i < n_elems; i += HT_K_ELEMS, b++) {
        const float d = ht_f16_to_f32(b->d);
        for (int n = 0; n < 5; n++) {
            for (int j = 0; j < 32; j++) { *out++ = d * (float)(digit(b->qs[j], n) - 1); }
        }
        for (int n = 0; n < 5; n++) {
            for (int j = 32; j < 48; j++) { *out++ = d * (float)(digit(b->qs[j], n) - 1); }
        }
        for (int n = 0; n < 4; n++) {
            for (int j = 0; j < 4; j++) { *out++ = d * (float)(digit(b->qh[j], n) - 1); }
        }
    }
}
