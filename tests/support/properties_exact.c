/* properties_exact.c - properties that hold bit by bit (properties.h). */
#include "tests/support/properties.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void check_repeat(const subject *s) {
  void *again = run_plain(s->plan, &s->in);
  void *other = run_spec(attn_plan_spec(s->plan), &s->options, &s->in);
  expect_same(&s->in.problem, s->o, again, "a second run");
  expect_same(&s->in.problem, s->o, other, "another plan of the canonical spec");
  free(again);
  free(other);
}

static void check_threads(const subject *s) {
  static const int counts[] = {2, 3, 4, 7};
  for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
    attn_options options = s->options;
    options.threads = counts[k];
    void *o = run_spec(s->spec, &options, &s->in);
    expect_same(&s->in.problem, s->o, o, "another number of threads");
    free(o);
  }
}

/* [batch, n, heads, d]. */
static attn_stride interleaved(int64_t heads, int64_t n, int64_t d) {
  return (attn_stride){n * heads * d, d, heads * d, 0};
}

/* Rows, heads and batch entries with gaps of odd lengths. */
static attn_stride spaced(int64_t heads, int64_t n, int64_t d) {
  int64_t row = d + 3, head = n * row + 5;
  return (attn_stride){heads * head + 7, head, row, 0};
}

static void check_layout(const subject *s, attn_stride (*layout)(int64_t, int64_t, int64_t),
                         const char *what) {
  attn_problem p = s->in.problem;
  p.q = layout(p.heads, p.n_q, p.d_qk);
  p.k = layout(p.kv_heads, p.n_kv, p.d_qk);
  p.v = layout(p.kv_heads, p.n_kv, p.d_v);
  p.o = layout(p.heads, p.n_q, p.d_v);
  inputs in = inputs_gather(&s->in, &p, 0);
  void *laid = run_spec(s->spec, &s->options, &in);
  expect_same(&p, s->o, laid, what);
  free(laid);
  inputs_free(&in);
}

static void check_strides(const subject *s) {
  check_layout(s, interleaved, "[batch, n, heads, d]");
  check_layout(s, spaced, "rows with gaps");
}

static void check_alignment(const subject *s) {
  size_t size = attn_dtype_size(s->in.problem.dtype);
  const placement places[] = {{size, 0, 0}, {0, size, 0}, {0, 0, 1}, {3 * size, size, 33}};
  for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
    void *o = run_guarded(s->plan, &s->in, places[k]);
    expect_same(&s->in.problem, s->o, o, "unaligned pointers");
    free(o);
  }
}

static bool has_batches(const subject *s) { return s->shape.batch > 1; }

static void check_batch(const subject *s) {
  attn_problem one = shape_problem(s->shape, s->in.problem.dtype);
  one.batch = 1;
  size_t entry = output_count(&s->in.problem) / (size_t)s->shape.batch * attn_dtype_size(one.dtype);
  for (int64_t b = 0; b < s->shape.batch; b++) {
    inputs in = inputs_gather(&s->in, &one, b);
    void *alone = run_spec(s->spec, &s->options, &in);
    expect_same(&one, (char *)s->o + (size_t)b * entry, alone, "a batch entry alone");
    free(alone);
    inputs_free(&in);
  }
}

/* Changes queries and, if causal, tokens behind row i. */
static inputs changed_after(const subject *s, int64_t i, double value) {
  inputs in = inputs_copy(&s->in);
  const attn_problem *p = &in.problem;
  for (int64_t b = 0; b < p->batch; b++) {
    for (int64_t h = 0; h < p->heads; h++)
      for (int64_t r = i + 1; r < p->n_q; r++) inputs_set_row(&in, TENSOR_Q, b, h, r, value);
    int64_t first = i + 1 + p->n_kv - p->n_q;
    for (int64_t h = 0; p->causal && h < p->kv_heads; h++)
      for (int64_t j = first < 0 ? 0 : first; j < p->n_kv; j++) {
        inputs_set_row(&in, TENSOR_K, b, h, j, value);
        inputs_set_row(&in, TENSOR_V, b, h, j, value);
      }
  }
  return in;
}

static void check_rows_before(const subject *s) {
  static const double values[] = {2.5, 1e30, (double)NAN, -(double)INFINITY};
  const int64_t n = s->shape.n_q, rows[] = {0, n / 3, n / 2, n - 2};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    if (rows[r] < 0) continue;
    inputs in = changed_after(s, rows[r], values[r % 4]);
    void *o = run_plain(s->plan, &in);
    for (int64_t b = 0; b < s->shape.batch; b++)
      expect_same_rows(&in.problem, s->o, o, b, 0, rows[r] + 1, "rows before a changed token");
    free(o);
    inputs_free(&in);
  }
}

static bool is_causal(const subject *s) {
  return s->shape.causal && !subject_exempt(s, ATTN_EXEMPT_LOOKAHEAD | ATTN_EXEMPT_ROWS | ATTN_EXEMPT_CAUSAL);
}
static bool is_not_causal(const subject *s) {
  return !s->shape.causal && !subject_exempt(s, ATTN_EXEMPT_ROWS);
}
static bool is_padded(const subject *s) { return s->shape.padded; }

static void check_padding(const subject *s) {
  static const double values[] = {0, (double)NAN, -1e30, (double)INFINITY};
  for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
    inputs in = inputs_copy(&s->in);
    for (int64_t b = 0; b < s->shape.batch; b++)
      for (int64_t h = 0; h < s->shape.kv_heads; h++)
        for (int64_t j = in.kv_len[b]; j < s->shape.n_kv; j++) {
          inputs_set_row(&in, TENSOR_K, b, h, j, values[k]);
          inputs_set_row(&in, TENSOR_V, b, h, j, values[k]);
        }
    void *o = run_plain(s->plan, &in);
    expect_same(&in.problem, s->o, o, "other values in the padding");
    free(o);
    inputs_free(&in);
  }
}

/* A query that sees no key gives zeros: no key exists, or all are in its future. */
static void check_nothing_seen(const subject *s) {
  const attn_problem *p = &s->in.problem;
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++)
      for (int64_t i = 0; i < p->n_q; i++) {
        bool future = p->causal && i + p->n_kv - p->n_q < 0;
        if (inputs_keys(&s->in, b) > 0 && !future) continue;
        for (int64_t l = 0; l < p->d_v; l++) {
          double x = output_get(p, s->o, b, h, i, l);
          if (!(x <= 0 && x >= 0)) {
            note_failure("row %d,%d,%d sees no key and is %g", (int)b, (int)h, (int)i, x);
            return;
          }
        }
      }
}

/* Draws of their own for each kv head make another algorithm of repeated heads; patterns go by query head. */
static bool has_groups(const subject *s) {
  return s->shape.kv_heads < s->shape.heads && !strstr(s->spec, "share_heads=no") &&
         !subject_exempt(s, ATTN_EXEMPT_GROUPS);
}

static void check_groups(const subject *s) {
  attn_problem p = shape_problem(s->shape, s->in.problem.dtype);
  p.kv_heads = p.heads;
  inputs in = inputs_gather(&s->in, &p, 0);
  void *repeated = run_spec(s->spec, &s->options, &in);
  expect_same(&p, s->o, repeated, "repeated heads");
  free(repeated);
  inputs_free(&in);
}

/* A power of two passes through sums and products untouched. */
static void check_doubling(const subject *s) {
  const attn_problem *p = &s->in.problem;
  inputs in = inputs_copy(&s->in);
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->kv_heads; h++)
      for (int64_t j = 0; j < p->n_kv; j++)
        for (int64_t l = 0; l < p->d_v; l++)
          inputs_set(&in, TENSOR_V, b, h, j, l, 1024 * inputs_get(&in, TENSOR_V, b, h, j, l));
  void *o = run_plain(s->plan, &s->in), *scaled = run_plain(s->plan, &in); /* o is scaled in place */
  for (size_t k = 0; o && scaled && k < output_count(p); k++) {
    if (p->dtype == ATTN_F64)
      ((double *)o)[k] *= 1024;
    else
      ((float *)o)[k] *= 1024;
  }
  expect_same(p, o, scaled, "V times 1024");
  free(o);
  free(scaled);
  inputs_free(&in);
}

typedef struct runner {
  const attn_plan *plan;
  const inputs *in;
  void *o[3];
} runner;

static void *run_thrice(void *argument) {
  runner *r = argument;
  for (int k = 0; k < 3; k++) r->o[k] = run_plain(r->plan, r->in);
  return NULL;
}

static void check_reentrant(const subject *s) {
  attn_options options = s->options;
  options.threads = 2;
  attn_plan *plan = plan_or_note(&s->in.problem, s->spec, &options);
  if (!plan) return;
  runner runners[2] = {{.plan = plan, .in = &s->in}, {.plan = plan, .in = &s->in}};
  pthread_t threads[2];
  int started = 0;
  while (started < 2 && pthread_create(&threads[started], NULL, run_thrice, &runners[started]) == 0)
    started++;
  if (started < 2) note_failure("pthread_create failed");
  for (int t = 0; t < started; t++) pthread_join(threads[t], NULL);
  for (int t = 0; t < started; t++)
    for (int k = 0; k < 3; k++) {
      expect_same(&s->in.problem, s->o, runners[t].o[k], "two threads on one plan");
      free(runners[t].o[k]);
    }
  attn_plan_destroy(plan);
}

static void check_estimate(const subject *s) {
  size_t bytes = SIZE_MAX;
  attn_cost cost = {-1, -1, -1}, planned = attn_plan_cost(s->plan);
  EXPECT_STATUS(attn_estimate(&s->in.problem, s->spec, &s->options, &bytes, &cost), ATTN_OK);
  EXPECT(bytes == attn_plan_work_size(s->plan));
  EXPECT(memcmp(&cost, &planned, sizeof cost) == 0);
  EXPECT(cost.mul_add > 0 && cost.exp >= 0 && cost.bytes > 0 &&
         isfinite(cost.mul_add + cost.exp + cost.bytes));
  EXPECT_STATUS(attn_estimate(&s->in.problem, s->spec, NULL, NULL, NULL), ATTN_OK);
}

const property properties_exact[] = {
    {"repeat", 0, NULL, check_repeat},
    {"threads", 0, NULL, check_threads},
    {"strides", 0, NULL, check_strides},
    {"alignment", 0, NULL, check_alignment},
    {"batch", 0, has_batches, check_batch},
    {"causal", ATTN_CAP_CAUSAL, is_causal, check_rows_before},
    {"queries", 0, is_not_causal, check_rows_before},
    {"padding", ATTN_CAP_PADDING, is_padded, check_padding},
    {"nothing-seen", 0, NULL, check_nothing_seen},
    {"groups", 0, has_groups, check_groups},
    {"doubling", 0, subject_keeps_values, check_doubling},
    {"reentrant", 0, NULL, check_reentrant},
    {"estimate", 0, NULL, check_estimate},
    {.name = NULL},
};
