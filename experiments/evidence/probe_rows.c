/* probe_rows.c - chooses the rows of a probe.
 *
 * Softmax engines draw from the seed of the run. Features and projections draw from the shape of the block
 * alone, so that the runs of a block share what is costly to know of their rows (moments.h); blocks
 * differ. */
#include "experiments/evidence/probe_rows.h"

#include "experiments/reference/exact.h"
#include "experiments/reference/visible.h"

#include <stdlib.h>
#include <string.h>

enum { PROBE_ROWS = 64 };
static const uint64_t purpose_probe = 0x70726f6265; /* "probe" */
static const int64_t features_most = INT64_C(1) << 24;
static const double rows_work = 0x1p25; /* multiply-adds for which a probe has every row of a pattern */

void probe_choice_free(probe_choice *c) {
  free(c->rows);
  c->rows = NULL;
}

void probe_choose_last(const evidence *e, probe_choice *c) {
  const attn_problem *p = e->problem;
  probe_choice_free(c);
  c->count = p->n_q < PROBE_ROWS || !(e->view->caps & ATTN_CAP_CROSS) ? p->n_q : PROBE_ROWS;
  c->first = p->n_q - c->count;
  c->keys = p->n_kv;
}

void probe_choose_all(const evidence *e, probe_choice *c) {
  probe_choice_free(c);
  c->count = e->problem->n_q;
  c->first = 0;
  c->keys = e->problem->n_kv;
}

/* Do two kv heads map one row to different features? */
static attn_status features_differ(const evidence *e, int64_t kv_head, bool *out) {
  const attn_feature_map *map = e->view->features;
  const attn_problem *p = e->problem;
  size_t size = attn_dtype_size(p->dtype), bytes = (size_t)map->columns * size;
  char *x = malloc((size_t)p->d_qk * size), *f = calloc(2, bytes);
  double scale[2] = {0, 0};
  attn_status status = x && f ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the features of a row");
  attn_rng rng;
  attn_rng_init(&rng, 1, purpose_probe, 0);
  for (int64_t l = 0; l < p->d_qk && !status; l++) attn_set(x, l, p->dtype, attn_rng_normal(&rng));
  for (int i = 0; i < 2 && !status; i++)
    map->map(map->state, attn_plan_context(e->plan),
             &(attn_feature_rows){i * kv_head, ATTN_KEY, x, p->d_qk, 0, 1}, f + (size_t)i * bytes,
             map->columns, &scale[i]);
  *out = !status && (memcmp(f, f + bytes, bytes) != 0 || memcmp(&scale[0], &scale[1], sizeof *scale) != 0);
  free(x);
  free(f);
  return status;
}

/* Do two kv heads project one column to different slots, as keys or as values? */
static attn_status projections_differ(const evidence *e, int64_t kv_head, bool *out) {
  const attn_projection *x = e->view->projection;
  const attn_problem *p = e->problem;
  const attn_context *c = attn_plan_context(e->plan);
  size_t size = attn_dtype_size(p->dtype), slots = (size_t)x->slots * size;
  void *scratch = aligned_alloc(64, (x->scratch + 64) / 64 * 64);
  char *column = malloc((size_t)p->n_kv * size), *y = calloc(2, slots);
  attn_status status =
      scratch && column && y ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory to project a column");
  attn_rng rng;
  attn_rng_init(&rng, 1, purpose_probe, 1);
  for (int64_t j = 0; j < p->n_kv && !status; j++) attn_set(column, j, p->dtype, attn_rng_normal(&rng));
  *out = false;
  for (int s = 0; s < 2 && !status && !*out; s++) {
    for (int i = 0; i < 2; i++) {
      attn_slab slab = {.head = i * kv_head,
                        .side = s ? ATTN_VALUE : ATTN_KEY,
                        .x = column,
                        .x_row = 1,
                        .rows = p->n_kv,
                        .d = 1,
                        .y = y + (size_t)i * slots,
                        .y_row = 1};
      x->project(x->state, c, &slab, scratch);
    }
    *out = memcmp(y, y + slots, slots) != 0;
  }
  free(scratch);
  free(column);
  free(y);
  return status;
}

static attn_status head_draws(const evidence *e, int64_t head, bool *out) {
  int64_t kv_head = head / (e->problem->heads / e->problem->kv_heads);
  *out = e->view->pattern && e->view->pattern->per_head && head > 0;
  if (kv_head == 0) return ATTN_OK;
  if (e->view->features) return features_differ(e, kv_head, out);
  if (e->view->projection) return projections_differ(e, kv_head, out);
  return ATTN_OK;
}

static attn_status choose_rows(const evidence *e, attn_rng *rng, probe_choice *c) {
  const attn_problem *p = e->problem;
  const attn_pattern *pattern = e->view->pattern;
  bool mapped = e->view->features || e->view->projection;
  double all =
      attn_plan_cost(e->plan).mul_add / (double)(p->batch * (pattern && pattern->per_head ? 1 : p->heads));
  probe_choose_last(e, c);
  /* Of what describes neither itself nor a claim to be exact, rows may depend on positions in any way. */
  if (c->count == p->n_q || !(mapped || pattern || e->view->caps & ATTN_CAP_EXACT)) return ATTN_OK;
  if (!pattern && !p->causal && !(e->view->features && e->view->features->positions)) {
    c->rows = malloc((size_t)c->count * sizeof *c->rows);
    if (!c->rows) return attn_fail(ATTN_ENOMEM, "no memory for the rows of a probe");
    rows_spread(rng, p->n_q, c->count, c->rows);
  } else if (mapped) {
    /* Queries and keys are mapped together: every row, where the features of all of them can be held. */
    int64_t columns = e->view->features ? e->view->features->columns : 1;
    if (p->n_q + p->n_kv <= features_most / columns) c->count = p->n_q;
  } else if (!p->causal) {
    if (all <= rows_work) c->count = p->n_q;
  } else {
    /* Rows of a window, and no key after them. */
    int64_t end[1], shift = attn_problem_position(p, 0);
    rows_spread(rng, p->n_q - c->count + 1, 1, end);
    c->first = end[0];
    c->keys = c->first + c->count + shift;
    if (c->keys < 1) probe_choose_last(e, c);
  }
  if (c->count == p->n_q) c->first = 0;
  return ATTN_OK;
}

attn_status probe_choose(const evidence *e, probe_choice *out) {
  const attn_problem *p = e->problem;
  probe_choice c = {.rows = NULL};
  attn_rng rng;
  uint64_t shape = (uint64_t)(p->n_q * 8191 + p->n_kv * 127 + p->d_qk) * 2 + p->causal;
  bool shared = e->view->features || e->view->projection, draws = false;
  attn_rng_init(&rng, shared ? 0 : e->seed, purpose_probe, shape);
  c.batch = attn_rng_below(&rng, p->batch);
  c.head = attn_rng_below(&rng, p->heads);
  attn_status status = head_draws(e, c.head, &draws);
  if (!status) status = choose_rows(e, &rng, &c);
  if (status) {
    probe_choice_free(&c);
    return status;
  }
  c.own_head = draws ? c.head : 0;
  *out = c;
  return ATTN_OK;
}

bool probe_keeps_keys(const evidence *e, const probe *p) {
  const attn_pattern *run = e->view->pattern, *own = p->view.pattern;
  if (!run || !own) return !run == !own;
  size_t of_run = (size_t)run->max_runs, of_own = (size_t)own->max_runs;
  attn_run *a = calloc(of_run + of_own, sizeof *a), *b = a ? a + of_run : NULL;
  bool same = a;
  for (int64_t r = 0; r < p->problem.n_q && same; r++) {
    int64_t i = p->rows[r] % e->problem->n_q, keys = e->problem->n_kv;
    int64_t count = visible_runs(run, e->problem, p->run_head, i, keys, a);
    same = visible_runs(own, &p->problem, p->own_head, r, p->problem.n_kv, b) == count;
    for (int64_t k = 0; k < count && same; k++) {
      bool one = a[k].count == 1 && b[k].count == 1;
      same = a[k].first == b[k].first && a[k].count == b[k].count && (one || a[k].step == b[k].step);
    }
  }
  free(a);
  return same;
}
