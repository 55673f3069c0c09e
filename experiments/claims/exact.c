/* exact.c - claims of Dao et al., FlashAttention (2022, arXiv:2205.14135): exact, in linear memory. */
#include "experiments/claims/claim.h"

#include <math.h>
#include <stdlib.h>

#include "data/data.h"
#include "experiments/checks/check.h"

enum { LENGTHS = 4 };

static attn_status memory(claim_report *r) {
  static const char *const specs[] = {"tiled", "full"};
  double slope[2];
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
    claim_value(r, slope[v], v ? 2 : 1, "exponent of n of %s's memory beside Q, K, V, O", specs[v]);
  }
  r->reproduced = slope[0] <= 1.05;
  return ATTN_OK;
}
const claim claim_flash_memory = {"flash-memory",
                                  "tiled attention needs memory that grows at most linearly with n",
                                  "Dao et al. 2022, Theorem 1", memory};

static attn_status exact(claim_report *r) {
  const data_request request = {1, 1, 1, 1024, 1024, 64, 64, ATTN_F32, 1};
  data_qkv in = {0};
  attn_plan *plan = NULL;
  exact_rows *rows = NULL;
  attn_view view;
  float *o = calloc(1024 * 64, sizeof *o);
  void *work = NULL;
  evidence e = {.cache = block_cache_create()};
  result_bound bound = {0};
  attn_status status = data_source_make("gaussian", &request, &in, NULL);
  const attn_problem p = data_qkv_problem(&in);
  if (status) goto out;
  if ((status = attn_plan_create(&plan, &p, "tiled", NULL)) || (status = attn_plan_inspect(plan, &view)))
    goto out;
  work = malloc(attn_plan_work_size(plan) + 1);
  if (!o || !work || !e.cache) {
    status = attn_fail(ATTN_ENOMEM, "no memory to judge tiled attention");
    goto out;
  }
  if ((status = attn_plan_execute(plan, in.q, in.k, in.v, NULL, o, work)) ||
      (status = exact_rows_compute(&p, in.q, in.k, in.v, NULL, 0, &rows)))
    goto out;
  e.plan = plan;
  e.problem = attn_plan_problem(plan);
  e.view = &view;
  e.q = in.q;
  e.k = in.k;
  e.v = in.v;
  e.o = o;
  e.exact = rows;
  check_evaluate(check_find("FP-2"), &e, &bound);
  claim_value(r, bound.measured, (double)NAN, "FP-2: the error that comes nearest to its bound");
  claim_value(r, bound.value, (double)NAN, "its rounding bound");
  r->reproduced = bound.verdict == VERDICT_PASS;
out:
  exact_rows_free(rows);
  attn_plan_destroy(plan);
  block_cache_free(e.cache);
  data_qkv_free(&in);
  free(o);
  free(work);
  return status;
}
const claim claim_flash_exact = {
    "flash-exact", "tiled attention is exact but for rounding: within the bound FP-2 (n = 1024)",
    "Dao et al. 2022, Theorem 1", exact};
