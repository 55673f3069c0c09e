/* best.c - LOW-1 and LOW-2: how far methods of rank r are from the best of that rank, and that what says it
 * is the best is (Eckart and Young 1936).
 *
 * LOW-1: |P - W|_F^2 >= sum over j > r of sigma_j(P)^2 for all weights W of rank r, with equality for the
 * best. Of a head cut to its first n queries and keys, n <= 384, whose weights are read off by V = I in fp64.
 *
 * LOW-2: weights that are the softmax of scores S' of rank r determine S' up to a number c_i per row, ln W =
 * S' - c 1^T; with J = I - 1 1^T / n, which takes c away, |(S - ln W) J|_F = |(S - S') J|_F lies between what
 * the singular values of S J and those of S allow: sum over j > r of sigma_j(S J)^2 <= |(S - ln W) J|_F^2 <=
 * sum over j > r of sigma_j(S)^2, the second because |X J|_F <= |X|_F and S' is the best. No singular vector
 * is compared, of which equal values leave a choice.
 *
 * Each singular value's square is known to spectrum_error(). Zeros and the mean of V are of rank at most 1,
 * and no closer than the best: only what says it is the best is rejected by how far it is. */
#include "experiments/checks/check_table.h"
#include "experiments/checks/lowrank/block.h"

#include "experiments/evidence/support_row.h"
#include "experiments/mathematics/spectrum.h"
#include "experiments/mathematics/vector.h"

#include <math.h>

enum { SIDE = 384 }; /* of a head that is cut: eigenvalues of 384 x 384 numbers take a tenth of a second */

static block_shape shape_of(const attn_problem *p) {
  int64_t n = p->n_q < p->n_kv ? p->n_q : p->n_kv;
  if (n > SIDE) n = SIDE;
  return (block_shape){n, n, n};
}

/* sum over j >= r of squares; *off: how far that may be off. */
static double tail_of(const double *squares, int64_t r, int64_t n, double size, double *off) {
  double tail = 0;
  for (int64_t j = n - 1; j >= r; j--) tail += squares[j];
  *off = (double)n * spectrum_error(n, n, size);
  return tail;
}

static attn_status best_settle(double least, double error, double most, bool best, double tail,
                               result_bound *bound) {
  if (!isfinite(error)) return bound_uncertifiable(bound, "the method's weights are not finite");
  if (best && !(error <= most * (1 + 1e-6)))
    bound_hard(bound, error, most);
  else
    bound_hard(bound, fmax(least, 0), error);
  if (bound->verdict == VERDICT_PASS && tail > 0)
    bound_say(bound, "%.4g times as far as the best of this rank", sqrt(error / tail));
  return ATTN_OK;
}

/* Products with orthonormal vectors of fp64 numbers, of which W is made. */
static double made_to(double n, double size) { return gamma_of((int64_t)(2 * n), 0x1p-53) * n * sqrt(size); }

static attn_status weights_judge(const evidence *e, int64_t r, result_bound *bound) {
  const block_shape shape = shape_of(e->problem);
  const int64_t n = shape.count;
  const bool best = e->view->low_rank && e->view->low_rank->best;
  const spectrum_entry *exact;
  double *implied = region_take(e->memory, n * n, sizeof *implied), off = 0;
  attn_status status = region_status(e->memory, "for the weights of a method");
  if (!status) status = block_implied(e, shape, implied);
  if (status == ATTN_EINVAL || status == ATTN_EUNSUPPORTED)
    return bound_not_applicable(bound, attn_last_error());
  if (!status) status = block_exact(e, shape, &exact);
  if (status == ATTN_ENUMERIC) return bound_uncertifiable(bound, "the exact weights are not finite");
  if (status) return status;
  const double size = vector_dot(exact->block, exact->block, n * n),
               error = pow(vector_distance(exact->block, implied, n * n), 2),
               tail = tail_of(exact->squares, r, n, size, &off),
               far = sqrt(tail + off) + made_to((double)n, size);
  return best_settle(tail - off, error, far * far, best, tail, bound);
}

static attn_status weights_evaluate(const evidence *e, result_bound *bound) {
  const int64_t r = block_rank(e->view);
  const bool low = e->view->low_rank;
  if (e->problem->causal && !low) return bound_not_applicable(bound, "a causal mask breaks the rank");
  if (r >= shape_of(e->problem).count && !(low && e->view->low_rank->best))
    return bound_not_applicable(bound, "the rank is not below the length");
  return weights_judge(e, r, bound);
}

/* -- scores -- */

/* to [n, n] <- X J: rows less their means. */
static void centre(const double *x, int64_t n, double *to) {
  for (int64_t i = 0; i < n; i++) {
    double mean = 0;
    for (int64_t j = 0; j < n; j++) mean += x[i * n + j] / (double)n;
    for (int64_t j = 0; j < n; j++) to[i * n + j] = x[i * n + j] - mean;
  }
}

static attn_status squares_of(region *memory, const double *x, int64_t n, double *squares) {
  const double **rows = region_take(memory, n, sizeof *rows);
  if (region_status(memory, "for a spectrum")) return ATTN_ENOMEM;
  for (int64_t i = 0; i < n; i++) rows[i] = x + i * n;
  return spectrum_squares(rows, n, n, squares);
}

static attn_status scores_judge(const evidence *e, int64_t r, result_bound *bound) {
  const block_shape shape = shape_of(e->problem);
  const int64_t n = shape.count;
  const attn_problem *p = e->problem;
  double *q = region_take(e->memory, n * p->d_qk, sizeof *q),
         *k = region_take(e->memory, n * p->d_qk, sizeof *k), *x = region_take(e->memory, n * n, sizeof *x),
         *centred = region_take(e->memory, n * n, sizeof *centred),
         *implied = region_take(e->memory, n * n, sizeof *implied),
         *told = region_take(e->memory, n * n, sizeof *told),
         *squares = region_take(e->memory, n, sizeof *squares), off = 0;
  if (region_status(e->memory, "for scores")) return ATTN_ENOMEM;
  attn_status status = block_implied(e, shape, implied);
  if (status == ATTN_EINVAL || status == ATTN_EUNSUPPORTED)
    return bound_not_applicable(bound, attn_last_error());
  if (status) return status;
  row_widen(e->q, p->dtype, 0, n * p->d_qk, q);
  row_widen(e->k, p->dtype, 0, n * p->d_qk, k);
  for (int64_t i = 0; i < n * p->d_qk; i++) q[i] *= p->scale;
  matrix_of_dots(q, k, n, n, p->d_qk, x);
  for (int64_t i = 0; i < n * n; i++) implied[i] = log(implied[i]);
  centre(x, n, centred);
  centre(implied, n, told);
  const double size = vector_dot(x, x, n * n), error = pow(vector_distance(centred, told, n * n), 2);
  if (!isfinite(error))
    return bound_uncertifiable(bound, "weights of 0 or that are not finite: their logarithms tell no scores");
  status = squares_of(e->memory, centred, n, squares);
  const double least = status ? 0 : tail_of(squares, r, n, size, &off) - off;
  if (!status) status = squares_of(e->memory, x, n, squares);
  if (status == ATTN_ENUMERIC) return bound_uncertifiable(bound, "the scores are not finite");
  if (status) return status;
  const double tail = tail_of(squares, r, n, size, &off),
               far = sqrt(tail + off) + made_to((double)n, size) +
                     (double)n * gamma_of(4 * n, 0x1p-53); /* of exponentials and logarithms */
  return best_settle(least, error, far * far, true, tail, bound);
}

static attn_status scores_evaluate(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  if (p->causal || !attn_problem_plain(p))
    return bound_not_applicable(bound, "keys that are hidden have no weights to tell scores by");
  if (e->kv_len && e->kv_len[0] < shape_of(p).count)
    return bound_not_applicable(bound, "padding among the keys that are looked at");
  return scores_judge(e, e->view->low_rank->rank, bound);
}

const check check_low1 = {
    .name = "LOW-1",
    .of = &of_bounded_rank,
    .kind = KIND_HARD,
    .statement = "the weights of a head are no closer to the exact ones than the best of their rank, and "
                 "those that are said to be the best are as close",
    .source = "Eckart and Young 1936",
    .formula = "|P - W|_F^2 >= sum over j > r of sigma_j(P)^2, P the exact weights of the first n <= 384 "
               "queries and keys of a head, W the method's, of rank r; = for the best. Passing cells say the "
               "ratio of the square roots, the distance to the best possible.",
    .assumes = "Not causal (a mask breaks the rank) unless the variant says that its weights are of low rank "
               "for all that; the weights can be read off by V = I on the cut head, and are finite.",
    .cause = "weights that are said to be the best are of another rank, or of other singular vectors; too "
             "close: the rank is above the one described",
    .nulls = CHECK_REJECTS_ALL("the best weights of rank 16, Gaussian inputs of std 0.7"),
    .evaluate = weights_evaluate,
};

const check check_low2 = {
    .name = "LOW-2",
    .of = &of_best_scores,
    .kind = KIND_HARD,
    .statement = "the scores that the weights tell are as far from the exact ones as the best of their rank",
    .source = "derived from Eckart and Young 1936",
    .formula = "sum over j > r of sigma_j(S J)^2 <= |(S - ln W) J|_F^2 <= sum over j > r of sigma_j(S)^2, S "
               "= scale Q K^T of the first n <= 384 queries and keys, W the weights, J = I - 1 1^T / n.",
    .assumes = "Not causal, without padding, masks and transforms; no weight is 0.",
    .cause =
        "the scores are projected on other singular vectors than the first r, or on a wrong number of them",
    .nulls[CHECK_ZEROS].blind = "weights of 0 have no logarithms",
    .nulls[CHECK_MEAN_V].rejected_on = "the best scores of rank 8, Gaussian inputs of std 0.7",
    .nulls[CHECK_RANDOM_KEYS].blind = "weights of 0 have no logarithms",
    .evaluate = scores_evaluate,
};
