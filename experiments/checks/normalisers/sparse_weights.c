/* sparse_weights.c - ENT-1, ENT-2: the weights of a normaliser whose rows sum to 1, read off a probe in fp64
 * whose values are 1 for one key each.
 *
 * Weights that maximise sum_j w_j s_j - Omega(w) over the simplex have, by Karush, Kuhn and Tucker, one
 * number tau for all keys: w_j = w(s_j - tau), and w_j = 0 where s_j lies at or below it. Here tau is taken
 * from the output: the largest weight confines it, and every other weight has to agree. The largest weight is
 * at most 1, so that tau >= max s - 1 for sparsemax, and max s - 2 for ((s - tau)/2)^2. */
#include "experiments/checks/check_table.h"
#include "experiments/evidence/probe.h"
#include "experiments/evidence/rounding/normaliser_bound.h"
#include "experiments/evidence/rows.h"

#include <math.h>

enum { PASSES = 16, ROWS = 16 };

/* Weights of keys 0 ... known - 1 of the probe's rows, [n_q, known], and sums of all. */
typedef struct weights {
  const probe *p;
  bool reach; /* ENT-2 */
  int64_t known;
  double *w, *sum;
} weights;

static attn_status read_weights(const evidence *e, weights *x) {
  const probe *p = x->p;
  const int64_t d = p->problem.d_v, n_q = p->problem.n_q, n = p->problem.n_kv;
  x->known = (int64_t)fmin((double)n, (double)(PASSES * d));
  x->w = region_zeros(e->memory, n_q * x->known, sizeof *x->w);
  x->sum = region_zeros(e->memory, n_q, sizeof *x->sum);
  double *v = region_take(e->memory, n * d, sizeof *v), *o = region_take(e->memory, n_q * d, sizeof *o);
  attn_status status = region_status(e->memory, "for the weights of a probe");
  for (int64_t first = -d; first < x->known && !status; first += d) {
    for (int64_t i = 0; i < n * d; i++) v[i] = first < 0 || i / d == first + i % d;
    status = probe_execute(p, p->head.k, v, o);
    for (int64_t i = 0; i < n_q * d && !status; i++) {
      if (first < 0)
        x->sum[i / d] = o[i];
      else if (first + i % d < x->known)
        x->w[i / d * x->known + first + i % d] = o[i];
    }
  }
  return status;
}

/* The number x - tau at which the law gives at most w; at least, if above. */
static double argument_of(const attn_normaliser *x, int64_t n, double w, bool above) {
  double low = -1, high = 1;
  while (low > -0x1p40 && x->weight(x->state, n, low) > w) low *= 2;
  while (high < 0x1p40 && x->weight(x->state, n, high) < w) high *= 2;
  for (;;) {
    const double middle = low + (high - low) / 2;
    if (!(middle > low && middle < high)) return above ? high : low;
    if (x->weight(x->state, n, middle) > w)
      high = middle;
    else
      low = middle;
  }
}

/* ENT-1 of a row: the sum, and each known weight against the tau that the largest of them leaves. */
static outcome agree(const weights *x, const double *w, double sum, const row_space *s) {
  const evidence *e = &x->p->e;
  const attn_normaliser *law = e->view->normaliser;
  const double off = normaliser_sum_error(e), tiny = attn_numbers[ATTN_F64].normal,
               relative = 2 * NORMALISER_ERROR;
  outcome worst = {fabs(sum - 1), 2 * off, NULL};
  int64_t top = -1;
  for (int64_t a = 0; a < s->count; a++)
    if (s->index[a] < x->known && (top < 0 || w[s->index[a]] > w[s->index[top]])) top = a;
  if (top < 0 || !(w[s->index[top]] > 0)) return worst;
  const double of = w[s->index[top]],
               low = s->units[top] - argument_of(law, s->count, of * (1 + relative), true),
               high = s->map[top] - argument_of(law, s->count, of * (1 - relative), false);
  for (int64_t a = 0; a < s->count; a++) {
    if (s->index[a] >= x->known) continue;
    const double given = w[s->index[a]],
                 least = law->weight(law->state, s->count, s->units[a] - high) * (1 - relative),
                 most = law->weight(law->state, s->count, s->map[a] - low) * (1 + relative) + tiny;
    outcome_worsen(&worst, (outcome){fabs(given - (least + most) / 2), (most - least) / 2 + tiny, NULL});
    outcome_worsen(&worst, (outcome){fmax(0, -given), 0, NULL});
  }
  return worst;
}

/* ENT-2 of a row. */
static outcome within_reach(const weights *x, const double *w, const row_space *s) {
  const double reach = x->p->e.view->normaliser->reach;
  double top = -(double)INFINITY;
  outcome worst = OUTCOME_NONE;
  for (int64_t a = 0; a < s->count; a++) top = fmax(top, s->units[a]);
  for (int64_t a = 0; a < s->count; a++)
    if (s->index[a] < x->known && s->map[a] < top - reach)
      outcome_worsen(&worst, (outcome){fabs(w[s->index[a]]), 0, NULL});
  return worst;
}

static outcome judge_row(void *context, int64_t place, int64_t row, row_space *s) {
  const weights *x = context;
  const double *w = x->w + row * x->known;
  const int64_t d = x->p->problem.d_qk;
  row_widen(x->p->q, x->p->problem.dtype, row * d, d, s->q);
  row_support(&x->p->head, NULL, row, s);
  (void)place;
  if (s->count == 0) return (outcome)OUTCOME_NONE;
  const row_verdict verdict = normaliser_scores(&x->p->e, &x->p->head, NULL, s);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  return x->reach ? within_reach(x, w, s) : agree(x, w, x->sum[row], s);
}

static attn_status judge(const evidence *e, bool reach, result_bound *bound) {
  if (!e->view->normaliser->weight) return stated_demand(e, bound);
  probe *p;
  attn_status status = probe_get(e, &p);
  if (status) return status;
  weights x = {.p = p, .reach = reach};
  status = read_weights(e, &x);
  return status ? status : probe_check(p, ROWS, judge_row, &x, bound);
}

static attn_status one_threshold(const evidence *e, result_bound *bound) { return judge(e, false, bound); }
static attn_status support(const evidence *e, result_bound *bound) { return judge(e, true, bound); }

const check check_ent1 = {
    .name = "ENT-1",
    .of = &of_simplex_normalisers,
    .kind = KIND_HARD,
    .statement = "weights are not negative, sum to 1, and one threshold explains all of them",
    .source = "Karush, Kuhn and Tucker's conditions; Martins and Astudillo 2016, arXiv:1602.02068; Peters et "
              "al. 2019, arXiv:1905.05702; derived",
    .formula =
        "w_j >= 0, |sum_j w_j - 1| <= r, and with the interval of tau in which w(s_a - tau) is the largest "
        "weight w_a, scores within their rounding e: w(s_j - e_j - tau+) <= w_j <= w(s_j + e_j - tau-) of "
        "every key j, so that w_j = 0 where s_j is below tau. Weights are outputs for values of which each "
        "is "
        "1 for one key.",
    .cause = "the threshold is of other keys than those which have weights, or does not make their sum 1",
    .assumes = "In fp64 on a probe, whose first 16 d_v keys are read.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, d = 16, entmax15"),
    .evaluate = one_threshold,
};

const check check_ent2 = {
    .name = "ENT-2",
    .of = &of_sparse_normalisers,
    .kind = KIND_HARD,
    .statement = "keys whose scores lie below the row's largest by more than a number have no weight",
    .source = "derived: w(s - tau) <= 1 of the largest score bounds tau from below",
    .formula =
        "w_j = 0 where s_j < max s - reach: 1 of sparsemax, 2 of entmax with 1.5. Weights as of ENT-1, "
        "scores within their rounding.",
    .cause = "weights of another normaliser, such as softmax's, which has no zeros",
    .assumes = "In fp64 on a probe that has such keys among the first 16 d_v.",
    .nulls = {[CHECK_ZEROS] = {.blind = "weights that are all 0 are 0 where they have to be"},
              [CHECK_MEAN_V] = {.rejected_on = "Gaussian inputs of std 2, d = 16, sparsemax"},
              [CHECK_RANDOM_KEYS] = {.rejected_on = "Gaussian inputs of std 2, d = 16, sparsemax"}},
    .evaluate = support,
};
