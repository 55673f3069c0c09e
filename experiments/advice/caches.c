/* caches.c - the budgets of policies that fit into a number of bytes (caches.h): with keys of b_k and values
 * of b_v bytes it is floor(bytes / (batch kv_heads (b_k + b_v))). */
#include "experiments/advice/caches.h"

#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"

static const attn_dtype types[ADVICE_TYPES][2] = {{0, 0}, /* as they are given */
                                                  {ATTN_F16, ATTN_F16},
                                                  {ATTN_Q8_0, ATTN_Q8_0},
                                                  {ATTN_Q8_0, ATTN_Q4_0},
                                                  {ATTN_Q4_0, ATTN_Q4_0},
                                                  {ATTN_INT2, ATTN_INT2}};

static const char *const presets[] = {"evict:score=streaming", "evict:score=knorm",    "evict:score=keydiff",
                                      "evict:score=tova",      "evict:score=h2o_mean", "evict:score=snapkv"};
enum { PRESETS = sizeof presets / sizeof *presets };

/* budget: the name of its parameter. */
static attn_status check_policy(const attn_problem *p, const char *text, const char **budget) {
  attn_spec *spec = NULL;
  attn_plan *plan = NULL;
  attn_view view = {.cache = NULL};
  attn_status status = attn_spec_parse(&spec, text);
  if (!status) status = attn_plan_create_spec(&plan, p, spec, &(attn_options){.threads = 1});
  if (!status) status = attn_plan_inspect(plan, &view);
  *budget = status ? NULL : spec->variant->budget.parameter;
  if (!status && (!view.cache || !*budget))
    status = attn_fail(ATTN_EINVAL, "%s: expected a policy of caches, such as evict:score=snapkv", text);
  else if (!status && attn_spec_names(spec, *budget))
    status = attn_fail(ATTN_EINVAL, "%s: its %s follows from the bytes that a cache may take", text, *budget);
  attn_plan_destroy(plan);
  attn_spec_destroy(spec);
  return status;
}

/* text: to be freed; NULL: no memory. */
static attn_status add(advice_caches *out, char *text) {
  if (!text) return ATTN_ENOMEM;
  out->spec[out->count++] = text;
  return ATTN_OK;
}

attn_status advice_caches_make(const attn_problem *p, int64_t bytes, const char *const *policies, int count,
                               advice_caches *out) {
  const char *const *list = count ? policies : presets, *budget[ADVICE_POLICIES];
  int64_t least = INT64_MAX;
  attn_status status = ATTN_OK;
  *out = (advice_caches){.count = 0};
  if (!count) count = PRESETS;
  if (count > ADVICE_POLICIES)
    status = attn_fail(ATTN_EINVAL, "%d policies of caches: expected %d at most", count, ADVICE_POLICIES);
  for (int i = 0; !status && i < count; i++) status = check_policy(p, list[i], &budget[i]);
  for (int t = 0; !status && t < ADVICE_TYPES; t++) {
    const bool given = !types[t][0];
    const attn_dtype k = given ? attn_stored(p->k, p->dtype) : types[t][0],
                     v = given ? attn_stored(p->v, p->dtype) : types[t][1];
    const int64_t key = p->batch * (p->kv_heads ? p->kv_heads : p->heads) *
                        (int64_t)(attn_row_bytes(p->d_qk, k) + attn_row_bytes(p->d_v, v));
    least = key < least ? key : least;
    if (given && key * p->n_kv <= bytes) {
      status = attn_fail(ATTN_EINVAL, "all %lld positions fit into %lld bytes as they are: %lld are taken",
                         (long long)p->n_kv, (long long)bytes, (long long)(key * p->n_kv));
      break;
    }
    char *store = text_format("store:k=%s,v=%s", attn_numbers[k].name, attn_numbers[v].name);
    if (!store || key * p->n_kv <= bytes) {
      status = add(out, store);
      continue;
    }
    for (int i = 0; !status && key <= bytes && i < count; i++)
      status = add(out, text_format("%s%c%s=%lld%s%s", list[i], strchr(list[i], ':') ? ',' : ':', budget[i],
                                    (long long)(bytes / key), given ? "" : " | ", given ? "" : store));
    free(store);
  }
  if (!status && !out->count)
    status = attn_fail(ATTN_EINVAL, "a cache of %lld bytes holds no key: a position takes %lld at least",
                       (long long)bytes, (long long)least);
  return status;
}

void advice_caches_free(advice_caches *c) {
  for (int i = 0; i < c->count; i++) free(c->spec[i]);
  *c = (advice_caches){.count = 0};
}
