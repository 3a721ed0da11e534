#include "runtime/rope.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct scaling {
    bool    is_yarn;
    float   factor;        /* 1: none */
    float   magnitude;     /* of sin and cos; YaRN: 1 + 0.1 ln(factor) unless the file says otherwise */
    float   ext_factor;    /* share of the mix; 1 unless the file says so */
    float   beta_fast, beta_slow;
    int64_t original_context;
} scaling;

static ht_status read_f32(const ht_meta* meta, const char* arch, const char* name, bool required, float* out, ht_error* err)
{
    char key[96];
    snprintf(key, sizeof key, "%s.rope.%s", arch, name);
    return ht_meta_get_f32(meta, key, required, out, err);
}

static ht_status read_scaling(scaling* s, const ht_meta* meta, const char* arch, ht_error* err)
{
    ht_status   st   = HT_STATUS_OK;
    const char* type = "none";
    char        key[96];
    *s = (scaling){ .factor = 1.0f, .magnitude = 1.0f, .ext_factor = 1.0f, .beta_fast = 32.0f, .beta_slow = 1.0f };
    snprintf(key, sizeof key, "%s.rope.scaling.type", arch);
    HT_TRY(ht_meta_get_string(meta, key, false, &type, err));
    if (strcmp(type, "none") == 0) { return HT_STATUS_OK; }
    s->is_yarn = strcmp(type, "yarn") == 0;
    HT_CHECK(s->is_yarn || strcmp(type, "linear") == 0, UNSUPPORTED, "%s: \"%s\"; none, linear and yarn are known", key, type);
    HT_TRY(read_f32(meta, arch, "scaling.factor", true, &s->factor, err));
    HT_CHECK(isfinite(s->factor) && s->factor > 0.0f, FORMAT, "%s.rope.scaling.factor: %g is not a positive number", arch, (double)s->factor);
    if (s->is_yarn) {
        snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", arch);
        HT_TRY(ht_meta_get_i64(meta, key, true, &s->original_context, err));
        HT_CHECK(s->original_context > 0, FORMAT, "%s: %lld is not positive", key, (long long)s->original_context);
        s->magnitude = 1.0f + 0.1f * logf(s->factor);
        HT_TRY(read_f32(meta, arch, "scaling.yarn_attn_factor", false, &s->magnitude, err));
        HT_TRY(read_f32(meta, arch, "scaling.yarn_ext_factor", false, &s->ext_factor, err));
        HT_TRY(read_f32(meta, arch, "scaling.yarn_beta_fast", false, &s->beta_fast, err));
        HT_TRY(read_f32(meta, arch, "scaling.yarn_beta_slow", false, &s->beta_slow, err));
    }
done:
    return st;
}

/* The pair that turns `turns` times within the original context; not an integer. */
static double pair_with_turns(double turns, double n_rot, double base, double context)
{
    return n_rot * log(context / (turns * 2.0 * 3.14159265358979323846)) / (2.0 * log(base));
}

ht_status ht_rope_init(ht_rope* rope, const ht_meta* meta, const char* arch, int64_t n_rot, bool neox, float base, const float* factors,
                       ht_error* err)
{
    ht_status st   = HT_STATUS_OK;
    double*   freq = malloc((size_t)(n_rot / 2) * sizeof *freq);
    scaling   s;
    HT_CHECK(freq, NOMEM, "rope frequencies");
    HT_TRY(read_scaling(&s, meta, arch, err));

    double first = 0.0, last = 0.0;
    if (s.is_yarn) {
        first = floor(pair_with_turns((double)s.beta_fast, (double)n_rot, (double)base, (double)s.original_context));
        last  = ceil(pair_with_turns((double)s.beta_slow, (double)n_rot, (double)base, (double)s.original_context));
        first = fmax(0.0, first);
        last  = fmin((double)n_rot - 1.0, last);
    }
    for (int64_t j = 0; j < n_rot / 2; j++) {
        const double f    = pow((double)base, -2.0 * (double)j / (double)n_rot) / (factors ? (double)factors[j] : 1.0);
        const double down = ((double)j - first) / fmax(0.001, last - first);
        const double mix  = s.is_yarn ? (1.0 - fmin(1.0, fmax(0.0, down))) * (double)s.ext_factor : 0.0;
        freq[j]           = f / (double)s.factor * (1.0 - mix) + f * mix;
    }
    rope->n_rot     = n_rot;
    rope->neox      = neox;
    rope->magnitude = s.magnitude;
    rope->freq      = freq;
    freq            = NULL;
done:
    free(freq);
    return st;
}

void ht_rope_deinit(ht_rope* rope)
{
    free(rope->freq);
    rope->freq = NULL;
}

void ht_rope_fill(const ht_rope* rope, int64_t position, float* table)
{
    const int64_t half = rope->n_rot / 2;
    for (int64_t j = 0; j < half; j++) {
        const double angle = (double)position * rope->freq[j];
        table[j]           = (float)cos(angle) * rope->magnitude;
        table[half + j]    = (float)sin(angle) * rope->magnitude;
    }
}

void ht_rope_turn(const ht_rope* rope, const float* table, float* head)
{
    const int64_t half = rope->n_rot / 2;
    const float * cosine = table, *sine = table + half;
    float* const  second = rope->neox ? head + half : head + 1;
    const int64_t stride = rope->neox ? 1 : 2;
    for (int64_t j = 0; j < half; j++) {
        const float a = head[j * stride], b = second[j * stride];
        head[j * stride]   = a * cosine[j] - b * sine[j];
        second[j * stride] = a * sine[j] + b * cosine[j];
    }
}
