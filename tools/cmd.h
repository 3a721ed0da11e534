/*
 * The shape of a command: one row per command in tools/main.c's table, one file cmd_<name>.c per command.
 * Parsing, --help, and misuse messages come from the rows.
 */
#ifndef HT_TOOLS_CMD_H
#define HT_TOOLS_CMD_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "formats/base/ctx.h"
#include "formats/base/status.h"

/* Exit codes: the contract that scripts rely on. */
typedef enum ht_exit {
    HT_EXIT_OK = 0, HT_EXIT_NO = 1, HT_EXIT_USAGE = 2, HT_EXIT_INPUT = 3, HT_EXIT_SYSTEM = 4, HT_EXIT_BUG = 5, HT_EXIT_INTERRUPTED = 130
} ht_exit;

typedef enum ht_option_kind { HT_OPTION_FLAG, HT_OPTION_TEXT, HT_OPTION_INT, HT_OPTION_REAL } ht_option_kind;

/* An option: `--name=value`, `--name value`, or `-s value` when short_name is set. Repeatable ones are collected in order. */
typedef struct ht_option {
    const char*    name;
    char           short_name;  /* 0: none                              */
    ht_option_kind kind;
    const char*    value_name;  /* for --help: "TYPE"; NULL for flags   */
    const char*    help;
} ht_option;

typedef struct ht_args ht_args;

/* What was given. Counts are 0 for options not present. The value getters fall back to `fallback`. */
int         ht_args_n_positional(const ht_args* args);
const char* ht_args_positional(const ht_args* args, int index);
bool        ht_args_has(const ht_args* args, const char* name);
int         ht_args_count(const ht_args* args, const char* name);
const char* ht_args_text_at(const ht_args* args, const char* name, int index);
const char* ht_args_text(const ht_args* args, const char* name, const char* fallback);
int64_t     ht_args_int(const ht_args* args, const char* name, int64_t fallback);
double      ht_args_real(const ht_args* args, const char* name, double fallback);
bool        ht_args_json(const ht_args* args);  /* --json */

typedef struct ht_command {
    const char*      name;
    const char*      usage;    /* "SRC -t TYPE... -o OUT" */
    const char*      summary;  /* one line                */
    const char*      details;  /* for `help <command>`: paragraphs and examples; may be NULL */
    const ht_option* options;  /* ends with a NULL name; the common options (threads, isa, json, quiet, seed, progress) are added */
    int              n_positional_min, n_positional_max; /* max -1: any number */
    /*
     * Runs the command. On failure fills `err` and returns its status: main prints the one line and maps the status to the exit code.
     * On success sets *exit_code (HT_EXIT_OK, or HT_EXIT_NO when the answer is no).
     */
    ht_status (*run)(const ht_args* args, const ht_ctx* ctx, int* exit_code, ht_error* err);
} ht_command;

/* Misuse found by a command itself (status ARG, exit code 2, with the hint to `help <command>`). */
ht_status ht_usage_error(ht_error* err, const char* format, ...) __attribute__((format(printf, 2, 3)));

/* A document that starts with {"schema": "halftone.<command>/1"}; printing writes it to stdout with a newline and frees it. */
cJSON*    ht_json_document(const char* command);
ht_status ht_json_print(cJSON* document, ht_error* err);

/* Add a number; a non-finite one becomes null, with the reason under "<key>_reason". Strings: invalid UTF-8 is escaped. */
void ht_json_add_number(cJSON* object, const char* key, double value);
void ht_json_add_text(cJSON* object, const char* key, const char* text);

/* "1234567" -> "1.18 MiB"; returns buf. */
char* ht_format_bytes(uint64_t n_bytes, char* buf, size_t n_buf);

/* "105454432", "100 MiB", "12GB": bytes; units of 1000 and of 1024 kept apart. Errors: misuse of `option`. */
ht_status ht_parse_size(uint64_t* out, const char* option, const char* text, ht_error* err);

/* Wall-clock seconds from an arbitrary start, and the peak resident bytes of this process. */
double   ht_time_s(void);
uint64_t ht_peak_rss_bytes(void);

extern const ht_command ht_command_calibrate, ht_command_convert, ht_command_quantize, ht_command_inspect, ht_command_verify, ht_command_eval, ht_command_bench,
    ht_command_run, ht_command_types, ht_command_cpu;

#endif
