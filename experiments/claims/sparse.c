/* sparse.c - claims about patterns: the cost of Longformer (Beltagy et al. 2020, arXiv:2004.05150), the graph
 * of BigBird (Zaheer et al. 2020, arXiv:2007.14062). */
#include "experiments/claims/claim.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/mathematics/graph.h"

enum { LENGTHS = 4 };

/* The shortest of five executions on zeros. */
static attn_status duration(const attn_plan *plan, double *seconds) {
  const attn_problem *p = attn_plan_problem(plan);
  const size_t count = (size_t)(p->n_q * p->d_qk);
  float *in = calloc(count, sizeof *in), *out = calloc(count, sizeof *out);
  void *work = malloc(attn_plan_work_size(plan) + 1);
  attn_status status = in && out && work ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory to time a plan");
  *seconds = (double)INFINITY;
  for (int i = 0; i < 5 && !status; i++) {
    const double start = omp_get_wtime();
    status = attn_plan_execute(plan, in, in, in, NULL, out, work);
    *seconds = fmin(*seconds, omp_get_wtime() - start);
  }
  free(in);
  free(out);
  free(work);
  return status;
}

static attn_status linear(claim_report *r) {
  double length[LENGTHS], flops[LENGTHS], seconds[LENGTHS];
  for (int i = 0; i < LENGTHS; i++) {
    const attn_problem p = attn_problem_make(1, 1, (int64_t)4096 << i, 64);
    attn_plan *plan = NULL;
    attn_status status = attn_plan_create(&plan, &p, "longformer:window=256,global=4", NULL);
    if (!status) status = duration(plan, &seconds[i]);
    if (!status) flops[i] = 2 * attn_plan_cost(plan).mul_add;
    attn_plan_destroy(plan);
    if (status) return status;
    length[i] = (double)p.n_q;
  }
  const double cost = claim_slope(length, flops, LENGTHS), time = claim_slope(length, seconds, LENGTHS);
  claim_value(r, cost, 1, "exponent of n of the operations, n = 4096 ... 32768");
  claim_value(r, time, 1, "exponent of n of the time (at most 1.2)");
  r->reproduced = fabs(cost - 1) <= 0.02 && time <= 1.2;
  return ATTN_OK;
}
const claim claim_longformer_linear = {"longformer-linear", "the cost of longformer grows linearly with n",
                                       "Beltagy et al. 2020, section 3.1", linear};

/* Window of a block on each side and r random blocks: about D = 2 r + 2 neighbours, of which a Ramanujan
 * graph would have 2 sqrt(D - 1) / D. The paper has this of Erdos-Renyi graphs only. */
static attn_status graph(claim_report *r) {
  enum { BLOCKS = 512, RANDOM = 3, DEGREE = 2 * RANDOM + 2, SEEDS = 5 };
  const double ramanujan = 2 * sqrt(DEGREE - 1.0) / DEGREE;
  double lambda[SEEDS];
  for (int s = 0; s < SEEDS; s++) {
    const attn_problem p = attn_problem_make(1, 1, BLOCKS, 8);
    char spec[80];
    snprintf(spec, sizeof spec, "bigbird:block=1,window=3,random=%d,global=0,seed=%d", (int)RANDOM, s);
    attn_plan *plan = NULL;
    attn_view view;
    attn_status status = attn_plan_create(&plan, &p, spec, NULL);
    if (!status) status = attn_plan_inspect(plan, &view);
    if (!status) status = graph_eigenvalue(view.pattern, &p, 0, 1, &lambda[s]);
    attn_plan_destroy(plan);
    if (status) return status;
  }
  const claim_figure *f = claim_mean(r, lambda, SEEDS, ramanujan, "second eigenvalue, 512 blocks, 3 random");
  r->reproduced = f->high <= 1.05 * ramanujan;
  return ATTN_OK;
}
const claim claim_bigbird_graph = {
    "bigbird-graph", "the second eigenvalue of BigBird's graph is within 5 % of a random regular graph's",
    "Zaheer et al. 2020, section 2, says so of Erdos-Renyi graphs", graph};
