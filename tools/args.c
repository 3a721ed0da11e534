/* Command-line parsing from the rows of ht_command, and the help that comes from the same rows. */
#include "tools/args.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct given_option {
    const ht_option* option;
    const char*      text;
} given_option;

struct ht_args {
    const ht_command* command;
    const char**      positional; /* point into argv */
    int               n_positional;
    given_option*     given;
    int               n_given;
};

const ht_option ht_common_options[] = {
    { "threads", 0, HT_OPTION_INT, "N", "worker threads (default: physical cores)" },
    { "isa", 0, HT_OPTION_TEXT, "NAME", "cap the instruction set: auto scalar avx2 avxvnni avx512 avx512vnni amx neon (or HT_ISA)" },
    { "json", 0, HT_OPTION_FLAG, NULL, "print one JSON document on stdout instead of text" },
    { "quiet", 0, HT_OPTION_FLAG, NULL, "no talk on stderr except errors" },
    { "seed", 0, HT_OPTION_INT, "N", "seed of everything random (default 0)" },
    { "progress", 0, HT_OPTION_TEXT, "WHEN", "auto, always or never (default auto: when stderr is a terminal)" },
    { "help", 'h', HT_OPTION_FLAG, NULL, "this text" },
    { NULL, 0, HT_OPTION_FLAG, NULL, NULL },
};

static const ht_option* find_in(const ht_option* options, const char* name, size_t n_name, char short_name)
{
    for (const ht_option* o = options; o && o->name; o++) {
        if (n_name > 0 && strlen(o->name) == n_name && memcmp(o->name, name, n_name) == 0) { return o; }
        if (short_name && o->short_name == short_name) { return o; }
    }
    return NULL;
}

static const ht_option* find_option(const ht_command* command, const char* name, size_t n_name, char short_name)
{
    const ht_option* o = find_in(command->options, name, n_name, short_name);
    return o ? o : find_in(ht_common_options, name, n_name, short_name);
}

ht_status ht_usage_error(ht_error* err, const char* format, ...)
{
    char    text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ht_fail(err, HT_STATUS_ARG, "%s", text);
    if (err) { err->usage = 1; }
    return HT_STATUS_ARG;
}

static ht_status check_value(const ht_option* option, const char* text, ht_error* err)
{
    char* end = NULL;
    errno     = 0;
    if (option->kind == HT_OPTION_INT) { (void)strtoll(text, &end, 10); }
    if (option->kind == HT_OPTION_REAL) { (void)strtod(text, &end); }
    if (end && (end == text || *end != '\0' || errno == ERANGE)) {
        return ht_usage_error(err, "--%s: \"%s\" is not a%s number", option->name, text,
                              option->kind == HT_OPTION_INT ? " whole" : "");
    }
    return HT_STATUS_OK;
}

/* --name=value, --name value, -xvalue, -x value; everything after "--" is positional. */
ht_status ht_args_parse(ht_args** out, const ht_command* command, int argc, char** argv, ht_error* err)
{
    ht_status st         = HT_STATUS_OK;
    bool      only_files = false;
    ht_args*  args       = calloc(1, sizeof *args);
    HT_CHECK(args, NOMEM, "arguments");
    args->command    = command;
    args->positional = calloc((size_t)argc + 1, sizeof *args->positional);
    args->given      = calloc((size_t)argc + 1, sizeof *args->given);
    HT_CHECK(args->positional && args->given, NOMEM, "arguments");
    for (int i = 0; i < argc; i++) {
        const char* word = argv[i];
        if (only_files || word[0] != '-' || word[1] == '\0') {
            args->positional[args->n_positional++] = word;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            only_files = true;
            continue;
        }
        const bool   is_long = word[1] == '-';
        const char*  name    = word + (is_long ? 2 : 1);
        const size_t n_name  = is_long ? strcspn(name, "=") : 0;
        const char*  value   = is_long ? (name[n_name] ? name + n_name + 1 : NULL) : (name[1] ? name + 1 : NULL);
        const ht_option* option = find_option(command, name, n_name, is_long ? 0 : name[0]);
        if (!option) {
            st = ht_usage_error(err, "unknown option \"%s\"", word);
            goto done;
        }
        if (option->kind == HT_OPTION_FLAG && value) {
            st = ht_usage_error(err, "--%s takes no value", option->name);
            goto done;
        }
        if (option->kind != HT_OPTION_FLAG && !value) {
            if (i + 1 >= argc) {
                st = ht_usage_error(err, "--%s needs a value (%s)", option->name, option->value_name);
                goto done;
            }
            value = argv[++i];
        }
        if (value) { HT_TRY(check_value(option, value, err)); }
        args->given[args->n_given++] = (given_option){ option, value };
    }
    if (!ht_args_has(args, "help")) {
        if (args->n_positional < command->n_positional_min) {
            st = ht_usage_error(err, "%s needs: %s", command->name, command->usage);
            goto done;
        }
        if (command->n_positional_max >= 0 && args->n_positional > command->n_positional_max) {
            st = ht_usage_error(err, "unexpected argument \"%s\"", args->positional[command->n_positional_max]);
            goto done;
        }
    }
    *out = args;
    args = NULL;
done:
    ht_args_free(args);
    return st;
}

void ht_args_free(ht_args* args)
{
    if (!args) { return; }
    free(args->positional);
    free(args->given);
    free(args);
}

int         ht_args_n_positional(const ht_args* args) { return args->n_positional; }
const char* ht_args_positional(const ht_args* args, int index) { return args->positional[index]; }

int ht_args_count(const ht_args* args, const char* name)
{
    int n = 0;
    for (int i = 0; i < args->n_given; i++) { n += strcmp(args->given[i].option->name, name) == 0; }
    return n;
}

bool ht_args_has(const ht_args* args, const char* name) { return ht_args_count(args, name) > 0; }

const char* ht_args_text_at(const ht_args* args, const char* name, int index)
{
    for (int i = 0; i < args->n_given; i++) {
        if (strcmp(args->given[i].option->name, name) == 0 && index-- == 0) { return args->given[i].text; }
    }
    return NULL;
}

/* The last one given wins, as usual on a command line. */
const char* ht_args_text(const ht_args* args, const char* name, const char* fallback)
{
    const int n = ht_args_count(args, name);
    return n > 0 ? ht_args_text_at(args, name, n - 1) : fallback;
}

int64_t ht_args_int(const ht_args* args, const char* name, int64_t fallback)
{
    const char* text = ht_args_text(args, name, NULL);
    return text ? strtoll(text, NULL, 10) : fallback;
}

double ht_args_real(const ht_args* args, const char* name, double fallback)
{
    const char* text = ht_args_text(args, name, NULL);
    return text ? strtod(text, NULL) : fallback;
}

bool ht_args_json(const ht_args* args) { return ht_args_has(args, "json"); }

static void print_options(const ht_option* options)
{
    for (const ht_option* o = options; o && o->name; o++) {
        char left[64], dash[8] = "";
        if (o->short_name) { snprintf(dash, sizeof dash, "-%c, ", o->short_name); }
        snprintf(left, sizeof left, "%s--%s%s%s", dash, o->name, o->value_name ? " " : "", o->value_name ? o->value_name : "");
        printf("  %-28s %s\n", left, o->help);
    }
}

void ht_command_print_help(const ht_command* command)
{
    printf("halftone %s %s\n\n%s\n", command->name, command->usage, command->summary);
    if (command->details) { printf("\n%s\n", command->details); }
    if (command->options && command->options->name) {
        printf("\nOptions\n");
        print_options(command->options);
    }
    printf("\nCommon options\n");
    print_options(ht_common_options);
}
