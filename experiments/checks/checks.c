/* checks.c - the table of bound checks, how one of them, or all of a variant, are evaluated, and whether
 * there is a law to hold the variant against. */
#include "experiments/checks/check.h"

#include "core/expression/attn_expression.h"
#include "experiments/checks/check_table.h"
#include "experiments/evidence/cache.h"
#include "experiments/evidence/head.h"
#include "experiments/evidence/probe.h"

#include <math.h>
#include <string.h>

const check *const checks_all[] = {
#define FAMILY(title)
#define CHECK(name) &check_##name,
#include "experiments/checks/checks.def"
#undef CHECK
#undef FAMILY
    NULL,
};

/* The list again, with its headings. */
static const struct {
  const char *title; /* of a family; NULL: a check */
  const check *check;
} listed[] = {
#define FAMILY(title) {title, NULL},
#define CHECK(name) {NULL, &check_##name},
#include "experiments/checks/checks.def"
#undef CHECK
#undef FAMILY
};

const char *check_family(const check *c) {
  const char *title = NULL;
  for (size_t i = 0; i < sizeof listed / sizeof *listed; i++) {
    if (listed[i].title) title = listed[i].title;
    if (listed[i].check == c) return title;
  }
  return NULL;
}

const check *check_find(const char *name) {
  for (const check *const *c = checks_all; *c; c++)
    if (strcmp((*c)->name, name) == 0) return *c;
  return NULL;
}

/* Why no bound speaks of values of this size, or NULL. Weights are at most 1 under a softmax, whose bounds
 * know underflow; features and projected values may be far larger or smaller than the values. */
static const char *out_of_range(const evidence *e) {
  const bool weighed = e->view->features || e->view->projection || e->view->residual;
  const double largest = attn_numbers[e->problem->dtype].largest,
               smallest = attn_numbers[e->problem->dtype].normal;
  double most, least;
  head_values_range(e, &most, &least);
  if (isfinite(most) && most > largest / (weighed ? 0x1p40 : 4 * (double)e->problem->n_kv))
    return "values near the largest number: their sums may overflow";
  return weighed && least > 0 && least < smallest * 0x1p40
             ? "values near the least normal number: products underflow"
             : NULL;
}

static void evaluate(const check *c, const evidence *e, result_bound *b) {
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
  region memory = {.last = NULL};
  evidence own = *e;
  own.memory = &memory;
  const attn_status status = c->evaluate(&own, b);
  region_free(&memory);
  if (!status) return;
  bound_begin(b, c->name, c->kind);
  /* A function of another program knows what it refuses when it is called. */
  const bool refused = status == ATTN_EUNSUPPORTED && attn_exempt(e->view->exempt, ATTN_EXEMPT_BITS);
  bound_excuse(b, refused ? VERDICT_NOT_APPLICABLE : VERDICT_ERROR, attn_last_error());
}

void check_evaluate(const check *c, const evidence *e, result_bound *b) {
  evaluate(c, e, b);
  if (e->cache && e->cache->judged) e->cache->judged(e->cache->to, b);
}

bool check_asked(const check *c, const evidence *e) {
  return c->of->holds(e->view) && (!e->only || strcmp(c->name, e->only) == 0);
}

attn_status checks_run(const evidence *given, result_row *row) {
  evidence e = *given;
  struct block_cache *own = e.cache ? NULL : block_cache_create();
  attn_status status = ATTN_OK;
  if (!e.cache && !(e.cache = own)) return attn_fail(ATTN_ENOMEM, "no memory for the cache of a block");
  for (const check *const *c = checks_all; !status && *c; c++) {
    if ((*c)->kind == KIND_PROPERTY || !check_asked(*c, &e)) continue;
    result_bound bound;
    check_evaluate(*c, &e, &bound);
    status = result_row_add_bound(row, &bound);
  }
  probe_forget(e.cache);
  block_cache_free(own);
  return status;
}

/* -- is there a law? -- */

static const char *pattern_unsaid(const attn_view *v, const attn_pattern *p) {
  return !p || p->sees || v->caps & ATTN_CAP_EXACT
             ? NULL
             : "states no law (attn_pattern.sees): its rows are held against itself";
}

static const char *selector_unsaid(const attn_selector *x) {
  return !x || x->every || x->grain || x->hashes || x->least > 0 || (x->weighted && x->moments)
             ? NULL
             : "states no law of its selection (attn_selector): what it selects is held against itself";
}

static const char *cache_unsaid(const attn_kv_rule *r) {
  return r->score->law ? NULL
                       : "states no law of its score (attn_kv_score): what goes is held against itself";
}

static const char *features_unsaid(const attn_feature_map *m) {
  return !m || m->law.kind != ATTN_FEATURES_UNKNOWN
             ? NULL
             : "states no law of its features (attn_feature_law): outputs are held against its own map";
}

static const char *recurrence_unsaid(const attn_recurrence *x) {
  return !x || x->law ? NULL : "states no law of its gates (attn_recurrence.law)";
}

static const char *normaliser_unsaid(const attn_normaliser *x) {
  return !x || x->weight ? NULL : "states no law of its weights (attn_normaliser.weight)";
}

static const char *unsaid(const attn_view *v) {
  const attn_residual *x = v->residual;
  const char *why = pattern_unsaid(v, v->pattern);
  if (!why) why = v->cache ? cache_unsaid(v->cache) : selector_unsaid(v->selector);
  if (!why) why = features_unsaid(v->features);
  if (!why) why = recurrence_unsaid(v->recurrence);
  if (!why) why = normaliser_unsaid(v->normaliser);
  if (!why && v->toeplitz) why = features_unsaid(v->toeplitz->features);
  if (!why && x) why = pattern_unsaid(v, x->pattern);
  if (!why && x) why = selector_unsaid(x->selector);
  if (!why && x) why = features_unsaid(x->features);
  return why;
}

/* Of a term, or of the variant without the graph; what cannot be planned so leaves unsaid what it did
 * before. */
static const char *unsaid_alone(const evidence *e, const attn_spec *spec, const char *before) {
  const attn_context *c = attn_plan_context(e->plan);
  const attn_options options = {.threads = 1, .isa = attn_plan_isa(e->plan), .blocks = c->blocks};
  attn_problem p = *c->problem;
  attn_plan *plan = NULL;
  attn_view view;
  p.mask = (attn_mask){.kind = ATTN_MASK_NONE};
  if (!attn_plan_create_spec(&plan, &p, spec, &options) && !attn_plan_inspect(plan, &view))
    before = unsaid(&view);
  attn_plan_destroy(plan);
  return before;
}

/* What law of its keys or features the variant leaves unsaid, or NULL. An expression states the laws of its
 * terms, and a pattern within a user's graph the one that it has without. */
static const char *missing(const evidence *e) {
  const attn_context *c = attn_plan_context(e->plan);
  const attn_expression *x = c->expression;
  const char *why = unsaid(e->view);
  if (!why) return NULL;
  if (x && x->kind == ATTN_EXPRESSION_JOIN) {
    for (int64_t t = 0; why && t < x->count; t++) {
      attn_spec *term = NULL;
      const char *own = attn_spec_at(x->terms[t], &term) ? why : unsaid_alone(e, term, why);
      attn_spec_destroy(term);
      if (own) return own;
    }
    return NULL;
  }
  return c->problem->mask.kind == ATTN_MASK_PATTERN ? unsaid_alone(e, attn_plan_parsed_spec(e->plan), why)
                                                    : why;
}

attn_status stated_demand(const evidence *e, result_bound *bound) {
  const char *why = missing(e);
  if (!why || bound->verdict == VERDICT_VIOLATED) return ATTN_OK;
  bound->kind = KIND_HARD;
  return bound_excuse(bound, VERDICT_UNCHECKED, why);
}
