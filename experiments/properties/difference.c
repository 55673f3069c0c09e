/* difference.c - two outputs compared bit by bit, and what is said of the largest difference. */
#include "experiments/properties/property.h"

#include <math.h>
#include <string.h>

static const char *row_at(const trial_inputs *in, const char *o, int64_t batch, int64_t head, int64_t row) {
  const attn_problem *p = &in->problem;
  return o + (size_t)(((batch * p->heads + head) * p->n_q + row) * p->d_v) * attn_dtype_size(p->dtype);
}

void difference_rows(difference *d, const trial_inputs *in, const char *got, int64_t batch, int64_t head,
                     int64_t from, int64_t to, const trial_inputs *of, const char *expected,
                     int64_t expected_batch) {
  const attn_problem *p = &in->problem;
  const size_t size = attn_dtype_size(p->dtype);
  for (int64_t i = from; i < to; i++) {
    const char *a = row_at(of, expected, expected_batch, head, i), *b = row_at(in, got, batch, head, i);
    for (int64_t l = 0; l < p->d_v; l++) {
      if (memcmp(a + (size_t)l * size, b + (size_t)l * size, size) == 0) continue;
      const double x = attn_get(a, l, p->dtype), y = attn_get(b, l, p->dtype);
      if (isnan(x) && isnan(y)) continue;
      const double off = isnan(x) || isnan(y) ? (double)INFINITY : fabs(x - y);
      if (!d->count++ || off > d->largest) *d = (difference){in, d->count, batch, head, i, l, off, x, y};
    }
  }
}

void difference_all(difference *d, const trial_inputs *in, const char *got, const trial_inputs *of,
                    const char *expected) {
  const attn_problem *p = &in->problem;
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++) difference_rows(d, in, got, b, h, 0, p->n_q, of, expected, b);
}

attn_status difference_settle(const difference *d, double allowed, const char *what, result_bound *bound) {
  bound_property(bound, d->largest, allowed);
  if (bound->verdict == VERDICT_VIOLATED)
    bound_say(bound,
              "%s: batch %lld, head %lld, row %lld, component %lld is %.7g, expected %.7g; n = %lld, %lld "
              "numbers differ",
              what, (long long)d->batch, (long long)d->head, (long long)d->row, (long long)d->component,
              d->got, d->expected, (long long)d->in->problem.n_q, (long long)d->count);
  return ATTN_OK;
}
