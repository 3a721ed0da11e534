#include "quant/plan.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <ctype.h>
#include <inttypes.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/encode.h"

/* `pattern` with {name} and {type} replaced; malloc'd, NULL when out of memory. */
static char* expand_name(const char* pattern, const char* name, const char* type)
{
    const size_t n_max = strlen(pattern) * (1 + strlen(name) + strlen(type)) + 1;
    char*        out   = malloc(n_max);
    size_t       used  = 0;
    if (!out) { return NULL; }
    while (*pattern) {
        const char* text = NULL;
        if (strncmp(pattern, "{name}", 6) == 0) { text = name; }
        if (strncmp(pattern, "{type}", 6) == 0) { text = type; }
        if (text) {
            used += (size_t)sprintf(out + used, "%s", text);
            pattern += 6;
        } else {
            out[used++] = *pattern++;
        }
    }
    out[used] = '\0';
    return out;
}

/* --- overrides ------------------------------------------------------------------------------------------------------- */

/*
 * Set types[i] of every quantizable tensor that a pattern finds, and is_named[i]; the first pattern wins, and wins over what was set by class. A pattern that finds
 * nothing is a mistake.
 */
static ht_status apply_overrides(ht_type* types, bool* is_named, const ht_plan_options* options, const ht_tensor_info* tensors, int64_t n_tensors,
                                 ht_error* err)
{
    ht_status         st      = HT_STATUS_OK;
    pcre2_code*       code    = NULL;
    pcre2_match_data* match   = NULL;
    bool*             is_done = calloc((size_t)n_tensors + 1, sizeof *is_done);
    HT_CHECK(is_done, NOMEM, "type overrides");
    for (int k = 0; k < options->n_overrides; k++) {
        const ht_type_override* override = &options->overrides[k];
        int                     number   = 0;
        PCRE2_SIZE              position = 0;
        int64_t                 n_found  = 0;
        code = pcre2_compile((PCRE2_SPTR)override->pattern, PCRE2_ZERO_TERMINATED, 0, &number, &position, NULL);
        if (!code) {
            PCRE2_UCHAR text[128] = "";
            pcre2_get_error_message(number, text, sizeof text);
            HT_CHECK(0, ARG, "--tensor-type: pattern \"%s\" is not valid at %zu: %s", override->pattern, (size_t)position, (char*)text);
        }
        match = pcre2_match_data_create_from_pattern(code, NULL);
        HT_CHECK(match, NOMEM, "pattern match");
        for (int64_t i = 0; i < n_tensors; i++) {
            if (pcre2_match(code, (PCRE2_SPTR)tensors[i].name, strlen(tensors[i].name), 0, 0, match, NULL) < 0) { continue; }
            if (!ht_tensor_is_quantizable(&tensors[i])) { continue; }
            n_found++;
            if (!is_done[i]) { types[i] = override->type->type; }
            is_done[i] = is_named[i] = true;
        }
        HT_CHECK(n_found > 0, ARG, "--tensor-type: pattern \"%s\" matches no tensor that can be quantized", override->pattern);
        pcre2_match_data_free(match);
        pcre2_code_free(code);
        match = NULL;
        code  = NULL;
    }
done:
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    free(is_done);
    return st;
}

/* --- types of one output ------------------------------------------------------------------------------------------------ */

static ht_status assign_types(ht_type* types, bool* is_named, int index, const ht_recipe* recipe, const ht_meta* meta, const ht_tensor_info* native, int64_t n_tensors,
                              const ht_plan_options* options, ht_error* err)
{
    ht_status       st = HT_STATUS_OK;
    ht_recipe_model model;
    const ht_type*  mix = options->mixes ? options->mixes[index] : NULL;
    if (mix) {
        memcpy(types, mix, (size_t)n_tensors * sizeof *types);
    } else if (recipe) {
        ht_recipe_model_init(&model, meta, native, n_tensors, options->calibration && options->calibration->statistics);
        HT_TRY(ht_recipe_assign(recipe, &model, native, n_tensors, types, err));
    } else {
        for (int64_t i = 0; i < n_tensors; i++) { types[i] = native[i].type; }
    }
    for (int64_t i = 0; i < n_tensors; i++) {
        if (!ht_tensor_is_quantizable(&native[i])) { continue; }
        if (options->pure && recipe) { types[i] = ht_recipe_default_type(recipe); }
        const ht_type_info* by_class = strcmp(native[i].name, "token_embd.weight") == 0 ? options->token_embedding_type
                                     : strcmp(native[i].name, "output.weight") == 0     ? options->output_type : NULL;
        if (by_class) { types[i] = by_class->type; }
        is_named[i] = by_class != NULL;
    }
    HT_TRY(apply_overrides(types, is_named, options, native, n_tensors, err));
done:
    return st;
}

static const char* method_for(const ht_source* source, const ht_source_tensor* tensor, ht_type type, const ht_calibration* calibration)
{
    if (type == tensor->info.type && ht_source_has_raw(source, tensor)) { return "copy"; }
    if (ht_type_get(type)->is_float) { return "cast"; }
    if (!calibration || !calibration->statistics || !ht_statistics_find(calibration->statistics, tensor->info.name)) { return ht_method_name(HT_METHOD_RTN); }
    return ht_method_name(calibration->method);
}

static ht_status plan_tensor(ht_plan_output* output, int64_t i, ht_type wanted, const ht_source* source, const ht_plan_options* options,
                             ht_error* err)
{
    ht_status               st     = HT_STATUS_OK;
    const ht_source_tensor* tensor = ht_source_tensor_at(source, i);
    const ht_type           type   = ht_type_for_row(wanted, tensor->info.ne[0]);
    const ht_type_info*     info   = ht_type_get(type);

    HT_CHECK(!options->strict || type == wanted, ARG, "row length %" PRId64 " does not fill %s blocks of %d (it would become %s; --strict)",
             tensor->info.ne[0], ht_type_get(wanted)->name, ht_type_get(wanted)->block_elems, info->name);
    output->details[i]      = (ht_plan_tensor){ .source = tensor, .planned = wanted, .method = method_for(source, tensor, type, options->calibration) };
    output->tensors[i]      = tensor->info;
    output->tensors[i].type = type;
    output->n_fallback += type != wanted;
    if (strcmp(output->details[i].method, "copy") != 0) {
        HT_CHECK(info->can_encode, UNSUPPORTED, "Halftone reads %s but does not write it", info->name);
        HT_CHECK(!ht_type_get(tensor->info.type)->is_quantized || options->allow_requantize, UNSUPPORTED,
                 "the source is quantized already (%s); quantizing it again to %s loses quality: start from the original, or allow it with "
                 "--allow-requantize", ht_type_get(tensor->info.type)->name, info->name);
    }
    HT_TRY(ht_tensor_info_size(&output->tensors[i], err));
done:
    if (st != HT_STATUS_OK) { ht_error_set_tensor(err, tensor->info.name); }
    return st;
}

/* --- metadata ------------------------------------------------------------------------------------------------------------ */

/* "auto": the file type of the most common type among matrices, as stock readers print it. */
static uint32_t file_type_of(const ht_plan_output* output, int64_t n_tensors)
{
    uint64_t n_bytes[HT_TYPE_END] = { 0 };
    uint32_t best                 = HT_TYPE_f32;
    for (int64_t i = 0; i < n_tensors; i++) {
        if (ht_tensor_is_quantizable(&output->tensors[i])) { n_bytes[output->tensors[i].type] += output->tensors[i].n_bytes; }
    }
    for (uint32_t type = 0; type < HT_TYPE_END; type++) {
        if (n_bytes[type] > n_bytes[best]) { best = type; }
    }
    for (int k = 0; ht_recipe_at(k); k++) {
        if (ht_recipe_default_type(ht_recipe_at(k)) == (ht_type)best) { return ht_recipe_file_type(ht_recipe_at(k)); }
    }
    return 0;
}

/* "Q4_K_M --pure --tensor-type attn_v=Q6_K": how to ask for the same again. */
static char* describe_recipe(const char* type_name, const ht_plan_options* options)
{
    char*  text = NULL;
    size_t n    = 0;
    FILE*  f    = open_memstream(&text, &n);
    if (!f) { return NULL; }
    fprintf(f, "%s", type_name);
    if (options->pure) { fprintf(f, " --pure"); }
    if (options->token_embedding_type) { fprintf(f, " --token-embedding-type %s", options->token_embedding_type->name); }
    if (options->output_type) { fprintf(f, " --output-tensor-type %s", options->output_type->name); }
    if (options->calibration && options->calibration->statistics) { fprintf(f, " --method %s", ht_method_name(options->calibration->method)); }
    for (int i = 0; i < options->n_overrides; i++) {
        fprintf(f, " --tensor-type %s=%s", options->overrides[i].pattern, options->overrides[i].type->name);
    }
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* What stock tools record about an importance matrix, and what was held against the weights here. */
static ht_status set_calibration_keys(ht_meta* meta, const ht_statistics* statistics, ht_error* err)
{
    ht_status   st    = HT_STATUS_OK;
    const char* slash = strrchr(ht_statistics_path(statistics), '/');
    HT_TRY(ht_meta_set_string(meta, "quantize.imatrix.file", slash ? slash + 1 : ht_statistics_path(statistics), err));
    HT_TRY(ht_meta_set_u32(meta, "quantize.imatrix.entries_count", (uint32_t)ht_statistics_n_entries(statistics), err));
    uint32_t n_chunks = 0;
    HT_TRY(ht_meta_get_u32(ht_statistics_meta(statistics), "imatrix.chunk_count", false, &n_chunks, err));
    if (n_chunks > 0) { HT_TRY(ht_meta_set_u32(meta, "quantize.imatrix.chunks_count", n_chunks, err)); }
    const char* sha256 = NULL;
    HT_TRY(ht_meta_get_string(ht_statistics_meta(statistics), "halftone.calibration.sha256", false, &sha256, err));
    if (sha256) { HT_TRY(ht_meta_set_string(meta, "halftone.calibration.sha256", sha256, err)); }
    if (ht_statistics_n_sanitized(statistics) > 0) {
        HT_TRY(ht_meta_set_u32(meta, "halftone.calibration.n_sanitized", (uint32_t)ht_statistics_n_sanitized(statistics), err));
    }
done:
    return st;
}

static ht_status fill_meta(ht_plan_output* output, int64_t n_tensors, const ht_recipe* recipe, const ht_source* source,
                           const ht_plan_options* options, ht_error* err)
{
    ht_status st          = HT_STATUS_OK;
    char      sha256[65];
    char*     description = describe_recipe(output->type_name, options);
    uint32_t* zeros       = calloc((size_t)n_tensors + 1, sizeof *zeros);
    bool      quantized   = false;
    HT_CHECK(description && zeros, NOMEM, "metadata");
    for (int64_t i = 0; i < n_tensors; i++) { quantized |= ht_type_get(output->tensors[i].type)->is_quantized; }
    HT_TRY(ht_meta_clone(&output->meta, ht_source_meta(source), err));
    HT_TRY(ht_meta_set_u32(output->meta, "general.file_type", recipe ? ht_recipe_file_type(recipe) : file_type_of(output, n_tensors), err));
    if (quantized) { HT_TRY(ht_meta_set_u32(output->meta, "general.quantization_version", 2, err)); }
    HT_TRY(ht_source_sha256(source, sha256, err));
    HT_TRY(ht_meta_set_string(output->meta, "halftone.version", HT_VERSION, err));
    HT_TRY(ht_meta_set_string(output->meta, "halftone.recipe", description, err));
    HT_TRY(ht_meta_set_string(output->meta, "halftone.source.name", ht_source_name(source), err));
    HT_TRY(ht_meta_set_string(output->meta, "halftone.source.sha256", sha256, err));
    if (options->calibration && options->calibration->statistics) { HT_TRY(set_calibration_keys(output->meta, options->calibration->statistics, err)); }
    HT_TRY(ht_meta_set_values(output->meta, HT_KEY_TENSOR_CRC32, HT_META_TYPE_U32, true, (uint64_t)n_tensors, zeros, err));
done:
    free(description);
    free(zeros);
    return st;
}

ht_status ht_plan_header(const ht_plan* plan, int index, const uint32_t* crc32, void** out, ht_error* err)
{
    ht_status       st       = HT_STATUS_OK;
    ht_plan_output* output   = &plan->outputs[index];
    size_t          n_header = 0;
    uint64_t        n_file   = 0;
    if (crc32) { HT_TRY(ht_meta_set_values(output->meta, HT_KEY_TENSOR_CRC32, HT_META_TYPE_U32, true, (uint64_t)plan->n_tensors, crc32, err)); }
    HT_TRY(ht_gguf_layout(output->meta, output->tensors, plan->n_tensors, out, &n_header, &n_file, err));
    output->n_header_bytes = n_header;
    output->n_file_bytes   = n_file;
done:
    return st;
}

/* --- the plan -------------------------------------------------------------------------------------------------------------- */

static void sum_up(ht_plan_output* output, int64_t n_tensors)
{
    double n_bytes = 0.0, n_planned = 0.0, n_elems = 0.0;
    for (int64_t i = 0; i < n_tensors; i++) {
        const double n = (double)ht_tensor_n_elems(&output->tensors[i]);
        n_elems += n;
        n_bytes += (double)output->tensors[i].n_bytes;
        n_planned += n * ht_type_bits(ht_type_get(output->details[i].planned)) / 8.0;
    }
    output->bits_per_weight         = n_elems > 0.0 ? 8.0 * n_bytes / n_elems : 0.0;
    output->planned_bits_per_weight = n_elems > 0.0 ? 8.0 * n_planned / n_elems : 0.0;
}

static ht_status plan_output(ht_plan* plan, int index, const ht_tensor_info* native, const ht_plan_options* options, ht_error* err)
{
    ht_status        st     = HT_STATUS_OK;
    ht_plan_output*  output = &plan->outputs[index];
    const char*      name   = options->recipes[index];
    const ht_recipe* recipe = NULL;
    ht_type*         types  = calloc((size_t)plan->n_tensors + 1, sizeof *types);
    bool*            is_named = calloc((size_t)plan->n_tensors + 1, sizeof *is_named);
    void*            header = NULL;

    HT_CHECK(types && is_named, NOMEM, "tensor types");
    if (strcmp(name, "auto") != 0 && !(options->mixes && options->mixes[index])) {
        char near[128];
        recipe = ht_recipe_find(name);
        if (!recipe) {
            st = ht_fail(err, HT_STATUS_ARG, "unknown type \"%s\" (near: %s)", name, ht_recipe_suggest(name, near, sizeof near));
            if (err) { err->usage = 1; }
            goto done;
        }
    }
    const bool is_mix = options->mixes && options->mixes[index];
    snprintf(output->type_name, sizeof output->type_name, "%s", is_mix ? options->mix_names[index] : recipe ? ht_recipe_name(recipe) : "auto");
    output->path    = expand_name(options->out, ht_source_name(plan->source), output->type_name);
    output->tensors = calloc((size_t)plan->n_tensors + 1, sizeof *output->tensors);
    output->details = calloc((size_t)plan->n_tensors + 1, sizeof *output->details);
    HT_CHECK(output->path && output->tensors && output->details, NOMEM, "plan of %s", output->type_name);
    HT_TRY(assign_types(types, is_named, index, recipe, ht_source_meta(plan->source), native, plan->n_tensors, options, err));
    for (int64_t i = 0; i < plan->n_tensors; i++) {
        HT_TRY(plan_tensor(output, i, types[i], plan->source, options, err));
        output->details[i].is_named = is_named[i];
    }
    sum_up(output, plan->n_tensors);
    HT_TRY(fill_meta(output, plan->n_tensors, recipe, plan->source, options, err));
    HT_TRY(ht_plan_header(plan, index, NULL, &header, err));
done:
    free(types);
    free(is_named);
    free(header);
    return st;
}

static ht_status check_names(const ht_plan* plan, const ht_plan_options* options, ht_error* err)
{
    for (int a = 0; a < plan->n_outputs; a++) {
        for (int b = a + 1; b < plan->n_outputs; b++) {
            if (strcmp(plan->outputs[a].path, plan->outputs[b].path) != 0) { continue; }
            if (err) { err->usage = 1; }
            return ht_fail(err, HT_STATUS_ARG, "%s and %s would both be written to \"%s\" (put {type} into -o)", options->recipes[a],
                           options->recipes[b], plan->outputs[a].path);
        }
    }
    return HT_STATUS_OK;
}

ht_status ht_plan_create(ht_plan** out, const ht_source* source, const ht_plan_options* options, ht_error* err)
{
    ht_status       st     = HT_STATUS_OK;
    ht_tensor_info* native = NULL;
    ht_plan*        plan   = calloc(1, sizeof *plan);
    HT_CHECK(plan, NOMEM, "plan");
    plan->source    = source;
    plan->calibration = options->calibration;
    plan->n_tensors = ht_source_n_tensors(source);
    plan->n_outputs = options->n_recipes;
    plan->outputs   = calloc((size_t)options->n_recipes + 1, sizeof *plan->outputs);
    native          = calloc((size_t)plan->n_tensors + 1, sizeof *native);
    HT_CHECK(plan->outputs && native, NOMEM, "plan");
    HT_CHECK(plan->n_tensors > 0, FORMAT, "the source has no tensors");
    for (int64_t i = 0; i < plan->n_tensors; i++) {
        native[i] = ht_source_tensor_at(source, i)->info;
        plan->n_elems += ht_tensor_n_elems(&native[i]);
    }
    for (int k = 0; k < plan->n_outputs; k++) { HT_TRY(plan_output(plan, k, native, options, err)); }
    HT_TRY(check_names(plan, options, err));
    *out = plan;
    plan = NULL;
done:
    free(native);
    ht_plan_free(plan);
    if (st != HT_STATUS_OK && err && !err->usage) { ht_error_set_file(err, ht_source_path(source)); }
    return st;
}

ht_status ht_plan_fold(ht_plan* plan, const ht_ctx* ctx, ht_error* err)
{
    ht_status st    = HT_STATUS_OK;
    ht_type*  types = calloc((size_t)plan->n_tensors + 1, sizeof *types);
    HT_CHECK(types, NOMEM, "tensor types");
    if (!plan->calibration || !plan->calibration->statistics || !ht_method_folds(plan->calibration->method)) { goto done; }
    for (int k = 0; k < plan->n_outputs; k++) {
        ht_plan_output* output = &plan->outputs[k];
        for (int64_t i = 0; i < plan->n_tensors; i++) { types[i] = output->tensors[i].type; }
        HT_TRY(ht_folding_search(&output->folding, plan->source, plan->calibration, types, ctx, err));
        for (int64_t i = 0; i < plan->n_tensors; i++) {
            const ht_fold* f = &output->folding.folds[i];
            if ((f->columns || f->rows) && strcmp(output->details[i].method, "copy") == 0) { output->details[i].method = "cast"; }
        }
        ht_log_info(&ctx->log, "%s: scales folded into %lld of %lld groups; estimated KL divergence of all groups with importance rounding %.5f, without scales %.5f", output->type_name,
                    (long long)output->folding.n_folded, (long long)output->folding.n_groups, output->folding.cost, output->folding.cost_identity);
    }
done:
    free(types);
    return st;
}

void ht_plan_free(ht_plan* plan)
{
    if (!plan) { return; }
    for (int k = 0; plan->outputs && k < plan->n_outputs; k++) {
        free(plan->outputs[k].path);
        ht_meta_free(plan->outputs[k].meta);
        free(plan->outputs[k].tensors);
        free(plan->outputs[k].details);
        ht_folding_deinit(&plan->outputs[k].folding);
    }
    free(plan->outputs);
    free(plan);
}
