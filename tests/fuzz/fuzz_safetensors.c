/*
 * Any bytes as a safetensors file: refused with a reason, or opened, and then every tensor can be found and read.
 * The first byte tells what the rest is: below 240 a header (the file is built around it, with byte % 32 bytes of data), else a whole file.
 */
#include "tests/fuzz/replay.h"

#include "formats/safetensors.h"

static void touch(const ht_safetensors* s, const ht_st_tensor* t)
{
    float         values[4];
    uint64_t      raw[4];
    ht_error      err = HT_ERROR_INIT;
    const int64_t n   = t->n_elems < 4 ? t->n_elems : 4;
    if (ht_safetensors_find(s, t->name) != t) { abort(); }
    if (ht_safetensors_read_raw(s, t, t->n_elems - n, n, raw, &err) != HT_STATUS_OK) { abort(); }
    if (ht_dtype_is_float(t->dtype) && ht_safetensors_read_f32(s, t, 0, n, values, &err) != HT_STATUS_OK) { abort(); }
    if (ht_safetensors_read_raw(s, t, t->n_elems, 1, raw, &err) != HT_STATUS_BOUNDS) { abort(); }
}

static void open_file(const uint8_t* data, size_t n_bytes)
{
    int             fd  = -1;
    ht_safetensors* s   = NULL;
    ht_error        err = HT_ERROR_INIT;
    if (ht_safetensors_open(&s, fuzz_file(data, n_bytes, &fd), NULL, &err) == HT_STATUS_OK) {
        for (int64_t i = 0; i < ht_safetensors_n_tensors(s); i++) { touch(s, ht_safetensors_tensor_at(s, i)); }
        ht_safetensors_close(s);
    } else if (err.status == HT_STATUS_OK || err.status == HT_STATUS_ARG || err.message[0] == '\0') {
        abort(); /* every refusal has a reason, and it is the file's */
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes)
{
    if (n_bytes == 0) { return 0; }
    const uint64_t n_header = n_bytes - 1, n_data = data[0] % 32;
    if (data[0] >= 240) { open_file(data + 1, n_bytes - 1); }
    else {
        uint8_t* file = calloc(1, 8 + n_header + n_data);
        if (!file) { abort(); }
        memcpy(file, &n_header, 8);
        memcpy(file + 8, data + 1, n_header);
        open_file(file, 8 + n_header + n_data);
        free(file);
    }
    return 0;
}

size_t fuzz_seed(int index, uint8_t** out)
{
    static const char* const headers[] = { /* the first character is the number of data bytes, plus 32 or 64 */
        "0{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[8,16]}}",
        "!{\"__metadata__\":{\"format\":\"pt\",\"\\u00e9\\ud83d\\ude00\":\"x\"},\"s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
        "P{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4,0],\"data_offsets\":[0,0]},\"c\":{\"dtype\":\"F64\",\"shape\":[1,2,1],\"x\":[1,{\"y\":null}],"
        "\"data_offsets\":[0,16]}}",
        "@{\"__metadata__\":{\"n\":1,\"z\":null}}  ",
    };
    static const char whole[] = "\xf0\x40\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[0,4]}}        data";
    enum { N_HEADERS = sizeof headers / sizeof *headers };
    if (index > N_HEADERS) { return 0; }
    const size_t n = index < N_HEADERS ? strlen(headers[index]) : sizeof whole - 1;
    *out = malloc(n);
    if (!*out) { abort(); }
    memcpy(*out, index < N_HEADERS ? headers[index] : whole, n);
    return n;
}
