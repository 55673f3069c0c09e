/* describe.c - what `attnlab list' and `attnlab describe' print of every check and of every variant;
 * cases/describe.txt has single ones in full. */

#include "experiments/quality/evaluation_checks.h"
#include "tests/support/command.h"

TestSuite(cli_describe, .init = command_enter, .fini = command_leave);

/* Is every word of the text there, in order, whatever is between them? */
static bool has_words(const char *out, const char *text) {
  while (*text) {
    char word[200];
    size_t length = strcspn(text, " ");
    cr_assert_lt(length, sizeof word);
    memcpy(word, text, length);
    word[length] = '\0';
    out = strstr(out, word);
    if (!out) return false;
    out += length;
    text += length + (text[length] == ' ');
  }
  return true;
}

static void expect_all(const check *c) {
  command_run_good(text_of("describe %s", c->name));
  const char *const texts[] = {c->name, c->statement, c->formula, c->assumes, c->source};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    cr_expect(has_words(result.out, texts[i]), "%s: '%s' is missing from\n%s", c->name, texts[i], result.out);
  for (int i = 0; i < CHECK_NULLS; i++) {
    const check_null *null = &c->nulls[i];
    cr_expect(has_words(result.out, null->blind ? null->blind : null->rejected_on), "%s: null %d", c->name,
              i);
  }
  for (const char *line = result.out; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    cr_expect(line == result.out || strcspn(line, "\n") <= 120, "%s: %.130s", c->name, line);
  }
}

Test(cli_describe, every_check_says_all_it_knows) {
  for (const check *const *c = checks_all; *c; c++) expect_all(*c);
  for (int c = 0; c < QUALITY_CHECKS; c++) expect_all(&quality_checks[c]);
}

/* The page of a family has all of each of its checks, and no other. */
Test(cli_describe, families_of_checks) {
  command_run_good("describe selection");
  for (const check *const *c = checks_all; *c; c++) {
    const bool own = strcmp(check_family(*c), "selection") == 0;
    const char *at = strstr(result.out, text_of("%s: ", (*c)->name));
    cr_expect_eq(at && (at == result.out || at[-1] == '\n'), own, "%s", (*c)->name);
    cr_expect(!own || has_words(result.out, (*c)->formula), "%s: no formula", (*c)->name);
  }
}

Test(cli_describe, the_table_of_checks) {
  command_run_good("list checks");
  for (const check *const *c = checks_all; *c; c++) {
    cr_assert(check_family(*c), "%s has no family", (*c)->name);
    const char *kind = check_kind_names[(*c)->kind];
    const char *start = text_of("\n%-15s %-8s %-20s ", (*c)->name, kind, check_family(*c));
    cr_expect(strstr(result.out, start), "%s is not listed", (*c)->name);
    cr_expect(strstr(result.out, (*c)->statement), "%s: no statement", (*c)->name);
  }
  for (int c = 0; c < QUALITY_CHECKS; c++)
    cr_expect(strstr(result.out, quality_checks[c].statement), "%s is not listed", quality_checks[c].name);
}

/* First what it computes, what that costs and a command to try; the checks are counted. */
Test(cli_describe, a_variant_begins_with_its_formula) {
  for (size_t i = 0; i < attn_variant_count(); i++) {
    const attn_variant *v = attn_variant_at(i);
    command_run_good(text_of("describe %s", v->name));
    cr_assert(v->formula && strstr(v->formula, "; O("), "%s", v->name);
    const char *formula = strstr(result.out, "\nformula "), *example = strstr(result.out, "\nexample ");
    cr_assert(formula && example && formula < example, "%s", result.out);
    cr_expect(has_words(formula, v->formula) && has_words(example, "attnlab apply"), "%s", result.out);
    const char *parameters = strstr(result.out, "\nparameters ");
    cr_expect(!parameters || example < parameters, "%s", result.out);
    cr_expect(!strstr(result.out, "FP-"), "%s", result.out);
  }
}
