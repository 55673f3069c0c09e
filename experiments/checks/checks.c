/* checks.c - the table of bound checks, and how one of them, or all of a variant, are evaluated. */
#include "experiments/checks/check.h"

#include "experiments/checks/table.h"
#include "experiments/evidence/head.h"
#include "experiments/evidence/probe.h"

#include <float.h>
#include <math.h>
#include <string.h>

const check *const checks_all[] = {
#define CHECK(name) &check_##name,
#include "experiments/checks/checks.def"
#undef CHECK
    NULL,
};

const check *check_find(const char *name) {
  for (const check *const *c = checks_all; *c; c++)
    if (strcmp((*c)->name, name) == 0) return *c;
  return NULL;
}

/* Why no bound speaks of values of this size, or NULL. Weights are at most 1 under a softmax, whose bounds know
 * underflow; features and projected values may be far larger or smaller than the values. */
static const char *out_of_range(const evidence *e) {
  const bool double_precision = e->problem->dtype == ATTN_F64,
             weighed = e->view->features || e->view->projection || e->view->residual;
  const double largest = double_precision ? DBL_MAX : (double)FLT_MAX,
               smallest = double_precision ? DBL_MIN : (double)FLT_MIN;
  double most, least;
  head_values_range(e, &most, &least);
  if (isfinite(most) && most > largest / (weighed ? 0x1p40 : 4 * (double)e->problem->n_kv))
    return "values near the largest number: their sums may overflow";
  return weighed && least > 0 && least < smallest * 0x1p40
             ? "values near the least normal number: products underflow"
             : NULL;
}

void check_evaluate(const check *c, const evidence *e, result_bound *b) {
  bound_begin(b, c->name, c->kind);
  if (!c->of->holds(e->view)) {
    bound_not_applicable(b, "another kind of variant");
    return;
  }
  const char *beyond = e->v ? out_of_range(e) : NULL;
  if (beyond) {
    bound_uncertifiable(b, beyond);
    return;
  }
  if (!c->evaluate(e, b)) return;
  bound_begin(b, c->name, c->kind);
  bound_excuse(b, VERDICT_ERROR, attn_last_error());
}

attn_status checks_run(const evidence *given, result_row *row) {
  evidence e = *given;
  struct block_cache *own = e.cache ? NULL : block_cache_create();
  attn_status status = ATTN_OK;
  if (!e.cache && !(e.cache = own)) return attn_fail(ATTN_ENOMEM, "no memory for the cache of a block");
  for (const check *const *c = checks_all; !status && *c; c++) {
    if ((*c)->kind == KIND_PROPERTY || !(*c)->of->holds(e.view)) continue;
    result_bound bound;
    check_evaluate(*c, &e, &bound);
    status = result_row_add_bound(row, &bound);
  }
  probe_forget(e.cache);
  block_cache_free(own);
  return status;
}
