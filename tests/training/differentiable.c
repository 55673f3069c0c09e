/* differentiable.c - each operation's derivative is that of its value, by differences along random
 * directions; what it adds to stays. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "experiments/training/differentiable.h"
#include "tests/support/directions.h"

enum { ROWS = 5, IN = 6, OUT = 4, CLASSES = 7 };

static products tools(void) {
  static _Alignas(64) char scratch[1 << 20];
  attn_problem p = attn_problem_make(1, 1, 1, 1);
  attn_plan *plan;
  p.dtype = ATTN_F64;
  cr_assert(attn_plan_create(&plan, &p, "tiled", NULL) == ATTN_OK);
  const products made = {attn_plan_context(plan)->kernels, scratch};
  cr_assert(attn_gemm_scratch(made.kernels) <= sizeof scratch);
  attn_plan_destroy(plan);
  return made;
}

/* Sum of y times fixed numbers. */
static double weigh(int64_t count, const double *y, double *size) {
  double sum = 0;
  *size = 0;
  for (int64_t i = 0; i < count; i++) {
    const double term = y[i] * cos(3 * (double)i);
    sum += term;
    *size += fabs(term);
  }
  return sum;
}
static void weights_of(int64_t count, double *dy) {
  for (int64_t i = 0; i < count; i++) dy[i] = cos(3 * (double)i);
}

static double linear_loss(const void *context, const double *x, double *size) {
  double y[ROWS * OUT];
  linear_forward(context, ROWS, IN, OUT, x, x + ROWS * IN, false, y);
  return weigh(ROWS * OUT, y, size);
}

Test(training_differentiable, linear) {
  const products p = tools();
  double x[ROWS * IN + OUT * IN], dy[ROWS * OUT], g[ROWS * IN + OUT * IN];
  directions_draw(1, ROWS * IN + OUT * IN, x);
  weights_of(ROWS * OUT, dy);
  for (int i = 0; i < ROWS * IN + OUT * IN; i++) g[i] = 100;
  linear_backward(&p, ROWS, IN, OUT, x, x + ROWS * IN, dy, true, g, g + ROWS * IN);
  for (int i = 0; i < ROWS * IN + OUT * IN; i++) g[i] -= 100;
  expect_derivative("linear", linear_loss, &p, ROWS * IN + OUT * IN, x, g);
  double y[ROWS * OUT], again[ROWS * OUT];
  linear_forward(&p, ROWS, IN, OUT, x, x + ROWS * IN, false, y);
  for (int i = 0; i < ROWS * OUT; i++) again[i] = 1;
  linear_forward(&p, ROWS, IN, OUT, x, x + ROWS * IN, true, again);
  for (int i = 0; i < ROWS * OUT; i++) cr_expect(fabs(again[i] - 1 - y[i]) <= 1e-14 * (1 + fabs(y[i])));
}

static double rms_loss(const void *context, const double *x, double *size) {
  double y[ROWS * IN];
  (void)context;
  rms_forward(ROWS, IN, x, x + ROWS * IN, y);
  return weigh(ROWS * IN, y, size);
}

Test(training_differentiable, rms) {
  double x[(ROWS + 1) * IN], dy[ROWS * IN], g[(ROWS + 1) * IN], y[ROWS * IN];
  directions_draw(2, (ROWS + 1) * IN, x);
  weights_of(ROWS * IN, dy);
  for (int i = 0; i < (ROWS + 1) * IN; i++) g[i] = 100;
  rms_backward(ROWS, IN, x, x + ROWS * IN, dy, g, g + ROWS * IN);
  for (int i = 0; i < (ROWS + 1) * IN; i++) g[i] -= 100;
  expect_derivative("rms", rms_loss, NULL, (ROWS + 1) * IN, x, g);
  for (int j = 0; j < IN; j++) x[ROWS * IN + j] = 1;
  rms_forward(ROWS, IN, x, x + ROWS * IN, y);
  for (int i = 0; i < ROWS; i++) /* the 1e-6 under the root is seen */
    cr_expect(fabs(attn_inner(y + i * IN, y + i * IN, IN) / IN - 1) < 1e-5);
}

static double swiglu_loss(const void *context, const double *x, double *size) {
  double y[ROWS * IN];
  (void)context;
  swiglu_forward(ROWS, IN, x, y);
  return weigh(ROWS * IN, y, size);
}

Test(training_differentiable, swiglu) {
  double x[2 * ROWS * IN], dy[ROWS * IN], g[2 * ROWS * IN];
  directions_draw(3, 2 * ROWS * IN, x);
  weights_of(ROWS * IN, dy);
  swiglu_backward(ROWS, IN, x, dy, g);
  expect_derivative("swiglu", swiglu_loss, NULL, 2 * ROWS * IN, x, g);
}

static const int32_t targets[ROWS] = {3, -1, 0, 6, -1};

static double entropy_loss(const void *context, const double *x, double *size) {
  (void)context;
  const scored s = cross_entropy(ROWS, CLASSES, x, targets);
  *size = fabs(s.loss / (double)s.rows);
  return s.loss / (double)s.rows;
}

Test(training_differentiable, entropy) {
  double x[ROWS * CLASSES], g[ROWS * CLASSES];
  directions_draw(4, ROWS * CLASSES, x);
  memcpy(g, x, sizeof x);
  cross_entropy_backward(ROWS, CLASSES, cross_entropy(ROWS, CLASSES, x, targets).rows, targets, g);
  for (int j = 0; j < CLASSES; j++) cr_expect(g[CLASSES + j] == 0 && g[4 * CLASSES + j] == 0);
  expect_derivative("cross entropy", entropy_loss, NULL, ROWS * CLASSES, x, g);
}

Test(training_differentiable, entropy_counts) {
  double x[ROWS * CLASSES] = {0};
  const scored level = cross_entropy(ROWS, CLASSES, x, targets);
  cr_expect(level.rows == 3 && level.right == 1, "the first of equal logits is the largest");
  cr_expect(fabs(level.loss - 3 * log(CLASSES)) < 1e-14);
  x[3] = x[2 * CLASSES] = 2000; /* no overflow */
  x[3 * CLASSES + 5] = 1;
  const scored sure = cross_entropy(ROWS, CLASSES, x, targets);
  cr_expect(sure.right == 2 && fabs(sure.loss - log(CLASSES - 1 + exp(1))) < 1e-14, "%g", sure.loss);
}
