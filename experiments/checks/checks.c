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
  if (!c->of->holds(e->view)) {
    bound_not_applicable(b, "another kind of variant");
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
