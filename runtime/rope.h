/*
 * Rotary position embedding: pair j of a head turns by position * freq[j].
 *
 *     freq[j] = base^(-2 j / n_rot) / factor[j]                       factor: the tensor rope_freqs.weight (Llama 3), else 1
 *     linear scaling: freq[j] / scale
 *     yarn: a mix of both ends, freq[j] * (1 - m) / scale + freq[j] * m, where m falls from 1 (fast pairs, which turn many times within the
 *           original context) to 0 (slow ones), and all of sin and cos times 1 + 0.1 ln(scale), or scaling.yarn_attn_factor
 *
 * Sources: Su et al. 2021, arXiv:2104.09864; Peng et al. 2023 (YaRN), arXiv:2309.00071.
 */
#ifndef HT_RUNTIME_ROPE_H
#define HT_RUNTIME_ROPE_H

#include "formats/meta.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_rope {
    int64_t n_rot;       /* dimensions that turn, the first of a head; even */
    bool    neox;        /* pairs (j, j + n_rot / 2), else (2 j, 2 j + 1)   */
    float   magnitude;   /* of sin and cos                                  */
    double* freq;        /* n_rot / 2 radians per position, owned           */
} ht_rope;

/*
 * From the {arch}.rope.* keys of `meta`. `factors`: n_rot / 2 values of rope_freqs.weight, or NULL. Free with ht_rope_deinit.
 * Errors: NOMEM; FORMAT missing or ill-typed keys; UNSUPPORTED scaling type (named).
 */
ht_status ht_rope_init(ht_rope* rope, const ht_meta* meta, const char* arch, int64_t n_rot, bool neox, float base, const float* factors,
                       ht_error* err);
void      ht_rope_deinit(ht_rope* rope);

/* table (n_rot) = cos of the n_rot / 2 pairs, then their sin, at `position`. */
void ht_rope_fill(const ht_rope* rope, int64_t position, float* table);

/* Turn one head in place by a table. */
void ht_rope_turn(const ht_rope* rope, const float* table, float* head);

#ifdef __cplusplus
}
#endif
#endif
