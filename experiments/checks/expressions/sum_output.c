/* sum_output.c - SUM-1: a gated sum is the sum of its terms' outputs, each of which is computed alone; also
 * with a tensor of gates that is drawn here. */
#include "experiments/checks/expressions/part_output.h"
#include "experiments/checks/check_table.h"

#include <math.h>
#include <stdlib.h>

static const uint64_t purpose_gates = 0x6761746573; /* "gates" */

static int64_t gates_before(const attn_expression *sum, int64_t term) {
  int64_t count = 0;
  for (int64_t t = 0; t < term; t++) count += sum->terms[t]->given;
  return count;
}

/* What element x of a term's output is multiplied by. */
static double gate_of(const evidence *e, const attn_expression *sum, int64_t term, int64_t x) {
  const attn_problem *p = e->problem;
  const attn_call call = evidence_call(e);
  const attn_extra *gates = attn_call_extra(&call, "gate");
  const double own = sum->terms[term]->gate;
  if (!sum->terms[term]->given || !gates) return own;
  const int64_t row = x / p->d_v, line = row / p->n_q, batch = gates->batch > 1 ? line / p->heads : 0,
                head = line % p->heads * gates->heads / p->heads,
                at = ((batch * gates->heads + head) * p->n_q + row % p->n_q) * gates->columns,
                of_term = gates->columns / gates_before(sum, sum->count);
  const double given =
      attn_get(gates->at, at + gates_before(sum, term) * of_term + x % p->d_v % of_term, gates->dtype);
  return own < 0 ? -given : given;
}

static attn_status compute_part(const evidence *e, const attn_expression *part, void *o) {
  const attn_problem *p = e->problem;
  return part_compute(e, &(part_request){part, 0, p->n_q, 0, p->n_kv, p->causal}, o, NULL);
}

/* Adds g o_t and |g o_t| of every element. */
static attn_status add_term(const evidence *e, const attn_expression *sum, int64_t term, int64_t count,
                            void *o, double *want, double *size) {
  const attn_status status = compute_part(e, sum->terms[term], o);
  for (int64_t x = 0; x < count && !status; x++) {
    const double part = gate_of(e, sum, term, x) * attn_get(o, x, e->problem->dtype);
    want[x] += part;
    size[x] += fabs(part);
  }
  return status;
}

static attn_status judge_sum(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const attn_expression *sum = e->view->expression;
  const int64_t count = p->batch * p->heads * p->n_q * p->d_v;
  const attn_number *number = &attn_numbers[p->dtype];
  double *want = region_zeros(e->memory, count, sizeof *want),
         *size = region_zeros(e->memory, count, sizeof *size);
  void *o = region_take(e->memory, count, attn_dtype_size(p->dtype));
  part_finding found = {0, 0};
  attn_status status = region_status(e->memory, "for the terms of a sum");
  for (int64_t t = 0; t < sum->count && !status; t++) status = add_term(e, sum, t, count, o, want, size);
  /* A gate, a product and a sum for each term, here and there; subnormal results lose half their least
   * unit. */
  for (int64_t x = 0; x < count && !status; x++)
    if (!(size[x] > number->largest / 2))
      part_compare(&found, e, x, want[x],
                   4 * (double)sum->count * (number->unit * size[x] + number->subnormal));
  if (!status) status = part_settle(&found, e, bound);
  return status;
}

/* The run again, with gates in 0 ... 1 for each head and column. */
static attn_status draw_gates(const evidence *e, evidence *drawn) {
  const attn_problem *p = e->problem;
  const attn_expression *sum = e->view->expression;
  const int64_t columns = gates_before(sum, sum->count) * p->d_v, lines = p->batch * p->heads,
                count = lines * p->n_q * columns;
  const size_t size = attn_dtype_size(p->dtype);
  attn_extra *extra = region_take(e->memory, e->extras + 1, sizeof *extra);
  void *gates = region_take(e->memory, count, size),
       *o = region_take(e->memory, lines * p->n_q * p->d_v, size);
  const attn_status status = region_status(e->memory, "for gates");
  attn_rng rng;
  if (status) return status;
  attn_rng_init(&rng, e->seed, purpose_gates, 0);
  for (int64_t at = 0; at < count; at++) attn_set(gates, at, p->dtype, attn_rng_uniform(&rng));
  extra[0] = (attn_extra){"gate", p->dtype, gates, p->batch, p->heads, p->n_q, columns};
  for (int64_t x = 0; x < e->extras; x++) extra[x + 1] = e->extra[x];
  *drawn = *e;
  drawn->extra = extra, drawn->extras++, drawn->o = o;
  return compute_part(drawn, sum, o);
}

static attn_status sum_evaluate(const evidence *e, result_bound *bound) {
  const attn_expression *sum = e->view->expression;
  evidence drawn;
  attn_status status = judge_sum(e, bound);
  if (status || bound->verdict != VERDICT_PASS || !gates_before(sum, sum->count)) return status;
  status = draw_gates(e, &drawn);
  return status ? status : judge_sum(&drawn, bound);
}

const check check_sum1 = {
    .name = "SUM-1",
    .of = &of_sums,
    .kind = KIND_HARD,
    .statement = "the output is the sum of the terms' outputs, each times its gate",
    .source = "definition of a gated sum",
    .formula =
        "|o - sum_t g_t o_t| <= 4 T u sum_t |g_t o_t|, every element, with T terms, of which each o_t "
        "is computed by a separate plan. Of a sum with gates of the call again with such a tensor, drawn "
        "in 0 ... 1 for each head, query and column of o. measured: the largest ratio of the two sides.",
    .assumes = "It says nothing of the terms, which are checked where they are run by themselves, nor of an "
               "element whose terms are beyond the range of its type.",
    .cause = "a gate goes to another term or head, or a term is computed on what another left",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, 0.5*(tiled) + 0.5*topk"),
    .evaluate = sum_evaluate,
};
