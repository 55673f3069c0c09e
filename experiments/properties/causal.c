/* causal.c - PROP-CAUSAL and PROP-ROW: what a row must not depend on is changed, to other values, huge ones
 * and NaN, and the row must stay bitwise the same. */
#include "experiments/properties/property.h"

#include <math.h>
#include <stdlib.h>

/* A row becomes another row of its head, doubled; or huge; or NaN. */
static void disturb(const trial_inputs *in, attn_side side, int64_t batch, int64_t head, int64_t row,
                    int how) {
  const attn_problem *p = &in->problem;
  const int64_t d = side == ATTN_VALUE ? p->d_v : p->d_qk, n = side == ATTN_QUERY ? p->n_q : p->n_kv;
  if (how > 0) {
    trial_row_fill(in, side, batch, head, row, how > 1 ? (double)NAN : attn_numbers[p->dtype].largest * 1e-8);
    return;
  }
  const void *other = trial_row(in, side, batch, head, (row + n / 2) % n);
  void *own = trial_row(in, side, batch, head, row);
  for (int64_t l = 0; l < d; l++) attn_set(own, l, p->dtype, 1 - 2 * attn_get(other, l, p->dtype));
}

/* The position at which tokens of a kv head begin to change: the first, the last, or at the edge of a tile;
 * the same for kv heads that depend on one another. */
static int64_t place_of(const trial *t, int64_t run, int64_t line) {
  const int64_t kv_heads = t->in.problem.kv_heads, lines = t->in.problem.batch * kv_heads,
                n = t->in.problem.n_kv, places[] = {1, 64, n - 1, 128, 65, 2, n / 2, 96, 32, 129, n - 2, 63},
                together = trial_exempt(t, ATTN_EXEMPT_HEADS) ? kv_heads : 1,
                which = run * lines + line / together,
                at = places[which % (int64_t)(sizeof places / sizeof *places)];
  return at < 1 ? 1 : at >= n ? n - 1 : at;
}

enum { CAUSAL_RUNS = 3 };

static attn_status causal_judge(const trial *t, result_bound *bound) {
  const attn_problem *p = &t->in.problem;
  if (!p->causal) return bound_not_applicable(bound, "not causal");
  const char *exempt = trial_exempt(t, ATTN_EXEMPT_CAUSAL);
  if (exempt) return bound_not_applicable(bound, exempt);
  const char *lookahead = trial_exempt(t, ATTN_EXEMPT_LOOKAHEAD);
  const int64_t lines = p->batch * p->kv_heads, group = p->heads / p->kv_heads,
                runs = lines < 4 ? 12 / lines : CAUSAL_RUNS;
  difference found = {.count = 0};
  attn_status status = ATTN_OK;
  for (int64_t r = 0; !status && r < runs; r++) {
    trial_inputs in;
    char *o = NULL;
    if ((status = trial_inputs_copy(t->memory, &t->in, &in))) break;
    for (int64_t line = 0; line < lines; line++) {
      const int64_t b = line / p->kv_heads, h = line % p->kv_heads;
      for (int64_t j = place_of(t, r, line); j < p->n_kv; j++) {
        disturb(&in, ATTN_VALUE, b, h, j, (int)(r % 3));
        if (lookahead) continue;
        disturb(&in, ATTN_KEY, b, h, j, (int)(r % 3));
        for (int64_t g = 0; g < group; g++) disturb(&in, ATTN_QUERY, b, h * group + g, j, (int)(r % 3));
      }
    }
    status = trial_run(t, &in, 1, POISON_NAN, &o);
    for (int64_t line = 0; !status && line < lines * group; line++) {
      const int64_t b = line / p->heads, h = line % p->heads;
      difference_rows(&found, &t->in, o, b, h, 0, place_of(t, r, line / group), &t->in, t->o, b);
    }
  }
  return status ? status : difference_settle(&found, trial_apart(t), "later tokens changed it", bound);
}

static bool is_kept(int64_t i, int run) { return run == 0 ? i % 2 == 0 : i % 7 == 3; }

static attn_status row_judge(const trial *t, result_bound *bound) {
  const attn_problem *p = &t->in.problem;
  const char *exempt = trial_exempt(t, ATTN_EXEMPT_ROWS | ATTN_EXEMPT_LOOKAHEAD);
  if (exempt) return bound_not_applicable(bound, exempt);
  difference found = {.count = 0};
  attn_status status = ATTN_OK;
  for (int r = 0; !status && r < 2; r++) {
    trial_inputs in;
    char *o = NULL;
    if ((status = trial_inputs_copy(t->memory, &t->in, &in))) break;
    for (int64_t b = 0; b < p->batch; b++)
      for (int64_t h = 0; h < p->heads; h++)
        for (int64_t i = 0; i < p->n_q; i++)
          if (!is_kept(i, r)) disturb(&in, ATTN_QUERY, b, h, i, 2 * r);
    status = trial_run(t, &in, 1, POISON_NAN, &o);
    for (int64_t b = 0; !status && b < p->batch; b++)
      for (int64_t h = 0; h < p->heads; h++)
        for (int64_t i = 0; i < p->n_q; i++)
          if (is_kept(i, r)) difference_rows(&found, &t->in, o, b, h, i, i + 1, &t->in, t->o, b);
  }
  return status ? status : difference_settle(&found, trial_apart(t), "other queries changed it", bound);
}

PROPERTY(causal)
const check check_prop_causal = {
    .name = "PROP-CAUSAL",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement = "outputs of rows before a changed token stay bitwise the same",
    .source = "the definition of a causal mask",
    .formula =
        "q, k and v of all tokens from position t on are replaced, by other values, huge ones and NaN; rows "
        "before t must not change. t: the first, the last, and edges of tiles, others in each head.",
    .assumes = "Causal. A variant with lookahead (ATTN_EXEMPT_LOOKAHEAD): later values alone are replaced. "
               "Heads change at one position where they depend on one another (ATTN_EXEMPT_HEADS).",
    .cause = "rows depend on later keys: a mask off by one, a maximum or a normaliser over all keys, a block "
             "read beyond the diagonal",
    .nulls = PROPERTY_BLIND,
    .evaluate = causal_evaluate,
};

PROPERTY(row)
const check check_prop_row = {
    .name = "PROP-ROW",
    .of = &of_any,
    .kind = KIND_PROPERTY,
    .statement = "a row stays bitwise the same whatever the other queries are",
    .source = "attention computes each query's output from that query alone",
    .formula = "Every second query is replaced by another, then all but every seventh by NaN; the outputs of "
               "the queries that are left must not change.",
    .assumes = "The variant declares no exemption (ATTN_EXEMPT_ROWS, ATTN_EXEMPT_LOOKAHEAD).",
    .cause =
        "queries of a tile share a number that should be each row's own (a maximum, a sum), or work memory "
        "of one row is read by another",
    .nulls = PROPERTY_BLIND,
    .evaluate = row_evaluate,
};
