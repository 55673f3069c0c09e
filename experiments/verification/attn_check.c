/* attn_check.c - see attn_check.h. */
#include "experiments/verification/attn_check.h"

#include <stdlib.h>

#include "experiments/checks/check.h"
#include "experiments/verification/check_plan.h"

static attn_status require(const void *given, const char *name) {
  return given ? ATTN_OK : attn_fail(ATTN_EINVAL, "attn_check: %s is NULL", name);
}

static attn_bound bound_of(const result_bound *b) {
  const check *c = check_find(b->name);
  return (attn_bound){.name = b->name,
                      .kind = check_kind_names[b->kind],
                      .verdict = check_verdict_names[b->verdict],
                      .message = b->message,
                      .statement = c->statement,
                      .formula = c->formula,
                      .source = c->source,
                      .value = b->value,
                      .measured = b->measured,
                      .p_value = b->p_value};
}

static attn_status checked_make(const result_row *row, attn_checked **out) {
  attn_checked *made = malloc(sizeof *made);
  attn_bound *bounds = malloc(((size_t)row->bounds_count + 1) * sizeof *bounds);
  if (!made || !bounds) {
    free(made);
    free(bounds);
    return attn_fail(ATTN_ENOMEM, "attn_check: no memory for %d verdicts", row->bounds_count);
  }
  for (int i = 0; i < row->bounds_count; i++) bounds[i] = bound_of(&row->bounds[i]);
  *made = (attn_checked){.verdict = check_verdict_names[row->verdict],
                         .error = row->err_rel_fro,
                         .error_low = row->err_rel_fro_lo,
                         .error_high = row->err_rel_fro_hi,
                         .rows = row->rows_sampled,
                         .count = (size_t)row->bounds_count,
                         .bounds = bounds};
  *out = made;
  return ATTN_OK;
}

attn_status attn_check(const attn_plan *plan, const attn_tensors *t, const attn_check_options *options,
                       attn_checked **out) {
  const attn_check_options chosen = options ? *options : (attn_check_options){.rows = 0};
  attn_status status = require(out, "the result");
  if (status) return status;
  *out = NULL;
  status = require(plan, "the plan");
  if (!status) status = require(t, "the tensors");
  if (!status) status = require(t->q, "q");
  if (!status) status = require(t->k, "k");
  if (!status) status = require(t->v, "v");
  if (!status) status = require(t->o, "o");
  if (!status && chosen.rows < 0)
    status = attn_fail(ATTN_EINVAL, "attn_check: rows = %lld, expected 0 or more", (long long)chosen.rows);
  if (status) return status;
  const check_request request = {.seed = chosen.seed, .rows = chosen.rows, .properties = chosen.properties};
  result_row row;
  result_row_init(&row);
  status = check_plan(plan, t, &request, &row);
  if (!status) status = checked_make(&row, out);
  result_row_free(&row);
  return status;
}

void attn_checked_free(attn_checked *c) {
  if (c) free(c->bounds);
  free(c);
}
