/* differentiable.c - see differentiable.h. */
#include "experiments/training/differentiable.h"

#include <math.h>

static const double EPSILON = 1e-6;

void linear_forward(const products *p, int64_t rows, int64_t in, int64_t out, const double *x,
                    const double *w, bool accumulate, double *y) {
  attn_gemm(p->kernels, rows, out, in, (attn_matrix){x, in, 1}, (attn_matrix){w, 1, in}, accumulate, y, out,
            p->scratch);
}

void linear_backward(const products *p, int64_t rows, int64_t in, int64_t out, const double *x,
                     const double *w, const double *dy, bool accumulate, double *dx, double *dw) {
  attn_gemm(p->kernels, rows, in, out, (attn_matrix){dy, out, 1}, (attn_matrix){w, in, 1}, accumulate, dx, in,
            p->scratch);
  attn_gemm(p->kernels, out, in, rows, (attn_matrix){dy, 1, out}, (attn_matrix){x, in, 1}, true, dw, in,
            p->scratch);
}

static double rms_factor(int64_t d, const double *x) {
  return 1 / sqrt(attn_inner(x, x, d) / (double)d + EPSILON);
}

void rms_forward(int64_t rows, int64_t d, const double *x, const double *gain, double *y) {
  for (int64_t i = 0; i < rows; i++, x += d, y += d) {
    const double factor = rms_factor(d, x);
    for (int64_t j = 0; j < d; j++) y[j] = gain[j] * x[j] * factor;
  }
}

void rms_backward(int64_t rows, int64_t d, const double *x, const double *gain, const double *dy, double *dx,
                  double *dgain) {
  for (int64_t i = 0; i < rows; i++, x += d, dy += d, dx += d) {
    const double factor = rms_factor(d, x);
    double along = 0;
    for (int64_t j = 0; j < d; j++) along += dy[j] * gain[j] * x[j];
    along *= factor * factor / (double)d;
    for (int64_t j = 0; j < d; j++) {
      dgain[j] += dy[j] * x[j] * factor;
      dx[j] += factor * (dy[j] * gain[j] - along * x[j]);
    }
  }
}

static double sigmoid(double t) { return 1 / (1 + exp(-t)); }

void swiglu_forward(int64_t rows, int64_t d, const double *x, double *y) {
  for (int64_t i = 0; i < rows; i++, x += 2 * d, y += d)
    for (int64_t j = 0; j < d; j++) y[j] = x[j] * sigmoid(x[j]) * x[d + j];
}

void swiglu_backward(int64_t rows, int64_t d, const double *x, const double *dy, double *dx) {
  for (int64_t i = 0; i < rows; i++, x += 2 * d, dy += d, dx += 2 * d)
    for (int64_t j = 0; j < d; j++) {
      const double s = sigmoid(x[j]);
      dx[j] = dy[j] * x[d + j] * s * (1 + x[j] * (1 - s));
      dx[d + j] = dy[j] * x[j] * s;
    }
}

static double largest(int64_t count, const double *x, int64_t *at) {
  *at = 0;
  for (int64_t i = 1; i < count; i++)
    if (!(x[i] <= x[*at])) *at = i;
  return x[*at];
}

scored cross_entropy(int64_t rows, int64_t classes, const double *logits, const int32_t *targets) {
  scored s = {0};
  for (int64_t i = 0; i < rows; i++, logits += classes) {
    if (targets[i] < 0) continue;
    int64_t at;
    double sum = 0;
    const double max = largest(classes, logits, &at);
    for (int64_t j = 0; j < classes; j++) sum += exp(logits[j] - max);
    s.loss += max + log(sum) - logits[targets[i]];
    s.right += at == targets[i];
    s.rows++;
  }
  return s;
}

void cross_entropy_backward(int64_t rows, int64_t classes, int64_t scored_rows, const int32_t *targets,
                            double *logits) {
  for (int64_t i = 0; i < rows; i++, logits += classes) {
    int64_t at;
    double sum = 0;
    const double max = largest(classes, logits, &at);
    for (int64_t j = 0; j < classes; j++) sum += logits[j] = targets[i] < 0 ? 0 : exp(logits[j] - max);
    if (targets[i] < 0) continue;
    for (int64_t j = 0; j < classes; j++) logits[j] /= sum * (double)scored_rows;
    logits[targets[i]] -= 1 / (double)scored_rows;
  }
}
