/*
 * Tokenizer files from hostile bytes. The first byte says which file the rest is: 's' tokenizer.model, else tokenizer.json. Refused with a
 * reason, or imported; then the metadata makes a tokenizer or is refused, and a tokenizer encodes any text to ids of its own and back.
 */
#include "tests/fuzz/replay.h"

#include "formats/hf_tokenizer.h"
#include "runtime/tokenizer.h"

static char folder[64];

static void remove_folder(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/tokenizer.model", folder);
    unlink(path);
    rmdir(folder);
}

/* One file, alone in the folder. */
static void put_file(const char* name, const char* other, const uint8_t* data, size_t n_bytes)
{
    char path[128];
    if (!folder[0]) {
        strcpy(folder, "/tmp/halftone-fuzz-XXXXXX");
        if (!mkdtemp(folder)) { abort(); }
        atexit(remove_folder);
    }
    snprintf(path, sizeof path, "%s/%s", folder, other);
    unlink(path);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE* f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n_bytes, f) != n_bytes || fclose(f) != 0) { abort(); }
}

static void there_and_back(const ht_tokenizer* t, const char* text, size_t n_bytes, bool parse_special)
{
    int32_t* ids = NULL;
    int64_t  n   = 0;
    char     piece[32];
    ht_error err = HT_ERROR_INIT;
    if (ht_tokenizer_encode(t, text, n_bytes, true, parse_special, &ids, &n, &err) != HT_STATUS_OK) {
        if (err.message[0] == '\0') { abort(); }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= ht_tokenizer_n_tokens(t)) { abort(); }
        if (ht_tokenizer_decode(t, ids[i], i % 2, piece, sizeof piece) > sizeof piece) { abort(); }
    }
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes)
{
    static const char text[] = "Hello world! 1234567  <s>the</s>\r\n\n\xFF\xE4\xB8 it's caf\xC3\xA9";
    if (n_bytes == 0) { return 0; }
    const bool              is_spm  = data[0] == 's';
    ht_hf_tokenizer_options options = { folder, "llama", -1, 1024, NULL };
    ht_error                err     = HT_ERROR_INIT;
    ht_tokenizer*           t       = NULL;
    ht_meta*                meta    = ht_meta_create();
    put_file(is_spm ? "tokenizer.model" : "tokenizer.json", is_spm ? "tokenizer.json" : "tokenizer.model", data + 1, n_bytes - 1);
    if (ht_hf_tokenizer_import(meta, &options, NULL, &err) == HT_STATUS_OK && ht_tokenizer_create(&t, meta, &err) == HT_STATUS_OK) {
        const size_t n_tail = n_bytes < 64 ? n_bytes : 64;
        there_and_back(t, text, sizeof text - 1, true);
        there_and_back(t, text, sizeof text - 1, false);
        there_and_back(t, (const char*)data + n_bytes - n_tail, n_tail, true);
    } else if (err.status == HT_STATUS_OK || err.message[0] == '\0') {
        abort();
    }
    ht_tokenizer_free(t);
    ht_meta_free(meta);
    return 0;
}

size_t fuzz_seed(int index, uint8_t** out)
{
    static const struct { char kind; const char* file; } seeds[] = { { 'j', "tests/unit/data/bpe.json" }, { 's', "tests/unit/data/spm.model" } };
    if (index >= (int)(sizeof seeds / sizeof *seeds)) { return 0; }
    size_t   n    = 0;
    uint8_t* file = ht_test_load(ht_test_source(seeds[index].file), &n);
    *out          = malloc(n + 1);
    if (!*out) { abort(); }
    (*out)[0] = (uint8_t)seeds[index].kind;
    memcpy(*out + 1, file, n);
    free(file);
    return n + 1;
}
