/* descriptors.c - tables and descriptors that cannot be followed: each is refused with the reason, when the
 * variant is registered or its plan is made. */
#include "attn_variant.h"
#include "tests/support/spec.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static attn_cost cost(const attn_context *c) { return (attn_cost){.mul_add = (double)c->problem->n_q}; }

static const attn_pattern *pattern;
static const attn_feature_map *map;
static const attn_projection *projection;
static attn_parts besides; /* what else there is to say */
static int64_t columns_later;
static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)c;
  if (pattern) out->pattern = *pattern;
  if (map) out->features = *map;
  if (projection) out->projection = *projection;
  if (b) out->features.columns += columns_later;
  if (besides.seed) out->seed = besides.seed;
  out->method = besides.method;
  return ATTN_OK;
}

static const attn_param none[] = {{.name = NULL}};
static attn_variant fake = {.abi = ATTN_ABI,
                            .size = sizeof(attn_variant),
                            .name = "fake",
                            .summary = "one of each fault",
                            .cite = "none",
                            .params = none,
                            .describe = describe,
                            .cost = cost};

static void expect(attn_status status, const char *word) {
  cr_expect(status == ATTN_EINVAL && strstr(attn_last_error(), word), "status %d, \"%s\" for %s", (int)status,
            attn_last_error(), word);
}

static void expect_table(attn_param row, const char *word) {
  const attn_param table[] = {{"first", ATTN_INT, 0, 0, 1, "0", NULL, ""}, row, {.name = NULL}};
  fake.params = table;
  fake.params_size = 16;
  expect(attn_variant_register(&fake), word);
}

Test(core_descriptors, tables_that_no_parser_could_follow) {
  expect_table((attn_param){"a", ATTN_INT, 8, 0, 1, NULL, NULL, ""}, "preset");
  expect_table((attn_param){"a", ATTN_INT, 8, 0, 1, "0", NULL, NULL}, "help");
  expect_table((attn_param){"a", ATTN_CHOICE, 8, 0, 1, "x", NULL, ""}, "choices");
  expect_table((attn_param){"a", ATTN_INT, 9, 0, 1, "0", NULL, ""}, "params_size");
  expect_table((attn_param){"a", ATTN_INT_LIST, 8, 0, 1, "", NULL, ""}, "params_size");
  expect_table((attn_param){"a", ATTN_INT, SIZE_MAX, 0, 1, "0", NULL, ""}, "params_size");
  expect_table((attn_param){"a", (attn_param_type)9, 8, 0, 1, "0", NULL, ""}, "type");
  expect_table((attn_param){"a=b", ATTN_INT, 8, 0, 1, "0", NULL, ""}, "name");
  expect_table((attn_param){"", ATTN_INT, 8, 0, 1, "0", NULL, ""}, "name");
  expect_table((attn_param){"first", ATTN_INT, 8, 0, 1, "0", NULL, ""}, "taken");
  expect_table((attn_param){"a", ATTN_INT, 8, 5, 9, "0", NULL, ""}, "range");
}

enum { MANY = 130 };

Test(core_descriptors, tables_of_any_length) {
  static char names[MANY][16];
  static attn_param table[MANY + 1];
  for (int i = 0; i < MANY; i++) {
    snprintf(names[i], sizeof names[i], "p%d", i);
    table[i] = (attn_param){names[i], ATTN_INT, (size_t)i * 8, 0, 1e6, "7", NULL, ""};
  }
  fake.params = table;
  fake.params_size = MANY * 8;
  cr_assert_eq(attn_variant_register(&fake), ATTN_OK, "%s", attn_last_error());
  const int64_t *values = spec_of("fake:p0=1,p64=2,p129=3")->params;
  cr_expect(values[0] == 1 && values[1] == 7 && values[64] == 2 && values[129] == 3);
  attn_spec *spec = NULL;
  expect(attn_spec_parse(&spec, "fake:p129=1,p129=2"), "given twice");
}

static attn_plan *made;
static attn_status make_plan(void) {
  const attn_problem problem = attn_problem_make(1, 1, 32, 8);
  cr_assert_eq(attn_variant_register(&fake), ATTN_OK);
  made = NULL;
  return attn_plan_create(&made, &problem, "fake", NULL);
}

static void expect_plan(const char *word) { expect(make_plan(), word); }

/* Runs of the queries from FAULTY on; those before it see key 0. */
enum { FAULTY = 17, RUNS_MAX = 4 };
static attn_run given[RUNS_MAX];
static int64_t given_count, writes;
static int64_t row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)state, (void)head;
  if (position < FAULTY) {
    runs[0] = (attn_run){0, 1, 1};
    return 1;
  }
  for (int64_t r = 0; r < writes; r++) runs[r] = given[r % RUNS_MAX];
  return given_count;
}
Test(core_descriptors, a_missing_member_is_named) {
  const attn_variant old = fake;
  fake.describe = NULL;
  expect(attn_variant_register(&fake), "NULL: describe");
  fake = old;
  fake.cite = NULL;
  expect(attn_variant_register(&fake), "NULL: cite");
  fake = old;
}

static attn_status execute(const void *state, const attn_call *call) {
  (void)state, (void)call;
  return ATTN_OK;
}

/* Sizes are wanted before a plan. */
Test(core_descriptors, an_estimate_of_parts_that_are_none) {
  const attn_problem problem = attn_problem_make(1, 1, 32, 8);
  const attn_pattern wrong = {.row = row, .max_runs = -3};
  size_t bytes = 7;
  cr_assert_eq(attn_variant_register(&fake), ATTN_OK);
  pattern = &wrong;
  expect(attn_estimate(&problem, "fake", NULL, &bytes, NULL), "variant fake: pattern.max_runs = -3");
  pattern = NULL;
  expect(attn_estimate(&problem, "fake", NULL, &bytes, NULL), "describe gives no part");
  cr_expect(bytes == 7);
}

Test(core_descriptors, methods) {
  const attn_method empty = {.execute = NULL}, sound = {.execute = execute};
  besides.method = &empty;
  expect_plan("variant fake: its method's execute is NULL");
  besides.method = &sound;
  cr_expect_eq(make_plan(), ATTN_OK, "%s", attn_last_error());
  cr_expect_eq(attn_plan_work_size(made), 0);
  attn_plan_destroy(made);
}

static void expect_pattern(attn_pattern p, const char *word) {
  pattern = &p;
  expect_plan(word);
}

static void give(int64_t count, attn_run a, attn_run b, attn_run c) {
  given[0] = a, given[1] = b, given[2] = c;
  given_count = writes = count;
}

static void expect_rows(const char *word, int64_t count, attn_run a, attn_run b, attn_run c) {
  give(count, a, b, c);
  expect_pattern((attn_pattern){.row = row, .max_runs = 3}, word);
  cr_expect(strstr(attn_last_error(), "variant fake: pattern row of query 17 (head 0): "), "%s",
            attn_last_error());
}

static const attn_run whole = {0, 32, 1}, empty = {-7, 0, 0};

Test(core_descriptors, rows_that_are_none) {
  expect_rows("run 0 {first -1, count 1, step 1} begins before key 0", 1, (attn_run){-1, 1, 1}, whole, whole);
  expect_rows("run 0 {first 0, count -4, step 1} has a negative count", 1, (attn_run){0, -4, 1}, whole,
              whole);
  expect_rows("run 0 {first 0, count 4, step 0} has a step below 1", 1, (attn_run){0, 4, 0}, whole, whole);
  expect_rows("run 0 {first 8, count 4, step -1} has a step below 1", 1, (attn_run){8, 4, -1}, whole, whole);
  expect_rows("run 1 {first 32, count 1, step 1} goes beyond", 2, (attn_run){0, 4, 1}, (attn_run){32, 1, 1},
              whole);
  expect_rows("goes beyond the last key (n_kv = 32)", 1, (attn_run){1, 32, 1}, whole, whole);
  expect_rows("goes beyond", 1, (attn_run){1, 4, 11}, whole, whole);
  expect_rows("goes beyond", 1, (attn_run){5, INT64_MAX, INT64_MAX}, whole, whole);
}

Test(core_descriptors, rows_that_repeat_keys) {
  expect_rows("run 2 (keys 8..11) overlaps run 1 (keys 4..9) in key 8", 3, (attn_run){0, 2, 1},
              (attn_run){4, 6, 1}, (attn_run){8, 4, 1});
  expect_rows("run 1 (keys 0..1) does not begin after run 0 (keys 4..5)", 2, (attn_run){4, 2, 1},
              (attn_run){0, 2, 1}, whole);
  expect_rows("run 2 (keys 0..31) does not begin after run 0 (keys 0..31)", 3, whole, empty, whole);
  expect_rows("run 1 (keys 6..6) overlaps run 0 (keys 0..30 by 3) in key 6", 2, (attn_run){0, 11, 3},
              (attn_run){6, 1, 1}, whole);
  expect_rows("run 2 (keys 7..31 by 4) overlaps run 0 (keys 0..30 by 3) in key 15", 3, (attn_run){0, 11, 3},
              (attn_run){2, 1, 1}, (attn_run){7, 7, 4});
}

Test(core_descriptors, rows_of_too_many_runs) {
  attn_pattern p = {.row = row, .max_runs = 2};
  give(3, (attn_run){0, 1, 1}, (attn_run){2, 1, 1}, (attn_run){4, 1, 1});
  expect_pattern(p, "query 17 (head 0): row writes more than max_runs = 2 runs");
  given_count = 2;
  expect_pattern(p, "row writes more than max_runs = 2 runs");
  writes = 90;
  expect_pattern(p, "row writes more than max_runs = 2 runs");
  writes = 1, given_count = 3;
  expect_pattern(p, "row returns 3 runs, expected 0 ... max_runs = 2");
  given_count = -1;
  expect_pattern(p, "row returns -1 runs");
}

static void expect_sound(int64_t count, attn_run a, attn_run b, attn_run c) {
  const attn_pattern p = {.row = row, .max_runs = 3};
  give(count, a, b, c);
  pattern = &p;
  cr_expect_eq(make_plan(), ATTN_OK, "%s", attn_last_error());
  attn_plan_destroy(made);
}

/* Runs that interleave, and empty ones. */
Test(core_descriptors, rows_that_are_sound) {
  expect_sound(0, whole, whole, whole);
  expect_sound(1, whole, whole, whole);
  expect_sound(3, empty, (attn_run){0, 16, 2}, (attn_run){1, 16, 2});
  expect_sound(3, (attn_run){0, 8, 4}, (attn_run){2, 8, 4}, (attn_run){7, 1, 1});
  expect_sound(2, (attn_run){0, 11, 3}, (attn_run){31, 1, INT64_MAX}, whole);
}

static void map_none(const void *state, const attn_context *c, const attn_feature_rows *x, void *f,
                     int64_t f_row, double *scale) {
  (void)state, (void)c, (void)x, (void)f, (void)f_row, (void)scale;
}

static int64_t project_none(const void *state, const attn_context *c, const attn_slab *slab, void *scratch) {
  (void)state, (void)c, (void)slab, (void)scratch;
  return 0;
}

/* More work memory with a builder than without. */
Test(core_descriptors, work_that_is_too_small) {
  const attn_feature_map m = {.map = map_none, .columns = 4};
  map = &m;
  columns_later = 100;
  expect_plan("variant fake: describe gives parts that work in");
}

Test(core_descriptors, parts_that_no_engine_takes_together) {
  const attn_feature_map m = {.map = map_none, .columns = 4};
  const attn_projection e = {.project = project_none, .slots = 4};
  map = &m;
  projection = &e;
  cr_expect_eq(make_plan(), ATTN_EUNSUPPORTED);
  cr_expect(strstr(attn_last_error(), "softmax, selection, linear, residual, compression"), "%s",
            attn_last_error());
}

Test(core_descriptors, parts_that_name_no_parameter) {
  const attn_pattern honest = {.row = row, .max_runs = 1};
  give(1, whole, whole, whole);
  besides.seed = "nosuch";
  expect_pattern(honest, "nosuch");
}
