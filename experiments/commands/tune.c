/* tune.c - attnlab tune: measures block sizes and keeps those that beat the ones that follow from the
 * caches. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/commands/cli.h"
#include "experiments/commands/commands.h"
#include "experiments/support/table.h"
#include "experiments/runner/tune.h"
#include "experiments/runner/wisdom.h"

typedef struct arguments {
  bool quick;
  const char *output;
} arguments;

enum { KEY_QUICK = 1000 };

static const struct argp_option options[] = {
    {"quick", KEY_QUICK, NULL, 0, "Short measurements of short sequences", 0},
    {"output", 'o', "FILE", 0, "The wisdom file (default: the one that the other commands read)", 0},
    {0}};

static error_t parse(int key, char *value, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
  case KEY_QUICK:
    a->quick = true;
    return 0;
  case 'o':
    a->output = value;
    return 0;
  default:
    return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp parser = {
    options,
    parse,
    NULL,
    "Measures which block sizes of exact attention are fastest on this machine, in place of those that "
    "follow from its "
    "caches, and writes them to a wisdom file.\v"
    "The file is ATTNLAB_WISDOM, else attnlab/wisdom in the user's cache directory; commands that make plans "
    "read it "
    "unless told --no-wisdom. It is optional: sizes matter little where the working set fits the caches. A "
    "candidate is "
    "kept if its whole 95 % interval is faster, twice. The file then has what this run found and nothing "
    "else; with "
    "ATTN_ISA set, that is of one instruction set. Takes a few minutes; nothing else should run.",
    NULL,
    NULL,
    NULL};

static void add_ratio(sheet *s, const tune_candidate *c) {
  if (isnan(c->ratio))
    sheet_add(s, "");
  else
    sheet_add(s, "%.3f (%.3f ... %.3f)", c->ratio, c->low, c->high);
}

static void add_sizes(sheet *s, attn_block_sizes b) {
  sheet_add(s, "%" PRId64 " x %" PRId64, b.query, b.key);
}

static attn_status print_result(const tune_result *r) {
  static const char *const titles[] = {"isa", "dtype", "d", "blocks", "time over default's", "again", ""};
  enum { COLUMNS = sizeof titles / sizeof *titles };
  sheet s = {.columns = COLUMNS, .left = 2};
  for (size_t i = 0; i < COLUMNS; i++) sheet_add(&s, "%s", titles[i]);
  for (size_t i = 0; i < r->count; i++) {
    const tune_case *c = &r->cases[i];
    for (size_t j = 0; j <= c->count; j++) {
      const tune_candidate *candidate = j ? &c->candidates[j - 1] : NULL;
      const bool best = candidate && candidate->blocks.query == c->again.blocks.query &&
                        candidate->blocks.key == c->again.blocks.key;
      sheet_add(&s, "%s", c->isa);
      sheet_add(&s, "%s", c->dtype == ATTN_F64 ? "f64" : "f32");
      sheet_add(&s, "%" PRId64, c->d);
      add_sizes(&s, candidate ? candidate->blocks : c->suggested);
      if (candidate)
        add_ratio(&s, candidate);
      else
        sheet_add(&s, "1");
      if (best)
        add_ratio(&s, &c->again);
      else
        sheet_add(&s, "");
      sheet_add(&s, "%s",
                !candidate          ? (c->chosen ? "default" : "default kept")
                : best && c->chosen ? "chosen"
                                    : "");
    }
  }
  const attn_status status = sheet_print(stdout, &s, TABLE_TEXT);
  sheet_free(&s);
  return status;
}

static void print_outcome(const tune_result *r, const char *path) {
  size_t chosen = 0;
  for (size_t i = 0; i < r->count; i++) chosen += r->cases[i].chosen;
  printf("\nThe processors were ours %.0f %% of the time: below 95, measure again when nothing else runs.\n",
         100 * r->had / r->passed);
  printf("Default kept in %zu of %zu cases", r->count - chosen, r->count);
  printf(chosen ? "; %zu written to %s\n" : ": %zu entries in %s\n", chosen, path);
}

int cmd_tune(int argc, char **argv) {
  arguments a = {0};
  argp_parse(&parser, argc, argv, 0, NULL, &a);
  tune_result *result = calloc(1, sizeof *result);
  char *lines = NULL, *own = wisdom_path();
  const char *path = a.output ? a.output : own;
  attn_status status = ATTN_OK;
  if (!result)
    status = attn_fail(ATTN_ENOMEM, "no memory for the measurements");
  else if (!path)
    status = attn_fail(ATTN_EINVAL, "no place for the wisdom; -o FILE names one");
  if (status == ATTN_OK) status = tune_measure(a.quick, result);
  if (status == ATTN_OK) status = print_result(result);
  if (status == ATTN_OK && !(lines = tune_lines(result))) status = ATTN_ENOMEM;
  if (status == ATTN_OK) status = wisdom_save(path, !a.output, lines);
  if (status == ATTN_OK) print_outcome(result, path);
  free(lines);
  free(own);
  free(result);
  return cli_report(argv[0], status);
}
