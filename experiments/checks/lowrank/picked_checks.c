/* picked_checks.c - LOW-3: weights are those that the descriptor makes of the rows that are picked; CL-1 and
 * CL-2: how far queries of a cluster are from weights of their own (Vyas et al. 2020).
 *
 * CL-1: the Jacobian of softmax, diag(p) - p p^T, is at most 1/2 in the spectral norm and takes nothing from
 * scores to which a constant is added: |p_i - p_c|_2 <= |J (s_i - s_c)|_2 / 2, J = I - 1 1^T / n, which is at
 * most the published c |K|_2 |q_i - q_c|. CL-2: on its own keys T a query has m r_j,
 * where A_j = a r_j is exact and A^c sums to m: sum_T |m r_j - A_j| = |m - a| = |sum_T (A^c_j - A_j)| <=
 * sum_T |A^c_j - A_j|, and elsewhere both have A^c.
 *
 * On the first queries and keys, at most 384 of each, of which the rows are picked again; weights by V = I in
 * fp64. */
#include "experiments/checks/check_table.h"
#include "experiments/checks/lowrank/picked.h"
#include "experiments/checks/lowrank/picked_case.h"
#include "experiments/mathematics/vector.h"

#include <math.h>

static attn_status defined_evaluate(const evidence *e, result_bound *bound) {
  picked_case x;
  attn_status status = picked_case_make(e, e->view->low_rank, PICKED_SIDE, &x, bound);
  for (int64_t i = 0; i < x.n && !status; i++) {
    double off = 0;
    if (!isfinite(x.amplified[i])) continue;
    for (int64_t j = 0; j < x.n; j++) {
      const double diff = fabs(x.w[i * x.n + j] - x.own[i * x.n + j]);
      off = diff <= off ? off : diff;
    }
    outcome_worsen(&x.worst, (outcome){off, x.rounding * x.amplified[i], NULL});
  }
  return status ? status : picked_settle(&x, bound);
}

/* c, the mean of a cluster's queries, of the cluster of each query: scale J K (q_i - c), squared. */
static double far_of(const low_rank_head *h, const int64_t *cluster, int64_t i, double *mean) {
  double members = 0, sum = 0, squares = 0;
  for (int64_t l = 0; l < h->d_qk; l++) mean[l] = 0;
  for (int64_t a = 0; a < h->n_q; a++) {
    if (cluster[a] != cluster[i]) continue;
    members++;
    for (int64_t l = 0; l < h->d_qk; l++) mean[l] += h->q[a * h->d_qk + l];
  }
  for (int pass = 0; pass < 2; pass++)
    for (int64_t j = 0; j < h->keys; j++) {
      double s = 0;
      for (int64_t l = 0; l < h->d_qk; l++)
        s += h->scale * (h->q[i * h->d_qk + l] - mean[l] / members) * h->k[j * h->d_qk + l];
      if (pass == 0)
        sum += s / (double)h->keys;
      else
        squares += (s - sum) * (s - sum);
    }
  return squares;
}

static attn_status shared_evaluate(const evidence *e, result_bound *bound) {
  picked_case x;
  int64_t *cluster = NULL, count = 0;
  attn_status status = picked_case_make(e, e->view->low_rank, PICKED_SIDE, &x, bound);
  double *mean = region_take(e->memory, e->problem->d_qk, sizeof *mean);
  if (!status && x.n) status = region_status(e->memory, "for a mean");
  if (!status && x.n) status = picked_rows(e->memory, e->view->low_rank, &x.head, &cluster, &count);
  for (int64_t i = 0; i < x.n && !status; i++) {
    const double off = vector_distance(x.exact + i * x.n, x.w + i * x.n, x.n);
    outcome_worsen(&x.worst, (outcome){off, sqrt(far_of(&x.head, cluster, i, mean)) / 2 + x.rounding, NULL});
  }
  return status ? status : picked_settle(&x, bound);
}

static attn_status own_evaluate(const evidence *e, result_bound *bound) {
  attn_low_rank plain = *e->view->low_rank;
  picked_case x;
  plain.own = 0;
  attn_status status = picked_case_make(e, &plain, PICKED_SIDE, &x, bound);
  for (int64_t i = 0; i < x.n && !status; i++) {
    double off = 0, shared = 0;
    for (int64_t j = i * x.n; j < (i + 1) * x.n; j++) {
      off += fabs(x.exact[j] - x.w[j]);
      shared += fabs(x.exact[j] - x.own[j]);
    }
    outcome_worsen(&x.worst, (outcome){off, shared + 4 * x.rounding, NULL});
  }
  return status ? status : picked_settle(&x, bound);
}

const check check_low3 = {
    .name = "LOW-3",
    .of = &of_picked,
    .kind = KIND_HARD,
    .statement = "the weights are what the variant's descriptor makes of the rows that it picks",
    .source = "derived: the definition that attn_low_rank.picked names, in fp64, given the rows",
    .formula =
        "|W_ij - W'_ij| <= 8 gamma (1 + c |q| |k|) a_i, of the first 384 queries and keys at most: W "
        "the method's weights, W' those of the definition, gamma = g u / (1 - g u), g = 2 n + 4 d + 64, "
        "|q| and |k| the largest norms, a_i how far rounding is amplified in row i.",
    .assumes =
        "Weights are finite; rows in which rounding decides which keys are a query's own are left out.",
    .cause = "a mean is of the wrong rows, or a query has the weights of another cluster",
    .nulls = CHECK_REJECTS_ALL("4 clusters, Gaussian inputs of std 1"),
    .evaluate = defined_evaluate,
};

const check check_cl1 = {
    .name = "CL-1",
    .of = &of_clusters,
    .kind = KIND_HARD,
    .statement = "a query's weights are no further from those of its cluster than half the distance of their "
                 "scores",
    .source =
        "Vyas et al. 2020, proposition 1, with the constant 1/2 of the Jacobian of softmax in place of 1",
    .formula =
        "|P_i - W_i|_2 <= c |J K (q_i - m)|_2 / 2 + rounding, of the first 384 queries and keys at most: "
        "P the exact weights, W the method's, m the mean of the queries of i's cluster, J = I - 1 1^T / "
        "n, c the scale. It is at most c |K|_2 |q_i - m| / 2.",
    .assumes = "Weights are finite.",
    .cause =
        "the mean is that of another cluster, or queries are assigned to means that they are not part of",
    .nulls = CHECK_REJECTS_ALL("a cluster for each query, Gaussian inputs of std 1"),
    .evaluate = shared_evaluate,
};

const check check_cl2 = {
    .name = "CL-2",
    .of = &of_own_clusters,
    .kind = KIND_HARD,
    .statement = "keys on which a query has its own weights bring no row further from the exact one",
    .source = "Vyas et al. 2020, proposition 2",
    .formula =
        "sum_j |P_ij - W_ij| <= sum_j |P_ij - S_ij| + rounding, of the first 384 queries and keys at "
        "most: P the exact weights, W the method's, S = softmax(c m K^T) of the mean m of i's cluster.",
    .assumes = "Weights are finite.",
    .cause = "the mass of a query's own keys is not that which its cluster gives them",
    .nulls = CHECK_REJECTS_ALL("a cluster for each query, Gaussian inputs of std 1"),
    .evaluate = own_evaluate,
};
