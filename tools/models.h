/* What the commands that run models share: opening one with its tokenizer, and describing the file it came from. */
#ifndef HT_TOOLS_MODELS_H
#define HT_TOOLS_MODELS_H

#include "runtime/model.h"
#include "runtime/tokenizer.h"
#include "tools/cmd.h"

typedef struct ht_loaded {
    const char*   path;
    char          type_name[32];   /* "Q4_K_M": from general.file_type; "unknown" when it has none          */
    uint64_t      n_bytes;         /* of the file; of all tensors for a folder                              */
    double        bits_per_weight; /* tensor data only                                                      */
    ht_model*     model;
    ht_tokenizer* tokenizer;
} ht_loaded;

/* Open, describe, load. Nothing is kept open but the model. Free with ht_loaded_deinit, also after a failure; the description stays readable. */
ht_status ht_loaded_init(ht_loaded* loaded, const char* path, ht_compute compute, const ht_ctx* ctx, ht_error* err);
void      ht_loaded_deinit(ht_loaded* loaded);

/* --compute exact|fast and --kv f16|f32. Errors: misuse. */
ht_status   ht_compute_parse(ht_compute* out, const ht_args* args, ht_compute fallback, ht_error* err);
ht_status   ht_kv_type_parse(ht_kv_type* out, const ht_args* args, ht_error* err);
const char* ht_compute_name(ht_compute compute);
const char* ht_kv_type_name(ht_kv_type type);

#endif
