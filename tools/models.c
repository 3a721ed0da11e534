#include "tools/models.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "quant/recipe.h"

static void describe(ht_loaded* loaded, const ht_source* source)
{
    uint32_t    file_type = UINT32_MAX;
    uint64_t    n_bytes   = 0;
    double      n_elems   = 0.0;
    struct stat info;
    for (int64_t i = 0; i < ht_source_n_tensors(source); i++) {
        const ht_tensor_info* t = &ht_source_tensor_at(source, i)->info;
        n_bytes += t->n_bytes;
        n_elems += (double)ht_tensor_n_elems(t);
    }
    loaded->bits_per_weight = n_elems > 0.0 ? 8.0 * (double)n_bytes / n_elems : 0.0;
    loaded->n_bytes         = stat(loaded->path, &info) == 0 && S_ISREG(info.st_mode) ? (uint64_t)info.st_size : n_bytes;
    snprintf(loaded->type_name, sizeof loaded->type_name, "unknown");
    (void)ht_meta_get_u32(ht_source_meta(source), "general.file_type", false, &file_type, NULL);
    for (int i = 0; ht_recipe_at(i); i++) {
        if (ht_recipe_file_type(ht_recipe_at(i)) != file_type) { continue; }
        snprintf(loaded->type_name, sizeof loaded->type_name, "%s", ht_recipe_name(ht_recipe_at(i)));
        break;
    }
}

ht_status ht_loaded_init(ht_loaded* loaded, const char* path, ht_compute compute, const ht_ctx* ctx, ht_error* err)
{
    ht_status  st     = HT_STATUS_OK;
    ht_source* source = NULL;
    *loaded = (ht_loaded){ .path = path };
    HT_TRY(ht_source_open(&source, path, NULL, ctx, err));
    describe(loaded, source);
    HT_TRY(ht_tokenizer_create(&loaded->tokenizer, ht_source_meta(source), err));
    HT_TRY(ht_model_load(&loaded->model, source, compute, ctx, err));
done:
    ht_source_close(source);
    if (st != HT_STATUS_OK) { ht_error_set_file(err, path); }
    return st;
}

void ht_loaded_deinit(ht_loaded* loaded)
{
    if (!loaded) { return; }
    ht_model_free(loaded->model);
    ht_tokenizer_free(loaded->tokenizer);
    loaded->model     = NULL;
    loaded->tokenizer = NULL;
}

const char* ht_compute_name(ht_compute compute) { return compute == HT_COMPUTE_EXACT ? "exact" : "fast"; }
const char* ht_kv_type_name(ht_kv_type type) { return type == HT_KV_TYPE_F16 ? "f16" : "f32"; }

ht_status ht_compute_parse(ht_compute* out, const ht_args* args, ht_compute fallback, ht_error* err)
{
    const char* text = ht_args_text(args, "compute", ht_compute_name(fallback));
    *out             = strcmp(text, "exact") == 0 ? HT_COMPUTE_EXACT : HT_COMPUTE_FAST;
    return strcmp(text, ht_compute_name(*out)) == 0 ? HT_STATUS_OK : ht_usage_error(err, "--compute: \"%s\" is not exact or fast", text);
}

ht_status ht_kv_type_parse(ht_kv_type* out, const ht_args* args, ht_error* err)
{
    const char* text = ht_args_text(args, "kv", "f16");
    *out             = strcmp(text, "f32") == 0 ? HT_KV_TYPE_F32 : HT_KV_TYPE_F16;
    return strcmp(text, ht_kv_type_name(*out)) == 0 ? HT_STATUS_OK : ht_usage_error(err, "--kv: \"%s\" is not f16 or f32", text);
}
