/* lin_pooling.c - LIN-5: mean pooling over blocks of keys.
 *
 * The pooled output is softmax over keys with the scores sbar_b(j) - ln |b(j)|, so with L the range of
 * s_j - sbar_b(j) + ln |b(j)| it is within tanh(L/4) Delta_V of exact attention. Where L is large the bound
 * nears the diameter of V and zeros, the mean of V and random keys pass it; the output must therefore also
 * equal softmax over the slots, to within rounding, which rejects all three wherever they differ from it.
 * Runs in fp64 on a probe. That the slots are such means is read off first; if they are not, that is the
 * finding. */
#include "experiments/checks/check_table.h"

#include "experiments/checks/lin_matrix.h"
#include "experiments/evidence/probe.h"
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 16 };
static const int64_t entries_max = INT64_C(1) << 26;
static const double rounded = 0x1p-20; /* weights may be rounded to fp32 */

/* block[j] of the keys and size[b] from the projections of the identity, those of keys and of values. Returns
 * how far an entry is off those of means over consecutive blocks, times the size of its block. */
static attn_status blocks_read(const probe *p, int64_t *block, double *size, double *off) {
  const projector of = {.problem = p->problem, .plan = p->plan, .view = p->view};
  int64_t keys = p->head.keys, slots = p->view.projection->slots, used = 0;
  double *e = malloc((size_t)(slots * keys) * sizeof *e + 1);
  attn_status status = e ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the blocks of a pooling");
  *off = 0;
  for (attn_side side = ATTN_KEY; side <= ATTN_VALUE && !status; side++) {
    status = projector_read(&of, p->kv_head, side, keys, e, &used);
    if (!status && used != p->slots.keys) *off = 1;
    for (int64_t b = 0, next = 0; b < used && !status; b++) {
      int64_t end = next;
      while (end < keys && e[b * keys + end] != 0) end++;
      if (b == used - 1) end = keys; /* every key is in a block */
      double count = size[b] = (double)(end > next ? end - next : 1);
      for (int64_t j = 0; j < keys; j++) {
        bool inside = j >= next && j < end;
        double error = fabs(count * e[b * keys + j] - inside);
        if (!(error <= *off)) *off = error;
        if (inside) block[j] = b;
      }
      next = end;
    }
  }
  free(e);
  return status;
}

/* The block of each key, and the sizes of blocks. */
typedef struct pooled {
  const probe *p;
  int64_t *block;
  double *size;
} pooled;

static outcome judge(void *context, int64_t place, int64_t r, row_space *s) {
  const pooled *of = context;
  const probe *p = of->p;
  const attn_problem *x = &p->problem;
  row_verdict verdict = probe_bound(p, &p->slots, NULL, r, s);
  (void)place;
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  outcome worst = outcome_components(s->given, s->o, s->bound, x->d_v);
  double rounding = vector_norm(s->bound, x->d_v), exact = 0, low = (double)INFINITY,
         high = -(double)INFINITY;
  for (int64_t j = 0; j < p->head.keys; j++) {
    const double *k = p->head.k + j * x->d_qk, *mean = p->slots.k + of->block[j] * x->d_qk,
                 above = vector_dot(s->q, k, x->d_qk) - vector_dot(s->q, mean, x->d_qk),
                 score = x->scale * above + log(of->size[of->block[j]]);
    low = score < low ? score : low;
    high = score > high ? score : high;
  }
  row_support(&p->head, NULL, r, s);
  verdict = probe_exact(p, r, s, &exact);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  outcome_worsen(&worst, (outcome){vector_distance(s->given, s->o, x->d_v),
                                   tanh((high - low) / 4) * p->head.diameter + rounding + exact, NULL});
  return worst;
}

static attn_status pooling_evaluate(const evidence *e, result_bound *bound) {
  const attn_projection *projection = e->view->projection;
  probe *p;
  attn_status status = probe_get(e, &p);
  if (!status) status = probe_compress(p);
  if (status) return status;
  if (p->head.keys == 0) return bound_hard(bound, 0, 0);
  if (projection->slots > entries_max / p->head.keys)
    return bound_uncertifiable(bound, "more than 2^26 entries of a projection");
  pooled of = {.p = p,
               .block = region_zeros(e->memory, p->problem.n_kv, sizeof *of.block),
               .size = region_zeros(e->memory, projection->slots, sizeof *of.size)};
  double off = 0;
  status = region_status(e->memory, "for the blocks of a pooling");
  if (!status) status = blocks_read(p, of.block, of.size, &off);
  if (!status && off <= rounded) return probe_check(p, ROWS, judge, &of, bound);
  if (status) return status;
  bound_hard(bound, off, rounded);
  bound_say(bound, "the slots are not means of consecutive blocks of keys");
  return ATTN_OK;
}

const check check_lin5 = {
    .name = "LIN-5",
    .of = &of_poolings,
    .kind = KIND_HARD,
    .statement =
        "the fp64 output is softmax over the means of blocks, within tanh(L/4) Delta_V of exact attention",
    .source = "derived: pooling replaces each score by its block's mean, less ln of the block's size",
    .formula = "The pooled output is softmax over keys with scores sbar_b(j) - ln |b(j)|: |o~ - o| <= "
               "tanh(L/4) Delta_V, L the range over j of s_j - sbar_b(j) + ln |b(j)|; and it equals softmax "
               "over the slots to within rounding.",
    .assumes = "At most 2^26 entries. Slots that are not means "
               "of consecutive blocks violate it. In fp64 on a probe.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, 96 keys pooled into 12 slots"),
    .evaluate = pooling_evaluate,
};
