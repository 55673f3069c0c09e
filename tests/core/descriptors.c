/* descriptors.c - tables and descriptors that cannot be followed: each is refused with the reason, when the
 * variant is registered or its plan is made. */
#include "attn_variant.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static size_t work_size(const attn_context *c) { return (size_t)c->problem->n_q; }
static attn_cost cost(const attn_context *c) { return (attn_cost){.mul_add = (double)c->problem->n_q}; }
static attn_status execute(const void *state, const attn_call *call) {
  (void)state, (void)call;
  return ATTN_OK;
}

static const attn_pattern *pattern;
static const attn_feature_map *map;
static const attn_projection *projection;
static attn_status plan(attn_builder *b, void **state) {
  return pattern ? attn_softmax_plan(b, pattern, (attn_tiling){{0, 0}, ATTN_PATH_AUTO}, state)
         : map   ? attn_linear_plan(b, map, state)
                 : attn_compression_plan(b, projection, state);
}

static const attn_param none[] = {{.name = NULL}};
static attn_variant fake = {.abi = ATTN_ABI,
                            .size = sizeof(attn_variant),
                            .name = "fake",
                            .summary = "one of each fault",
                            .cite = "none",
                            .params = none,
                            .work_size = work_size,
                            .cost = cost,
                            .plan = plan,
                            .execute = execute};

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
  static char names[MANY][8];
  static attn_param table[MANY + 1];
  int64_t *values;
  for (int i = 0; i < MANY; i++) {
    snprintf(names[i], sizeof names[i], "p%d", i);
    table[i] = (attn_param){names[i], ATTN_INT, (size_t)i * 8, 0, 1e6, "7", NULL, ""};
  }
  fake.params = table;
  fake.params_size = MANY * 8;
  cr_assert_eq(attn_variant_register(&fake), ATTN_OK, "%s", attn_last_error());
  attn_spec *spec = NULL;
  cr_assert_eq(attn_spec_parse(&spec, "fake:p0=1,p64=2,p129=3"), ATTN_OK, "%s", attn_last_error());
  values = spec->params;
  cr_expect(values[0] == 1 && values[1] == 7 && values[64] == 2 && values[129] == 3);
  attn_spec_destroy(spec);
  expect(attn_spec_parse(&spec, "fake:p129=1,p129=2"), "given twice");
}

static void expect_plan(const char *word) {
  const attn_problem problem = attn_problem_make(1, 1, 32, 8);
  attn_plan *made = NULL;
  const attn_variant *found;
  if (attn_variant_find("fake", &found)) cr_assert_eq(attn_variant_register(&fake), ATTN_OK);
  expect(attn_plan_create(&made, &problem, "fake", NULL), word);
}

static attn_run given;
static int64_t given_count;
static int64_t row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)state, (void)head, (void)position;
  runs[0] = given;
  return given_count;
}
static bool candidate(const void *state, int64_t head, int64_t position, int64_t block) {
  (void)state, (void)head, (void)position;
  return block == 0;
}

Test(core_descriptors, a_softmax_variant_without_a_pattern) {
  const attn_variant old = fake;
  fake = (attn_variant){.abi = old.abi, .size = old.size, .name = old.name, ATTN_SOFTMAX(NULL)};
  fake.summary = old.summary, fake.cite = old.cite, fake.params = old.params, fake.cost = old.cost;
  expect(attn_variant_register(&fake), "NULL");
  fake = old;
}

static void expect_pattern(attn_pattern p, const char *word) {
  pattern = &p;
  expect_plan(word);
}

Test(core_descriptors, patterns) {
  expect_pattern((attn_pattern){.max_runs = 1}, "row is NULL");
  expect_pattern((attn_pattern){.row = row}, "max_runs = 0");
  expect_pattern((attn_pattern){.row = row, .max_runs = INT64_MAX}, "max_runs");
  expect_pattern((attn_pattern){.row = row, .max_runs = 1, .grain = -1}, "grain = -1");
  expect_pattern((attn_pattern){.row = row, .max_runs = 1, .reach = -1}, "reach = -1");
  expect_pattern((attn_pattern){.row = row, .max_runs = 1, .grain = 4, .drawn = -1}, "drawn = -1");
  expect_pattern((attn_pattern){.row = row, .max_runs = 1, .candidate = candidate}, "grain = 0");
  expect_pattern((attn_pattern){.row = row, .max_runs = 1, .global = true}, "grain = 0");
}

static void expect_row(int64_t count, attn_run run) {
  given = run;
  given_count = count;
  expect_pattern((attn_pattern){.row = row, .max_runs = 1}, "row gives");
}

Test(core_descriptors, rows_that_are_none) {
  expect_row(1000, (attn_run){0, 1, 1});
  expect_row(-1, (attn_run){0, 1, 1});
  expect_row(1, (attn_run){-1000, 1, 1});
  expect_row(1, (attn_run){0, 4, 0});
  expect_row(1, (attn_run){8, 4, -1});
}

static void map_none(const void *state, const attn_context *c, int64_t head, attn_side side, const void *x,
                     int64_t row_stride, int64_t rows, void *f, int64_t f_row, double *scale) {
  (void)state, (void)c, (void)head, (void)side, (void)x, (void)row_stride, (void)rows, (void)f, (void)f_row,
      (void)scale;
}

static void expect_map(attn_feature_map m, const char *word) {
  map = &m;
  expect_plan(word);
}

Test(core_descriptors, feature_maps) {
  expect_map((attn_feature_map){.columns = 4}, "map is NULL");
  expect_map((attn_feature_map){.map = map_none}, "columns = 0");
  expect_map((attn_feature_map){.map = map_none, .columns = 4, .eps = -1}, "eps = -1");
  expect_map((attn_feature_map){.map = map_none, .columns = 4, .law.kind = (attn_features_kind)77}, "77");
}

static int64_t project_none(const void *state, const attn_context *c, const attn_slab *slab, void *scratch) {
  (void)state, (void)c, (void)slab, (void)scratch;
  return 0;
}

static void expect_projection(attn_projection p, const char *word) {
  projection = &p;
  expect_plan(word);
}

Test(core_descriptors, projections) {
  expect_projection((attn_projection){.slots = 4}, "project is NULL");
  expect_projection((attn_projection){.project = project_none}, "slots = 0");
  expect_projection((attn_projection){.project = project_none, .slots = 4, .slice = -1}, "slice = -1");
  expect_projection((attn_projection){.project = project_none, .slots = 4, .columns = -1}, "columns = -1");
  expect_projection((attn_projection){.project = project_none, .slots = 4, .law = (attn_projection_law)77},
                    "77");
}

static void inspect_nameless(const void *state, const attn_context *c, attn_view *view) {
  attn_softmax_inspect(state, c, view);
  view->budget.parameter = "nosuch";
}

Test(core_descriptors, views_that_name_no_parameter) {
  const attn_problem problem = attn_problem_make(1, 1, 32, 8);
  const attn_pattern honest = {.row = row, .max_runs = 1};
  attn_plan *made = NULL;
  attn_view view;
  given = (attn_run){0, 4, 1};
  given_count = 1;
  pattern = &honest;
  fake.inspect = inspect_nameless;
  cr_assert_eq(attn_variant_register(&fake), ATTN_OK);
  cr_assert_eq(attn_plan_create(&made, &problem, "fake", NULL), ATTN_OK, "%s", attn_last_error());
  expect(attn_plan_inspect(made, &view), "nosuch");
  attn_plan_destroy(made);
}
