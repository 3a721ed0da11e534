/* halftone run: generates text, the eye test; with --json the ids and the likeliest next tokens, for comparing programs. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "formats/base/file.h"
#include "runtime/speed.h"
#include "tools/models.h"

enum { MAX_PROMPT_BYTES = 64 << 20, MAX_PIECE_BYTES = 1024 };

typedef struct generation {
    ht_loaded   loaded;
    ht_session* session;
    int32_t*    prompt;
    int64_t     n_prompt, n_gen_max, n_top;
    double      temperature;
    bool        ignore_eos;
    uint64_t    random; /* state */
    float*      logits;
    int64_t     n_vocab;
    int32_t*    ids;    /* generated */
    int64_t     n_ids;
    char*       text;   /* generated */
    size_t      n_text;
} generation;

/* --- prompt ------------------------------------------------------------------------------------------------------------------ */

static ht_status parse_ids(generation* g, const char* list, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    g->prompt    = malloc((strlen(list) / 2 + 1) * sizeof *g->prompt);
    HT_CHECK(g->prompt, NOMEM, "prompt");
    for (const char* p = list; *p;) {
        char*      end = NULL;
        const long id  = strtol(p, &end, 10);
        if (end == p || (*end != ',' && *end != '\0') || id < 0 || id >= g->n_vocab) {
            st = ht_usage_error(err, "--prompt-ids: \"%.20s\" is not a list of ids below %" PRId64, p, g->n_vocab);
            goto done;
        }
        g->prompt[g->n_prompt++] = (int32_t)id;
        p = *end == ',' ? end + 1 : end;
    }
done:
    return st;
}

/* -p TEXT, -p @FILE, -p - (standard input), or --prompt-ids 1,2,3. */
static ht_status read_prompt(generation* g, const ht_args* args, const ht_ctx* ctx, ht_error* err)
{
    ht_status   st   = HT_STATUS_OK;
    char*       file = NULL;
    size_t      n    = 0;
    const char* text = ht_args_text(args, "prompt", NULL);
    const char* ids  = ht_args_text(args, "prompt-ids", NULL);
    if (!text == !ids) { return ht_usage_error(err, "give one of -p TEXT and --prompt-ids LIST"); }
    if (ids) {
        HT_TRY(parse_ids(g, ids, err));
    } else {
        const bool from_file = text[0] == '@' || strcmp(text, "-") == 0;
        if (from_file) { HT_TRY(ht_text_read(&file, &n, text[0] == '@' ? text + 1 : text, MAX_PROMPT_BYTES, err)); }
        const char* from = from_file ? file : text;
        HT_TRY(ht_tokenizer_encode(g->loaded.tokenizer, from, from_file ? n : strlen(text), true, true, &g->prompt, &g->n_prompt, err));
    }
    if (g->n_prompt == 0) { st = ht_usage_error(err, "the prompt has no tokens"); }
    const int32_t bos = ht_tokenizer_bos(g->loaded.tokenizer);
    if (!ids && bos >= 0 && g->n_prompt > 1 && g->prompt[0] == bos && g->prompt[1] == bos) {
        ht_log_warn(&ctx->log, "the prompt begins with BOS itself, and the model adds another");
    }
done:
    free(file);
    return st;
}

/* --- sampling ------------------------------------------------------------------------------------------------------------------ */

/* splitmix64, as a number in [0, 1). */
static double next_random(uint64_t* state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z          = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z          = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static int32_t sample(generation* g)
{
    const int32_t best = ht_arg_max(g->logits, g->n_vocab);
    if (g->temperature <= 0.0) { return best; }
    double sum = 0.0;
    for (int64_t i = 0; i < g->n_vocab; i++) { sum += exp(((double)g->logits[i] - (double)g->logits[best]) / g->temperature); }
    double left = next_random(&g->random) * sum;
    for (int64_t i = 0; i < g->n_vocab; i++) {
        left -= exp(((double)g->logits[i] - (double)g->logits[best]) / g->temperature);
        if (left < 0.0) { return (int32_t)i; }
    }
    return best;
}

static double log_sum_exp(const generation* g)
{
    const double max = (double)g->logits[ht_arg_max(g->logits, g->n_vocab)];
    double       sum = 0.0;
    for (int64_t i = 0; i < g->n_vocab; i++) { sum += exp((double)g->logits[i] - max); }
    return max + log(sum);
}

/* --- JSON ------------------------------------------------------------------------------------------------------------------------ */

static void add_ids(cJSON* document, const char* key, const int32_t* ids, int64_t n)
{
    cJSON* list = cJSON_AddArrayToObject(document, key);
    for (int64_t i = 0; i < n; i++) { cJSON_AddItemToArray(list, cJSON_CreateNumber(ids[i])); }
}

/* Generated text may hold bytes that are no character, or end inside one: each such byte becomes U+FFFD. */
static void add_text(cJSON* document, const char* key, const char* text, size_t n)
{
    char* clean = malloc(3 * n + 1);
    char* to    = clean;
    for (size_t at = 0; clean && at < n;) {
        utf8proc_int32_t       code  = 0;
        const utf8proc_ssize_t taken = utf8proc_iterate((const utf8proc_uint8_t*)text + at, (utf8proc_ssize_t)(n - at), &code);
        const bool             good  = taken > 0 && code != 0;
        memcpy(to, good ? text + at : "\xEF\xBF\xBD", good ? (size_t)taken : 3);
        to += good ? taken : 3;
        at += good ? (size_t)taken : 1;
    }
    if (clean) {
        *to = '\0';
        cJSON_AddStringToObject(document, key, clean);
    }
    free(clean);
}

/* The n_top likeliest tokens after the prompt; overwrites their logits with -Inf one by one on a copy. */
static ht_status add_next_top(cJSON* document, const generation* g, ht_error* err)
{
    char         piece[MAX_PIECE_BYTES];
    float*       logits = malloc((size_t)g->n_vocab * sizeof *logits);
    const double lse    = log_sum_exp(g);
    cJSON*       list   = cJSON_AddArrayToObject(document, "next_top");
    if (!logits) { return ht_fail(err, HT_STATUS_NOMEM, "next tokens"); }
    memcpy(logits, g->logits, (size_t)g->n_vocab * sizeof *logits);
    for (int64_t k = 0; k < g->n_top && k < g->n_vocab; k++) {
        const int32_t id   = ht_arg_max(logits, g->n_vocab);
        const size_t  n    = ht_tokenizer_decode(g->loaded.tokenizer, id, true, piece, sizeof piece - 1);
        cJSON*        item = cJSON_CreateObject();
        piece[n]           = '\0';
        cJSON_AddNumberToObject(item, "id", id);
        ht_json_add_text(item, "token", piece);
        ht_json_add_number(item, "logit", (double)logits[id]);
        ht_json_add_number(item, "logprob", (double)logits[id] - lse);
        cJSON_AddItemToArray(list, item);
        logits[id] = -INFINITY;
    }
    ht_json_add_number(document, "logsumexp", lse);
    free(logits);
    return HT_STATUS_OK;
}

/* --- generation -------------------------------------------------------------------------------------------------------------------- */

static void take_token(generation* g, int32_t id, bool show)
{
    char         piece[MAX_PIECE_BYTES];
    const size_t n = ht_tokenizer_decode(g->loaded.tokenizer, id, false, piece, sizeof piece);
    g->ids[g->n_ids++] = id;
    memcpy(g->text + g->n_text, piece, n);
    g->n_text += n;
    if (show) {
        fwrite(piece, 1, n, stdout);
        fflush(stdout);
    }
}

static ht_status generate(generation* g, bool show, const ht_ctx* ctx, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    while (g->n_ids < g->n_gen_max) {
        const int32_t id = sample(g);
        if (!g->ignore_eos && ht_tokenizer_is_end(g->loaded.tokenizer, id)) { break; }
        take_token(g, id, show);
        HT_CHECK(!ht_cancelled(ctx), CANCELLED, "interrupted");
        if (g->n_ids < g->n_gen_max) { HT_TRY(ht_session_eval(g->session, &id, 1, 0, g->logits, err)); }
    }
done:
    return st;
}

static ht_status prepare(generation* g, const ht_args* args, const ht_ctx* ctx, ht_error* err)
{
    ht_status  st = HT_STATUS_OK;
    ht_compute compute;
    ht_kv_type kv_type;
    g->n_gen_max   = ht_args_int(args, "n", 128);
    g->n_top       = ht_args_int(args, "top", 20);
    g->temperature = ht_args_real(args, "temp", 0.0);
    g->ignore_eos  = ht_args_has(args, "ignore-eos");
    g->random      = ctx->seed;
    if (g->n_gen_max < 0 || g->n_gen_max > 1 << 20 || g->n_top < 0) { return ht_usage_error(err, "-n must be between 0 and 2^20, --top at least 0"); }
    HT_TRY(ht_compute_parse(&compute, args, HT_COMPUTE_FAST, err));
    HT_TRY(ht_kv_type_parse(&kv_type, args, err));
    HT_TRY(ht_loaded_init(&g->loaded, ht_args_positional(args, 0), compute, ctx, err));
    g->n_vocab = ht_model_hparams(g->loaded.model)->n_vocab;
    HT_TRY(read_prompt(g, args, ctx, err));
    g->logits = malloc((size_t)g->n_vocab * sizeof *g->logits);
    g->ids    = malloc((size_t)(g->n_gen_max + 1) * sizeof *g->ids);
    g->text   = malloc((size_t)(g->n_gen_max + 1) * MAX_PIECE_BYTES);
    HT_CHECK(g->logits && g->ids && g->text, NOMEM, "generation of %" PRId64 " tokens", g->n_gen_max);
    HT_TRY(ht_session_create(&g->session, g->loaded.model, g->n_prompt + g->n_gen_max, kv_type, ctx, err));
done:
    return st;
}

static ht_status run(const ht_args* args, const ht_ctx* ctx, int* exit_code, ht_error* err)
{
    ht_status  st       = HT_STATUS_OK;
    generation g        = { 0 };
    cJSON*     document = NULL;
    (void)exit_code;
    HT_TRY(prepare(&g, args, ctx, err));
    HT_TRY(ht_session_eval(g.session, g.prompt, g.n_prompt, g.n_prompt - 1, g.logits, err));
    if (!ht_args_json(args)) {
        HT_TRY(generate(&g, true, ctx, err));
        printf("\n");
        goto done;
    }
    document = ht_json_document("run");
    ht_json_add_text(document, "file", g.loaded.path);
    add_ids(document, "prompt_ids", g.prompt, g.n_prompt);
    HT_TRY(add_next_top(document, &g, err));
    HT_TRY(generate(&g, false, ctx, err));
    add_ids(document, "token_ids", g.ids, g.n_ids);
    add_text(document, "text", g.text, g.n_text);
    st       = ht_json_print(document, err);
    document = NULL;
done:
    cJSON_Delete(document);
    ht_session_free(g.session);
    ht_loaded_deinit(&g.loaded);
    free(g.prompt);
    free(g.logits);
    free(g.ids);
    free(g.text);
    return st;
}

static const ht_option options[] = {
    { "prompt", 'p', HT_OPTION_TEXT, "TEXT", "text to go on from; @FILE or - (standard input) read it" },
    { "prompt-ids", 0, HT_OPTION_TEXT, "LIST", "token ids instead of text: 1,2,3" },
    { "n", 'n', HT_OPTION_INT, "N", "tokens to generate at most (default 128)" },
    { "temp", 0, HT_OPTION_REAL, "T", "temperature; 0 (default): always the likeliest token" },
    { "top", 0, HT_OPTION_INT, "N", "--json: the N likeliest tokens after the prompt (default 20)" },
    { "ignore-eos", 0, HT_OPTION_FLAG, NULL, "go on past the end-of-text token" },
    { "kv", 0, HT_OPTION_TEXT, "TYPE", "KV cache: f16 (default) or f32" },
    { "compute", 0, HT_OPTION_TEXT, "HOW", "fast (default) or exact" },
    { NULL, 0, HT_OPTION_FLAG, NULL, NULL },
};

const ht_command ht_command_run = {
    "run", "FILE -p TEXT", "generate text from a prompt", "  halftone run model.gguf -p \"Once upon a time\" -n 64 --temp 0.8 --seed 7", options, 1, 1, run,
};
