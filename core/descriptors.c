/* descriptors.c - checks what a variant states about itself. Members that are missing, tables that do not
 * parse and numbers out of range are refused before an engine, a check or a program follows them. */
#include "core/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t sizes[] = {[ATTN_INT] = sizeof(int64_t),
                               [ATTN_REAL] = sizeof(double),
                               [ATTN_CHOICE] = sizeof(int),
                               [ATTN_TEXT] = sizeof(char *),
                               [ATTN_INT_LIST] = sizeof(attn_int_list)};

static const attn_param *parameter(const attn_variant *v, const char *name) {
  const attn_param *row = v->params;
  while (row->name && strcmp(row->name, name) != 0) row++;
  return row->name ? row : NULL;
}

/* A name has no character that means something in a spec. */
static const char *param_wrong(const attn_variant *v, const attn_param *p) {
  const char *characters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  if (!*p->name || p->name[strspn(p->name, characters)]) return "a name is letters, digits and _";
  if (parameter(v, p->name) != p) return "the name is taken";
  if ((size_t)p->type >= sizeof sizes / sizeof *sizes) return "no such type";
  if (!p->preset || !p->help) return "preset and help must not be NULL";
  if (p->type == ATTN_CHOICE && !p->choices) return "a choice needs choices";
  if (v->params_size < sizes[p->type] || p->offset > v->params_size - sizes[p->type])
    return "its field ends beyond params_size";
  return NULL;
}

static attn_status check_params(const attn_variant *v) {
  void *params = NULL;
  char *canonical = NULL;
  for (const attn_param *p = v->params; p->name; p++) {
    const char *wrong = param_wrong(v, p);
    if (wrong) return attn_fail(ATTN_EINVAL, "variant %s: parameter '%s': %s", v->name, p->name, wrong);
  }
  char owner[128];
  snprintf(owner, sizeof owner, "variant %s", v->name);
  attn_status status = attn_params_parse(owner, v->params, v->params_size, "", &params, &canonical);
  if (status) return status;
  attn_params_free(v->params, params);
  free(canonical);
  return ATTN_OK;
}

static attn_status check_law(const attn_variant *v, const char *seed, const attn_budget *budget) {
  const char *named[] = {seed, budget->parameter};
  for (size_t i = 0; i < sizeof named / sizeof *named; i++)
    if (named[i] && !parameter(v, named[i]))
      return attn_fail(ATTN_EINVAL, "variant %s: its law names '%s', which is not a parameter", v->name,
                       named[i]);
  return ATTN_OK;
}

enum { FIRST_WITH_PARTS = 9 };

attn_status attn_variant_check(const attn_variant *v) {
  if (!v) return attn_null("register", "variant");
  if (v->abi != ATTN_ABI || v->size != sizeof *v)
    return attn_fail(ATTN_EABI,
                     "variant built for interface %u (%u bytes), this library has %u (%zu bytes)%s",
                     (unsigned)v->abi, (unsigned)v->size, ATTN_ABI, sizeof *v,
                     v->abi < FIRST_WITH_PARTS ? ": " ATTN_ABI_CHANGE : "");
  if (!v->name || !*v->name || strspn(v->name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(v->name))
    return attn_fail(ATTN_EINVAL, "a variant's name is lower-case letters, digits and _");
  const struct {
    const char *name;
    bool missing;
  } members[] = {{"summary", !v->summary},
                 {"cite", !v->cite},
                 {"params", !v->params},
                 {"describe", !v->describe},
                 {"cost", !v->cost}};
  for (size_t i = 0; i < sizeof members / sizeof *members; i++)
    if (members[i].missing)
      return attn_fail(ATTN_EINVAL, "variant %s: a required member is NULL: %s", v->name, members[i].name);
  attn_status status = check_params(v);
  return status ? status : check_law(v, v->seed, &v->budget);
}

static attn_status refuse(const char *variant, const char *member, const char *expected, double value) {
  return attn_fail(ATTN_EINVAL, "variant %s: %s = %.17g, expected %s", variant, member, value, expected);
}

/* A count of what there is memory for. */
static bool countable(int64_t x) { return x >= 1 && x <= INT32_MAX; }
static bool finite_from_0(double x) { return x >= 0 && isfinite(x); }
static const char *const count = "1 ... 2^31 - 1", *const not_negative = "none below 0",
                         *const from_0 = "a finite number from 0";

typedef struct number {
  const char *name;
  int64_t value;
} number;
#define NUMBER(x, member) ((number){#member, (x)->member})
#define NOT_NEGATIVE(part, ...) not_below_0(variant, part, (const number[]){__VA_ARGS__, {NULL, 0}})

/* x: to the first without a name. */
static attn_status not_below_0(const char *variant, const char *part, const number *x) {
  char member[48];
  for (; x->name; x++) {
    snprintf(member, sizeof member, "%s.%s", part, x->name);
    if (x->value < 0) return refuse(variant, member, not_negative, (double)x->value);
  }
  return ATTN_OK;
}

attn_status attn_pattern_check(const char *variant, const attn_pattern *p) {
  if (!p->row) return attn_fail(ATTN_EINVAL, "variant %s: pattern.row is NULL", variant);
  if (!countable(p->max_runs)) return refuse(variant, "pattern.max_runs", count, (double)p->max_runs);
  if (!p->grain && (p->global || p->candidate))
    return attn_fail(ATTN_EINVAL,
                     "variant %s: pattern.global and pattern.candidate speak of blocks, but grain = 0",
                     variant);
  return NOT_NEGATIVE("pattern", NUMBER(p, max_pieces), NUMBER(p, cache), NUMBER(p, reach), NUMBER(p, grain),
                      NUMBER(p, drawn));
}

/* A law of weights is of weights, and a promise is of draws whose law is known. */
static attn_status weights_check(const char *variant, const attn_selector *x) {
  if (x->log_weight && !x->moments && (x->grain != 1 || x->kept || !x->always || x->score || x->margins))
    return attn_fail(ATTN_EINVAL,
                     "variant %s: selector.log_weight without moments is of keys that are always taken",
                     variant);
  if (x->moments && !x->log_weight)
    return attn_fail(ATTN_EINVAL, "variant %s: selector.moments and log_weight go together", variant);
  if (x->log_weight && !x->weighted)
    return attn_fail(ATTN_EINVAL, "variant %s: selector.log_weight is of weights, but weighted is false",
                     variant);
  if (!finite_from_0(x->epsilon)) return refuse(variant, "selector.epsilon", from_0, x->epsilon);
  if (!(x->delta >= 0 && x->delta < 1))
    return refuse(variant, "selector.delta", "0 ... 1, less than 1", x->delta);
  if (!(x->epsilon > 0) != !(x->delta > 0))
    return attn_fail(ATTN_EINVAL, "variant %s: selector.epsilon and delta go together", variant);
  if (x->epsilon > 0 && !x->moments)
    return attn_fail(ATTN_EINVAL,
                     "variant %s: selector.epsilon and delta need the law of the weights (moments)", variant);
  return ATTN_OK;
}

static attn_status selector_check(const char *variant, const attn_selector *x) {
  if (!x->select) return attn_fail(ATTN_EINVAL, "variant %s: selector.select is NULL", variant);
  if ((unsigned)x->share > ATTN_SHARE_TILE)
    return refuse(variant, "selector.share", "a way of sharing", (double)x->share);
  if (x->rows < 1 || x->rows > ATTN_TILE)
    return refuse(variant, "selector.rows", "1 ... 64", (double)x->rows);
  if (!countable(x->max_runs)) return refuse(variant, "selector.max_runs", count, (double)x->max_runs);
  attn_status status = NOT_NEGATIVE("selector", NUMBER(x, max_keys), NUMBER(x, grain),
                                    {"kept", x->grain ? x->kept : 0}, NUMBER(x, hashes));
  if (status) return status;
  if (!x->prepare != !x->prepared_bytes)
    return attn_fail(ATTN_EINVAL, "variant %s: selector.prepare and prepared_bytes go together", variant);
  if (!(x->mass >= 0 && x->mass <= 1)) return refuse(variant, "selector.mass", "0 ... 1", x->mass);
  if (!(x->least >= 0 && x->least <= 1)) return refuse(variant, "selector.least", "0 ... 1", x->least);
  if (x->hashes && (x->buckets < 2 || x->buckets % 2 || x->grain))
    return attn_fail(
        ATTN_EINVAL,
        "variant %s: selector.hashes go with an even number of buckets, not %lld, and without a grain",
        variant, (long long)x->buckets);
  if (x->margins && (x->grain != 1 || x->kept || x->mass > 0 || x->score))
    return attn_fail(ATTN_EINVAL,
                     "variant %s: selector.margins go with a grain of 1, and with no kept, mass or score",
                     variant);
  if (x->index.heads < 0 || (x->index.heads > 0 && !countable(x->index.width)))
    return refuse(variant, "selector.index", "no heads, or a width", (double)x->index.width);
  if (x->grain > 1 && !x->score)
    return attn_fail(ATTN_EINVAL, "variant %s: selector.score is NULL, but a unit has several keys", variant);
  return weights_check(variant, x);
}

static attn_status feature_map_check(const char *variant, const attn_feature_map *m) {
  if (!m->map) return attn_fail(ATTN_EINVAL, "variant %s: features.map is NULL", variant);
  if (!countable(m->columns)) return refuse(variant, "features.columns", count, (double)m->columns);
  if (!finite_from_0(m->eps)) return refuse(variant, "features.eps", from_0, m->eps);
  if (!finite_from_0(m->mul_add)) return refuse(variant, "features.mul_add", from_0, m->mul_add);
  if (!finite_from_0(m->exp)) return refuse(variant, "features.exp", from_0, m->exp);
  if ((unsigned)m->law.kind > ATTN_FEATURES_FIXED)
    return refuse(variant, "features.law.kind", "a kind of features", (double)m->law.kind);
  if (m->law.kind == ATTN_FEATURES_FIXED && !m->law.kernel)
    return attn_fail(ATTN_EINVAL, "variant %s: features.law.kernel is NULL, and nothing is drawn", variant);
  if (m->law.degree < 0) return refuse(variant, "features.law.degree", not_negative, (double)m->law.degree);
  if (m->law.kind && m->law.kind != ATTN_FEATURES_FIXED &&
      (m->law.vectors < 1 || m->law.vectors > m->columns))
    return refuse(variant, "features.law.vectors", "1 ... columns", (double)m->law.vectors);
  if (!(m->law.a < 0.125) || (m->law.a != 0 && m->law.kind != ATTN_FEATURES_POSITIVE))
    return refuse(variant, "features.law.a", "less than 1/8, and 0 unless features are positive", m->law.a);
  if ((unsigned)m->law.heads > ATTN_DRAWS_APART)
    return refuse(variant, "features.law.heads", "a law of the draws of heads", (double)m->law.heads);
  return ATTN_OK;
}

static attn_status projection_check(const char *variant, const attn_projection *p) {
  if (!p->project) return attn_fail(ATTN_EINVAL, "variant %s: projection.project is NULL", variant);
  if (!countable(p->slots)) return refuse(variant, "projection.slots", count, (double)p->slots);
  if (p->slice && !countable(p->slice))
    return refuse(variant, "projection.slice", "0 ... 2^31 - 1", (double)p->slice);
  if (p->columns && !countable(p->columns))
    return refuse(variant, "projection.columns", "0 ... 2^31 - 1", (double)p->columns);
  if ((unsigned)p->law > ATTN_PROJECTION_AVERAGES)
    return refuse(variant, "projection.law", "a law of projections", (double)p->law);
  return ATTN_OK;
}

static attn_status low_rank_check(const char *variant, const attn_low_rank *x) {
  if (!countable(x->rank)) return refuse(variant, "low_rank.rank", count, (double)x->rank);
  if ((unsigned)x->best > ATTN_BEST_SCORES)
    return refuse(variant, "low_rank.best", "what is best", (double)x->best);
  if ((unsigned)x->middle > ATTN_MIDDLE_AGENTS)
    return refuse(variant, "low_rank.middle", "a way between landmarks", (double)x->middle);
  if (x->iterations < 0) return refuse(variant, "low_rank.iterations", not_negative, (double)x->iterations);
  if (!(x->rcond >= 0 && x->rcond < 1)) return refuse(variant, "low_rank.rcond", "0 ... 1", x->rcond);
  if (x->best && x->segment)
    return attn_fail(ATTN_EINVAL, "variant %s: low_rank.segment: what is best has no landmarks", variant);
  if (x->pick && (x->best || x->segment))
    return attn_fail(ATTN_EINVAL, "variant %s: low_rank.pick: beside landmarks or what is best", variant);
  if ((unsigned)x->picked > ATTN_PICKED_POINTS)
    return refuse(variant, "low_rank.picked", "what is made of picked rows", (double)x->picked);
  if (x->own < 0 || (x->own && x->picked))
    return refuse(variant, "low_rank.own", "0 or more, and 0 without clusters", (double)x->own);
  if (x->picked == ATTN_PICKED_KEYS && !(x->temperature > 0 && isfinite(x->temperature)))
    return refuse(variant, "low_rank.temperature", "a number above 0", x->temperature);
  return ATTN_OK;
}

/* What the coarsest arithmetic in use, bf16's, may do to a number; a larger error is not due to rounding, and
 * no bound on rounding may excuse it. A term goes through at most this many roundings in a sum (six products
 * of a split element, sums, rescales), and these besides for tiles that are padded. */
static const double unit_most = 0x1p-8;
enum { ROUNDINGS_TERM = 16, ROUNDINGS_BESIDES = 4096 };

attn_status attn_rounding_check(const char *variant, const attn_problem *p, const attn_rounding *r) {
  static const char *const unit = "at most bf16's unit roundoff, 2^-8";
  const struct {
    const char *name, *expected;
    double value, most;
  } errors[] = {{"unit", unit, r->unit, unit_most},
                {"exp_error", unit, r->exp_error, unit_most},
                {"map", unit, r->map, unit_most},
                {"operand", unit, r->operand, unit_most},
                {"weight", unit, r->weight, unit_most},
                {"kappa_s", "at most 64", r->kappa_s, 64},
                {"kappa_d", "at most 64", r->kappa_d, 64},
                {"underflow", "at most 2^-14, binary16's least normal number", r->underflow, 0x1p-14}};
  const struct {
    const char *name, *of;
    int64_t chain, terms;
  } chains[] = {{"score", "d_qk", r->score, p->d_qk},
                {"value", "n_kv", r->value, p->n_kv},
                {"sum", "n_kv", r->sum, p->n_kv}};
  char member[32], expected[96];
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    if (errors[i].value >= 0 && errors[i].value <= errors[i].most) continue;
    snprintf(member, sizeof member, "rounding.%s", errors[i].name);
    snprintf(expected, sizeof expected, "%s: a larger error is not rounding", errors[i].expected);
    return refuse(variant, member, expected, errors[i].value);
  }
  for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
    const int64_t chain = chains[i].chain, most = chains[i].terms + ROUNDINGS_BESIDES / ROUNDINGS_TERM;
    if (chain >= 0 && chain / ROUNDINGS_TERM <= most) continue;
    snprintf(member, sizeof member, "rounding.%s", chains[i].name);
    snprintf(expected, sizeof expected, "0 ... %d %s + %d: a chain has a few roundings for each term",
             ROUNDINGS_TERM, chains[i].of, ROUNDINGS_BESIDES);
    return refuse(variant, member, expected, (double)chain);
  }
  return r->block < 0 ? refuse(variant, "rounding.block", not_negative, (double)r->block) : ATTN_OK;
}

static attn_status store_check(const char *variant, const attn_kv_store *s) {
  const attn_dtype types[] = {s->k, s->v};
  const attn_kv_scheme *const schemes[] = {&s->k_scheme, &s->v_scheme};
  for (int i = 0; i < 2; i++) {
    const attn_kv_scheme *x = schemes[i];
    if ((unsigned)types[i] >= ATTN_STORES || types[i] == ATTN_F64)
      return refuse(variant, i ? "store.v" : "store.k", "a type of fp32 arithmetic", (double)types[i]);
    if (!x->decode) continue;
    if (types[i]) return refuse(variant, i ? "store.v" : "store.k", "0 beside a scheme", (double)types[i]);
    if (!(x->bits > 0 && isfinite(x->bits)))
      return refuse(variant, i ? "store.v_scheme.bits" : "store.k_scheme.bits", "a positive number", x->bits);
    if (x->law.bits < 0 || x->law.bits > 4)
      return refuse(variant, "law.bits of a scheme", "0 ... 4", (double)x->law.bits);
    if ((unsigned)x->law.turned >= ATTN_STORES)
      return refuse(variant, "law.turned of a scheme", "a type of stores", (double)x->law.turned);
    if (x->law.signs < 0) return refuse(variant, "law.signs of a scheme", "0 or more", (double)x->law.signs);
  }
  attn_status status = NOT_NEGATIVE("store", NUMBER(s, residual), NUMBER(s, group), NUMBER(s, prompt));
  if (status) return status;
  if (s->smooth && (s->residual || !s->group))
    return refuse(variant, "store.smooth", "false without a group, or with a residual", 1);
  if (!s->group) return ATTN_OK;
  if (s->k < (s->residual ? ATTN_INT1 : ATTN_INT2) || s->k > ATTN_INT8)
    return refuse(variant, "store.k", "int1 ... int8 beside a group, int2 ... int8 without a residual",
                  (double)s->k);
  return s->residual % s->group == 0
             ? ATTN_OK
             : refuse(variant, "store.residual", "a multiple of the group", (double)s->residual);
}

static attn_status recurrence_check(const char *variant, const attn_recurrence *x) {
  if (!countable(x->chunk)) return refuse(variant, "recurrence.chunk", count, (double)x->chunk);
  if (x->rounds && ((int)x->stored < 0 || (int)x->stored >= ATTN_DTYPES))
    return refuse(variant, "recurrence.stored", "f32, f64, f16 or bf16", (double)x->stored);
  if (!x->gates) return attn_fail(ATTN_EINVAL, "variant %s: recurrence.gates is NULL", variant);
  return NOT_NEGATIVE("recurrence", NUMBER(x, betas), NUMBER(x, turns));
}

static attn_status normaliser_check(const char *variant, const attn_normaliser *x) {
  if (!x->normalise) return attn_fail(ATTN_EINVAL, "variant %s: normaliser.normalise is NULL", variant);
  if (!x->gate != !x->gates)
    return attn_fail(ATTN_EINVAL, "variant %s: normaliser.gates and gate go together", variant);
  if (!finite_from_0(x->reach)) return refuse(variant, "normaliser.reach", from_0, x->reach);
  if (x->columns && !(x->gain > 0 && isfinite(x->gain)))
    return refuse(variant, "normaliser.gain", "a finite number above 0", x->gain);
  if (x->reach > 0 && !x->sums)
    return attn_fail(ATTN_EINVAL, "variant %s: normaliser.reach is of weights that sum to 1", variant);
  return NOT_NEGATIVE("normaliser", NUMBER(x, columns), NUMBER(x, first));
}

static attn_status latent_check(const char *variant, const attn_latent *x) {
  if (!countable(x->rank)) return refuse(variant, "latent.rank", count, (double)x->rank);
  if (x->shared < 0 || x->shared >= x->rank)
    return refuse(variant, "latent.shared", "0 ... rank - 1", (double)x->shared);
  return NOT_NEGATIVE("latent", NUMBER(x, prompt));
}

static attn_status pooling_check(const char *variant, const attn_pooling *x) {
  if (x->block < 1) return refuse(variant, "pooling.block", "1 or more", (double)x->block);
  return NOT_NEGATIVE("pooling", NUMBER(x, window), NUMBER(x, overlap), NUMBER(x, first), NUMBER(x, top));
}

attn_status attn_view_check(const attn_variant *v, const attn_view *view) {
  attn_status status = check_law(v, view->seed, &view->budget);
  if (!status && view->pattern) status = attn_pattern_check(v->name, view->pattern);
  if (!status && view->selector) status = selector_check(v->name, view->selector);
  if (!status && view->features) status = feature_map_check(v->name, view->features);
  if (!status && view->projection) status = projection_check(v->name, view->projection);
  if (!status && view->recurrence) status = recurrence_check(v->name, view->recurrence);
  if (!status && view->normaliser) status = normaliser_check(v->name, view->normaliser);
  if (!status && view->store) status = store_check(v->name, view->store);
  if (!status && view->low_rank) status = low_rank_check(v->name, view->low_rank);
  if (!status && view->latent) status = latent_check(v->name, view->latent);
  if (!status && view->pooling) status = pooling_check(v->name, view->pooling);
  if (!status && view->relocation && !(view->pattern && view->relocation->meet))
    status = attn_fail(ATTN_EINVAL, "variant %s: relocation without a pattern, or meet is NULL", v->name);
  return status;
}
