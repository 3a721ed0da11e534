/* The mix solver against exhaustive search; recipe files. */
#include "quant/mix.h"

#include <math.h>

#include "tests/ht_test.h"
#include "tests/temp_folder.h"

static uint64_t seed = 11;

static double uniform(void) { return (double)(ht_test_random(&seed) >> 11) * 0x1p-53; }

/* Types of 4 to 8 bits whose errors fall by about four per bit. */
static ht_mix_item random_item(uint64_t n_elems)
{
    static const double bits[5] = { 4.5, 5.0, 5.5, 6.0, 8.5 };
    ht_mix_item         item = { .name = "t", .n_choices = 5 };
    const double        weight = exp(4.0 * uniform());
    for (int c = 0; c < 5; c++) {
        item.type[c]    = HT_TYPE_q4_0;
        item.n_bytes[c] = (uint64_t)((double)n_elems * bits[c] / 8.0);
        item.cost[c]    = weight * (double)n_elems * pow(4.0, -bits[c]) * (0.8 + 0.4 * uniform());
    }
    return item;
}

static void totals(const ht_mix_item* items, int n, const int* choice, uint64_t* n_bytes, double* cost)
{
    *n_bytes = 0;
    *cost    = 0.0;
    for (int i = 0; i < n; i++) {
        *n_bytes += items[i].n_bytes[choice[i]];
        *cost += items[i].cost[choice[i]];
    }
}

static void test_near_the_optimum(void** state)
{
    (void)state;
    enum { N = 7, ALL = 78125 };
    double worst = 1.0;
    for (int trial = 0; trial < 30; trial++) {
        ht_mix_item items[N];
        int         choice[N];
        ht_error    err = HT_ERROR_INIT;
        uint64_t    least = 0, n_bytes;
        double      best = INFINITY, cost;
        for (int i = 0; i < N; i++) {
            items[i] = random_item(trial % 2 && i == 3 ? 60000 : 4000 + (uint64_t)(2000.0 * uniform())); /* odd trials: one item of a large share */
            least += items[i].n_bytes[0];
        }
        const uint64_t budget = (uint64_t)((double)least * (1.05 + 0.6 * uniform()));
        for (int code = 0; code < ALL; code++) {
            int each[N];
            for (int i = 0, rest = code; i < N; i++, rest /= 5) { each[i] = rest % 5; }
            totals(items, N, each, &n_bytes, &cost);
            if (n_bytes <= budget && cost < best) { best = cost; }
        }
        assert_int_equal(ht_mix_solve(items, N, budget, choice, &err), HT_STATUS_OK);
        totals(items, N, choice, &n_bytes, &cost);
        assert_true(n_bytes <= budget);
        if (cost / best > worst) { worst = cost / best; }
    }
    print_message("worst of 30: %.4f of the optimum\n", worst);
    assert_true(worst < 1.25); /* seven items leave gaps that hundreds do not */
}

static void test_many_items_and_no_room(void** state)
{
    (void)state;
    enum { N = 3000 };
    ht_error     err = HT_ERROR_INIT;
    ht_mix_item* items = calloc(N, sizeof *items);
    int *        choice = calloc(N, sizeof *choice), *again = calloc(N, sizeof *again);
    uint64_t     least = 0, n_bytes;
    double       cost;
    for (int i = 0; i < N; i++) {
        items[i] = random_item(4096);
        least += items[i].n_bytes[0];
    }
    const uint64_t budget = least + least / 3;
    assert_int_equal(ht_mix_solve(items, N, budget, choice, &err), HT_STATUS_OK);
    assert_int_equal(ht_mix_solve(items, N, budget, again, &err), HT_STATUS_OK);
    assert_memory_equal(choice, again, N * sizeof *choice);
    totals(items, N, choice, &n_bytes, &cost);
    assert_true(n_bytes <= budget && (double)n_bytes > 0.998 * (double)budget);
    assert_int_equal(ht_mix_solve(items, N, least - 1, choice, &err), HT_STATUS_ARG);
    assert_contains(err.message, "the budget is");
    assert_int_equal(ht_mix_solve(items, N, least, choice, &err), HT_STATUS_OK);
    free(items);
    free(choice);
    free(again);
}

static void test_recipe_file(void** state)
{
    (void)state;
    ht_error                 err = HT_ERROR_INIT;
    temp_folder              folder = temp_folder_create();
    ht_recipe_file*          file = NULL;
    const ht_recipe_file_row rows[2] = { { "blk.0.attn_q.weight", ht_type_find("Q5_K") }, { "odd \"name\"", ht_type_find("Q8_0") } };
    const char*              path = temp_path(&folder, "r.json");
    assert_int_equal(ht_recipe_file_write(path, rows, 2, "{\"estimated_kl\": 0.5}", false, &err), HT_STATUS_OK);
    assert_int_equal(ht_recipe_file_open(&file, path, &err), HT_STATUS_OK);
    assert_int_equal(ht_recipe_file_n_rows(file), 2);
    assert_string_equal(ht_recipe_file_at(file, 1)->name, "odd \"name\"");
    assert_int_equal(ht_recipe_file_at(file, 0)->type->type, HT_TYPE_q5_k);
    ht_recipe_file_close(file);
    static const struct { const char *text, *says; } bad[] = {
        { "{", "" },
        { "[]", "object" },
        { "{}", "tensors" },
        { "{\"tensors\": {\"a\": \"Q5_X\"}}", "Q5_" },
        { "{\"tensors\": {\"a\": 5}}", "not a string" },
        { "{\"tensors\": {\"a\": \"Q8_0\", \"a\": \"Q4_0\"}}", "" },
        { "{\"tensors\": {\"a\": \"IQ2_XS\"}}", "IQ2_XS" }, /* read, not written */
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        err = (ht_error)HT_ERROR_INIT;
        temp_write_text(&folder, "bad.json", bad[k].text);
        assert_int_equal(ht_recipe_file_open(&file, temp_path(&folder, "bad.json"), &err), HT_STATUS_FORMAT);
        assert_contains(err.message, bad[k].says);
    }
    temp_folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_near_the_optimum), cmocka_unit_test(test_many_items_and_no_room), cmocka_unit_test(test_recipe_file) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
