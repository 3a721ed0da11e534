/* quant/plan and quant/stream on the TINY checkpoint: sizes, provenance, thread counts, fallbacks, refusals, and nothing left behind. */
#include "tests/tiny_model.h"

#include <dirent.h>
#include <math.h>
#include <zlib.h>

#include "formats/decode.h"
#include "quant/stream.h"

typedef struct job {
    temp_folder       folder;
    ht_source*        source;
    ht_plan*          plan;
    ht_stream_result  result;
    ht_ctx            ctx;
    ht_error          err;
} job;

static job job_open(const temp_folder* folder, const char* name)
{
    job j = { .folder = *folder, .ctx = { .n_threads = 2, .isa = HT_ISA_SCALAR }, .err = HT_ERROR_INIT };
    if (ht_source_open(&j.source, temp_path(folder, name), NULL, &j.ctx, &j.err) != HT_STATUS_OK) { fail_msg("%s", j.err.message); }
    return j;
}

static void job_close(job* j)
{
    ht_stream_result_deinit(&j->result);
    ht_plan_free(j->plan);
    ht_source_close(j->source);
}

/* Plan types (NULL-terminated) into out-{type}.gguf and write; the status of the first step that fails. */
static ht_status job_run(job* j, const char* const* types, ht_plan_options options, bool force)
{
    char out[512];
    snprintf(out, sizeof out, "%s/out-{type}.gguf", j->folder.path);
    options.recipes = types;
    options.out     = out;
    while (types[options.n_recipes]) { options.n_recipes++; }
    const ht_stream_options stream = { .force = force };
    ht_status               st     = ht_plan_create(&j->plan, j->source, &options, &j->err);
    if (st == HT_STATUS_OK) { st = ht_stream_run(j->plan, &stream, &j->ctx, &j->result, &j->err); }
    return st;
}

static int count_files(const temp_folder* folder)
{
    int            n   = 0;
    DIR*           dir = opendir(folder->path);
    struct dirent* entry;
    while ((entry = readdir(dir)) != NULL) { n += entry->d_name[0] != '.'; }
    closedir(dir);
    return n;
}

/* Wide enough that the matrices of the MLP take several work items. */
static temp_folder folder_with_tiny(void)
{
    const temp_folder folder = temp_folder_create();
    tiny_model*       m      = tiny_create(TINY_LLAMA);
    tiny_set_number(m, "intermediate_size", 2560);
    tiny_rebuild(m, TINY_LLAMA);
    tiny_save(m, &folder, "in");
    tiny_free(m);
    return folder;
}

static void test_size_and_checksums_are_as_planned(void** state)
{
    (void)state;
    static const char* const types[] = { "Q4_K_M", "Q8_0", "F16", NULL };
    const temp_folder        folder  = folder_with_tiny();
    job                      j       = job_open(&folder, "in");
    assert_int_equal(job_run(&j, types, (ht_plan_options){ 0 }, false), HT_STATUS_OK);
    assert_int_equal(count_files(&folder), 4); /* in and three outputs, no temporary file */
    for (int k = 0; k < 3; k++) {
        const ht_plan_output* output = &j.plan->outputs[k];
        const ht_meta_kv*     crcs   = NULL;
        ht_gguf*              gguf   = NULL;
        if (ht_gguf_open(&gguf, output->path, &j.err) != HT_STATUS_OK) { fail_msg("%s", j.err.message); }
        assert_int_equal(ht_file_size(ht_gguf_file(gguf)), output->n_file_bytes);
        assert_int_equal(ht_meta_get_array(ht_gguf_meta(gguf), HT_KEY_TENSOR_CRC32, true, HT_META_TYPE_U32, &crcs, &j.err), HT_STATUS_OK);
        assert_int_equal(crcs->n_values, j.plan->n_tensors);
        for (int64_t i = 0; i < j.plan->n_tensors; i++) {
            const ht_tensor_info* t    = ht_gguf_tensor_at(gguf, i);
            unsigned char*        data = malloc(t->n_bytes);
            assert_int_equal(ht_gguf_read(gguf, t, 0, data, t->n_bytes, &j.err), HT_STATUS_OK);
            assert_int_equal(crc32_z(0, data, t->n_bytes), ((const uint32_t*)crcs->data)[i]);
            free(data);
        }
        ht_gguf_close(gguf);
    }
    job_close(&j);
    temp_folder_remove(&folder);
}

static void test_bytes_do_not_depend_on_threads(void** state)
{
    (void)state;
    static const char* const types[] = { "Q4_K_M", "IQ4_XS", NULL };
    const temp_folder        folder  = folder_with_tiny();
    char*                    first[2] = { NULL, NULL };
    size_t                   n_first[2] = { 0, 0 };
    for (int n_threads = 1; n_threads <= 4; n_threads += 3) {
        job j           = job_open(&folder, "in");
        j.ctx.n_threads = n_threads;
        assert_int_equal(job_run(&j, types, (ht_plan_options){ 0 }, true), HT_STATUS_OK);
        for (int k = 0; k < 2; k++) {
            size_t n    = 0;
            char*  data = ht_test_load(j.plan->outputs[k].path, &n);
            if (first[k]) {
                assert_int_equal(n, n_first[k]);
                assert_memory_equal(data, first[k], n);
                free(data);
            } else {
                first[k]   = data;
                n_first[k] = n;
            }
        }
        job_close(&j);
    }
    free(first[0]);
    free(first[1]);
    temp_folder_remove(&folder);
}

/* GGUF -> auto keeps every byte of the tensors. */
static void test_auto_copies_a_gguf(void** state)
{
    (void)state;
    static const char* const q4[]   = { "Q4_K_M", NULL };
    static const char* const same[] = { "auto", NULL };
    const temp_folder        folder = folder_with_tiny();
    job                      a      = job_open(&folder, "in");
    assert_int_equal(job_run(&a, q4, (ht_plan_options){ 0 }, false), HT_STATUS_OK);
    job b = job_open(&folder, "out-Q4_K_M.gguf");
    assert_int_equal(job_run(&b, same, (ht_plan_options){ 0 }, false), HT_STATUS_OK);
    for (int64_t i = 0; i < a.plan->n_tensors; i++) {
        assert_int_equal(a.result.tensors[i].crc32, b.result.tensors[i].crc32);
        assert_string_equal(b.plan->outputs[0].details[i].method, "copy");
    }
    job_close(&a);
    job_close(&b);
    temp_folder_remove(&folder);
}

static void test_quantized_source_needs_permission(void** state)
{
    (void)state;
    static const char* const q8[]   = { "Q8_0", NULL };
    static const char* const q4[]   = { "Q4_0", NULL };
    const temp_folder        folder = folder_with_tiny();
    job                      a      = job_open(&folder, "in");
    assert_int_equal(job_run(&a, q8, (ht_plan_options){ 0 }, false), HT_STATUS_OK);
    job_close(&a);
    job b = job_open(&folder, "out-Q8_0.gguf");
    assert_int_equal(job_run(&b, q4, (ht_plan_options){ 0 }, false), HT_STATUS_UNSUPPORTED);
    assert_non_null(strstr(b.err.message, "--allow-requantize"));
    job_close(&b);
    job c = job_open(&folder, "out-Q8_0.gguf");
    assert_int_equal(job_run(&c, q4, (ht_plan_options){ .allow_requantize = true }, false), HT_STATUS_OK);
    job_close(&c);
    temp_folder_remove(&folder);
}

/* bad-inputs K6 33: rows of 544 and 288 do not fill 256. */
static void test_ragged_rows_fall_back_or_are_refused(void** state)
{
    (void)state;
    static const char* const types[] = { "Q4_K_M", NULL };
    const temp_folder        folder  = temp_folder_create();
    tiny_model*              m       = tiny_create(TINY_LLAMA);
    tiny_set_number(m, "intermediate_size", 544);
    tiny_set_number(m, "hidden_size", 288);
    tiny_rebuild(m, TINY_LLAMA);
    tiny_save(m, &folder, "in");
    tiny_free(m);
    job j = job_open(&folder, "in");
    assert_int_equal(job_run(&j, types, (ht_plan_options){ 0 }, false), HT_STATUS_OK);
    const ht_plan_output* output = &j.plan->outputs[0];
    assert_true(output->n_fallback > 0 && output->bits_per_weight > output->planned_bits_per_weight);
    for (int64_t i = 0; i < j.plan->n_tensors; i++) {
        const bool fits = output->tensors[i].ne[0] % ht_type_get(output->details[i].planned)->block_elems == 0;
        assert_int_equal(output->details[i].planned == output->tensors[i].type, fits);
    }
    job_close(&j);
    job k = job_open(&folder, "in");
    assert_int_equal(job_run(&k, types, (ht_plan_options){ .strict = true }, true), HT_STATUS_ARG);
    assert_non_null(strstr(k.err.message, "row length"));
    job_close(&k);
    temp_folder_remove(&folder);
}

/* bad-inputs K5 30: the first bad value stops the run, is named, and leaves no file. */
static void test_nonfinite_source_is_refused(void** state)
{
    (void)state;
    static const char* const types[] = { "Q4_0", "Q8_0", NULL };
    const temp_folder        folder  = temp_folder_create();
    tiny_model*              m       = tiny_create(TINY_LLAMA);
    tiny_tensor*             down    = tiny_find(m, "model.layers.1.mlp.down_proj.weight");
    tiny_set_bf16(down, 3 * 512 + 17, NAN);
    tiny_save(m, &folder, "in");
    tiny_free(m);
    job j = job_open(&folder, "in");
    assert_int_equal(job_run(&j, types, (ht_plan_options){ 0 }, false), HT_STATUS_NUMERIC);
    assert_string_equal(j.err.tensor, "blk.1.ffn_down.weight");
    assert_non_null(strstr(j.err.message, "row 3"));
    assert_non_null(strstr(j.err.message, "column 17"));
    assert_int_equal(count_files(&folder), 1);
    job_close(&j);
    temp_folder_remove(&folder);
}

static void test_f16_overflow_is_refused(void** state)
{
    (void)state;
    static const char* const f16[]  = { "F16", NULL };
    static const char* const bf16[] = { "BF16", NULL };
    const temp_folder        folder = temp_folder_create();
    tiny_model*              m      = tiny_create(TINY_LLAMA);
    tiny_set_bf16(tiny_find(m, "model.layers.0.mlp.up_proj.weight"), 2 * 256 + 5, 70000.0f);
    tiny_save(m, &folder, "in");
    tiny_free(m);
    job j = job_open(&folder, "in");
    assert_int_equal(job_run(&j, f16, (ht_plan_options){ 0 }, false), HT_STATUS_NUMERIC);
    assert_non_null(strstr(j.err.message, "row 2, column 5"));
    job_close(&j);
    job k = job_open(&folder, "in");
    assert_int_equal(job_run(&k, bf16, (ht_plan_options){ 0 }, false), HT_STATUS_OK);
    job_close(&k);
    temp_folder_remove(&folder);
}

static void test_overrides(void** state)
{
    (void)state;
    static const char* const     types[] = { "Q4_K_M", NULL };
    const ht_type_override       rules[] = { { "attn_v", ht_type_find("Q8_0") }, { "blk\\.1\\.attn", ht_type_find("Q5_K") } };
    const ht_type_override       wrong[] = { { "attn_z", ht_type_find("Q8_0") } };
    const temp_folder            folder  = folder_with_tiny();
    job                          j       = job_open(&folder, "in");
    assert_int_equal(job_run(&j, types, (ht_plan_options){ .overrides = rules, .n_overrides = 2 }, false), HT_STATUS_OK);
    for (int64_t i = 0; i < j.plan->n_tensors; i++) {
        const ht_tensor_info* t = &j.plan->outputs[0].tensors[i];
        if (strstr(t->name, "attn_v.weight")) { assert_int_equal(t->type, HT_TYPE_q8_0); }
        if (strcmp(t->name, "blk.1.attn_q.weight") == 0) { assert_int_equal(t->type, HT_TYPE_q5_k); }
        if (strcmp(t->name, "blk.1.attn_norm.weight") == 0) { assert_int_equal(t->type, HT_TYPE_f32); } /* norms stay */
    }
    job_close(&j);
    job k = job_open(&folder, "in");
    assert_int_equal(job_run(&k, types, (ht_plan_options){ .overrides = wrong, .n_overrides = 1 }, true), HT_STATUS_ARG);
    assert_non_null(strstr(k.err.message, "attn_z"));
    job_close(&k);
    temp_folder_remove(&folder);
}

static void test_cancelled_run_leaves_nothing(void** state)
{
    (void)state;
    static const char* const           types[] = { "Q8_0", NULL };
    static const volatile sig_atomic_t stop    = 1;
    const temp_folder                  folder  = folder_with_tiny();
    job                                j       = job_open(&folder, "in");
    j.ctx.cancel = &stop;
    assert_int_equal(job_run(&j, types, (ht_plan_options){ 0 }, false), HT_STATUS_CANCELLED);
    assert_int_equal(count_files(&folder), 1);
    job_close(&j);
    temp_folder_remove(&folder);
}

/* The error of encoding, measured on the way, equals the one measured from the file. */
static void test_reported_error_is_that_of_the_file(void** state)
{
    (void)state;
    static const char* const types[] = { "Q4_0", NULL };
    const temp_folder        folder  = folder_with_tiny();
    job                      j       = job_open(&folder, "in");
    ht_gguf*                 gguf    = NULL;
    assert_int_equal(job_run(&j, types, (ht_plan_options){ 0 }, false), HT_STATUS_OK);
    assert_int_equal(ht_gguf_open(&gguf, j.plan->outputs[0].path, &j.err), HT_STATUS_OK);
    for (int64_t i = 0; i < j.plan->n_tensors; i++) {
        const ht_tensor_info* t    = ht_gguf_tensor_at(gguf, i);
        const int64_t         n    = ht_tensor_n_elems(t);
        float*                x    = malloc((size_t)n * sizeof *x);
        float*                back = malloc((size_t)n * sizeof *back);
        void*                 raw  = malloc(t->n_bytes);
        double                sum  = 0.0;
        assert_int_equal(ht_source_read_rows_f32(j.source, j.plan->outputs[0].details[i].source, 0, ht_tensor_n_rows(t), x, &j.err), HT_STATUS_OK);
        assert_int_equal(ht_gguf_read(gguf, t, 0, raw, t->n_bytes, &j.err), HT_STATUS_OK);
        ht_decode_row_get(t->type)(raw, back, n);
        for (int64_t k = 0; k < n; k++) { sum += ((double)back[k] - (double)x[k]) * ((double)back[k] - (double)x[k]); }
        assert_true(fabs(sum - j.result.tensors[i].sum_sq_err) <= 1e-6 * (sum + 1e-12));
        free(x);
        free(back);
        free(raw);
    }
    ht_gguf_close(gguf);
    job_close(&j);
    temp_folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size_and_checksums_are_as_planned),
        cmocka_unit_test(test_bytes_do_not_depend_on_threads),
        cmocka_unit_test(test_auto_copies_a_gguf),
        cmocka_unit_test(test_quantized_source_needs_permission),
        cmocka_unit_test(test_ragged_rows_fall_back_or_are_refused),
        cmocka_unit_test(test_nonfinite_source_is_refused),
        cmocka_unit_test(test_f16_overflow_is_refused),
        cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_cancelled_run_leaves_nothing),
        cmocka_unit_test(test_reported_error_is_that_of_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
