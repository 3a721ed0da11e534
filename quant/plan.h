/*
 * The plan: for each tensor of each output file its source, transform, type, method, and byte offset, made from headers alone. From it follow
 * the dry run, the exact file sizes, one read of the source for many outputs, and work items that are pure functions of their rows.
 */
#ifndef HT_QUANT_PLAN_H
#define HT_QUANT_PLAN_H

#include "quant/fold.h"
#include "quant/recipe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `--tensor-type REGEX=TYPE`: the first pattern found anywhere in a tensor's name decides (PCRE2). */
typedef struct ht_type_override {
    const char*         pattern;
    const ht_type_info* type;
} ht_type_override;

typedef struct ht_plan_options {
    const char* const*      recipes;   /* n_recipes names; "auto" keeps every tensor's own type                */
    int                     n_recipes;
    const char*             out;       /* file name; may hold {name} and {type}; must, with several recipes    */
    const ht_type_override* overrides; /* n_overrides, in order of preference                                  */
    int                     n_overrides;
    const ht_type_info*     token_embedding_type; /* NULL: by recipe */
    const ht_type_info*     output_type;          /* NULL: by recipe */
    bool pure;              /* the recipe's type for every tensor that can be quantized                        */
    bool strict;            /* refuse when a row does not fill the blocks of its planned type                  */
    bool allow_requantize;  /* decode quantized tensors and quantize them again                                */
    const ht_calibration*   calibration; /* NULL: none. Must outlive the plan                                 */
    const ht_type* const*   mixes;     /* NULL, or per recipe NULL or n_tensors types that replace the recipe's */
    const char* const*      mix_names; /* with mixes: {type} of the file name and the recipe's name in the file */
} ht_plan_options;

typedef struct ht_plan_tensor {
    const ht_source_tensor* source;
    ht_type                 planned;   /* before the fallback; equal to the type in the file when there was none   */
    const char*             method;    /* "copy" (bytes as they are), "cast" (float to float), or ht_method_name    */
    bool                    is_named;  /* its type was asked for by an option, so a mix leaves it alone             */
} ht_plan_tensor;

typedef struct ht_plan_output {
    char*            path;
    char             type_name[32];    /* the recipe's name, upper case, or "auto" */
    ht_meta*         meta;
    ht_tensor_info*  tensors;          /* n_tensors, in file order                 */
    ht_plan_tensor*  details;          /* n_tensors                                */
    uint64_t         n_header_bytes;   /* up to the data section                   */
    uint64_t         n_file_bytes;     /* exact                                    */
    double           bits_per_weight, planned_bits_per_weight; /* tensor data only; planned: had every row filled its blocks */
    int64_t          n_fallback;
    ht_folding       folding;          /* ht_plan_fold; folds is NULL without                                    */
} ht_plan_output;

typedef struct ht_plan {
    const ht_source* source;
    const ht_calibration* calibration; /* or NULL                                  */
    int64_t          n_tensors;        /* the same for every output                */
    int64_t          n_elems;
    int              n_outputs;
    ht_plan_output*  outputs;
} ht_plan;

/* Key of the CRC-32 list in the metadata: u32 array, one per tensor in file order, over its bytes without padding. */
#define HT_KEY_TENSOR_CRC32 "halftone.tensor_crc32"

/*
 * The source must outlive the plan. Errors: ARG unknown recipe (with the nearest names), pattern that matches nothing, strict and a row
 * that does not fit; UNSUPPORTED a type without encoder, a quantized source without allow_requantize; FORMAT.
 */
ht_status ht_plan_create(ht_plan** out, const ht_source* source, const ht_plan_options* options, ht_error* err);
void      ht_plan_free(ht_plan* plan);

/* For methods that fold (AWQ): search the channel scales of every output. Norms that are folded are cast then, not copied. Errors: those of ht_folding_search. */
ht_status ht_plan_fold(ht_plan* plan, const ht_ctx* ctx, ht_error* err);

/*
 * The bytes before the data section of output `index`, with the CRCs given (n_tensors, or NULL for zeros). malloc'd, n_header_bytes long,
 * owned by the caller.
 */
ht_status ht_plan_header(const ht_plan* plan, int index, const uint32_t* crc32, void** out, ht_error* err);

#ifdef __cplusplus
}
#endif
#endif
