/* test.c - attnlab test: everything that can be found wrong with one variant, in words, within a minute. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/commands/commands.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/support/file.h"
#include "experiments/checks/check.h"
#include "experiments/commands/cli.h"
#include "experiments/commands/operands.h"
#include "experiments/commands/test_case.h"
#include "experiments/instruments/timing.h"

enum { SECONDS = 12, CELLS = 96, FORKED = 113 };
static const char run_cell[] = "run"; /* of a case that could not be judged */
static const char ended[] = "end";    /* the name of the cell after the last of a case */
static const double p_least = 1e-9;   /* p-values are not repeated here */

typedef struct arguments {
  const char *spec;
  target_options target;
} arguments;

static const cli_option options[] = {
    {NULL, 0, NULL, "variant", CLI_TEXT, offsetof(arguments, spec), 0, 0, "SPEC, the variant,"},
    TARGET_OPTIONS(arguments, target),
    {0}};

static const cli_command parser = {
    .usage = "SPEC",
    .options = options,
    .plugins = true,
    .doc =
        "Is this variant right? All properties and bounds that concern it, on small problems.\v"
        "Of each property and bound a line: pass, not applicable or unchecked with the reason, or FAILED "
        "with what "
        "was expected, where, what came instead, and the usual cause. fp32 and fp64, causal and not; "
        "ordinary and "
        "peaked inputs, one key that outweighs the others, all keys alike, large norms; every instruction "
        "set of "
        "this machine; each in a process of its own, so that a crash is reported like any other finding. "
        "Exit "
        "code 1: something failed. With a score or mask bounds are judged on it, properties without; a file "
        "must fit 197 queries and keys in 4 heads, 256 in 2, or 389 or 512 in 1.\n\n"
        "  attnlab test bigbird:block=16\n"
        "  attnlab test tiled --alibi --mask documents:50\n"
        "  attnlab test mine --plugin ./mine.so"};

typedef struct found_cell {
  result_bound worst;
  char where[TEST_CASE_NAME];
} found_cell;

typedef struct findings {
  found_cell cells[CELLS];
  int count, failed;
  char refused[480]; /* why problems were, each reason once */
} findings;

/* A cell on its way to the parent. Names are constants of this program, which the parent has at the same addresses;
 * messages are not. */
typedef struct sent_cell {
  result_bound bound;
  char message[192];
} sent_cell;

static bool send_cell(int to, const result_bound *b) {
  sent_cell cell = {.bound = *b};
  column_cut_text(cell.message, sizeof cell.message, b->message);
  return file_write_all(to, (const char *)&cell, sizeof cell);
}

/* Sends the cells of the case; a run that could not be judged is a cell of its own. */
static void send_case(const char *spec, const test_case *c, int to) {
  result_row row;
  bool taken = true;
  result_row_init(&row);
  const attn_status status = test_case_judge(spec, c, &row, &taken);
  if (status) {
    result_bound cell;
    bound_begin(&cell, run_cell, KIND_HARD);
    bound_excuse(&cell, taken ? VERDICT_ERROR : VERDICT_NOT_APPLICABLE, attn_last_error());
    row.bounds_count = 0;
    (void)result_row_add_bound(&row, &cell);
  }
  result_bound end;
  bool sent = true;
  for (int b = 0; sent && b < row.bounds_count; b++) sent = send_cell(to, &row.bounds[b]);
  bound_begin(&end, ended, KIND_HARD);
  if (sent) (void)send_cell(to, &end);
  result_row_free(&row);
}

static bool is_failed(const result_bound *b) {
  return b->verdict == VERDICT_VIOLATED || b->verdict == VERDICT_ERROR ||
         (b->kind == KIND_PROB && b->p_value < p_least);
}

static int rank(const result_bound *b) {
  if (is_failed(b)) return 5;
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

static void leave_at_fork(void) { _exit(FORKED); }

/* Takes cells until the case says that it has ended, its pipe closes, or its time is over. */
static bool take_cells(int from, const test_case *c, findings *f, bool *late) {
  const double deadline = timing_now() + SECONDS;
  sent_cell cell;
  size_t have = 0;
  for (double left; (left = deadline - timing_now()) > 0;) {
    struct pollfd wait = {.fd = from, .events = POLLIN};
    if (poll(&wait, 1, (int)(left * 1e3) + 1) <= 0) continue;
    const ssize_t got = read(from, (char *)&cell + have, sizeof cell - have);
    if (got <= 0) return false;
    have += (size_t)got;
    if (have < sizeof cell) continue;
    if (cell.bound.name == ended) return true;
    bound_say(&cell.bound, "%s", cell.message);
    take(f, &cell.bound, c);
    have = 0;
  }
  *late = true;
  return false;
}

static void say_end(int how, bool late, bool left, result_bound *b) {
  if (late)
    bound_say(b, "it did not come to an end within %d s (endless loop, or a lock?)", SECONDS);
  else if (WIFSIGNALED(how))
    bound_say(b, "it crashed: %s", strsignal(WTERMSIG(how)));
  else if (left || WEXITSTATUS(how) == FORKED)
    bound_say(b, "it started a process (fork): a variant computes in the process that calls it");
  else
    bound_say(b, "it left the program with exit code %d", WEXITSTATUS(how));
}

/* *lost: the case did not come to its end. */
static attn_status run_case(const char *spec, const test_case *c, findings *f, bool *lost) {
  int ends[2], how = 0;
  bool late = false;
  result_bound b;
  fflush(NULL);
  if (pipe(ends)) return attn_fail(ATTN_EFOREIGN, "pipe failed");
  const pid_t child = fork();
  if (child < 0) return attn_fail(ATTN_EFOREIGN, "fork failed");
  if (child == 0) {
    close(ends[0]);
    setpgid(0, 0);
    alarm(2 * SECONDS); /* if the parent dies */
    pthread_atfork(leave_at_fork, NULL, NULL);
    send_case(spec, c, ends[1]);
    _exit(0);
  }
  setpgid(child, child);
  close(ends[1]);
  const bool whole = take_cells(ends[0], c, f, &late);
  close(ends[0]);
  if (late) kill(-child, SIGKILL);
  waitpid(child, &how, 0);
  const bool left = kill(-child, SIGKILL) == 0; /* processes of its group, now without it */
  *lost = !whole || left || !WIFEXITED(how) || WEXITSTATUS(how) != 0;
  if (!*lost) return ATTN_OK;
  bound_begin(&b, run_cell, KIND_HARD);
  b.verdict = VERDICT_ERROR;
  say_end(how, late, left, &b);
  take(f, &b, c);
  return ATTN_OK;
}

static void print_cell(const found_cell *cell) {
  const result_bound *b = &cell->worst;
  const check *c = check_find(b->name);
  if (!is_failed(b)) {
    const bool good = b->verdict == VERDICT_PASS || b->verdict == VERDICT_CONSISTENT;
    printf("%-13s %s%s%s%s\n", b->name,
           good                                   ? "pass"
           : b->verdict == VERDICT_NOT_APPLICABLE ? "not applicable"
                                                  : check_verdict_names[b->verdict],
           !good && *b->message ? " (" : "", good ? "" : b->message, !good && *b->message ? ")" : "");
    return;
  }
  printf("%-13s FAILED: %s (%s)\n", b->name, c ? c->statement : "the variant runs", cell->where);
  if (*b->message) printf("%14s%s\n", "", b->message);
  if (b->kind == KIND_PROB)
    printf("%14sp = %.3g\n", "", b->p_value);
  else if (!isnan(b->measured) || !*b->message)
    printf("%14smeasured %.6g, at most %.6g\n", "", b->measured, b->value);
  if (c && c->cause) printf("%14susual cause: %s\n", "", c->cause);
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

/* Of a variant that refused every problem. */
static attn_status refuse_untested(const char *spec, const findings *f) {
  const result_bound *b = &f->cells[0].worst;
  if (f->count != 1 || b->verdict != VERDICT_NOT_APPLICABLE) return ATTN_OK;
  return attn_fail(ATTN_EUNSUPPORTED, "%s: it rejects every test problem: %s", spec, f->refused);
}

static attn_status test(const char *spec, const char *score, const char *mask, findings *f) {
  test_case cases[TEST_CASES];
  const int count = test_cases_list(score, mask, cases);
  attn_spec *parsed = NULL;
  bool lost = false;
  attn_status status = attn_spec_parse(&parsed, spec);
  attn_spec_destroy(parsed);
  if (!status) status = test_case_check(cases);
  if (!status) test_cases_print(cases, count);
  /* Another crash would say no more, and loops add up. */
  for (int i = 0; !status && !lost && i < count; i++) status = run_case(spec, &cases[i], f, &lost);
  if (!status) status = refuse_untested(spec, f);
  for (int i = 0; !status && i < f->count; i++) {
    print_cell(&f->cells[i]);
    f->failed += is_failed(&f->cells[i].worst);
  }
  if (status) return status;
  printf("\n%s: %d of %d properties and bounds failed\n", spec, f->failed, f->count);
  if (lost) printf("The cases after the one that did not end were not run.\n");
  if (!f->failed) warn_unchecked(spec, f);
  return ATTN_OK;
}

int cmd_test(int argc, char **argv) {
  arguments a = {.spec = NULL};
  findings f = {.count = 0};
  char *score = NULL, *mask = NULL;
  cli_parse(&parser, argc, argv, &a);
  attn_status status = target_texts(&a.target, &score, &mask);
  if (!status) status = test(a.spec, score, mask, &f);
  free(score);
  free(mask);
  return status ? cli_report(argv[0], status) : f.failed ? EXIT_BOUND : 0;
}
