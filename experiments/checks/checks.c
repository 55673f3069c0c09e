/* checks.c - the table of bound checks, and how one of them, or all of a variant, are evaluated. */
#include "experiments/checks/check.h"

#include "experiments/checks/table.h"
#include "experiments/evidence/probe.h"

#include <stdio.h>
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
  b->verdict = VERDICT_ERROR;
  snprintf(b->message, sizeof b->message, "%s", attn_last_error());
}

int checks_run(const evidence *given, result_bound bounds[RESULT_BOUNDS_MAX]) {
  const char *const *name = attn_plan_variant(given->plan)->checks;
  evidence e = *given;
  struct block_cache *own = e.cache ? NULL : block_cache_create();
  int count = 0;
  if (!e.cache) e.cache = own;
  for (; name && *name && count < RESULT_BOUNDS_MAX; name++, count++) {
    const check *c = check_find(*name);
    if (c && e.cache) {
      check_evaluate(c, &e, &bounds[count]);
      continue;
    }
    bound_begin(&bounds[count], *name, KIND_REPORT);
    bounds[count].verdict = VERDICT_ERROR;
    snprintf(bounds[count].message, sizeof bounds[count].message, "%s",
             c ? "no memory for the cache of a block" : "no check has this name");
  }
  probe_forget(e.cache);
  block_cache_free(own);
  return count;
}
