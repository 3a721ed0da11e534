/* Any bytes as a JSON document: refused with a reason, or parsed, and then every value can be walked, named and read. */
#include "tests/fuzz/replay.h"

#include "formats/json_value.h"

/* Each value through every typed read: a read gives the value or says why not. */
static void walk(const ht_json* json, const ht_json_value* v, int depth)
{
    char path[64];
    if (strlen(ht_json_path(json, v, path, sizeof path)) >= sizeof path) { abort(); }
    for (const ht_json_value* child = ht_json_first(v); child && depth < 8; child = ht_json_next(child)) {
        const char* key = ht_json_key(child);
        if (key) {
            ht_error             err = HT_ERROR_INIT;
            int64_t              n   = 0;
            double               x   = 0.0;
            const char*          s   = NULL;
            const ht_json_value* a   = NULL;
            if (ht_json_member(v, key) != child) { abort(); } /* keys are unique */
            if (ht_json_get_i64(json, v, key, true, -10, 10, &n, &err) == HT_STATUS_OK ? n < -10 || n > 10 : err.message[0] == '\0') { abort(); }
            if (ht_json_get_f64(json, v, key, true, &x, NULL) == HT_STATUS_OK && x - x != 0.0) { abort(); }
            if (ht_json_get_string(json, v, key, true, &s, NULL) == HT_STATUS_OK && !s) { abort(); }
            if (ht_json_get_array(json, v, key, true, &a, NULL) == HT_STATUS_OK && ht_json_count(a) < 0) { abort(); }
        }
        walk(json, child, depth + 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes)
{
    ht_json* json = NULL;
    ht_error err  = HT_ERROR_INIT;
    char*    text = malloc(n_bytes + 1); /* of exactly this size, so that a step too far is seen */
    if (!text) { abort(); }
    memcpy(text, data, n_bytes);
    if (ht_json_parse(&json, text, n_bytes, "fuzz.json", &err) == HT_STATUS_OK) {
        walk(json, ht_json_root(json), 0);
        if (ht_json_lift(json, "text_config", &err) != HT_STATUS_OK) { abort(); }
        walk(json, ht_json_root(json), 0);
        ht_json_free(json);
    } else if (err.status == HT_STATUS_OK || err.message[0] == '\0') {
        abort();
    }
    free(text);
    return 0;
}

size_t fuzz_seed(int index, uint8_t** out)
{
    static const char* const texts[] = {
        "{\"a\": [1, -2.5e3, true, null, \"\\u00e9\\ud83d\\ude00\\n\"], \"text_config\": {\"a\": 7, \"b\": {\"c\": [], \"d\": {}}, \"text_config\": 1}}",
        "[[[[[[[[[[{\"x\": \"\\\\u0000\"}]]]]]]]]]]",
        "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0}, \"n\": 9007199254740992, \"m\": 9007199254740993}",
    };
    if (index >= (int)(sizeof texts / sizeof *texts)) { return 0; }
    const size_t n = strlen(texts[index]);
    *out = malloc(n);
    if (!*out) { abort(); }
    memcpy(*out, texts[index], n);
    return n;
}
