/* Any bytes as a GGUF file: refused with a status, or opened, and then everything it offers can be read and written again. */
#include "tests/fuzz/replay.h"

#include "formats/gguf_split.h"
#include "tests/gguf_bytes.h"

enum { MAX_READ_BYTES = 1 << 16 };

static void read_some(const ht_gguf* g, const ht_tensor_info* t)
{
    static uint8_t buf[MAX_READ_BYTES];
    const uint64_t n   = t->n_bytes < MAX_READ_BYTES ? t->n_bytes : MAX_READ_BYTES;
    ht_error       err = HT_ERROR_INIT;
    if (ht_gguf_read(g, t, 0, buf, n, &err) != HT_STATUS_OK || ht_gguf_read(g, t, t->n_bytes - n, buf, n, &err) != HT_STATUS_OK) { abort(); }
    if (ht_gguf_read(g, t, t->n_bytes, buf, 1, &err) == HT_STATUS_OK) { abort(); }
    if (ht_gguf_find_tensor(g, t->name) != t) { abort(); }
}

/* What was read can be laid out, and says the same: version 3 files come back byte for byte in length. */
static void write_again(const ht_gguf* g)
{
    const int64_t   n       = ht_gguf_n_tensors(g);
    ht_tensor_info* tensors = malloc(((size_t)n + 1) * sizeof *tensors);
    void*           header = NULL;
    size_t          n_header = 0;
    uint64_t        n_file = 0;
    ht_error        err = HT_ERROR_INIT;
    for (int64_t i = 0; i < n; i++) { tensors[i] = *ht_gguf_tensor_at(g, i); }
    if (ht_gguf_layout(ht_gguf_meta(g), tensors, n, &header, &n_header, &n_file, &err) != HT_STATUS_OK) { abort(); }
    if (n_header != ht_gguf_data_offset(g)) { abort(); }
    for (int64_t i = 0; i < n; i++) {
        if (tensors[i].offset_bytes != ht_gguf_tensor_at(g, i)->offset_bytes) { abort(); }
    }
    free(header);
    free(tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes)
{
    int         fd      = -1;
    ht_gguf**   parts   = NULL;
    int         n_parts = 0;
    ht_error    err     = HT_ERROR_INIT;
    char        line[1024];
    const char* path = fuzz_file(data, n_bytes, &fd);
    if (ht_gguf_split_open(&parts, &n_parts, path, &err) == HT_STATUS_OK) {
        const ht_gguf* g = parts[0];
        for (int64_t i = 0; i < ht_gguf_n_tensors(g); i++) { read_some(g, ht_gguf_tensor_at(g, i)); }
        write_again(g);
    } else if (err.status == HT_STATUS_OK || err.status == HT_STATUS_ARG || err.message[0] == '\0') {
        abort(); /* every refusal has a reason, and it is the file's */
    }
    ht_error_format(&err, line, sizeof line);
    ht_gguf_split_close(parts, n_parts);
    close(fd);
    return 0;
}

size_t fuzz_seed(int index, uint8_t** out)
{
    gguf_bytes b = { 0 };
    if (index > 2) { return 0; }
    if (index == 0) { /* every metadata type, scalar and array */
        gb_start(&b, 3, 0, 26);
        for (uint32_t type = 0; type < HT_META_TYPE_COUNT; type++) {
            const uint64_t one     = 1;
            const size_t   n_value = ht_meta_type_bytes(type);
            char           key[32];
            snprintf(key, sizeof key, "scalar.%s", ht_meta_type_name(type));
            if (n_value > 0) { gb_kv(&b, key, type, &one); }
            else { gb_kv_string(&b, key, "text"); }
            snprintf(key, sizeof key, "array.%s", ht_meta_type_name(type));
            gb_array(&b, key, n_value > 0 ? type : HT_META_TYPE_STRING, 2);
            for (int i = 0; i < 2; i++) {
                if (n_value > 0) { gb_bytes(&b, &one, n_value); }
                else { gb_string(&b, i ? "" : "\xc3\xa9"); }
            }
        }
    } else { /* tensors of three types; alignment as by default and 64 */
        const size_t alignment = index == 1 ? 32 : 64;
        gb_start(&b, index == 1 ? 3 : 2, 3, index == 1 ? 4 : 1);
        gb_kv_u32(&b, "general.alignment", (uint32_t)alignment);
        if (index == 1) {
            gb_kv_u16(&b, "split.no", 0);
            gb_kv_u16(&b, "split.count", 1);
            gb_kv_i32(&b, "split.tensors.count", 3);
        }
        gb_tensor(&b, "blk.0.attn_q.weight", 2, (uint64_t[]){ 32, 2 }, HT_TYPE_q8_0, 0);
        gb_tensor(&b, "blk.0.attn_norm.weight", 1, (uint64_t[]){ 8 }, HT_TYPE_f32, 128);
        gb_tensor(&b, "x", 4, (uint64_t[]){ 4, 1, 2, 1 }, HT_TYPE_f16, 128 + alignment);
        gb_pad(&b, alignment);
        for (int i = 0; i < 128 + 2 * (int)alignment; i++) { gb_u8(&b, (uint8_t)i); }
    }
    *out = b.data;
    return b.n;
}
