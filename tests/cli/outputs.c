/* outputs.c - what commands write: nothing but a file of the same kind is replaced, inputs never are, links
 * and modes stay, devices are written to in place; and inputs that would block are refused. */
#define _XOPEN_SOURCE 700
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "tests/support/command.h"
#include "tests/support/results_fixture.h"

#define CONFIG                                                                              \
  "schema: 1\ngrid: {n: 16, heads: 1, d: 4}\nvariants: [full]\nnulls: no\ndatasets: [%s]\n" \
  "timing: {min_time: 0, max_time: 0, warmup: 0}\n"

static void write_config(const char *name, const char *dataset) {
  char text[400];
  snprintf(text, sizeof text, CONFIG, dataset);
  command_write_text(name, text);
}

static void enter(void) {
  static const float zeros[64] = {0};
  command_enter();
  cr_assert_eq(fixture_journal("a.jsonl", 0, 2, 4, 1e9), ATTN_OK);
  cr_assert_eq(fixture_journal("b.jsonl", 1, 2, 4, 2e9), ATTN_OK);
  command_run_good("merge -o all.h5 a.jsonl b.jsonl");
  command_write_npy("q.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (16, 4), }", zeros, 256);
  write_config("sweep.yaml", "gaussian");
  write_config("captured.yaml", "'captured:file=qkv.h5'");
  command_write_text("notes.txt", "dear diary");
  command_write_text("notes.jsonl", "dear diary\n");
  command_run_good("capture " TEST_SOURCE_DIR "/data/bytelm --text " TEST_SOURCE_DIR
                   "/README.md --layer 0 --n 16 -o qkv.h5");
}

TestSuite(cli_outputs, .init = enter, .fini = command_leave, .timeout = 120);

/* The command is refused in a line that names the file, which keeps every byte. */
static void expect_kept(const char *arguments, const char *file) {
  char *before, *after;
  const size_t size = fixture_read(file, &before);
  const int entries = fixture_entries();
  command_run(arguments, &result);
  cr_expect_eq(result.exit_code, 2, "attnlab %s: exit %d\n%s", arguments, result.exit_code, result.err);
  cr_expect_eq(command_diagnostics(&result), 1, "%s", result.err);
  cr_expect(strstr(result.err, file), "attnlab %s: %s", arguments, result.err);
  cr_expect_eq(fixture_entries(), entries, "attnlab %s left a file", arguments);
  const bool same = fixture_read(file, &after) == size && memcmp(before, after, size) == 0;
  cr_expect(same, "attnlab %s: %s changed", arguments, file);
  if (!same) fixture_write(file, before, size);
  free(before);
  free(after);
}

Test(cli_outputs, nothing_of_another_kind_is_replaced) {
  expect_kept("merge -o a.jsonl b.jsonl", "a.jsonl");
  cr_expect(strstr(result.err, "the journal of a sweep, not an attnlab results file"), "%s", result.err);
  expect_kept("merge -o qkv.h5 a.jsonl", "qkv.h5");
  expect_kept("report all.h5 -o b.jsonl", "b.jsonl");
  expect_kept("report all.h5 -o notes.txt", "notes.txt");
  expect_kept("run captured.yaml -o qkv.h5", "qkv.h5");
  expect_kept("run sweep.yaml -o notes.h5", "notes.jsonl");
  expect_kept("claims flash-exact -o all.h5", "all.h5");
  expect_kept("theory order -o all.h5", "all.h5");
  expect_kept("theory order --html notes.txt", "notes.txt");
  expect_kept("pattern longformer --n 8 -o sweep.yaml", "sweep.yaml");
  expect_kept("bench full --json sweep.yaml --quick --n 16", "sweep.yaml");
  expect_kept("capture " TEST_SOURCE_DIR "/data/bytelm --text notes.txt --layer 0 -o all.h5", "all.h5");
}

Test(cli_outputs, inputs_are_never_outputs) {
  cr_assert_eq(symlink("q.npy", "soft.npy"), 0);
  cr_assert_eq(link("q.npy", "hard.npy"), 0);
  expect_kept("apply full --q q.npy --k q.npy --v q.npy -o q.npy", "q.npy");
  cr_expect(strstr(result.err, "the output would replace the input"), "%s", result.err);
  expect_kept("apply full --q q.npy --k q.npy --v q.npy -o soft.npy", "soft.npy");
  expect_kept("matrix full --q q.npy --k q.npy -o hard.npy", "hard.npy");
  expect_kept("apply linformer:projection=file,projection_file=soft.npy,k=4 --in qkv.h5 -o q.npy", "q.npy");
  expect_kept("apply full --in qkv.h5 -o qkv.h5", "qkv.h5");
  expect_kept("report all.h5 -o all.h5", "all.h5");
  expect_kept("merge -o a.jsonl a.jsonl", "a.jsonl");
  expect_kept("capture " TEST_SOURCE_DIR "/data/bytelm --text notes.txt --layer 0 -o notes.txt", "notes.txt");
}

Test(cli_outputs, the_same_kind_and_empty_files_are_replaced) {
  command_run_good("report all.h5 -o page.html");
  command_run_good("report all.h5 -o page.html");
  command_run_good("merge -o all.h5 a.jsonl b.jsonl");
  command_write_text("empty", "");
  command_run_good("report all.h5 -o empty");
  command_run_good("capture " TEST_SOURCE_DIR "/data/bytelm --text notes.txt --layer 1 -o qkv.h5");
  command_run_good("apply full --q q.npy --k q.npy --v q.npy -o out.npy");
  command_run_good("apply full --q q.npy --k q.npy --v q.npy -o out.npy");
  command_run_good("run sweep.yaml -o new.h5");
  command_run_good("run sweep.yaml -o new.h5");
}

static mode_t mode_of(const char *path) {
  struct stat about;
  cr_assert_eq(lstat(path, &about), 0, "%s", path);
  return about.st_mode;
}

Test(cli_outputs, links_and_modes_stay) {
  mkdir("far", 0777);
  command_run_good("report all.h5 -o far/page.html");
  cr_assert_eq(chmod("far/page.html", 0600), 0);
  cr_assert_eq(chown("far/page.html", 12, 34), 0);
  cr_assert_eq(symlink("far/page.html", "page.html"), 0);
  command_run_good("report all.h5 -o page.html");
  cr_expect(S_ISLNK(mode_of("page.html")));
  cr_expect_eq(mode_of("far/page.html") & 07777, 0600);
  struct stat about;
  stat("page.html", &about);
  cr_expect(about.st_uid == 12 && about.st_gid == 34);
  /* A link to what is not there yet. */
  cr_assert_eq(symlink("far/new.html", "new.html"), 0);
  command_run_good("report all.h5 -o new.html");
  cr_expect(S_ISLNK(mode_of("new.html")));
  cr_expect(S_ISREG(mode_of("far/new.html")));
  cr_assert_eq(symlink("loop", "loop"), 0);
  command_run("report all.h5 -o loop", &result);
  cr_expect_neq(result.exit_code, 0);
  cr_expect(S_ISLNK(mode_of("loop")));
}

Test(cli_outputs, devices_and_fifos_are_written_in_place) {
  if (mknod("null", S_IFCHR | 0666, makedev(1, 3)) == 0) { /* only root may */
    command_run("report all.h5 -o null", &result);
    cr_expect(S_ISCHR(mode_of("null")), "the device was replaced");
  }
  cr_assert_eq(mkfifo("fifo", 0666), 0);
  command_run("report all.h5 -o fifo", &result); /* nobody reads */
  cr_expect_eq(result.exit_code, 74, "%s", result.err);
  cr_assert(S_ISFIFO(mode_of("fifo")));
  const pid_t reader = fork();
  if (reader == 0) {
    alarm(20);
    char start[16] = "";
    size_t size = 0;
    const int fd = open("fifo", O_RDONLY);
    for (ssize_t got; fd >= 0 && size < 15 && (got = read(fd, start + size, 15 - size)) > 0;)
      size += (size_t)got;
    char rest[4096];
    while (fd >= 0 && read(fd, rest, sizeof rest) > 0) continue;
    _exit(strcmp(start, "<!DOCTYPE html>") == 0 ? 0 : 1);
  }
  for (int tries = 0; tries < 100; tries++) {
    command_run("report all.h5 -o fifo", &result);
    if (result.exit_code == 0) break;
  }
  int end;
  cr_assert_eq(waitpid(reader, &end, 0), reader);
  cr_expect(WIFEXITED(end) && WEXITSTATUS(end) == 0);
}

Test(cli_outputs, inputs_that_would_block_are_refused) {
  static const char *const commands[] = {
      "run fifo -o x.h5",
      "run sweep.yaml -o fifo.h5",
      "run fifo.yaml -o x.h5",
      "apply full --q fifo --k q.npy --v q.npy -o x.npy",
      "apply full --in fifo -o x.npy",
      "apply linformer:projection=file,projection_file=fifo,k=4 --in qkv.h5 -o x.npy",
      "apply full --in qkv.h5 -o x.npy --plugin ./fifo",
      "check fifo",
      "export --csv fifo",
      "report fifo -o x.html",
      "merge -o x.h5 fifo",
      "capture " TEST_SOURCE_DIR "/data/bytelm --text fifo --layer 0 -o y.h5",
      "capture model --text notes.txt --layer 0 -o y.h5",
      "check /dev/zero",
      "run /dev/zero -o x.h5",
  };
  cr_assert_eq(mkfifo("fifo", 0666), 0);
  cr_assert_eq(mkfifo("fifo.jsonl", 0666), 0);
  mkdir("model", 0777);
  cr_assert_eq(mkfifo("model/config.json", 0666), 0);
  write_config("fifo.yaml", "'npy:q=q.npy,k=q.npy,v=fifo'");
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    command_run(commands[i], &result);
    cr_expect(result.exit_code == 2 || result.exit_code == 74 || result.exit_code == 3,
              "attnlab %s: exit %d\n%s", commands[i], result.exit_code, result.err);
    cr_expect(strstr(result.err, "not a regular file") || result.exit_code == 3, "attnlab %s: %s",
              commands[i], result.err);
  }
}
