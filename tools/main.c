/* The program: finds the command, fills the context, runs it, and turns its status into one line and an exit code. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/args.h"
#include "tools/blas.h"

static const ht_command* const commands[] = {
    &ht_command_calibrate,
    &ht_command_convert,
    &ht_command_quantize,
    &ht_command_inspect,
    &ht_command_verify,
    &ht_command_eval,
    &ht_command_bench,
    &ht_command_run,
    &ht_command_types,
    &ht_command_cpu,
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static volatile sig_atomic_t interrupted;

/* First Ctrl-C: the workers stop at their next item and clean up. Second: the default action, at once. */
static void on_interrupt(int signal_number)
{
    interrupted = 1;
    signal(signal_number, SIG_DFL);
}

static void log_to_stderr(void* user, ht_log_level level, const char* text)
{
    char line[2048];
    (void)user;
    fprintf(stderr, "%s%s\n", level == HT_LOG_LEVEL_WARN ? "warning: " : "", ht_printable(text, line, sizeof line));
}

/* --- progress: done, total, rate and time left, at most 6 lines a second, over one terminal line --------------------------- */

typedef struct progress_line {
    double started_s, last_s;
    char   phase[64];
} progress_line;

static void show_progress(void* user, const char* phase, uint64_t done, uint64_t total)
{
    progress_line* line = user;
    const double   now  = ht_time_s();
    if (strcmp(line->phase, phase) != 0) {
        snprintf(line->phase, sizeof line->phase, "%s", phase);
        line->started_s = now;
        line->last_s    = 0.0;
    }
    if (done < total && now - line->last_s < 1.0 / 6.0) { return; }
    line->last_s = now;
    const double elapsed = now - line->started_s;
    const double left    = done > 0 ? elapsed * (double)(total - done) / (double)done : 0.0;
    fprintf(stderr, "\r\033[K%s %3.0f%%  %.0f s left", phase, total ? 100.0 * (double)done / (double)total : 0.0, left);
    if (done >= total) { fprintf(stderr, "\r\033[K"); }
    fflush(stderr);
}

static ht_status fill_context(ht_ctx* ctx, const ht_args* args, progress_line* line, ht_error* err)
{
    const int64_t n_threads = ht_args_int(args, "threads", ht_cpu_n_cores());
    const char*   progress  = ht_args_text(args, "progress", "auto");
    if (n_threads < 1 || n_threads > 1024) { return ht_usage_error(err, "--threads: %lld is not between 1 and 1024", (long long)n_threads); }
    if (strcmp(progress, "auto") != 0 && strcmp(progress, "always") != 0 && strcmp(progress, "never") != 0) {
        return ht_usage_error(err, "--progress: \"%s\" is not auto, always or never", progress);
    }
    const ht_status st = ht_isa_parse(&ctx->isa, ht_args_text(args, "isa", getenv("HT_ISA")), err);
    if (st != HT_STATUS_OK) {
        err->usage = 1;
        return st;
    }
    const bool quiet = ht_args_has(args, "quiet");
    ctx->n_threads   = (int)n_threads;
    ctx->seed        = (uint64_t)ht_args_int(args, "seed", 0);
    ctx->cancel      = &interrupted;
    ctx->log.fn      = quiet ? NULL : log_to_stderr;
    if (strcmp(progress, "always") == 0 || (strcmp(progress, "auto") == 0 && !quiet && isatty(STDERR_FILENO))) {
        ctx->progress      = show_progress;
        ctx->progress_user = line;
    }
    return HT_STATUS_OK;
}

static int exit_code_of(const ht_error* err)
{
    if (err->usage) { return HT_EXIT_USAGE; }
    switch (err->status) {
    case HT_STATUS_OK: return HT_EXIT_OK;
    case HT_STATUS_ARG:
    case HT_STATUS_FORMAT:
    case HT_STATUS_BOUNDS:
    case HT_STATUS_UNSUPPORTED:
    case HT_STATUS_NUMERIC: return HT_EXIT_INPUT;
    case HT_STATUS_NOMEM:
    case HT_STATUS_IO:
    case HT_STATUS_DEVICE: return HT_EXIT_SYSTEM;
    case HT_STATUS_CANCELLED: return HT_EXIT_INTERRUPTED;
    }
    return HT_EXIT_BUG;
}

static int fail(const ht_error* err, const char* command)
{
    char line[2048];
    fprintf(stderr, "halftone: %s\n", ht_error_format(err, line, sizeof line));
    if (err->usage) { fprintf(stderr, "see: halftone help%s%s\n", command ? " " : "", command ? command : ""); }
    return exit_code_of(err);
}

static const ht_command* find_command(const char* name)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i]->name, name) == 0) { return commands[i]; }
    }
    return NULL;
}

static void print_overview(FILE* to)
{
    fprintf(to, "halftone " HT_VERSION ": from fp16/bf16 checkpoints to small GGUF files that are known to be good\n\nCommands\n");
    for (int i = 0; i < N_COMMANDS; i++) { fprintf(to, "  %-10s %s\n", commands[i]->name, commands[i]->summary); }
    fprintf(to, "  %-10s %s\n\nhalftone help COMMAND shows its options.\n", "help", "this list, or the help of one command");
}

static int unknown_command(const char* name)
{
    ht_error err = HT_ERROR_INIT;
    ht_usage_error(&err, "unknown command \"%s\"", name);
    return fail(&err, NULL);
}

int main(int argc, char** argv)
{
    ht_error      err       = HT_ERROR_INIT;
    ht_ctx        ctx       = { .n_threads = 1 };
    ht_args*      args      = NULL;
    progress_line line      = { 0 };
    int           exit_code = HT_EXIT_OK;

    if (argc < 2) {
        print_overview(stderr);
        return HT_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("halftone " HT_VERSION "\n");
        return HT_EXIT_OK;
    }
    const bool is_help = strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
    if (is_help && argc < 3) {
        print_overview(stdout);
        return HT_EXIT_OK;
    }
    const char*       name    = is_help ? argv[2] : argv[1];
    const ht_command* command = find_command(name);
    if (!command) { return unknown_command(name); }
    if (is_help) {
        ht_command_print_help(command);
        return HT_EXIT_OK;
    }
    if (ht_args_parse(&args, command, argc - 2, argv + 2, &err) != HT_STATUS_OK) { return fail(&err, command->name); }
    if (ht_args_has(args, "help")) {
        ht_command_print_help(command);
        ht_args_free(args);
        return HT_EXIT_OK;
    }
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
    signal(SIGXFSZ, SIG_IGN); /* a file-size limit becomes a write error that is reported */
    signal(SIGPIPE, SIG_IGN);
    ht_status st = fill_context(&ctx, args, &line, &err);
    if (st == HT_STATUS_OK && (command == &ht_command_calibrate || command == &ht_command_quantize)) { ht_blas_choose_kernels(ctx.isa, argv); }
    if (st == HT_STATUS_OK) { st = command->run(args, &ctx, &exit_code, &err); }
    ht_args_free(args);
    if (st != HT_STATUS_OK) { return fail(&err, command->name); }
    if (fflush(stdout) != 0) {
        ht_fail(&err, HT_STATUS_IO, "cannot write to standard output: %s", strerror(errno));
        return fail(&err, command->name);
    }
    return exit_code;
}
