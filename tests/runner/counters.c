/* counters.c - counters of the processor: those of this machine, if any, and energy from files. */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "experiments/instruments/counters.h"
#include "experiments/instruments/machine.h"
#include "experiments/instruments/memory.h"
#include "experiments/instruments/processes.h"

TestSuite(counters, .init = command_enter, .fini = command_leave);

static void write_packages(const char *first, const char *second) {
  command_write_text("intel-rapl:0/energy_uj", first);
  command_write_text("intel-rapl:1/energy_uj", second);
}

Test(counters, energy_is_summed_over_packages_and_beyond_the_end_of_their_range) {
  counters c;
  counter_sample a, b;
  counter_sum sum = {0};
  for (int p = 0; p <= COUNTER_PACKAGES; p++) { /* one more than are counted */
    mkdir(text_of("intel-rapl:%d", p), 0777);
    command_write_text(text_of("intel-rapl:%d/max_energy_range_uj", p), text_of("%d0000000\n", 1 + p));
    command_write_text(text_of("intel-rapl:%d/energy_uj", p), "1\n");
  }
  mkdir("intel-rapl:0:0", 0777); /* part of a package: not counted again */
  write_packages("1000000\n", "19000000\n");
  counters_open(&c, ".");
  cr_assert_eq(c.packages, COUNTER_PACKAGES);
  counters_read(&c, &a);
  write_packages("3500000\n", "500000\n");
  counters_read(&c, &b);
  counters_add(&c, &a, &b, &sum);
  cr_expect_float_eq(sum.energy, 2.5 + 1.5, 1e-9);
  counters_add(&c, &a, &b, &sum);
  cr_expect_float_eq(sum.energy, 8, 1e-9);
  counters_close(&c);
  counters_close(&c);
}

Test(counters, what_is_missing_is_nan) {
  counters c;
  counter_sample a, b;
  counter_sum sum = {0};
  counters_open(&c, "none");
  cr_expect_eq(c.packages, 0);
  counters_read(&c, &a);
  volatile double x = 1;
  for (int i = 0; i < 1000000; i++) x = x * 0.5 + 1;
  counters_read(&c, &b);
  counters_add(&c, &a, &b, &sum);
  cr_expect(isnan(sum.energy));
  /* A million steps are a million instructions and cycles at least, where they are counted. */
  cr_expect(isnan(sum.event[0]) || sum.event[0] > 1e5, "%g", sum.event[0]);
  cr_expect(isnan(sum.event[1]) || sum.event[1] > 1e6, "%g", sum.event[1]);
  cr_expect(isnan(sum.event[2]) || sum.event[2] >= 0);
  counters_close(&c);
}

/* Two events that share a counter: each ran for half of the time. */
Test(counters, counts_are_extended_to_the_time_that_an_event_waited) {
  const counters c = {.open = true};
  const counter_sample a = {.event = {{100, 10, 5}}}, b = {.event = {{600, 30, 15}}};
  counter_sum sum = {0};
  counters_add(&c, &a, &b, &sum);
  cr_expect_float_eq(sum.event[0], 1000, 1e-9);
  cr_expect(isnan(sum.event[1]));
}

static int lowest_free(void) {
  const int at = dup(STDIN_FILENO);
  close(at);
  return at;
}

/* What an instrument opens it closes; processor and memory are what the kernel says. */
Test(counters, instruments_close_what_they_open) {
  const int before = lowest_free();
  char line[8192], named[8192] = "", told[8192];
  double kibibytes = 0;
  counters c;
  counters_open(&c, text_of("./%0600d", 0)); /* longer than any path that is tried */
  counters_close(&c);
  counters_close(&c);
  json_decref(machine_facts());
  machine_processor(told, sizeof told);
  const double memory = machine_memory(), now = memory_reset_peak(), most = memory_peak();
  cr_expect(!(now > most), "%g, %g", now, most);
  cr_expect_gt(processes_memory(&(process_tree){getpid(), "MARK=none"}), 1 << 20);
  cr_expect(before >= 0 && lowest_free() == before);
  FILE *file = fopen("/proc/cpuinfo", "r");
  while (file && fgets(line, sizeof line, file) && sscanf(line, "model name : %8000[^\n]", named) != 1)
    continue;
  cr_expect(!*named || strcmp(told, named) == 0, "%s, not %s", told, named);
  if (file) fclose(file);
  file = fopen("/proc/meminfo", "r");
  cr_expect(!file || fscanf(file, "MemTotal: %lf kB", &kibibytes) != 1 || memory == 1024 * kibibytes);
  if (file) fclose(file);
}

/* What leaves the group of a process ends with it, whenever that is seen. */
Test(counters, what_leaves_a_group_is_killed, .timeout = 120) {
  extern char **environ;
  cr_assert(environ[0] && strchr(environ[0], '='));
  processes_adopt(1);
  for (int i = 0; i < 100; i++) {
    int ends[2], how = 0;
    pid_t below = 0;
    cr_assert_eq(pipe(ends), 0);
    const pid_t root = fork();
    cr_assert_geq(root, 0);
    if (root == 0) {
      setpgid(0, 0);
      const pid_t child = fork();
      if (child == 0) below = setsid();
      if (child < 0 || (child == 0 && write(ends[1], &below, sizeof below) < 0)) _exit(1);
      alarm(60);
      pause();
      _exit(1);
    }
    close(ends[1]);
    cr_assert_eq(read(ends[0], &below, sizeof below), sizeof below);
    close(ends[0]);
    processes_kill(&(process_tree){root, environ[0]});
    cr_expect(waitpid(below, &how, 0) < 0 || (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL));
    waitpid(root, NULL, 0);
  }
}
