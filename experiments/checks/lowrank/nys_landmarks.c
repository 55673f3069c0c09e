/* nys_landmarks.c - NYS-1, NYS-2, NYS-3: what stands between the landmarks of head 0 is what the descriptor
 * says.
 *
 * NYS-1, the iteration. With R = I - A Z, 13 I - A Z (15 I - A Z (7 I - A Z)) = 4 I + 4 R + 4 R^2 + R^3,
 * hence Z' = Z (I + R + R^2 + R^3 / 4) and
 *
 *   R' = I - (I - R)(I + R + R^2 + R^3 / 4) = (3 R^3 + R^4) / 4.
 *
 * Z_0 = A^T / (|A|_1 |A|_inf) makes R_0 symmetric with eigenvalues r_i in [0, 1): A A^T = U L U^T, r_i = 1 -
 * l_i / (|A|_1
 * |A|_inf). On as many queries and keys as there are landmarks, each of which is its own landmark, F = A = B,
 * and the weights are W = A Z_t A = (I - R_t) A: along each u_i
 *
 *   u_i^T (A - W) = r_i^(t) u_i^T A,   r^(t) = t times r -> (3 r^3 + r^4) / 4.
 *
 * NYS-2, the pseudo-inverse, on the same rows: W = A A^+ A = A except for the singular values left out, each
 * at most rcond times the largest: |A - W|_F <= sqrt(m) rcond |A|_2 + rounding.
 *
 * NYS-3, agents: W = F B of the run's own rows, a product of stochastic matrices, F from queries to landmarks
 * of queries: no weight is negative, and those of a row sum to 1; each is that of the definition.
 *
 * Rounding, in fp64: with Z_t = A^T z_t(A A^T), z' = z p(r), p(r) = 1 + r + r^2 + r^3 / 4, an error of Z is
 * multiplied in the next step, from one eigendirection to another, by p(r') - x (p(r') - p(r)) / (r' - r), x
 * = 1 - r, which is between 0 and the p of the largest r, as z grows along that direction; an eigenvalue's
 * error by (9 r^2 + 4 r^3) / 4 <= p(r). So t steps, each off by a modest multiple of m u |Z|, leave W off by
 * that of (1 + t) m u max(z_t) |A|^3, to first order; and A by u times the scores' size. Where that is a
 * quarter of A, nothing is certified.
 * */
#include "experiments/checks/lowrank/block.h"
#include "experiments/checks/lowrank/defined.h"
#include "experiments/checks/check_table.h"

#include "experiments/evidence/support_row.h"
#include "experiments/mathematics/spectrum.h"
#include "experiments/mathematics/vector.h"

#include <math.h>

enum { MOST = 256 }; /* landmarks that are looked at */

/* A, and the method's weights on the rows that are all landmarks: [n, n] each. */
typedef struct square {
  int64_t n;
  double *a, *w;
  double score; /* no score is larger */
} square;

/* scale max |q_i| max |k_j| over the first n rows, k of this side. */
static attn_status largest_score(const evidence *e, attn_side with, int64_t n, double *score) {
  const attn_problem *p = e->problem;
  const void *const from[] = {e->q, with == ATTN_KEY ? e->k : e->q};
  double *row = region_take(e->memory, p->d_qk, sizeof *row);
  if (region_status(e->memory, "for a row")) return ATTN_ENOMEM;
  *score = fabs(p->scale);
  for (int s = 0; s < 2; s++) {
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
      row_widen(from[s], p->dtype, i * p->d_qk, p->d_qk, row);
      most = fmax(most, vector_norm(row, p->d_qk));
    }
    *score *= most;
  }
  return ATTN_OK;
}

/* n: 0, with a verdict, where there are no such rows. */
static attn_status square_make(const evidence *e, square *out, result_bound *bound) {
  const attn_problem *p = e->problem;
  const int64_t exist = evidence_keys(e, 0), m = e->view->low_rank->rank,
                least = p->n_q < exist ? p->n_q : exist, n = m < least ? m : least;
  const spectrum_entry *exact;
  *out = (square){.n = 0};
  if (n < 1) return bound_not_applicable(bound, "no keys");
  if (n > MOST)
    return bound_uncertifiable(bound, "more than 256 landmarks: their weights would cost too much");
  const block_shape shape = {n, n, n};
  attn_status status = block_exact(e, shape, &exact);
  if (status == ATTN_ENUMERIC) return bound_uncertifiable(bound, "the weights of landmarks are not finite");
  if (status) return status;
  out->a = region_take(e->memory, 2 * n * n, sizeof *out->a);
  if (region_status(e->memory, "for the weights of landmarks")) return ATTN_ENOMEM;
  out->w = out->a + n * n;
  for (int64_t i = 0; i < n * n; i++) out->a[i] = exact->block[i];
  status = block_implied(e, shape, out->w);
  if (!status) status = largest_score(e, ATTN_KEY, n, &out->score);
  out->n = status ? 0 : n;
  return status;
}

/* |A - W - R_t A|_F, R_t from the eigenvalues of A A^T; *growth: the largest z_t. */
static attn_status residual_error(region *memory, const square *x, int64_t steps, double *error,
                                  double *growth) {
  const int64_t n = x->n;
  double *vectors = region_take(memory, n * n, sizeof *vectors),
         *gram = region_take(memory, n * n, sizeof *gram),
         *values = region_take(memory, 3 * n, sizeof *values), *off = region_take(memory, n * n, sizeof *off),
         *along = region_take(memory, n * n, sizeof *along), by = low_rank_norms(x->a, n);
  if (region_status(memory, "for a residual")) return ATTN_ENOMEM;
  matrix_of_dots(x->a, x->a, n, n, n, gram);
  if (!attn_eigen(n, gram, vectors, values, values + n))
    return attn_fail(ATTN_EFOREIGN, "the eigenvalues of landmarks did not converge");
  matrix_product(vectors, x->a, n, n, n, along);
  matrix_product(vectors, x->w, n, n, n, off);
  *growth = 1 / by;
  for (int64_t e = 0; e < n; e++) {
    double r = fmin(1, 1 - fmax(values[e], 0) / by), z = 1 / by;
    for (int64_t t = 0; t < steps; t++) {
      z *= 1 + r + r * r + r * r * r / 4;
      r = (3 * r * r * r + r * r * r * r) / 4;
    }
    *growth = fmax(*growth, z);
    for (int64_t j = e * n; j < (e + 1) * n; j++) along[j] *= 1 - r;
  }
  *error = vector_distance(along, off, n * n);
  return ATTN_OK;
}

static attn_status newton_evaluate(const evidence *e, result_bound *bound) {
  const attn_low_rank *law = e->view->low_rank;
  square x;
  double error = 0, growth = 0;
  attn_status status = square_make(e, &x, bound);
  if (!status && x.n) status = residual_error(e->memory, &x, law->iterations, &error, &growth);
  if (!status && x.n) {
    const double n = (double)x.n, size = vector_dot(x.a, x.a, x.n * x.n),
                 room = 64 * n * 0x1p-53 * (1 + x.score) * (double)(1 + law->iterations) *
                        (1 + growth * size) * sqrt(size);
    if (!isfinite(error))
      bound_uncertifiable(bound, "the method's weights are not finite");
    else if (!(room < 0.25 * sqrt(size)))
      bound_uncertifiable(bound, "rounding is amplified to the size of the weights");
    else
      bound_hard(bound, error, room);
  }
  return status;
}

static attn_status inverse_evaluate(const evidence *e, result_bound *bound) {
  const attn_low_rank *law = e->view->low_rank;
  square x;
  attn_status status = square_make(e, &x, bound);
  if (!status && x.n) {
    const double n = (double)x.n, size = vector_dot(x.a, x.a, x.n * x.n),
                 norm = sqrt(low_rank_norms(x.a, x.n)), error = vector_distance(x.a, x.w, x.n * x.n);
    /* F, B and the scores of each are off by a few u, and A^+ multiplies that by 1 / (rcond |A|) at the
     * most. */
    const double rounding =
        64 * n * 0x1p-53 * (1 + x.score) * size / fmax(law->rcond * norm, n * 0x1p-53 * norm);
    if (!isfinite(error))
      bound_uncertifiable(bound, "the method's weights are not finite");
    else if (!(rounding < 0.25 * sqrt(size)))
      bound_uncertifiable(bound, "rcond lets rounding be amplified to the size of the weights");
    else
      bound_hard(bound, error, sqrt(n) * law->rcond * norm + rounding);
  }
  return status;
}

/* -- nothing between landmarks -- */

enum { KEYS = 384 };

/* The weights of the first n <= 384 queries and keys against F B, and what they sum to. */
static attn_status chain_evaluate(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const attn_low_rank *law = e->view->low_rank;
  int64_t n = evidence_keys(e, 0), d = p->d_qk;
  if (n > p->n_q) n = p->n_q;
  if (n > KEYS) n = KEYS;
  if (n < 1) return bound_not_applicable(bound, "no keys");
  const int64_t m = law->rank < n ? law->rank : n;
  double *q = region_take(e->memory, n * d, sizeof *q), *k = region_take(e->memory, n * d, sizeof *k),
         *ql = region_take(e->memory, m * d, sizeof *ql), *w = region_take(e->memory, n * n, sizeof *w),
         *f = region_take(e->memory, n * m, sizeof *f), *b = region_take(e->memory, m * n, sizeof *b),
         *own = region_take(e->memory, n * n, sizeof *own), off = 0;
  if (region_status(e->memory, "for the weights of landmarks")) return ATTN_ENOMEM;
  attn_status status = block_implied(e, (block_shape){n, n, n}, w);
  row_widen(e->q, p->dtype, 0, n * d, q);
  row_widen(e->k, p->dtype, 0, n * d, k);
  low_rank_landmarks(law, ATTN_QUERY, q, n, d, m, ql);
  low_rank_softmax(p->scale, q, n, ql, m, d, f);
  low_rank_softmax(p->scale, ql, m, k, n, d, b);
  matrix_product(f, b, n, m, n, own);
  for (int64_t i = 0; i < n && !status; i++) {
    double sum = 0;
    for (int64_t j = i * n; j < (i + 1) * n; j++) {
      const double diff = fabs(w[j] - own[j]);
      off = diff <= off ? off : diff;
      if (w[j] < 0) off = (double)INFINITY;
      sum += w[j];
    }
    off = fabs(sum - 1) <= off ? off : fabs(sum - 1);
  }
  double largest = 0, among = 0;
  if (!status) status = largest_score(e, ATTN_KEY, n, &largest);
  if (!status) status = largest_score(e, ATTN_QUERY, n, &among);
  largest = fmax(largest, among);
  if (!status && (isnan(off) || !isfinite(largest)))
    bound_uncertifiable(bound, "the weights are not finite");
  else if (!status)
    /* Weights are at most 1: of both, errors of the scores, the exponentials, and sums over m, n and d. */
    bound_hard(bound, off, 8 * gamma_of(n + m + 4 * d + 64, 0x1p-53) * (1 + largest));
  return status;
}

const check check_nys1 = {
    .name = "NYS-1",
    .of = &of_newton,
    .kind = KIND_HARD,
    .statement = "after t steps of the iteration what is left of each singular direction is what (3 r^3 + "
                 "r^4) / 4 leaves",
    .source = "derived: R' = (3 R^3 + R^4) / 4 of the residual R = I - A Z, from the step of Xiong et al. "
              "2021, eq. 14",
    .formula = "|A - W - R_t A|_F <= rounding, on the first m queries and keys, each its own landmark: A "
               "their exact weights, W the method's, R_t = U diag(r_i) U^T, r_i = 1 - l_i / (|A|_1 |A|_inf) "
               "put t times through (3 r^3 + r^4) / 4, l_i and U of A A^T.",
    .assumes = "At most 256 landmarks, at most as many as queries and keys; rounding, which the iteration "
               "amplifies, is less than the weights.",
    .cause = "the coefficients 13, 15, 7 are in another order, the start is not transposed or has another "
             "norm, or the number of steps is another",
    .nulls = CHECK_REJECTS_ALL("8 landmarks, Gaussian inputs of std 0.7"),
    .evaluate = newton_evaluate,
};

const check check_nys2 = {
    .name = "NYS-2",
    .of = &of_inverses,
    .kind = KIND_HARD,
    .statement = "where every row is a landmark, the weights are the exact ones: A A^+ A = A",
    .source = "Moore 1920, Penrose 1955: the first of the four equations",
    .formula = "|A - W|_F <= sqrt(m) rcond |A|_2 + rounding, on the first m queries and keys, A their exact "
               "weights, W the method's; |A|_2^2 <= |A|_1 |A|_inf.",
    .assumes = "At most 256 landmarks; rcond keeps rounding, which A^+ amplifies, below the weights.",
    .cause =
        "A^+ is transposed, singular values that should be kept are left out, or landmarks are not the rows",
    .nulls = CHECK_REJECTS_ALL("8 landmarks, Gaussian inputs of std 0.7"),
    .evaluate = inverse_evaluate,
};

const check check_nys3 = {
    .name = "NYS-3",
    .of = &of_chains,
    .kind = KIND_HARD,
    .statement =
        "the weights are the product of two stochastic matrices, from queries to landmarks of queries "
        "and from those to keys",
    .source = "Han et al. 2023, eq. 4; products of stochastic matrices are stochastic",
    .formula =
        "|W_ij - sum_l F_il B_lj| <= rounding, |sum_j W_ij - 1| <= rounding, W_ij >= 0, for the first "
        "384 queries and keys, F = softmax(c Q Ql^T) and B = softmax(c Ql K^T) of the landmarks Ql that the "
        "descriptor names.",
    .assumes = "Scores are finite.",
    .cause = "F and B have changed places, a softmax runs over the wrong axis, or padding is averaged into "
             "landmarks",
    .nulls = CHECK_REJECTS_ALL("8 landmarks, Gaussian inputs of std 0.7"),
    .evaluate = chain_evaluate,
};
