/* live.c - what a user sees of a running sweep: the block on a terminal, plain lines elsewhere. */
#define _XOPEN_SOURCE 700
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "experiments/runner/progress.h"
#include "experiments/results/write_hdf5.h"
#include "tests/support/terminal.h"

#define SWEEP                                                                                           \
  "schema: 1\ngrid: {n: [32, 48], heads: 2, d: 16, causal: [no, yes]}\nvariants: [full, tiled, fault: " \
  "{mode: [wrong, crash]}]\ndatasets: gaussian\ntiming: {min_time: 0.004, max_time: 2, warmup: 0.001, " \
  "samples: 8}\n"
#define HANG                                                                                    \
  "schema: 1\ngrid: {n: 32, heads: 1, d: 8}\nvariants: [full, fault: {mode: hang}]\ndatasets: " \
  "gaussian\nbudget: {time: 100}\n"
#define REMOVE_BELOW "\r\033[J"

static terminal screen;

static void enter(void) {
  command_enter();
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
}

TestSuite(live, .init = enter, .fini = command_leave, .timeout = 120);

static int sweep(void *context) {
  (void)context;
  execl(TEST_BINARY_DIR "/experiments/attnlab", "attnlab", "run", "x.yaml", "-o", "x.h5", "--plugin",
        TEST_BINARY_DIR "/tests/fault.so", (char *)NULL);
  return 127;
}

/* Bytes before the block is removed for the last time. */
static size_t last_block(void) {
  const char *end = NULL;
  for (const char *at = screen.bytes; (at = strstr(at, REMOVE_BELOW)); at++) end = at;
  cr_assert(end, "no block: %s", screen.bytes);
  return (size_t)(end - screen.bytes);
}

static const char *row_with(const char *part) {
  for (int i = 0; i < screen.rows; i++)
    if (strstr(screen.cells[i], part)) return screen.cells[i];
  return NULL;
}

static int rows_used(void) {
  int count = 0;
  for (int i = 0; i < screen.rows; i++) count += *screen.cells[i] != '\0';
  return count;
}

Test(live, the_block_counts_as_the_file_does_and_leaves_one_line) {
  command_write_text("x.yaml", SWEEP);
  cr_expect_eq(terminal_run(&screen, 100, 40, sweep, NULL, NULL, NULL), 1, "%s", screen.bytes);
  terminal_show(&screen, last_block());
  cr_expect_eq(screen.unexpected, 0);
  cr_expect_eq(screen.broken, 0);
  cr_expect(screen.colours > 0);
  result_set set;
  result_set_init(&set);
  cr_assert_eq(results_read("x.h5", &set), ATTN_OK, "%s", attn_last_error());
  size_t verdicts[VERDICT_ERROR + 1] = {0}, failed = 0;
  for (size_t i = 0; i < set.count; i++)
    if (set.rows[i].status == RUN_OK)
      verdicts[set.rows[i].verdict]++;
    else
      failed += set.rows[i].status == RUN_CRASHED;
  char counts[200], state[64];
  snprintf(counts, sizeof counts,
           "so far  %zu violated, %zu failed, %zu pass, %zu consistent, %zu uncertifiable",
           verdicts[VERDICT_VIOLATED], failed, verdicts[VERDICT_PASS], verdicts[VERDICT_CONSISTENT],
           verdicts[VERDICT_UNCERTIFIABLE]);
  snprintf(state, sizeof state, "100 %%  %zu/%zu runs, ", set.count, set.count);
  cr_expect(verdicts[VERDICT_VIOLATED] == 4 && failed == 4);
  cr_expect(row_with(counts), "%s, not %s", counts, row_with("so far"));
  cr_expect(row_with(state), "%s, not %s", state, row_with("runs,"));
  cr_expect(row_with("block   4/4: n=") && row_with(" gaussian:"));
  cr_expect_eq(rows_used(), 5 + PROGRESS_ROWS);
  result_set_free(&set);
  terminal_show(&screen, screen.count);
  cr_expect_eq(rows_used(), 1);
  cr_expect(strncmp(screen.cells[0], "x.h5: 28 runs, 4 with a violated bound, 4 failed", 48) == 0, "%s",
            screen.cells[0]);
}

Test(live, lines_are_cut_at_the_width) {
  command_write_text("x.yaml", SWEEP);
  cr_expect_eq(terminal_run(&screen, 40, 13, sweep, NULL, NULL, NULL), 1);
  terminal_show(&screen, last_block());
  cr_expect_eq(screen.broken, 0);
  cr_expect(row_with("28/28 runs") && row_with("so far") && row_with("violated"));
}

Test(live, a_low_terminal_has_one_line) {
  command_write_text("x.yaml", SWEEP);
  cr_expect_eq(terminal_run(&screen, 100, 11, sweep, NULL, NULL, NULL), 1);
  terminal_show(&screen, last_block());
  cr_expect_eq(rows_used(), 1);
  cr_expect(row_with("28/28 runs"));
}

Test(live, no_colour_where_it_is_not_wanted) {
  setenv("NO_COLOR", "1", 1);
  command_write_text("x.yaml", SWEEP);
  terminal_run(&screen, 100, 40, sweep, NULL, NULL, NULL);
  terminal_show(&screen, screen.count);
  cr_expect(strstr(screen.bytes, "so far"));
  cr_expect_eq(screen.colours, 0);
}

Test(live, no_sequences_elsewhere) {
  static command_result result;
  command_write_text("x.yaml", SWEEP);
  command_run("run x.yaml -o x.h5 --plugin " TEST_BINARY_DIR "/tests/fault.so", &result);
  cr_expect_eq(result.exit_code, 1);
  cr_expect_str_eq(result.err, "x.h5: 28 runs, 4 with a violated bound, 4 failed\n");
  setenv("TERM", "dumb", 1);
  remove("x.jsonl");
  cr_expect_eq(terminal_run(&screen, 100, 40, sweep, NULL, NULL, NULL), 1);
  cr_expect_str_eq(screen.bytes, "x.h5: 28 runs, 4 with a violated bound, 4 failed\r\n");
}

Test(live, an_interrupt_leaves_its_message_alone) {
  command_write_text("x.yaml", HANG);
  /* Typed, so that the terminal echoes it and sends the signal. */
  cr_expect_eq(terminal_run(&screen, 100, 40, sweep, NULL, "fault:mode=hang", "\003"), 130, "%s",
               screen.bytes);
  terminal_show(&screen, screen.count);
  cr_expect_eq(screen.unexpected, 0);
  cr_expect_eq(rows_used(), 1);
  cr_expect_str_eq(screen.cells[0], "attnlab run: interrupted; the same command goes on where it stopped");
}

/* A shell that has a stopped job go on, and ends it. */
static int shell(void *context) {
  int status;
  signal(SIGTSTP, SIG_IGN);
  const pid_t job = fork();
  if (job == 0) {
    signal(SIGTSTP, SIG_DFL);
    _exit(sweep(context));
  }
  if (waitpid(job, &status, WUNTRACED) != job || !WIFSTOPPED(status)) return 1;
  if (write(STDERR_FILENO, "stopped\n", 8) < 0) return 1;
  kill(job, SIGCONT);
  kill(job, SIGTERM);
  return waitpid(job, &status, 0) == job && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

Test(live, a_stopped_sweep_leaves_the_terminal_to_the_shell) {
  command_write_text("x.yaml", HANG);
  cr_expect_eq(terminal_run(&screen, 100, 40, shell, NULL, "fault:mode=hang", "\032"), 75, "%s",
               screen.bytes);
  const char *end = strstr(screen.bytes, "stopped");
  cr_assert(end, "%s", screen.bytes);
  terminal_show(&screen, (size_t)(end - screen.bytes));
  cr_expect_eq(rows_used(), 0);
  terminal_show(&screen, screen.count);
  cr_expect_eq(screen.unexpected, 0);
  cr_expect_eq(rows_used(), 2);
  cr_expect_str_eq(screen.cells[0], "stopped");
}

Test(live, what_a_worker_prints_stands_above_the_block) {
  setenv("OMP_DISPLAY_ENV", "TRUE", 1);
  setenv("NO_COLOR", "1", 1);
  command_write_text("x.yaml", SWEEP);
  terminal_run(&screen, 120, 60, sweep, NULL, NULL, NULL);
  terminal_show(&screen, last_block());
  cr_expect_eq(screen.unexpected, 0);
  int ends = 0, above = 1, datasets = 0;
  for (int i = 0; i < screen.rows; i++) {
    above = above && !strstr(screen.cells[i], "28/28 runs");
    datasets += strstr(screen.cells[i], " gaussian:") != NULL; /* what is left of a torn block has others */
    if (!strstr(screen.cells[i], "ENVIRONMENT END")) continue;
    ends++;
    cr_expect(above);
    cr_expect_str_eq(screen.cells[i], "OPENMP DISPLAY ENVIRONMENT END");
  }
  cr_expect(ends >= 1);
  cr_expect_eq(datasets, 1);
}

/* Names and messages that would do harm if they reached the terminal. */
static int hostile(void *context) {
  char key[] = "k",
       spec[] = "evil\033[2J\007\n\xc2\x9b"
                "31m",
       variant[] = "evil";
  char dataset[] = "file\r\033]0;title\007";
  static const char message[] = "plug-in\033[5A says\tthis\nand has no end\033";
  const grid_run run = {.key = key, .variant = variant, .spec = spec};
  const grid_block block = {.dataset = dataset, .n = 16, .threads = 1};
  progress p;
  result_row row;
  (void)context;
  result_row_init(&row);
  progress_start(&p, 1, 1, 1, true, false);
  progress_block(&p, &block, 0);
  progress_advance(&p, 1, &run, &row);
  if (write(p.live.pipe[1], message, sizeof message - 1) < 0) return 1;
  progress_tick(&p, &run);
  progress_stop(&p);
  return 0;
}

Test(live, names_and_messages_cannot_move_the_cursor) {
  cr_expect_eq(terminal_run(&screen, 100, 40, hostile, NULL, NULL, NULL), 0);
  const char *end = strstr(screen.bytes, REMOVE_BELOW "and has no end?");
  cr_assert(end, "%s", screen.bytes);
  terminal_show(&screen, (size_t)(end - screen.bytes));
  cr_expect_str_eq(screen.cells[0], "plug-in?[5A says?this");
  cr_expect(row_with("file??]0;title?"));
  const char *row = row_with("skipped");
  cr_expect(row && strncmp(row, "evil?[2J????31m ", 16) == 0, "%s", row);
  terminal_show(&screen, screen.count);
  cr_expect_eq(screen.unexpected, 0);
  cr_expect_eq(rows_used(), 2);
  cr_expect_str_eq(screen.cells[1], "and has no end?");
}
