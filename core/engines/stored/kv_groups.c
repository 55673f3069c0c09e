/* kv_groups.c - codes of keys less their mean, with a scale for all numbers of a group (attn_kv_groups). */
#include "core/internal.h"

#include <math.h>

void attn_kv_groups(const attn_kv_store *s, attn_dtype t, int64_t keys, int64_t d, void *x, double *mean) {
  if (!s || !x || !mean || s->group < 1 || s->k < ATTN_INT2 || s->k > ATTN_INT8) return;
  const double top = (double)((1 << (s->k - ATTN_INT1)) - 1);
  for (int64_t l = 0; l < d; l++) mean[l] = 0;
  for (int64_t i = 0; i < (s->smooth ? keys * d : 0); i++) mean[i % d] += attn_get(x, i, t);
  for (int64_t l = 0; l < d && keys > 0; l++) mean[l] = (double)(float)(mean[l] / (double)keys);
  for (int64_t first = 0; first < keys; first += s->group) {
    const int64_t end = attn_min(first + s->group, keys) * d;
    double most = 0;
    bool sound = true;
    for (int64_t i = first * d; i < end; i++) {
      const double apart = (double)(float)(attn_get(x, i, t) - mean[i % d]);
      most = fmax(most, fabs(apart));
      sound = sound && isfinite(apart);
    }
    const double scale = (double)(float)(most / top);
    for (int64_t i = first * d; i < end; i++) {
      const double apart = (double)(float)(attn_get(x, i, t) - mean[i % d]),
                   code = scale > 0 ? fmin(top, fmax(-top, rint((double)(float)(apart / scale)))) : 0;
      attn_set(x, i, t, sound ? (double)(float)(scale * code + mean[i % d]) : (double)NAN);
    }
  }
}
