/* rank.c - LIN-3: no matrix of rank k comes closer to the exact weights than their singular values allow
 * (Eckart and Young 1936).
 *
 * For rows S and columns C, both more than k, |P_SC - W_SC|^2 >= sum over j > k of sigma_j(P_SC)^2 for the
 * weights W of any rank-k method. W_SC is read off in fp64 by V = the columns C of the identity; S and C are
 * evenly spaced, k + 64 of each, at most n. The margin printed is lower limit / error^2, the
 * inverse of the ratio (>= 1). It rejects a method that is not of the rank it claims. Zeros and the mean of V
 * have rank at most 1: blind to both; random keys chosen per row have rank above k, and are rejected where
 * they come close enough, which needs P itself to be nearly of rank k: blind to them otherwise. Non-causal
 * only: a mask breaks the rank. */
#include "experiments/checks/check_table.h"
#include "experiments/checks/lowrank/block.h"

#include "experiments/mathematics/spectrum.h"
#include "experiments/mathematics/vector.h"

#include <math.h>

enum { ROWS_MAX = 640 };                          /* of S: the eigenvalues of a 640 x 640 matrix */
static const int64_t work_max = INT64_C(1) << 31; /* multiply-adds of reading W off: n_kv k |C| */

static attn_status rank_judge(const evidence *e, int64_t k, int64_t count, result_bound *bound) {
  const block_shape shape = {e->problem->n_q, e->problem->n_kv, count};
  const spectrum_entry *exact;
  double *implied = region_take(e->memory, count * count, sizeof *implied), tail = 0;
  attn_status status = region_status(e->memory, "for the weights of a method");
  if (!status) status = block_exact(e, shape, &exact);
  if (status == ATTN_ENUMERIC) return bound_uncertifiable(bound, "the exact weights are not finite");
  if (!status) status = block_implied(e, shape, implied);
  if (status) return status;
  const double size = vector_dot(exact->block, exact->block, count * count),
               error = pow(vector_distance(exact->block, implied, count * count), 2);
  if (!isfinite(error)) /* a denominator of 0, weights beyond the range: FP-6 and the run's output tell */
    return bound_uncertifiable(bound, "the method's weights are not finite");
  for (int64_t j = k; j < count; j++) tail += exact->squares[j] - spectrum_error(count, count, size);
  bound_hard(bound, fmax(tail, 0), error);
  return ATTN_OK;
}

static attn_status rank_evaluate(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const int64_t k = block_rank(e->view);
  int64_t n = p->n_q < p->n_kv ? p->n_q : p->n_kv, count = k + 64;
  if (count > n) count = n;
  if (p->causal)
    bound_not_applicable(bound, "a causal mask breaks the rank");
  else if (!(e->view->caps & ATTN_CAP_CROSS))
    bound_not_applicable(bound, "queries cannot be chosen");
  else if (!attn_problem_plain(p))
    bound_not_applicable(bound, "transforms and masks speak of positions, which chosen queries have not");
  else if (k >= n)
    bound_not_applicable(bound, "the rank is not below the length");
  else if (count > ROWS_MAX)
    bound_uncertifiable(bound, "rank above 576: its singular values would cost too much");
  else if (p->n_kv > work_max / k / count)
    bound_uncertifiable(bound, "more than 2^31 operations to read the weights off");
  else
    return rank_judge(e, k, count, bound);
  return ATTN_OK;
}

const check check_lin3 = {
    .name = "LIN-3",
    .of = &of_bounded_rank,
    .kind = KIND_HARD,
    .statement =
        "a block of the method's weights is no closer to the exact one than the best matrix of its rank",
    .source = "Eckart and Young 1936",
    .formula =
        "|P_SC - W_SC|_F^2 >= sum over j > k of sigma_j(P_SC)^2 for rows S and columns C of the "
        "exact weights P and of the method's W, of rank k. It sees what is too good alone: a rank above the "
        "one that is described, weights taken from the exact ones; no error is too large for it.",
    .assumes =
        "Not causal (a mask breaks the rank), |S|, |C| > k, and the method's weights are finite and can "
        "be read off by V = I within the check's budget.",
    .nulls[CHECK_ZEROS].blind = "of rank 0, and no closer than the best matrix of rank k",
    .nulls[CHECK_MEAN_V].blind = "of rank 1, and no closer than the best matrix of rank k",
    .nulls[CHECK_RANDOM_KEYS].blind =
        "of a rank above k, but rejected only where they come closer to P than its best matrix of rank k, "
        "which a quarter of the keys does on no recorded input",
    .evaluate = rank_evaluate,
};
