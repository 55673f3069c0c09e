/* law_output.c - LAW-3: how far the output of a run with weighted keys may be from the exact one.
 *
 * o~ - o = W / D~ (law_draws.c): where D~ >= D/2, |o~ - o| <= 2 |W| / D, and E |W|^2 = v^2 (Markov). */
#include "experiments/checks/tails/run_law.h"

#include <inttypes.h>
#include <math.h>

/* P(D~ < D/2): 0 where keys that are always taken hold half the mass, else Chebyshev. */
static double collapse(const run_law *x) { return x->always >= 0.5 ? 0 : 4 * x->spread; }

static attn_status output_evaluate(const evidence *e, result_bound *bound) {
  static const double alpha = 1e-3;
  run_law row[RUN_LAW_ROWS];
  int64_t count, judged = 0;
  const char *why = "in every row the denominator may well be less than half of the exact one";
  double least = 2, measured = 0, value = 0;
  const char *missing = law_missing(e);
  if (missing) return bound_not_applicable(bound, missing);
  if (e->problem->n_kv > RUN_LAW_KEYS)
    return bound_not_applicable(bound, "of more than 1024 keys: the moments of a row are their square");
  const attn_status status = run_laws(e, row, &count);
  if (status) return status;
  for (int64_t r = 0; r < count; r++) {
    if (row[r].why) why = row[r].why;
    if (row[r].why || collapse(&row[r]) > 0.5) continue;
    judged++;
    const double error = row[r].error,
                 p = error > 0 ? 4 * row[r].square / (error * error) + collapse(&row[r]) : 1;
    if (p >= least) continue;
    least = p;
    measured = error;
    value = 2 * sqrt(row[r].square / alpha);
  }
  if (!judged) return bound_uncertifiable(bound, why);
  bound_prob(bound, measured, value, fmin(1, least * (double)judged));
  bound_say(bound, "%" PRId64 " of %" PRId64 " rows", judged, count);
  return ATTN_OK;
}

const check check_law3 = {
    .name = "LAW-3",
    .of = &of_weighted,
    .kind = KIND_PROB,
    .statement =
        "the output error exceeds 2 v / (D sqrt(alpha)) with probability at most alpha + P(D~ < D/2)",
    .source = "derived: Markov on |W|^2, Chebyshev on D~",
    .formula = "v^2 = E |W|^2 and Var D~ as in LAW-2: P(|o~ - o| > 2 v / (D sqrt(alpha))) <= alpha + P(D~ < "
               "D/2), the last 0 where keys that are always taken hold half of the exact weights, else "
               "at most 4 Var D~ / D^2. measured: |o~ - o| less rounding, of the worst of up to 8 rows; "
               "value: the bound for alpha = 1e-3; p: alpha + P for what is measured, times the rows.",
    .assumes =
        "The selector states its weights' law; at most 1024 keys. Rows for which P(D~ < D/2) has no bound "
        "below 1/2 are left out; where all are, uncertifiable. Wide: it rejects outputs that are off by some "
        "dozens of standard deviations, in rows whose certain keys hold half the weight.",
    .nulls[CHECK_ZEROS].rejected_on =
        "Gaussian inputs of std 0.02, a window of 88 of 96 keys, 7 of the 8 others drawn",
    .nulls[CHECK_MEAN_V].rejected_on = "Gaussian inputs of std 1",
    .nulls[CHECK_RANDOM_KEYS].rejected_on = "Gaussian inputs of std 1",
    .evaluate = output_evaluate,
};
