/* report.c - attnlab report: results files as HTML pages, one of sweeps and one of evaluations. */
#include "experiments/commands/commands.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "experiments/commands/cli.h"
#include "experiments/quality/evaluation_file.h"
#include "experiments/quality/evaluation_page.h"
#include "experiments/report/page.h"

typedef struct arguments {
  const char *const *results;
  int count;
  const char *output;
  const char *times;
  report_limits limits;
} arguments;

static const cli_option options[] = {
    {NULL, 0, NULL, "results file", CLI_OTHER, 0, 0, 0, "RESULTS.h5"},
    {"output", 'o', "REPORT.html", "The page to write", CLI_NEED(output, "-o REPORT.html")},
    {"error", 0, "E", "Relative error that the answer begins with: 5% or 0.05 (default 10%)", CLI_READ},
    {"time", 0, "S", "Longest time of one execution, seconds (default any)", CLI_READ},
    {"memory", 0, "MIB", "Largest memory of plan and work, MiB (default any)", CLI_READ},
    {"times", 0, "FILE.csv", "Times on other devices, drawn beside our errors", CLI_SET(CLI_TEXT, times)},
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
        "Several files of sweeps share plots and tables: a label that several have names its file. "
        "attnlab compare says what differs between two. The evaluations of several files share a page, too; "
        "where there are results of both kinds, it is REPORT.models.html beside REPORT.html.\n\n"
        "--times draws the times of a text of comma-separated values beside our errors, marked with their "
        "device. Its "
        "first line names the columns: setting (a spec, quoted if it has a comma), device, n, milliseconds, "
        "perhaps source, and d, heads, batch, causal or other axes of a grid, in which a run must agree. A "
        "time "
        "without a run is a warning.\n\n"
        "Plots with the numbers behind them in tables: time and error against n, Pareto fronts, bounds "
        "against measured, error against position, speed-up over exact attention; warnings about "
        "noise; every run. The same results give the same bytes."};

/* Of each kind the files, in their order. */
typedef struct contents {
  const char **sweeps, **evaluations;
  size_t sweep_count, evaluation_count;
} contents;

static attn_status report_evaluations(const arguments *a, const contents *c, const char *output,
                                      const char *title) {
  quality_set set;
  const report_limits *l = &a->limits;
  if (c->sweep_count == 0 && (a->times || !isnan(l->error) || !isnan(l->time) || !isnan(l->memory)))
    return attn_fail(ATTN_EINVAL, "%s: the page of an evaluation has no times of others, and no limits",
                     a->results[0]);
  attn_status status = rows_load(&rows_of_evaluation, c->evaluations, c->evaluation_count, &set);
  if (status) return status;
  status = quality_write_page(output, &set, title);
  result_set_free(&set);
  return status;
}

static attn_status report_sweeps(const arguments *a, const contents *c, const char *title) {
  result_set set;
  attn_status status =
      c->sweep_count > 1 ? results_join(c->sweeps, c->sweep_count, &set) : results_read(c->sweeps[0], &set);
  if (status) return status;
  status = report_write(a->output, &set, title, &a->limits);
  result_set_free(&set);
  for (const other_time *t = a->limits.times.items;
       !status && t < a->limits.times.items + a->limits.times.count; t++)
    if (t->unmatched)
      fprintf(stderr, "attnlab report: warning: %s:%zu: %s\n", a->times, t->number, t->unmatched);
  return status;
}

/* Where the evaluations' page is, beside that of the sweeps: REPORT.models.html. */
static char *models_page(const char *output) {
  const size_t length = strlen(output), stem = length > 5 ? length - 5 : length;
  const bool html = strcmp(output + stem, ".html") == 0;
  return text_format("%.*s.models.html", (int)(html ? stem : length), output);
}

static attn_status report(arguments *a, const contents *c, const char *title) {
  const bool both = c->sweep_count && c->evaluation_count;
  char *models = both ? models_page(a->output) : text_format("%s", a->output);
  attn_status status = models ? ATTN_OK : ATTN_ENOMEM;
  const size_t count = (size_t)a->count;
  if (!status) status = output_check(a->output, &kind_report, a->results, count);
  if (!status && a->times) status = output_check(a->output, &kind_report, &a->times, 1);
  if (!status && both) status = output_check(models, &kind_report, a->results, count);
  if (!status && a->times) status = other_times_read(a->times, &a->limits.times);
  if (!status && c->sweep_count) status = report_sweeps(a, c, title);
  if (!status && c->evaluation_count) status = report_evaluations(a, c, models, title);
  if (!status && both) printf("%s: the evaluations of models\n", models);
  free(models);
  return status;
}

int cmd_report(int argc, char **argv) {
  arguments a = {.limits = {.error = (double)NAN, .time = (double)NAN, .memory = (double)NAN}};
  cli_parse(&parser, argc, argv, &a);
  char several[48];
  snprintf(several, sizeof several, "%d results files", a.count);
  const char *slash = strrchr(a.results[0], '/'), *first = slash ? slash + 1 : a.results[0],
             *title = a.count > 1 ? several : first;
  const size_t count = (size_t)a.count;
  contents c = {.sweeps = calloc(count, sizeof *c.sweeps),
                .evaluations = calloc(count, sizeof *c.evaluations)};
  attn_status status =
      c.sweeps && c.evaluations ? ATTN_OK : attn_fail(ATTN_ENOMEM, "out of memory for %zu files", count);
  for (size_t i = 0; !status && i < count; i++) {
    if (!quality_file_is(a.results[i])) c.sweeps[c.sweep_count++] = a.results[i];
    if (quality_file_has(a.results[i])) c.evaluations[c.evaluation_count++] = a.results[i];
  }
  if (!status) status = report(&a, &c, title);
  free(a.limits.times.items);
  free((void *)c.sweeps);
  free((void *)c.evaluations);
  return cli_report(argv[0], status);
}
