/* halftone cpu: what this machine offers and what was chosen. */
#include <stdio.h>

#include "runtime/kernels/kernels.h"
#include "tools/cmd.h"

static const struct { uint32_t bit; const char* name; } feature_names[] = {
    { HT_CPU_AVX2, "avx2" },           { HT_CPU_AVX_VNNI, "avx_vnni" },     { HT_CPU_AVX512, "avx512" },
    { HT_CPU_AVX512_VNNI, "avx512_vnni" }, { HT_CPU_AVX512_BF16, "avx512_bf16" }, { HT_CPU_AMX_INT8, "amx_int8" },
    { HT_CPU_AMX_BF16, "amx_bf16" },   { HT_CPU_NEON_DOT, "neon_dotprod" }, { HT_CPU_NEON_I8MM, "neon_i8mm" },
};
enum { N_FEATURES = sizeof feature_names / sizeof *feature_names };

/* The variant that is used for each operation and type, in the order of the type numbers. */
static cJSON* chosen_kernels(uint32_t allowed)
{
    cJSON*     list = cJSON_CreateArray();
    ht_kernels kernels;
    ht_kernels_select(&kernels, allowed);
    for (int op = HT_OP_DOT; op <= HT_OP_ROUND; op++) {
        for (uint32_t id = 0; id < HT_TYPE_END; id++) {
            const ht_kernel* kernel = op == HT_OP_DOT ? kernels.dot[id] : kernels.round[id];
            if (!kernel) { continue; }
            cJSON* entry = cJSON_CreateObject();
            cJSON_AddStringToObject(entry, "op", op == HT_OP_DOT ? "dot" : "round");
            cJSON_AddStringToObject(entry, "type", ht_type_get(id)->name);
            cJSON_AddStringToObject(entry, "isa", ht_isa_name(kernel->isa));
            cJSON_AddItemToArray(list, entry);
        }
    }
    return list;
}

static ht_status run(const ht_args* args, const ht_ctx* ctx, int* exit_code, ht_error* err)
{
    char           model[128];
    const uint32_t features = ht_cpu_features();
    (void)exit_code;
    ht_cpu_model(model, sizeof model);
    if (ht_args_json(args)) {
        cJSON* document = ht_json_document("cpu");
        ht_json_add_text(document, "model", model);
        cJSON_AddNumberToObject(document, "n_cores", ht_cpu_n_cores());
        cJSON_AddNumberToObject(document, "threads", ctx->n_threads);
        cJSON* list = cJSON_AddArrayToObject(document, "features");
        for (int i = 0; i < N_FEATURES; i++) {
            if (features & feature_names[i].bit) { cJSON_AddItemToArray(list, cJSON_CreateString(feature_names[i].name)); }
        }
        cJSON_AddStringToObject(document, "isa", ht_isa_name(ctx->isa));
        cJSON* levels = cJSON_AddArrayToObject(document, "isa_levels");
        for (int i = 0; i < HT_ISA_COUNT; i++) {
            cJSON* level = cJSON_CreateObject();
            cJSON_AddStringToObject(level, "name", ht_isa_name((ht_isa)i));
            cJSON_AddBoolToObject(level, "available", ht_isa_available((ht_isa)i, features));
            cJSON_AddItemToArray(levels, level);
        }
        cJSON_AddItemToObject(document, "kernels", chosen_kernels(features & ht_isa_features(ctx->isa)));
        return ht_json_print(document, err);
    }
    printf("%s, %d cores, %d threads\nfeatures  ", model, ht_cpu_n_cores(), ctx->n_threads);
    for (int i = 0; i < N_FEATURES; i++) {
        if (features & feature_names[i].bit) { printf(" %s", feature_names[i].name); }
    }
    printf("\nkernels    %s\nlevels    ", ht_isa_name(ctx->isa));
    for (int i = 0; i < HT_ISA_COUNT; i++) {
        if (ht_isa_available((ht_isa)i, features)) { printf(" %s", ht_isa_name((ht_isa)i)); }
    }
    printf("\n");
    return HT_STATUS_OK;
}

static const ht_option options[] = { { NULL, 0, HT_OPTION_FLAG, NULL, NULL } };

const ht_command ht_command_cpu = {
    "cpu", "", "what this CPU offers and which kernels are chosen", NULL, options, 0, 0, run,
};
