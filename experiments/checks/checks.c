/* checks.c - the table of bound checks, and how one of them, or all of a variant, are evaluated. */
#include "experiments/checks/check.h"

#include "experiments/checks/table.h"
#include "experiments/evidence/probe.h"

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

void check_evaluate(const check *c, const evidence *e, result_bound *b) {
  bound_begin(b, c->name, c->kind);
  if (!c->evaluate(e, b)) return;
  bound_begin(b, c->name, c->kind);
  bound_excuse(b, VERDICT_ERROR, attn_last_error());
}

attn_status checks_run(const evidence *given, result_row *row) {
  const char *const *name = attn_plan_variant(given->plan)->checks;
  evidence e = *given;
  struct block_cache *own = e.cache ? NULL : block_cache_create();
  attn_status status = ATTN_OK;
  if (!e.cache) e.cache = own;
  for (; !status && name && *name; name++) {
    const check *c = check_find(*name);
    result_bound bound;
    bound_begin(&bound, *name, KIND_REPORT);
    if (c && e.cache)
      check_evaluate(c, &e, &bound);
    else
      bound_excuse(&bound, VERDICT_ERROR,
                   c ? "no memory for the cache of a block" : "no check has this name");
    status = result_row_add_bound(row, &bound);
  }
  probe_forget(e.cache);
  block_cache_free(own);
  return status;
}
