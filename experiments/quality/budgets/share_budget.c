/* share_budget.c - see share_budget.h. best(l, t), the least cost of the first l layers that spend at most t,
 * is the least of best(l - 1, t - budget_s) + cost(l, s) over the settings s. */
#include "experiments/quality/budgets/share_budget.h"

#include <math.h>
#include <stdlib.h>

#include "attn_tools.h"
#include "attn_variant.h"

attn_status share_budget(int64_t layers, int64_t settings, const int64_t *budget, const double *cost,
                         int64_t total, int64_t *chosen, double *predicted) {
  size_t bytes;
  attn_status status =
      attn_size_product("shares of a budget", (int64_t[]){layers + 2, total + 1, 8}, 3, &bytes);
  if (status) return status;
  int64_t *by = malloc((size_t)(layers * (total + 1)) * sizeof *by);
  double *best = calloc(2 * ((size_t)total + 1), sizeof *best), *now = best,
         *next = best ? best + total + 1 : NULL;
  if (!by || !best) status = attn_fail(ATTN_ENOMEM, "no memory for the shares of a budget");
  for (int64_t l = 0; !status && l < layers; l++) {
    for (int64_t t = 0; t <= total; t++) {
      int64_t *choice = &by[l * (total + 1) + t];
      *choice = -1;
      next[t] = (double)INFINITY;
      for (int64_t s = 0; s < settings; s++) {
        const int64_t left = t - budget[s];
        if (left < 0 || !(now[left] + cost[l * settings + s] < next[t])) continue;
        next[t] = now[left] + cost[l * settings + s];
        *choice = s;
      }
    }
    double *last = now;
    now = next;
    next = last;
  }
  if (!status && isinf(now[total])) status = attn_fail(ATTN_EINVAL, "no setting is within the budget");
  if (!status) *predicted = now[total];
  for (int64_t l = layers, t = total; !status && l-- > 0; t -= budget[chosen[l]])
    chosen[l] = by[l * (total + 1) + t];
  free(by);
  free(best);
  return status;
}
