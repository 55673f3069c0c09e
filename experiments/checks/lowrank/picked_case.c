/* picked_case.c - see picked_case.h. */
#include "experiments/checks/lowrank/picked_case.h"

#include "experiments/checks/lowrank/block.h"
#include "experiments/checks/lowrank/picked.h"
#include "experiments/evidence/support_row.h"
#include "experiments/mathematics/vector.h"

#include <math.h>

attn_status picked_case_make(const evidence *e, const attn_low_rank *law, int64_t side, picked_case *x,
                             result_bound *bound) {
  const attn_problem *p = e->problem;
  const int64_t d = p->d_qk, exist = evidence_keys(e, 0);
  int64_t n = p->n_q < exist ? p->n_q : exist;
  *x = (picked_case){.worst = OUTCOME_NONE};
  if (n > side) n = side;
  if (n < 1) return bound_not_applicable(bound, "no keys");
  double *q = region_take(e->memory, 2 * n * d + 3 * n * n + n, sizeof *q), most[2] = {0, 0};
  if (region_status(e->memory, "for the weights of picked rows")) return ATTN_ENOMEM;
  double *k = q + n * d;
  x->w = k + n * d;
  x->own = x->w + n * n;
  x->exact = x->own + n * n;
  x->amplified = x->exact + n * n;
  row_widen(e->q, p->dtype, 0, n * d, q);
  row_widen(e->k, p->dtype, 0, n * d, k);
  x->head = (low_rank_head){.n_q = n,
                            .keys = n,
                            .d_qk = d,
                            .scale = p->scale,
                            .q = q,
                            .k = k,
                            .context = attn_plan_context(e->plan)};
  for (int64_t i = 0; i < 2 * n; i++) most[i / n] = fmax(most[i / n], vector_norm(q + i * d, d));
  attn_status status = block_implied(e, (block_shape){n, n, n}, x->w);
  if (!status) status = picked_weights(e->memory, law, &x->head, 0x1p-53, x->own, x->amplified);
  if (status) return status;
  low_rank_softmax(p->scale, q, n, k, n, d, x->exact);
  x->rounding = 8 * gamma_of(2 * n + 4 * d + 64, 0x1p-53) * (1 + fabs(p->scale) * most[0] * most[1]);
  for (int64_t i = 0; i < 2 * n * n; i++)
    if (!isfinite(x->own[i]) && isfinite(x->amplified[i / n % n]))
      return bound_uncertifiable(bound, "the weights are not finite by their definition");
  if (!(x->rounding < 0x1p-10)) return bound_uncertifiable(bound, "rounding of the scores is too large");
  x->n = n;
  return ATTN_OK;
}

attn_status picked_settle(const picked_case *x, result_bound *bound) {
  if (!x->n) return ATTN_OK;
  if (x->worst.why == outcome_nothing) return bound_uncertifiable(bound, "rounding decides over every row");
  return outcome_to_verdict(&x->worst, bound);
}
