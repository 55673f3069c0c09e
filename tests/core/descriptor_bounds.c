/* descriptor_bounds.c - every member of a descriptor on its bounds, which are accepted, and just beyond
 * them: refused by its name, with the value and what was expected. */
#include "tests/support/core.h"

#include <float.h>
#include <stddef.h>

static void nothing(void) {} /* in place of every function of a part, of which none is called */

static attn_status execute(const void *state, const attn_call *call) {
  (void)state, (void)call;
  return ATTN_OK;
}

static attn_parts parts;
static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b, (void)c;
  *out = parts;
  return ATTN_OK;
}
ATTN_VARIANT(fake, TOY, .describe = describe, .cost = no_cost)

enum { D = 8, N = 32, CHAIN_SCORE = 16 * (D + 256) + 15, CHAIN_SUM = 16 * (N + 256) + 15 };
/* No bound on this side. */
#define NONE ((double)NAN)
#define AT(member) offsetof(attn_parts, member)

/* Parts beside a method: checked, and taken by no engine. Several, since some members exclude others. */
enum { DRAWN, FIXED, GROUPED, BASES };
static attn_parts base_of(int base) {
  static const size_t functions[BASES][20] = {
      /* to the first 0 */
      [DRAWN] = {AT(pattern.row), AT(pattern.candidate), AT(selector.select), AT(selector.prepare),
                 AT(selector.always), AT(selector.log_weight), AT(selector.moments), AT(features.map),
                 AT(projection.project), AT(recurrence.gates), AT(normaliser.normalise), AT(normaliser.gates),
                 AT(normaliser.gate), AT(low_rank.pick), AT(store.k_scheme.decode)},
      [FIXED] = {AT(pattern.row), AT(selector.select), AT(selector.margins), AT(features.map),
                 AT(features.law.kernel), AT(store.v_scheme.decode)},
      [GROUPED] = {AT(selector.select), AT(selector.always), AT(selector.log_weight), AT(low_rank.pick)}};
  static const attn_method method = {.execute = execute};
  static const attn_parts bases[BASES] = {
      [DRAWN] = {.pattern = {.max_runs = 1, .grain = 4, .global = true},
                 .selector = {.rows = 1,
                              .max_runs = 1,
                              .prepared_bytes = 8,
                              .weighted = true,
                              .grain = 1,
                              .epsilon = 0.5,
                              .delta = 0.5},
                 .features = {.columns = 4, .law = {.kind = ATTN_FEATURES_POSITIVE, .vectors = 4}},
                 .projection = {.slots = 4},
                 .recurrence = {.chunk = 4, .rounds = true},
                 .normaliser = {.columns = 1, .gain = 1, .sums = true, .reach = 1},
                 .store = {.v = ATTN_INT4, .k_scheme.bits = 1},
                 .low_rank = {.rank = 4, .picked = ATTN_PICKED_KEYS, .temperature = 1},
                 .latent = {.rank = 4, .shared = 2},
                 .pooling = {.block = 1}},
      [FIXED] = {.pattern.max_runs = 1,
                 .selector = {.rows = 1, .max_runs = 1, .grain = 1, .index = {1, 4}},
                 .features = {.columns = 1, .law.kind = ATTN_FEATURES_FIXED},
                 .store = {.k = ATTN_INT4, .residual = 8, .group = 4, .v_scheme.bits = 1},
                 .low_rank = {.rank = 4, .best = ATTN_BEST_WEIGHTS}},
      [GROUPED] = {.selector = {.rows = 1, .max_runs = 1, .weighted = true, .grain = 1},
                   .store = {.k = ATTN_INT4, .group = 4},
                   .low_rank = {.rank = 4}}};
  void (*const function)(void) = nothing;
  attn_parts x = bases[base];
  x.method = &method;
  x.rounding = (attn_rounding){.unit = 0x1p-24, .score = 8, .value = 32, .sum = 32};
  for (const size_t *at = functions[base]; *at; at++) memcpy((char *)&x + *at, &function, sizeof function);
  return x;
}

#define SAID(member, said) \
  { said, AT(member) }
#define M(member) SAID(member, #member)
#define ABSENT(member) SAID(member, "variant fake: " #member " is NULL")
#define TAKEN(member) SAID(member, "is of keys that are always taken")
#define MARGINS(member) SAID(member, "selector.margins go with a grain of 1")
#define BOUNDS(base, kind, least, most, ...) \
  {                                          \
    base, kind, least, most, { __VA_ARGS__ } \
  }
/* Members of equal bounds. kind: int64_t 'i', an enumeration 'e', bool 'b', double 'd', a function 'f', there
 * (1) or not (0). said: the member, or with a space in it what is said of it. */
enum { MEMBERS = 25 };
static const struct bounds {
  int base;
  char kind;
  double least, most;
  struct {
    const char *said;
    size_t at;
  } of[MEMBERS];
} bounds[] = {
    BOUNDS(DRAWN, 'f', 1, NONE, ABSENT(pattern.row), ABSENT(selector.select),
           SAID(selector.prepare, "prepare and prepared_bytes go together"),
           SAID(selector.log_weight, "selector.moments and log_weight go together"),
           SAID(selector.moments, "need the law of the weights (moments)"), ABSENT(features.map),
           ABSENT(projection.project), ABSENT(recurrence.gates), ABSENT(normaliser.normalise),
           SAID(normaliser.gates, "normaliser.gates and gate go together"),
           SAID(normaliser.gate, "normaliser.gates and gate go together")),
    BOUNDS(DRAWN, 'i', 1, INT32_MAX, M(pattern.max_runs), M(selector.max_runs), M(projection.slots),
           M(recurrence.chunk)),
    BOUNDS(DRAWN, 'i', 0, NONE, M(pattern.max_pieces), M(pattern.cache), M(pattern.reach), M(pattern.drawn),
           M(selector.max_keys), M(selector.grain), M(selector.kept), M(selector.hashes),
           M(features.law.degree), M(recurrence.betas), M(recurrence.turns), M(normaliser.columns),
           M(normaliser.first), M(store.residual), M(store.group), M(store.prompt), M(low_rank.iterations),
           M(latent.prompt), M(pooling.window), M(pooling.block), M(pooling.overlap), M(pooling.first),
           M(pooling.top), M(rounding.block)),
    BOUNDS(DRAWN, 'i', 1, NONE, SAID(pattern.grain, "speak of blocks, but grain = 0")),
    BOUNDS(FIXED, 'i', 0, NONE, M(pattern.grain),
           SAID(selector.index.heads, "selector.index = 4, expected no heads, or"),
           SAID(store.v_scheme.law.signs, "law.signs of a scheme = -1")),
    BOUNDS(FIXED, 'b', NONE, 0, SAID(pattern.global, "speak of blocks, but grain = 0"),
           SAID(store.smooth, "store.smooth")),
    BOUNDS(FIXED, 'f', NONE, 0, SAID(pattern.candidate, "speak of blocks, but grain = 0"),
           MARGINS(selector.score),
           SAID(low_rank.segment, "low_rank.segment: what is best has no landmarks")),
    BOUNDS(DRAWN, 'e', 0, ATTN_SHARE_TILE, M(selector.share)),
    BOUNDS(DRAWN, 'i', 1, ATTN_TILE, M(selector.rows)),
    BOUNDS(FIXED, 'i', NONE, 0, SAID(selector.prepared_bytes, "prepare and prepared_bytes go together"),
           MARGINS(selector.kept)),
    BOUNDS(DRAWN, 'i', NONE, 1, SAID(selector.grain, "variant fake: selector.score is NULL")),
    BOUNDS(DRAWN, 'd', 0, 1, M(selector.mass), M(selector.least)),
    BOUNDS(DRAWN, 'i', NONE, 0, SAID(selector.hashes, "an even number of buckets, not 0, and")),
    BOUNDS(FIXED, 'i', 1, 1, MARGINS(selector.grain)),
    BOUNDS(FIXED, 'd', NONE, 0, MARGINS(selector.mass)),
    BOUNDS(FIXED, 'i', 1, INT32_MAX, SAID(selector.index.width, "selector.index")),
    BOUNDS(GROUPED, 'i', 1, NONE, TAKEN(selector.grain)),
    BOUNDS(GROUPED, 'i', NONE, 0, TAKEN(selector.kept)),
    BOUNDS(GROUPED, 'f', 1, NONE, TAKEN(selector.always)),
    BOUNDS(GROUPED, 'f', NONE, 0, TAKEN(selector.score), TAKEN(selector.margins)),
    BOUNDS(DRAWN, 'b', 1, NONE, SAID(selector.weighted, "selector.log_weight is of weights"),
           SAID(normaliser.sums, "normaliser.reach is of weights that sum to 1")),
    BOUNDS(DRAWN, 'd', NONE, DBL_MAX, M(selector.epsilon)),
    BOUNDS(GROUPED, 'd', 0, NONE, M(selector.epsilon), M(selector.delta)),
    BOUNDS(GROUPED, 'd', NONE, 0, SAID(selector.epsilon, "selector.epsilon and delta go together"),
           SAID(selector.delta, "selector.epsilon and delta go together")),
    BOUNDS(DRAWN, 'd', NONE, 1 - 0x1p-53, M(selector.delta)),
    BOUNDS(FIXED, 'i', NONE, INT32_MAX, M(features.columns)),
    BOUNDS(FIXED, 'i', 1, NONE, M(features.columns)),
    BOUNDS(DRAWN, 'd', 0, DBL_MAX, M(features.eps), M(features.mul_add), M(features.exp),
           M(normaliser.reach)),
    BOUNDS(DRAWN, 'e', 0, NONE, M(features.law.kind)),
    BOUNDS(FIXED, 'e', NONE, ATTN_FEATURES_FIXED, M(features.law.kind)),
    BOUNDS(FIXED, 'f', 1, NONE, ABSENT(features.law.kernel)),
    BOUNDS(DRAWN, 'i', 1, 4, M(features.law.vectors)),
    BOUNDS(DRAWN, 'd', NONE, 0.125 - 0x1p-56, M(features.law.a)),
    BOUNDS(FIXED, 'd', 0, 0, M(features.law.a)),
    BOUNDS(DRAWN, 'e', 0, ATTN_DRAWS_APART, M(features.law.heads)),
    BOUNDS(DRAWN, 'i', 0, INT32_MAX, M(projection.slice), M(projection.columns), M(low_rank.rank)),
    BOUNDS(DRAWN, 'e', 0, ATTN_PROJECTION_AVERAGES, M(projection.law)),
    BOUNDS(DRAWN, 'e', 0, ATTN_DTYPES - 1, M(recurrence.stored)),
    BOUNDS(DRAWN, 'd', DBL_TRUE_MIN, DBL_MAX, M(normaliser.gain), M(store.k_scheme.bits),
           M(low_rank.temperature)),
    BOUNDS(DRAWN, 'e', 0, ATTN_STORES - 1, M(store.v)),
    BOUNDS(DRAWN, 'e', 0, 0, M(store.k)),
    BOUNDS(FIXED, 'e', 0, 0, M(store.v)),
    BOUNDS(FIXED, 'd', DBL_TRUE_MIN, DBL_MAX, M(store.v_scheme.bits)),
    BOUNDS(DRAWN, 'i', 0, 4, SAID(store.k_scheme.law.bits, "law.bits of a scheme = ")),
    BOUNDS(FIXED, 'e', 0, ATTN_STORES - 1, SAID(store.v_scheme.law.turned, "law.turned of a scheme = ")),
    BOUNDS(DRAWN, 'b', NONE, 0, SAID(store.smooth, "store.smooth")),
    BOUNDS(FIXED, 'e', ATTN_INT1, ATTN_INT8, M(store.k)),
    BOUNDS(GROUPED, 'e', ATTN_INT2, ATTN_INT8, M(store.k)),
    BOUNDS(FIXED, 'i', 8, 8, M(store.residual)),
    BOUNDS(FIXED, 'e', 0, ATTN_BEST_SCORES, M(low_rank.best)),
    BOUNDS(DRAWN, 'e', 0, ATTN_MIDDLE_AGENTS, M(low_rank.middle)),
    BOUNDS(DRAWN, 'd', 0, 1 - 0x1p-53, M(low_rank.rcond)),
    BOUNDS(DRAWN, 'f', NONE, 0, SAID(low_rank.segment, "low_rank.pick: beside landmarks or")),
    BOUNDS(DRAWN, 'e', NONE, 0, SAID(low_rank.best, "low_rank.pick: beside landmarks or")),
    BOUNDS(DRAWN, 'e', 0, ATTN_PICKED_POINTS, M(low_rank.picked)),
    BOUNDS(DRAWN, 'i', 0, 0, M(low_rank.own)),
    BOUNDS(GROUPED, 'i', 0, NONE, M(low_rank.own)),
    BOUNDS(DRAWN, 'i', NONE, INT32_MAX, M(latent.rank)),
    BOUNDS(DRAWN, 'i', 0, 3, M(latent.shared)),
    BOUNDS(DRAWN, 'd', 0, 0x1p-8, M(rounding.unit), M(rounding.exp_error), M(rounding.map),
           M(rounding.operand), M(rounding.weight)),
    BOUNDS(DRAWN, 'd', 0, 64, M(rounding.kappa_s), M(rounding.kappa_d)),
    BOUNDS(DRAWN, 'd', 0, 0x1p-14, M(rounding.underflow)),
    BOUNDS(DRAWN, 'i', 0, CHAIN_SCORE, M(rounding.score)),
    BOUNDS(DRAWN, 'i', 0, CHAIN_SUM, M(rounding.value), M(rounding.sum))};

static attn_status inspect(void) {
  const attn_problem problem = attn_problem_make(1, 1, N, D);
  attn_plan *made = NULL;
  attn_view view;
  attn_status status = attn_plan_create(&made, &problem, "fake", NULL);
  if (!status) status = attn_plan_inspect(made, &view);
  attn_plan_destroy(made);
  return status;
}

static attn_status with(const struct bounds *b, size_t at, double value) {
  void (*const function)(void) = value > 0 ? nothing : NULL;
  parts = base_of(b->base);
  char *member = (char *)&parts + at;
  if (b->kind == 'i') memcpy(member, &(int64_t){(int64_t)value}, sizeof(int64_t));
  if (b->kind == 'e') memcpy(member, &(int){(int)value}, sizeof(int));
  if (b->kind == 'd') memcpy(member, &value, sizeof value);
  if (b->kind == 'b') *member = value > 0;
  if (b->kind == 'f') memcpy(member, &function, sizeof function);
  return inspect();
}

static void expect_bound(const struct bounds *b, int m, double bound, double side) {
  const size_t at = b->of[m].at;
  const char *said = b->of[m].said;
  if (isnan(bound)) return;
  const double beyond = b->kind == 'd' ? nextafter(bound, side * (double)INFINITY) : bound + side,
               shown = b->kind == 'e' ? (double)(unsigned)(int)beyond : beyond;
  if (!strchr(said, ' ')) said = text_of("fake: %s = %.17g, expected", said, shown);
  cr_expect_eq(with(b, at, bound), ATTN_OK, "%s: %.17g: %s", said, bound, attn_last_error());
  cr_expect(with(b, at, beyond) == ATTN_EINVAL && strstr(attn_last_error(), said), "\"%s\" for \"%s\"",
            attn_last_error(), said);
}

Test(core_descriptor_bounds, of_every_member) {
  cr_assert_eq(attn_variant_register(&attn_variant_fake), ATTN_OK, "%s", attn_last_error());
  for (const struct bounds *b = bounds; b < bounds + sizeof bounds / sizeof *bounds; b++)
    for (int m = 0; b->of[m].said; m++) {
      expect_bound(b, m, b->least, -1);
      expect_bound(b, m, b->most, 1);
      if (b->kind == 'd') cr_expect_eq(with(b, b->of[m].at, NONE), ATTN_EINVAL, "%s = NaN", b->of[m].said);
    }
}
