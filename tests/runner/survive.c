/* survive.c - sweeps that are killed, that run out of disk, or whose files were damaged meanwhile:
 * no recorded row is lost, and one more run completes the sweep. */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/sweep_fixture.h"
#include "experiments/results/write_journal.h"

#define TINY                                                                                             \
  "schema: 1\ngrid: {n: [16:112:16], heads: 1, d: 8, causal: [no, yes]}\nvariants: [full, tiled, "       \
  "performer: {features: 8}]\ndatasets: gaussian\nthreads: 1\ntiming: {min_time: 0.001, max_time: 0.1, " \
  "warmup: 0.0005, sample_time: 1e-4, samples: 4}\n"
enum { TINY_RUNS = 7 * 2 * (3 + 3) };

static void enter(void) {
  command_enter();
  command_write_text("x.yaml", TINY);
}

TestSuite(survive, .init = enter, .fini = command_leave, .timeout = 300);

static size_t rows_of(const char *path) {
  result_set set = read_results(path);
  const size_t count = set.count;
  for (size_t i = 1; i < count; i++) cr_assert(strcmp(set.rows[i - 1].key, set.rows[i].key) < 0);
  return count;
}

/* A sweep by some program in a child, whose files can grow to `limit` bytes (0: to any size). */
static pid_t start_program(const char *program, rlim_t limit) {
  const pid_t child = fork();
  cr_assert(child >= 0);
  if (child) return child;
  const int null = open("/dev/null", O_RDWR);
  dup2(null, STDERR_FILENO);
  const struct rlimit room = {limit, limit};
  if (limit && setrlimit(RLIMIT_FSIZE, &room) != 0) _exit(126);
  execl(program, "attnlab", "run", "x.yaml", "-o", "x.h5", "-q", (char *)NULL);
  _exit(127);
}

static pid_t start(rlim_t limit) { return start_program(TEST_BINARY_DIR "/experiments/attnlab", limit); }

/* Lines of the journal that are rows; each must still be there later. */
static size_t journal_rows(void) {
  if (size_of("x.jsonl") <= 0) return 0;
  return load_results("x.jsonl").count;
}

/* Random moments, the same in every run of this test: from before the first row to beyond a block's end. */
Test(survive, fifty_kills_lose_nothing_that_was_written_down) {
  uint32_t random = 12345;
  size_t known = 0, kills = 0;
  for (int i = 0; i < 50; i++) {
    const pid_t child = start(0);
    random = random * 1664525 + 1013904223;
    const long milliseconds = 5 + (long)((random >> 16) % 250);
    nanosleep(&(struct timespec){0, milliseconds * 1000000}, NULL);
    kill(child, SIGKILL);
    kills += command_exit_of(child) == 128 + SIGKILL;
    const size_t rows = journal_rows();
    cr_assert(rows >= known, "%zu rows after %zu", rows, known);
    known = rows;
    if (size_of("x.h5") > 0) cr_assert(rows_of("x.h5") <= known);
    /* A sweep that came to its end starts again, or the other kills would find nothing to do. */
    if (known == TINY_RUNS) {
      unlink("x.jsonl");
      unlink("x.h5");
      known = 0;
    }
  }
  cr_expect(kills >= 25, "only %zu sweeps were killed", kills);
  cr_assert_eq(run("run x.yaml -o x.h5 -q"), 0, "%s", result.err);
  cr_expect_eq(rows_of("x.h5"), TINY_RUNS);
  cr_expect_eq(journal_rows(), TINY_RUNS);
  cr_expect_eq(fixture_entries(), 3); /* x.yaml x.h5 x.jsonl: no temporary file */
  cr_assert_eq(run("merge -o again.h5 x.jsonl"), 0);
  expect_same_bytes("x.h5", "again.h5");
}

Test(survive, temporary_files_of_the_dead_are_removed) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  command_exit_of(gone);
  const char *stale = text_of("x.h5.tmp.%ld.0", (long)gone),
             *living = text_of("x.h5.tmp.%ld.0", (long)getpid()),
             *other = text_of("x.h5.tmp.%ld.0.bak", (long)gone);
  command_write_text(stale, "torn");
  command_write_text(living, "being written");
  command_write_text(other, "kept");
  cr_assert_eq(run("run x.yaml -o x.h5 -q --only n=16*variant=full"), 0, "%s", result.err);
  cr_expect(size_of(stale) < 0 && size_of(living) > 0 && size_of(other) > 0);
}

/* A limit on the size of files is a full disk to the program. */
Test(survive, a_full_disk_is_an_error_that_a_resumed_sweep_mends) {
  cr_assert_eq(run("run x.yaml -o x.h5 -q --only n=16*causal=no"), 0, "%s", result.err);
  const size_t before = rows_of("x.h5");
  const long appended = size_of("x.jsonl"), snapshot = size_of("x.h5");
  /* No room for a row; for some rows and no snapshot; for many rows. */
  const long rooms[] = {appended + 10, appended + 20000, appended + 60000};
  for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
    cr_expect_eq(command_exit_of(start((rlim_t)rooms[i])), 74);
    cr_expect(size_of("x.jsonl") <= rooms[i] && size_of("x.jsonl") >= appended);
    cr_expect(rows_of("x.h5") >= before && size_of("x.h5") >= snapshot);
    cr_expect(journal_rows() >= before);
    cr_expect_eq(fixture_entries(), 3);
  }
  cr_assert_eq(run("run x.yaml -o x.h5 -q"), 0, "%s", result.err);
  cr_expect_eq(rows_of("x.h5"), TINY_RUNS);
}

Test(survive, a_torn_last_line_is_run_again) {
  cr_assert_eq(run("run x.yaml -o x.h5 -q --only n=16*variant=full"), 0, "%s", result.err);
  const long whole = size_of("x.jsonl");
  cr_assert(rows_of("x.h5") == 2 && truncate("x.jsonl", whole - 7) == 0);
  cr_assert_eq(run("run x.yaml -o x.h5 --only n=16*variant=full"), 0, "%s", result.err);
  expect_says(result.err, "1 torn line left out of x.jsonl\n");
  cr_expect_eq(rows_of("x.h5"), 2);
  cr_assert_eq(run("merge -o again.h5 x.jsonl"), 0);
  expect_same_bytes("x.h5", "again.h5");
}

/* Workers of another build would measure something else under the same header, or fail every run. The library
 * of the program stays where it is. */
Test(survive, a_program_that_is_replaced_stops_the_sweep) {
  command_replace(TEST_BINARY_DIR "/experiments/attnlab", "program");
  const pid_t child = start_program("./program", 0);
  while (journal_rows() == 0) nanosleep(&(struct timespec){0, 5000000}, NULL);
  command_replace(TEST_BINARY_DIR "/experiments/attnlab", "program");
  cr_assert_eq(command_exit_of(child), 74);
  const size_t known = journal_rows();
  cr_assert(known > 0 && known < TINY_RUNS, "%zu rows", known);
  cr_assert_eq(rows_of("x.h5"), known);
  cr_assert_eq(command_exit_of(start_program("./program", 0)), 0);
  result_set set = read_results("x.h5");
  cr_assert_eq(set.count, TINY_RUNS);
  for (size_t i = 0; i < set.count; i++) cr_assert_eq(set.rows[i].status, RUN_OK, "%s", set.rows[i].key);
}
