/* rude.c - a plug-in variant that harms the process it runs in, or others, as its parameter says. */
#define _GNU_SOURCE /* setsid */
#include <locale.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/plugins/exact_plugin.h"

#define FAULTS(FAULT)                                                              \
  FAULT(none),           /* right */                                               \
      FAULT(orphan),     /* dies, and leaves a child that holds its descriptors */ \
      FAULT(daemon),     /* the same of a child in a new session */                \
      FAULT(child_eats), /* a child takes memory */                                \
      FAULT(scribble),   /* writes to every descriptor */                          \
      FAULT(close),      /* closes every descriptor */                             \
      FAULT(applicable), /* crashes where it is asked whether it applies */        \
      FAULT(work_size),  /* ... how much work memory it needs */                   \
      FAULT(cost_crash), /* ... what it costs */                                   \
      FAULT(cost_hang),  /* does not come back from there */                       \
      FAULT(locale)      /* numbers have commas from now on */
NAME_FAULTS;

typedef struct params {
  int mode;
  double level;
} params;

static const attn_param table[] = {
    {"mode", ATTN_CHOICE, offsetof(params, mode), 0, 0, "none", faults, "what it does"},
    {"level", ATTN_REAL, offsetof(params, level), 0, 1, "0.5", NULL, "a number with a fraction"},
    {.name = NULL}};

static fault mode_of(const attn_context *c) { return (fault)((const params *)c->params)->mode; }

static attn_status applicable(const attn_context *c) {
  if (mode_of(c) == F_applicable) raise(SIGSEGV);
  return ATTN_OK;
}

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  (void)parts;
  if (mode_of(c) == F_work_size) raise(SIGABRT);
  *bytes = 0;
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  if (mode_of(c) == F_cost_crash) raise(SIGFPE);
  if (mode_of(c) == F_cost_hang)
    for (;;) pause();
  return exact_cost(c);
}

static void linger(int detached) {
  if (fork() != 0) return;
  if (detached) setsid();
  if (detached && fork() != 0) _exit(0);
  sleep(100);
  _exit(0);
}

static void eat_in_a_child(void) {
  const struct timespec pause_ = {0, 10000000};
  const size_t mouthful = (size_t)16 << 20;
  if (fork() == 0)
    for (;;) {
      char *volatile food = malloc(mouthful);
      if (food) memset(food, 1, mouthful);
      nanosleep(&pause_, NULL);
    }
  for (;;) pause();
}

/* Every pipe beyond the standard descriptors, once. */
static void touch_descriptors(fault mode) {
  static bool before;
  for (int fd = 3; fd < 1 << 20 && !before; fd++) {
    struct stat about;
    if (fstat(fd, &about) != 0 || !S_ISFIFO(about.st_mode)) continue;
    if (mode == F_close)
      close(fd);
    else if (write(fd, "{\"done\": true}\n", 15) < 0)
      continue;
  }
  before = true;
}

static attn_status execute(const void *state, const attn_call *call) {
  const fault mode = mode_of(call->context);
  (void)state;
  exact_output(call, call->k, 1);
  if (mode == F_orphan || mode == F_daemon) {
    linger(mode == F_daemon);
    raise(SIGABRT);
  }
  if (mode == F_child_eats) eat_in_a_child();
  if (mode == F_scribble || mode == F_close) touch_descriptors(mode);
  if (mode == F_locale) setlocale(LC_ALL, "");
  return ATTN_OK;
}

static DESCRIBE_METHOD(describe, exact_rounding(c->problem), .work_size = work_size, .execute = execute);

ATTN_VARIANT(rude, .summary = "harms others", .cite = "none",
             .caps = ATTN_CAP_EXACT | ATTN_CAP_CAUSAL | ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX,
             .params = table, .params_size = sizeof(params), .applicable = applicable, .describe = describe,
             .cost = cost)
