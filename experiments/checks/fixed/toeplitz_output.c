/* toeplitz_output.c - TOEP: the output of features with a bias of the distance is the quotient of sums that
 * kernel and bias define, pair by pair.
 *
 * y = t * x, the convolution along positions of t = e^b with x = phi_c(k) v_l, is F^-1 (F t . F x) of length
 * N. A computed transform is off by at most f times the norm of the exact one. For radix 2 (Higham 2002,
 * theorem 24.2) f = log2(N) (mu + gamma_4 (sqrt 2 + mu)), at most 6.7 u log2 N with twiddle factors off by
 * mu <= u; a butterfly of r points, summed directly behind its factors, is off by gamma_(r+2) sqrt(r) + 3.9 u
 * of its norm: 12.6 u of radix 3, 19.6 u of radix 5. f = 10 u log2 N covers all three. With |F t|_inf <=
 * |t|_1, |F x|_inf <= |x|_1 and |F z|_2 = sqrt(N) |z|_2,
 *   |y^ - y|_2 <= 1.1 (f (2 |t|_1 |x|_2 + |t|_2 |x|_1) + 4 u |t|_1 |x|_2).
 * A query meets y_c with phi_c(q): over features, by Cauchy and Schwarz, and by Minkowski,
 *   E_l <= 1.1 |phi(q)| ((2 f + 4 u) |t|_1 (sum_j |phi(k_j)|^2 v_jl^2)^(1/2)
 *                        + f |t|_2 sum_j |phi(k_j)| |v_jl|)
 * for each transform that reaches the row; norms of features are square roots of the kernel of a row with
 * itself. Seen: 1e-4 of this. u is fp64's; the features, their products with the bias and the output round in
 * the run's type. */
#include "experiments/checks/check_table.h"

#include "experiments/checks/fixed/toeplitz_factor.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <string.h>

static const double wide = 0x1p-53;

typedef struct kernels {
  const row_case *x;
  const attn_toeplitz *of;
  int64_t position;
} kernels;

static double kernel_of(const kernels *k, const double *a, int64_t i, const double *b, int64_t j,
                        double *size) {
  const attn_feature_map *map = k->of->features;
  const attn_feature_pair pair = {a, b, i, j};
  return map->law.kernel(map->state, attn_plan_context(k->x->e->plan), &pair, size);
}

static double length_of(const kernels *k, const double *x, int64_t i) {
  double size = 0;
  kernel_of(k, x, i, x, i, &size);
  return sqrt(size);
}

/* |t|_1 and |t|_2 over the distances of the row's head. */
static void factor_norms(const kernels *k, double *one, double *two) {
  const row_case *x = k->x;
  const attn_problem *p = x->e->problem;
  const int64_t last = p->n_q - 1;
  double squares = 0;
  *one = 0;
  for (int64_t j = 0; j < p->n_kv; j++) { /* of the last query, then of the first */
    const double t = toeplitz_factor(k->of, p, x->row->batch, x->row->head, last, j);
    *one += t;
    squares += t * t;
  }
  for (int64_t i = 0; i < last && !p->causal; i++) {
    const double t = toeplitz_factor(k->of, p, x->row->batch, x->row->head, i, p->n_kv - 1);
    *one += t;
    squares += t * t;
  }
  *two = sqrt(squares);
}

static outcome judge_row(const row_case *x) {
  const attn_problem *p = x->e->problem;
  const attn_number *type = &attn_numbers[p->dtype];
  const int64_t d = p->d_qk, d_v = p->d_v;
  row_space *s = x->space;
  const kernels k = {x, x->e->view->toeplitz, attn_problem_position(p, x->row->i)};
  const attn_feature_map *map = k.of->features;
  const double columns = (double)map->columns, tiny = type->normal, n = (double)k.of->length,
               growth = gamma_of(map->columns + 2 * d + 64, type->unit) + gamma_of(2 * p->n_kv + 64, wide);
  double *squares = s->kept, *sizes = s->left, *near = s->bound, sum = 0, off = 0, keys = 0, ones = 0, one,
         two;
  row_support(x->head, NULL, x->row->i, s);
  if (s->count == 0) return (outcome){vector_norm(s->given, d_v), 0, NULL};
  if (!x->head->finite) return (outcome){.why = row_reason(ROW_INFINITE)};
  for (int64_t l = 0; l < d_v; l++) s->o[l] = squares[l] = sizes[l] = near[l] = 0;
  const double query = length_of(&k, s->q, k.position);
  for (int64_t a = 0; a < s->count; a++) {
    const int64_t j = s->index[a];
    const double *key = x->head->k + j * d, *v = x->head->v + j * d_v, norm = length_of(&k, key, j),
                 t = toeplitz_factor(k.of, p, x->row->batch, x->row->head, x->row->i, j);
    double size = 0;
    const double w = t * kernel_of(&k, s->q, k.position, key, j, &size),
                 slack = t * (growth * size + columns * tiny * (1 + query + norm)) + tiny;
    sum += w;
    off += slack;
    keys += norm * norm;
    ones += norm;
    for (int64_t l = 0; l < d_v; l++) {
      s->o[l] += w * v[l];
      near[l] += slack * fabs(v[l]);
      squares[l] += norm * norm * v[l] * v[l];
      sizes[l] += norm * fabs(v[l]);
    }
  }
  factor_norms(&k, &one, &two);
  const double f = 10 * wide * log2(n), reach = 1.1 * query * (double)k.of->transforms,
               of_two = reach * (2 * f + 4 * wide) * one, of_one = reach * (f + 4 * wide) * two;
  off += of_two * sqrt(keys) + of_one * ones;
  if (!((query + 1) * (ones + 1) * (one + 1) * fmax(1, x->head->v_max) < type->largest / 4))
    return (outcome){.why = row_reason(ROW_OVERFLOW)};
  if (map->unnormalised) {
    sum = 1;
    off = 0;
  }
  if (!(fabs(sum) > 2 * off)) return (outcome){.why = row_reason(ROW_CANCELLED)};
  for (int64_t l = 0; l < d_v; l++) {
    s->o[l] /= sum;
    /* Twice: the sums of this function round as well, in chains that are shorter. */
    s->bound[l] = 2 * (near[l] + of_two * sqrt(squares[l]) + of_one * sizes[l] + off * fabs(s->o[l])) /
                      (fabs(sum) - off) +
                  2 * type->unit * fabs(s->o[l]) + tiny;
  }
  return outcome_components(s->given, s->o, s->bound, d_v);
}

static attn_status judge(const evidence *e, result_bound *bound) {
  const attn_feature_law *law = &e->view->toeplitz->features->law;
  if (law->kind != ATTN_FEATURES_FIXED) return stated_demand(e, bound);
  return rows_check(e, row_cost(e) * 4, judge_row, bound);
}

const check check_toep = {
    .name = "TOEP",
    .of = &of_toeplitz,
    .kind = KIND_HARD,
    .statement = "the output is that of the kernel of the features times e^b of the distance, pair by pair",
    .source = "Luo et al. 2021, arXiv:2106.12566; Higham 2002, theorem 24.2, as recalled; derived",
    .formula =
        "|o^_l - o_l| <= 2 (sum_j err_j (|v_jl| + |o_l|) + E_l + E |o_l|) / (|sum_j w_j| - sum_j err_j - E), "
        "w_j "
        "= e^b(i-j) phi(q).phi(k_j) from their definitions, o = sum_j w_j v_j / sum_j w_j; err_j: gamma of "
        "columns + 2 d + 64 roundings, and of 2 n + 64 in fp64, of what the law says that the kernel's "
        "rounding is relative to. E_l = T 1.1 |phi(q)| ((2 f + 4 u) |t|_1 (sum_j |phi(k_j)|^2 v_jl^2)^(1/2) "
        "+ "
        "(f + 4 u) |t|_2 sum_j |phi(k_j)| |v_jl|), E the same of v = 1: T transforms reach a row, the "
        "longest "
        "of N; f = 10 u log2 N, u = 2^-53, t = e^b at all distances. Without a denominator sum_j err_j "
        "|v_jl| "
        "+ "
        "E_l.",
    .cause = "the bias is that of another distance or head, a transform is too short and wraps round, keys "
             "after the query enter, or the sums are not divided",
    .assumes = "Finite inputs, sums within the range of the type, and a denominator that is not lost to "
               "rounding; of some rows, where all would take too long.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, elu"),
    .evaluate = judge,
};
