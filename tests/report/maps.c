/* maps.c - the pictures of attention maps and the numbers beside them, on maps whose answer is known. */

#include "experiments/support/base64.h"
#include "experiments/analysis/maps.h"
#include "tests/support/results_fixture.h"

static json_t *maps_of(const result_set *set) {
  const results_model model = model_of(set);
  json_t *maps = maps_json(&model);
  cr_assert_not_null(maps);
  return maps;
}

static void expect_bytes(const json_t *picture, const unsigned char *bytes, size_t count) {
  unsigned char found[64];
  const char *text = json_string_value(json_object_get(picture, "cells"));
  cr_assert(count <= sizeof found && base64_decode(text, strlen(text), found, count));
  for (size_t i = 0; i < count; i++) cr_expect_eq(found[i], bytes[i], "cell %zu: %d", i, found[i]);
}

static void expect_numbers(const json_t *array, size_t first, const double *numbers, size_t count) {
  for (size_t i = 0; i < count; i++)
    cr_expect_float_eq(json_number_value(json_array_get(array, first + i)), numbers[i], 1e-7, "number %zu",
                       i);
}

/* 1 is the last step of 127, as is what exceeds it, 0.1 three quarters of the way, 1e-4 and less none. */
Test(report_maps, bytes_and_numbers_are_what_they_say) {
  result_set set = kept_set(fixture_set(1));
  result_row *row = set.rows;
  static const float cells[] = {1, 0, 0.1F, 2.5F, /* exact */ 0.9F, 0.1F, -1e-5F, 1 /* implied */};
  row->n = row->n_kv = 2;
  memcpy(row->map, cells, sizeof cells);
  json_t *maps = maps_of(&set), *pictures = json_object_get(maps, "pictures"),
         *of = json_object_get(maps, "of");
  cr_assert(json_array_size(pictures) == 3 && json_array_size(of) == 1);
  expect_bytes(json_array_get(pictures, 0), (const unsigned char[]){255, 128, 223, 255}, 4);
  expect_bytes(json_array_get(pictures, 1), (const unsigned char[]){254, 223, 128, 255}, 4);
  expect_bytes(json_array_get(pictures, 2), (const unsigned char[]){33, 223, 33, 1}, 4);
  expect_numbers(json_object_get(json_array_get(pictures, 0), "numbers"), 0, (double[]){1.8, 1.75, 0.55, 0},
                 4);
  expect_numbers(json_object_get(json_array_get(pictures, 1), "numbers"), 0,
                 (double[]){0.999995, 0.95, 0.449995, -5e-6}, 4);
  cr_expect(json_is_null(json_object_get(json_array_get(pictures, 2), "numbers")));
  expect_numbers(json_array_get(of, 0), 0, (double[]){0, 0, 0, 0, 1, 2, (0.1 + 0.800005) / 2, 0.800005}, 8);
  json_decref(maps);
}

/* Of 32 keys two on each side are near, and two are the first. Of the runs of a cell the second has a map. */
Test(report_maps, what_is_near_and_what_is_first) {
  enum { SIDE = 32 };
  result_set made = fixture_set(2);
  result_row *row = &made.rows[made.count++];
  *row = fixture_row(60);
  const result_set set = kept_set(made);
  double all = 0, near = 0, first = 0;
  row->map = set.rows->map;
  set.rows->map = NULL;
  set.rows->n = set.rows->n_kv = row->n = row->n_kv = SIDE;
  for (int i = 0; i < SIDE * SIDE; i++) {
    const int apart = abs(i / SIDE - i % SIDE);
    const float weight = row->map[i] = row->map[SIDE * SIDE + i] = 0x1p-5F / (float)(1 + apart);
    all += (double)weight / SIDE;
    near += apart <= 2 ? (double)weight / SIDE : 0;
    first += i % SIDE < 2 ? (double)weight / SIDE : 0;
  }
  json_t *maps = maps_of(&set);
  const json_t *picture = json_array_get(json_object_get(maps, "pictures"), 3);
  expect_numbers(json_object_get(picture, "numbers"), 0, (double[]){all, near, first, 0}, 4);
  json_decref(maps);
}

/* Two hundred maps are pictures of 64 x 64: sums over two keys, means over one or two queries. Of the exact
 * ones, which are the same in a group, there is one each. */
Test(report_maps, many_maps_are_coarser) {
  result_set set = kept_set(fixture_set(200));
  for (size_t i = 0; i < set.count; i++) {
    result_row *row = &set.rows[i];
    row->variant = names_keep(text_of("v%03d", (int)i));
    row->causal = i % 2;
    row->n = 100;
    row->n_kv = 512;
    free(row->map);
    row->map = fixture_map(row, 20);
    for (int64_t c = 0; c < 100 * 128; c++) row->map[c] = 0.025F;
  }
  json_t *maps = maps_of(&set), *pictures = json_object_get(maps, "pictures");
  cr_expect_eq(json_array_size(json_object_get(maps, "of")), 200);
  cr_expect_eq(json_array_size(pictures), 2 * 200 + 4); /* two datasets, causal or not */
  const json_t *picture = json_array_get(pictures, 0);
  cr_expect_eq(json_integer_value(json_object_get(picture, "rows")), 64);
  const char *text = json_string_value(json_object_get(picture, "cells"));
  unsigned char *bytes = malloc(64 * 64);
  cr_assert(base64_decode(text, strlen(text), bytes, 64 * 64));
  for (int i = 0; i < 64 * 64; i++) cr_assert_eq(bytes[i], 214, "%d", bytes[i]); /* 0.05 */
  free(bytes), json_decref(maps);
}

Test(report_maps, without_maps_there_are_none) {
  result_set set = kept_set(fixture_set(0));
  json_t *maps = maps_of(&set);
  cr_expect_eq(json_array_size(json_object_get(maps, "pictures")), 0);
  json_decref(maps);
}
