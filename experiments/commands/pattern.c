/* pattern.c - attnlab pattern: which keys each query of a variant sees, as a 0/1 matrix or as compressed
 * sparse rows; of a variant that selects keys, what it selects from the Q and K of a file. */
#include "experiments/commands/commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "data/data.h"
#include "data/formats/kinds.h"
#include "experiments/commands/operands.h"
#include "experiments/reference/seen.h"

typedef struct arguments {
  const char *spec, *in, *output;
  int64_t n, heads;
  bool causal;
} arguments;

static const cli_option options[] = {
    {NULL, 0, NULL, "variant", CLI_NEED(spec, "SPEC, the variant,")},
    {"n", 'n', "N", "Number of queries and keys", CLI_RANGE(n, 1, INT32_MAX)},
    {"heads", 0, "N", "Number of heads (default 1)", CLI_RANGE(heads, 1, INT32_MAX)},
    {"in", 0, "FILE",
     "Queries, keys and heads as of q and k in this file (HDF5, safetensors); what is selected is selected "
     "from its "
     "first batch entry",
     CLI_SET(CLI_TEXT, in)},
    {"causal", 'c', NULL, "Query i sees key j iff j <= i", CLI_SET(CLI_FLAG, causal)},
    {"output", 'o', "FILE",
     "The pattern. NAME.h5: indptr and indices, the rows of one head after another (SciPy's CSR), as "
     "graph:kind=file reads them. Else .npy, uint8 [n,n], or [heads,n,n] if heads differ: 1 where query i "
     "(row) "
     "sees key j, whatever weight it is given",
     CLI_NEED(output, "-o FILE")},
    {0}};

static void complete(struct argp_state *state, void *input) {
  const arguments *a = input;
  if (!a->in == !a->n) argp_error(state, "--n N or --in FILE is needed, and not both");
  if (a->in && a->heads) argp_error(state, "--heads goes with --n, --in %s has its own", a->in);
}

static const cli_command parser = {.usage = "SPEC",
                                   .options = options,
                                   .plugins = true,
                                   .complete = complete,
                                   .doc = "Computes which keys each query of a sparse variant sees.\v"
                                          "  attnlab pattern bigbird:block=16,seed=3 --n 1Ki -o mask.npy\n"
                                          "  attnlab pattern topk:k=16 --in qkv.h5 --causal -o picked.h5\n"
                                          "  attnlab pattern longformer --in qkv.h5 --causal -o edges.h5"};

/* The rows of a plan's pattern or selection, of the heads that differ. */
typedef struct rows {
  seen_keys seen; /* a selection */
  const attn_pattern *pattern;
  const attn_problem *problem;
  int64_t heads;
  attn_run *runs;
} rows;

static void mark(const rows *x, int64_t head, int64_t i, uint8_t *row) {
  memset(row, 0, (size_t)x->problem->n_kv);
  const attn_run *runs = x->runs;
  const int64_t past = attn_problem_position(x->problem, i) + 1,
                count = x->seen.selected ? seen_picks(&x->seen, &(sample_row){0, head, i}, &runs)
                                         : attn_pattern_row(x->pattern, x->problem, head, i, x->runs);
  for (int64_t r = 0; r < count; r++)
    for (int64_t key = 0; key < runs[r].count; key++) row[runs[r].first + key * runs[r].step] = 1;
  if (x->problem->causal && past < x->problem->n_kv)
    memset(row + (past > 0 ? past : 0), 0, (size_t)(x->problem->n_kv - (past > 0 ? past : 0)));
}

static attn_status write_mask(const rows *x, const char *output) {
  const int64_t n_q = x->problem->n_q, n_kv = x->problem->n_kv, shape[] = {x->heads, n_q, n_kv};
  uint8_t *mask = calloc((size_t)(x->heads * n_q), (size_t)n_kv);
  if (!mask)
    return attn_fail(ATTN_ENOMEM, "out of memory for %" PRId64 " x %" PRId64 " x %" PRId64 " bytes", x->heads,
                     n_q, n_kv);
  for (int64_t r = 0; r < x->heads * n_q; r++) mark(x, r / n_q, r % n_q, mask + r * n_kv);
  const bool one = x->heads == 1;
  const attn_status status = data_npy_write_u8(output, one ? 2 : 3, shape + one, mask);
  free(mask);
  return status;
}

/* The ranges of a marked row, into to if it is not NULL. Returns how many. */
static int64_t ranges(const uint8_t *row, int64_t n, attn_range *to) {
  int64_t count = 0;
  for (int64_t j = 0, end; j < n; j = end) {
    for (end = j + 1; end < n && row[end] == row[j]; end++) continue;
    if (row[j] && to) to[count] = (attn_range){j, end};
    count += row[j];
  }
  return count;
}

static attn_status write_graph(const rows *x, const char *output) {
  const int64_t n_q = x->problem->n_q, n_kv = x->problem->n_kv, all = x->heads * n_q;
  attn_graph g = {.heads = x->heads, .rows = n_q, .columns = n_kv};
  uint8_t *row = malloc((size_t)n_kv);
  g.starts = calloc((size_t)all + 1, sizeof *g.starts);
  bool room = row && g.starts;
  for (int64_t r = 0; room && r < all; r++) {
    mark(x, r / n_q, r % n_q, row);
    g.starts[r + 1] = g.starts[r] + ranges(row, n_kv, NULL);
  }
  room = room && (g.spans = calloc((size_t)g.starts[all] + 1, sizeof *g.spans));
  for (int64_t r = 0; room && r < all; r++) {
    mark(x, r / n_q, r % n_q, row);
    ranges(row, n_kv, g.spans + g.starts[r]);
  }
  const attn_status status = room ? data_graph_write(output, &g)
                                  : attn_fail(ATTN_ENOMEM, "out of memory for the rows of the pattern");
  free(row);
  attn_graph_free(&g);
  return status;
}

/* A pattern does not depend on the head size. */
static attn_status problem_of(const arguments *a, data_qkv *x, attn_problem *out) {
  *out = attn_problem_make(1, a->heads ? a->heads : 1, a->n, 64);
  if (a->in) {
    const attn_status status = data_qkv_read(&(data_reading){.in = a->in}, x);
    if (status) return status;
    *out = data_qkv_problem(x);
  }
  out->causal = a->causal;
  return ATTN_OK;
}

/* Selections read no values. */
static attn_status select_rows(const attn_plan *plan, const attn_view *view, const data_qkv *in, rows *x) {
  const attn_problem *p = attn_plan_problem(plan);
  const int64_t count = p->heads * p->n_q;
  sample_row *all = malloc((size_t)count * sizeof *all);
  if (!all) return attn_fail(ATTN_ENOMEM, "out of memory for %" PRId64 " rows", count);
  for (int64_t r = 0; r < count; r++) all[r] = (sample_row){0, r / p->n_q, r % p->n_q};
  x->heads = p->heads;
  const attn_status status =
      seen_make(&(seen_run){plan, view, {.q = in->q, .k = in->k, .v = in->k}}, all, NULL, count, &x->seen);
  free(all);
  return status;
}

static attn_status pattern(const arguments *a) {
  const size_t length = strlen(a->output);
  const bool graph = length > 3 && strcmp(a->output + length - 3, ".h5") == 0;
  attn_problem problem;
  attn_plan *plan = NULL;
  attn_view view;
  data_qkv in = {0};
  rows x = {.heads = 1};
  attn_spec *spec = NULL;
  attn_status status = attn_spec_parse(&spec, a->spec);
  if (!status) status = operands_check_spec(a->output, graph ? &kind_graph : &kind_npy, &a->in, 1, spec);
  if (!status) status = problem_of(a, &in, &problem);
  if (!status) status = attn_plan_create_spec(&plan, &problem, spec, NULL);
  if (!status) status = attn_plan_inspect(plan, &view);
  if (status) goto out;
  if (view.selector && !a->in) {
    status = attn_fail(ATTN_EINVAL, "%s: selects keys from Q and K: --in FILE is needed",
                       attn_plan_variant(plan)->name);
    goto out;
  }
  if (!view.pattern && !view.selector && !(view.caps & ATTN_CAP_EXACT)) {
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: has no pattern: every query depends on every key it may see",
                       attn_plan_variant(plan)->name);
    goto out;
  }
  x.pattern = view.pattern;
  x.problem = attn_plan_problem(plan);
  if (view.pattern && view.pattern->per_head) x.heads = problem.heads;
  x.runs = malloc(sizeof *x.runs * (size_t)(view.pattern ? view.pattern->max_runs : 1));
  if (!x.runs) status = attn_fail(ATTN_ENOMEM, "out of memory for a row of the pattern");
  if (!status && view.selector) status = select_rows(plan, &view, &in, &x);
  if (!status) status = graph ? write_graph(&x, a->output) : write_mask(&x, a->output);
out:
  free(x.runs);
  seen_free(&x.seen);
  attn_plan_destroy(plan);
  attn_spec_destroy(spec);
  data_qkv_free(&in);
  return status;
}

int cmd_pattern(int argc, char **argv) {
  arguments a = {0};
  cli_parse(&parser, argc, argv, &a);
  return cli_report(argv[0], pattern(&a));
}
