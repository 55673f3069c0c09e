/* sum_output.c - SUM-1: a gated sum is the sum of its terms' outputs, each of which is computed alone. */
#include "experiments/checks/expressions/part_output.h"
#include "experiments/checks/check_table.h"

#include <math.h>
#include <stdlib.h>

/* Adds g o_t and |g o_t| of every element. */
static attn_status add_term(const evidence *e, const attn_expression *term, int64_t count, void *o,
                            double *want, double *size) {
  const attn_problem *p = e->problem;
  const attn_status status =
      part_compute(e, &(part_request){term, 0, p->n_q, 0, p->n_kv, p->causal}, o, NULL);
  for (int64_t x = 0; x < count && !status; x++) {
    const double part = term->gate * attn_get(o, x, p->dtype);
    want[x] += part;
    size[x] += fabs(part);
  }
  return status;
}

static attn_status sum_evaluate(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const attn_expression *sum = e->view->expression;
  const int64_t count = p->batch * p->heads * p->n_q * p->d_v;
  const attn_number *number = &attn_numbers[p->dtype];
  double *want = region_zeros(e->memory, count, sizeof *want),
         *size = region_zeros(e->memory, count, sizeof *size);
  void *o = region_take(e->memory, count, attn_dtype_size(p->dtype));
  part_finding found = {0, 0};
  attn_status status = region_status(e->memory, "for the terms of a sum");
  for (int64_t t = 0; t < sum->count && !status; t++)
    status = add_term(e, sum->terms[t], count, o, want, size);
  /* A gate, a product and a sum for each term, here and there; subnormal results lose half their least
   * unit. */
  for (int64_t x = 0; x < count && !status; x++)
    if (!(size[x] > number->largest / 2))
      part_compare(&found, e, x, want[x],
                   4 * (double)sum->count * (number->unit * size[x] + number->subnormal));
  if (!status) status = part_settle(&found, e, bound);
  return status;
}

const check check_sum1 = {
    .name = "SUM-1",
    .of = &of_sums,
    .kind = KIND_HARD,
    .statement = "the output is the sum of the terms' outputs, each times its number",
    .source = "definition of a gated sum",
    .formula = "|o - sum_t g_t o_t| <= 4 T u sum_t |g_t o_t|, every element, with T terms, of which each o_t "
               "is computed by a separate plan. measured: the largest ratio of the two sides.",
    .assumes = "It says nothing of the terms, which are checked where they are run by themselves, nor of an "
               "element whose terms are beyond the range of its type.",
    .cause = "a number goes to another term, or a term is computed on what another left",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, 0.5*(tiled) + 0.5*topk"),
    .evaluate = sum_evaluate,
};
