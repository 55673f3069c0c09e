/* peer.c - the protocol of experiments/peers/README.md, over standard input and output. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/peers/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 4096 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void clear(const peer_methods *methods, peer_problem *problem) {
  if (!problem->o) return;
  methods->unload();
  free(problem->o);
  data_qkv_free(&problem->in);
  *problem = (peer_problem){.o = NULL};
}

static attn_status read_tensors(const char *directory, data_qkv *in) {
  char path[3][LINE + 8];
  for (int t = 0; t < 3; t++) snprintf(path[t], sizeof path[t], "%s/%c.npy", directory, "qkv"[t]);
  attn_status status = data_qkv_read(&(data_reading){.q = path[0], .k = path[1], .v = path[2]}, in);
  if (status) return status;
  if (in->dtype == ATTN_F32 && in->batch == 1) return ATTN_OK;
  data_qkv_free(in);
  return attn_fail(ATTN_EUNSUPPORTED, "%s: not one batch entry of f4", directory);
}

/* "CAUSAL THREADS DIRECTORY" */
static attn_status load(const peer_methods *methods, peer_problem *problem, const char *arguments,
                        char description[PEER_TEXT]) {
  clear(methods, problem);
  int causal, threads, used = 0;
  if (sscanf(arguments, "%d %d %n", &causal, &threads, &used) != 2 || !used || threads < 1)
    return attn_fail(ATTN_EINVAL, "load: expected CAUSAL THREADS DIRECTORY");
  data_qkv in;
  attn_status status = read_tensors(arguments + used, &in);
  if (status) return status;
  size_t bytes = (size_t)(in.heads * in.n_q * in.d_v) * sizeof(float);
  *problem = (peer_problem){.in = in, .causal = causal != 0, .threads = threads, .o = malloc(bytes)};
  if (!problem->o) {
    data_qkv_free(&problem->in);
    return attn_fail(ATTN_ENOMEM, "no memory for the output");
  }
  memset(problem->o, 0xff, bytes); /* NaN: what a peer does not write is seen */
  status = methods->load(problem, description);
  if (status) clear(methods, problem);
  return status;
}

static attn_status save(const peer_problem *problem, const char *path) {
  data_array o = {.dtype = ATTN_F32, .rank = 3, .at = problem->o};
  o.shape[0] = problem->in.heads, o.shape[1] = problem->in.n_q, o.shape[2] = problem->in.d_v;
  return data_npy_write(path, &o);
}

static attn_status answer(const peer_methods *methods, peer_problem *problem, const char *line,
                          char text[PEER_TEXT]) {
  text[0] = '\0';
  if (!strncmp(line, "load ", 5)) return load(methods, problem, line + 5, text);
  if (!problem->o) return attn_fail(ATTN_EINVAL, "nothing is loaded");
  if (!strncmp(line, "save ", 5)) return save(problem, line + 5);
  if (strcmp(line, "run") != 0) return attn_fail(ATTN_EINVAL, "unknown request '%s'", line);
  double start = now();
  attn_status status = methods->run(problem);
  snprintf(text, PEER_TEXT, "%.9g", now() - start);
  return status;
}

int peer_serve(const peer_methods *methods) {
  peer_problem problem = {.o = NULL};
  char line[LINE], text[PEER_TEXT];
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = '\0';
    if (!answer(methods, &problem, line, text))
      printf("ok %s\n", text);
    else
      printf("no %s\n", attn_last_error());
    fflush(stdout);
  }
  clear(methods, &problem);
  return 0;
}
