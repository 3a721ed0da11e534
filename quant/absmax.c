#include "quant/absmax.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "formats/base/half.h"

const ht_absmax_form ht_absmax_forms[] = {
    { "int8-tensor", HT_ABSMAX_INT8, HT_ABSMAX_TENSOR }, { "int8-row", HT_ABSMAX_INT8, HT_ABSMAX_ROW },
    { "int8-g128", HT_ABSMAX_INT8, 128 },                { "int8-g64", HT_ABSMAX_INT8, 64 },
    { "int8-g32", HT_ABSMAX_INT8, 32 },                  { "int4-tensor", HT_ABSMAX_INT4, HT_ABSMAX_TENSOR },
    { "int4-row", HT_ABSMAX_INT4, HT_ABSMAX_ROW },       { "int4-g128", HT_ABSMAX_INT4, 128 },
    { "int4-g64", HT_ABSMAX_INT4, 64 },                  { "int4-g32", HT_ABSMAX_INT4, 32 },
    { "nf4-g64", HT_ABSMAX_NF4, 64 },                    { NULL, HT_ABSMAX_INT8, 0 },
};

/* Levels of NF4, as printed in the paper's appendix E. */
static const float nf4_levels[16] = {
    -1.0f,           -0.69619280f, -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f, -0.09105004f, 0.0f,
    0.07958030f,     0.16093020f,  0.24611230f,  0.33791524f,  0.44070983f,  0.56261700f,  0.72295684f,  1.0f,
};

const ht_absmax_form* ht_absmax_find(const char* name)
{
    for (const ht_absmax_form* form = ht_absmax_forms; form->name; form++) {
        if (strcmp(form->name, name) == 0) { return form; }
    }
    return NULL;
}

double ht_absmax_bits_per_weight(const ht_absmax_form* form, int64_t n_rows, int64_t n_cols)
{
    const double n_elems  = (double)n_rows * (double)n_cols;
    double       n_scales = 1.0;
    if (form->group == HT_ABSMAX_ROW) { n_scales = (double)n_rows; }
    if (form->group > 0) { n_scales = (double)n_rows * (double)((n_cols + form->group - 1) / form->group); }
    return (form->code == HT_ABSMAX_INT8 ? 8.0 : 4.0) + 16.0 * n_scales / n_elems;
}

static float nearest_nf4(float v)
{
    int code = 0; /* levels ascend: count the middles below v */
    for (int k = 0; k < 15; k++) { code += v > 0.5f * (nf4_levels[k] + nf4_levels[k + 1]); }
    return nf4_levels[code];
}

static void round_group(ht_absmax_code code, const float* x, int64_t n, float* out)
{
    const float top = code == HT_ABSMAX_INT8 ? 127.0f : code == HT_ABSMAX_INT4 ? 7.0f : 1.0f;
    float       max = 0.0f;
    for (int64_t i = 0; i < n; i++) { max = fmaxf(max, fabsf(x[i])); }
    const float d = ht_f16_to_f32(ht_f32_to_f16(fminf(max / top, 65504.0f)));
    for (int64_t i = 0; i < n; i++) {
        const float v = d > 0.0f ? fminf(fmaxf(x[i] / d, -top), top) : 0.0f;
        out[i]        = d * (code == HT_ABSMAX_NF4 ? nearest_nf4(v) : rintf(v));
    }
}

ht_status ht_absmax_round_trip(const ht_absmax_form* form, const float* x, int64_t n_rows, int64_t n_cols, float* out, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    HT_CHECK(n_rows > 0 && n_cols > 0, ARG, "absmax of %" PRId64 " x %" PRId64 " values", n_rows, n_cols);
    for (int64_t i = 0; i < n_rows * n_cols; i++) {
        HT_CHECK(isfinite(x[i]), NUMERIC, "row %" PRId64 ", column %" PRId64 ": %g", i / n_cols, i % n_cols, (double)x[i]);
    }
    if (form->group == HT_ABSMAX_TENSOR) {
        round_group(form->code, x, n_rows * n_cols, out);
        return HT_STATUS_OK;
    }
    const int64_t group = form->group == HT_ABSMAX_ROW ? n_cols : form->group;
    for (int64_t r = 0; r < n_rows; r++) {
        for (int64_t c = 0; c < n_cols; c += group) {
            const int64_t at = r * n_cols + c;
            round_group(form->code, x + at, n_cols - c < group ? n_cols - c : group, out + at);
        }
    }
done:
    return st;
}
