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
#include "experiments/commands/cli.h"
#include "experiments/instruments/timing.h"
#include "experiments/properties/property.h"

enum { SECONDS = 12, CELLS = 96, FORKED = 113, WHERE = 96 };
static const char ended[] = "end";  /* the name of the cell after the last of a case */
static const double p_least = 1e-9; /* p-values are not repeated here */

static const cli_option options[] = {{NULL, 0, NULL, "variant", CLI_TEXT, 0, 0, 0, "SPEC, the variant,"},
                                     {0}};

static const cli_command parser = {
    .usage = "SPEC",
    .options = options,
    .plugins = true,
    .doc = "Is this variant right? All properties and bounds that concern it, on small problems.\v"
           "Of each property and bound a line: pass, not applicable or unchecked with the reason, or FAILED "
           "with what "
           "was expected, where, what came instead, and the usual cause. fp32 and fp64, causal and not, "
           "ordinary and "
           "peaked inputs, each in a process of its own, so that a crash is reported like any other finding. "
           "Exit "
           "code 1: something failed.\n\n"
           "  attnlab test bigbird:block=16\n"
           "  attnlab test mine --plugin ./mine.so"};

typedef struct trial_case {
  attn_dtype dtype;
  bool causal;
  double std;
  int64_t d, d_v;
} trial_case;

typedef struct found_cell {
  result_bound worst;
  char where[WHERE];
} found_cell;

typedef struct findings {
  found_cell cells[CELLS];
  int count, failed;
} findings;

static void case_name(const trial_case *c, char out[WHERE]) {
  snprintf(out, WHERE, "%s, %s, %s scores, d = %d, d_v = %d", c->dtype == ATTN_F64 ? "f64" : "f32",
           c->causal ? "causal" : "not causal", c->std > 1 ? "peaked" : "ordinary", (int)c->d, (int)c->d_v);
}

static void *draw(int64_t count, attn_dtype type, double std, uint64_t seed) {
  void *at = malloc((size_t)count * attn_dtype_size(type));
  attn_rng rng;
  attn_rng_init(&rng, seed, 1, 0);
  for (int64_t i = 0; at && i < count; i++) attn_set(at, i, type, std * attn_rng_normal(&rng));
  return at;
}

static attn_status plan_for(const char *spec, const trial_case *c, attn_plan **plan) {
  static const int64_t shapes[][4] = {{2, 4, 2, 197}, {2, 2, 2, 256}, {1, 1, 1, 389}, {1, 1, 1, 512}};
  attn_status status = ATTN_OK;
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    attn_problem p = attn_problem_make(shapes[s][0], shapes[s][1], shapes[s][3], c->d);
    p.d_v = c->d_v;
    p.kv_heads = shapes[s][2];
    p.dtype = c->dtype;
    p.causal = c->causal;
    status = attn_plan_create(plan, &p, spec, NULL);
    if (status != ATTN_EUNSUPPORTED && status != ATTN_EINVAL) return status;
  }
  return status;
}

/* One case, judged: in the child. *taken: the variant takes such a problem. */
static attn_status judge(const char *spec, const trial_case *c, result_row *row, bool *taken) {
  attn_plan *plan = NULL;
  attn_view view;
  exact_rows *exact = NULL;
  attn_status status = plan_for(spec, c, &plan);
  *taken = status != ATTN_EUNSUPPORTED && status != ATTN_EINVAL;
  if (status) return status;
  const attn_problem *p = attn_plan_problem(plan);
  const int64_t q_count = p->batch * p->heads * p->n_q, k_count = p->batch * p->kv_heads * p->n_kv;
  const size_t work_bytes = attn_plan_verify_size(plan);
  void *q = draw(q_count * p->d_qk, p->dtype, c->std, 1), *k = draw(k_count * p->d_qk, p->dtype, c->std, 2),
       *v = draw(k_count * p->d_v, p->dtype, 1, 3), *o = draw(q_count * p->d_v, p->dtype, 1, 4),
       *work = work_bytes < SIZE_MAX ? malloc(work_bytes + 1) : NULL;
  struct block_cache *cache = block_cache_create();
  if (!q || !k || !v || !o || !work || !cache) status = attn_fail(ATTN_ENOMEM, "no memory to test %s", spec);
  if (!status) status = attn_plan_inspect(plan, &view);
  if (!status) status = attn_plan_verify(plan, q, k, v, NULL, o, NULL, work);
  if (!status) status = exact_rows_compute(p, q, k, v, NULL, 7, &exact);
  evidence e = {.plan = plan,
                .problem = p,
                .view = &view,
                .q = q,
                .k = k,
                .v = v,
                .o = o,
                .exact = exact,
                .seed = 11,
                .cache = cache};
  if (!status) status = checks_run(&e, row);
  if (!status && c->std <= 1) status = properties_run(&e, row);
  exact_rows_free(exact);
  block_cache_free(cache);
  free(q);
  free(k);
  free(v);
  free(o);
  free(work);
  attn_plan_destroy(plan);
  return status;
}

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
static void send_case(const char *spec, const trial_case *c, int to) {
  result_row row;
  bool taken = true;
  result_row_init(&row);
  const attn_status status = judge(spec, c, &row, &taken);
  if (status) {
    result_bound cell;
    bound_begin(&cell, "run", KIND_HARD);
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
  if (is_failed(b)) return 4;
  if (b->verdict == VERDICT_PASS || b->verdict == VERDICT_CONSISTENT) return 3;
  return b->verdict == VERDICT_UNCERTIFIABLE ? 2 : b->verdict == VERDICT_UNCHECKED ? 1 : 0;
}

static void take(findings *f, const result_bound *b, const trial_case *c) {
  int at = 0;
  while (at < f->count && strcmp(f->cells[at].worst.name, b->name) != 0) at++;
  if (at == CELLS || (at < f->count && rank(b) <= rank(&f->cells[at].worst))) return;
  if (at == f->count) f->count++;
  f->cells[at].worst = *b;
  case_name(c, f->cells[at].where);
}

static void leave_at_fork(void) { _exit(FORKED); }

/* Takes cells until the case says that it has ended, its pipe closes, or its time is over. */
static bool take_cells(int from, const trial_case *c, findings *f, bool *late) {
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
static attn_status run_case(const char *spec, const trial_case *c, findings *f, bool *lost) {
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
  bound_begin(&b, "run", KIND_HARD);
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
  else if (!isnan(b->measured))
    printf("%14smeasured %.6g, at most %.6g\n", "", b->measured, b->value);
  if (c && c->cause) printf("%14susual cause: %s\n", "", c->cause);
}

/* That outputs repeat and depend on what they may says nothing of what they are. */
static void warn_unchecked(const char *spec, const findings *f) {
  result_bound cells[CELLS];
  for (int i = 0; i < f->count; i++) cells[i] = f->cells[i].worst;
  if (bounds_worst(cells, f->count) != VERDICT_UNCHECKED) return;
  printf(
      "%s is UNCHECKED: no bound holds its outputs against what they should be, and results say so. Declare "
      "what it is: its pattern, features or projection with their law, and its rounding, in inspect.\n",
      spec);
}

static attn_status test(const char *spec, findings *f) {
  static const trial_case cases[] = {{ATTN_F32, false, 1, 32, 32},   {ATTN_F64, false, 1, 80, 48},
                                     {ATTN_F32, true, 1, 32, 32},    {ATTN_F64, true, 1, 33, 17},
                                     {ATTN_F32, false, 2.5, 33, 17}, {ATTN_F64, false, 2.5, 32, 32},
                                     {ATTN_F32, true, 2.5, 80, 48},  {ATTN_F64, true, 2.5, 32, 32}};
  attn_spec *parsed = NULL;
  bool lost = false;
  attn_status status = attn_spec_parse(&parsed, spec);
  attn_spec_destroy(parsed);
  /* Another crash would say no more, and loops add up. */
  for (size_t i = 0; !status && !lost && i < sizeof cases / sizeof *cases; i++)
    status = run_case(spec, &cases[i], f, &lost);
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
  const char *spec = NULL;
  findings f = {.count = 0};
  cli_parse(&parser, argc, argv, &spec);
  const attn_status status = test(spec, &f);
  return status ? cli_report(argv[0], status) : f.failed ? EXIT_BOUND : 0;
}
