/* sel_support.c - SEL-0: a selection keeps to its budget and to keys that the query may see, and an execution
 * reads values (and where the selector states a law, keys) of what was selected alone. */
#include "experiments/checks/selection/selection_picks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t purpose_poison = 0x73656c30; /* "sel0" */

/* -- the budget, and what must not be ranked -- */

/* Marks in space->slack the keys that the query, or a query of its block where that shares, may see. */
static void mark_allowed(const attn_selector *x, const row_case *c) {
  const attn_problem *p = c->e->problem;
  const bool shared = x->share == ATTN_SHARE_TILE;
  /* In an order of the selector's own any query may be of the block. */
  const int64_t first = x->order ? 0 : shared ? c->row->i / x->rows * x->rows : c->row->i;
  int64_t end = x->order ? p->n_q : first + (shared ? x->rows : 1);
  if (end > p->n_q) end = p->n_q;
  memset(c->space->slack, 0, (size_t)p->n_kv * sizeof *c->space->slack);
  for (int64_t i = first; i < end; i++) {
    row_support(c->head, NULL, i, c->space);
    for (int64_t a = 0; a < c->space->count; a++) c->space->slack[c->space->index[a]] = 1;
    /* One that a bias hides has the score -Inf; who goes by places or directions takes it as others. */
    int64_t from, to;
    attn_visible_span(p, i, &from, &to);
    for (int64_t j = from; p->score.dense.at && j < to && j < c->head->keys; j++)
      if (attn_score_hides(p, c->row->batch, c->row->head, i, j)) c->space->slack[j] = 1;
  }
}

static void judge_budget(const void *context, const pick_case *c, pick_finding *f) {
  const attn_selector *x = context;
  const row_case *row = c->row;
  const attn_problem *p = row->e->problem;
  int64_t total = 0, wrong = 0, over = 0, key = -1;
  mark_allowed(x, row);
  for (int64_t r = 0; r < c->count; r++)
    for (int64_t j = c->runs[r].first; j < c->runs[r].first + c->runs[r].count; j++) {
      total++;
      if (row->space->slack[j] > 0) continue;
      if (!wrong++) key = j;
    }
  if (x->max_keys && total > x->max_keys) over = total - x->max_keys;
  f->x = (outcome){.measured = (double)(wrong + over)};
  if (wrong)
    snprintf(f->text, sizeof f->text, "selects key %lld, which %s: it must not be ranked", (long long)key,
             key >= row->head->keys                                     ? "is padding (kv_len)"
             : p->causal && key > attn_problem_position(p, row->row->i) ? "is in its future"
                                                                        : "the mask hides");
  else
    snprintf(f->text, sizeof f->text, "selects %lld keys, and max_keys is %lld", (long long)total,
             (long long)x->max_keys);
}

/* -- poison -- */

typedef struct poisoned {
  void *k, *v, *o, *work;
  bool *keep;
  sample_row *rows; /* [batch * heads], one row of each kv head's queries */
  seen_keys seen;
} poisoned;

static void poison_row(void *at, attn_dtype t, int64_t row, int64_t d) {
  for (int64_t l = row * d; l < (row + 1) * d; l++) attn_set(at, l, t, (double)NAN);
}

/* Values by whose length keys may be drawn. */
static void negate_row(void *at, attn_dtype t, int64_t row, int64_t d) {
  for (int64_t l = row * d; l < (row + 1) * d; l++) attn_set(at, l, t, -attn_get(at, l, t));
}

/* A key of NaN ranks last, and changes no selection but one of a mass, or by an index of all heads' keys. */
static bool reads_picks_alone(const attn_view *v) {
  const attn_selector *x = v->selector;
  return x->grain && !(x->mass > 0) && !x->margins && !x->weighted && !x->index.heads;
}

/* Every key that no query head of the line selects. Returns how many. */
static int64_t poison_line(const evidence *e, poisoned *s, int64_t line) {
  const attn_problem *p = e->problem;
  const int64_t group = p->heads / p->kv_heads;
  int64_t count = 0;
  memset(s->keep, 0, (size_t)p->n_kv * sizeof *s->keep);
  for (int64_t h = 0; h < group; h++) {
    const attn_run *runs;
    const int64_t picks = seen_picks(&s->seen, &s->rows[line * group + h], &runs);
    for (int64_t r = 0; r < picks; r++)
      for (int64_t c = 0; c < runs[r].count; c++) s->keep[runs[r].first + c] = true;
  }
  for (int64_t j = 0; j < p->n_kv; j++) {
    if (s->keep[j]) continue;
    count++;
    if (e->view->selector->weighted)
      negate_row(s->v, p->dtype, line * p->n_kv + j, p->d_v);
    else
      poison_row(s->v, p->dtype, line * p->n_kv + j, p->d_v);
    if (reads_picks_alone(e->view)) poison_row(s->k, p->dtype, line * p->n_kv + j, p->d_qk);
  }
  return count;
}

/* Executes on poison; *changed rows of those drawn, *first one of them. *spared: keys that were poisoned. */
static attn_status poison(const evidence *e, poisoned *s, int64_t *changed, int64_t *first, int64_t *spared) {
  const attn_problem *p = e->problem;
  const int64_t lines = p->batch * p->kv_heads, group = p->heads / p->kv_heads;
  const size_t size = attn_dtype_size(p->dtype), bytes = (size_t)p->d_v * size;
  attn_rng rng;
  attn_rng_init(&rng, e->seed, purpose_poison, 0);
  for (int64_t at = 0; at < lines * group; at++)
    s->rows[at] = (sample_row){at / p->heads, at % p->heads,
                               at % group ? s->rows[at - 1].i : attn_rng_below(&rng, p->n_q)};
  attn_status status =
      seen_make(&(seen_run){e->plan, e->view, evidence_tensors(e)}, s->rows, NULL, lines * group, &s->seen);
  if (status) return status;
  memcpy(s->k, e->k, (size_t)(lines * p->n_kv * p->d_qk) * size);
  memcpy(s->v, e->v, (size_t)(lines * p->n_kv * p->d_v) * size);
  for (int64_t line = 0; line < lines; line++) *spared += poison_line(e, s, line);
  attn_tensors in = evidence_tensors(e);
  in.k = s->k, in.v = s->v, in.o = s->o, in.work = s->work;
  status = attn_plan_run(e->plan, &in);
  for (int64_t at = 0; at < lines * group && !status; at++) {
    const size_t offset = (size_t)(at * p->n_q + s->rows[at].i) * bytes;
    if (memcmp((const char *)s->o + offset, (const char *)e->o + offset, bytes) == 0) continue;
    if (!(*changed)++) *first = at;
  }
  return status;
}

static attn_status poison_evaluate(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const size_t size = attn_dtype_size(p->dtype);
  const int64_t keys = p->batch * p->kv_heads * p->n_kv;
  int64_t changed = 0, first = 0, spared = 0;
  poisoned s = {.k = region_take(e->memory, keys * p->d_qk, size),
                .v = region_take(e->memory, keys * p->d_v, size),
                .o = region_take(e->memory, p->batch * p->heads * p->n_q * p->d_v, size),
                .work = region_take(e->memory, 1, attn_plan_work_size(e->plan) + 1),
                .keep = region_take(e->memory, p->n_kv, sizeof *s.keep),
                .rows = region_take(e->memory, p->batch * p->heads, sizeof *s.rows)};
  attn_status status = region_status(e->memory, "to poison keys and values");
  if (attn_exempt(e->view->exempt, ATTN_EXEMPT_BITS)) return status; /* NaN may not reach it */
  if (!status) status = poison(e, &s, &changed, &first, &spared);
  if (!status && changed) {
    bound_hard(bound, (double)changed, 0);
    bound_say(bound,
              "batch entry %lld, head %lld, query %lld changes with NaN in %s that it does not select: it "
              "reads beside its selection",
              (long long)s.rows[first].batch, (long long)s.rows[first].head, (long long)s.rows[first].i,
              reads_picks_alone(e->view) ? "keys and values" : "values");
  }
  seen_free(&s.seen);
  return status;
}

/* -- padding, where the run has none -- */

/* A quarter of the keys does not exist: some rows of each head. */
static attn_status padding_evaluate(const evidence *e, result_bound *bound) {
  enum { ROWS = 4 };
  const attn_problem *p = e->problem;
  const int64_t keys = p->n_kv - p->n_kv / 4, lines = p->batch * p->heads;
  int64_t *kv_len = region_take(e->memory, p->batch, sizeof *kv_len), count = 0;
  sample_row *rows = region_take(e->memory, lines * ROWS, sizeof *rows);
  seen_keys seen = {.pattern = NULL};
  attn_status status = region_status(e->memory, "for rows with padding");
  attn_tensors in = evidence_tensors(e);
  in.kv_len = kv_len;
  for (int64_t b = 0; b < p->batch && !status; b++) kv_len[b] = keys;
  for (int64_t at = 0; at < lines * ROWS && !status; at++) {
    const int64_t i = (at % ROWS + 1) * p->n_q / ROWS - 1;
    if (i >= 0) rows[count++] = (sample_row){at / ROWS / p->heads, at / ROWS % p->heads, i};
  }
  if (!status) status = seen_make(&(seen_run){e->plan, e->view, in}, rows, NULL, count, &seen);
  for (int64_t r = 0; r < count && !status && bound->verdict == VERDICT_PASS; r++) {
    const attn_run *runs;
    const int64_t picks = seen_picks(&seen, &rows[r], &runs);
    if (!picks || runs[picks - 1].first + runs[picks - 1].count <= keys) continue;
    bound_hard(bound, 1, 0);
    bound_say(bound,
              "with kv_len %lld, batch entry %lld, head %lld, query %lld selects key %lld, which is padding",
              (long long)keys, (long long)rows[r].batch, (long long)rows[r].head, (long long)rows[r].i,
              (long long)(runs[picks - 1].first + runs[picks - 1].count - 1));
  }
  seen_free(&seen);
  return status;
}

static attn_status support_evaluate(const evidence *e, result_bound *bound) {
  attn_status status = picks_check(e, 0, judge_budget, e->view->selector, bound);
  if (!status && bound->verdict == VERDICT_PASS && !attn_exempt(e->view->exempt, ATTN_EXEMPT_VALUES))
    status = poison_evaluate(e, bound);
  if (!status && bound->verdict == VERDICT_PASS && !e->kv_len && e->view->caps & ATTN_CAP_PADDING)
    status = padding_evaluate(e, bound);
  return status || bound->verdict == VERDICT_VIOLATED ? status : stated_demand(e, bound);
}

const check check_sel0 = {
    .name = "SEL-0",
    .of = &of_selectors,
    .kind = KIND_HARD,
    .statement =
        "selections keep to their budget and to keys that the query may see, and nothing else is read",
    .source = "the interface: attn_selector (attn_selector.h)",
    .formula =
        "Of every judged row, the selected keys that causality, the mask or padding hides from the "
        "query (from all queries of a block that shares its selection), and those beyond max_keys; "
        "then rows that change in a bit where the values that they do not select, and with a law of "
        "the selection that is of no mass the keys, are NaN (keys that are drawn may be drawn by "
        "values: those have the other sign); where the run has no padding, the keys beyond three quarters "
        "that rows select once only three quarters exist. measured: their number, which must be 0.",
    .assumes = "The variant selects keys; one that states no law of them is unchecked. Those that a bias of "
               "-Inf hides have the least score, and may be "
               "selected. What was selected is what attn_plan_select says; the weights on it are judged by "
               "FP-1, FP-2 and SP-1.",
    .cause = "padding or the future is ranked (a hidden key that takes a place is lost to a visible one), k "
             "+ 1 keys are kept, or a tile reads keys that its selection leaves out",
    .nulls[CHECK_ZEROS].blind =
        "what writes zeros reads nothing, and its selections may be sound; SP-1 rejects it",
    .nulls[CHECK_MEAN_V].rejected_on = "8 of 96 keys selected, an algorithm that averages all of V",
    .nulls[CHECK_RANDOM_KEYS].rejected_on =
        "8 of 96 keys selected, an algorithm that keeps one in four at random",
    .evaluate = support_evaluate,
};
