/* test.c - attnlab test: everything that can be found wrong with one variant, in words, within a minute or
 * so. */
#include "experiments/commands/commands.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/forked_probe.h"
#include "experiments/commands/cli.h"
#include "experiments/commands/operands.h"
#include "experiments/commands/test_findings.h"
#include "experiments/conformance/witness.h"
#include "experiments/functions/function.h"

typedef struct arguments {
  const char *spec, *problems, *one, *only, *witness;
  attn_spec *parsed; /* spec */
  target_options target;
  int64_t seed;
  double seconds, limit;
  bool json;
} arguments;

static const cli_option options[] = {
    {NULL, 0, NULL, "variant", CLI_NEED(spec, "SPEC, the variant,")},
    TARGET_OPTIONS(target),
    {"problems", 0, "fixed|drawn", "Only the fixed problems, or only the drawn ones",
     CLI_SET(CLI_TEXT, problems)},
    {"seed", 0, "N", "Draw other tensors and problems (default 1)", CLI_RANGE(seed, 0, INT64_MAX)},
    {"time", 0, "SECONDS", "Processor time for the drawn problems (default 30; 0: until all are judged)",
     CLI_SET(CLI_REAL, seconds)},
    {"limit", 0, "SECONDS",
     "Processor time of one step, after which it is taken for an endless loop (default 60)",
     CLI_SET(CLI_REAL, limit)},
    {"only", 0, "CHECK", "Only this check, on the fixed problems", CLI_SET(CLI_TEXT, only)},
    {"case", 0, "CASE", "Only this drawn problem, as a failure prints it", CLI_SET(CLI_TEXT, one)},
    {"witness", 0, "DIRECTORY", "Write q, k, v and o of the smallest failed problem there, .npy",
     CLI_SET(CLI_TEXT, witness)},
    {"json", 0, NULL, "Print a JSON object", CLI_SET(CLI_FLAG, json)},
    {0}};

static void complete(struct argp_state *state, void *opaque) {
  const arguments *a = opaque;
  cli_require(state, a->spec, "SPEC, the variant,");
  if (a->problems && strcmp(a->problems, "fixed") != 0 && strcmp(a->problems, "drawn") != 0)
    argp_error(state, "--problems '%s': expected fixed or drawn", a->problems);
  if (a->only && !check_find(a->only))
    argp_error(state, "--only '%s': no check has this name (see `attnlab list checks')", a->only);
  if (a->only && (a->one || (a->problems && strcmp(a->problems, "fixed") != 0)))
    argp_error(state, "--only: checks are asked on the fixed problems");
  if (a->one && a->problems && strcmp(a->problems, "fixed") == 0)
    argp_error(state, "--case: a drawn problem, of which --problems fixed has none");
  if ((a->one || (a->problems && strcmp(a->problems, "drawn") == 0)) && target_given(&a->target))
    argp_error(state, "scores and masks are of the fixed problems: drawn ones have their own");
  if (a->witness && (a->only || (a->problems && strcmp(a->problems, "fixed") == 0)))
    argp_error(state, "--witness: tensors of drawn problems are written");
  if (a->seconds < 0) argp_error(state, "--time %g: expected 0 or more seconds", a->seconds);
  if (!(a->limit > 0)) argp_error(state, "--limit %g: expected more than 0 seconds", a->limit);
}

static const cli_command parser = {
    .usage = "SPEC",
    .options = options,
    .plugins = true,
    .complete = complete,
    .doc =
        "Runs every applicable check on one variant, on small problems.\v"
        "Each property and bound gets a line: pass, not applicable or unchecked with the reason, or FAILED "
        "with "
        "the expected and the measured value, the place, and the usual cause. Problems have fp32 and fp64, "
        "causal and not; ordinary and peaked inputs, one key that outweighs the others, all keys alike, "
        "large "
        "norms; every instruction set of this machine. Each runs in its own process, so that a crash is "
        "reported "
        "like any other finding. Then problems are drawn so that all pairs of widths, lengths, heads, batch "
        "sizes, masks, score transforms, types, strides, threads and ways to call occur as far as the "
        "variant "
        "declares them, and all triples of sizes: the line 'drawn'. A failure is made as small as possible, "
        "and "
        "printed with the command that repeats it. Limits are of processor time: a slow variant is called "
        "slow, "
        "not wrong. Exit code 1: something failed. With a score or mask bounds are judged on it, properties "
        "without; a file must fit 197 queries and keys in 4 heads, 256 in 2, or 389 or 512 in 1.\n\n"
        "  attnlab test bigbird:block=16\n"
        "  attnlab test tiled --alibi --mask documents:50\n"
        "  attnlab test mine --plugin ./mine.so\n"
        "  attnlab test python:module.function"};

/* A cell on its way to the parent. Names are constants of this program, which the parent has at the same
 * addresses; messages are not. */
typedef struct sent_cell {
  result_bound bound;
  char message[192];
} sent_cell;

/* What a child works on, and where the parent keeps what it hears. */
typedef struct fixed_run {
  const attn_spec *spec;
  const test_case *of;
  findings *found;
  int to;
} fixed_run;

static void send_cell(void *opaque, const result_bound *b) {
  const fixed_run *r = opaque;
  sent_cell cell = {.bound = *b};
  column_cut_text(cell.message, sizeof cell.message, b->message);
  (void)probe_send(r->to, &cell, sizeof cell);
}

/* Sends the cells of the case; a run that could not be judged is a cell of its own. */
static void send_case(void *opaque, size_t item, int to) {
  fixed_run *r = opaque;
  bool taken = true;
  result_bound cell;
  (void)item;
  r->to = to;
  if (!test_case_judge(r->spec, r->of, send_cell, r, &taken)) return;
  bound_begin(&cell, run_cell, KIND_HARD);
  bound_excuse(&cell, taken ? VERDICT_ERROR : VERDICT_NOT_APPLICABLE, attn_last_error());
  send_cell(r, &cell);
}

static int rank(const result_bound *b) {
  if (finding_is_failed(b)) return 5;
  if (b->verdict == VERDICT_PASS || b->verdict == VERDICT_CONSISTENT) return 3;
  if (b->verdict == VERDICT_UNCHECKED) return b->kind == KIND_PROPERTY ? 1 : 4;
  return b->verdict == VERDICT_UNCERTIFIABLE ? 2 : 0;
}

static void note_refusal(findings *f, const char *reason) {
  const size_t used = strlen(f->refused);
  if (strstr(f->refused, reason) || used + strlen(reason) + 3 > sizeof f->refused) return;
  snprintf(f->refused + used, sizeof f->refused - used, "%s%s", used ? "; " : "", reason);
}

static void take(findings *f, const result_bound *b, const test_case *c) {
  int at = 0;
  if (b->verdict == VERDICT_NOT_APPLICABLE && strcmp(b->name, run_cell) == 0) note_refusal(f, b->message);
  while (at < f->count && strcmp(f->cells[at].worst.name, b->name) != 0) at++;
  if (at == CELLS || (at < f->count && rank(b) <= rank(&f->cells[at].worst))) return;
  if (at == f->count) f->count++;
  f->cells[at].worst = *b;
  test_case_name(c, f->cells[at].where);
}

static bool take_cell(void *opaque, size_t item, const void *message) {
  const fixed_run *r = opaque;
  sent_cell cell;
  (void)item;
  memcpy(&cell, message, sizeof cell);
  bound_say(&cell.bound, "%s", cell.message);
  /* What is said of a program that has ended is not said of what was asked of it. */
  if (cell.bound.verdict == VERDICT_ERROR && function_lost(r->spec->variant)) cell.bound.name = run_cell;
  take(r->found, &cell.bound, r->of);
  return true;
}

static attn_status run_case(const arguments *a, const test_case *c, findings *f) {
  fixed_run r = {.spec = a->parsed, .of = c, .found = f};
  const probe_job job = {.items = 1,
                         .message = sizeof(sent_cell),
                         .limit = a->limit,
                         .context = &r,
                         .work = send_case,
                         .take = take_cell};
  probe_result end;
  result_bound b;
  const attn_status status = probe_run(&job, &end);
  f->lost = function_lost(a->parsed->variant);
  if (status || end.end == PROBE_WHOLE) return status;
  f->lost = true;
  bound_begin(&b, run_cell, KIND_HARD);
  b.verdict = VERDICT_ERROR;
  bound_say(&b, "it %s", end.text);
  take(f, &b, c);
  return ATTN_OK;
}

/* -- drawn problems -- */

/* Did it refuse every fixed problem, or was it asked none? */
static bool is_untested(const findings *f) {
  const result_bound *b = &f->cells[0].worst;
  return !f->count ||
         (f->count == 1 && strcmp(b->name, run_cell) == 0 && b->verdict == VERDICT_NOT_APPLICABLE);
}

static attn_status run_drawn(const arguments *a, findings *f) {
  const drawn_options how = {(uint64_t)a->seed, a->seconds, a->limit};
  const drawn_scope scope = drawn_scope_of(a->parsed);
  problem *list = NULL, one;
  int64_t count = 1;
  attn_status status = a->one ? problem_parse(a->one, &one) : drawn_problems(&scope, how.seed, &list, &count);
  if (!status && !a->one && !a->json)
    printf("%lld drawn problems (seed %lld)\n\n", (long long)count, (long long)a->seed);
  fflush(stdout);
  if (!status) status = drawn_run(a->parsed, a->one ? &one : list, count, &how, &f->drawn);
  free(list);
  if (status) return status;
  if (f->drawn.refused == f->drawn.tried && is_untested(f))
    return attn_fail(ATTN_EUNSUPPORTED, "%s: it rejects every test problem: %s", a->spec, f->drawn.reasons);
  found_cell *cell = &f->cells[f->count++];
  bound_begin(&cell->worst, drawn_cell, KIND_PROPERTY);
  cell->worst.verdict = f->drawn.failed < 0 ? VERDICT_PASS : VERDICT_VIOLATED;
  return ATTN_OK;
}

/* -- all -- */

static attn_status run_fixed(const arguments *a, const char *score, const char *mask, findings *f) {
  test_case cases[TEST_CASES];
  const int count =
      test_cases_list(drawn_scope_of(a->parsed).in_turn, score, mask, a->only, (uint64_t)a->seed, cases);
  attn_status status = test_case_check(cases);
  if (!status && !a->json) test_cases_print(cases, count);
  /* Another crash would say no more, and loops add up. */
  for (int i = 0; !status && !f->lost && i < count; i++) status = run_case(a, &cases[i], f);
  if (!status && !f->count && a->only)
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: %s speaks of variants %s", a->spec, a->only,
                       check_find(a->only)->of->text);
  return status;
}

static attn_status test(arguments *a, const char *score, const char *mask, int argc, char **argv,
                        findings *f) {
  const bool fixed = !a->one && (!a->problems || strcmp(a->problems, "fixed") == 0),
             drawn = a->one || (!a->only && (!a->problems || strcmp(a->problems, "drawn") == 0));
  attn_status status = ATTN_OK;
  if (function_named(a->spec)) status = function_register(a->spec, a->limit / 2, &a->spec);
  if (!status) status = attn_spec_parse(&a->parsed, a->spec);
  if (!status && fixed) status = run_fixed(a, score, mask, f);
  /* It may take other sizes, which are drawn. */
  if (!status && (!drawn || target_given(&a->target)) && f->count && is_untested(f))
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: it rejects every test problem: %s", a->spec, f->refused);
  if (!status && drawn && !f->lost) status = run_drawn(a, f);
  if (!status && a->witness && f->drawn.failed >= 0 && f->drawn.tried)
    status = witness_write(a->parsed, &f->drawn.smallest, a->witness);
  if (status) return status;
  if (a->json) return findings_print_json(a->spec, f);
  findings_print(f, argc, argv);
  printf("\n%s: %d of %d properties and bounds failed\n", a->spec, f->failed, f->count);
  if (f->lost) printf("The cases after the one that did not end were not run.\n");
  if (!f->failed && !a->only) findings_warn(a->parsed, f, fixed);
  return ATTN_OK;
}

int cmd_test(int argc, char **argv) {
  arguments a = {.seed = 1, .seconds = 30, .limit = 60};
  findings f = {.count = 0};
  char *score = NULL, *mask = NULL;
  cli_parse(&parser, argc, argv, &a);
  attn_status status = target_texts(&a.target, &score, &mask);
  if (!status) status = test(&a, score, mask, argc, argv, &f);
  free(score);
  free(mask);
  attn_spec_destroy(a.parsed);
  return status ? cli_report(argv[0], status) : f.failed ? EXIT_BOUND : 0;
}
