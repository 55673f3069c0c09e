/* dyadic_output.c - DYA-1: dyadic(X) is exact attention on the diagonal joined with X on the rectangles that
 * halves leave. */
#include "experiments/checks/expressions/part_output.h"
#include "experiments/checks/check_table.h"

#include <math.h>
#include <stdlib.h>

/* Of every row: the log-sum-exp of its parts so far, their outputs weighed by exp(lse of the part - *lse),
 * and the sum of these magnitudes. */
typedef struct joined {
  const evidence *e;
  const attn_expression *x;
  double *lse, *o, *size; /* [batch, heads, n_q], and so [.., d_v] */
  int64_t offset, joins;  /* position of the first query; parts of a row, at most */
  double most;            /* magnitude of a finite log-sum-exp, at most */
} joined;

static void add_row(joined *j, int64_t row, const void *part, int64_t at, double lse) {
  const attn_problem *p = j->e->problem;
  const double top = fmax(j->lse[row], lse);
  if (lse == -(double)INFINITY) return;
  const double own = exp(j->lse[row] - top), other = exp(lse - top);
  for (int64_t l = 0; l < p->d_v; l++) {
    const double x = other * attn_get(part, at * p->d_v + l, p->dtype);
    double *o = &j->o[row * p->d_v + l], *size = &j->size[row * p->d_v + l];
    *o = (own > 0 ? own * *o : 0) + x;
    *size = (own > 0 ? own * *size : 0) + fabs(x);
  }
  /* The outputs stay times what their parts weigh, relative to `top`. */
  const double both = own + other;
  for (int64_t l = 0; l < p->d_v; l++) {
    j->o[row * p->d_v + l] /= both;
    j->size[row * p->d_v + l] /= both;
  }
  j->lse[row] = top + log(both);
  j->most = fmax(j->most, fabs(lse));
}

/* Queries and keys by their positions. */
static attn_status add_part(joined *j, int64_t first, int64_t end, int64_t key, int64_t key_end,
                            bool diagonal) {
  const attn_problem *p = j->e->problem;
  const int64_t from = first > j->offset ? first : j->offset, rows = end - from, lines = p->batch * p->heads;
  if (rows <= 0) return ATTN_OK;
  void *o = malloc((size_t)(lines * rows * p->d_v) * attn_dtype_size(p->dtype));
  double *lse = malloc((size_t)(lines * rows) * sizeof *lse);
  const int64_t row = from - attn_problem_position(p, 0);
  const part_request part = {diagonal ? NULL : j->x->terms[0], row, rows, key, key_end - key, diagonal};
  attn_status status = o && lse
                           ? part_compute(j->e, &part, o, lse)
                           : attn_fail(ATTN_ENOMEM, "no memory for a part of %s", attn_plan_spec(j->e->plan));
  for (int64_t at = 0; at < lines * rows && !status; at++)
    add_row(j, at / rows * p->n_q + row + at % rows, o, at, lse[at]);
  free(o);
  free(lse);
  return status;
}

static attn_status add_causal(joined *j, int64_t first, int64_t end, int64_t level) {
  int64_t half = j->x->base;
  if (level > j->joins) j->joins = level;
  if (end - first <= half) return add_part(j, first, end, first, end, true);
  while (2 * half < end - first) half *= 2;
  attn_status status = add_part(j, first + half, end, first, first + half, false);
  if (!status) status = add_causal(j, first, first + half, level + 1);
  return status ? status : add_causal(j, first + half, end, level + 1);
}

static attn_status dyadic_evaluate(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const int64_t rows = p->batch * p->heads * p->n_q;
  const double u = attn_numbers[p->dtype].unit;
  joined j = {.e = e,
              .x = e->view->expression,
              .lse = region_zeros(e->memory, rows, sizeof *j.lse),
              .o = region_zeros(e->memory, rows * p->d_v, sizeof *j.o),
              .size = region_zeros(e->memory, rows * p->d_v, sizeof *j.size),
              .offset = p->n_kv > p->n_q ? attn_problem_position(p, 0) : 0};
  part_finding found = {0, 0};
  attn_status status = region_status(e->memory, "for the parts of a dyadic expression");
  for (int64_t r = 0; r < rows && !status; r++) j.lse[r] = -(double)INFINITY;
  if (!status) status = add_causal(&j, 0, p->n_kv, 1);
  /* A join rounds the two products, their sum and the result; weights are exponentials of log-sum-exps that
   * fp64 holds. */
  const double relative = 4 * (double)j.joins * u + 8 * (double)j.joins * 0x1p-53 * (2 + j.most);
  for (int64_t x = 0; x < rows * p->d_v && !status; x++)
    part_compare(&found, e, x, j.o[x], relative * j.size[x] + attn_numbers[p->dtype].subnormal);
  if (!status) status = part_settle(&found, e, bound);
  return status;
}

const check check_dya1 = {
    .name = "DYA-1",
    .of = &of_dyadic,
    .kind = KIND_HARD,
    .statement = "causal attention by halves is the softmax over its parts: exact ones on the diagonal, X on "
                 "the others",
    .source = "algorithm 4 of Han et al. 2023 (arXiv:2310.05869), for any attention X with a log-sum-exp",
    .formula =
        "causal(n) = [causal(p), causal(n - p) + X(q_2; k_1, v_1)], p = the largest base 2^k < n, parts "
        "joined in fp64 by their log-sum-exps: |o - o^| <= (4 J u + 8 J 2^-53 (2 + max |lse|)) sum of the "
        "parts' shares of |o^|, J joins, every element. measured: the largest ratio of the two sides.",
    .assumes = "It says nothing of X, which is checked where it is run by itself.",
    .cause = "a part is joined twice or left out, begins at another key, or sees the padding of another",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, dyadic(tiled,base=16)"),
    .evaluate = dyadic_evaluate,
};
