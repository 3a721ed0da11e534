/* halftone types: the rows of the type table. */
#include <stdio.h>

#include "formats/types.h"
#include "tools/cmd.h"

static const char* role_of(const ht_type_info* info)
{
    if (info->can_encode) { return "read, write"; }
    return info->is_quantized ? "read" : "read (plain numbers)";
}

static ht_status run(const ht_args* args, const ht_ctx* ctx, int* exit_code, ht_error* err)
{
    (void)ctx;
    (void)exit_code;
    cJSON* document = ht_args_json(args) ? ht_json_document("types") : NULL;
    cJSON* list     = document ? cJSON_AddArrayToObject(document, "types") : NULL;
    if (!document) { printf("%-8s %4s %6s %6s %12s  %-20s %s\n", "type", "id", "elems", "bytes", "bits/weight", "Halftone", "fallback"); }
    for (uint32_t id = 0; id < HT_TYPE_END; id++) {
        const ht_type_info* info = ht_type_get(id);
        if (!info) { continue; }
        const char* fallback = info->fallback == info->type ? "" : ht_type_get(info->fallback)->name;
        if (!document) {
            printf("%-8s %4u %6d %6d %12.4f  %-20s %s\n", info->name, id, info->block_elems, info->block_bytes, ht_type_bits(info),
                   role_of(info), info->can_encode ? fallback : "");
            continue;
        }
        cJSON* row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "name", info->name);
        cJSON_AddNumberToObject(row, "id", id);
        cJSON_AddNumberToObject(row, "block_elems", info->block_elems);
        cJSON_AddNumberToObject(row, "block_bytes", info->block_bytes);
        ht_json_add_number(row, "bits_per_weight", ht_type_bits(info));
        cJSON_AddBoolToObject(row, "can_encode", info->can_encode);
        cJSON_AddStringToObject(row, "fallback", fallback);
        cJSON_AddItemToArray(list, row);
    }
    return document ? ht_json_print(document, err) : HT_STATUS_OK;
}

static const ht_option options[] = { { NULL, 0, HT_OPTION_FLAG, NULL, NULL } };

const ht_command ht_command_types = {
    "types", "", "the tensor types: block sizes, bits per weight, what can be read and written", NULL, options, 0, 0, run,
};
