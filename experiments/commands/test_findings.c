/* test_findings.c - see test_findings.h. */
#include "experiments/commands/test_findings.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/support/json_text.h"
#include "experiments/commands/cli.h"
#include "experiments/conformance/witness.h"
#include "experiments/support/escape.h"

const char run_cell[] = "run", drawn_cell[] = "drawn";
static const char ran[] = "the variant runs"; /* what a run that could not be judged breaks */
static const double p_least = 1e-9;           /* p-values are not repeated here */

bool finding_is_failed(const result_bound *b) {
  return b->verdict == VERDICT_VIOLATED || b->verdict == VERDICT_ERROR ||
         (b->kind == KIND_PROB && b->p_value < p_least);
}

static void print_cell(const found_cell *cell) {
  const result_bound *b = &cell->worst;
  const check *c = check_find(b->name);
  if (!finding_is_failed(b)) {
    const bool good = b->verdict == VERDICT_PASS || b->verdict == VERDICT_CONSISTENT;
    printf("%-13s %s%s%s%s\n", b->name,
           good                                   ? "pass"
           : b->verdict == VERDICT_NOT_APPLICABLE ? "not applicable"
                                                  : check_verdict_names[b->verdict],
           !good && *b->message ? " (" : "", good ? "" : b->message, !good && *b->message ? ")" : "");
    return;
  }
  printf("%-13s FAILED: %s (%s)\n", b->name, c ? c->statement : ran, cell->where);
  if (*b->message) printf("%14s%s\n", "", b->message);
  if (b->kind == KIND_PROB)
    printf("%14sp = %.3g\n", "", b->p_value);
  else if (!isnan(b->measured) || !*b->message)
    printf("%14smeasured %.6g, at most %.6g\n", "", b->measured, b->value);
  if (c && c->cause) printf("%14susual cause: %s\n", "", c->cause);
}

static const char *const findings_in_words[FINDINGS] = {
    [FINDING_OUTPUT] = "the output is that of the variant's definition, whatever the problem",
    [FINDING_LSE] = "the log-sum-exp is that of the keys that the query sees, whatever the problem",
    [FINDING_BITS] = "strides, threads, earlier calls, attn_plan_verify and a log-sum-exp change no bit",
    [FINDING_ERROR] = ran};

/* The command line again, for one problem. */
static void print_command(const problem *p, int argc, char **argv) {
  char text[PROBLEM_TEXT];
  problem_print(p, text);
  printf("%14sthe same alone: attnlab test", "");
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], "--case", 6) == 0 || strncmp(argv[i], "--problems", 10) == 0) {
      i += !strchr(argv[i], '=');
      continue;
    }
    putchar(' ');
    escape_put_word(stdout, argv[i]);
  }
  printf(" --case ");
  escape_put_word(stdout, text);
  putchar('\n');
}

static void print_drawn(const drawn_result *d, int argc, char **argv) {
  char words[PROBLEM_TEXT];
  if (d->failed < 0) {
    printf("%-13s pass (%lld of %lld problems%s", drawn_cell, (long long)d->tried, (long long)d->count,
           d->tried < d->count ? ", slow: --time gives it more" : "");
    if (d->alone) printf("; %lld only consistent: without a definition", (long long)d->alone);
    if (d->loose)
      printf("; %lld with more rounding declared than the textbook form has, in %lld of them perhaps more "
             "than 1 %% of the "
             "values",
             (long long)d->loose, (long long)d->vacuous);
    if (d->refused) printf("; %lld refused, though declared: %s", (long long)d->refused, d->reasons);
    printf(")\n");
    return;
  }
  problem_words(&d->smallest, words);
  printf("%-13s FAILED: %s (problem %lld of %lld)\n", drawn_cell, findings_in_words[d->found.kind],
         (long long)d->failed + 1, (long long)d->count);
  printf("%14s%s%s: ", "", d->shrunk ? "least: " : "", words);
  escape_put(stdout, d->found.text);
  putchar('\n');
  print_command(&d->smallest, argc, argv);
}

/* What comes first explains what follows: which keys are attended to before what is made of them. */
static int order_of(const char *name) {
  static const char *const first[] = {run_cell, "SP-0", "SEL-0", "SEL-1", "PHI-1", drawn_cell};
  enum { FIRST = sizeof first / sizeof *first };
  for (int i = 0; i < FIRST; i++)
    if (strcmp(name, first[i]) == 0) return i;
  return FIRST + (strncmp(name, "PROP-", 5) != 0);
}

void findings_print(findings *f, int argc, char **argv) {
  const char *cause = NULL;
  for (int order = 0; order <= order_of(""); order++)
    for (int i = 0; i < f->count; i++) {
      const result_bound *b = &f->cells[i].worst;
      if (order_of(b->name) != order) continue;
      if (strcmp(b->name, drawn_cell) == 0)
        print_drawn(&f->drawn, argc, argv);
      else
        print_cell(&f->cells[i]);
      if (finding_is_failed(b) && !f->failed++) cause = b->name;
    }
  if (f->failed > 1) printf("\nProbably the first cause: %s; mend it before the others.\n", cause);
}

/* That outputs repeat and depend on what they may says nothing of what they are. */
static void warn_unchecked(const char *spec, const findings *f) {
  result_bound cells[CELLS];
  for (int i = 0; i < f->count; i++) cells[i] = f->cells[i].worst;
  if (bounds_worst(cells, f->count) != VERDICT_UNCHECKED) return;
  const result_bound *missed = NULL;
  for (int i = 0; i < f->count && !missed; i++)
    if (cells[i].verdict == VERDICT_UNCHECKED && cells[i].kind != KIND_PROPERTY) missed = &cells[i];
  if (missed) printf("%s is UNCHECKED: %s: it %s.\n", spec, missed->name, missed->message);
  printf("%s%sNo bound holds its outputs against what they should be, and results say so. Declare "
         "what it is: its pattern, features or projection with their law, and its rounding, in inspect.\n",
         missed ? "" : spec, missed ? "" : " is UNCHECKED. ");
}

/* What is exact has a definition everywhere, and a bound. */
static void warn_drawn(const attn_spec *spec, const drawn_result *d) {
  if (d->vacuous)
    printf("%s: in %lld drawn problems the rounding that it declares may be more than 1 %% of the values: "
           "what it gives there "
           "is held to next to nothing.\n",
           spec->text, (long long)d->vacuous);
  if (d->alone && spec->variant->caps & ATTN_CAP_EXACT)
    printf("%s is UNCHECKED in %lld drawn problems: declared exact, it describes nothing there that its "
           "outputs could be held "
           "against, or exempts itself.\n",
           spec->text, (long long)d->alone);
}

void findings_warn(const attn_spec *spec, const findings *f, bool fixed) {
  if (fixed) warn_unchecked(spec->text, f);
  warn_drawn(spec, &f->drawn);
}

/* -- JSON -- */

/* NaN and infinity are no numbers of JSON. */
static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static json_t *cell_json(const found_cell *cell, bool failed) {
  const result_bound *b = &cell->worst;
  const check *c = check_find(b->name);
  json_t *one = json_object();
  bool ok = one;
  json_put(one, "name", json_string(b->name), &ok);
  json_put(one, "verdict", json_string(check_verdict_names[b->verdict]), &ok);
  json_put(one, "failed", json_boolean(failed), &ok);
  json_put(one, "statement", json_string(c ? c->statement : ran), &ok);
  json_put(one, "where", json_string(cell->where), &ok);
  json_put(one, "message", json_string(b->message), &ok);
  json_put(one, "measured", number(b->measured), &ok);
  json_put(one, "bound", number(b->value), &ok);
  json_put(one, "cause", c && c->cause ? json_string(c->cause) : json_null(), &ok);
  return json_whole(one, ok);
}

static json_t *drawn_json(const drawn_result *d) {
  char text[PROBLEM_TEXT], words[PROBLEM_TEXT];
  json_t *one = json_object();
  bool ok = one;
  json_put(one, "problems", json_integer(d->tried), &ok);
  json_put(one, "of", json_integer(d->count), &ok);
  json_put(one, "refused", json_integer(d->refused), &ok);
  json_put(one, "vacuous", json_integer(d->vacuous), &ok);
  json_put(one, "undefined", json_integer(d->alone), &ok);
  json_put(one, "reasons", json_string(d->reasons), &ok);
  json_put(one, "failed", json_boolean(d->failed >= 0), &ok);
  if (d->failed >= 0) {
    problem_print(&d->smallest, text);
    problem_words(&d->smallest, words);
    json_put(one, "statement", json_string(findings_in_words[d->found.kind]), &ok);
    json_put(one, "case", json_string(text), &ok);
    json_put(one, "least", json_string(words), &ok);
    json_put(one, "message", json_string(d->found.text), &ok);
    json_put(one, "witness", witness_json(&d->smallest), &ok);
  }
  return json_whole(one, ok);
}

attn_status findings_print_json(const char *spec, findings *f) {
  json_t *all = json_object(), *cells = json_array();
  bool ok = all && cells;
  for (int i = 0; ok && i < f->count; i++) {
    const bool failed = finding_is_failed(&f->cells[i].worst);
    f->failed += failed;
    if (strcmp(f->cells[i].worst.name, drawn_cell) != 0)
      json_add(cells, cell_json(&f->cells[i], failed), &ok);
  }
  json_put(all, "spec", json_string(spec), &ok);
  json_put(all, "failed", json_integer(f->failed), &ok);
  json_put(all, "ended", json_boolean(!f->lost), &ok);
  json_put(all, "results", cells, &ok);
  if (f->drawn.tried) json_put(all, "drawn", drawn_json(&f->drawn), &ok);
  const attn_status status =
      ok ? cli_print_json(all) : attn_fail(ATTN_ENOMEM, "no memory for the JSON of a test");
  json_decref(all);
  return status;
}
