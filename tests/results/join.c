/* join.c - several results files as one set, and as one page: rows keep their file, and files share
 * tables. */

#include <sys/stat.h>

#include "experiments/report/page.h"
#include "tests/support/results_fixture.h"

/* FOLDER/NAME.h5 of the fixture's first rows; the runs of each file took `by` times as long. */
static const char *file_of(const char *name, int64_t count, double by) {
  result_set set = kept_set(fixture_set(count));
  const char *path = fixture_path(name);
  for (size_t i = 0; i < set.count; i++) set.rows[i].time_median *= by;
  snprintf(set.uuid, sizeof set.uuid, "00000000-0000-8000-8000-%012lld", (long long)(1000 * by));
  cr_assert_eq(results_write(path, &set), ATTN_OK, "%s", attn_last_error());
  return path;
}

Test(results_join, rows_and_sessions_know_their_file) {
  const char *one = file_of("one.h5", 12, 1), *two = file_of("two.h5", 6, 3);
  const char *const forth[] = {one, two}, *const back[] = {two, one};
  const result_set set = join_results(forth, 2), other = join_results(back, 2);
  cr_assert(set.count == 18 && json_array_size(set.sessions) == 2);
  cr_expect_str_eq(set.uuid, other.uuid, "in any order");
  for (size_t i = 0; i < set.count; i++) {
    const bool second = i >= 12;
    cr_expect_str_eq(set.rows[i].source, second ? "two" : "one");
    cr_expect_eq(set.rows[i].session, second);
    cr_expect_str_eq(json_string_value(json_object_get(json_array_get(set.sessions, second), "source")),
                     set.rows[i].source);
  }
  cr_expect_float_eq(set.rows[12].time_median, 3 * set.rows[0].time_median, 1e-15);
}

/* The same runs in two files share groups, though of other machines, unless one file has several; each file
 * has its own lines, which are compared with its own exact line. */
Test(results_join, files_share_groups) {
  const char *const paths[] = {file_of("one.h5", 60, 1), file_of("two.h5", 60, 3)};
  result_set single = read_results(paths[0]), set = join_results(paths, 2);
  for (size_t i = 60; i < 120; i++) set.rows[i].isa = "neon", set.rows[i].threads = 64;
  const results_model alone = model_of(&single);
  results_model model = model_of(&set);
  cr_expect(model.groups_count == alone.groups_count && model.settings_count == 2 * alone.settings_count);
  for (size_t g = 0; g < model.groups_count; g++)
    for (const model_line *of = model.groups[g].lines, *l = of; l < of + model.groups[g].count; l++) {
      cr_assert_lt(l->exact, model.groups[g].count);
      cr_expect_eq(model.settings[of[l->exact].setting].row->source, model.settings[l->setting].row->source);
    }
  json_t *one = report_json(&alone, "one", NULL), *both = report_json(&model, "both", NULL), *line;
  size_t i, of[2] = {0};
  json_array_foreach(json_object_get(both, "lines"), i, line)
      of[strcmp(json_string_value(json_object_get(line, "source")), "two") == 0]++;
  cr_expect(of[0] == alone.settings_count && of[1] == alone.settings_count);
  cr_expect_null(json_object_get(json_array_get(json_object_get(one, "lines"), 0), "source"));
  for (int by = 0; by < 2; by++) {
    set.rows[0].threads = by ? set.rows[1].threads : 3;
    set.rows[0].isa = by ? "avx512" : set.rows[1].isa;
    model = model_of(&set);
    cr_expect_eq(model.groups_count, 2 * alone.groups_count + 1);
  }
  json_decref(one), json_decref(both);
}

Test(results_join, names_that_are_alike_are_paths) {
  cr_assert_eq(mkdir(fixture_path("folder"), 0700), 0);
  const char *here = file_of("same.h5", 2, 1), *there = file_of("folder/same.h5", 2, 1);
  const char *const paths[] = {here, there}, *const twice[] = {here, here},
                    *const missing[] = {here, "no.h5"};
  result_set set = join_results(paths, 2);
  cr_expect_str_eq(set.rows[0].source, here);
  cr_expect_str_eq(set.rows[2].source, there);
  cr_expect(results_join(twice, 2, &set) == ATTN_EINVAL && strstr(attn_last_error(), "twice"));
  cr_expect(results_join(missing, 2, &set) != ATTN_OK && strstr(attn_last_error(), "no.h5"));
}
