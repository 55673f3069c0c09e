/* params.c - the spec parser: what it accepts, what it refuses with which message, from every
 * variant's own table, and canonical text that reads back as itself. */
#include "tests/support/core.h"
#include "tests/support/spec.h"

/* -- hand-written table: every type -- */

typedef struct sample {
  int64_t size;
  double real;
  int choice;
  const char *text;
  attn_int_list list;
} sample;

static const char *const colours[] = {"red", "green", NULL};
static const attn_param table[] = {
    {"size", ATTN_INT, offsetof(sample, size), -5, 1 << 20, "7", NULL, ""},
    {"real", ATTN_REAL, offsetof(sample, real), 0, 1, "0.25", NULL, ""},
    {"choice", ATTN_CHOICE, offsetof(sample, choice), 0, 1, "red", colours, ""},
    {"text", ATTN_TEXT, offsetof(sample, text), 0, 0, "", NULL, ""},
    {"list", ATTN_INT_LIST, offsetof(sample, list), 0, 99, "", NULL, ""},
    {.name = NULL},
};

static sample *parse(const char *text, char **canonical) {
  void *params = NULL;
  EXPECT_STATUS(attn_params_parse("table", table, sizeof(sample), text, &params, canonical), ATTN_OK);
  cr_assert_not_null(params);
  return params;
}

static void expect_canonical(const char *text, const char *expected) {
  char *canonical = NULL;
  sample *s = parse(text, &canonical);
  if (strcmp(canonical, expected) != 0)
    note_failure("\"%s\" became \"%s\", expected \"%s\"", text, canonical, expected);
  attn_params_free(table, s);
  free(canonical);
}

Test(core_params, presets_and_values) {
  char *canonical = NULL;
  sample *s = parse(NULL, &canonical);
  cr_assert_str_eq(canonical, "size=7,real=0.25,choice=red,text=,list=");
  cr_assert_eq(s->size, 7);
  cr_assert_float_eq(s->real, 0.25, 0);
  cr_assert_eq(s->list.count, 0);
  attn_params_free(table, s);
  free(canonical);
  s = parse("list=3+17+40,size=2Ki,choice=green,real=1e-3,text=a/b.npy", &canonical);
  cr_assert_str_eq(canonical, "size=2048,real=0.001,choice=green,text=a/b.npy,list=3+17+40");
  cr_assert_eq(s->choice, 1);
  cr_assert_eq(s->list.count, 3);
  cr_assert_eq(s->list.items[2], 40);
  cr_assert_float_eq(attn_param_number(&table[0], s), 2048, 0);
  cr_assert_float_eq(attn_param_number(&table[2], s), 1, 0);
  cr_assert_float_eq(attn_param_number(&table[4], s), 3, 0);
  cr_assert(isnan(attn_param_number(&table[3], s)));
  char small[4];
  attn_param_print(&table[4], s, small, sizeof small);
  cr_assert_str_eq(small, "3+1");
  attn_params_free(table, s);
  free(canonical);
}

Test(core_params, canonical_text) {
  expect_canonical("", "size=7,real=0.25,choice=red,text=,list=");
  expect_canonical("size=-5", "size=-5,real=0.25,choice=red,text=,list=");
  expect_canonical("size=1Mi", "size=1048576,real=0.25,choice=red,text=,list=");
  expect_canonical("size=16k", "size=16384,real=0.25,choice=red,text=,list=");
  expect_canonical("size=16K", "size=16384,real=0.25,choice=red,text=,list=");
  expect_canonical("real=0", "size=7,real=0,choice=red,text=,list=");
  expect_canonical("real=1", "size=7,real=1,choice=red,text=,list=");
  expect_canonical("real=0.30000000000000004", "size=7,real=0.30000000000000004,choice=red,text=,list=");
  expect_canonical("list=0", "size=7,real=0.25,choice=red,text=,list=0");
  expect_canonical("text=x=y", "size=7,real=0.25,choice=red,text=x=y,list=");
}

/* Refused, untouched results, and a message with the owner and the parameter. */
static void expect_refused(const char *text, const char *parameter) {
  void *params = (void *)&params;
  char untouched[] = "untouched", *canonical = untouched;
  attn_status status = attn_params_parse("the owner", table, sizeof(sample), text, &params, &canonical);
  if (status != ATTN_EINVAL && status != ATTN_ENOTFOUND)
    note_failure("\"%s\" gave %s", text, attn_status_name(status));
  if (!status) return;
  const char *message = attn_last_error();
  if (params != (void *)&params || canonical != untouched) note_failure("\"%s\" changed its results", text);
  if (!strstr(message, "the owner") || !strstr(message, parameter))
    note_failure("\"%s\": message \"%s\"", text, message);
  for (const char *c = message; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 127)
      note_failure("\"%s\": control character %d in the message", text, *c);
}

static void expect_values_refused(const char *parameter, size_t count, const char *const *values) {
  for (size_t k = 0; k < count; k++)
    expect_refused(text_of("%s=%s", parameter, values[k]), strcmp(values[k], "0,5") == 0 ? "5" : parameter);
}
#define BAD(parameter, ...)                                                              \
  expect_values_refused(parameter, sizeof(const char *[]){__VA_ARGS__} / sizeof(char *), \
                        (const char *[]){__VA_ARGS__})

Test(core_params, bad_values) {
  BAD("size", "", "x", "1.5", "1e3", "0x10", " 1", "1 ", "\t1", "\n1", "+1", "--1", "-6", "2Mi", "1Kib",
      "1kB", "1ki", "Ki", "1048577", "nan", "٣", "9223372036854775808", "-9223372036854775808",
      "9223372036854775807Gi", "17179869184Gi", "-17179869184Gi", "-9223372036854775809", "1,size=2");
  BAD("real", "", "x", "nan", "inf", "-inf", "-0.1", "1.0001", "1e400", "1e-400", "0,5", "0.5x", " 0.5",
      "\t0.5", "NAN(1)");
  BAD("choice", "", "Red", "redd", "re", "0");
  expect_refused("choice=blue", "green");
  BAD("list", "1+1", "2+1", "3+3+4", "+", "1+", "+1", "1++2", "-1", "1+100", "a", "1+b", "1 2", "1+2Gi");
}

Test(core_params, bad_forms) {
  static const char *const bad[] = {"nosuch=1",       "nosuch", "=1",     ",",       "size=1,", ",size=1",
                                    "size=1,,real=0", "size",   "Size=1", " size=1", "size =1"};
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) expect_refused(bad[k], "");
  expect_refused("nosuch=1", "nosuch");
  expect_refused("bad\nname=1", "");
  expect_refused("bad\r\x1b[2Jname\x7f=1", "");
}

Test(core_params, long_text_is_cut_not_overrun) {
  enum { LENGTH = 100000 };
  char *text = kept_memory(malloc(LENGTH + 16));
  cr_assert_not_null(text);
  strcpy(text, "size=");
  memset(text + 5, '1', LENGTH);
  text[5 + LENGTH] = '\0';
  expect_refused(text, "size");
  memcpy(text, "text=", 5);
  char *canonical = NULL;
  sample *s = parse(text, &canonical);
  cr_assert_eq(strlen(s->text), LENGTH);
  attn_params_free(table, s);
  free(canonical);
  memset(text, 'q', LENGTH);
  expect_refused(text, "");
}

/* -- every variant's table -- */

static void expect_bad_spec(const attn_variant *variant, const attn_param *p, const char *value) {
  const char *text = text_of("%s:%s=%s", variant->name, p->name, value);
  attn_spec *spec = NULL;
  attn_status status = attn_spec_parse(&spec, text);
  if (status != ATTN_EINVAL)
    note_failure("\"%s\" gave %s", text, attn_status_name(status));
  else if (!strstr(attn_last_error(), variant->name) || !strstr(attn_last_error(), p->name) ||
           strchr(attn_last_error(), '\n'))
    note_failure("\"%s\": message \"%s\" does not name variant and parameter", text, attn_last_error());
  attn_spec_destroy(spec);
}

static void expect_bad_number(const attn_variant *variant, const attn_param *p, double value) {
  if (!isfinite(value)) return;
  expect_bad_spec(variant, p, text_of(p->type == ATTN_REAL ? "%.17g" : "%.0f", value));
}

Test(core_params, every_variant_refuses_bad_values) {
  for (size_t v = 0; v < attn_variant_count(); v++) {
    const attn_variant *variant = attn_variant_at(v);
    for (const attn_param *p = variant->params; p->name; p++) {
      note_context("%s %s", variant->name, p->name);
      EXPECT(p->help && p->help[0] && p->preset);
      if (p->type == ATTN_TEXT) continue;
      expect_bad_spec(variant, p, "nosuchvalue");
      if (p->type != ATTN_INT_LIST) expect_bad_spec(variant, p, "");
      if (p->type == ATTN_CHOICE) continue;
      expect_bad_spec(variant, p, "nan");
      expect_bad_spec(variant, p, "1e999");
      expect_bad_spec(variant, p, "99999999999999999999");
      double step = p->type == ATTN_REAL ? 1e-3 : 1 + fabs(p->max) * 1e-15;
      expect_bad_number(variant, p, p->min - step);
      expect_bad_number(variant, p, p->max + (p->type == ATTN_REAL ? step : 1 + fabs(p->max) * 1e-15));
    }
    attn_spec *spec = NULL;
    EXPECT_STATUS(attn_spec_parse(&spec, text_of("%s:nosuch=1", variant->name)), ATTN_ENOTFOUND);
    EXPECT(strstr(attn_last_error(), variant->name) && strstr(attn_last_error(), "nosuch"));
  }
}

Test(core_params, canonical_specs_read_back) {
  for (size_t v = 0; v < attn_variant_count(); v++) {
    const attn_spec *spec = spec_of(attn_variant_at(v)->name);
    note_context("%s", attn_variant_at(v)->name);
    EXPECT(spec->variant == attn_variant_at(v) && attn_spec_equal(spec, spec_of(spec->text)));
    for (const attn_param *p = spec->variant->params; p->name; p++) {
      char value[128];
      attn_param_print(p, spec->params, value, sizeof value);
      const char *preset = strncmp(p->preset, "min(", 4) == 0 ? p->preset + 4 : p->preset;
      EXPECT(strncmp(value, preset, preset == p->preset ? strlen(preset) + 1 : strcspn(preset, ",")) == 0);
    }
  }
}

static void expect_params(const char *text, const char *part) {
  if (!strstr(spec_of(text)->text, part)) note_failure("\"%s\" became \"%s\"", text, spec_of(text)->text);
}

/* What is not given follows the parameter that limits it, wherever that stands; what is given stays. */
Test(core_params, presets_that_follow) {
  expect_params("lsh_tail:l=1", ",l=1,hits=1,");
  expect_params("lsh_tail:l=3", ",l=3,hits=2,");
  expect_params("lsh_tail:hits=2,l=1", ",l=1,hits=2,");
  expect_params("magicpig:l=1", ",l=1,hits=1,");
  expect_params("sparse_transformer:mode=fixed,stride=3", ",stride=3,summary=3");
  expect_params("sparse_transformer:stride=9", ",stride=9,summary=8");
}

Test(core_params, unknown_variants) {
  static const char *const bad[] = {"",      ":",     "nosuch", "nosuch:x=1", "Full",
                                    "full ", " full", "full,",  "ful",        "fulll"};
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
    attn_spec *spec = NULL;
    note_context("\"%s\"", bad[k]);
    EXPECT_STATUS(attn_spec_parse(&spec, bad[k]), ATTN_ENOTFOUND);
    EXPECT(spec == NULL);
    EXPECT(strstr(attn_last_error(), "tiled"));
  }
  attn_spec *spec = NULL;
  EXPECT_STATUS(attn_spec_parse(&spec, "full:"), ATTN_OK);
  attn_spec_destroy(spec);
  attn_spec_destroy(NULL);
  const attn_variant *found = NULL;
  EXPECT_STATUS(attn_variant_find("tiled", &found), ATTN_OK);
  EXPECT(found && strcmp(found->name, "tiled") == 0);
  EXPECT_STATUS(attn_variant_find("nosuch", &found), ATTN_ENOTFOUND);
  EXPECT(strcmp(found->name, "tiled") == 0 && attn_variant_at(attn_variant_count()) == NULL);
}
