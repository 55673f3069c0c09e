/* picked_order.c - COR-1 and SKY-1: what picked points leave of a positive kernel, G - G_.S G_SS^-1 G_S., is
 * positive: an element is at most the root of the two of the diagonal, and no eigenvalue is below 0, nor one
 * of what they give. On the first queries and keys, at most 384 and 128 of each; weights by V = I in fp64. */
#include "experiments/checks/check_table.h"
#include "experiments/checks/lowrank/picked_case.h"
#include "experiments/checks/lowrank/picked_kernel.h"

#include "experiments/mathematics/spectrum.h"
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>

enum { PAIRS = 128 };

/* Row i: its weights are right up to a factor where keys are picked, and elsewhere as far off as what is left
 * of both points lets them be. */
static void judge_row(picked_case *x, const picked_kernel *g, bool keys, int64_t i) {
  const double *w = x->w + i * x->n, *exact = x->exact + i * x->n;
  double by = 1, picked = 0, own = 0, top = -(double)INFINITY, sum = 0, widest = 0;
  for (int64_t s = 0; s < g->m && keys; s++) {
    own += w[g->rows[s] - x->n];
    picked += exact[g->rows[s] - x->n];
  }
  if (keys) by = own != 0 ? picked / own : 0;
  for (int pass = 0; pass < 2; pass++)
    for (int64_t j = 0; j < x->n; j++) {
      const double score =
          x->head.scale * vector_dot(g->x + i * x->head.d_qk, g->x + (x->n + j) * x->head.d_qk, x->head.d_qk);
      if (pass)
        sum += exp(score - top);
      else
        top = fmax(top, score);
      widest = fmax(widest, g->square[x->n + j]);
    }
  const double slack = x->rounding * g->condition * (1 + widest + g->raise[i]);
  for (int64_t j = 0; j < x->n; j++) {
    const double left = sqrt((g->rest[i] + slack) * (g->rest[x->n + j] + slack)),
                 of = keys ? exp(g->square[i] + g->square[x->n + j] - top) / sum : 1,
                 is = keys ? exact[j] : exp(picked_kernel_exponent(g, &x->head, i, x->n + j));
    outcome_worsen(&x->worst, (outcome){fabs(by * w[j] - is),
                                        left * of + x->rounding * x->amplified[i] * fmax(1, by), NULL});
  }
}

static attn_status rest_evaluate(const evidence *e, result_bound *bound) {
  picked_kernel g = {.n = 0};
  picked_case x;
  attn_status status = picked_case_make(e, e->view->low_rank, PICKED_SIDE, &x, bound);
  if (!status && x.n) status = picked_kernel_make(e->memory, e->view->low_rank, &x.head, &g);
  if (status || !g.n) return status;
  for (int64_t i = 0; i < x.n; i++)
    if (isfinite(x.amplified[i])) judge_row(&x, &g, e->view->low_rank->picked == ATTN_PICKED_KEYS, i);
  return picked_settle(&x, bound);
}

/* The least eigenvalue of what the points give of G, with the method's weights between queries and keys, or
 * of what they leave. */
static attn_status least_of(const picked_case *x, const picked_kernel *g, bool left, double *least) {
  const int64_t n = g->n;
  gsl_matrix *a = gsl_matrix_alloc((size_t)n, (size_t)n);
  double *values = malloc((size_t)n * sizeof *values);
  attn_status status = a && values ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a kernel");
  for (int64_t i = 0; i < n && !status; i++)
    for (int64_t j = 0; j <= i; j++) {
      const bool between = i >= x->n && j < x->n;
      const double given = between ? x->w[j * x->n + i - x->n] : picked_kernel_product(g, i, j);
      a->data[i * n + j] = a->data[j * n + i] =
          left ? exp(picked_kernel_exponent(g, &x->head, i, j)) - given : given;
    }
  if (!status) status = spectrum_symmetric(a, values);
  if (!status) *least = values[n - 1];
  gsl_matrix_free(a);
  free(values);
  return status;
}

static attn_status order_evaluate(const evidence *e, result_bound *bound) {
  picked_kernel g = {.n = 0};
  picked_case x;
  double given = 0, left = 0;
  attn_status status = picked_case_make(e, e->view->low_rank, PAIRS, &x, bound);
  if (!status && x.n) status = picked_kernel_make(e->memory, e->view->low_rank, &x.head, &g);
  if (status || !g.n) return status;
  const double size = sqrt(vector_dot(g.g, g.g, g.n * g.m) * vector_dot(g.w, g.w, g.n * g.m)),
               room = x.rounding * ((double)g.n + g.condition * size);
  status = least_of(&x, &g, false, &given);
  if (!status) status = least_of(&x, &g, true, &left);
  if (!status && (!g.decided || !(room < 0x1p-6)))
    bound_uncertifiable(
        bound, "rounding is amplified to the size of the kernel, or decides which points are left out");
  else if (!status)
    bound_hard(bound, fmax(0, -fmin(given, left)), room);
  return status;
}

const check check_cor1 = {
    .name = "COR-1",
    .of = &of_kernels,
    .kind = KIND_HARD,
    .statement =
        "a weight is no further from the exact one than what picked points leave of its query and key",
    .source = "derived: what is left of a positive kernel is positive, and |R_ij|^2 <= R_ii R_jj",
    .formula =
        "|b W_ij - A_ij| <= sqrt(R_ii R_jj) + rounding, of the first 384 queries and keys at most: R = H - "
        "H_.S H_SS^-1 H_S. of the points that are picked, W the method's weights. Of keys H(x, y) = e^(c "
        "x.y) over the row's sum of e^(c q.k), A softmax, b = sum_S A / sum_S W, for W is right up to a "
        "factor on S; of points H = A = e^(-c |x - y|^2 / 2), b = 1.",
    .assumes = "Weights are finite; rows in which rounding decides, by the condition of H_SS, are left out.",
    .cause = "values are not times the kernel's diagonal, or keys are centred on the queries' side alone",
    .nulls = CHECK_REJECTS_ALL("every key is picked, Gaussian inputs of std 1"),
    .evaluate = rest_evaluate,
};

const check check_sky1 = {
    .name = "SKY-1",
    .of = &of_points,
    .kind = KIND_HARD,
    .statement =
        "what landmarks give of the kernel of all queries and keys, and what they leave, is positive",
    .source = "Chen et al. 2021, section 4; Schur complements of positive matrices are positive",
    .formula =
        "0 <= N <= G in the order of positive matrices, of the first 128 queries and keys at most: G their "
        "kernel e^(-c |x - y|^2 / 2), N = G_.S G_SS^-1 G_S. with the method's weights in the place of its "
        "block of queries and keys. It implies |G_QK - W|_2 <= |G - N|_2.",
    .assumes = "The condition of G_SS leaves digits of the kernel; weights are finite.",
    .cause = "rows are divided by their sums, or landmarks are of queries alone where keys are meant",
    .nulls = CHECK_REJECTS_ALL("every query and key is a landmark, Gaussian inputs of std 1"),
    .evaluate = order_evaluate,
};
