/* cli.c - exit codes, diagnostics, numbers and arguments of the command line. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/commands/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "experiments/grid/values.h"

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
  if (status) fprintf(stderr, "%s: %s\n", command, attn_last_error());
  return cli_exit_code(status);
}

int64_t cli_int(struct argp_state *state, const char *option, const char *text, int64_t min, int64_t max) {
  int64_t value = 0;
  if (!value_int(text, &value) || value < min || value > max)
    argp_error(state, "%s '%s': expected an integer from %" PRId64 " to %" PRId64, option, text, min, max);
  return value;
}

double cli_real(struct argp_state *state, const char *option, const char *text) {
  double value = 0;
  if (!value_real(text, &value)) argp_error(state, "%s '%s': expected a finite number", option, text);
  return value;
}

void cli_argument(struct argp_state *state, const char **value, const char *noun, const char *text) {
  if (*value) argp_error(state, "'%s': one %s is expected, and it is '%s'", text, noun, *value);
  *value = text;
}

void cli_require(struct argp_state *state, const void *value, const char *name) {
  if (!value) argp_error(state, "%s is missing", name);
}

static error_t parse_plugin(int key, char *arg, struct argp_state *state) {
  if (key != 'P') return ARGP_ERR_UNKNOWN;
  if (attn_plugin_load(arg)) argp_error(state, "%s", attn_last_error());
  return 0;
}

static const struct argp_option plugin_options[] = {
    {"plugin", 'P', "FILE", 0, "Load the variant in this shared object (may be repeated)", 0}, {0}};

static const struct argp plugin_argp = {.options = plugin_options, .parser = parse_plugin};

const struct argp_child cli_plugin_children[] = {{&plugin_argp, 0, NULL, 0}, {0}};

int cli_close_stdout(const char *command, int exit_code) {
  errno = 0;
  const bool failed = fflush(stdout) != 0;
  const int reason = errno;
  if ((!failed && !ferror(stdout)) || exit_code == EXIT_IO) return exit_code;
  if (reason != EPIPE)
    fprintf(stderr, "%s: standard output: %s\n", command, reason ? strerror(reason) : "write error");
  return EXIT_IO;
}
