/* formats/hf_checkpoint: which files make a checkpoint (bad-inputs K3; the number of the entry is in the test's name). */
#include "tests/tiny_model.h"

#include "formats/hf_checkpoint.h"

static temp_folder folder;
static tiny_model* tiny;

static int setup(void** state)
{
    (void)state;
    folder = temp_folder_create();
    tiny   = tiny_create(TINY_LLAMA);
    return 0;
}

static int teardown(void** state)
{
    (void)state;
    tiny_free(tiny);
    temp_folder_remove(&folder);
    return 0;
}

static void assert_opens(const char* name, int64_t n_files, const char* warning)
{
    ht_hf_checkpoint* c    = NULL;
    ht_error          err  = HT_ERROR_INIT;
    test_log          kept = { .n = 0 };
    const ht_log      log  = { test_log_keep, &kept };
    if (ht_hf_checkpoint_open(&c, temp_path(&folder, name), &log, &err) != HT_STATUS_OK) { fail_msg("%s: %s", err.file, err.message); }
    assert_int_equal(ht_hf_checkpoint_n_files(c), n_files);
    assert_int_equal(ht_hf_checkpoint_n_tensors(c), tiny->n_tensors);
    assert_non_null(ht_hf_checkpoint_find(c, "model.layers.1.mlp.up_proj.weight"));
    assert_null(ht_hf_checkpoint_find(c, "model.layers.2.mlp.up_proj.weight"));
    if (warning) { assert_contains(kept.text, warning); }
    else { assert_string_equal(kept.text, ""); }
    ht_hf_checkpoint_close(c);
}

static void assert_refused(const char* name, ht_status status, const char* message)
{
    ht_hf_checkpoint* c   = NULL;
    ht_error          err = HT_ERROR_INIT;
    assert_int_equal(ht_hf_checkpoint_open(&c, temp_path(&folder, name), NULL, &err), status);
    assert_null(c);
    assert_contains(err.message, message);
    assert_contains(err.file, folder.path);
}

/* Points entries of the index at another file name: those of `tensor`, or all (NULL). */
static void edit_index(const char* name, const char* tensor, const char* file)
{
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", name);
    char*  text  = ht_test_load(temp_path(&folder, path), NULL);
    cJSON* index = cJSON_Parse(text);
    cJSON* map   = cJSON_GetObjectItem(index, "weight_map");
    cJSON* entry = NULL;
    cJSON_ArrayForEach(entry, map)
    {
        if (!tensor || strcmp(entry->string, tensor) == 0) { assert_non_null(cJSON_SetValuestring(entry, file)); }
    }
    tiny_save_json(&folder, name, "model.safetensors.index.json", index);
    cJSON_Delete(index);
    free(text);
}

static void test_one_file_and_shards(void** state)
{
    (void)state;
    tiny_save(tiny, &folder, "one");
    assert_opens("one", 1, NULL);
    assert_opens("one/", 1, NULL);
    assert_opens("one/model.safetensors", 1, NULL);
    tiny_save_sharded(tiny, &folder, "three", 3);
    assert_opens("three", 3, NULL);
    assert_refused("three/model-00002-of-00003.safetensors", HT_STATUS_ARG, "shard 2 of 3; give the folder");
    unlink(temp_path(&folder, "three/model.safetensors.index.json"));
    assert_opens("three", 3, NULL);
}

static void test_18_a_missing_shard_is_named_first(void** state)
{
    (void)state;
    tiny_save_sharded(tiny, &folder, "lost", 3);
    unlink(temp_path(&folder, "lost/model-00002-of-00003.safetensors"));
    assert_refused("lost", HT_STATUS_FORMAT, "missing file model-00002-of-00003.safetensors: the checkpoint has 3 files, 2 of them are here");
    unlink(temp_path(&folder, "lost/model.safetensors.index.json"));
    assert_refused("lost", HT_STATUS_FORMAT, "missing file model-00002-of-00003.safetensors");
    tiny_save_sharded(tiny, &folder, "lost6", 6);
    for (int i = 1; i <= 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "lost6/model-%05d-of-00006.safetensors", i);
        unlink(temp_path(&folder, name));
    }
    assert_refused("lost6", HT_STATUS_FORMAT,
                   "missing files model-00001-of-00006.safetensors, model-00002-of-00006.safetensors, model-00003-of-00006.safetensors and 2 more");
}

static void test_19_the_index_may_name_any_file_inside(void** state)
{
    (void)state;
    static const char* const outside[] = { "../x.safetensors", "/etc/x.safetensors", "sub/../../x.safetensors", "a\\b.safetensors", "" };
    tiny_save_sharded(tiny, &folder, "mtp", 2);
    assert_int_equal(rename(temp_path(&folder, "mtp/model-00002-of-00002.safetensors"), temp_path(&folder, "mtp/mtp.safetensors")), 0);
    for (int i = tiny->n_tensors / 2; i < tiny->n_tensors; i++) { edit_index("mtp", tiny->tensors[i].name, "mtp.safetensors"); }
    assert_opens("mtp", 2, NULL);

    tiny_make_folder(&folder, "mtp/sub");
    assert_int_equal(rename(temp_path(&folder, "mtp/mtp.safetensors"), temp_path(&folder, "mtp/sub/x.safetensors")), 0);
    for (int i = tiny->n_tensors / 2; i < tiny->n_tensors; i++) { edit_index("mtp", tiny->tensors[i].name, "sub/x.safetensors"); }
    assert_opens("mtp", 2, NULL);

    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        edit_index("mtp", "model.norm.weight", outside[i]);
        assert_refused("mtp", HT_STATUS_FORMAT, "is not a path inside the folder");
    }
}

static void test_21_left_over_shards(void** state)
{
    (void)state;
    tiny_save_sharded(tiny, &folder, "two", 2);
    tiny_save_shard(tiny, &folder, "two", "model.safetensors", 0, tiny->n_tensors);
    assert_opens("two", 2, "model.safetensors is not part of the checkpoint; ignored");
    unlink(temp_path(&folder, "two/model.safetensors.index.json"));
    assert_refused("two", HT_STATUS_FORMAT, "two sets of weights and no index that chooses: model-00001-of-00002.safetensors, "
                                            "model-00002-of-00002.safetensors; and model.safetensors");
}

static void test_the_index_must_agree_with_its_shards(void** state)
{
    (void)state;
    tiny_save_sharded(tiny, &folder, "wrong", 2);
    edit_index("wrong", tiny->tensors[0].name, "model-00002-of-00002.safetensors");
    assert_refused("wrong", HT_STATUS_FORMAT, "incomplete file model-00002-of-00002.safetensors: the index says that it holds model.embed_tokens.weight");

    tiny_save_sharded(tiny, &folder, "extra", 2);
    tiny_save_shard(tiny, &folder, "extra", "model-00002-of-00002.safetensors", 0, tiny->n_tensors);
    assert_refused("extra", HT_STATUS_FORMAT, "is in two files");

    tiny_save_sharded(tiny, &folder, "unlisted", 1);
    temp_write_text(&folder, "unlisted/model.safetensors.index.json", "{\"weight_map\":{\"lm_head.weight\":\"model-00001-of-00001.safetensors\"}}");
    assert_refused("unlisted", HT_STATUS_FORMAT, "is not in the index");
    temp_write_text(&folder, "unlisted/model.safetensors.index.json", "{\"weight_map\":{\"lm_head.weight\":1}}");
    assert_refused("unlisted", HT_STATUS_FORMAT, "weight_map.lm_head.weight: expected a string");
    temp_write_text(&folder, "unlisted/model.safetensors.index.json", "{}");
    assert_refused("unlisted", HT_STATUS_FORMAT, "weight_map: is missing");
}

static void test_folders_without_weights(void** state)
{
    (void)state;
    tiny_make_folder(&folder, "none");
    assert_refused("none", HT_STATUS_IO, "cannot open");
    temp_write_text(&folder, "none/config.json", "{}");
    assert_refused("none", HT_STATUS_FORMAT, "no .safetensors files");
    temp_write_text(&folder, "none/pytorch_model.bin", "");
    assert_refused("none", HT_STATUS_UNSUPPORTED, "pickled weights");
    temp_write_safetensors(&folder, "none/model.safetensors", "{\"__metadata__\":{\"a\":\"b\"}}", 26, NULL, 0);
    assert_refused("none", HT_STATUS_FORMAT, "no tensors"); /* 14 */
    assert_refused("absent", HT_STATUS_IO, "cannot open");
    temp_write_text(&folder, "none/config.json", "{\"a\": }");
    assert_refused("none", HT_STATUS_FORMAT, "not valid JSON");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_file_and_shards),
        cmocka_unit_test(test_18_a_missing_shard_is_named_first),
        cmocka_unit_test(test_19_the_index_may_name_any_file_inside),
        cmocka_unit_test(test_21_left_over_shards),
        cmocka_unit_test(test_the_index_must_agree_with_its_shards),
        cmocka_unit_test(test_folders_without_weights),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
