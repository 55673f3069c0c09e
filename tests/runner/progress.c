/* progress.c - what a user sees of a running sweep: a status line on a terminal, plain lines elsewhere. The
 * tests read the bytes that were written to a pseudo terminal. */
#define _DEFAULT_SOURCE /* forkpty */
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "experiments/runner/progress.h"
#include "tests/support/command.h"

#define SWEEP                                                                                           \
  "schema: 1\ngrid: {n: [32, 48], heads: 2, d: 16, causal: [no, yes]}\nvariants: [full, tiled, fault: " \
  "{mode: [wrong, crash]}]\ndatasets: gaussian\ntiming: {min_time: 0.004, max_time: 2, warmup: 0.001, " \
  "samples: 8}\n"
#define HANG                                                                                    \
  "schema: 1\ngrid: {n: 32, heads: 1, d: 8}\nvariants: [full, fault: {mode: hang}]\ndatasets: " \
  "gaussian\nbudget: {time: 100}\n"
#define CLEAR "\r\033[J"
#define REASONS "attnlab run: 4 runs crashed: the worker died of signal 6 (Aborted)"
#define SUMMARY "x.h5: 28 runs, 4 with a violated bound, 4 failed"

static char bytes[1 << 20]; /* all that was written to the terminal, ends with a NUL */

static void enter(void) {
  command_enter();
  setenv("TERM", "xterm", 1);
}

TestSuite(progress, .init = enter, .fini = command_leave, .timeout = 120);

/* Runs work() on a terminal of that width; types `typed` when `awaited` has been written. Returns the exit
 * code. */
static int on_terminal(int columns, int (*work)(void), const char *awaited, const char *typed) {
  const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
  int master;
  const pid_t child = forkpty(&master, NULL, NULL, &size);
  if (child == 0) _exit(work());
  cr_assert(child > 0, "no pseudo terminal");
  size_t used = 0;
  ssize_t count;
  /* Reading fails when the last process on the terminal has ended. */
  while ((count = read(master, bytes + used, sizeof bytes - 1 - used)) > 0) {
    used += (size_t)count;
    bytes[used] = '\0';
    if (!typed || !strstr(bytes, awaited)) continue;
    cr_assert(write(master, typed, strlen(typed)) > 0);
    typed = NULL;
  }
  const int code = command_exit_of(child);
  close(master);
  return code;
}

static int sweep(void) {
  execl(TEST_BINARY_DIR "/experiments/attnlab", "attnlab", "run", "x.yaml", "-o", "x.h5", "--plugin",
        TEST_BINARY_DIR "/tests/fault.so", (char *)NULL);
  return 127;
}

/* Control characters other than those of a status line and of the ends of lines. */
static int strange(const char *text) {
  int count = 0;
  for (; *text; text++) {
    const int known = strncmp(text, CLEAR, 4) == 0 ? 3 : *text == '\r' || *text == '\n' ? 0 : -1;
    count += known < 0 && (*text < ' ' || *text > '~');
    text += known > 0 ? known : 0;
  }
  return count;
}

/* The text after the last sequence that clears the line. */
static const char *rest(void) {
  const char *last = NULL;
  for (const char *at = bytes; (at = strstr(at, CLEAR)); at += strlen(CLEAR)) last = at + strlen(CLEAR);
  cr_assert(last, "no status line: %s", bytes);
  return last;
}

Test(progress, a_sweep_on_a_terminal_leaves_its_summary_alone) {
  command_write_text("x.yaml", SWEEP);
  setenv("OMP_DISPLAY_ENV", "TRUE", 1);
  cr_expect_eq(on_terminal(200, sweep, NULL, NULL), 1, "%s", bytes);
  cr_expect_str_eq(rest(), REASONS "\r\n" SUMMARY "\r\n");
  cr_expect_eq(strange(bytes), 0, "%s", bytes);
  cr_expect(strstr(bytes, "/28 runs, after ") && strstr(bytes, " left; ") && strstr(bytes, ", gaussian:"));
  /* What the workers print appears, with the status line drawn anew below it. */
  const char *message = strstr(bytes, "OPENMP DISPLAY ENVIRONMENT END\r\n");
  cr_assert(message, "%s", bytes);
  cr_expect(strstr(message, "/28 runs, after "));
}

Test(progress, no_sequences_elsewhere) {
  command_write_text("x.yaml", SWEEP);
  command_run("run x.yaml -o x.h5 --plugin " TEST_BINARY_DIR "/tests/fault.so", &result);
  cr_expect_eq(result.exit_code, 1);
  cr_expect_str_eq(result.err, REASONS "\n" SUMMARY "\n");
  setenv("TERM", "dumb", 1);
  remove("x.jsonl");
  remove("x.h5");
  cr_expect_eq(on_terminal(100, sweep, NULL, NULL), 1);
  cr_expect_str_eq(bytes, REASONS "\r\n" SUMMARY "\r\n");
}

Test(progress, an_interrupt_leaves_its_message_alone) {
  command_write_text("x.yaml", HANG);
  /* Typed, so that the terminal echoes it and sends the signal. */
  cr_expect_eq(on_terminal(200, sweep, "fault:mode=hang", "\003"), 130, "%s", bytes);
  cr_expect_str_eq(rest(), "attnlab run: interrupted; the same command resumes\r\n");
}

/* A shell that lets a stopped job go on, and ends it. */
static int shell(void) {
  int status;
  signal(SIGTTOU, SIG_IGN);
  const pid_t job = fork();
  if (job == 0) {
    setpgid(0, 0);
    tcsetpgrp(STDERR_FILENO, getpid());
    signal(SIGTTOU, SIG_DFL);
    _exit(sweep());
  }
  if (waitpid(job, &status, WUNTRACED) != job || !WIFSTOPPED(status)) return 1;
  if (write(STDERR_FILENO, "stopped\n", 8) < 0) return 1;
  kill(-job, SIGCONT);
  kill(job, SIGTERM);
  return waitpid(job, &status, 0) == job && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

Test(progress, a_stopped_sweep_leaves_the_cursor_at_the_first_column) {
  command_write_text("x.yaml", HANG);
  cr_expect_eq(on_terminal(200, shell, "fault:mode=hang", "\032"), 75, "%s", bytes);
  /* The terminal itself echoes the key where the cursor is. */
  cr_expect(strstr(bytes, "\r^Zstopped\r\n"), "%s", bytes);
}

static double begun; /* seconds ago */

/* A sweep of three runs, the texts of which would do harm if they reached the terminal. */
static int hostile(void) {
  static const char message[] = "plug-in\033[5A says\tthis\nand has no end\033";
  char key[] = "k",
       spec[] = "evil\033[2J\007\n\xc2\x9b"
                "31m",
       variant[] = "evil";
  char dataset[] = "file\r\033]0;title\007";
  attn_spec parsed = {.text = spec};
  const grid_run run = {.key = key, .variant = variant, .spec = &parsed};
  const grid_block block = {.dataset = dataset, .n = 16, .causal = 1, .threads = 1};
  static const check_verdict verdicts[] = {VERDICT_VIOLATED, VERDICT_PASS, VERDICT_PASS};
  progress p;
  result_row row;
  result_row_init(&row);
  progress_start(&p, 5, 4, true, false);
  p.start -= begun;
  for (int i = 0; i < 3; i++) {
    row.status = RUN_OK;
    row.verdict = verdicts[i];
    progress_advance(&p, 1, &row);
  }
  row.status = RUN_CRASHED;
  progress_advance(&p, 0, &row);
  p.shown -= 31; /* seconds */
  progress_tick(&p, &block, &run);
  if (p.line.pipe[1] && write(p.line.pipe[1], message, sizeof message - 1) < 0) return 1;
  progress_tick(&p, &block, NULL);
  progress_stop(&p);
  result_row_free(&row);
  return 0;
}

#define STATE \
  "75 %, 4/5 runs, after 0 s, 0 s left; 1 violated, 1 failed, 2 pass, 0 consistent, 0 uncertifiable; "
#define INPUT "file??]0;title? n=16 causal"

Test(progress, the_line_counts_runs_and_no_text_moves_the_cursor) {
  cr_expect_eq(on_terminal(400, hostile, NULL, NULL), 0);
  cr_expect_str_eq(bytes,
                   CLEAR STATE "evil?[2J????31m, " INPUT "\r" CLEAR
                               "plug-in?[5A says?this\r\nand has no end?\r\n" CLEAR STATE INPUT "\r" CLEAR);
}

Test(progress, the_line_is_cut_at_the_width) {
  cr_expect_eq(on_terminal(40, hostile, NULL, NULL), 0);
  cr_expect(strncmp(bytes, CLEAR "75 %, 4/5 runs, after 0 s, 0 s left; 1 \r" CLEAR, 46) == 0, "%s", bytes);
}

Test(progress, elsewhere_it_is_a_plain_line_every_thirty_seconds) {
  setenv("TERM", "", 1);
  cr_expect_eq(on_terminal(40, hostile, NULL, NULL), 0);
  cr_expect_str_eq(bytes, STATE "evil?[2J????31m, " INPUT "\r\n");
}

/* Three quarters of the work are done. */
Test(progress, durations_are_in_hours_minutes_and_seconds) {
  static const double ago[] = {11.5, 60.5, 3599.5, 3600.5, 100000};
  static const char *const says[] = {
      "after 11 s, 3 s left;", "after 1 min 00 s, 20 s left;", "after 59 min 59 s, 19 min 59 s left;",
      "after 1 h 00 min, 20 min 00 s left;", "after 27 h 46 min, 9 h 15 min left;"};
  setenv("TERM", "", 1);
  for (int i = 0; i < 5; i++) {
    begun = ago[i];
    on_terminal(400, hostile, NULL, NULL);
    cr_expect(strstr(bytes, says[i]), "%s", bytes);
  }
}

static char *quiet; /* NULL: it is not */

static int advise(void) {
  return execl(TEST_BINARY_DIR "/experiments/attnlab", "attnlab", "advise", "longformer", "topk", "--q",
               "q.npy", "--k", "q.npy", "--v", "q.npy", quiet, (char *)NULL);
}

Test(progress, advise_says_what_it_tries_and_how_long_still) {
  float x[128 * 8];
  for (int i = 0; i < 128 * 8; i++) x[i] = (float)(i * 37 % 101) / 100;
  fixture_npy("q.npy", "<f4", "128, 8", x, sizeof x);
  cr_assert_eq(on_terminal(120, advise, NULL, NULL), 0);
  cr_expect(strstr(bytes, CLEAR "advise, 0 s: trying longformer:window=") &&
                strstr(bytes, " s left: trying topk:k=") && strstr(bytes, " s left: timing what was found"),
            "%s", bytes);
  quiet = (char[]){"--quiet"};
  cr_assert_eq(on_terminal(120, advise, NULL, NULL), 0);
  cr_expect(!strstr(bytes, CLEAR) && !strstr(bytes, "trying"), "%s", bytes);
}
