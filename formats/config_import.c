#include "formats/config_import.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/hf_checkpoint.h"

/* --- sizes -------------------------------------------------------------------------------------------------------------------------- */

enum { MAX_SIZE = INT32_MAX, MAX_LAYERS = 10000 }; /* MAX_SIZE: products of two stay far inside int64; metadata counts are u32 */

/* Members of config.json, the first that is there counts. */
static const struct { const char* name; const char* hf[7]; int64_t max; } size_rows[HT_SIZE_COUNT] = {
    [HT_SIZE_LAYERS]   = { "num_hidden_layers", { "num_hidden_layers", "n_layers", "n_layer", "num_layers" }, MAX_LAYERS },
    [HT_SIZE_CONTEXT]  = { "max_position_embeddings",
                           { "max_position_embeddings", "n_ctx", "n_positions", "max_length", "max_sequence_length", "model_max_length" }, MAX_SIZE },
    [HT_SIZE_VOCAB]    = { "rows of the embedding", { NULL }, 0 },
    [HT_SIZE_EMBD]     = { "hidden_size", { "hidden_size", "n_embd", "dim" }, MAX_SIZE },
    [HT_SIZE_FF]       = { "intermediate_size", { "intermediate_size", "n_inner", "hidden_dim" }, MAX_SIZE },
    [HT_SIZE_HEADS]    = { "num_attention_heads", { "num_attention_heads", "n_head", "n_heads" }, MAX_SIZE },
    [HT_SIZE_HEADS_KV] = { "num_key_value_heads", { "num_key_value_heads", "n_kv_heads" }, MAX_SIZE },
    [HT_SIZE_HEAD]     = { "head_dim", { "head_dim" }, MAX_SIZE },
    [HT_SIZE_Q]        = { "num_attention_heads x head_dim", { NULL }, 0 },
    [HT_SIZE_KV]       = { "num_key_value_heads x head_dim", { NULL }, 0 },
};

const char* ht_size_name(ht_size size) { return size_rows[size].name; }

/* The first of `names` that the root has and that is not null; NULL when none. */
static const char* first_present(const ht_json* config, const char* const* names, size_t n_names)
{
    for (size_t i = 0; i < n_names && names[i]; i++) {
        if (ht_json_kind_of(ht_json_member(ht_json_root(config), names[i])) != HT_JSON_KIND_NULL) { return names[i]; }
    }
    return NULL;
}

/* Switches whose other settings would need another graph: refusing beats a file that talks nonsense. */
static ht_status check_switches(const ht_json* config, ht_error* err)
{
    ht_status   st     = HT_STATUS_OK;
    const char* act    = "silu";
    double      rotary = 1.0;
    HT_TRY(ht_json_get_string(config, ht_json_root(config), "hidden_act", false, &act, err));
    HT_TRY(ht_json_get_f64(config, ht_json_root(config), "partial_rotary_factor", false, &rotary, err));
    HT_CHECK(strcmp(act, "silu") == 0 || strcmp(act, "swish") == 0, UNSUPPORTED, "hidden_act \"%s\": only silu is supported in this family", act);
    HT_CHECK(rotary == 1.0, UNSUPPORTED, "partial_rotary_factor %g: only 1 is supported in this family", rotary);
done:
    return st;
}

ht_status ht_config_read_sizes(int64_t sizes[HT_SIZE_COUNT], const ht_json* config, ht_error* err)
{
    ht_status st               = HT_STATUS_OK;
    int64_t   s[HT_SIZE_COUNT] = { 0 };
    HT_TRY(check_switches(config, err));
    for (int i = 0; i < HT_SIZE_COUNT; i++) {
        if (size_rows[i].max == 0) { continue; }
        const char* member   = first_present(config, size_rows[i].hf, sizeof size_rows[i].hf / sizeof *size_rows[i].hf);
        const bool  optional = i == HT_SIZE_HEAD || i == HT_SIZE_HEADS_KV;
        if (!member && optional) { continue; }
        HT_TRY(ht_json_get_i64(config, ht_json_root(config), member ? member : size_rows[i].name, true, 1, size_rows[i].max, &s[i], err));
    }
    if (s[HT_SIZE_HEADS_KV] == 0) { s[HT_SIZE_HEADS_KV] = s[HT_SIZE_HEADS]; }
    HT_CHECK(s[HT_SIZE_HEADS] % s[HT_SIZE_HEADS_KV] == 0, FORMAT, "num_attention_heads %lld is not a multiple of num_key_value_heads %lld",
             (long long)s[HT_SIZE_HEADS], (long long)s[HT_SIZE_HEADS_KV]);
    if (s[HT_SIZE_HEAD] == 0) {
        HT_CHECK(s[HT_SIZE_EMBD] % s[HT_SIZE_HEADS] == 0, FORMAT, "no head_dim, and hidden_size %lld is not a multiple of num_attention_heads %lld",
                 (long long)s[HT_SIZE_EMBD], (long long)s[HT_SIZE_HEADS]);
        s[HT_SIZE_HEAD] = s[HT_SIZE_EMBD] / s[HT_SIZE_HEADS];
    }
    HT_CHECK(s[HT_SIZE_HEAD] % 2 == 0, FORMAT, "head_dim %lld is odd: rope turns pairs", (long long)s[HT_SIZE_HEAD]);
    s[HT_SIZE_Q]  = s[HT_SIZE_HEADS] * s[HT_SIZE_HEAD];
    s[HT_SIZE_KV] = s[HT_SIZE_HEADS_KV] * s[HT_SIZE_HEAD];
    memcpy(sizes, s, sizeof s);
done:
    return st;
}

/* --- family ------------------------------------------------------------------------------------------------------------------------- */

ht_status ht_config_find_arch(const ht_arch** out, const ht_json* config, ht_error* err)
{
    ht_status            st         = HT_STATUS_OK;
    const ht_json_value* list       = NULL;
    const char*          model_type = NULL;
    char                 known[256];
    HT_TRY(ht_json_get_array(config, ht_json_root(config), "architectures", false, &list, err));
    HT_TRY(ht_json_get_string(config, ht_json_root(config), "model_type", false, &model_type, err));
    const char*    class_name = ht_json_as_string(ht_json_first(list));
    const ht_arch* by_type    = model_type ? ht_arch_find_model_type(model_type) : NULL;
    const ht_arch* arch       = class_name ? ht_arch_find_class(class_name) : by_type;
    HT_CHECK(class_name || model_type, FORMAT, "config.json names no architecture (\"architectures\", \"model_type\")");
    HT_CHECK(arch, UNSUPPORTED, "architecture \"%s\" is not supported; known are %s", class_name ? class_name : model_type,
             ht_arch_list_classes(known, sizeof known));
    HT_CHECK(!by_type || by_type == arch, FORMAT, "architectures says \"%s\", model_type says \"%s\": these are two families", class_name, model_type);
    *out = arch;
done:
    return st;
}

/* --- keys --------------------------------------------------------------------------------------------------------------------------- */

static ht_status import_keys(ht_meta* meta, const ht_json* config, const char* arch_name, const ht_arch_key* rows, const int64_t* sizes, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    char      key[128];
    for (const ht_arch_key* row = rows; row && row->key; row++) {
        const char* member = first_present(config, row->hf, sizeof row->hf / sizeof *row->hf);
        snprintf(key, sizeof key, "%s.%s", arch_name, row->key);
        if (row->size != HT_SIZE_NONE) {
            if (!row->hf[0] || member) { HT_TRY(ht_meta_set_u32(meta, key, (uint32_t)sizes[row->size], err)); }
            continue;
        }
        double value = 0.0;
        if (!member && !row->required) { continue; }
        HT_TRY(ht_json_get_f64(config, ht_json_root(config), member ? member : row->hf[0], true, &value, err));
        HT_TRY(ht_meta_set_f32(meta, key, (float)value, err));
    }
done:
    return st;
}

ht_status ht_config_import(ht_meta* meta, float** out_rope_factors, const ht_json* config, const ht_arch* arch, const int64_t sizes[HT_SIZE_COUNT],
                           ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    HT_TRY(ht_meta_set_string(meta, "general.architecture", arch->name, err));
    HT_TRY(ht_meta_set_string(meta, "general.type", "model", err));
    HT_TRY(import_keys(meta, config, arch->name, ht_arch_common_keys, sizes, err));
    HT_TRY(import_keys(meta, config, arch->name, arch->keys, sizes, err));
    HT_TRY(ht_window_import(meta, config, arch, sizes, err));
    HT_TRY(ht_rope_import(meta, out_rope_factors, config, arch, sizes, err));
done:
    return st;
}

/* --- generation_config.json --------------------------------------------------------------------------------------------------------- */

static const struct { const char* key; const char* hf[2]; bool is_int; } sampling_rows[] = {
    { "general.sampling.top_k", { "top_k" }, true },
    { "general.sampling.top_p", { "top_p" }, false },
    { "general.sampling.min_p", { "min_p" }, false },
    { "general.sampling.xtc_probability", { "xtc_probability" }, false },
    { "general.sampling.xtc_threshold", { "xtc_threshold" }, false },
    { "general.sampling.temp", { "temperature" }, false },
    { "general.sampling.penalty_last_n", { "penalty_last_n" }, true },
    { "general.sampling.penalty_repeat", { "penalty_repeat", "repetition_penalty" }, false },
    { "general.sampling.mirostat", { "mirostat" }, true },
    { "general.sampling.mirostat_tau", { "mirostat_tau" }, false },
    { "general.sampling.mirostat_eta", { "mirostat_eta" }, false },
};

ht_status ht_generation_config_import(ht_meta* meta, const char* folder, const ht_log* log, ht_error* err)
{
    ht_status   st   = HT_STATUS_OK;
    ht_json*    json = NULL;
    char        path[4096];
    struct stat info;
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    if (stat(path, &info) != 0) { return HT_STATUS_OK; }
    HT_TRY(ht_json_read(&json, path, HT_HF_MAX_JSON_BYTES, err));
    for (size_t i = 0; i < sizeof sampling_rows / sizeof *sampling_rows; i++) {
        const char* member = first_present(json, sampling_rows[i].hf, 2);
        double      value  = 0.0;
        int64_t     n      = 0;
        if (!member) { continue; }
        const ht_json_value* v  = ht_json_member(ht_json_root(json), member);
        const bool           ok = sampling_rows[i].is_int ? ht_json_as_i64(v, &n) && n >= INT32_MIN && n <= INT32_MAX : ht_json_as_f64(v, &value);
        if (!ok) { ht_log_warn(log, "%s: %s is not a usable number; ignored", path, member); }
        else if (sampling_rows[i].is_int) { HT_TRY(ht_meta_set_i32(meta, sampling_rows[i].key, (int32_t)n, err)); }
        else { HT_TRY(ht_meta_set_f32(meta, sampling_rows[i].key, (float)value, err)); }
    }
done:
    ht_json_free(json);
    return st;
}

/* --- names -------------------------------------------------------------------------------------------------------------------------- */

char* ht_size_label(int64_t n_params, char* buf, size_t n_buf)
{
    const double n        = (double)n_params;
    const char*  unit     = n > 1e12 ? "T" : n > 1e9 ? "B" : n > 1e6 ? "M" : "K";
    const double scaled   = n / (n > 1e12 ? 1e12 : n > 1e9 ? 1e9 : n > 1e6 ? 1e6 : 1e3);
    char         whole[32];
    const int    n_digits = snprintf(whole, sizeof whole, "%.0f", scaled);
    const int    n_after  = whole[0] == '0' ? 2 : n_digits < 2 ? 2 - n_digits : 0;
    snprintf(buf, n_buf, "%.*f%s", n_after, scaled, unit);
    return buf;
}
