/*
 * GGUF files built byte by byte, so that a test can say anything: false counts, wrong types, overlapping offsets.
 *
 *   gguf_bytes b = { 0 };
 *   gb_start(&b, 3, 1, 1);                                              magic, version, n_tensors, n_kv
 *   gb_kv_u32(&b, "general.alignment", 32);
 *   gb_tensor(&b, "w", 1, (uint64_t[]){ 8 }, HT_TYPE_f32, 0);
 *   gb_pad(&b, 32);  gb_bytes(&b, data, 32);
 *   gb_save(&b, &folder, "x.gguf");                                     writes the file and frees the bytes
 */
#ifndef HT_TESTS_GGUF_BYTES_H
#define HT_TESTS_GGUF_BYTES_H

#include "formats/gguf.h"
#include "tests/temp_folder.h"

typedef struct gguf_bytes {
    uint8_t* data;
    size_t   n, capacity;
} gguf_bytes;

static inline void gb_bytes(gguf_bytes* b, const void* data, size_t n)
{
    if (b->n + n > b->capacity) {
        b->capacity = (b->n + n) * 2;
        b->data     = realloc(b->data, b->capacity);
        assert_non_null(b->data);
    }
    if (n > 0) { memcpy(b->data + b->n, data, n); }
    b->n += n;
}

static inline void gb_u8(gguf_bytes* b, uint8_t v) { gb_bytes(b, &v, sizeof v); }
static inline void gb_u32(gguf_bytes* b, uint32_t v) { gb_bytes(b, &v, sizeof v); }
static inline void gb_u64(gguf_bytes* b, uint64_t v) { gb_bytes(b, &v, sizeof v); }
static inline void gb_f32(gguf_bytes* b, float v) { gb_bytes(b, &v, sizeof v); }

static inline void gb_string_n(gguf_bytes* b, const char* text, size_t n)
{
    gb_u64(b, n);
    gb_bytes(b, text, n);
}
static inline void gb_string(gguf_bytes* b, const char* text) { gb_string_n(b, text, strlen(text)); }

static inline void gb_start(gguf_bytes* b, uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    gb_bytes(b, "GGUF", 4);
    gb_u32(b, version);
    gb_u64(b, n_tensors);
    gb_u64(b, n_kv);
}

/* A key and a type; the value follows. */
static inline void gb_key(gguf_bytes* b, const char* key, uint32_t type)
{
    gb_string(b, key);
    gb_u32(b, type);
}

static inline void gb_kv(gguf_bytes* b, const char* key, uint32_t type, const void* value)
{
    gb_key(b, key, type);
    gb_bytes(b, value, ht_meta_type_bytes(type));
}
static inline void gb_kv_u32(gguf_bytes* b, const char* key, uint32_t value) { gb_kv(b, key, HT_META_TYPE_U32, &value); }
static inline void gb_kv_u16(gguf_bytes* b, const char* key, uint16_t value) { gb_kv(b, key, HT_META_TYPE_U16, &value); }
static inline void gb_kv_i32(gguf_bytes* b, const char* key, int32_t value) { gb_kv(b, key, HT_META_TYPE_I32, &value); }

static inline void gb_kv_string(gguf_bytes* b, const char* key, const char* text)
{
    gb_key(b, key, HT_META_TYPE_STRING);
    gb_string(b, text);
}

/* A key and the head of an array; n elements follow. */
static inline void gb_array(gguf_bytes* b, const char* key, uint32_t type, uint64_t n)
{
    gb_key(b, key, HT_META_TYPE_ARRAY);
    gb_u32(b, type);
    gb_u64(b, n);
}

static inline void gb_tensor(gguf_bytes* b, const char* name, uint32_t n_dims, const uint64_t* dims, uint32_t type, uint64_t offset)
{
    gb_string(b, name);
    gb_u32(b, n_dims);
    gb_bytes(b, dims, n_dims * sizeof *dims);
    gb_u32(b, type);
    gb_u64(b, offset);
}

static inline void gb_pad(gguf_bytes* b, size_t alignment)
{
    while (b->n % alignment != 0) { gb_u8(b, 0); }
}

static inline void gb_free(gguf_bytes* b)
{
    free(b->data);
    *b = (gguf_bytes){ 0 };
}

static inline void gb_save(gguf_bytes* b, const temp_folder* folder, const char* name)
{
    temp_write(folder, name, b->data, b->n);
    gb_free(b);
}

#endif
