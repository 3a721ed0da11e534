/*
 * Rope scaling and sliding windows: one place for all families, because readers that did it per family lost it for some.
 *
 *   "rope_scaling": {"rope_type": "llama3", "factor": 8.0, …}  (older: "type"),  "rope_theta": 500000.0
 *   "rope_parameters": {"rope_type": …, "rope_theta": …, …}    (transformers 5)
 * Source: facts "convert.md" sections 5.1 and 6; transformers modeling_rope_utils.
 */
#include "formats/config_import.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the keys go and where the numbers come from. */
typedef struct rope {
    ht_meta*             meta;
    const char*          arch;
    const ht_json*       config;
    const ht_json_value* params; /* the rope object, or NULL         */
    const char*          where;  /* its name, for messages           */
    const int64_t*       sizes;
    double               theta;
} rope;

static ht_status set_f32(const rope* r, const char* key, double value, ht_error* err)
{
    char full[128];
    snprintf(full, sizeof full, "%s.rope.%s", r->arch, key);
    return ht_meta_set_f32(r->meta, full, (float)value, err);
}

/* Copy an optional number of the rope object to a key. */
static ht_status copy_f32(const rope* r, const char* member, const char* key, ht_error* err)
{
    ht_status st    = HT_STATUS_OK;
    double    value = NAN;
    HT_TRY(ht_json_get_f64(r->config, r->params, member, false, &value, err));
    if (!isnan(value)) { HT_TRY(set_f32(r, key, value, err)); }
done:
    return st;
}

static ht_status set_scaling(const rope* r, const char* type, ht_error* err)
{
    ht_status st     = HT_STATUS_OK;
    double    factor = 0.0;
    char      key[128];
    snprintf(key, sizeof key, "%s.rope.scaling.type", r->arch);
    HT_TRY(ht_json_get_f64(r->config, r->params, "factor", true, &factor, err));
    HT_CHECK(factor >= 1.0, FORMAT, "%s.factor: %g is not a factor of at least 1", r->where, factor);
    HT_TRY(ht_meta_set_string(r->meta, key, type, err));
    HT_TRY(set_f32(r, "scaling.factor", factor, err));
done:
    return st;
}

static ht_status import_yarn(const rope* r, ht_error* err)
{
    ht_status st       = HT_STATUS_OK;
    int64_t   original = r->sizes[HT_SIZE_CONTEXT];
    char      key[128];
    for (size_t i = 0; i < 2; i++) { /* they change the attention factor in a way that no key carries */
        static const char* const refused[] = { "mscale", "mscale_all_dim" };
        HT_CHECK(!ht_json_member(r->params, refused[i]), UNSUPPORTED, "%s.%s: this form of yarn is not supported", r->where, refused[i]);
    }
    HT_TRY(ht_json_get_i64(r->config, ht_json_root(r->config), "original_max_position_embeddings", false, 1, INT32_MAX, &original, err));
    HT_TRY(ht_json_get_i64(r->config, r->params, "original_max_position_embeddings", false, 1, INT32_MAX, &original, err));
    HT_TRY(set_scaling(r, "yarn", err));
    snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", r->arch);
    HT_TRY(ht_meta_set_u32(r->meta, key, (uint32_t)original, err));
    HT_TRY(copy_f32(r, "extrapolation_factor", "scaling.yarn_ext_factor", err));
    HT_TRY(copy_f32(r, "attn_factor", "scaling.yarn_attn_factor", err));
    HT_TRY(copy_f32(r, "attention_factor", "scaling.yarn_attn_factor", err));
    HT_TRY(copy_f32(r, "beta_fast", "scaling.yarn_beta_fast", err));
    HT_TRY(copy_f32(r, "beta_slow", "scaling.yarn_beta_slow", err));
done:
    return st;
}

/*
 * llama3: low frequencies are divided by `factor`, high ones kept, those between blended. The runtime divides the frequency of pair i by out[i]:
 *   wavelength = 2 pi theta^(2i/d);  s = (original / wavelength - low) / (high - low), clamped to 0..1;  out[i] = 1 / ((1 - s) / factor + s)
 */
static ht_status import_llama3(const rope* r, float** out_factors, ht_error* err)
{
    ht_status     st       = HT_STATUS_OK;
    const int64_t d        = r->sizes[HT_SIZE_HEAD];
    double        factor   = 8.0, low = 1.0, high = 4.0;
    int64_t       original = 8192;
    float*        factors  = NULL;
    HT_TRY(ht_json_get_f64(r->config, r->params, "factor", false, &factor, err));
    HT_TRY(ht_json_get_f64(r->config, r->params, "low_freq_factor", false, &low, err));
    HT_TRY(ht_json_get_f64(r->config, r->params, "high_freq_factor", false, &high, err));
    HT_TRY(ht_json_get_i64(r->config, r->params, "original_max_position_embeddings", false, 1, INT32_MAX, &original, err));
    HT_CHECK(factor >= 1.0 && low > 0.0 && high > low, FORMAT, "%s: factor %g, low_freq_factor %g, high_freq_factor %g do not make a llama3 scaling",
             r->where, factor, low, high);
    factors = malloc((size_t)(d / 2) * sizeof *factors);
    HT_CHECK(factors, NOMEM, "rope factors");
    for (int64_t i = 0; i < d / 2; i++) {
        const double wavelength = 2.0 * 3.14159265358979323846 * pow(r->theta, 2.0 * (double)i / (double)d);
        const double s          = fmin(fmax(((double)original / wavelength - low) / (high - low), 0.0), 1.0);
        factors[i]              = (float)(1.0 / ((1.0 - s) / factor + s));
    }
    *out_factors = factors;
done:
    return st;
}

/* The rope object, its type and theta. */
static ht_status find_params(rope* r, const char** type, ht_error* err)
{
    static const char* const places[] = { "rope_parameters", "rope_scaling" };
    ht_status   st       = HT_STATUS_OK;
    const char* old_type = NULL;
    double      theta    = NAN;
    for (size_t i = 0; i < 2 && !r->params; i++) {
        r->where = places[i];
        HT_TRY(ht_json_get_object(r->config, ht_json_root(r->config), places[i], false, &r->params, err));
    }
    HT_CHECK(!ht_json_member(r->params, "full_attention") && !ht_json_member(r->params, "sliding_attention"), UNSUPPORTED,
             "%s: different rope for full and sliding attention is not supported in this family", r->where);
    HT_TRY(ht_json_get_f64(r->config, ht_json_root(r->config), "rope_theta", false, &theta, err));
    HT_TRY(ht_json_get_f64(r->config, r->params, "rope_theta", false, &theta, err));
    HT_TRY(ht_json_get_string(r->config, r->params, "type", false, &old_type, err));
    HT_TRY(ht_json_get_string(r->config, r->params, "rope_type", false, type, err));
    HT_CHECK(!old_type || !*type || strcmp(old_type, *type) == 0, FORMAT, "%s: type \"%s\" and rope_type \"%s\" disagree", r->where, old_type, *type);
    if (!*type) { *type = old_type ? old_type : "default"; }
    HT_CHECK(isnan(theta) || theta > 0.0, FORMAT, "rope_theta: %g is not a positive number", theta);
    r->theta = isnan(theta) ? 10000.0 : theta; /* the default of transformers and of llama.cpp */
    if (!isnan(theta)) { HT_TRY(set_f32(r, "freq_base", theta, err)); }
done:
    return st;
}

ht_status ht_rope_import(ht_meta* meta, float** out_factors, const ht_json* config, const ht_arch* arch, const int64_t sizes[HT_SIZE_COUNT],
                         ht_error* err)
{
    ht_status   st   = HT_STATUS_OK;
    const char* type = NULL;
    rope        r    = { meta, arch->name, config, NULL, NULL, sizes, 0.0 };
    *out_factors = NULL;
    HT_TRY(find_params(&r, &type, err));
    if (strcmp(type, "default") == 0) { return HT_STATUS_OK; }
    if (strcmp(type, "linear") == 0) { return set_scaling(&r, "linear", err); }
    if (strcmp(type, "yarn") == 0) { return import_yarn(&r, err); }
    if (strcmp(type, "llama3") == 0) { return import_llama3(&r, out_factors, err); }
    HT_CHECK(0, UNSUPPORTED, "%s.%s: \"%s\" is not supported; known are default, linear, yarn, llama3", r.where,
             ht_json_member(r.params, "rope_type") ? "rope_type" : "type", type);
done:
    return st;
}

/* --- sliding window ----------------------------------------------------------------------------------------------------------------- */

/* Which layers slide: layer_types, else (Qwen2) those from max_window_layers on, else all. */
static ht_status find_sliding_layers(bool* slides, int64_t n_layers, const ht_json* config, ht_error* err)
{
    ht_status            st    = HT_STATUS_OK;
    const ht_json_value* types = NULL;
    int64_t              first = 0, i = 0;
    bool                 use   = false;
    HT_TRY(ht_json_get_array(config, ht_json_root(config), "layer_types", false, &types, err));
    HT_TRY(ht_json_get_bool(config, ht_json_root(config), "use_sliding_window", false, &use, err));
    if (use) { HT_TRY(ht_json_get_i64(config, ht_json_root(config), "max_window_layers", false, 0, INT32_MAX, &first, err)); }
    for (i = 0; i < n_layers; i++) { slides[i] = i >= first; }
    if (!types) { return HT_STATUS_OK; }
    HT_CHECK(ht_json_count(types) == n_layers, FORMAT, "layer_types has %lld entries for %lld layers", (long long)ht_json_count(types),
             (long long)n_layers);
    i = 0;
    for (const ht_json_value* v = ht_json_first(types); v; v = ht_json_next(v), i++) {
        const char* type = ht_json_as_string(v);
        HT_CHECK(type, FORMAT, "layer_types[%lld]: expected a string, found %s", (long long)i, ht_json_kind_name(v));
        slides[i] = strcmp(type, "sliding_attention") == 0;
        HT_CHECK(slides[i] || strcmp(type, "full_attention") == 0, UNSUPPORTED, "layer_types[%lld]: \"%s\" is not supported", (long long)i, type);
    }
done:
    return st;
}

ht_status ht_window_import(ht_meta* meta, const ht_json* config, const ht_arch* arch, const int64_t sizes[HT_SIZE_COUNT], ht_error* err)
{
    ht_status     st       = HT_STATUS_OK;
    const int64_t n_layers = sizes[HT_SIZE_LAYERS];
    int64_t       window   = 0, n_sliding = 0;
    bool          use      = !arch->window_off || ht_json_kind_of(ht_json_member(ht_json_root(config), "layer_types")) == HT_JSON_KIND_ARRAY;
    bool*         slides   = malloc((size_t)n_layers * sizeof *slides);
    char          key[128];
    HT_CHECK(slides, NOMEM, "layer types");
    HT_TRY(find_sliding_layers(slides, n_layers, config, err)); /* also when there is no window: other kinds of layers are refused */
    HT_TRY(ht_json_get_i64(config, ht_json_root(config), "sliding_window", false, 1, INT32_MAX, &window, err));
    HT_TRY(ht_json_get_bool(config, ht_json_root(config), "use_sliding_window", false, &use, err));
    for (int64_t i = 0; i < n_layers; i++) { n_sliding += slides[i]; }
    if (window == 0 || !use || n_sliding == 0) { goto done; }
    snprintf(key, sizeof key, "%s.attention.sliding_window", arch->name);
    HT_TRY(ht_meta_set_u32(meta, key, (uint32_t)window, err));
    if (n_sliding == n_layers) { goto done; }
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", arch->name);
    HT_TRY(ht_meta_set_values(meta, key, HT_META_TYPE_BOOL, true, (uint64_t)n_layers, slides, err));
done:
    free(slides);
    return st;
}
