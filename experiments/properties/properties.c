/* properties.c - one property, or all of them on one trial. */
#include "experiments/properties/property.h"

#include "experiments/evidence/cache.h"

attn_status property_evaluate(const evidence *e, property_judge *judge, result_bound *bound) {
  trial *own = NULL;
  if (e->cache->trial) return judge(e->cache->trial, bound);
  attn_status status = trial_make(e, &own);
  if (status == ATTN_EUNSUPPORTED) return bound_not_applicable(bound, attn_last_error());
  if (!status) status = judge(own, bound);
  trial_free(own);
  return status;
}

attn_status properties_run(const evidence *e, result_row *row) {
  trial *shared = NULL;
  attn_status status = ATTN_OK;
  if (!trial_make(e, &shared)) e->cache->trial = shared; /* else each property says why */
  for (const check *const *c = checks_all; !status && *c; c++) {
    if ((*c)->kind != KIND_PROPERTY || !(*c)->of->holds(e->view)) continue;
    result_bound bound;
    check_evaluate(*c, e, &bound);
    status = result_row_add_bound(row, &bound);
  }
  e->cache->trial = NULL;
  trial_free(shared);
  return status;
}
