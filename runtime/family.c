#include "runtime/family.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const ht_family families[] = {
    /* arch     neox   q/k/v bias            other bias            q/k norm            */
    { "llama", false, HT_PRESENCE_OPTIONAL, HT_PRESENCE_OPTIONAL, HT_PRESENCE_NEVER },
    { "qwen2", true, HT_PRESENCE_ALWAYS, HT_PRESENCE_NEVER, HT_PRESENCE_NEVER },
    { "qwen3", true, HT_PRESENCE_OPTIONAL, HT_PRESENCE_OPTIONAL, HT_PRESENCE_ALWAYS },
};
enum { N_FAMILIES = sizeof families / sizeof *families };

const ht_family* ht_family_find(const char* arch)
{
    for (int i = 0; i < N_FAMILIES; i++) {
        if (strcmp(families[i].arch, arch) == 0) { return &families[i]; }
    }
    return NULL;
}

char* ht_family_list(char* buf, size_t n_buf)
{
    size_t n = 0;
    for (int i = 0; i < N_FAMILIES && n < n_buf; i++) {
        n += (size_t)snprintf(buf + n, n_buf - n, "%s%s", i > 0 ? ", " : "", families[i].arch);
    }
    return buf;
}

/* A count of {arch}.name between 1 and max (0 allowed when not required: absent). */
static ht_status read_count(const ht_meta* meta, const char* arch, const char* name, bool required, int64_t max, int64_t* out, ht_error* err)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", arch, name);
    int64_t         value = *out;
    const ht_status st    = ht_meta_get_i64(meta, key, required, &value, err);
    if (st != HT_STATUS_OK) { return st; }
    if (value < (required ? 1 : 0) || value > max) {
        return ht_fail(err, HT_STATUS_FORMAT, "%s: %" PRId64 " is not between 1 and %" PRId64, key, value, max);
    }
    *out = value;
    return HT_STATUS_OK;
}

ht_status ht_hparams_read(ht_hparams* hparams, const ht_family** family, const ht_meta* meta, ht_error* err)
{
    enum { MAX_LAYERS = 4096, MAX_WIDTH = 1 << 20, MAX_CONTEXT = 1 << 30 }; /* far beyond any model; products stay within 64 bits */
    ht_status   st   = HT_STATUS_OK;
    const char* arch = NULL;
    char        key[96], known[128];
    int64_t     n_experts = 0;
    ht_hparams  h         = { .rope_freq_base = 10000.0f };

    HT_TRY(ht_meta_get_string(meta, "general.architecture", true, &arch, err));
    const ht_family* f = ht_family_find(arch);
    HT_CHECK(f, UNSUPPORTED, "general.architecture: \"%s\" is not one that the runtime knows (%s)", arch, ht_family_list(known, sizeof known));
    snprintf(h.arch, sizeof h.arch, "%s", arch);
    h.rope_neox = f->rope_neox;
    HT_TRY(read_count(meta, arch, "block_count", true, MAX_LAYERS, &h.n_layers, err));
    HT_TRY(read_count(meta, arch, "embedding_length", true, MAX_WIDTH, &h.n_embd, err));
    HT_TRY(read_count(meta, arch, "feed_forward_length", true, MAX_WIDTH, &h.n_ff, err));
    HT_TRY(read_count(meta, arch, "context_length", true, MAX_CONTEXT, &h.n_ctx_train, err));
    HT_TRY(read_count(meta, arch, "attention.head_count", true, MAX_WIDTH, &h.n_heads, err));
    h.n_heads_kv = h.n_heads;
    HT_TRY(read_count(meta, arch, "attention.head_count_kv", false, MAX_WIDTH, &h.n_heads_kv, err));
    h.head_dim = h.n_embd / h.n_heads;
    HT_TRY(read_count(meta, arch, "attention.key_length", false, MAX_WIDTH, &h.head_dim, err));
    h.head_dim_v = h.n_embd / h.n_heads;
    HT_TRY(read_count(meta, arch, "attention.value_length", false, MAX_WIDTH, &h.head_dim_v, err));
    h.n_rot = h.head_dim;
    HT_TRY(read_count(meta, arch, "rope.dimension_count", false, MAX_WIDTH, &h.n_rot, err));
    HT_TRY(read_count(meta, arch, "attention.sliding_window", false, MAX_CONTEXT, &h.sliding_window, err));
    HT_TRY(read_count(meta, arch, "expert_count", false, MAX_WIDTH, &n_experts, err));
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    HT_TRY(ht_meta_get_f32(meta, key, true, &h.norm_rms_eps, err));
    HT_CHECK(isfinite(h.norm_rms_eps) && h.norm_rms_eps >= 0.0f, FORMAT, "%s: %g", key, (double)h.norm_rms_eps);
    snprintf(key, sizeof key, "%s.rope.freq_base", arch);
    HT_TRY(ht_meta_get_f32(meta, key, false, &h.rope_freq_base, err));
    HT_CHECK(isfinite(h.rope_freq_base) && h.rope_freq_base > 1.0f, FORMAT, "%s: %g", key, (double)h.rope_freq_base);

    HT_CHECK(n_experts == 0, UNSUPPORTED, "%s.expert_count: %" PRId64 "; mixtures of experts are not run", arch, n_experts);
    HT_CHECK(h.n_heads_kv > 0 && h.n_heads % h.n_heads_kv == 0, FORMAT, "%s.attention.head_count_kv: %" PRId64 " does not divide %" PRId64
             " heads", arch, h.n_heads_kv, h.n_heads);
    HT_CHECK(h.head_dim > 0 && h.head_dim_v > 0, FORMAT, "%s: %" PRId64 " heads of no dimension", arch, h.n_heads);
    HT_CHECK(h.n_rot > 0 && h.n_rot % 2 == 0 && h.n_rot <= h.head_dim, FORMAT,
             "%s.rope.dimension_count: %" PRId64 " is not an even number up to the head size %" PRId64, arch, h.n_rot, h.head_dim);
    *hparams = h;
    *family  = f;
done:
    return st;
}

ht_status ht_hparams_window(const ht_hparams* h, const ht_meta* meta, int64_t layer, int64_t* window, ht_error* err)
{
    const ht_meta_kv* pattern = NULL;
    char              key[96];
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", h->arch);
    const ht_status st = ht_meta_get_array(meta, key, false, HT_META_TYPE_BOOL, &pattern, err);
    if (st != HT_STATUS_OK) { return st; }
    if (pattern && pattern->n_values != (uint64_t)h->n_layers) {
        return ht_fail(err, HT_STATUS_FORMAT, "%s: %" PRIu64 " values for %" PRId64 " layers", key, pattern->n_values, h->n_layers);
    }
    *window = !pattern || ((const uint8_t*)pattern->data)[layer] ? h->sliding_window : 0;
    return HT_STATUS_OK;
}
