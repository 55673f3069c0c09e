/* pattern.c - attnlab pattern: which keys each query of a variant sees, as a 0/1 matrix of head 0. */
#include "experiments/commands/commands.h"

#include <inttypes.h>
#include <stdlib.h>

#include "attn_variant.h"
#include "data/data.h"
#include "experiments/commands/operands.h"

typedef struct arguments {
  const char *spec, *output;
  int64_t n;
  bool causal;
} arguments;

static const cli_option options[] = {
    {NULL, 0, NULL, "variant", CLI_TEXT, offsetof(arguments, spec), 0, 0, "SPEC, the variant,"},
    {"n", 'n', "N", "Number of queries and keys", CLI_INT, offsetof(arguments, n), 1, INT32_MAX, "--n N"},
    {"causal", 'c', NULL, "Query i sees key j iff j <= i", CLI_FLAG, offsetof(arguments, causal), 0, 0, NULL},
    {"output", 'o', "FILE", "The pattern, .npy, uint8 [n,n]: 1 where query i (row) sees key j", CLI_TEXT,
     offsetof(arguments, output), 0, 0, "-o FILE"},
    {0}};

static const cli_command parser = {.usage = "SPEC",
                                   .options = options,
                                   .plugins = true,
                                   .doc = "Which keys each query sees, for head 0 of a sparse variant.\v"
                                          "  attnlab pattern bigbird:block=16,seed=3 --n 1Ki -o mask.npy"};

static attn_status fill(const attn_view *view, const attn_problem *problem, uint8_t *mask) {
  attn_run *runs = malloc(sizeof *runs * (size_t)(view->pattern ? view->pattern->max_runs : 1));
  if (!runs) return attn_fail(ATTN_ENOMEM, "out of memory for a row of the pattern");
  for (int64_t i = 0; i < problem->n_q; i++) {
    uint8_t *row = mask + i * problem->n_kv;
    const int64_t count = attn_pattern_row(view->pattern, problem, 0, i, runs);
    for (int64_t r = 0; r < count; r++)
      for (int64_t key = 0; key < runs[r].count; key++) row[runs[r].first + key * runs[r].step] = 1;
  }
  free(runs);
  return ATTN_OK;
}

static attn_status pattern(const arguments *a) {
  /* A pattern does not depend on the head size. */
  attn_problem problem = attn_problem_make(1, 1, a->n, 64);
  problem.causal = a->causal;
  attn_plan *plan = NULL;
  attn_view view;
  uint8_t *mask = NULL;
  attn_status status = operands_check_spec(a->output, a->spec);
  if (!status) status = attn_plan_create(&plan, &problem, a->spec, NULL);
  if (status) goto out;
  if ((status = attn_plan_inspect(plan, &view))) goto out;
  if (!view.pattern && !(view.caps & ATTN_CAP_EXACT)) {
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: has no pattern: every query depends on every key it may see",
                       attn_plan_variant(plan)->name);
    goto out;
  }
  if (!(mask = calloc((size_t)a->n, (size_t)a->n))) {
    status = attn_fail(ATTN_ENOMEM, "--n %" PRId64 ": out of memory for n x n bytes", a->n);
    goto out;
  }
  if ((status = fill(&view, attn_plan_problem(plan), mask))) goto out;
  status = data_npy_write_u8(a->output, a->n, a->n, mask);
out:
  free(mask);
  attn_plan_destroy(plan);
  return status;
}

int cmd_pattern(int argc, char **argv) {
  arguments a = {0};
  cli_parse(&parser, argc, argv, &a);
  return cli_report(argv[0], pattern(&a));
}
