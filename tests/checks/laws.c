/* laws.c - checks know a variant by its laws alone: under other names of variant and parameters they find the
 * same to the bit, faults too, and checks report a variant without laws as such. */
#include "tests/support/checks_generator.h"

enum { NAMES_MAX = 16 };

/* A variant of the library whose parameters are called p0, p1, ... */
typedef struct disguise {
  attn_variant variant;
  attn_param table[NAMES_MAX];
  char names[NAMES_MAX][16], name[32];
} disguise;

static const char *new_name(const disguise *d, const attn_variant *real, const char *name) {
  for (int i = 0; name && real->params[i].name; i++)
    if (strcmp(real->params[i].name, name) == 0) return d->names[i];
  return NULL;
}

typedef attn_status (*description)(attn_builder *, const attn_context *, attn_parts *);

/* Registers the variant of the plan in disguise, and prints the plan's spec for it. describe: in place of its
 * own, or NULL. Each disguise lasts as long as the program of its test. */
static void disguise_make(disguise *d, const attn_plan *plan, description describe, char *spec, size_t size) {
  const attn_variant *real = attn_plan_variant(plan);
  d->variant = *real;
  snprintf(d->name, sizeof d->name, "strange_%s", real->name);
  size_t used = (size_t)snprintf(spec, size, "%s", d->name);
  for (int i = 0; real->params[i].name; i++) {
    char value[64];
    cr_assert_lt(i + 1, NAMES_MAX);
    snprintf(d->names[i], sizeof d->names[i], "p%d", i);
    d->table[i] = real->params[i];
    d->table[i].name = d->names[i];
    if (strncmp(d->table[i].preset, "min(", 4) == 0)
      d->table[i].preset = "1"; /* of another's name; the spec has it */
    attn_param_print(&real->params[i], attn_plan_context(plan)->params, value, sizeof value);
    used += (size_t)snprintf(spec + used, size - used, "%c%s=%s", i ? ',' : ':', d->names[i], value);
  }
  d->variant.name = d->name;
  d->variant.params = d->table;
  d->variant.seed = new_name(d, real, real->seed);
  d->variant.budget.parameter = new_name(d, real, real->budget.parameter);
  if (describe) d->variant.describe = describe;
  cr_assert_eq(attn_variant_register(&d->variant), ATTN_OK, "%s", attn_last_error());
}

static bool same(double a, double b) { return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)); }

static void expect_same(const char *spec) {
  disguise *d = calloc(1, sizeof *d); /* the registry keeps it */
  char strange[300];
  run_case *plain = case_gaussian(spec, attn_problem_make(1, 2, 64, 8), 0.5);
  disguise_make(d, plain->plan, NULL, strange, sizeof strange);
  run_case *other = case_gaussian(strange, attn_problem_make(1, 2, 64, 8), 0.5);
  for (const check *const *c = checks_all; *c; c++) {
    result_bound a = case_check(&plain->e, (*c)->name), b = case_check(&other->e, (*c)->name);
    cr_expect(a.verdict == b.verdict && same(a.measured, b.measured) && same(a.value, b.value) &&
                  same(a.p_value, b.p_value),
              "%s: %s finds %d, %g of %g, p %g, and as %s %d, %g of %g, p %g", spec, (*c)->name,
              (int)a.verdict, a.measured, a.value, a.p_value, strange, (int)b.verdict, b.measured, b.value,
              b.p_value);
  }
}

static const char known[] =
    "full longformer:window=6,dilation=3,global_at=3+50 bigbird:block=4,random=2,global=1 "
    "topk:k=8,by=sparq,r=4 topk:k=8,by=index pages:page=8,budget=16,score=ball "
    "vslash:vertical=6,slash=5,last=9,sink=2 longnet:segments=8+24,dilations=1+3 lsh:rounds=2,buckets=8 "
    "lsh_tail:k=3,l=10 sample:count=12 bigbird:block=4,random=2,tail=uniform "
    "hyper:exact_below=0,block=8,sample=6 linformer:k=16 linformer:k=12,projection=pool "
    "performer:features=24 performer:features=16,kernel=trig,orthogonal=no linear linear:feature=taylor "
    "toeplitz:block=16 normaliser:kind=entmax15 svd:r=8 latent:rank=12 nystrom:landmarks=12,middle=pinv "
    "cluster:clusters=7,topk=0 cluster:clusters=7,topk=5 coreset:keys=9 skyformer:landmarks=9 "
    "nystrom:landmarks=12,middle=agents turbo:bits=2,prod=yes qjl kivi:bits=3,group=4,residual=8 "
    "sage:bits=4,group=7";

static void expect_every_fourth(int from) {
  char list[sizeof known], *left = memcpy(list, known, sizeof known), *spec;
  for (int at = 0; (spec = strtok_r(left, " ", &left)); at++)
    if (at % 4 == from) expect_same(spec);
}

Test(checks_laws, under_other_names_0) { expect_every_fourth(0); }
Test(checks_laws, under_other_names_1) { expect_every_fourth(1); }
Test(checks_laws, under_other_names_2) { expect_every_fourth(2); }
Test(checks_laws, under_other_names_3) { expect_every_fourth(3); }

/* -- descriptions that are wrong or empty -- */

static const attn_variant *real;

static int64_t (*honest)(const void *, int64_t, int64_t, attn_run *);

/* The last run is missing, which in the middle of a sequence is a part of the window or a drawn block. */
static int64_t short_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  int64_t count = honest(state, head, position, runs);
  return count > 1 ? count - 1 : count;
}

static attn_status describe_short(attn_builder *b, const attn_context *c, attn_parts *out) {
  const attn_status status = real->describe(b, c, out);
  honest = out->pattern.row;
  out->pattern.row = short_row;
  return status;
}

static attn_status describe_short_sighted(attn_builder *b, const attn_context *c, attn_parts *out) {
  const attn_status status = real->describe(b, c, out);
  out->pattern.reach = 3;
  return status;
}

/* What an engine needs, and no law. */
static attn_status describe_silent(attn_builder *b, const attn_context *c, attn_parts *out) {
  const attn_status status = real->describe(b, c, out);
  const attn_pattern *p = &out->pattern;
  out->pattern = (attn_pattern){
      .state = p->state, .row = p->row, .max_runs = p->max_runs, .group = p->group, .per_head = p->per_head};
  out->features.law = (attn_feature_law){.kind = ATTN_FEATURES_UNKNOWN};
  out->projection.law = ATTN_PROJECTION_UNKNOWN;
  return status;
}

static run_case *disguised(const char *spec, description describe) {
  disguise *d = calloc(1, sizeof *d);
  char strange[300];
  run_case *plain = case_gaussian(spec, attn_problem_make(1, 2, 64, 8), 0.5);
  real = attn_plan_variant(plain->plan);
  disguise_make(d, plain->plan, describe, strange, sizeof strange);
  case_free(plain);
  return case_gaussian(strange, attn_problem_make(1, 2, 64, 8), 0.5);
}

Test(checks_laws, a_fault_is_found_under_any_name) {
  run_case *c = disguised("bigbird:block=4,random=2,global=1", describe_short);
  expect_verdict(&c->e, "SP-0", VERDICT_VIOLATED, "a run short");
}

/* A budget whose parameter buys no vectors. */
Test(checks_laws, fresh_draws_need_no_budget) {
  static attn_variant own;
  cr_assert_eq(attn_variant_find("performer", &real), ATTN_OK);
  own = *real;
  own.name = "unbuyable";
  own.budget.parameter = own.seed;
  cr_assert_eq(attn_variant_register(&own), ATTN_OK, "%s", attn_last_error());
  const result_bound b = case_judge("unbuyable:features=64", attn_problem_make(1, 2, 64, 8), 0.5, "FAV-1");
  cr_expect(b.verdict == VERDICT_CONSISTENT && b.p_value > 1e-4, "%d, p %g, %s", (int)b.verdict, b.p_value,
            b.message);
}

/* Another seed's rows have more runs. A plan describes its sizes first. */
static attn_status describe_growing(attn_builder *b, const attn_context *c, attn_parts *out) {
  static int count;
  const attn_status status = real->describe(b, c, out);
  if (!b) count++;
  out->pattern.max_runs += count;
  return status;
}

Test(checks_laws, a_law_that_depends_on_the_seed) {
  run_case *c = disguised("bigbird:block=4,random=2,global=1", describe_growing);
  expect_verdict(&c->e, "SP-4", VERDICT_UNCERTIFIABLE, "more runs with another seed");
}

Test(checks_laws, keys_beyond_the_reach_are_found) {
  run_case *c = disguised("longformer:window=8", describe_short_sighted);
  expect_verdict(&c->e, "SP-0", VERDICT_VIOLATED, "a window of 4 keys to each side, said to reach 3");
}

/* What judges laws, what has the run's own in their place, and what needs none. */
Test(checks_laws, what_has_no_law_is_told_so) {
  static const struct {
    const char *spec, *told, *unchecked, *message, *passes;
  } table[] = {
      {"bigbird:block=4,random=2,global=1", "SP-4 SP-5", "SP-0", "states no law (attn_pattern.sees)", "SP-1"},
      {"performer:features=24", "FAV-1 FAV-3 FAV-4a FAV-4b FAV-5 FAV-9 FAV-10", "FP-6",
       "states no law of its features", "FAV-6"},
      {"linformer:k=12", "LIN-1 LIN-2 LIN-7", NULL, NULL, "LIN-6"}};
  for (size_t t = 0; t < sizeof table / sizeof *table; t++) {
    run_case *c = disguised(table[t].spec, describe_silent);
    char list[80], *rest;
    snprintf(list, sizeof list, "%s", table[t].told);
    for (char *name = strtok_r(list, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
      const result_bound b = case_check(&c->e, name);
      cr_expect(b.verdict == VERDICT_NOT_APPLICABLE && strstr(b.message, "the variant describes no "),
                "%s: verdict %d, \"%s\"", name, (int)b.verdict, b.message);
    }
    expect_verdict(&c->e, table[t].passes, VERDICT_PASS, table[t].spec);
    if (table[t].unchecked) {
      const result_bound b = case_check(&c->e, table[t].unchecked);
      cr_expect(b.verdict == VERDICT_UNCHECKED && strstr(b.message, table[t].message), "%s", b.message);
    }
    case_free(c);
  }
}

/* -- features of a kernel that no check knows: w.x, whose products have mean x.y -- */

static double linear_mean(const void *state, double x_square, double y_square, double inner) {
  (void)state, (void)x_square, (void)y_square;
  return inner;
}

static double linear_square(const void *state, double x_square, double y_square, double inner) {
  (void)state;
  return x_square * y_square + 2 * inner * inner;
}

Test(checks_laws, features_of_another_kernel) {
  attn_feature_law law = generator_law(ATTN_FEATURES_OTHER, 8);
  law.softmax = false;
  cr_expect_not_null(
      strstr(generator_check("FAV-8", law, 4, (generator_fault){.gain = 1}).message, "states no mean"));
  law.mean = linear_mean;
  law.square = linear_square;
  result_bound b = generator_check("FAV-8", law, 4, (generator_fault){.gain = 1});
  cr_expect(b.verdict == VERDICT_CONSISTENT && b.p_value > 1e-3, "%g %s", b.p_value, b.message);
  cr_expect_lt(generator_check("FAV-8", law, 4, (generator_fault){.gain = 1.2}).p_value, 1e-4);
  cr_expect_eq(generator_check("FAV-1", law, 4, (generator_fault){.gain = 1}).verdict,
               VERDICT_NOT_APPLICABLE);
  cr_expect_eq(generator_check("FAV-3", law, 4, (generator_fault){.gain = 1}).verdict,
               VERDICT_NOT_APPLICABLE);
}
