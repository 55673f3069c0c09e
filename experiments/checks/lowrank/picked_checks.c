/* picked_checks.c - LOW-3: weights are those that the descriptor makes of the rows that are picked; CL-1 and
 * CL-2: how far queries of a cluster are from weights of their own (Vyas et al. 2020).
 *
 * CL-1: the Jacobian of softmax, diag(p) - p p^T, is at most 1/2 in the spectral norm and takes nothing from
 * scores to which a constant is added: |p_i - p_c|_2 <= |J (s_i - s_c)|_2 / 2, J = I - 1 1^T / n, which is at
 * most the published c |K|_2 |q_i - q_c|. CL-2: on the keys T of its own a query has m r_j, where A_j = a r_j is
 * exact and A^c sums to m: sum_T |m r_j - A_j| = |m - a| = |sum_T (A^c_j - A_j)| <= sum_T |A^c_j - A_j|, and
 * elsewhere both have A^c.
 *
 * COR-1, SKY-1: what picked points leave of a positive kernel, G - G_.S G_SS^-1 G_S., is positive: an element is
 * at most the root of the two of the diagonal, and no eigenvalue is below 0, nor one of what they give.
 *
 * On the first queries and keys, at most 384 of each, of which the rows are picked again; weights by V = I in
 * fp64. */
#include "experiments/checks/check_table.h"
#include "experiments/checks/lowrank/block.h"
#include "experiments/checks/lowrank/picked.h"
#include "experiments/checks/lowrank/picked_kernel.h"

#include "experiments/evidence/support_row.h"
#include "experiments/mathematics/spectrum.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 384, PAIRS = 128 };

typedef struct picked_case {
  low_rank_head head;
  int64_t n;
  double *w, *own, *exact; /* [n, n]: the method's, by definition, and softmax */
  double *amplified;       /* [n] of `own` */
  double rounding;         /* of a weight, and of its difference to another: a share of it */
  double measured, value;  /* of the worst row */
  bool judged;
} picked_case;

static double dot(const double *x, const double *y, int64_t n) {
  double sum = 0;
  for (int64_t l = 0; l < n; l++) sum += x[l] * y[l];
  return sum;
}

/* n: 0, with a verdict, where there are no such rows. */
static attn_status case_make(const evidence *e, const attn_low_rank *law, int64_t side, picked_case *x,
                             result_bound *bound) {
  const attn_problem *p = e->problem;
  const int64_t d = p->d_qk, exist = e->kv_len ? e->kv_len[0] : p->n_kv;
  int64_t n = p->n_q < exist ? p->n_q : exist;
  *x = (picked_case){.n = 0};
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
  for (int64_t i = 0; i < 2 * n; i++) most[i / n] = fmax(most[i / n], sqrt(dot(q + i * d, q + i * d, d)));
  attn_status status = block_implied(e, (block_shape){n, n, n}, x->w);
  if (!status) status = picked_weights(law, &x->head, 0x1p-53, x->own, x->amplified);
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

/* |x_i - x_j|^2 */
static double far(const picked_kernel *g, const low_rank_head *h, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t l = 0; l < h->d_qk; l++) sum += pow(g->x[i * h->d_qk + l] - g->x[j * h->d_qk + l], 2);
  return sum;
}

static void take(picked_case *x, double measured, double allowed) {
  if (x->judged && measured * x->value <= x->measured * allowed) return;
  if (x->judged && isnan(x->measured)) return;
  x->measured = measured;
  x->value = allowed;
  x->judged = true;
}

static attn_status settle(const picked_case *x, result_bound *bound) {
  if (!x->n) return ATTN_OK;
  if (!x->judged) return bound_uncertifiable(bound, "rounding decides over every row");
  return bound_hard(bound, x->measured, x->value);
}

static attn_status defined_evaluate(const evidence *e, result_bound *bound) {
  picked_case x;
  attn_status status = case_make(e, e->view->low_rank, SIDE, &x, bound);
  for (int64_t i = 0; i < x.n && !status; i++) {
    double off = 0;
    if (!isfinite(x.amplified[i])) continue;
    for (int64_t j = 0; j < x.n; j++) {
      const double diff = fabs(x.w[i * x.n + j] - x.own[i * x.n + j]);
      off = diff <= off ? off : diff;
    }
    take(&x, off, x.rounding * x.amplified[i]);
  }
  return status ? status : settle(&x, bound);
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
  attn_status status = case_make(e, e->view->low_rank, SIDE, &x, bound);
  double *mean = region_take(e->memory, e->problem->d_qk, sizeof *mean);
  if (!status && x.n) status = region_status(e->memory, "for a mean");
  if (!status && x.n) status = picked_rows(e->view->low_rank, &x.head, &cluster, &count);
  for (int64_t i = 0; i < x.n && !status; i++) {
    double squares = 0;
    for (int64_t j = 0; j < x.n; j++) {
      const double diff = x.exact[i * x.n + j] - x.w[i * x.n + j];
      squares += diff * diff;
    }
    take(&x, sqrt(squares), sqrt(far_of(&x.head, cluster, i, mean)) / 2 + x.rounding);
  }
  free(cluster);
  return status ? status : settle(&x, bound);
}

static attn_status own_evaluate(const evidence *e, result_bound *bound) {
  attn_low_rank plain = *e->view->low_rank;
  picked_case x;
  plain.own = 0;
  attn_status status = case_make(e, &plain, SIDE, &x, bound);
  for (int64_t i = 0; i < x.n && !status; i++) {
    double off = 0, shared = 0;
    for (int64_t j = i * x.n; j < (i + 1) * x.n; j++) {
      off += fabs(x.exact[j] - x.w[j]);
      shared += fabs(x.exact[j] - x.own[j]);
    }
    take(&x, off, shared + 4 * x.rounding);
  }
  return status ? status : settle(&x, bound);
}

static attn_status kernel_make(const evidence *e, const picked_case *x, picked_kernel *out,
                               result_bound *bound) {
  attn_status status = picked_kernel_make(e->view->low_rank, &x->head, out);
  if (!status && !(out->condition <= 1e12)) {
    char why[100];
    snprintf(why, sizeof why, "the kernel of picked rows has the condition %.3g, above 1e12", out->condition);
    bound_uncertifiable(bound, why);
    picked_kernel_free(out);
  }
  return status;
}

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
          x->head.scale * dot(g->x + i * x->head.d_qk, g->x + (x->n + j) * x->head.d_qk, x->head.d_qk);
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
                 is = keys ? exact[j] : exp(-x->head.scale * far(g, &x->head, i, x->n + j) / 2);
    take(x, fabs(by * w[j] - is), left * of + x->rounding * x->amplified[i] * fmax(1, by));
  }
}

static attn_status rest_evaluate(const evidence *e, result_bound *bound) {
  picked_kernel g = {.n = 0};
  picked_case x;
  attn_status status = case_make(e, e->view->low_rank, SIDE, &x, bound);
  if (!status && x.n) status = kernel_make(e, &x, &g, bound);
  if (status || !g.n) return status;
  for (int64_t i = 0; i < x.n; i++)
    if (isfinite(x.amplified[i])) judge_row(&x, &g, e->view->low_rank->picked == ATTN_PICKED_KEYS, i);
  picked_kernel_free(&g);
  return settle(&x, bound);
}

/* The least eigenvalue of what the points give of G, with the method's weights between queries and keys, or of
 * what they leave. */
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
          left ? exp(-x->head.scale * far(g, &x->head, i, j) / 2) - given : given;
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
  attn_status status = case_make(e, e->view->low_rank, PAIRS, &x, bound);
  if (!status && x.n) status = kernel_make(e, &x, &g, bound);
  if (status || !g.n) return status;
  const double size = sqrt(dot(g.g, g.g, g.n * g.m) * dot(g.w, g.w, g.n * g.m)),
               room = x.rounding * ((double)g.n + g.condition * size);
  status = least_of(&x, &g, false, &given);
  if (!status) status = least_of(&x, &g, true, &left);
  if (!status && (!g.decided || !(room < 0x1p-6)))
    bound_uncertifiable(
        bound, "rounding is amplified to the size of the kernel, or decides which points are left out");
  else if (!status)
    bound_hard(bound, fmax(0, -fmin(given, left)), room);
  picked_kernel_free(&g);
  return status;
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
    .statement = "keys for which a query has weights of its own bring no row further from the exact one",
    .source = "Vyas et al. 2020, proposition 2",
    .formula =
        "sum_j |P_ij - W_ij| <= sum_j |P_ij - S_ij| + rounding, of the first 384 queries and keys at "
        "most: P the exact weights, W the method's, S = softmax(c m K^T) of the mean m of i's cluster.",
    .assumes = "Weights are finite.",
    .cause = "the mass of a query's own keys is not that which its cluster gives them",
    .nulls = CHECK_REJECTS_ALL("a cluster for each query, Gaussian inputs of std 1"),
    .evaluate = own_evaluate,
};

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
    .assumes = "The condition of H_SS, with its diagonal scaled to 1, is at most 1e12; weights are finite.",
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
    .assumes = "The condition of G_SS is at most 1e12, and leaves digits of the kernel; weights are finite.",
    .cause = "rows are divided by their sums, or landmarks are of queries alone where keys are meant",
    .nulls = CHECK_REJECTS_ALL("every query and key is a landmark, Gaussian inputs of std 1"),
    .evaluate = order_evaluate,
};
