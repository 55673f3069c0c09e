/* properties_real.c - properties of the mathematics, within the rounding bounds of the runs compared
 * (properties.h). */
#include "tests/support/properties.h"

#include <math.h>
#include <stdlib.h>

static void check_oracle(const subject *s) { expect_within(&s->in.problem, s->o, &s->exact, "the oracle"); }

/* 0/0: features of which none is positive weigh every key by zero. The oracle tests that the run gives NaN,
 * too. */
static bool undefined(const subject *s, size_t at) { return s->exact.o && isnan(s->exact.o[at]); }

/* weights of o: sum_k weight[k] * run k. Notes a failure unless the sum vanishes within the runs' bounds. */
static void expect_vanishing(const subject *s, int count, const inputs *in, const double *weight,
                             const char *what) {
  const attn_problem *p = &s->in.problem;
  double *sum = calloc(output_count(p), sizeof *sum), *room = calloc(output_count(p), sizeof *room);
  if (!sum || !room) abort();
  for (int k = 0; k < count; k++) {
    void *o = run_plain(s->plan, &in[k]);
    oracle exact = oracle_of_run(s->plan, &in[k]);
    for (int64_t b = 0; o && b < p->batch; b++)
      for (int64_t h = 0; h < p->heads; h++)
        for (int64_t i = 0; i < p->n_q; i++)
          for (int64_t l = 0; l < p->d_v; l++) {
            size_t at = output_index(p, b, h, i, l);
            sum[at] += weight[k] * output_get(p, o, b, h, i, l);
            room[at] += fabs(weight[k]) * exact.bound[at];
          }
    free(o);
    oracle_free(&exact);
  }
  for (size_t at = 0; at < output_count(p); at++)
    if (!undefined(s, at) && !(fabs(sum[at]) <= room[at])) {
      note_failure("%s: output %d differs by %.3g, bound %.3g", what, (int)at, sum[at], room[at]);
      break;
    }
  free(sum);
  free(room);
}

/* V3 = 2 V1 - 3 V2, exactly. */
static void check_linear(const subject *s) {
  const attn_problem *p = &s->in.problem;
  inputs in[3] = {inputs_copy(&s->in), inputs_copy(&s->in), inputs_copy(&s->in)};
  uint64_t state = 17;
  inputs_quantise(&in[0], TENSOR_V, 8);
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->kv_heads; h++)
      for (int64_t j = 0; j < p->n_kv; j++)
        for (int64_t l = 0; l < p->d_v; l++) {
          double x = inputs_get(&in[0], TENSOR_V, b, h, j, l),
                 y = floor(ldexp(uniform_draw(&state) - 0.5, 9)) / 256;
          inputs_set(&in[1], TENSOR_V, b, h, j, l, y);
          inputs_set(&in[2], TENSOR_V, b, h, j, l, 2 * x - 3 * y);
        }
  expect_vanishing(s, 3, in, (double[]){2, -3, -1}, "a linear combination of values");
  for (int k = 0; k < 3; k++) inputs_free(&in[k]);
}

const property properties_real[] = {
    {"oracle", 0, NULL, check_oracle, true},
    {"linear", 0, subject_keeps_values, check_linear, true},
    {.name = NULL},
};
