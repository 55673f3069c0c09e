/* report.c - attnlab report: results files, or an evaluation, as one HTML page. */
#include "experiments/commands/commands.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/commands/cli.h"
#include "experiments/quality/file.h"
#include "experiments/quality/page.h"
#include "experiments/report/page.h"

typedef struct arguments {
  const char *const *results;
  int count;
  const char *output;
  report_limits limits;
} arguments;

static const cli_option options[] = {
    {NULL, 0, NULL, "results file", CLI_OTHER, 0, 0, 0, "RESULTS.h5"},
    {"output", 'o', "REPORT.html", "The page to write", CLI_TEXT, offsetof(arguments, output), 0, 0,
     "-o REPORT.html"},
    {"error", 0, "E", "Relative error that the answer begins with: 5% or 0.05 (default 10%)", CLI_OTHER, 0, 0,
     0, NULL},
    {"time", 0, "S", "Longest time of one execution, seconds (default any)", CLI_OTHER, 0, 0, 0, NULL},
    {"memory", 0, "MIB", "Largest memory of plan and work, MiB (default any)", CLI_OTHER, 0, 0, 0, NULL},
    {0}};

static void read_limit(struct argp_state *state, report_limits *limits, const char *option,
                       const char *text) {
  if (strcmp(option, "--error") == 0) {
    limits->error = cli_share(state, option, text);
    return;
  }
  const double value = cli_real(state, option, text);
  if (!(value >= 0)) argp_error(state, "%s '%s': expected 0 or more", option, text);
  if (strcmp(option, "--time") == 0)
    limits->time = value;
  else
    limits->memory = value * 0x1p20;
}

/* All files at once: they follow each other. */
static void read_files(struct argp_state *state, void *input, const char *option, char *text) {
  arguments *a = input;
  if (option) {
    read_limit(state, &a->limits, option, text);
    return;
  }
  a->results = (const char *const *)&state->argv[state->next - 1];
  a->count = state->argc - state->next + 1;
  state->next = state->argc;
}

static const cli_command parser = {
    .usage = "RESULTS.h5...",
    .options = options,
    .read = read_files,
    .doc =
        "Writes results of a sweep, or of attnlab eval, as one page for a browser: no server, no network.\v"
        "  attnlab report results/default.h5 -o report.html\n"
        "  attnlab report results/*.h5 -o all.html\n"
        "  attnlab report mine.h5 --error 5% -o mine.html\n\n"
        "Several files of sweeps share a page, each with tables and plots of its own, chosen by File; "
        "attnlab compare says what differs between two.\n\n"
        "Plots with the numbers behind them in tables: time and error against n, Pareto fronts, bounds "
        "against measured, error against position, speed-up over exact attention; warnings about "
        "noise; every run. The same results give the same bytes."};

static bool is_evaluation(const char *path) {
  file_map content;
  if (file_map_open(path, &content)) return false;
  const bool is = kind_evaluation.is(path, &content);
  file_map_close(&content);
  return is;
}

static attn_status report_evaluation(const arguments *a, const char *title) {
  quality_set set;
  const report_limits *l = &a->limits;
  if (!isnan(l->error) || !isnan(l->time) || !isnan(l->memory))
    return attn_fail(ATTN_EINVAL, "%s: the page of an evaluation has no limits of error, time or memory",
                     a->results[0]);
  attn_status status = quality_read(a->results[0], &set);
  if (status) return status;
  status = quality_write_page(a->output, &set, title);
  result_set_free(&set);
  return status;
}

static attn_status report_sweep(const arguments *a, const char *title) {
  result_set set;
  attn_status status =
      a->count > 1 ? results_join(a->results, (size_t)a->count, &set) : results_read(a->results[0], &set);
  if (status) return status;
  status = report_write(a->output, &set, title, &a->limits);
  result_set_free(&set);
  return status;
}

int cmd_report(int argc, char **argv) {
  arguments a = {.limits = {(double)NAN, (double)NAN, (double)NAN}};
  cli_parse(&parser, argc, argv, &a);
  char several[48];
  snprintf(several, sizeof several, "%d results files", a.count);
  const char *slash = strrchr(a.results[0], '/'), *first = slash ? slash + 1 : a.results[0],
             *title = a.count > 1 ? several : first;
  attn_status status = output_check(a.output, &kind_report, a.results, (size_t)a.count);
  for (int i = 0; !status && a.count > 1 && i < a.count; i++)
    if (is_evaluation(a.results[i]))
      status = attn_fail(ATTN_EINVAL, "%s: an evaluation has a page of its own", a.results[i]);
  if (!status) status = is_evaluation(a.results[0]) ? report_evaluation(&a, title) : report_sweep(&a, title);
  return cli_report(argv[0], status);
}
