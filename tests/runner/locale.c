/* locale.c - numbers have a decimal point, whatever locale the program or a plug-in sets. */
#include <locale.h>

#include "attn_variant.h"
#include "tests/support/spec.h"
#include "tests/support/sweep_fixture.h"

static bool have_locale;

/* A locale with decimal commas, made for this test: few machines have one. */
static void enter(void) {
  command_enter();
  const char *command =
      text_of("localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >localedef.out 2>&1", fixture_directory);
  have_locale = system(command) == 0;
  setenv("LOCPATH", fixture_directory, 1);
  /* glibc keeps the parts of LOCPATH without freeing them. */
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
  setenv("LC_ALL", "de_DE.UTF-8", 1);
  have_locale = have_locale && setlocale(LC_ALL, "") && localeconv()->decimal_point[0] == ',';
}

TestSuite(locale, .init = enter, .fini = command_leave, .timeout = 120);

Test(locale, the_library_reads_and_writes_points) {
  if (!have_locale) cr_skip_test("localedef has no de_DE");
  const attn_spec *spec = spec_of("performer:eps=0.125");
  cr_expect(strstr(spec->text, "eps=0.125"), "%s", spec->text);
  attn_fail(ATTN_EINVAL, "%g", 0.5);
  cr_expect_str_eq(attn_last_error(), "0.5");
  cr_expect_eq(localeconv()->decimal_point[0], ',', "the caller's locale stays");
}

Test(locale, a_plug_in_that_sets_one_breaks_nothing) {
  if (!have_locale) cr_skip_test("localedef has no de_DE");
  const result_set *set =
      sweep("-q --plugin " TEST_BINARY_DIR "/tests/rude.so", 0,
            "schema: 1\ngrid: {n: 24, heads: 1, d: 8}\n"
            "variants: [rude: {mode: locale, level: 0.25}, performer: {features: 8, eps: 0.125}, "
            "rude: {level: 0.75}]\ndatasets: [gaussian: {std_q: 0.5}]\nthreads: 1\n" TIMING);
  cr_assert_eq(set->count, 6);
  for (size_t i = 0; i < set->count; i++) expect_status(&set->rows[i], RUN_OK);
}
