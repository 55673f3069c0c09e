/* json.c - rows to JSON and back: every column, bound, parameter, sample; NaN and infinities; malformed
 * members. */

#include <float.h>
#include <locale.h>

#include "experiments/results/bound.h"
#include "experiments/support/base64.h"
#include "experiments/support/json_reader.h"
#include "tests/support/results_fixture.h"

/* A row in which every column differs from its neighbours and from init's value. */
static result_row distinct_row(void) {
  result_row row = fixture_row(5);
  int64_t next = 3;
  for (const result_column *c = result_columns; c->name; c++, next++) {
    void *field = (char *)&row + c->offset;
    if (field == (void *)&row.n_samples) continue;
    if (c->axis) {
      result_column_set_int(&row, c, c->type == COLUMN_I64 ? (int64_t)c->most - next : 1);
    } else if (c->type == COLUMN_TEXT) {
      result_column_set_text(&row, c, text_of("text \"%d\" \\ \t \xc3\xa9", (int)next));
    } else if (c->type == COLUMN_F64) {
      *(double *)field = 1.0 / (double)next;
    } else if (c->type == COLUMN_I64) {
      *(int64_t *)field = INT64_MAX - next;
    } else if (c->type == COLUMN_I32) {
      *(int64_t *)field = INT32_MAX - next;
    } else {
      *(int *)field = 1;
    }
  }
  return row;
}

static attn_status parse(const json_t *json, result_row *row) {
  char *line = NULL;
  size_t length = 0;
  cr_assert_eq(result_json_line(json, &line, &length), ATTN_OK);
  const attn_status status = result_row_parse(line, length, row);
  free(line);
  return status;
}

static result_row through_text(const result_row *row) {
  char *line = NULL;
  size_t length = 0;
  result_row back;
  json_t *json = result_row_to_json(row);
  cr_assert(json && result_json_line(json, &line, &length) == ATTN_OK && length == strlen(line));
  cr_assert_eq(strchr(line, '\n'), line + length - 1);
  cr_assert_eq(result_row_parse(line, length, &back), ATTN_OK, "%s", attn_last_error());
  json_decref(json), free(line);
  return back;
}

/* The row, which it releases, comes back; its message as given. */
static void expect_same(result_row *row, const char *message) {
  result_row back = through_text(row);
  if (message) {
    cr_expect_str_eq(back.message, message);
    free(row->message);
    row->message = strdup(message);
  }
  cr_expect_str_eq(rows_difference(row, &back), "");
  result_row_free(row), result_row_free(&back);
}

Test(results_json, every_column_comes_back) {
  result_row row = distinct_row();
  expect_same(&row, NULL);
}

Test(results_json, a_decimal_comma_in_the_locale_changes_nothing) {
  result_row row = fixture_row(1);
  if (!setlocale(LC_ALL, "de_DE.UTF-8")) setlocale(LC_ALL, "C.UTF-8");
  expect_same(&row, NULL);
}

Test(results_json, numbers_keep_every_bit_and_infinity_and_nan) {
  const double values[] = {
      0.1, -0.0, DBL_MIN / 8, DBL_MAX, 1 + DBL_EPSILON, (double)INFINITY, -(double)INFINITY, (double)NAN};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    result_row row = fixture_row(0);
    row.err_rel_fro_lo = row.bounds[0].value = row.samples[3] = row.profile_l2[2] = values[i];
    expect_same(&row, NULL);
  }
}

Test(results_json, bytes_that_are_not_utf8_are_escaped) {
  result_row row = fixture_row(0);
  free(row.message);
  row.message = strdup("file \xff.npy");
  expect_same(&row, "file \\xff.npy");
}

Test(results_json, a_long_message_is_cut_between_characters) {
  for (int shift = 0; shift < 3; shift++) {
    result_row row = fixture_row(0);
    char text[400] = "ab";
    text[shift] = '\0';
    while (strlen(text) < 300) strcat(text, "\xe2\x82\xac");
    bound_say(&row.bounds[0], "%s", text);
    cr_expect_eq(strlen(row.bounds[0].message), (191 - (size_t)shift) / 3 * 3 + (size_t)shift);
    expect_same(&row, NULL);
  }
}

Test(results_json, an_initialised_row_needs_only_a_key) {
  result_row row, expected;
  json_t *json = json_pack("{s:s, s:s}", "key", "k", "a later schema's column", "x");
  result_row_init(&expected);
  expected.key = strdup("k");
  cr_assert_eq(parse(json, &row), ATTN_OK);
  cr_assert_str_eq(rows_difference(&row, &expected), "");
  cr_assert_str_eq(row.message, "");
  json_decref(json), result_row_free(&row), result_row_free(&expected);
}

static void expect_as_jansson(const char *text, size_t length) {
  json_t *json = json_loadb(text, length, JSON_DECODE_ANY, NULL);
  json_reader whole = json_reader_of(text, length), value = whole;
  double x = 0;
  int64_t i = 0;
  const bool good = json_reader_skip(&whole) && json_reader_end(&whole);
  cr_assert_eq(good, json != NULL, "%.*s: %s", (int)length, text, whole.wrong);
  if (json_is_string(json))
    cr_assert(json_reader_text(&value) && !strcmp(value.text, json_string_value(json)));
  if (json_is_integer(json)) cr_assert(json_reader_number(&value, NULL, &i) && i == json_integer_value(json));
  if (json_is_real(json)) cr_assert(json_reader_number(&value, &x, NULL) && x == json_real_value(json));
  if (json_is_real(json))
    cr_assert_not(json_reader_number(&(json_reader){.at = text, .end = text + length}, NULL, &i));
  json_reader_free(&whole), json_reader_free(&value), json_decref(json);
}

/* Cut anywhere, without a byte, and with any other in its place: read where jansson reads it. */
Test(results_json, what_is_json) {
  static const char *const texts[] = {"[{\"a\":[ -12.5e+3 ,\ttrue,\r{}],\"\":{}},false,\nnull,[1],[]] ",
                                      "-120",
                                      "9.5E-7",
                                      " -0.25e8 ",
                                      "true",
                                      "\"a\\\"\\\\\\/"
                                      "\\b\\f\\n\\r\\t\\u00e9\\ud83d\\uDE42\\uFfff\xc3\xa9\xe2\x89\xa4\xed"
                                      "\x9f\xbf\xf0\x9f\x99\x82\xf4\x8f\xbf\xbf\""};
  for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
    for (size_t length = strlen(texts[t]), at = 0; at <= length; at++)
      for (int edit = -1; edit < (at < length ? 256 : 0); edit++) {
        const size_t left = edit < 0 ? 0 : length - at - 1;
        char *text = malloc(length + 1); /* allocated to its length: sanitizers watch its ends */
        memcpy(text, texts[t], at);
        if (edit > 0) text[at] = (char)edit;
        if (left) memcpy(text + at + (edit > 0), texts[t] + at + 1, left);
        char *exact = realloc(text, at + (edit > 0) + left + !at);
        expect_as_jansson(exact, at + (edit > 0) + left);
        free(exact);
      }
}

/* Each text replaces the member of a good row; the message must say what was expected there. */
static const struct {
  const char *member, *value, *told;
} malformed[] = {
    {"key", "\"\"", "key: expected text that is not empty"},
    {"n", "512.5", "n: expected an integer"},
    {"threads", "2147483648", "threads: expected a 32-bit integer"},
    {"samples", "[1, 2]", "samples: expected an array of n_samples numbers"},
    {"samples", "{}", "samples: expected an array of numbers"},
    {"rounds", "[]", "samples: expected an array of n_samples numbers"},
    {"n_samples", "-1", "n_samples: expected a number from 0 on"},
    {"n_samples", "9223372036854775807", "samples: expected an array of n_samples numbers"},
    {"p", "[]", "p: expected an object"},
    {"p", "{\"window\": [1]}", "p: expected names with numbers or texts"},
    {"profile", "{\"l2\": []}", "profile: expected l2 and max with 64 numbers each"},
    {"map", "{}", "map: expected exact and approx"},
    {"map", "{\"exact\": \"AAAA\", \"approx\": \"AAAA\"}", "map: expected exact and approx in base64, 4"},
    {"map", "{\"exact\": 1}", "map: expected exact and approx in base64, 4"},
    {"n", "0", "map: expected n and n_kv above 0 with it"},
    {"n_kv", "100", "map: expected exact and approx in base64, 4"},
    {"bounds", "{}", "bounds: expected an array"},
    {"bounds", "[{}]", "bounds: expected a name in each"},
    {"bounds", "[{\"name\": \"FP-1\", \"kind\": \"soft\", \"verdict\": \"pass\"}]",
     "kind: expected one of its names, in the bound FP-1"},
    {"bounds", "[{\"name\": \"FP-1\", \"kind\": \"hard\", \"verdict\": \"pass\"}]",
     "value: expected a member of each bound, in the bound FP-1"},
};

/* Takes the value. */
static void expect_refused(const char *member, json_t *value, const char *told) {
  result_row row = fixture_row(0), untouched;
  memset(&untouched, 0x5a, sizeof untouched);
  result_row out = untouched;
  json_t *json = result_row_to_json(&row);
  json_object_set_new(json, member, value);
  cr_assert_eq(parse(json, &out), ATTN_EINVAL, "%s", told);
  cr_assert_eq(strstr(attn_last_error(), told), attn_last_error() + strlen("result row: "), "%s",
               attn_last_error());
  cr_assert_eq(memcmp(&out, &untouched, sizeof out), 0, "%s", told);
  json_decref(json), result_row_free(&row);
}

Test(results_json, malformed_members_are_named_and_leave_the_row_alone) {
  for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
    expect_refused(malformed[i].member, json_loads(malformed[i].value, JSON_DECODE_ANY, NULL),
                   malformed[i].told);
  for (const result_column *c = result_columns; c->name; c++) {
    const bool named = c->flags && c->type != COLUMN_BOOL, number = !named && c->type != COLUMN_TEXT;
    const char *told = text_of("%s: expected ", c->name);
    expect_refused(c->name, number ? json_string("1") : json_integer(1), told);
    if (named) expect_refused(c->name, json_string("none of them"), told);
    if (!number || c->type == COLUMN_BOOL || c->least >= c->most) continue;
    expect_refused(c->name, json_integer(-1), told);
    if (isfinite(c->most)) expect_refused(c->name, json_integer((json_int_t)c->most + 2), told);
  }
}

Test(results_json, a_map_with_a_weight_that_is_not_finite_is_refused) {
  result_row row = fixture_row(0), out;
  row.map[7] = INFINITY;
  json_t *json = result_row_to_json(&row);
  cr_assert_eq(parse(json, &out), ATTN_EINVAL);
  cr_assert(strstr(attn_last_error(), "map: expected finite weights"), "%s", attn_last_error());
  json_decref(json), result_row_free(&row);
}

/* The vectors of RFC 4648, section 10. */
Test(results_json, base64_is_that_of_the_standard) {
  static const char *const texts[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
  for (size_t size = 0; size < 7; size++) {
    char *text = base64_encode("foobar", size), back[8] = "";
    cr_expect_str_eq(text, texts[size]);
    cr_expect(base64_decode(text, strlen(text), back, size) && memcmp(back, "foobar", size) == 0);
    cr_expect_not(base64_decode(text, strlen(text), back, size + 1));
    if (size) cr_expect_not(base64_decode(text, strlen(text), back, size - 1));
    free(text);
  }
  char back[3];
  cr_expect(!base64_decode("Zm=v", 4, back, 3) && !base64_decode("Zm9\xf6", 4, back, 3));
  cr_expect_not(base64_decode("Zm9v", 4, back, 2));
}

/* Neither their number nor the length of a name is bounded. */
Test(results_json, many_bounds_and_parameters_with_long_names_come_back) {
  result_row row = fixture_row(0);
  for (int i = 0; i < 100; i++) {
    const char *name = text_of("the bound or parameter of a plug-in that counts its longs up to %08d", i);
    fixture_add_bound(&row, name, KIND_HARD, VERDICT_PASS, i);
    cr_assert_eq(result_row_add_param(&row, name, i), ATTN_OK);
  }
  result_row back = through_text(&row);
  cr_expect_str_eq(rows_difference(&row, &back), "");
  cr_expect(back.bounds_count == 101 && back.p_count == 100);
  result_set set = {.rows = &row, .count = 1, .sessions = json_array()};
  const char *file = fixture_path("many.h5");
  row.message = strdup("");
  row.path = "";
  cr_assert_eq(results_write(file, &set), ATTN_OK, "%s", attn_last_error());
  result_set read = read_results(file);
  cr_expect_str_eq(rows_difference(&row, &read.rows[0]), "");
  json_decref(set.sessions), result_row_free(&row), result_row_free(&back);
}

/* Any value of an axis that a key names is read from it, and nothing else. */
Test(results_json, axes_are_read_from_keys) {
  for (axis_id a = 0; a < AXES; a++)
    for (int i = 0; i < 4; i++) {
      const int64_t values[] = {0, 1, axes[a].max, axes[a].max + 1}, value = values[i];
      int64_t read = -5;
      char text[AXIS_TEXT], key[2 * AXIS_TEXT];
      snprintf(key, sizeof key, " %s=-%d", axes[a].name, i + 1);
      cr_expect(!axis_read_key(a, key, &read), "%s", key);
      snprintf(key, sizeof key, " %s=%sx", axes[a].name, axis_print(a, value, text));
      cr_expect(!axis_read_key(a, key, &read), "%s", key);
      snprintf(key, sizeof key, "x %s=%s y", axes[a].name, text);
      cr_expect(!axis_read_key(a, key + 2, &read) && axis_read_key(a, key, &read) == (value <= axes[a].max));
      cr_expect_eq(read, value <= axes[a].max ? value : -5, "%s", key);
    }
}
