#include "runtime/speed.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int32_t ht_arg_max(const float* x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        if (x[i] > x[best]) { best = i; }
    }
    return (int32_t)best;
}

ht_status ht_speed_run(ht_session* session, const ht_model* model, int64_t n_prompt, int64_t n_gen, uint64_t seed, ht_speed* out, ht_error* err)
{
    ht_status     st      = HT_STATUS_OK;
    const int64_t n_vocab = ht_model_hparams(model)->n_vocab;
    float*        logits  = malloc((size_t)n_vocab * sizeof *logits);
    int32_t*      ids     = malloc((size_t)n_prompt * sizeof *ids);
    HT_CHECK(logits && ids, NOMEM, "speed run");
    for (int64_t i = 0; i < n_prompt; i++) { /* a linear congruential generator: Knuth, MMIX */
        seed   = seed * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((seed >> 33) % (uint64_t)n_vocab);
    }
    ht_session_reset(session);
    const double start = now_s();
    HT_TRY(ht_session_eval(session, ids, n_prompt, n_prompt - 1, logits, err));
    const double prompt_end = now_s();
    for (int64_t i = 0; i < n_gen; i++) {
        const int32_t id = ht_arg_max(logits, n_vocab);
        HT_TRY(ht_session_eval(session, &id, 1, 0, logits, err));
    }
    out->prompt_s = prompt_end - start;
    out->decode_s = now_s() - prompt_end;
done:
    free(logits);
    free(ids);
    return st;
}

/* Eight independent sums, so that the loads and not the additions are what is waited for. */
static uint64_t sum_words(const uint64_t* words, size_t n)
{
    uint64_t sums[8] = { 0 };
    for (size_t i = 0; i + 8 <= n; i += 8) {
        for (int k = 0; k < 8; k++) { sums[k] += words[i + (size_t)k]; }
    }
    return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

double ht_read_bandwidth(int n_threads, size_t n_bytes)
{
    enum { PASSES = 4, HUGE_PAGE = 2 << 20 };
    const size_t      n_words = (n_bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE / sizeof(uint64_t);
    uint64_t*         words   = aligned_alloc(HUGE_PAGE, n_words * sizeof *words);
    double            best    = 0.0;
    volatile uint64_t sink    = 0;
    if (!words) { return 0.0; }
    (void)madvise(words, n_words * sizeof *words, MADV_HUGEPAGE); /* as the weights are: 12.8 against 8.0 GB/s on one core of a Xeon VM */
    memset(words, 1, n_words * sizeof *words);
    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t     sum   = 0;
        const double start = now_s();
#pragma omp parallel for num_threads(n_threads) schedule(static) reduction(+ : sum)
        for (size_t part = 0; part < 64; part++) { sum += sum_words(words + part * (n_words / 64), n_words / 64); }
        const double rate = (double)(n_words * sizeof *words) / (now_s() - start);
        sink += sum;
        if (rate > best) { best = rate; }
    }
    (void)sink;
    free(words);
    return best;
}
