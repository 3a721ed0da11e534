/*
 * What travels with every long-running call: threads, instruction set, log, cancellation. A plain struct, filled once by the program and
 * read-only afterwards, so it may be shared by threads. There are no mutable globals beside it.
 */
#ifndef HT_BASE_CTX_H
#define HT_BASE_CTX_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "formats/base/cpu.h"
#include "formats/base/log.h"
#include "formats/base/status.h"

typedef struct ht_ctx {
    int      n_threads;  /* >= 1; OpenMP regions use exactly this many      */
    ht_isa   isa;        /* the most that kernels may use on this machine   */
    ht_log   log;
    uint64_t seed;
    const volatile sig_atomic_t* cancel; /* non-zero once the user interrupts; NULL: never */
    /* Progress of the current phase, called at work-item granularity from one thread at a time; NULL: none. */
    void (*progress)(void* user, const char* phase, uint64_t done, uint64_t total);
    void* progress_user;
} ht_ctx;

static inline bool ht_cancelled(const ht_ctx* ctx) { return ctx && ctx->cancel && *ctx->cancel != 0; }

static inline void ht_progress(const ht_ctx* ctx, const char* phase, uint64_t done, uint64_t total)
{
    if (ctx && ctx->progress) { ctx->progress(ctx->progress_user, phase, done, total); }
}

#endif
