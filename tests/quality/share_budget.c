/* share_budget.c - shares of a budget against every choice there is. */
#include "attn_variant.h"
#include "experiments/quality/budgets/share_budget.h"
#include "tests/support/data_fixture.h"

enum { LAYERS = 4, SETTINGS = 4, CHOICES = 256 };

/* The least cost within the total, by trying all choices. */
static double least(const int64_t *budget, const double *cost, int64_t total) {
  double best = (double)INFINITY;
  for (int choice = 0; choice < CHOICES; choice++) {
    int64_t spent = 0;
    double sum = 0;
    for (int l = 0, rest = choice; l < LAYERS; l++, rest /= SETTINGS) {
      spent += budget[rest % SETTINGS];
      sum += cost[l * SETTINGS + rest % SETTINGS];
    }
    if (spent <= total && sum < best) best = sum; /* never with a cost that is not known */
  }
  return best;
}

Test(quality_share_budget, no_choice_is_better) {
  attn_rng rng = rng_of(20261128, 7, 0);
  int fit = 0;
  for (int trial = 0; trial < 300; trial++) {
    const int64_t unit = 1 + trial % 3 * 8;
    int64_t budget[SETTINGS], chosen[LAYERS], spent = 0;
    double cost[LAYERS * SETTINGS], predicted = -1, sum = 0;
    for (int s = 0; s < SETTINGS; s++) budget[s] = unit * attn_rng_below(&rng, 20);
    for (int i = 0; i < LAYERS * SETTINGS; i++)
      cost[i] = attn_rng_below(&rng, 9) ? attn_rng_uniform(&rng) : (double)NAN;
    const int64_t total = attn_rng_below(&rng, 60 * unit);
    const double wanted = least(budget, cost, total);
    const attn_status status = share_budget(LAYERS, SETTINGS, budget, cost, total, chosen, &predicted);
    cr_assert_eq(status, isinf(wanted) ? ATTN_EINVAL : ATTN_OK, "trial %d", trial);
    if (status) continue;
    fit++;
    for (int l = 0; l < LAYERS; l++) {
      spent += budget[chosen[l]];
      sum += cost[l * SETTINGS + chosen[l]];
    }
    cr_expect(spent <= total && fabs(predicted - wanted) < 1e-12 && fabs(sum - wanted) < 1e-12,
              "trial %d: %g of %g", trial, sum, wanted);
  }
  cr_expect(fit > 100 && fit < 300);
}
