/* described_parts.c - the parts of a variant, asked of it and checked, and the engine that takes them. */
#include "core/internal.h"

#include <stdio.h>
#include <string.h>

#define ENGINE(name) extern const attn_engine attn_engine_##name;
#include "core/engines.def"
#undef ENGINE

static const attn_engine *const engines[] = {
#define ENGINE(name) &attn_engine_##name,
#include "core/engines.def"
#undef ENGINE
};
enum { ENGINES = sizeof engines / sizeof *engines };

/* A part that lacks its function is there, too, and refused where it is checked. */
unsigned attn_parts_kinds(const attn_parts *p) {
  const bool there[] = {p->pattern.row || p->pattern.sees || p->pattern.max_runs,
                        p->selector.select || p->selector.prepare || p->selector.max_runs,
                        p->features.map || p->features.columns,
                        p->projection.project || p->projection.slots,
                        attn_kv_changes(p->store.k, &p->store.k_scheme) ||
                            attn_kv_changes(p->store.v, &p->store.v_scheme),
                        p->recurrence.gates || p->recurrence.chunk,
                        p->toeplitz.law || p->toeplitz.block,
                        p->normaliser.normalise || p->normaliser.weight || p->normaliser.gates,
                        p->low_rank.pick,
                        p->low_rank.segment,
                        p->pooling.block};
  unsigned kinds = 0;
  for (size_t i = 0; i < sizeof there / sizeof *there; i++) kinds |= (unsigned)there[i] << i;
  return kinds;
}

attn_view attn_parts_view(const attn_variant *v, const attn_parts *p) {
  const unsigned kinds = attn_parts_kinds(p);
  return (attn_view){.caps = p->caps,
                     .seed = p->seed,
                     .budget = v->budget,
                     .exempt = p->exempt,
                     .pattern = kinds & ATTN_PART_PATTERN ? &p->pattern : NULL,
                     .selector = kinds & ATTN_PART_SELECTOR ? &p->selector : NULL,
                     .features = kinds & ATTN_PART_FEATURES ? &p->features : NULL,
                     .projection = kinds & ATTN_PART_PROJECTION ? &p->projection : NULL,
                     .recurrence = kinds & ATTN_PART_RECURRENCE ? &p->recurrence : NULL,
                     .cache = p->cache.score ? &p->cache : NULL,
                     .store = kinds & ATTN_PART_STORE ? &p->store : NULL,
                     .low_rank = p->low_rank.rank ? &p->low_rank : NULL,
                     .pooling = kinds & ATTN_PART_POOLING ? &p->pooling : NULL,
                     .latent = p->latent.rank ? &p->latent : NULL,
                     .by_features = kinds & ATTN_PART_FEATURES,
                     .rounding = p->rounding,
                     .normaliser = kinds & ATTN_PART_NORMALISER ? &p->normaliser : NULL};
}

static attn_status find_engine(const attn_variant *v, attn_parts *p) {
  char known[128] = "";
  if (!attn_parts_kinds(p) && !(v->caps & ATTN_CAP_EXACT))
    return attn_fail(ATTN_EINVAL, "variant %s: describe gives no part, which is exact attention", v->name);
  for (size_t i = 0; i < ENGINES; i++) {
    const size_t used = strlen(known);
    snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", engines[i]->name);
    if (!engines[i]->accepts(p)) continue;
    p->method = &engines[i]->method;
    return ATTN_OK;
  }
  return attn_fail(ATTN_EUNSUPPORTED, "variant %s: no engine takes its parts together (engines: %s)", v->name,
                   known);
}

attn_status attn_describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const attn_variant *v = c->variant;
  *out = (attn_parts){.caps = v->caps, .seed = v->seed, .exempt = v->exempt};
  attn_status status = v->describe(b, c, out);
  if (status) return status;
  const attn_view view = attn_parts_view(v, out);
  if ((status = attn_view_check(v, &view))) return status;
  if (!out->method) return find_engine(v, out);
  return out->method->execute ? ATTN_OK
                              : attn_fail(ATTN_EINVAL, "variant %s: its method's execute is NULL", v->name);
}

attn_status attn_parts_work_size(const attn_context *c, const attn_parts *p, size_t *bytes) {
  *bytes = 0;
  return p->method->work_size ? p->method->work_size(c, p, bytes) : ATTN_OK;
}

static int64_t count_exemptions(const attn_exemption *list) {
  int64_t count = 0;
  while (list && list[count].reason) count++;
  return count;
}

attn_status attn_join_exemptions(attn_builder *b, const attn_exemption *const *lists, int64_t count,
                                 const attn_exemption **out) {
  int64_t all = 0, next = 0;
  *out = NULL;
  for (int64_t l = 0; l < count; l++) all += count_exemptions(lists[l]);
  if (!all) return ATTN_OK;
  attn_exemption *made = attn_builder_alloc(b, all + 1, sizeof *made);
  if (!made) return ATTN_ENOMEM;
  for (int64_t l = 0; l < count; l++)
    for (int64_t i = 0; i < count_exemptions(lists[l]); i++) made[next++] = lists[l][i];
  made[next] = (attn_exemption){0, NULL};
  *out = made;
  return ATTN_OK;
}
