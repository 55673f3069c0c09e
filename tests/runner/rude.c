/* rude.c - variants that harm their process or others: each gets a row, the others' rows are as without them,
 * and nothing of theirs survives the sweep. */
#include <dirent.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "experiments/instruments/timing.h"
#include "tests/support/sweep_fixture.h"

TestSuite(rude, .init = command_enter, .fini = command_leave, .timeout = 120);

#define RUDE " --plugin " TEST_BINARY_DIR "/tests/rude.so"

static void write_config(const char *variants, const char *more) {
  command_write_text(
      "x.yaml",
      text_of("schema: 1\ngrid: {n: 24, heads: 2, d: 8}\nvariants: [full, rude: {mode: [%s]}, tiled]\n"
              "datasets: gaussian\nthreads: 1\nnulls: no\n%s\n" TIMING,
              variants, more));
}

/* Every other row is measured; returns the rude one's, of `count` rows. */
static const result_row *the_rude_row(const result_set *set, size_t count, const char *mode) {
  const result_row *found = NULL;
  cr_assert_eq(set->count, count);
  for (size_t i = 0; i < set->count; i++) {
    if (strstr(set->rows[i].key, text_of("mode=%s,", mode)))
      found = &set->rows[i];
    else if (strcmp(set->rows[i].variant, "rude") != 0)
      expect_measured(&set->rows[i]);
  }
  cr_assert_not_null(found, "%s", mode);
  return found;
}

/* Processes whose environment has a worker's mark. */
static int survivors(void) {
  DIR *all = opendir("/proc");
  int count = 0;
  char *entry = NULL;
  size_t size = 0;
  for (struct dirent *e; all && (e = readdir(all));) {
    const char *path = text_of("/proc/%s/environ", e->d_name);
    FILE *file = *e->d_name >= '1' && *e->d_name <= '9' ? fopen(path, "r") : NULL;
    int marked = 0, mine = 0;
    while (file && getdelim(&entry, &size, '\0', file) > 0) {
      marked = marked || strncmp(entry, "ATTNLAB_WORKER=", 15) == 0;
      mine = mine || strcmp(entry, "RUDE_TEST=yes") == 0;
    }
    if (file) fclose(file);
    count += marked && mine;
  }
  free(entry);
  if (all) closedir(all);
  return count;
}

Test(rude, a_child_of_a_dead_worker_holds_nothing_up_and_is_killed) {
  static const char *const modes[] = {"orphan", "daemon"};
  setenv("RUDE_TEST", "yes", 1);
  for (int i = 0; i < 2; i++) {
    write_config(modes[i], "");
    const double start = timing_now();
    const result_set *set = sweep_again("-q" RUDE, 3);
    cr_expect(timing_now() - start < 30, "it waited %g s", timing_now() - start);
    cr_expect_eq(survivors(), 0, "%s left something", modes[i]);
    cr_expect_eq(the_rude_row(set, 3, modes[i])->status, RUN_CRASHED);
    unlink("x.h5"), unlink("x.jsonl");
  }
}

Test(rude, the_memory_of_children_counts) {
  setenv("RUDE_TEST", "yes", 1);
  write_config("child_eats", "budget: {memory: 300Mi, time: 20}");
  const result_set *set = sweep_again("-q" RUDE, 3);
  expect_status(the_rude_row(set, 3, "child_eats"), RUN_OOM);
  cr_expect_eq(survivors(), 0);
}

Test(rude, what_is_written_to_foreign_descriptors_fails_that_run_alone) {
  static const struct {
    const char *mode, *about;
  } cases[] = {{"scribble", "damaged"}, {"close", "exited with code"}};
  for (int i = 0; i < 2; i++) {
    write_config(cases[i].mode, "");
    const result_row *row = the_rude_row(sweep_again("-q" RUDE, 3), 3, cases[i].mode);
    expect_status(row, i == 0 ? RUN_FAILED : RUN_CRASHED);
    cr_expect(strstr(row->message, cases[i].about), "%s", row->message);
    unlink("x.h5"), unlink("x.jsonl");
  }
}

/* A sweep that is stopped while its worker goes on: what its runs took is what they took. */
Test(rude, time_in_which_the_parent_is_stopped_is_not_the_runs) {
  command_write_text("x.yaml", "schema: 1\ngrid: {n: 24, heads: 1, d: 8}\nvariants: [rude: {level: "
                               "[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}]\ndatasets: gaussian\nthreads: 1\nnulls: no\n"
                               "budget: {time: 4}\n"
                               "timing: {min_time: 0.2, max_time: 0.3, warmup: 0.001, samples: 1000}\n");
  const pid_t child = command_start("run x.yaml -o x.h5 -q" RUDE);
  nanosleep(&(struct timespec){0, 400000000}, NULL);
  kill(child, SIGSTOP);
  sleep(8);
  kill(child, SIGCONT);
  cr_expect_eq(command_exit_of(child), 0);
  result_set set = read_results("x.h5");
  cr_assert_eq(set.count, 6);
  for (size_t i = 0; i < set.count; i++) {
    expect_status(&set.rows[i], RUN_OK);
    cr_expect(set.rows[i].run_time < 4, "%s: %g s", set.rows[i].key, set.rows[i].run_time);
  }
}

/* Sixteen runs of like plans: none is out of memory, and what each took does not depend on its place. */
Test(rude, memory_is_the_runs_own) {
  const result_set *set =
      sweep("-q", 0,
            "schema: 1\ngrid: {n: 16Ki, heads: 4, d: 8, d_v: 8, seed: 0:15:1}\n"
            "variants: [linformer: {k: 32, share: none, share_heads: no}]\ndatasets: gaussian\n"
            "threads: 1\nnulls: no\nbudget: {memory: 160Mi}\n"
            "timing: {min_time: 0.001, max_time: 0.2, warmup: 0.001, samples: 4}\n");
  cr_assert_eq(set->count, 16);
  double least = HUGE_VAL, most = 0;
  for (size_t i = 0; i < set->count; i++) {
    const result_row *row = &set->rows[i];
    expect_status(row, RUN_OK);
    cr_expect_eq(row->peak_alloc, set->rows[0].peak_alloc);
    least = fmin(least, row->peak_rss);
    most = fmax(most, row->peak_rss);
  }
  cr_expect(most - least < 8e6, "peak_rss from %g to %g", least, most);
}

/* The parent asks no variant anything: not for the order of the blocks, nor for estimates. */
Test(rude, questions_that_crash_or_hang_are_rows) {
  write_config("applicable, work_size, cost_crash, cost_hang, none", "budget: {time: 10}");
  const result_set *set = sweep_again("-q" RUDE, 3);
  static const char *const modes[] = {"applicable", "work_size", "cost_crash", "cost_hang", "none"};
  for (int i = 0; i < 5; i++) {
    const run_status expected = i < 3 ? RUN_CRASHED : i == 3 ? RUN_TIMEOUT : RUN_OK;
    expect_status(the_rude_row(set, 7, modes[i]), expected);
  }
  cr_expect_eq(run("run x.yaml -o y.h5 -q --dry-run" RUDE), 0, "%s", result.err);
  expect_says(result.out, "rude:mode=applicable: crashed: ");
  expect_says(result.out, "rude:mode=cost_hang: timeout: ");
}
