/* Parsing of one command's arguments; what commands themselves use is in cmd.h. */
#ifndef HT_TOOLS_ARGS_H
#define HT_TOOLS_ARGS_H

#include "tools/cmd.h"

extern const ht_option ht_common_options[]; /* every command has them; ends with a NULL name */

/* argv without program and command name. Keeps pointers into argv. Errors: ARG (misuse). Free with ht_args_free (NULL allowed). */
ht_status ht_args_parse(ht_args** out, const ht_command* command, int argc, char** argv, ht_error* err);
void      ht_args_free(ht_args* args);

void ht_command_print_help(const ht_command* command);

#endif
