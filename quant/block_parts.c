#include "quant/block_parts.h"

#include <stddef.h>

#include "quant/block_pack.h"

#define FROM(n) (n), (n) + 1, (n) + 2, (n) + 3, (n) + 4, (n) + 5, (n) + 6, (n) + 7
#define FROM_32(n) FROM(n), FROM((n) + 8), FROM((n) + 16), FROM((n) + 24)
/* The whole numbers -127 … 128, of which every whole-numbered type has a window. */
static const float whole[256] = { FROM_32(-127), FROM_32(-95), FROM_32(-63), FROM_32(-31), FROM_32(1), FROM_32(33), FROM_32(65), FROM_32(97) };
#define WHOLE(low) (whole + 127 + (low))

static const float iq4[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
static const float fp4[16] = { 0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12 };

#define ROW(stem) HT_TYPE_##stem
#define CODEC(stem) stem##_pack, stem##_unpack
static const ht_block_format formats[] = {
    /* type          group block levels              whole  min    K      sc range   store                              */
    { ROW(q4_0),     32,   32,  16,  WHOLE(-8),   true,  false, false, 0, 0,       HT_SCALE_F16,  CODEC(q4_0) },
    { ROW(q4_1),     32,   32,  16,  WHOLE(0),    true,  true,  false, 0, 0,       HT_SCALE_F16,  CODEC(q4_1) },
    { ROW(q5_0),     32,   32,  32,  WHOLE(-16),  true,  false, false, 0, 0,       HT_SCALE_F16,  CODEC(q5_0) },
    { ROW(q5_1),     32,   32,  32,  WHOLE(0),    true,  true,  false, 0, 0,       HT_SCALE_F16,  CODEC(q5_1) },
    { ROW(q8_0),     32,   32,  255, WHOLE(-127), true,  false, false, 0, 0,       HT_SCALE_F16,  CODEC(q8_0) },
    { ROW(iq4_nl),   32,   32,  16,  iq4,         false, false, false, 0, 0,       HT_SCALE_F16,  CODEC(iq4_nl) },
    { ROW(mxfp4),    32,   32,  16,  fp4,         false, false, false, 0, 0,       HT_SCALE_E8M0, CODEC(mxfp4) },
    { ROW(q2_k),     16,   256, 4,   WHOLE(0),    true,  true,  true,  0, 15,      HT_SCALE_F16,  CODEC(q2_k) },
    { ROW(q3_k),     16,   256, 8,   WHOLE(-4),   true,  false, true,  -32, 31,    HT_SCALE_F16,  CODEC(q3_k) },
    { ROW(q4_k),     32,   256, 16,  WHOLE(0),    true,  true,  true,  0, 63,      HT_SCALE_F16,  CODEC(q4_k) },
    { ROW(q5_k),     32,   256, 32,  WHOLE(0),    true,  true,  true,  0, 63,      HT_SCALE_F16,  CODEC(q5_k) },
    { ROW(q6_k),     16,   256, 64,  WHOLE(-32),  true,  false, true,  -128, 127,  HT_SCALE_F16,  CODEC(q6_k) },
    { ROW(iq4_xs),   32,   256, 16,  iq4,         false, false, true,  -32, 31,    HT_SCALE_F16,  CODEC(iq4_xs) },
};

const ht_block_format* ht_block_format_get(ht_type type)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (formats[i].type == type) { return &formats[i]; }
    }
    return NULL;
}
