/* one_call.c - attention in one call: a plan made, executed once and released. */
#include "core/internal.h"

#include <stdlib.h>

attn_status attn_attention(const void *q, const void *k, const void *v, void *o, const attn_problem *problem,
                           const char *spec) {
  attn_plan *plan = NULL;
  void *work = NULL;
  attn_status status = attn_plan_create(&plan, problem, spec, NULL);
  if (status) goto out;
  const size_t bytes = attn_plan_work_size(plan);
  if (bytes && !(work = malloc(bytes))) {
    status = attn_fail(ATTN_ENOMEM, "attention: out of memory for %zu bytes of work", bytes);
    goto out;
  }
  status = attn_plan_execute(plan, q, k, v, NULL, o, work);
out:
  free(work);
  attn_plan_destroy(plan);
  return status;
}
