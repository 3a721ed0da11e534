/* halftone bench: prompt and decode speed, in rounds over the files (A B A B), so that a busy machine hurts all alike. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/speed.h"
#include "tools/models.h"

enum { MAX_REPEATS = 100, PROBE_BYTES = 512 << 20 };

typedef struct bench_file {
    ht_loaded   loaded;
    ht_session* session;
    double      prompt_tps[MAX_REPEATS], decode_tps[MAX_REPEATS], ttft_ms[MAX_REPEATS];
} bench_file;

typedef struct bench {
    bench_file* files;
    int         n_files, n_repeats;
    int64_t     n_prompt, n_gen;
    ht_compute  compute;
    ht_kv_type  kv_type;
    double      bandwidth; /* bytes/s, 0: not measured */
} bench;

static int by_value(const void* a, const void* b)
{
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

static double median(double* values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

static void bench_deinit(bench* b)
{
    for (int i = 0; b->files && i < b->n_files; i++) {
        ht_session_free(b->files[i].session);
        ht_loaded_deinit(&b->files[i].loaded);
    }
    free(b->files);
}

static ht_status prepare(bench* b, const ht_args* args, const ht_ctx* ctx, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    b->n_prompt  = ht_args_int(args, "prompt", 512);
    b->n_gen     = ht_args_int(args, "gen", 128);
    b->n_repeats = (int)ht_args_int(args, "repeat", 3);
    if (b->n_prompt < 1 || b->n_gen < 1 || b->n_prompt > 1 << 20 || b->n_gen > 1 << 20) { return ht_usage_error(err, "--prompt and --gen must be between 1 and 2^20"); }
    if (b->n_repeats < 1 || b->n_repeats > MAX_REPEATS) { return ht_usage_error(err, "--repeat must be between 1 and %d", MAX_REPEATS); }
    HT_TRY(ht_compute_parse(&b->compute, args, HT_COMPUTE_FAST, err));
    HT_TRY(ht_kv_type_parse(&b->kv_type, args, err));
    b->n_files = ht_args_n_positional(args);
    b->files   = calloc((size_t)b->n_files, sizeof *b->files);
    HT_CHECK(b->files, NOMEM, "bench");
    for (int i = 0; i < b->n_files; i++) {
        HT_TRY(ht_loaded_init(&b->files[i].loaded, ht_args_positional(args, i), b->compute, ctx, err));
        HT_TRY(ht_session_create(&b->files[i].session, b->files[i].loaded.model, b->n_prompt + b->n_gen, b->kv_type, ctx, err));
    }
done:
    return st;
}

static ht_status measure(bench* b, const ht_ctx* ctx, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    for (int r = 0; r < b->n_repeats; r++) {
        for (int i = 0; i < b->n_files; i++) {
            bench_file* f     = &b->files[i];
            ht_speed    speed = { 0 };
            HT_CHECK(!ht_cancelled(ctx), CANCELLED, "interrupted");
            HT_TRY(ht_speed_run(f->session, f->loaded.model, b->n_prompt, b->n_gen, ctx->seed, &speed, err));
            f->prompt_tps[r] = (double)b->n_prompt / speed.prompt_s;
            f->decode_tps[r] = (double)b->n_gen / speed.decode_s;
            f->ttft_ms[r]    = 1e3 * speed.prompt_s;
            ht_progress(ctx, "measuring", (uint64_t)(r * b->n_files + i + 1), (uint64_t)(b->n_repeats * b->n_files));
        }
    }
done:
    return st;
}

/* Bytes that decoding one token reads: the weights, and half of the final KV cache on average over the run. */
static double bytes_per_token(const bench* b, const bench_file* f)
{
    const double kv_per_token = (double)ht_session_kv_bytes(f->session) / (double)(b->n_prompt + b->n_gen);
    return (double)ht_model_bytes_per_token(f->loaded.model) + kv_per_token * ((double)b->n_prompt + 0.5 * (double)b->n_gen);
}

static ht_status report(bench* b, const ht_args* args, const ht_ctx* ctx, ht_error* err)
{
    char   cpu[128];
    cJSON* document = ht_args_json(args) ? ht_json_document("bench") : NULL;
    cJSON* list     = NULL;
    ht_cpu_model(cpu, sizeof cpu);
    if (document) {
        ht_json_add_text(document, "cpu", cpu);
        cJSON_AddStringToObject(document, "compute", ht_compute_name(b->compute));
        cJSON_AddStringToObject(document, "kv", ht_kv_type_name(b->kv_type));
        cJSON_AddNumberToObject(document, "n_prompt", (double)b->n_prompt);
        cJSON_AddNumberToObject(document, "n_gen", (double)b->n_gen);
        cJSON_AddNumberToObject(document, "n_repeats", b->n_repeats);
        ht_json_add_number(document, "read_bandwidth_bytes_per_s", b->bandwidth);
        list = cJSON_AddArrayToObject(document, "files");
    } else {
        printf("%s, %s, %d threads, compute %s, read bandwidth %.1f GB/s; prompt %" PRId64 ", decode %" PRId64 ", median of %d (lowest to highest)\n", cpu,
               ht_isa_name(ctx->isa), ctx->n_threads, ht_compute_name(b->compute), b->bandwidth / 1e9, b->n_prompt, b->n_gen, b->n_repeats);
        printf("%-40s %-8s %28s %28s %10s %10s\n", "file", "type", "prompt tokens/s", "decode tokens/s", "ms/token", "bandwidth");
    }
    for (int i = 0; i < b->n_files; i++) {
        bench_file*  f      = &b->files[i];
        const double prompt = median(f->prompt_tps, b->n_repeats), decode = median(f->decode_tps, b->n_repeats);
        const double ttft   = median(f->ttft_ms, b->n_repeats);
        const int    last   = b->n_repeats - 1; /* sorted by median() */
        const double share  = b->bandwidth > 0.0 ? bytes_per_token(b, f) * decode / b->bandwidth : 0.0;
        if (!document) {
            printf("%-40s %-8s %10.1f (%.1f to %.1f) %10.1f (%.1f to %.1f) %10.2f %9.1f%%\n", f->loaded.path, f->loaded.type_name, prompt, f->prompt_tps[0],
                   f->prompt_tps[last], decode, f->decode_tps[0], f->decode_tps[last], 1e3 / decode, 100.0 * share);
            continue;
        }
        cJSON* item = cJSON_CreateObject();
        ht_json_add_text(item, "file", f->loaded.path);
        cJSON_AddStringToObject(item, "type", f->loaded.type_name);
        cJSON_AddNumberToObject(item, "n_bytes", (double)f->loaded.n_bytes);
        cJSON_AddStringToObject(item, "isa", ht_isa_name(ctx->isa));
        cJSON_AddNumberToObject(item, "threads", ctx->n_threads);
        ht_json_add_number(item, "prompt_tokens_per_s", prompt);
        ht_json_add_number(item, "prompt_tokens_per_s_min", f->prompt_tps[0]);
        ht_json_add_number(item, "prompt_tokens_per_s_max", f->prompt_tps[last]);
        ht_json_add_number(item, "decode_tokens_per_s", decode);
        ht_json_add_number(item, "decode_tokens_per_s_min", f->decode_tps[0]);
        ht_json_add_number(item, "decode_tokens_per_s_max", f->decode_tps[last]);
        ht_json_add_number(item, "ttft_ms", ttft);
        ht_json_add_number(item, "time_per_token_ms", 1e3 / decode);
        ht_json_add_number(item, "bytes_per_token", bytes_per_token(b, f));
        ht_json_add_number(item, "bandwidth_share", share);
        cJSON_AddItemToArray(list, item);
    }
    if (document) { cJSON_AddNumberToObject(document, "peak_rss_bytes", (double)ht_peak_rss_bytes()); }
    return document ? ht_json_print(document, err) : HT_STATUS_OK;
}

static ht_status run(const ht_args* args, const ht_ctx* ctx, int* exit_code, ht_error* err)
{
    ht_status st = HT_STATUS_OK;
    bench     b  = { 0 };
    (void)exit_code;
    HT_TRY(prepare(&b, args, ctx, err));
    const double before = ht_read_bandwidth(ctx->n_threads, PROBE_BYTES);
    HT_TRY(measure(&b, ctx, err));
    const double after = ht_read_bandwidth(ctx->n_threads, PROBE_BYTES); /* the better of two: a busy machine hides bandwidth */
    b.bandwidth        = before > after ? before : after;
    HT_TRY(report(&b, args, ctx, err));
done:
    bench_deinit(&b);
    return st;
}

static const ht_option options[] = {
    { "prompt", 0, HT_OPTION_INT, "N", "prompt tokens (default 512)" },
    { "gen", 0, HT_OPTION_INT, "N", "tokens decoded one at a time after it (default 128)" },
    { "repeat", 0, HT_OPTION_INT, "N", "rounds over all files (default 3); the median is reported" },
    { "kv", 0, HT_OPTION_TEXT, "TYPE", "KV cache: f16 (default) or f32" },
    { "compute", 0, HT_OPTION_TEXT, "HOW", "fast (default) or exact" },
    { NULL, 0, HT_OPTION_FLAG, NULL, NULL },
};

const ht_command ht_command_bench = {
    "bench", "FILE...", "prompt and decode tokens/s, and the share of the memory bandwidth", NULL, options, 1, -1, run,
};
