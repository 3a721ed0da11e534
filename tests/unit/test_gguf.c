/* formats/gguf_read.c, gguf_write.c, gguf_tensor.c: good files, and every hostile one with its status, tensor and offset. */
#include <sys/resource.h>
#include <time.h>

#include "formats/base/bytes.h"
#include "tests/gguf_bytes.h"

static temp_folder folder;

static int set_up(void** state)
{
    (void)state;
    folder = temp_folder_create();
    return 0;
}

static int tear_down(void** state)
{
    (void)state;
    temp_folder_remove(&folder);
    return 0;
}

/* Save, open, and expect a refusal; the offset is checked unless it is OFFSET_ANY. */
enum { OFFSET_ANY = -1 };
static void refused(gguf_bytes* b, ht_status status, const char* tensor, int64_t offset, const char* part)
{
    ht_gguf* g   = NULL;
    ht_error err = HT_ERROR_INIT;
    gb_save(b, &folder, "bad.gguf");
    const ht_status st = ht_gguf_open(&g, temp_path(&folder, "bad.gguf"), &err);
    if (st != status) { fail_msg("expected \"%s\", got \"%s\": %s", ht_status_name(status), ht_status_name(st), err.message); }
    assert_null(g);
    assert_contains(err.file, "bad.gguf");
    assert_string_equal(err.tensor, tensor);
    assert_contains(err.message, part);
    if (offset != OFFSET_ANY) { assert_int_equal(err.offset_bytes, (uint64_t)offset); }
}

static ht_gguf* opened(gguf_bytes* b)
{
    ht_gguf* g   = NULL;
    ht_error err = HT_ERROR_INIT;
    gb_save(b, &folder, "good.gguf");
    if (ht_gguf_open(&g, temp_path(&folder, "good.gguf"), &err) != HT_STATUS_OK) { fail_msg("%s", err.message); }
    return g;
}

/* A file of one tensor and `n_data` zero bytes. */
static gguf_bytes one_tensor(const char* name, size_t n_name, uint32_t n_dims, const uint64_t* dims, uint32_t type, uint64_t offset, size_t n_data)
{
    gguf_bytes b = { 0 };
    gb_start(&b, 3, 1, 0);
    gb_string_n(&b, name, n_name);
    gb_u32(&b, n_dims);
    gb_bytes(&b, dims, n_dims * sizeof *dims);
    gb_u32(&b, type);
    gb_u64(&b, offset);
    gb_pad(&b, 32);
    for (size_t i = 0; i < n_data; i++) { gb_u8(&b, 0); }
    return b;
}

static gguf_bytes tensor_t(uint32_t n_dims, const uint64_t* dims, uint32_t type, size_t n_data) { return one_tensor("t", 1, n_dims, dims, type, 0, n_data); }

/* --- good files ------------------------------------------------------------------------------------------------------------- */

static void test_reads_what_the_bytes_say(void** state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        gguf_bytes b = { 0 };
        gb_start(&b, version, 2, 2);
        gb_kv_string(&b, "general.architecture", "llama");
        gb_array(&b, "a.b", HT_META_TYPE_STRING, 3);
        gb_string(&b, "x");
        gb_string(&b, "");
        gb_string_n(&b, "y\0z", 3);
        gb_tensor(&b, "one", 2, (uint64_t[]){ 4, 3 }, HT_TYPE_f32, 0);
        gb_tensor(&b, "two", 1, (uint64_t[]){ 32 }, HT_TYPE_q8_0, 64);
        gb_pad(&b, 32);
        const size_t at = b.n;
        for (int i = 0; i < 12; i++) { gb_f32(&b, (float)i); }
        gb_pad(&b, 32);
        for (int i = 0; i < 34; i++) { gb_u8(&b, (uint8_t)i); }
        gb_pad(&b, 32);

        ht_gguf*  g   = opened(&b);
        ht_error  err = HT_ERROR_INIT;
        assert_int_equal(ht_gguf_version(g), version);
        assert_int_equal(ht_gguf_data_offset(g), at);
        assert_int_equal(ht_gguf_n_tensors(g), 2);
        const ht_meta_kv* kv = ht_meta_find(ht_gguf_meta(g), "a.b");
        assert_true(kv->is_array && kv->type == HT_META_TYPE_STRING && kv->n_values == 3);
        assert_int_equal(kv->strings[2].n_bytes, 3);
        assert_memory_equal(kv->strings[2].data, "y\0z", 4);
        const ht_tensor_info* one = ht_gguf_find_tensor(g, "one");
        assert_ptr_equal(one, ht_gguf_tensor_at(g, 0));
        assert_int_equal(ht_tensor_n_rows(one), 3);
        assert_int_equal(ht_tensor_n_elems(one), 12);
        assert_int_equal(one->n_bytes, 48);
        assert_null(ht_gguf_find_tensor(g, "three"));
        float x[12];
        assert_int_equal(ht_gguf_read(g, one, 0, x, sizeof x, &err), HT_STATUS_OK);
        for (int i = 0; i < 12; i++) { assert_true(x[i] == (float)i); }
        uint8_t byte = 0;
        const ht_tensor_info* two = ht_gguf_find_tensor(g, "two");
        assert_int_equal(ht_gguf_read(g, two, 33, &byte, 1, &err), HT_STATUS_OK);
        assert_int_equal(byte, 33);
        assert_int_equal(ht_gguf_read(g, two, 34, &byte, 1, &err), HT_STATUS_BOUNDS);
        assert_string_equal(err.tensor, "two");
        ht_error_clear(&err);
        assert_int_equal(ht_gguf_read(g, two, UINT64_MAX, &byte, 2, &err), HT_STATUS_BOUNDS);
        ht_gguf_close(g);
    }
}

/* K1 #5, the good one. */
static void test_alignment_64_is_used(void** state)
{
    (void)state;
    gguf_bytes b = { 0 };
    gb_start(&b, 3, 1, 1);
    gb_kv_u32(&b, "general.alignment", 64);
    gb_tensor(&b, "t", 1, (uint64_t[]){ 8 }, HT_TYPE_f32, 0);
    gb_pad(&b, 64);
    for (int i = 0; i < 8; i++) { gb_f32(&b, (float)i); }
    gb_pad(&b, 64);
    ht_gguf* g = opened(&b);
    float    x[8];
    ht_error err = HT_ERROR_INIT;
    assert_int_equal(ht_gguf_read(g, ht_gguf_tensor_at(g, 0), 0, x, sizeof x, &err), HT_STATUS_OK);
    for (int i = 0; i < 8; i++) { assert_true(x[i] == (float)i); }
    ht_gguf_close(g);
}

static void test_no_tensors_and_no_padding(void** state)
{
    (void)state;
    gguf_bytes b = { 0 };
    gb_start(&b, 3, 0, 1);
    gb_kv_u32(&b, "k", 1);
    ht_gguf* g = opened(&b);
    assert_int_equal(ht_gguf_n_tensors(g), 0);
    ht_gguf_close(g);
}

/* K12 #67: 64-bit offsets all the way; the file is sparse. */
static void test_data_beyond_4_gib(void** state)
{
    (void)state;
    const uint64_t n_pad = 4831838208u;
    gguf_bytes     b     = { 0 };
    gb_start(&b, 3, 2, 0);
    gb_tensor(&b, "pad", 1, &n_pad, HT_TYPE_i8, 0);
    gb_tensor(&b, "w", 1, (uint64_t[]){ 4 }, HT_TYPE_f32, n_pad);
    gb_pad(&b, 32);
    const off_t at = (off_t)(b.n + n_pad);
    gb_save(&b, &folder, "big.gguf");
    FILE* f = fopen(temp_path(&folder, "big.gguf"), "r+b");
    const float values[4] = { 1.5f, -2.0f, 3.25f, 1e-30f };
    if (ftruncate(fileno(f), at + 16) != 0 || pwrite(fileno(f), values, sizeof values, at) != sizeof values) {
        fclose(f);
        skip(); /* the file system has no room for a sparse file */
    }
    fclose(f);
    ht_gguf* g   = NULL;
    ht_error err = HT_ERROR_INIT;
    float    x[4];
    assert_int_equal(ht_gguf_open(&g, temp_path(&folder, "big.gguf"), &err), HT_STATUS_OK);
    assert_int_equal(ht_gguf_read(g, ht_gguf_find_tensor(g, "w"), 0, x, sizeof x, &err), HT_STATUS_OK);
    assert_memory_equal(x, values, sizeof x);
    ht_gguf_close(g);
}

/* K1 #8: lookup is not quadratic. */
static void test_100k_names_open_in_a_second(void** state)
{
    (void)state;
    enum { N = 100000 };
    gguf_bytes b = { 0 };
    gb_start(&b, 3, N, 0);
    for (int i = 0; i < N; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.attn_q.weight", i);
        gb_tensor(&b, name, 1, (uint64_t[]){ 1 }, HT_TYPE_f32, (uint64_t)i * 32);
    }
    gb_pad(&b, 32);
    gb_save(&b, &folder, "many.gguf");
    const char* path = temp_path(&folder, "many.gguf");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size + (off_t)N * 32), 0);
    ht_gguf*      g     = NULL;
    ht_error      err   = HT_ERROR_INIT;
    const clock_t start = clock();
    assert_int_equal(ht_gguf_open(&g, path, &err), HT_STATUS_OK);
    assert_ptr_equal(ht_gguf_find_tensor(g, "blk.77777.attn_q.weight"), ht_gguf_tensor_at(g, 77777));
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 1.0);
    ht_gguf_close(g);
}

/* --- preamble --------------------------------------------------------------------------------------------------------------- */

static void test_refuses_other_files_and_versions(void** state)
{
    (void)state;
    gguf_bytes b = { 0 };
    refused(&b, HT_STATUS_BOUNDS, "", 0, "need 4 bytes");
    gb_bytes(&b, "ggjt\1\0\0\0............................", 36);
    refused(&b, HT_STATUS_FORMAT, "", OFFSET_ANY, "not a GGUF file");
    gb_start(&b, 1, 0, 0);
    refused(&b, HT_STATUS_UNSUPPORTED, "", OFFSET_ANY, "version 1");
    gb_start(&b, 4, 0, 0);
    refused(&b, HT_STATUS_UNSUPPORTED, "", OFFSET_ANY, "version 4");
    gb_start(&b, 0, 0, 0);
    refused(&b, HT_STATUS_UNSUPPORTED, "", OFFSET_ANY, "version 0");
    gb_start(&b, 0x03000000, 0, 0);
    refused(&b, HT_STATUS_UNSUPPORTED, "", OFFSET_ANY, "big-endian");
}

/* Counts and lengths that the file cannot hold: refused at once, without memory in proportion to the claim. */
static void test_false_counts_cost_nothing(void** state)
{
    (void)state;
    struct rusage before, after;
    gguf_bytes    b = { 0 };
    getrusage(RUSAGE_SELF, &before);
    gb_start(&b, 3, UINT64_MAX, 0);
    refused(&b, HT_STATUS_BOUNDS, "", OFFSET_ANY, "tensors do not fit");
    gb_start(&b, 3, 0, UINT64_MAX);
    refused(&b, HT_STATUS_BOUNDS, "", OFFSET_ANY, "pairs do not fit");
    gb_start(&b, 3, 0, 1); /* key length */
    gb_u64(&b, (uint64_t)1 << 40);
    gb_bytes(&b, "0123456789", 10);
    refused(&b, HT_STATUS_BOUNDS, "", 24, "1099511627776 bytes leaves the file");
    gb_start(&b, 3, 0, 1); /* string value */
    gb_key(&b, "k", HT_META_TYPE_STRING);
    gb_u64(&b, UINT64_MAX);
    gb_u64(&b, 0);
    refused(&b, HT_STATUS_BOUNDS, "", 37, "leaves the file");
    gb_start(&b, 3, 0, 1); /* array of fixed values, then with a product that wraps */
    gb_array(&b, "k", HT_META_TYPE_F32, (uint64_t)1 << 33);
    gb_u64(&b, 0);
    refused(&b, HT_STATUS_BOUNDS, "", OFFSET_ANY, "leave the file");
    gb_start(&b, 3, 0, 1);
    gb_array(&b, "k", HT_META_TYPE_F64, ((uint64_t)1 << 61) + 1);
    gb_u64(&b, 0);
    refused(&b, HT_STATUS_BOUNDS, "", OFFSET_ANY, "leave the file");
    gb_start(&b, 3, 0, 1); /* array of strings */
    gb_array(&b, "k", HT_META_TYPE_STRING, (uint64_t)1 << 40);
    gb_u64(&b, 0);
    refused(&b, HT_STATUS_BOUNDS, "", OFFSET_ANY, "do not fit");
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 16 * 1024); /* KiB */
}

/* --- metadata --------------------------------------------------------------------------------------------------------------- */

static void test_refuses_bad_pairs(void** state)
{
    (void)state;
    gguf_bytes b = { 0 };
    gb_start(&b, 3, 0, 2);
    gb_kv_u32(&b, "same", 1);
    gb_kv_u32(&b, "same", 2);
    refused(&b, HT_STATUS_FORMAT, "", 44, "\"same\" appears twice");
    gb_start(&b, 3, 0, 1);
    gb_kv_u32(&b, "", 1);
    gb_u64(&b, 0);
    refused(&b, HT_STATUS_FORMAT, "", 24, "is empty");
    gb_start(&b, 3, 0, 1);
    gb_string_n(&b, "a\0b", 3);
    gb_u32(&b, HT_META_TYPE_U32);
    gb_u32(&b, 1);
    refused(&b, HT_STATUS_FORMAT, "", 24, "NUL");
    gb_start(&b, 3, 0, 1);
    gb_key(&b, "k", 13);
    gb_u64(&b, 0);
    refused(&b, HT_STATUS_UNSUPPORTED, "", 33, "type 13");
    gb_start(&b, 3, 0, 1);
    gb_array(&b, "k", HT_META_TYPE_ARRAY, 1);
    gb_u64(&b, 0);
    refused(&b, HT_STATUS_UNSUPPORTED, "", 33, "array of arrays");
    gb_start(&b, 3, 0, 1);
    gb_key(&b, "k", HT_META_TYPE_BOOL);
    gb_u8(&b, 2);
    refused(&b, HT_STATUS_FORMAT, "", 37, "a bool is 0 or 1, found 2");
}

/* K1 #5 */
static void test_refuses_bad_alignment(void** state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        static const char* const reasons[] = { "0 is not", "24 is not", "expected u32, found u64", "expected u32, found string", "expected u32, found u32 array",
                                               "536870912 is over the limit" }; /* found by fuzzing: a header of 512 MiB */
        gguf_bytes     b  = { 0 };
        const uint64_t v  = 64;
        gb_start(&b, 3, 1, 1);
        if (i == 0) { gb_kv_u32(&b, "general.alignment", 0); }
        if (i == 1) { gb_kv_u32(&b, "general.alignment", 24); }
        if (i == 2) { gb_kv(&b, "general.alignment", HT_META_TYPE_U64, &v); }
        if (i == 3) { gb_kv_string(&b, "general.alignment", "32"); }
        if (i == 5) { gb_kv_u32(&b, "general.alignment", 1u << 29); }
        if (i == 4) {
            gb_array(&b, "general.alignment", HT_META_TYPE_U32, 1);
            gb_u32(&b, 64);
        }
        gb_tensor(&b, "t", 1, (uint64_t[]){ 8 }, HT_TYPE_f32, 0);
        gb_pad(&b, 32);
        for (int k = 0; k < 8; k++) { gb_f32(&b, (float)k); }
        refused(&b, HT_STATUS_FORMAT, "", OFFSET_ANY, reasons[i]);
    }
}

/* --- tensor infos ----------------------------------------------------------------------------------------------------------- */

/* K1 #2 */
static void test_refuses_sizes_that_wrap(void** state)
{
    (void)state;
    static const struct { uint32_t n_dims; uint64_t dims[4]; uint32_t type; } cases[] = {
        { 3, { 4194305, 4194305, 211106198978564u }, HT_TYPE_f32 }, /* product 4 mod 2^64 */
        { 4, { (uint64_t)1 << 62, 2, 2, 2 }, HT_TYPE_f32 },
        { 2, { (uint64_t)1 << 63, 1 }, HT_TYPE_f32 },
        { 1, { (uint64_t)1 << 62 }, HT_TYPE_f64 },                  /* elements fit, bytes do not */
        { 2, { 1, UINT64_MAX }, HT_TYPE_i8 },
        { 3, { 1, (uint64_t)1 << 32, (uint64_t)1 << 32 }, HT_TYPE_i8 }, /* rows 0 mod 2^64 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_bytes b = tensor_t(cases[i].n_dims, cases[i].dims, cases[i].type, 16);
        refused(&b, HT_STATUS_BOUNDS, "t", 24, "overflow");
    }
}

/* K1 #4 */
static void test_refuses_empty_dimensions(void** state)
{
    (void)state;
    static const struct { uint32_t n_dims; uint64_t dims[3]; const char* part; } cases[] = {
        { 2, { 4, 0 }, "dimension 1 is 0" }, { 1, { 0 }, "dimension 0 is 0" }, { 3, { 4, 1, 0 }, "dimension 2 is 0" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_bytes b = tensor_t(cases[i].n_dims, cases[i].dims, HT_TYPE_f32, 16);
        refused(&b, HT_STATUS_FORMAT, "t", 24, cases[i].part);
    }
}

static void test_refuses_bad_shapes_and_types(void** state)
{
    (void)state;
    const uint64_t five[5] = { 1, 1, 1, 1, 1 };
    gguf_bytes     b       = tensor_t(5, five, HT_TYPE_f32, 16);
    refused(&b, HT_STATUS_FORMAT, "t", 24, "5 dimensions");
    b = tensor_t(0, five, HT_TYPE_f32, 16);
    refused(&b, HT_STATUS_FORMAT, "t", 24, "0 dimensions");
    b = tensor_t(2, (uint64_t[]){ 130, 6 }, HT_TYPE_q4_k, 4096);
    refused(&b, HT_STATUS_FORMAT, "t", 24, "130 elements do not fill Q4_K blocks of 256");
    static const uint32_t ids[] = { 4, 5, 31, 36, 43, 255, UINT32_MAX };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        b = tensor_t(1, (uint64_t[]){ 256 }, ids[i], 1024);
        refused(&b, HT_STATUS_UNSUPPORTED, "t", 24, "unknown tensor type");
    }
}

/* K1 #10 */
static void test_tensor_names(void** state)
{
    (void)state;
    static const struct { const char* name; size_t n; const char* part; } bad[] = {
        { "64", 64, "longer than 63" }, { "200", 200, "longer than 63" }, { "a\0b", 3, "NUL" }, { "caf\xe9", 4, "UTF-8" }, { "", 0, "no name" },
        { "\xed\xa0\x80", 3, "UTF-8" }, /* a surrogate */
    };
    char       filled[201];
    gguf_bytes b;
    memset(filled, 'n', sizeof filled);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char* name = bad[i].n > 63 ? filled : bad[i].name;
        ht_gguf*    g    = NULL;
        ht_error    err  = HT_ERROR_INIT;
        b = one_tensor(name, bad[i].n, 1, (uint64_t[]){ 4 }, HT_TYPE_f32, 0, 16);
        gb_save(&b, &folder, "name.gguf");
        assert_int_equal(ht_gguf_open(&g, temp_path(&folder, "name.gguf"), &err), HT_STATUS_FORMAT);
        assert_contains(err.message, bad[i].part);
        assert_int_equal(err.offset_bytes, 24);
    }
    b          = one_tensor(filled, 63, 1, (uint64_t[]){ 4 }, HT_TYPE_f32, 0, 16);
    ht_gguf* g = opened(&b);
    assert_int_equal(strlen(ht_gguf_tensor_at(g, 0)->name), 63);
    ht_gguf_close(g);
    b = one_tensor("\xd1\x82.\xf0\x9f\x92\xbe", 7, 1, (uint64_t[]){ 4 }, HT_TYPE_f32, 0, 16);
    g = opened(&b);
    assert_non_null(ht_gguf_find_tensor(g, "\xd1\x82.\xf0\x9f\x92\xbe"));
    ht_gguf_close(g);
}

/* K1 #8 */
static void test_refuses_two_tensors_of_one_name(void** state)
{
    (void)state;
    gguf_bytes b = { 0 };
    gb_start(&b, 3, 2, 0);
    gb_tensor(&b, "blk.0.attn_q.weight", 1, (uint64_t[]){ 8 }, HT_TYPE_f32, 0);
    gb_tensor(&b, "blk.0.attn_q.weight", 1, (uint64_t[]){ 8 }, HT_TYPE_f32, 32);
    gb_pad(&b, 32);
    for (int i = 0; i < 16; i++) { gb_f32(&b, (float)i); }
    refused(&b, HT_STATUS_FORMAT, "blk.0.attn_q.weight", OFFSET_ANY, "two tensors have this name");
}

/* --- where the data is ------------------------------------------------------------------------------------------------------ */

/* Three F32 [64] with the given offsets; returns where the data section begins. */
static size_t three_tensors(gguf_bytes* b, uint64_t o1, uint64_t o2, uint64_t o3)
{
    gb_start(b, 3, 3, 0);
    gb_tensor(b, "a", 1, (uint64_t[]){ 64 }, HT_TYPE_f32, o1);
    gb_tensor(b, "b", 1, (uint64_t[]){ 64 }, HT_TYPE_f32, o2);
    gb_tensor(b, "c", 1, (uint64_t[]){ 64 }, HT_TYPE_f32, o3);
    gb_pad(b, 32);
    const size_t at = b->n;
    for (int i = 0; i < 192; i++) { gb_f32(b, (float)i); }
    return at;
}

/* K1 #9: every length that is too short is refused, wherever the cut falls. */
static void test_refuses_every_truncation(void** state)
{
    (void)state;
    gguf_bytes whole = { 0 };
    const size_t at  = three_tensors(&whole, 0, 256, 512);
    for (size_t n = 0; n < whole.n; n += n < at ? 1 : 13) {
        ht_gguf* g   = NULL;
        ht_error err = HT_ERROR_INIT;
        temp_write(&folder, "cut.gguf", whole.data, n);
        assert_int_equal(ht_gguf_open(&g, temp_path(&folder, "cut.gguf"), &err), HT_STATUS_BOUNDS);
        assert_null(g);
    }
    gguf_bytes cut = { 0 };
    gb_bytes(&cut, whole.data, whole.n - 1);
    refused(&cut, HT_STATUS_BOUNDS, "c", (int64_t)(at + 512), "need 256 bytes, the file has 255");
    gb_bytes(&cut, whole.data, at + 10);
    refused(&cut, HT_STATUS_BOUNDS, "a", (int64_t)at, "need 256 bytes, the file has 10");
    gb_free(&whole);
}

static void test_refuses_wrong_offsets(void** state)
{
    (void)state;
    static const struct { uint64_t offsets[3]; const char *tensor, *part; } cases[] = {
        { { 0, 256, (uint64_t)1 << 63 }, "c", "gap" },     { { 0, 256, 544 }, "c", "gap" },  { { 0, 256, 513 }, "c", "gap" },
        { { 0, 224, 512 }, "b", "overlap" },               { { 0, 0, 512 }, "b", "overlap" }, { { 32, 256, 512 }, "a", "gap" },
        { { 0, 512, 256 }, "b", "gap" },                   { { 0, 256, UINT64_MAX }, "c", "gap" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_bytes b = { 0 };
        three_tensors(&b, cases[i].offsets[0], cases[i].offsets[1], cases[i].offsets[2]);
        refused(&b, HT_STATUS_FORMAT, cases[i].tensor, OFFSET_ANY, cases[i].part);
    }
}

/* K15 #80: parts joined with cat. */
static void test_refuses_trailing_data(void** state)
{
    (void)state;
    gguf_bytes   b   = { 0 };
    const size_t at  = three_tensors(&b, 0, 256, 512);
    gguf_bytes   two = { 0 };
    gb_bytes(&two, b.data, b.n);
    gb_bytes(&two, b.data, b.n);
    refused(&two, HT_STATUS_FORMAT, "", (int64_t)(at + 768), "trailing data after the tensor section");
    gb_u8(&b, 0);
    refused(&b, HT_STATUS_FORMAT, "", (int64_t)(at + 768), "1 bytes of trailing data");
}

/* --- writing ---------------------------------------------------------------------------------------------------------------- */

static ht_meta* every_type(void)
{
    ht_meta*  meta = ht_meta_create();
    ht_error  err  = HT_ERROR_INIT;
    uint64_t  raw[3] = { 0x0123456789ABCDEFu, 0xFEDCBA9876543210u, 42 };
    const ht_string strings[] = { { "a", 1 }, { "", 0 }, { "\0b", 2 } };
    for (int type = 0; type < HT_META_TYPE_COUNT; type++) {
        char key[64];
        if (ht_meta_type_bytes((uint32_t)type) == 0) { continue; }
        uint8_t     bools[3] = { 1, 0, 1 };
        const void* values   = type == HT_META_TYPE_BOOL ? (const void*)bools : raw;
        snprintf(key, sizeof key, "scalar.%s", ht_meta_type_name((uint32_t)type));
        assert_int_equal(ht_meta_set_values(meta, key, (ht_meta_type)type, false, 1, values, &err), HT_STATUS_OK);
        for (uint64_t n = 0; n <= 3; n += 3) {
            snprintf(key, sizeof key, "array%d.%s", (int)n, ht_meta_type_name((uint32_t)type));
            assert_int_equal(ht_meta_set_values(meta, key, (ht_meta_type)type, true, n, values, &err), HT_STATUS_OK);
        }
    }
    assert_int_equal(ht_meta_set_string(meta, "text", "hello", &err), HT_STATUS_OK);
    assert_int_equal(ht_meta_set_strings(meta, "texts", true, 3, strings, &err), HT_STATUS_OK);
    assert_int_equal(ht_meta_set_strings(meta, "no.texts", true, 0, strings, &err), HT_STATUS_OK);
    return meta;
}

static ht_tensor_info tensor_info(const char* name, ht_type type, int n_dims, int64_t ne0, int64_t ne1)
{
    ht_tensor_info t = { .type = type, .n_dims = n_dims, .ne = { ne0, ne1, 1, 1 } };
    snprintf(t.name, sizeof t.name, "%s", name);
    return t;
}

/* write -> read -> write gives the same bytes, for every metadata type and every tensor type. */
static void test_write_read_write_is_identity(void** state)
{
    (void)state;
    static const uint32_t alignments[] = { 0, 8, 32, 4096 };
    for (size_t a = 0; a < sizeof alignments / sizeof *alignments; a++) {
        ht_meta*       meta = every_type();
        ht_error       err  = HT_ERROR_INIT;
        ht_tensor_info tensors[HT_TYPE_END];
        int64_t        n = 0;
        for (uint32_t id = 0; id < HT_TYPE_END; id++) {
            const ht_type_info* info = ht_type_get(id);
            if (info) { tensors[n++] = tensor_info(info->name, info->type, 2, info->block_elems * 3, 5); }
        }
        if (alignments[a]) { assert_int_equal(ht_meta_set_u32(meta, "general.alignment", alignments[a], &err), HT_STATUS_OK); }
        const uint64_t alignment = alignments[a] ? alignments[a] : 32;

        void *   header = NULL, *again = NULL;
        size_t   n_header = 0, n_again = 0;
        uint64_t n_file = 0, n_file_again = 0;
        assert_int_equal(ht_gguf_layout(meta, tensors, n, &header, &n_header, &n_file, &err), HT_STATUS_OK);
        assert_int_equal(n_header % alignment, 0);
        assert_int_equal(n_file % alignment, 0);
        temp_write(&folder, "w.gguf", header, n_header);
        assert_int_equal(truncate(temp_path(&folder, "w.gguf"), (off_t)n_file), 0);

        ht_gguf* g = NULL;
        assert_int_equal(ht_gguf_open(&g, temp_path(&folder, "w.gguf"), &err), HT_STATUS_OK);
        assert_int_equal(ht_gguf_version(g), 3);
        assert_int_equal(ht_gguf_data_offset(g), n_header);
        assert_int_equal(ht_meta_count(ht_gguf_meta(g)), ht_meta_count(meta));
        for (int64_t i = 0; i < ht_meta_count(meta); i++) {
            assert_string_equal(ht_meta_at(ht_gguf_meta(g), i)->key, ht_meta_at(meta, i)->key);
            assert_true(ht_meta_kv_equal(ht_meta_at(ht_gguf_meta(g), i), ht_meta_at(meta, i)));
        }
        assert_int_equal(ht_gguf_n_tensors(g), n);
        ht_tensor_info read[HT_TYPE_END];
        for (int64_t i = 0; i < n; i++) { read[i] = *ht_gguf_tensor_at(g, i); }
        assert_int_equal(ht_gguf_layout(ht_gguf_meta(g), read, n, &again, &n_again, &n_file_again, &err), HT_STATUS_OK);
        assert_int_equal(n_again, n_header);
        assert_int_equal(n_file_again, n_file);
        assert_memory_equal(again, header, n_header);
        free(header);
        free(again);
        ht_gguf_close(g);
        ht_meta_free(meta);
    }
}

static void layout_refused(const ht_meta* meta, ht_tensor_info* tensors, int64_t n, ht_status status, const char* tensor, const char* part)
{
    void*    header   = NULL;
    size_t   n_header = 0;
    uint64_t n_file   = 0;
    ht_error err      = HT_ERROR_INIT;
    assert_int_equal(ht_gguf_layout(meta, tensors, n, &header, &n_header, &n_file, &err), status);
    assert_null(header);
    assert_string_equal(err.tensor, tensor);
    assert_contains(err.message, part);
}

static void test_layout_refuses(void** state)
{
    (void)state;
    ht_meta*       meta = ht_meta_create();
    ht_error       err  = HT_ERROR_INIT;
    ht_tensor_info t[2] = { tensor_info("w", HT_TYPE_f32, 1, 8, 1), tensor_info("w", HT_TYPE_f32, 1, 8, 1) };
    layout_refused(meta, t, 2, HT_STATUS_ARG, "w", "added already");
    t[0] = tensor_info("", HT_TYPE_f32, 1, 8, 1);
    layout_refused(meta, t, 1, HT_STATUS_ARG, "", "has no name");
    memset(t[0].name, 'n', sizeof t[0].name); /* 64 bytes: the terminator is gone */
    ht_gguf_layout(meta, t, 1, &(void*){ NULL }, &(size_t){ 0 }, &(uint64_t){ 0 }, &err);
    assert_int_equal(err.status, HT_STATUS_ARG);
    assert_contains(err.message, "longer than 63 bytes");
    t[0] = tensor_info("caf\xe9", HT_TYPE_f32, 1, 8, 1);
    layout_refused(meta, t, 1, HT_STATUS_ARG, "caf\xe9", "UTF-8");
    t[0] = tensor_info("w", HT_TYPE_f32, 2, 8, 0);
    layout_refused(meta, t, 1, HT_STATUS_ARG, "w", "dimension 1 is 0");
    t[0] = tensor_info("w", HT_TYPE_f32, 1, 8, 2); /* a dimension that would not be written */
    layout_refused(meta, t, 1, HT_STATUS_ARG, "w", "dimension 1");
    t[0] = tensor_info("w", HT_TYPE_q4_k, 1, 250, 1);
    layout_refused(meta, t, 1, HT_STATUS_ARG, "w", "do not fill");
    t[0] = tensor_info("w", HT_TYPE_f32, 2, (int64_t)1 << 40, (int64_t)1 << 40);
    layout_refused(meta, t, 1, HT_STATUS_BOUNDS, "w", "overflow");
    t[0] = tensor_info("w", HT_TYPE_f32, 1, 8, 1);
    ht_error_clear(&err);
    assert_int_equal(ht_meta_set_u64(meta, "general.alignment", 64, &err), HT_STATUS_OK); /* no reader takes a u64 */
    layout_refused(meta, t, 1, HT_STATUS_FORMAT, "", "general.alignment: expected u32, found u64");
    assert_int_equal(ht_meta_set_u32(meta, "general.alignment", 24, &err), HT_STATUS_OK);
    layout_refused(meta, t, 1, HT_STATUS_FORMAT, "", "24 is not a power of two");
    ht_meta_free(meta);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_reads_what_the_bytes_say),
        TEST(test_alignment_64_is_used),
        TEST(test_no_tensors_and_no_padding),
        TEST(test_data_beyond_4_gib),
        TEST(test_100k_names_open_in_a_second),
        TEST(test_refuses_other_files_and_versions),
        TEST(test_false_counts_cost_nothing),
        TEST(test_refuses_bad_pairs),
        TEST(test_refuses_bad_alignment),
        TEST(test_refuses_sizes_that_wrap),
        TEST(test_refuses_empty_dimensions),
        TEST(test_refuses_bad_shapes_and_types),
        TEST(test_tensor_names),
        TEST(test_refuses_two_tensors_of_one_name),
        TEST(test_refuses_every_truncation),
        TEST(test_refuses_wrong_offsets),
        TEST(test_refuses_trailing_data),
        TEST(test_write_read_write_is_identity),
        TEST(test_layout_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
