/* Inputs for the kernel tests: buffers that end at a guard page, and random weights of every type with scales of a chosen size. */
#ifndef HT_TESTS_KERNEL_DATA_H
#define HT_TESTS_KERNEL_DATA_H

#include <sys/mman.h>
#include <unistd.h>

#include "formats/block_iq4_xs.h"
#include "formats/block_mxfp4.h"
#include "formats/block_q2_k.h"
#include "formats/block_q3_k.h"
#include "formats/block_q4_0.h"
#include "formats/block_q4_1.h"
#include "formats/block_q5_0.h"
#include "formats/block_q5_1.h"
#include "formats/block_q5_k.h"
#include "formats/block_q6_k.h"
#include "formats/block_q8_0.h"
#include "tests/ht_test.h"

/* Memory whose last byte is followed by an unreadable page. */
typedef struct guarded {
    void*  data;
    void*  map;
    size_t n_map;
} guarded;

static inline guarded guarded_alloc(size_t n_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n_data = (n_bytes + page - 1) / page * page;
    guarded g = { .n_map = n_data + page };
    g.map = mmap(NULL, g.n_map, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    assert_int_equal(mprotect((char*)g.map + n_data, page, PROT_NONE), 0);
    g.data = (char*)g.map + n_data - n_bytes;
    return g;
}

static inline void guarded_free(guarded g) { munmap(g.map, g.n_map); }

/* Sets the scale fields of block `b` of a type: factors 1 or 0.5..1 times `scale`; minima are as large. */
static inline void set_scales(ht_type type, void* block, uint64_t* random, float scale, bool unit)
{
    const float    f = unit ? 1.0f : 0.5f + (float)(ht_test_random(random) % 1024) / 2048.0f, sign = ht_test_random(random) & 1 ? -1.0f : 1.0f;
    const uint16_t d = ht_f32_to_f16(scale * f * sign), m = ht_f32_to_f16(scale * f);
#define SET_D(stem) case HT_TYPE_##stem: ((ht_block_##stem*)block)->d = d; break;
#define SET_D_AND(stem, field) case HT_TYPE_##stem: ((ht_block_##stem*)block)->d = d; ((ht_block_##stem*)block)->field = m; break;
    switch (type) {
        SET_D(q4_0) SET_D(q5_0) SET_D(q8_0) SET_D(iq4_nl) SET_D(iq4_xs) SET_D(q3_k) SET_D(q6_k)
        SET_D_AND(q4_1, m) SET_D_AND(q5_1, m) SET_D_AND(q2_k, dmin) SET_D_AND(q4_k, dmin) SET_D_AND(q5_k, dmin)
    case HT_TYPE_mxfp4: ((ht_block_mxfp4*)block)->e = (uint8_t)(128 + lrintf(log2f(scale))); break;
    default: fail_msg("no scales known for type %d", (int)type);
    }
#undef SET_D
#undef SET_D_AND
}

/* Random weights: codes uniform over all bit patterns, or (saturated) all bits equal, changing sign pattern from block to block. */
static inline void fill_weights(ht_type type, void* data, int64_t n_elems, uint64_t* random, float scale, bool unit, bool saturated)
{
    const ht_type_info* info = ht_type_get((uint32_t)type);
    unsigned char*      p    = data;
    if (info->is_float) {
        for (int64_t i = 0; i < n_elems; i++) {
            const float    v = unit ? (float)(int)(ht_test_random(random) % 17) - 8.0f : scale * ht_test_normal(random);
            const uint16_t h = type == HT_TYPE_f16 ? ht_f32_to_f16(v) : ht_f32_to_bf16(v);
            if (type == HT_TYPE_f32) { memcpy(p + 4 * i, &v, 4); } else { memcpy(p + 2 * i, &h, 2); }
        }
        return;
    }
    for (int64_t b = 0; b < n_elems / info->block_elems; b++, p += info->block_bytes) {
        static const uint8_t extremes[4] = { 0xFF, 0x00, 0x80, 0x7F };
        const uint8_t        byte        = extremes[ht_test_random(random) % 4];
        for (int i = 0; i < info->block_bytes; i++) { p[i] = saturated ? byte : (uint8_t)ht_test_random(random); }
        set_scales(type, p, random, scale, unit);
    }
}

#endif
