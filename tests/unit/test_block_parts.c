/* Blocks taken apart give the decoder's values by the formula of block_parts.h, and come together to the same bytes. */
#include "quant/block_parts.h"

#include <math.h>

#include "formats/base/half.h"
#include "formats/block_mxfp4.h"
#include "formats/decode.h"
#include "quant/encode.h"
#include "tests/ht_test.h"

enum { N = 1024 };

static void test_apart_and_together(void** state)
{
    (void)state;
    uint64_t seed    = 5;
    int      n_types = 0;
    for (uint32_t id = 0; id < HT_TYPE_END; id++) {
        const ht_type_info*    info = ht_type_get(id);
        const ht_block_format* f    = info ? ht_block_format_get((ht_type)id) : NULL;
        if (info && info->can_encode && !info->is_float) { assert_non_null(f); }
        if (!f) { continue; }
        n_types++;
        assert_int_equal(f->block, info->block_elems);
        for (int kind = 0; kind < 3; kind++) { /* normal rows, small ones, rows with outliers */
            float    x[N], back[N];
            uint8_t  blocks[4 * N], again[512];
            for (int i = 0; i < N; i++) { x[i] = ht_test_normal(&seed) * (kind == 1 ? 1e-4f : 1.0f) * (kind == 2 && i % 97 == 0 ? 40.0f : 1.0f); }
            ht_encode_row_get((ht_type)id, 0)(x, blocks, N, NULL);
            ht_decode_row_get((ht_type)id)(blocks, back, N);
            for (int b = 0; b < N / f->block; b++) {
                ht_block_parts parts;
                f->unpack(blocks + b * info->block_bytes, &parts);
                const float d = f->store == HT_SCALE_E8M0 ? ht_e8m0_half_to_f32((uint8_t)parts.d) : ht_f16_to_f32(parts.d), m = f->has_min ? ht_f16_to_f32(parts.m) : 0.0f;
                for (int i = 0; i < f->block; i++) {
                    const int   g = i / f->group;
                    const float level = f->levels[parts.codes[i]];
                    const float value = f->is_k ? d * (float)parts.sc[g] * level - m * (float)parts.mn[g] : d * level + m;
                    assert_true(parts.codes[i] < f->n_levels);
                    assert_true(fabsf(value - back[b * f->block + i]) <= 1e-6f * (fabsf(value) + fabsf(m) * 63.0f));
                }
                memset(again, 0xA5, sizeof again);
                f->pack(again, &parts);
                assert_memory_equal(again, blocks + b * info->block_bytes, (size_t)info->block_bytes);
            }
        }
    }
    assert_int_equal(n_types, 13);
}

/* Any bytes: every bit of a block is accounted for. (Q8_0 has one code, -128, that no encoder writes and that is read as -127.) */
static void test_random_bytes(void** state)
{
    (void)state;
    uint64_t seed = 9;
    for (uint32_t id = 0; id < HT_TYPE_END; id++) {
        const ht_block_format* f = ht_type_get(id) ? ht_block_format_get((ht_type)id) : NULL;
        for (int trial = 0; f && trial < 200; trial++) {
            uint8_t        block[512], again[512];
            ht_block_parts parts;
            for (int i = 0; i < ht_type_get(id)->block_bytes; i++) {
                block[i] = (uint8_t)ht_test_random(&seed);
                if (id == HT_TYPE_q8_0 && block[i] == 0x80) { block[i] = 0x81; }
            }
            f->unpack(block, &parts);
            f->pack(again, &parts);
            assert_memory_equal(again, block, (size_t)ht_type_get(id)->block_bytes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_apart_and_together), cmocka_unit_test(test_random_bytes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
