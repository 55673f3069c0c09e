/* stored_kind.c - "reader | store": attention by the reader to keys and values as the store holds them, from
 * which a policy that gives up keys ranks them, too. */
#include "core/expression/expression_kinds.h"

/* The store that stands behind the bar, with the reader before it. */
static attn_status find_store(attn_builder *b, const attn_context *c, attn_kv_store *out) {
  const attn_expression *e = c->expression;
  const attn_spec *atom = e->terms[1]->atom;
  attn_context own = *c;
  attn_parts parts;
  own.variant = atom->variant;
  own.params = atom->params;
  own.expression = atom->expression;
  attn_status status = attn_context_check(&own);
  if (!status) status = attn_describe(b, &own, &parts);
  if (status) return status;
  if (parts.store.reader)
    return expression_refuse_part(ATTN_EUNSUPPORTED, e->terms[1], "is a store with what reads it");
  *out = parts.store;
  out->reader = e->terms[0]->text;
  return ATTN_OK;
}

/* Codes may depend on where a key stands. */
static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const uint32_t asked = ATTN_CAP_PERMUTATION | ATTN_CAP_POSITIONS;
  out->caps &= c->expression->terms[1]->atom->variant->caps | ~asked;
  return find_store(b, c, &out->store);
}

static attn_status size(const attn_context *c, size_t *work_size, attn_cost *cost) {
  attn_kv_store store;
  attn_status status = find_store(NULL, c, &store);
  (void)work_size; /* an engine's */
  if (status) return status;
  const attn_problem stored = attn_stored_problem(c->problem, &store);
  status = expression_size_term(c, &stored, c->expression->terms[0], NULL, cost);
  if (!status && cost) cost->mul_add += attn_kv_products(c->problem, &store);
  return status;
}

const expression_kind expression_stored = {.describe = describe, .size = size};
