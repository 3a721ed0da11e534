/* Statistics files: written and read back, importance matrices in both forms, merging, and what is refused (bad inputs K7 36, 37, 39, 41). */
#include "quant/statistics.h"

#include <math.h>

#include "formats/base/cpu.h"
#include "formats/decode.h"
#include "quant/encode.h"
#include "tests/ht_test.h"
#include "tests/tiny_model.h"

static ht_ctx quiet(void) { return (ht_ctx){ .n_threads = 1, .isa = ht_isa_best(ht_cpu_features()) }; }

typedef struct one_entry {
    const char* name;
    int64_t     n_cols, n_mats;
    double      value, count;
} one_entry;

/* An importance matrix of entries whose values are value * (column + 1). */
static void write_entries(const char* path, const one_entry* entries, int n, int64_t spoil_at, double spoil)
{
    ht_error              err = HT_ERROR_INIT;
    ht_meta*              meta = ht_meta_create();
    ht_statistics_writer* w = NULL;
    ht_statistics_shape   shapes[8];
    for (int k = 0; k < n; k++) {
        shapes[k] = (ht_statistics_shape){ .n_cols = entries[k].n_cols, .n_mats = entries[k].n_mats };
        snprintf(shapes[k].name, sizeof shapes[k].name, "%s", entries[k].name);
    }
    assert_int_equal(ht_meta_set_u32(meta, "imatrix.chunk_count", 3, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_writer_create(&w, path, meta, shapes, n, true, &err), HT_STATUS_OK);
    for (int k = n - 1; k >= 0; k--) { /* any order */
        double sums[2048], counts[8];
        for (int64_t i = 0; i < entries[k].n_cols * entries[k].n_mats; i++) { sums[i] = entries[k].value * (double)(i % entries[k].n_cols + 1); }
        for (int64_t m = 0; m < entries[k].n_mats; m++) { counts[m] = entries[k].count; }
        if (k == 0 && spoil_at >= 0) { sums[spoil_at] = spoil; }
        assert_int_equal(ht_statistics_writer_put_sums(w, entries[k].name, sums, counts, &err), HT_STATUS_OK);
    }
    assert_int_equal(ht_statistics_writer_finish(w, &err), HT_STATUS_OK);
    ht_meta_free(meta);
}

static void test_written_is_read(void** state)
{
    (void)state;
    enum { N = 5 };
    ht_error                  err = HT_ERROR_INIT;
    temp_folder               folder = temp_folder_create();
    const char*               path = temp_path(&folder, "s.gguf");
    ht_meta*                  meta = ht_meta_create();
    ht_statistics_writer*     w = NULL;
    ht_statistics*            s = NULL;
    const ht_statistics_shape shape = { .name = "blk.0.ffn_down.weight", .n_cols = N, .n_mats = 1, .n_rows = 3, .has_max = true, .has_row_weight = { true, false },
                                        .hessians = 1u << HT_HESSIAN_GUIDED };
    double                    h[N * N], sums[N] = { 1, 2, 3, 4, 5 }, count = 4;
    const float               max[N] = { 5, 4, 3, 2, 1 }, weight[3] = { 0.5f, 1.0f, 1.5f };
    float                     back[N * N], importance[N];
    for (int i = 0; i < N * N; i++) { h[i] = (i % N >= i / N) ? 1 + i : -1000; } /* the lower triangle is not looked at */
    assert_int_equal(ht_statistics_writer_create(&w, path, meta, &shape, 1, false, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_writer_put_hessian(w, shape.name, HT_HESSIAN_GUIDED, h, 0.5, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_writer_put_sums(w, shape.name, sums, &count, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_writer_put_max(w, shape.name, max, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_writer_put_row_weight(w, shape.name, 0, weight, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_writer_finish(w, &err), HT_STATUS_OK);

    assert_int_equal(ht_statistics_open(&s, path, false, &err), HT_STATUS_OK);
    const ht_statistics_entry* e = ht_statistics_find(s, shape.name);
    assert_non_null(e);
    assert_int_equal(e->n_rows, 3);
    assert_true(e->has_hessian[HT_HESSIAN_GUIDED] && !e->has_hessian[HT_HESSIAN_PLAIN]);
    assert_true(e->max_abs[0] == 5.0f && e->row_weight[0][2] == 1.5f && !e->row_weight[1]);
    assert_int_equal(ht_statistics_importance(e, 0, importance), 0);
    assert_true(importance[4] == 1.25f);
    assert_int_equal(ht_statistics_read_hessian(s, e, HT_HESSIAN_GUIDED, back, &err), HT_STATUS_OK);
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) { assert_true(back[i * N + j] == 0.5f * (float)(1 + (i < j ? i * N + j : j * N + i))); }
    }
    assert_int_equal(ht_statistics_read_hessian(s, e, HT_HESSIAN_PLAIN, back, &err), HT_STATUS_ARG);
    ht_statistics_close(s);

    /* something declared and never put leaves nothing behind */
    assert_int_equal(ht_statistics_writer_create(&w, temp_path(&folder, "t.gguf"), meta, &shape, 1, false, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_writer_finish(w, &err), HT_STATUS_ARG);
    assert_false(ht_file_exists(temp_path(&folder, "t.gguf")));
    ht_meta_free(meta);
    temp_folder_remove(&folder);
}

/* K7 37 */
static void test_bad_numbers_are_refused(void** state)
{
    (void)state;
    const double    bad[] = { NAN, INFINITY, -1.0 };
    const one_entry entries[2] = { { "blk.0.attn_q.weight", 8, 1, 2.0, 4.0 }, { "blk.0.attn_k.weight", 8, 1, 2.0, 4.0 } };
    temp_folder     folder = temp_folder_create();
    for (int k = 0; k < 4; k++) {
        ht_error       err = HT_ERROR_INIT;
        ht_statistics* s   = NULL;
        if (k < 3) { write_entries(temp_path(&folder, "bad.gguf"), entries, 2, 5, bad[k]); }
        else { write_entries(temp_path(&folder, "bad.gguf"), &(one_entry){ "blk.0.attn_q.weight", 8, 1, 2.0, 0.0 }, 1, -1, 0.0); } /* sums without tokens */
        assert_int_equal(ht_statistics_open(&s, temp_path(&folder, "bad.gguf"), false, &err), HT_STATUS_NUMERIC);
        assert_string_equal(err.tensor, "blk.0.attn_q.weight");
        assert_contains(err.message, k < 3 ? "value 5" : "value 0");
        assert_int_equal(ht_statistics_open(&s, temp_path(&folder, "bad.gguf"), true, &err), HT_STATUS_OK);
        assert_int_equal(ht_statistics_n_sanitized(s), 1);
        float importance[8];
        ht_statistics_importance(ht_statistics_find(s, "blk.0.attn_q.weight"), 0, importance);
        for (int i = 0; i < 8; i++) { assert_true(importance[i] == 1.0f); }
        ht_statistics_close(s);
    }
    temp_folder_remove(&folder);
}

/* K7 39, and 36: the share of zero columns is told. */
static void test_statistics_of_another_model(void** state)
{
    (void)state;
    const one_entry entries[3] = { { "blk.0.attn_k.weight", 128, 1, 2.0, 4.0 }, { "blk.0.attn_q.weight", 256, 2, 2.0, 4.0 }, { "blk.9.attn_q.weight", 256, 1, 2.0, 4.0 } };
    temp_folder     folder = temp_folder_create();
    ht_error        err = HT_ERROR_INIT;
    ht_ctx          ctx = quiet();
    test_log        log = { "", 0 };
    ht_source*      source = NULL;
    ht_statistics*  s = NULL;
    tiny_model*     tiny = tiny_create(TINY_LLAMA);
    tiny_save(tiny, &folder, "in");
    assert_int_equal(ht_source_open(&source, temp_path(&folder, "in"), NULL, &ctx, &err), HT_STATUS_OK);
    write_entries(temp_path(&folder, "other.gguf"), entries, 3, -1, 0.0);
    assert_int_equal(ht_statistics_open(&s, temp_path(&folder, "other.gguf"), false, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_check(s, source, false, false, &ctx, &err), HT_STATUS_ARG);
    assert_contains(err.message, "3 of 3");
    assert_contains(err.message, "blk.0.attn_k.weight has 128 values, rows are 256 long");
    assert_contains(err.message, "blk.0.attn_q.weight has 2 matrices");
    assert_contains(err.message, "blk.9.attn_q.weight is not a tensor of the model");
    assert_int_equal(ht_statistics_check(s, source, true, false, &ctx, &err), HT_STATUS_OK);
    assert_null(ht_statistics_find(s, "blk.0.attn_k.weight"));
    ht_statistics_close(s);

    write_entries(temp_path(&folder, "zero.gguf"), &(one_entry){ "blk.0.attn_q.weight", 256, 1, 2.0, 4.0 }, 1, 7, 0.0);
    ctx.log = (ht_log){ test_log_keep, &log };
    assert_int_equal(ht_statistics_open(&s, temp_path(&folder, "zero.gguf"), false, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_check(s, source, false, false, &ctx, &err), HT_STATUS_OK);
    assert_contains(log.text, "blk.0.attn_q.weight: 0.39 % of the input columns are zero");
    ht_statistics_close(s);
    ht_source_close(source);
    tiny_free(tiny);
    temp_folder_remove(&folder);
}

/* K7 36: weights of zero importance do no harm to the rest. */
static void test_zero_importance(void** state)
{
    (void)state;
    enum { N = 512 };
    float    x[N], importance[N], back[N], plain[N];
    uint8_t  blocks[2 * N];
    uint64_t seed = 3;
    for (int i = 0; i < N; i++) { x[i] = ht_test_normal(&seed); }
    for (uint32_t id = 0; id < HT_TYPE_END; id++) {
        const ht_encode_row_fn encode = ht_type_get(id) && ht_type_get(id)->can_encode ? ht_encode_row_get((ht_type)id, 0) : NULL;
        if (!encode || ht_type_get(id)->is_float) { continue; }
        for (int i = 0; i < N; i++) { importance[i] = 1.0f; }
        encode(x, blocks, N, importance);
        ht_decode_row_get((ht_type)id)(blocks, plain, N);
        for (int kind = 0; kind < 3; kind++) { /* zeros in the first half; everywhere; all but one column per block */
            for (int i = 0; i < N; i++) { importance[i] = kind == 0 ? (float)(i >= 256) : kind == 1 ? 0.0f : (float)(i % 32 == 5); }
            encode(x, blocks, N, importance);
            ht_decode_row_get((ht_type)id)(blocks, back, N);
            for (int i = 0; i < N; i++) {
                assert_true(isfinite(back[i]));
                if (kind == 1 || (kind == 0)) { assert_true(back[i] == plain[i]); } /* a block of zeros counts as ones; the other half is as before */
            }
        }
    }
}

/* The old form; merging adds exactly; K7 41: the same bytes whatever the order. */
static void test_merge_and_dat(void** state)
{
    (void)state;
    const one_entry a[2] = { { "blk.0.attn_q.weight", 8, 1, 2.0, 4.0 }, { "blk.0.ffn_up.weight", 8, 1, 1.0, 4.0 } };
    const one_entry b[1] = { { "blk.0.attn_q.weight", 8, 1, 6.0, 12.0 } };
    temp_folder     folder = temp_folder_create();
    ht_error        err = HT_ERROR_INIT;
    ht_statistics * first = NULL, *second = NULL, *both = NULL;
    char            paths[4][512];
    const char*     names[4] = { "a.gguf", "b.gguf", "ab.gguf", "ba.dat" };
    size_t          n1 = 0, n2 = 0;
    for (int k = 0; k < 4; k++) { snprintf(paths[k], sizeof paths[k], "%s", temp_path(&folder, names[k])); }
    write_entries(paths[0], a, 2, -1, 0.0);
    write_entries(paths[1], b, 1, -1, 0.0);
    assert_int_equal(ht_statistics_open(&first, paths[0], false, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_open(&second, paths[1], false, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_merge((const ht_statistics* const[]){ first, second }, 2, paths[2], false, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_merge((const ht_statistics* const[]){ second, first }, 2, paths[3], false, &err), HT_STATUS_OK);
    for (int k = 2; k < 4; k++) {
        uint32_t n_chunks = 0;
        assert_int_equal(ht_statistics_open(&both, paths[k], false, &err), HT_STATUS_OK);
        const ht_statistics_entry* e = ht_statistics_find(both, "blk.0.attn_q.weight");
        assert_int_equal(ht_statistics_n_entries(both), 2);
        assert_true(e->sum_sq[3] == 8.0 * 4 && e->counts[0] == 16.0);
        assert_int_equal(ht_meta_get_u32(ht_statistics_meta(both), "imatrix.chunk_count", true, &n_chunks, &err), HT_STATUS_OK);
        assert_int_equal(n_chunks, 6);
        ht_statistics_close(both);
    }
    assert_int_equal(ht_statistics_merge((const ht_statistics* const[]){ second, first }, 2, temp_path(&folder, "again.gguf"), false, &err), HT_STATUS_OK);
    void *one = ht_test_load(paths[2], &n1), *two = ht_test_load(temp_path(&folder, "again.gguf"), &n2);
    assert_int_equal(n1, n2);
    assert_memory_equal(one, two, n1);
    free(one);
    free(two);
    ht_statistics_close(first);
    ht_statistics_close(second);

    /* cut short at every length: an error, never a crash */
    uint8_t* dat = ht_test_load(paths[3], &n1);
    for (size_t n = 0; n < n1; n++) {
        temp_write(&folder, "cut.dat", dat, n);
        if (ht_statistics_open(&both, temp_path(&folder, "cut.dat"), false, &err) == HT_STATUS_OK) { ht_statistics_close(both); }
    }
    free(dat);
    temp_folder_remove(&folder);
}

/* A file of llama-imatrix. */
static void test_stock_file(void** state)
{
    (void)state;
    ht_error       err = HT_ERROR_INIT;
    ht_statistics* s = NULL;
    const char*    path = ht_test_shared("oracle/smollm2-imatrix-valid50.gguf");
    if (!path) { skip(); }
    assert_int_equal(ht_statistics_open(&s, path, false, &err), HT_STATUS_OK);
    assert_int_equal(ht_statistics_n_entries(s), 210);
    const ht_statistics_entry* e = ht_statistics_find(s, "blk.29.ffn_down.weight");
    assert_non_null(e);
    assert_int_equal(e->n_cols, 1536);
    assert_true(e->counts[0] == 25600.0);
    ht_statistics_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_is_read),  cmocka_unit_test(test_bad_numbers_are_refused), cmocka_unit_test(test_statistics_of_another_model),
        cmocka_unit_test(test_zero_importance),  cmocka_unit_test(test_merge_and_dat),           cmocka_unit_test(test_stock_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
