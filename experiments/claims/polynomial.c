/* polynomial.c - what attention by polynomials needs: Alman and Song, Fast Attention Requires Bounded Entries
 * (2023, arXiv:2302.13214) put a polynomial of the score s in the place of e^s, whose monomials in the d
 * components of q and k are features. */
#include "experiments/claims/claim.h"

#include <math.h>

enum { WIDTH = 64, POINTS = 2000, BOUNDS = 4 };
static const double tolerated = 0.1;

/* The largest |T_g(s) / e^s - 1| on [-b, b]. */
static double worst(int degree, double b) {
  double most = 0;
  for (int i = 0; i <= POINTS; i++) {
    const double s = b * (2.0 * i / POINTS - 1);
    double sum = 1;
    for (int r = degree; r > 0; r--) sum = 1 + sum * s / r; /* Horner: 1 + s (1 + s/2 (1 + ...)) */
    most = fmax(most, fabs(sum * exp(-s) - 1));
  }
  return most;
}

/* Monomials up to this degree in WIDTH components: C(d + g, g). */
static double monomials(int degree) {
  double count = 1;
  for (int r = 1; r <= degree; r++) count *= (double)(WIDTH + r) / r;
  return count;
}

/* As derived where a polynomial takes more features than a million keys, from scores up to 2 on, and the
 * features of degree 2 that there are do better with small scores than with those of unit variance. */
static attn_status needs(const claim_options *options, claim_report *r) {
  static const double bounds[BOUNDS] = {1, 2, 5, 10};
  static const char *const spec = "linear:feature=taylor", *const data[] = {"gaussian:std_q=0.25,std_k=0.25",
                                                                            "gaussian"};
  bool met = true;
  for (int i = 0; i < BOUNDS; i++) {
    int degree = 0;
    while (worst(degree, bounds[i]) > tolerated) degree++;
    figure_exact(claim_add(r, CLAIM_UNSAID, "least degree within 10 %% of e^s, |s| <= %g", bounds[i]),
                 degree);
    figure_exact(claim_add(r, CLAIM_UNSAID, "features of it, d = 64, |s| <= %g", bounds[i]),
                 monomials(degree));
    met = met && (bounds[i] < 2 || monomials(degree) > 0x1p20);
  }
  r->telling = 3;
  const claim_figure *error[2] = {NULL};
  for (int k = 0; k < 2; k++) {
    const claim_run run = {data[k], 512, 512, WIDTH, NULL};
    double errors[CLAIM_SEEDS];
    const attn_status status = claim_errors(options, &run, &spec, 1, NORM_FROBENIUS, CLAIM_SEEDS, errors);
    if (status) return status;
    error[k] = figure_mean(
        claim_add(r, CLAIM_UNSAID, "relative error of an output by degree 2, std %s", k ? "1" : "0.25"),
        errors, CLAIM_SEEDS, "seeds");
  }
  if (met && error[0]->high < error[1]->low) r->word = CLAIM_DERIVED;
  return ATTN_OK;
}
const claim claim_taylor_needs = {
    "taylor-needs",
    "from scores up to 2 on, a Taylor polynomial within 10 % of e^s takes more features than there are keys "
    "in a million (d = 64)",
    "ours, from Alman and Song 2023 (arXiv:2302.13214), as recalled: scores have to be o(sqrt(log n))",
    needs};
