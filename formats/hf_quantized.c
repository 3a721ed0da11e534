#include "formats/hf_quantized.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_f8(ht_dtype dtype) { return dtype == HT_DTYPE_F8_E4M3 || dtype == HT_DTYPE_F8_E5M2; }

static bool ends_with(const char* text, const char* ending)
{
    const size_t n = strlen(text), n_ending = strlen(ending);
    return n >= n_ending && strcmp(text + n - n_ending, ending) == 0;
}

/* --- other quantizers --------------------------------------------------------------------------------------------------------------- */

/* Parts of names that only these leave behind. Source: their checkpoint formats (facts "ecosystem.md" and "convert.md" section 7). */
static const struct { const char* part; bool at_end; const char* quantizer; } traces[] = {
    { ".quant_state.bitsandbytes__", false, "bitsandbytes" },
    { ".absmax", true, "bitsandbytes" },
    { ".quant_map", true, "bitsandbytes" },
    { ".nested_absmax", true, "bitsandbytes" },
    { ".nested_quant_map", true, "bitsandbytes" },
    { ".SCB", true, "bitsandbytes int8" },
    { ".qweight", true, "GPTQ or AWQ" },
    { ".qzeros", true, "GPTQ or AWQ" },
    { ".g_idx", true, "GPTQ" },
    { ".weight_packed", true, "compressed-tensors" },
    { ".weight_shape", true, "compressed-tensors" },
    { ".weight_zero_point", true, "compressed-tensors" },
    { "._scale", true, "quanto" },
    { "._data", true, "quanto" },
    { ".weight_scale_2", true, "modelopt" },
    { ".trellis", true, "exllamav3" },
    { ".q_weight", true, "exllamav2" },
    { ".W_q", true, "HQQ" },
    { "_blocks", true, "mxfp4" },
};

enum { N_TRACES = sizeof traces / sizeof *traces, N_SHOWN = 3 };

static const char* trace_of(const char* name, const char** part)
{
    for (int i = 0; i < N_TRACES; i++) {
        const char* found = traces[i].at_end ? (ends_with(name, traces[i].part) ? name : NULL) : strstr(name, traces[i].part);
        if (!found) { continue; }
        *part = traces[i].at_end ? "" : found + strlen(traces[i].part);
        return traces[i].quantizer;
    }
    return NULL;
}

/* A scale is a trace when the weight beside it is not FP8: "x.weight_scale" of an int8 "x.weight". */
static bool is_foreign_scale(const ht_hf_checkpoint* c, const char* name)
{
    char         weight[512];
    const size_t n = strlen(name);
    const size_t n_ending = ends_with(name, ".weight_scale_inv") ? sizeof "_scale_inv" - 1 : ends_with(name, ".weight_scale") ? sizeof "_scale" - 1 : 0;
    if (n_ending == 0 || n - n_ending >= sizeof weight) { return false; }
    snprintf(weight, sizeof weight, "%.*s", (int)(n - n_ending), name);
    const ht_hf_tensor* t = ht_hf_checkpoint_find(c, weight);
    return !t || !is_f8(t->tensor->dtype);
}

/* "bitsandbytes nf4", "gptq 4-bit": what quantization_config says; "" when it says nothing or fp8. */
static ht_status configured_method(char* out, size_t n_out, const ht_json* config, ht_error* err)
{
    ht_status            st     = HT_STATUS_OK;
    const ht_json_value* quant  = NULL;
    const char *         method = NULL, *bnb_type = "nf4";
    bool                 is_4bit = false, is_8bit = false;
    int64_t              bits = 0;
    out[0] = '\0';
    HT_TRY(ht_json_get_object(config, ht_json_root(config), "quantization_config", false, &quant, err));
    if (!quant || !ht_json_first(quant)) { return HT_STATUS_OK; }
    HT_TRY(ht_json_get_string(config, quant, "quant_method", false, &method, err));
    if (method && strcmp(method, "fp8") == 0) { return HT_STATUS_OK; }
    HT_TRY(ht_json_get_bool(config, quant, "load_in_4bit", false, &is_4bit, err));
    HT_TRY(ht_json_get_bool(config, quant, "load_in_8bit", false, &is_8bit, err));
    HT_TRY(ht_json_get_string(config, quant, "bnb_4bit_quant_type", false, &bnb_type, err));
    ht_json_as_i64(ht_json_member(quant, "bits"), &bits);
    if (!method) { method = is_4bit || is_8bit ? "bitsandbytes" : "an unknown method"; }
    if (is_4bit || is_8bit) { snprintf(out, n_out, "%s %s", method, is_4bit ? bnb_type : "int8"); }
    else if (bits > 0 && bits < 100) { snprintf(out, n_out, "%s %d-bit", method, (int)bits); }
    else { snprintf(out, n_out, "%s", method); }
done:
    return st;
}

ht_status ht_hf_check_quantized(const ht_hf_checkpoint* checkpoint, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    char      method[96], from_names[96] = "", shown[400] = "";
    int       n_shown = 0;
    size_t    used    = 0;
    bool      has_kind = false; /* the name gave more than the quantizer: nf4 */
    HT_TRY(configured_method(method, sizeof method, ht_hf_checkpoint_config(checkpoint), err));
    for (int64_t i = 0; i < ht_hf_checkpoint_n_tensors(checkpoint); i++) {
        const char* name      = ht_hf_checkpoint_tensor_at(checkpoint, i)->tensor->name;
        const char* kind      = "";
        const char* quantizer = trace_of(name, &kind);
        if (!quantizer && is_foreign_scale(checkpoint, name)) { quantizer = "scaled integers"; }
        if (!quantizer) { continue; }
        if (!from_names[0] || (kind[0] && !has_kind)) { snprintf(from_names, sizeof from_names, "%s%s%s", quantizer, kind[0] ? " " : "", kind); }
        has_kind = has_kind || kind[0];
        if (n_shown < N_SHOWN && used < sizeof shown) {
            const int n = snprintf(shown + used, sizeof shown - used, "%s%s", n_shown ? ", " : ": it has ", name);
            used += n > 0 ? (size_t)n : 0;
            n_shown++;
        }
    }
    HT_CHECK(!method[0] && !from_names[0], UNSUPPORTED, "source is already quantized (%s); convert from the original%s",
             method[0] ? method : from_names, shown);
done:
    return st;
}

/* --- FP8 ---------------------------------------------------------------------------------------------------------------------------- */

bool ht_fp8_is_activation_scale(const char* name)
{
    static const char* const endings[] = { ".input_scale", ".activation_scale", ".output_scale", ".k_scale", ".v_scale", ".activation_scale_inv" };
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (ends_with(name, endings[i])) { return true; }
    }
    return false;
}

/* weight_block_size, 0 0 when it is not given. */
static ht_status read_block_size(int64_t block[2], const ht_json* config, const ht_json_value* quant, ht_error* err)
{
    ht_status            st   = HT_STATUS_OK;
    const ht_json_value* size = NULL;
    block[0] = block[1] = 0;
    HT_TRY(ht_json_get_array(config, quant, "weight_block_size", false, &size, err));
    if (!size) { return HT_STATUS_OK; }
    const ht_json_value* first = ht_json_first(size);
    const bool           ok    = ht_json_count(size) == 2 && ht_json_as_i64(first, &block[0]) && ht_json_as_i64(ht_json_next(first), &block[1]);
    HT_CHECK(ok && block[0] > 0 && block[1] > 0, FORMAT, "quantization_config.weight_block_size is not two positive integers");
done:
    return st;
}

ht_status ht_fp8_scale_find(ht_fp8_scale* out, const ht_hf_checkpoint* checkpoint, const ht_hf_tensor* weight, ht_error* err)
{
    static const char* const endings[] = { "_scale_inv", "_scale" };
    ht_status            st      = HT_STATUS_OK;
    const ht_json*       config  = ht_hf_checkpoint_config(checkpoint);
    const ht_json_value* quant   = NULL;
    const ht_st_tensor*  w       = weight->tensor;
    ht_fp8_scale         scale   = { NULL, 1, 1, 1 };
    const size_t         n_name  = strlen(w->name) + sizeof "_scale_inv";
    char*                name    = malloc(n_name);
    int64_t              block[2];
    HT_CHECK(name, NOMEM, "tensor name");
    HT_TRY(ht_json_get_object(config, ht_json_root(config), "quantization_config", false, &quant, err));
    HT_TRY(read_block_size(block, config, quant, err));
    for (size_t i = 0; i < 2 && !scale.tensor; i++) {
        snprintf(name, n_name, "%s%s", w->name, endings[i]);
        scale.tensor = ht_hf_checkpoint_find(checkpoint, name);
    }
    HT_CHECK(scale.tensor || !quant, FORMAT, "%s weight without its scale: neither weight_scale_inv nor weight_scale is there", ht_dtype_name(w->dtype));
    if (scale.tensor) {
        const ht_st_tensor* s      = scale.tensor->tensor;
        const int64_t       n_rows = w->n_dims == 2 ? w->shape[0] : 1, n_cols = w->n_dims > 0 ? w->shape[w->n_dims - 1] : 1;
        const int64_t       s_rows = s->n_elems == 1 || s->n_dims == 0 ? 1 : s->shape[0], s_cols = s->n_dims == 2 ? s->shape[1] : 1;
        HT_CHECK(ht_dtype_is_float(s->dtype) && w->n_dims == 2 && s->n_dims <= 2, FORMAT, "the scale %s or the weight is not a float matrix", s->name);
        if (s->n_elems == 1) { scale.block_rows = n_rows, scale.block_cols = n_cols; }
        else if (s_rows == n_rows && s_cols == 1) { scale.block_cols = n_cols; }
        else {
            HT_CHECK(block[0] > 0, FORMAT, "the scale %s has blocks, but quantization_config has no weight_block_size", s->name);
            scale.block_rows = block[0], scale.block_cols = block[1], scale.n_cols = s_cols;
            const int64_t want_rows = (n_rows - 1) / block[0] + 1, want_cols = (n_cols - 1) / block[1] + 1;
            HT_CHECK(s_rows == want_rows && s_cols == want_cols, FORMAT,
                     "the scale %s has shape [%" PRId64 ", %" PRId64 "], blocks of [%" PRId64 ", %" PRId64 "] need [%" PRId64 ", %" PRId64 "]", s->name, s_rows, s_cols,
                     block[0], block[1], want_rows, want_cols);
        }
    }
    *out = scale;
done:
    free(name);
    if (st != HT_STATUS_OK) { ht_error_set_tensor(err, w->name); }
    return st;
}

ht_status ht_fp8_scale_apply(const ht_fp8_scale* scale, int64_t row, float* values, int64_t n_cols, ht_error* err)
{
    ht_status     st     = HT_STATUS_OK;
    float*        scales = malloc((size_t)scale->n_cols * sizeof *scales);
    const int64_t first  = row / scale->block_rows * scale->n_cols;
    HT_CHECK(scales, NOMEM, "row of scales");
    HT_TRY(ht_safetensors_read_f32(scale->tensor->file, scale->tensor->tensor, first, scale->n_cols, scales, err));
    for (int64_t b = 0; b < scale->n_cols; b++) {
        const int64_t end = (b + 1) * scale->block_cols < n_cols ? (b + 1) * scale->block_cols : n_cols;
        for (int64_t c = b * scale->block_cols; c < end; c++) { values[c] *= scales[b]; }
    }
done:
    free(scales);
    return st;
}
