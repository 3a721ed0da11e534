#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file.h"
#include "formats/base/name_map.h"
#include "formats/json_value.h"
#include "quant/mix.h"
#include "quant/recipe.h"

enum { MAX_FILE_BYTES = 64 << 20 };

struct ht_recipe_file {
    ht_json*            json; /* names point into it */
    ht_recipe_file_row* rows;
    int64_t             n_rows;
};

ht_status ht_recipe_file_open(ht_recipe_file** out, const char* path, ht_error* err)
{
    ht_status            st      = HT_STATUS_OK;
    const ht_json_value* tensors = NULL;
    ht_recipe_file*      f       = calloc(1, sizeof *f);
    HT_CHECK(f, NOMEM, "recipe");
    HT_TRY(ht_json_read(&f->json, path, MAX_FILE_BYTES, err)); /* a tensor named twice is refused there */
    HT_CHECK(ht_json_kind_of(ht_json_root(f->json)) == HT_JSON_KIND_OBJECT, FORMAT, "expected an object, found %s", ht_json_kind_name(ht_json_root(f->json)));
    HT_TRY(ht_json_get_object(f->json, ht_json_root(f->json), "tensors", true, &tensors, err));
    f->rows = calloc((size_t)ht_json_count(tensors) + 1, sizeof *f->rows);
    HT_CHECK(f->rows, NOMEM, "recipe");
    for (const ht_json_value* v = ht_json_first(tensors); v; v = ht_json_next(v)) {
        char                near[128];
        const char*         text = ht_json_as_string(v);
        const ht_type_info* type = text ? ht_type_find(text) : NULL;
        HT_CHECK(text, FORMAT, "tensors: the type of \"%s\" is %s, not a string", ht_json_key(v), ht_json_kind_name(v));
        HT_CHECK(type && type->can_encode, FORMAT, "tensors: \"%s\" has an unknown type \"%s\" (near: %s)", ht_json_key(v), text, ht_recipe_suggest(text, near, sizeof near));
        f->rows[f->n_rows++] = (ht_recipe_file_row){ ht_json_key(v), type };
    }
    *out = f;
    f    = NULL;
done:
    ht_recipe_file_close(f);
    if (st != HT_STATUS_OK) { ht_error_set_file(err, path); }
    return st;
}

void ht_recipe_file_close(ht_recipe_file* f)
{
    if (!f) { return; }
    ht_json_free(f->json);
    free(f->rows);
    free(f);
}

int64_t                   ht_recipe_file_n_rows(const ht_recipe_file* f) { return f->n_rows; }
const ht_recipe_file_row* ht_recipe_file_at(const ht_recipe_file* f, int64_t index) { return &f->rows[index]; }

/* Names of tensors come from files: quotes and backslashes are escaped, control characters as \u00XX. */
static void write_string(FILE* f, const char* text)
{
    fputc('"', f);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') { fprintf(f, "\\%c", c); }
        else if (c < 32) { fprintf(f, "\\u%04x", c); }
        else { fputc(c, f); }
    }
    fputc('"', f);
}

ht_status ht_recipe_file_write(const char* path, const ht_recipe_file_row* rows, int64_t n_rows, const char* notes, bool force, ht_error* err)
{
    ht_status    st   = HT_STATUS_OK;
    char*        text = NULL;
    size_t       n    = 0;
    ht_out_file* file = NULL;
    FILE*        f    = open_memstream(&text, &n);
    HT_CHECK(f, NOMEM, "recipe");
    fprintf(f, "{\n  \"schema\": \"halftone.recipe/1\",\n");
    if (notes && strlen(notes) > 2) { fprintf(f, "  %.*s,\n", (int)strlen(notes) - 2, notes + 1); } /* the members, without the braces */
    fprintf(f, "  \"tensors\": {\n");
    for (int64_t i = 0; i < n_rows; i++) {
        fprintf(f, "    ");
        write_string(f, rows[i].name);
        fprintf(f, ": \"%s\"%s\n", rows[i].type->name, i + 1 < n_rows ? "," : "");
    }
    fprintf(f, "  }\n}\n");
    HT_CHECK(fclose(f) == 0, NOMEM, "recipe");
    HT_TRY(ht_out_file_create(&file, path, n, force, err));
    HT_TRY(ht_out_file_write_at(file, 0, text, n, err));
    ht_out_file* whole = file;
    file               = NULL;
    HT_TRY(ht_out_file_commit(whole, err));
done:
    ht_out_file_discard(file);
    free(text);
    return st;
}
