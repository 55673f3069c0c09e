/* properties_real.c - properties of the mathematics, within the rounding bounds of the runs compared
 * (properties.h). */
#include "tests/support/properties.h"

#include <math.h>
#include <stdlib.h>

static double v_at(const inputs *in, int64_t b, int64_t h, int64_t j, int64_t l) {
  const attn_problem *p = &in->problem;
  return inputs_get(in, TENSOR_V, b, h / (p->heads / p->kv_heads), j, l);
}

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

/* -- V = 1 and the hull of V -- */

static bool row_sees(const subject *s, int64_t b, int64_t h, int64_t i, int64_t *keys, int64_t *count) {
  *count = oracle_keys(&s->in, s->view.pattern, b, h, i, keys);
  return *count > 0;
}

static void check_ones(const subject *s) {
  const attn_problem *p = &s->in.problem;
  inputs in = inputs_copy(&s->in);
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->kv_heads; h++)
      for (int64_t j = 0; j < p->n_kv; j++) inputs_set_row(&in, TENSOR_V, b, h, j, 1);
  void *o = run_plain(s->plan, &in);
  oracle exact = oracle_of_run(s->plan, &in);
  int64_t *keys = calloc((size_t)p->n_kv, sizeof *keys), count;
  int bad = 0;
  for (int64_t b = 0; o && keys && b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++)
      for (int64_t i = 0; i < p->n_q; i++)
        for (int64_t l = 0; l < p->d_v; l++) {
          double want = row_sees(s, b, h, i, keys, &count) ? 1 : 0, got = output_get(p, o, b, h, i, l);
          double bound = exact.bound[output_index(p, b, h, i, l)];
          if (undefined(s, output_index(p, b, h, i, l))) continue;
          if (!(fabs(got - want) <= bound) && !bad++)
            note_failure("V = 1 gave %.9g, expected %g within %.3g", got, want, bound);
        }
  free(keys);
  free(o);
  oracle_free(&exact);
  inputs_free(&in);
}

/* Along column l of V, and along the direction sum of all columns with alternating signs. */
static double along(const inputs *in, const void *o, int64_t b, int64_t h, int64_t i, int64_t l) {
  const attn_problem *p = &in->problem;
  if (l < p->d_v) return o ? output_get(p, o, b, h, i, l) : v_at(in, b, h, i, l);
  double sum = 0;
  for (int64_t c = 0; c < p->d_v; c++) sum += (c % 2 ? -1 : 1) * along(in, o, b, h, i, c);
  return sum;
}

static void check_hull(const subject *s) {
  const attn_problem *p = &s->in.problem;
  oracle exact = oracle_of_run(s->plan, &s->in);
  int64_t *keys = calloc((size_t)p->n_kv, sizeof *keys), count;
  int bad = 0;
  for (int64_t b = 0; keys && b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++)
      for (int64_t i = 0; i < p->n_q; i++) {
        if (!row_sees(s, b, h, i, keys, &count) || undefined(s, output_index(p, b, h, i, 0))) continue;
        double all = 0;
        for (int64_t l = 0; l <= p->d_v; l++) {
          double least = (double)INFINITY, most = -(double)INFINITY, got = along(&s->in, s->o, b, h, i, l);
          for (int64_t t = 0; t < count; t++) {
            double v = along(&s->in, NULL, b, h, keys[t], l);
            least = fmin(least, v);
            most = fmax(most, v);
          }
          double bound = l < p->d_v ? exact.bound[output_index(p, b, h, i, l)] : all;
          all += bound;
          if (!(got >= least - bound && got <= most + bound) && !bad++)
            note_failure("row %d,%d,%d column %d: %.9g is outside [%.9g, %.9g] by more than %.3g", (int)b,
                         (int)h, (int)i, (int)l, got, least, most, bound);
        }
      }
  free(keys);
  oracle_free(&exact);
}

/* -- symmetries -- */

static bool is_not_causal(const subject *s) { return !s->shape.causal; }

static void check_permutation(const subject *s) {
  const attn_problem *p = &s->in.problem;
  inputs in[2] = {inputs_copy(&s->in), inputs_copy(&s->in)};
  uint64_t state = 5;
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t j = inputs_keys(&s->in, b) - 1; j > 0; j--) {
      int64_t other = (int64_t)(uniform_draw(&state) * (double)(j + 1));
      for (int64_t h = 0; h < p->kv_heads; h++)
        for (tensor t = TENSOR_K; t <= TENSOR_V; t++)
          for (int64_t l = 0; l < (t == TENSOR_K ? p->d_qk : p->d_v); l++) {
            double x = inputs_get(&in[1], t, b, h, j, l), y = inputs_get(&in[1], t, b, h, other, l);
            inputs_set(&in[1], t, b, h, j, l, y);
            inputs_set(&in[1], t, b, h, other, l, x);
          }
    }
  expect_vanishing(s, 2, in, (double[]){1, -1}, "permuted keys");
  for (int k = 0; k < 2; k++) inputs_free(&in[k]);
}

/* K and the shift are multiples of 2^-8, so that their sums are exact. */
static void check_shift(const subject *s) {
  const attn_problem *p = &s->in.problem;
  inputs in[2] = {inputs_copy(&s->in), inputs_copy(&s->in)};
  for (int k = 0; k < 2; k++) inputs_quantise(&in[k], TENSOR_K, 8);
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->kv_heads; h++)
      for (int64_t j = 0; j < p->n_kv; j++)
        for (int64_t l = 0; l < p->d_qk; l++)
          inputs_set(&in[1], TENSOR_K, b, h, j, l,
                     inputs_get(&in[1], TENSOR_K, b, h, j, l) + ldexp((double)(l * 37 % 513) - 200, -8));
  expect_vanishing(s, 2, in, (double[]){1, -1}, "shifted keys");
  for (int k = 0; k < 2; k++) inputs_free(&in[k]);
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
    {"oracle", 0, NULL, check_oracle},
    {"ones", ATTN_CAP_STOCHASTIC, NULL, check_ones},
    {"hull", ATTN_CAP_CONVEX, NULL, check_hull},
    {"permutation", ATTN_CAP_PERMUTATION, is_not_causal, check_permutation},
    {"shift", ATTN_CAP_SHIFT, NULL, check_shift},
    {"linear", 0, subject_keeps_values, check_linear},
    {.name = NULL},
};
