/* share_budget.c - see share_budget.h. With b the greatest common divisor of the budgets, best(l, t), the
 * least cost of the first l layers that spend at most t b, is the least of best(l - 1, t - budget_s / b) +
 * cost(l, s) over the settings s. */
#include "experiments/quality/share_budget.h"

#include <math.h>
#include <stdlib.h>

#include "attn_tools.h"
#include "attn_variant.h"

static int64_t common_divisor(const int64_t *all, int64_t count) {
  int64_t divisor = 0;
  for (int64_t i = 0; i < count; i++)
    for (int64_t a = all[i]; a > 0;) {
      const int64_t rest = divisor % a;
      divisor = a;
      a = rest;
    }
  return divisor > 0 ? divisor : 1;
}

attn_status share_budget(int64_t layers, int64_t settings, const int64_t *budget, const double *cost,
                         int64_t total, int64_t *chosen, double *predicted) {
  const int64_t unit = common_divisor(budget, settings), most = total / unit;
  size_t bytes;
  attn_status status =
      attn_size_product("shares of a budget", (int64_t[]){layers + 2, most + 1, 8}, 3, &bytes);
  if (status) return status;
  int64_t *by = malloc((size_t)(layers * (most + 1)) * sizeof *by);
  double *best = calloc(2 * ((size_t)most + 1), sizeof *best), *now = best,
         *next = best ? best + most + 1 : NULL;
  if (!by || !best) status = attn_fail(ATTN_ENOMEM, "no memory for the shares of a budget");
  for (int64_t l = 0; !status && l < layers; l++) {
    for (int64_t t = 0; t <= most; t++) {
      int64_t *choice = &by[l * (most + 1) + t];
      *choice = -1;
      next[t] = (double)INFINITY;
      for (int64_t s = 0; s < settings; s++) {
        const int64_t left = t - budget[s] / unit;
        if (left < 0 || !(now[left] + cost[l * settings + s] < next[t])) continue;
        next[t] = now[left] + cost[l * settings + s];
        *choice = s;
      }
    }
    double *last = now;
    now = next;
    next = last;
  }
  if (!status && isinf(now[most])) status = attn_fail(ATTN_EINVAL, "no setting is within the budget");
  if (!status) *predicted = now[most];
  for (int64_t l = layers, t = most; !status && l-- > 0; t -= budget[chosen[l]] / unit)
    chosen[l] = by[l * (most + 1) + t];
  free(by);
  free(best);
  return status;
}
