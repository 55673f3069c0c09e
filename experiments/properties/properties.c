/* properties.c - one property, or all of them on one trial. */
#include "experiments/properties/property.h"

#include "experiments/evidence/cache.h"

attn_status property_evaluate(const evidence *e, property_judge *judge, result_bound *bound) {
  trial own, *shared = e->cache->trial;
  if (shared) {
    shared->memory = e->memory;
    return judge(shared, bound);
  }
  attn_status status = trial_make(e, e->memory, &own);
  if (status == ATTN_EUNSUPPORTED)
    status = bound_not_applicable(bound, attn_last_error());
  else if (!status)
    status = judge(&own, bound);
  attn_plan_destroy(own.plan);
  return status;
}

attn_status properties_run(const evidence *e, result_row *row) {
  region memory = {.last = NULL};
  trial shared;
  attn_status status = ATTN_OK;
  if (!trial_make(e, &memory, &shared)) e->cache->trial = &shared; /* else each property says why */
  for (const check *const *c = checks_all; !status && *c; c++) {
    if ((*c)->kind != KIND_PROPERTY || !check_asked(*c, e)) continue;
    result_bound bound;
    check_evaluate(*c, e, &bound);
    status = result_row_add_bound(row, &bound);
  }
  e->cache->trial = NULL;
  attn_plan_destroy(shared.plan);
  region_free(&memory);
  return status;
}
