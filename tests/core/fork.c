/* fork.c - a process that was forked when the library had threads: told so instead of waiting for threads
 * that it does not have. */
#include "tests/support/core.h"

#include <sys/wait.h>
#include <unistd.h>

enum { TIME_LIMIT = 10 }; /* seconds; the child would wait for ever */

typedef attn_status (*work)(int threads);

static attn_status attend(int threads) {
  static float x[64 * 8], o[64 * 8];
  attn_problem p = attn_problem_make(1, 1, 64, 8);
  attn_plan *plan = NULL;
  attn_status status = attn_plan_create(&plan, &p, "tiled", &(attn_options){.threads = threads});
  if (status) return status;
  void *room = malloc(attn_plan_work_size(plan) + 1);
  status = attn_plan_execute(plan, x, x, x, NULL, o, room);
  free(room);
  attn_plan_destroy(plan);
  return status;
}

static attn_plan *made;
static attn_status attend_as_planned(int threads) {
  static float x[64 * 8], o[64 * 8];
  (void)threads;
  void *room = malloc(attn_plan_work_size(made) + 1);
  attn_status status = attn_plan_execute(made, x, x, x, NULL, o, room);
  free(room);
  return status;
}
static attn_status measure(int threads) {
  double rate;
  return attn_peak(&(attn_options){.threads = threads}, ATTN_PEAK_F32, 1e-4, &rate);
}
static attn_status draw(int threads) {
  attn_problem p = attn_problem_make(1, 1, 600, 8);
  attn_plan *plan = NULL;
  attn_status status = attn_plan_create(&plan, &p, "linformer:k=8", &(attn_options){.threads = threads});
  attn_plan_destroy(plan);
  return status;
}

/* The child's exit status: 0 as expected, 1 another status, 2 another message. */
static int in_child(work w, int threads, attn_status expected) {
  pid_t child = fork();
  cr_assert(child >= 0);
  if (child == 0) {
    alarm(TIME_LIMIT);
    attn_status status = w(threads);
    if (status != expected) _exit(1);
    _exit(status && !strstr(attn_last_error(), "threads = 1") ? 2 : 0);
  }
  int status = 0;
  cr_assert_eq(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) return 100 + WTERMSIG(status);
  return WEXITSTATUS(status);
}

Test(core_fork, before_any_threads) {
  cr_expect_eq(in_child(attend, 2, ATTN_OK), 0);
  cr_expect_eq(in_child(attend, 1, ATTN_OK), 0);
}

Test(core_fork, after_threads) {
  attn_problem p = attn_problem_make(1, 1, 64, 8);
  cr_assert_eq(attend(1), ATTN_OK);
  cr_expect_eq(in_child(attend, 2, ATTN_OK), 0);
  cr_assert_eq(attend(2), ATTN_OK);
  cr_assert_eq(attn_plan_create(&made, &p, "tiled", &(attn_options){.threads = 2}), ATTN_OK);
  cr_assert_eq(in_child(attend, 2, ATTN_EUNSUPPORTED), 0);
  cr_expect_eq(in_child(attend_as_planned, 2, ATTN_EUNSUPPORTED), 0);
  cr_expect_eq(in_child(measure, 2, ATTN_EUNSUPPORTED), 0);
  cr_expect_eq(in_child(draw, 2, ATTN_EUNSUPPORTED), 0);
  cr_expect_eq(in_child(attend, 1, ATTN_OK), 0);
  cr_assert_eq(attend(2), ATTN_OK); /* the parent continues */
  attn_plan_destroy(made);
}
