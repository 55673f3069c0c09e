/* bench.c - attn_mutants: does every deliberate fault of mutants.cmake meet the check, property or test that
 * it names?
 *
 * Every catcher runs in a separate process, with the fault switched on by the environment. Then the catchers
 * run without a fault, and must find none. Exit code: 0 every mutant is caught and every check and property
 * is named by one, 1 a mutant survives or a check has none, 2 a catcher reports the correct library or cannot
 * run. */
#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/mutants/catch.h"
#include "experiments/quality/evaluation_checks.h"
#include "tests/support/properties.h"

typedef struct mutant {
  const char *name, *catcher, *subject, *what;
} mutant;

#define MUTANT(name, catcher, subject, what) {name, catcher, subject, what},
static const mutant mutants[] = {
#include "mutants.inc"
};
enum { MUTANTS = sizeof mutants / sizeof *mutants, SECONDS = 300 };

/* A catcher, asked while a mutant (or none: NULL) is switched on. */
typedef struct question {
  const char *mutant;
  const mutant *by; /* whose catcher and subject */
  pid_t child;
  int answer;
  int problems; /* beforehand at most; then as many as were judged */
} question;

static pid_t start(const question *q, bool verbose) {
  fflush(NULL);
  pid_t child = fork();
  if (child != 0) return child;
  int nowhere = verbose ? -1 : open("/dev/null", O_WRONLY);
  if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
  setenv("ATTN_MUTANT", q->mutant ? q->mutant : "", 1);
  /* The mutated bodies are those of every instruction set, and the plain one is the same everywhere; but
   * large products take it several times as long. */
  if (!catch_multiplies(q->by->catcher)) setenv("ATTN_ISA", "scalar", 0);
  setenv("OMP_WAIT_POLICY", "passive", 0);
  omp_set_num_threads(1);
  alarm(SECONDS);
  int problems = q->problems;
  const catch_answer answer = catch_ask(q->by->catcher, q->by->subject, &problems);
  _exit((int)answer | problems << 2);
}

static void finish_one(question *all, int count) {
  int status;
  pid_t child = wait(&status);
  for (int i = 0; i < count; i++) {
    if (all[i].child != child) continue;
    all[i].answer = WIFEXITED(status) ? WEXITSTATUS(status) & 3 : CATCH_UNABLE;
    all[i].problems = WIFEXITED(status) ? WEXITSTATUS(status) >> 2 : 0;
  }
}

static void ask_all(question *all, int count, bool verbose) {
  const long jobs = sysconf(_SC_NPROCESSORS_ONLN) + 1; /* most wait for their second thread now and then */
  int running = 0;
  for (int i = 0; i < count; i++) {
    if (running == jobs) {
      finish_one(all, i);
      running--;
    }
    all[i].answer = CATCH_UNABLE;
    all[i].child = start(&all[i], verbose);
    if (all[i].child < 0) {
      perror("fork");
      exit(2);
    }
    running++;
  }
  for (; running; running--) finish_one(all, count);
}

static bool same_catcher(const mutant *a, const mutant *b) {
  return strcmp(a->catcher, b->catcher) == 0 && strcmp(a->subject, b->subject) == 0;
}

/* Which are asked: those that a check or property must catch, or those that a test or commands must. */
typedef enum { ALL, CHECKS, TESTS } part_of_list;

static bool is_of(part_of_list part, const mutant *m) {
  return part == ALL || (strchr(m->catcher, '/') != NULL) == (part == TESTS);
}

/* Every catcher once. */
static int distinct(part_of_list part, const mutant *out[MUTANTS]) {
  int count = 0;
  for (int m = 0; m < MUTANTS; m++) {
    bool known = !is_of(part, &mutants[m]);
    for (int k = 0; k < count; k++) known |= same_catcher(out[k], &mutants[m]);
    if (!known) out[count++] = &mutants[m];
  }
  return count;
}

/* -- does every check have a mutant? -- */

/* A check or property that no mutant needs to name, and why. */
static const struct {
  const char *name, *why;
} excused[] = {
    {"FAV-4b",
     "Chebyshev's inequality for one draw: at the level of a sweep it rejects errors of hundreds of "
     "standard errors alone, which FAV-10 sees first"},
    {"LIN-3", "it rejects what is too good for its rank, which no fault of the engines makes a run"},
    {"reentrant", "two threads that disturb each other do so by chance; the thread sanitizer looks for them"},
};

static bool is_named(const char *name) {
  for (size_t k = 0; k < sizeof excused / sizeof *excused; k++)
    if (strcmp(excused[k].name, name) == 0) {
      printf("%s has no mutant: %s\n", name, excused[k].why);
      return true;
    }
  for (int m = 0; m < MUTANTS; m++)
    if (strcmp(mutants[m].catcher, name) == 0) return true;
  printf("%s is named by no mutant\n", name);
  return false;
}

/* Checks that can fail, and properties. */
static int count_unproven(void) {
  const property *const tables[] = {properties_exact, properties_real};
  int unproven = 0;
  for (const check *const *c = checks_all; *c; c++)
    if ((*c)->kind == KIND_HARD || (*c)->kind == KIND_PROB) unproven += !is_named((*c)->name);
  for (int c = 0; c < QUALITY_CHECKS; c++) unproven += !is_named(quality_checks[c].name);
  for (int t = 0; t < 2; t++)
    for (const property *p = tables[t]; p->name; p++) unproven += !is_named(p->name);
  return unproven;
}

/* -- asking -- */

static int ask_one(const char *name, const char *catcher, const char *setting) {
  const mutant by = {name, catcher, setting, ""};
  question one = {.mutant = name, .by = &by};
  ask_all(&one, 1, true);
  return one.answer == CATCH_REPORTS ? 0 : one.answer == CATCH_SILENT ? 1 : 2;
}

/* Everything on the list that catches the mutant of this name, and what it says. */
static int ask_about(const char *name) {
  static question all[MUTANTS];
  const mutant *catchers[MUTANTS];
  int count = distinct(ALL, catchers), caught = 0;
  for (int k = 0; k < count; k++) all[k] = (question){.mutant = name, .by = catchers[k]};
  ask_all(all, count, true);
  for (int k = 0; k < count; k++) {
    caught += all[k].answer == CATCH_REPORTS;
    if (all[k].answer != CATCH_SILENT)
      printf("%s -> %s %s%s\n", name, catchers[k]->catcher, catchers[k]->subject,
             all[k].answer == CATCH_UNABLE ? " (cannot run)" : "");
  }
  return caught ? 0 : 1;
}

/* Catchers on the correct library, on the problems on which they are to find its faults. */
static int ask_without(part_of_list part, const question *with, int asked) {
  static question all[MUTANTS];
  const mutant *catchers[MUTANTS];
  int count = distinct(part, catchers), bad = 0;
  for (int k = 0; k < count; k++) {
    all[k] = (question){.by = catchers[k]};
    for (int m = 0; m < asked; m++)
      if (same_catcher(with[m].by, catchers[k]) && with[m].problems > all[k].problems)
        all[k].problems = with[m].problems;
  }
  ask_all(all, count, false);
  for (int k = 0; k < count; k++) {
    if (all[k].answer == CATCH_SILENT) continue;
    printf("no mutant -> %s %s: %s\n", catchers[k]->catcher, catchers[k]->subject,
           all[k].answer == CATCH_REPORTS ? "REPORTS the correct library" : "CANNOT RUN");
    bad++;
  }
  printf("%d catchers, %d of them unfit without a mutant\n", count, bad);
  return bad;
}

/* Returns how many were asked. */
static int ask_each(part_of_list part, question *all, int *survivors) {
  int count = 0;
  for (int m = 0; m < MUTANTS; m++)
    if (is_of(part, &mutants[m])) all[count++] = (question){.mutant = mutants[m].name, .by = &mutants[m]};
  ask_all(all, count, false);
  for (int k = 0; k < count; k++) {
    const mutant *m = all[k].by;
    bool caught = all[k].answer == CATCH_REPORTS;
    *survivors += !caught;
    printf("%-28s -> %s%s%s  (%s)\n", m->name, caught ? m->catcher : "SURVIVES ", caught ? " " : m->catcher,
           caught ? m->subject : "", m->what);
  }
  printf("%d mutants, %d survive\n", count, *survivors);
  return count;
}

int main(int argc, char **argv) {
  const char *one = argc == 2 ? argv[1] : "";
  const part_of_list part = strcmp(one, "--checks") == 0 ? CHECKS : strcmp(one, "--tests") == 0 ? TESTS : ALL;
  if (argc == 2 && one[0] != '-') return ask_about(one);
  if (argc == 4) return ask_one(argv[1], argv[2], argv[3]);
  if (argc != 1 && part == ALL) {
    fprintf(stderr,
            "usage: attn_mutants [--checks | --tests]     every mutant and the catcher it names, or those\n"
            "                                             alone that name a check or property, or a test\n"
            "       attn_mutants MUTANT                   one mutant and everything that catches it\n"
            "       attn_mutants MUTANT CATCHER SETTING   one mutant, or none (\"\"), and one catcher\n");
    return 2;
  }
  static question with[MUTANTS];
  int survivors = 0;
  const int asked = ask_each(part, with, &survivors), unproven = count_unproven();
  if (ask_without(part, with, asked)) return 2;
  return survivors || unproven ? 1 : 0;
}
