/* cli.c - exit codes, diagnostics, numbers and arguments of the command line. */
#include "experiments/commands/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_tools.h"
#include "data/support/json_text.h"
#include "experiments/functions/function.h"
#include "experiments/grid/value_texts.h"
#include "experiments/support/escape.h"
#include "experiments/support/names.h"

int cli_exit_code(attn_status status) {
  switch (status) {
  case ATTN_OK:
    return 0;
  case ATTN_EFOREIGN:
  case ATTN_ENOMEM:
    return EXIT_IO;
  default:
    return EXIT_USAGE;
  }
}

int cli_verdict_code(size_t violations, size_t failures) {
  return violations ? EXIT_BOUND : failures ? EXIT_RUNS : 0;
}

int cli_report(const char *command, attn_status status) {
  if (status) {
    fprintf(stderr, "%s: ", command);
    escape_put(stderr, attn_last_error());
    fputc('\n', stderr);
  }
  return cli_exit_code(status);
}

int64_t cli_int(struct argp_state *state, const char *option, const char *text, int64_t min, int64_t max) {
  int64_t value = 0;
  if (!attn_int_parse(text, &value) || value < min || value > max)
    argp_error(state, "%s '%s': expected an integer from %" PRId64 " to %" PRId64, option, text, min, max);
  return value;
}

double cli_real(struct argp_state *state, const char *option, const char *text) {
  double value = 0;
  if (!value_real(text, &value)) argp_error(state, "%s '%s': expected a finite number", option, text);
  return value;
}

double cli_share(struct argp_state *state, const char *option, const char *text) {
  char number[32];
  const size_t length = strcspn(text, " %");
  const bool percent = text[length] != '\0';
  if (length >= sizeof number || strcmp(text + length + strspn(text + length, " "), percent ? "%" : "") != 0)
    argp_error(state, "%s '%s': expected a share, such as 5%% or 0.05", option, text);
  snprintf(number, sizeof number, "%.*s", (int)length, text);
  const double share = cli_real(state, option, number);
  if (!percent && !(share < 1))
    argp_error(state, "%s %s: write %s%%, or a share below 1", option, text, text);
  if (!(share >= 0)) argp_error(state, "%s '%s': expected 0%% or more", option, text);
  return percent ? share / 100 : share;
}

attn_dtype cli_dtype(struct argp_state *state, const char *option, const char *text, const char *known) {
  attn_dtype type = ATTN_F32;
  if (!attn_dtype_find(text, &type) || attn_numbers[type].arithmetic != type)
    argp_error(state, "%s '%s': expected %s", option, text, known);
  return type;
}

void cli_require(struct argp_state *state, const void *value, const char *name) {
  if (!value) argp_error(state, "%s is missing", name);
}

void cli_fail(struct argp_state *state) {
  char *message = escape_text(attn_last_error());
  argp_error(state, "%s", message ? message : "out of memory");
  free(message);
}

static names plugins; /* of the command line */

void cli_put_plugins(FILE *out) {
  for (size_t i = 0; i < plugins.count; i++) {
    fputs(" --plugin ", out);
    escape_put_word(out, plugins.items[i]);
  }
}

static error_t parse_plugin(int key, char *arg, struct argp_state *state) {
  if (key != 'P') return ARGP_ERR_UNKNOWN;
  if (function_load(arg) || names_add(&plugins, arg)) cli_fail(state);
  return 0;
}

static const struct argp_option plugin_options[] = {
    {"plugin", 'P', "FILE", 0,
     "Load the variant in this shared object, or the function python:MODULE.NAME (may be repeated)", 0},
    {0}};

static const struct argp plugin_argp = {.options = plugin_options, .parser = parse_plugin};

static const struct argp_child plugin_children[] = {{&plugin_argp, 0, NULL, 0}, {0}};

enum { KEYS = 256, OPTIONS_MAX = 40 };

typedef struct parsing {
  const cli_command *command;
  void *arguments;
  bool given[OPTIONS_MAX];
} parsing;

static void set_option(const parsing *p, const cli_option *o, bool given, char *text,
                       struct argp_state *state) {
  void *at = (char *)p->arguments + o->offset;
  char option[32];
  snprintf(option, sizeof option, "--%s", o->name ? o->name : "");
  switch (o->type) {
  case CLI_TEXT:
    if (!o->name && given)
      argp_error(state, "'%s': extra argument; the %s is already '%s'", text, o->help, *(char **)at);
    *(const char **)at = text;
    break;
  case CLI_FLAG:
    *(bool *)at = true;
    break;
  case CLI_INT:
    *(int64_t *)at = cli_int(state, option, text, o->min, o->max);
    break;
  case CLI_THREADS:
    *(int *)at = (int)cli_int(state, option, text, 1, 4096);
    break;
  case CLI_REAL:
    *(double *)at = cli_real(state, option, text);
    break;
  case CLI_OTHER:
    p->command->read(state, p->arguments, o->name ? option : NULL, text);
  }
}

const char *cli_given(const struct argp_state *state, const char *const *wanted) {
  const parsing *p = state->input;
  const cli_option *o = p->command->options;
  for (; *wanted; wanted++)
    for (int i = 0; o[i].help; i++)
      if (p->given[i] && o[i].name && strcmp(o[i].name, *wanted) == 0) return *wanted;
  return NULL;
}

/* argp's key of an option: its letter, else its place beyond KEYS. */
static int key_of(const cli_option *o, int place) {
  return !o->name ? ARGP_KEY_ARG : o->letter ? o->letter : KEYS + place;
}

static error_t parse(int key, char *text, struct argp_state *state) {
  parsing *p = state->input;
  const cli_option *o = p->command->options;
  for (int i = 0; o && o[i].help; i++) {
    if (key == ARGP_KEY_END && o[i].missing && !p->given[i]) argp_error(state, "%s is missing", o[i].missing);
    if (key != key_of(&o[i], i)) continue;
    set_option(p, &o[i], p->given[i], text, state);
    p->given[i] = true;
    return 0;
  }
  if (key != ARGP_KEY_END) return ARGP_ERR_UNKNOWN;
  if (p->command->complete) p->command->complete(state, p->arguments);
  return 0;
}

/* argp's help_filter. */
static char *help_with_list(int key, const char *text, void *input) {
  const parsing *p = input;
  char *whole = NULL;
  size_t size;
  FILE *stream = key == ARGP_KEY_HELP_POST_DOC ? open_memstream(&whole, &size) : NULL;
  if (!stream) return (char *)(uintptr_t)text;
  p->command->list(stream);
  fputs(text, stream);
  attn_stream_text(stream, &whole);
  return whole;
}

void cli_parse(const cli_command *command, int argc, char **argv, void *arguments) {
  parsing p = {.command = command, .arguments = arguments};
  struct argp_option options[OPTIONS_MAX + 1] = {{0}};
  int count = 0;
  for (int i = 0; command->options && command->options[i].help; i++) {
    const cli_option *o = &command->options[i];
    const int flags = *o->help ? 0 : OPTION_HIDDEN;
    if (o->name) options[count++] = (struct argp_option){o->name, key_of(o, i), o->value, flags, o->help, 0};
  }
  /* Without options NULL: glibc keeps the memory of an empty list. */
  const struct argp parser = {count ? options : NULL,
                              parse,
                              command->usage,
                              command->doc,
                              command->plugins ? plugin_children : NULL,
                              command->list ? help_with_list : NULL,
                              NULL};
  if (argp_parse(&parser, argc, argv, 0, NULL, &p)) /* what is wrong with arguments has ended it */
    exit(cli_report(argv[0], attn_fail(ATTN_ENOMEM, "no memory for the arguments")));
}

const char *cli_label(const char *name, char *text, size_t size) {
  snprintf(text, size, "%s", name);
  for (char *c = text; *c; c++)
    if (*c == '_') *c = ' ';
  return text;
}

attn_status cli_print_json(const json_t *document) {
  return json_write(stdout, document, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
}

int cli_close_stdout(const char *command, int exit_code) {
  errno = 0;
  const bool failed = fflush(stdout) != 0;
  const int reason = errno;
  if ((!failed && !ferror(stdout)) || exit_code == EXIT_IO) return exit_code;
  if (reason != EPIPE)
    fprintf(stderr, "%s: standard output: %s\n", command, reason ? strerror(reason) : "write error");
  return EXIT_IO;
}
