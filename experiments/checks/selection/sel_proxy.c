/* sel_proxy.c - TK-1: what a selection knows of scores that it does not compute. A selector that ranks by
 * less than whole keys (some coordinates, the box or the ball of a page) states an interval for the products
 * scale * q.k of every unit (attn_selector.enclose); each visible key's own product must lie in it.
 *
 * Where it does, units whose upper end is below the lower ends of as many others as are kept are proven not
 * to be among the best: the share of them is what the proxy decides without reading a key. An upper end alone
 * decides nothing. */
#include "experiments/checks/selection/selection_picks.h"

#include "experiments/mathematics/vector.h"
#include "experiments/reference/transform.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 16 };

/* Of count units the share whose upper end is below the kept-th largest lower end. scratch: [count]. */
static double share_decided(const double *low, const double *high, int64_t count, int64_t kept,
                            double *scratch) {
  int64_t out = 0;
  if (kept < 1 || kept >= count) return 0;
  memcpy(scratch, low, (size_t)count * sizeof *scratch);
  vector_descend(scratch, count);
  for (int64_t u = 0; u < count; u++) out += high[u] < scratch[kept - 1];
  return (double)out / (double)count;
}

/* The units of which the query sees a key, in space->score (low), weight (high); slack is for scratch. */
static void judge_row(const void *context, const pick_case *c, pick_finding *f) {
  const row_case *row = c->row;
  const attn_problem *p = row->e->problem;
  const attn_selector *x = row->e->view->selector;
  row_space *s = row->space;
  const attn_query query = evidence_query(context, row->row);
  const int64_t all = (row->head->keys + x->grain - 1) / x->grain;
  double *low = s->score, *high = s->weight;
  int64_t seen = 0, last = -1;
  row_support(row->head, NULL, row->row->i, s);
  f->x = (outcome)OUTCOME_NONE;
  if (s->count == 0) return;
  const double largest = fabs(p->scale) * vector_norm(s->q, p->d_qk) * row->head->k_max,
               room = 4 * gamma_of(4 * p->d_qk + x->grain + 64, 0x1p-53) * largest;
  if (!row->head->finite || !isfinite(largest)) {
    f->x.why = row_reason(ROW_INFINITE);
    return;
  }
  x->enclose(x->state, &query, all, low, high);
  for (int64_t a = 0; a < s->count; a++) {
    const int64_t key = s->index[a], unit = key / x->grain;
    const double t = p->scale * vector_dot(s->q, row->head->k + key * p->d_qk, p->d_qk),
                 off = t > high[unit]  ? t - high[unit]
                       : t < low[unit] ? low[unit] - t
                       : isnan(t)      ? t
                                       : 0;
    const outcome own = {.measured = isnan(low[unit]) || isnan(high[unit]) ? (double)NAN : off,
                         .value = room};
    const bool worse = !(own.measured <= f->x.measured) || f->x.why;
    outcome_worsen(&f->x, own);
    if (worse)
      snprintf(f->text, sizeof f->text, "has the product %.7g with key %lld, stated to be in [%.7g, %.7g]", t,
               (long long)key, low[unit], high[unit]);
    if (unit != last) { /* those that are seen move to the front */
      last = unit;
      s->slack[seen++] = (double)unit;
    }
  }
  for (int64_t u = 0; u < seen; u++) {
    low[u] = low[(int64_t)s->slack[u]];
    high[u] = high[(int64_t)s->slack[u]];
  }
  f->tells = true;
  f->told[0] = share_decided(low, high, seen, x->kept, s->slack);
}

static attn_status proxy_evaluate(const evidence *e, result_bound *bound) {
  const attn_call call = evidence_call(e);
  pick_sums sums;
  const attn_status status = picks_sum(e, ROWS, judge_row, &call, bound, &sums);
  if (!status && bound->verdict == VERDICT_PASS && sums.rows > 0 && !transform_any(e->problem))
    bound_say(bound, "proves %.3g %% of what is ranked not to be among the best",
              100 * sums.told[0] / sums.rows);
  return status;
}

const check check_tk1 = {
    .name = "TK-1",
    .of = &of_proxies,
    .kind = KIND_HARD,
    .statement = "the product of a query and a key lies where the selection's proxy says that it must",
    .source =
        "Cauchy-Schwarz on what a proxy leaves out; the largest over a box or a ball that holds the keys",
    .formula = "measured: by how much c q.k_j leaves [low_u, high_u] (attn_selector.enclose) of its unit u, "
               "over the keys that 16 rows see; value: the rounding of both in fp64, 4 gamma_(4 d + unit + "
               "64) |c| |q| max |k|. Passing cells say how many units have high_u below the lower ends of as "
               "many others as are kept: those are proven not to be among the best.",
    .assumes =
        "The selector states intervals. How good they are is reported, not judged: they may hold anything.",
    .cause = "the least and the largest element of a page change places for a negative coordinate, padding "
             "or a page's last keys are left out of its statistics, or a norm is that of the wrong half",
    .nulls =
        CHECK_BLIND("it judges what a selector says of keys, and looks at no output: FP-1, FP-2 and SP-1 do"),
    .evaluate = proxy_evaluate,
};
