/* formats/gguf_split.c: three parts that belong together, and every way in which they might not (bad-inputs K15). */
#include "formats/gguf_split.h"
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

/* What a part says; test_parts start out right and are then bent. */
typedef struct part {
    int         no, count, n_tensors;
    const char* tensor;
    const char* architecture; /* NULL: not said */
} part;

static const part right[3] = { { 0, 3, 3, "a", "llama" }, { 1, 3, 3, "b", NULL }, { 2, 3, 3, "c", NULL } };

static const char* part_path(int no)
{
    char name[64];
    snprintf(name, sizeof name, "m-%05d-of-00003.gguf", no + 1);
    return temp_path(&folder, name);
}

static void save_part(int at, const part* p)
{
    char       name[64];
    gguf_bytes b = { 0 };
    gb_start(&b, 3, 1, p->architecture ? 4 : 3);
    if (p->architecture) { gb_kv_string(&b, "general.architecture", p->architecture); }
    gb_kv_u16(&b, "split.no", (uint16_t)p->no);
    gb_kv_u16(&b, "split.count", (uint16_t)p->count);
    gb_kv_i32(&b, "split.tensors.count", p->n_tensors);
    gb_tensor(&b, p->tensor, 1, (uint64_t[]){ 8 }, HT_TYPE_f32, 0);
    gb_pad(&b, 32);
    for (int i = 0; i < 8; i++) { gb_f32(&b, (float)(10 * at + i)); }
    snprintf(name, sizeof name, "m-%05d-of-00003.gguf", at + 1);
    gb_save(&b, &folder, name);
}

static void save_parts(const part parts[3])
{
    for (int i = 0; i < 3; i++) { save_part(i, &parts[i]); }
}

static void test_any_part_opens_all(void** state)
{
    (void)state;
    save_parts(right);
    for (int given = 0; given < 3; given++) {
        ht_gguf**      parts = NULL;
        const ht_gguf* owner = NULL;
        int            n     = 0;
        ht_error       err   = HT_ERROR_INIT;
        if (ht_gguf_split_open(&parts, &n, part_path(given), &err) != HT_STATUS_OK) { fail_msg("%s", err.message); }
        assert_int_equal(n, 3);
        for (int i = 0; i < 3; i++) { assert_string_equal(ht_gguf_tensor_at(parts[i], 0)->name, right[i].tensor); }
        const ht_tensor_info* c = ht_gguf_split_find(parts, n, "c", &owner);
        float                 x[8];
        assert_ptr_equal(owner, parts[2]);
        assert_int_equal(ht_gguf_read(owner, c, 0, x, sizeof x, &err), HT_STATUS_OK);
        assert_true(x[7] == 27.0f);
        assert_null(ht_gguf_split_find(parts, n, "d", &owner));
        ht_gguf_split_close(parts, n);
    }
}

static void test_a_file_of_its_own_is_one_part(void** state)
{
    (void)state;
    gguf_bytes b     = { 0 };
    ht_gguf**  parts = NULL;
    int        n     = 0;
    ht_error   err   = HT_ERROR_INIT;
    gb_start(&b, 3, 0, 0);
    gb_save(&b, &folder, "one.gguf");
    assert_int_equal(ht_gguf_split_open(&parts, &n, temp_path(&folder, "one.gguf"), &err), HT_STATUS_OK);
    assert_int_equal(n, 1);
    ht_gguf_split_close(parts, n);
    ht_gguf_split_close(NULL, 0);
}

/* Parts as given, opened through the first; the file that is named ends in `file`. */
static void refused(const part parts[3], const char* tensor, const char* file, const char* message)
{
    ht_gguf** opened = NULL;
    int       n      = 0;
    ht_error  err    = HT_ERROR_INIT;
    save_parts(parts);
    assert_int_equal(ht_gguf_split_open(&opened, &n, part_path(0), &err), HT_STATUS_FORMAT);
    assert_null(opened);
    assert_contains(err.message, message);
    assert_contains(err.file, file);
    assert_string_equal(err.tensor, tensor);
}

static void test_parts_that_disagree(void** state)
{
    (void)state;
    part p[3];
    memcpy(p, right, sizeof p);
    p[1].count = 4;
    refused(p, "", "m-00002-of", "split.count: expected 3, found 4");
    memcpy(p, right, sizeof p);
    p[2].no = 1;
    refused(p, "", "m-00003-of", "split.no: expected 2, found 1");
    memcpy(p, right, sizeof p);
    p[2].n_tensors = 4;
    refused(p, "", "m-00003-of", "split.tensors.count: expected 3, found 4");
    for (int i = 0; i < 3; i++) { p[i] = right[i], p[i].n_tensors = 4; }
    refused(p, "", "m-00001-of", "split.tensors.count: expected 3, found 4");
    memcpy(p, right, sizeof p);
    p[1].architecture = "qwen2";
    refused(p, "", "m-00002-of", "general.architecture differs");
    memcpy(p, right, sizeof p);
    p[0].no = 3;
    refused(p, "", "m-00001-of", "split.no: expected 0 to 2, found 3");
    memcpy(p, right, sizeof p);
    p[0].count = 0;
    refused(p, "", "m-00001-of", "split.count: expected 1 to 65535, found 0");
    memcpy(p, right, sizeof p);
    p[0].count = 2; /* the name says 3 */
    refused(p, "", "m-00001-of", "split.count: expected 3, found 2");
    memcpy(p, right, sizeof p);
    p[0].no = 1; /* the name says first */
    refused(p, "", "m-00001-of", "split.no: expected 0, found 1");
}

/* K1 #8, second case: both files are named. */
static void test_one_name_in_two_parts(void** state)
{
    (void)state;
    part p[3];
    memcpy(p, right, sizeof p);
    p[2].tensor = "a";
    refused(p, "a", "m-00003-of-00003.gguf", "m-00001-of-00003.gguf");
}

static void test_a_missing_part_is_named(void** state)
{
    (void)state;
    ht_gguf** parts = NULL;
    int       n     = 0;
    ht_error  err   = HT_ERROR_INIT;
    save_parts(right);
    assert_int_equal(unlink(part_path(1)), 0);
    assert_int_equal(ht_gguf_split_open(&parts, &n, part_path(2), &err), HT_STATUS_FORMAT);
    assert_contains(err.file, "m-00002-of-00003.gguf");
    assert_contains(err.message, "part 2 of 3 is missing");
}

static void test_a_part_under_another_name(void** state)
{
    (void)state;
    ht_gguf** parts = NULL;
    int       n     = 0;
    ht_error  err   = HT_ERROR_INIT;
    save_parts(right);
    char from[512];
    snprintf(from, sizeof from, "%s", part_path(0));
    assert_int_equal(rename(from, temp_path(&folder, "renamed.gguf")), 0);
    assert_int_equal(ht_gguf_split_open(&parts, &n, temp_path(&folder, "renamed.gguf"), &err), HT_STATUS_FORMAT);
    assert_contains(err.message, "does not end in -00001-of-00003.gguf");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_any_part_opens_all),
        TEST(test_a_file_of_its_own_is_one_part),
        TEST(test_parts_that_disagree),
        TEST(test_one_name_in_two_parts),
        TEST(test_a_missing_part_is_named),
        TEST(test_a_part_under_another_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
