/* flash_attention.c - claims of Dao et al., FlashAttention (2022, arXiv:2205.14135), Theorem 1: the algorithm
 * returns softmax(Q K^T) V with O(N^2 d) operations and O(N) memory beyond inputs and output. */
#include "experiments/claims/claim.h"

#include <math.h>
#include <stdlib.h>

#include "experiments/checks/check.h"

enum { LENGTHS = 4 };

static attn_status memory(const claim_options *options, claim_report *r) {
  static const char *const specs[] = {"tiled", "full"};
  double slope[2];
  (void)options;
  for (int v = 0; v < 2; v++) {
    double length[LENGTHS], bytes[LENGTHS];
    for (int i = 0; i < LENGTHS; i++) {
      const attn_problem p = attn_problem_make(1, 1, (int64_t)4096 << i, 64);
      attn_plan *plan = NULL;
      attn_status status = attn_plan_create(&plan, &p, specs[v], NULL);
      if (status) return status;
      length[i] = (double)p.n_q;
      bytes[i] = (double)(attn_plan_work_size(plan) + attn_plan_bytes(plan));
      attn_plan_destroy(plan);
    }
    slope[v] = claim_slope(length, bytes, LENGTHS);
    figure_exact(claim_add(r, v ? CLAIM_UNSAID : 1,
                           "exponent of n of %s's memory beside Q, K, V, O, n = 4096 ... 32768", specs[v]),
                 slope[v]);
  }
  r->word = slope[0] <= 1.05 ? CLAIM_REPRODUCED : CLAIM_MISSED;
  return ATTN_OK;
}
const claim claim_flash_memory = {"flash-memory",
                                  "tiled attention needs memory that grows at most linearly with n",
                                  "Dao et al. 2022, Theorem 1", memory};

/* Of the operations the claim is exact; the exponent of the time has to lie nearer 2 than 3. */
static attn_status operations(const claim_options *options, claim_report *r) {
  static const char *const specs[] = {"tiled", "full"};
  static const int64_t n[] = {1024, 2048, 4096};
  double length[3], flops[3], seconds[2][CLAIM_ROUNDS][3];
  attn_status status = claim_times(options, specs, 2, n, 3, &seconds[0][0][0]);
  for (int i = 0; i < 3 && !status; i++) {
    length[i] = (double)n[i];
    status = claim_operations("tiled", n[i], &flops[i]);
  }
  if (status) return status;
  const double cost = claim_slope(length, flops, 3);
  figure_exact(claim_add(r, 2, "exponent of n of tiled's operations, n = 1024 ... 4096"), cost);
  const claim_figure *time = NULL;
  for (int v = 0; v < 2; v++) {
    const claim_figure *f =
        figure_slope(claim_add(r, CLAIM_UNSAID, "exponent of n of %s's processor time, %s Q, K, V", specs[v],
                               claim_tensors_name(options)),
                     length, 3, &seconds[v][0][0], CLAIM_ROUNDS, "rounds");
    if (!v) time = f;
  }
  r->telling = 1;
  r->word = fabs(cost - 2) <= 0.02 && time->value < 2.5 ? CLAIM_REPRODUCED : CLAIM_MISSED;
  return ATTN_OK;
}
const claim claim_flash_operations = {
    "flash-operations", "operations and time of tiled attention grow with n^2, as those of full attention",
    "Dao et al. 2022, Theorem 1", operations};

/* The error that comes nearest to its bound, over the bound. */
static attn_status nearest(const data_qkv *in, double *ratio, bool *held) {
  const attn_problem p = data_qkv_problem(in);
  attn_plan *plan = NULL;
  exact_rows *rows = NULL;
  attn_view view;
  float *o = calloc((size_t)(p.batch * p.heads * p.n_q * p.d_v), sizeof *o);
  void *work = NULL;
  evidence e = {.cache = block_cache_create()};
  result_bound bound = {0};
  attn_status status = attn_plan_create(&plan, &p, "tiled", NULL);
  if (status || (status = attn_plan_inspect(plan, &view))) goto out;
  work = malloc(attn_plan_work_size(plan) + 1);
  if (!o || !work || !e.cache) {
    status = attn_fail(ATTN_ENOMEM, "no memory to judge tiled attention");
    goto out;
  }
  if ((status = attn_plan_execute(plan, in->q, in->k, in->v, NULL, o, work)) ||
      (status = exact_rows_compute(&p, in->q, in->k, in->v, NULL, 0, &rows)))
    goto out;
  e.plan = plan;
  e.problem = attn_plan_problem(plan);
  e.view = &view;
  e.q = in->q;
  e.k = in->k;
  e.v = in->v;
  e.o = o;
  e.exact = rows;
  check_evaluate(check_find("FP-2"), &e, &bound);
  *ratio = bound.measured / bound.value;
  *held = bound.verdict == VERDICT_PASS;
out:
  exact_rows_free(rows);
  attn_plan_destroy(plan);
  block_cache_free(e.cache);
  free(o);
  free(work);
  return status;
}

/* A capture has one set of tensors; of drawn ones there is a set a seed. */
static attn_status exact(const claim_options *options, claim_report *r) {
  enum { SEEDS = 5 };
  double ratio[SEEDS];
  int held = 0;
  for (int s = 0; s < SEEDS; s++) {
    const claim_options drawn = {.seed = claim_seed(options, s)};
    data_qkv in = {0};
    bool passed = false;
    attn_status status = claim_tensors(&drawn, 1024, &in);
    if (!status) status = nearest(&in, &ratio[s], &passed);
    data_qkv_free(&in);
    if (status) return status;
    held += passed;
  }
  figure_mean(claim_add(r, CLAIM_UNSAID,
                        "error over its rounding bound (FP-2) where nearest, standard normal Q, K, V"),
              ratio, SEEDS, "seeds");
  figure_share(claim_add(r, CLAIM_UNSAID, "share of runs within the bound"), held, SEEDS, "seeds");
  bool all = held == SEEDS;
  if (options->captured) {
    data_qkv in = {0};
    bool passed = false;
    double nearest_captured = (double)NAN;
    attn_status status = claim_tensors(options, 1024, &in);
    if (!status) status = nearest(&in, &nearest_captured, &passed);
    data_qkv_free(&in);
    if (status) return status;
    figure_exact(claim_add(r, CLAIM_UNSAID, "error over its rounding bound where nearest, captured Q, K, V"),
                 nearest_captured);
    all = all && passed;
  }
  if (all) claim_holds_under(r, "rounding to fp32 (within the bound FP-2)");
  return ATTN_OK;
}
const claim claim_flash_exact = {"flash-exact", "tiled attention equals exact attention (n = 1024)",
                                 "Dao et al. 2022, Theorem 1", exact};
