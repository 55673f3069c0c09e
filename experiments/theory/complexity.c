/* complexity.c - work, state and path length against the number of tokens (Vaswani et al. 2017, Table 1).
 *
 * Causal attention of n tokens is n (n + 1) / 2 pairs, a window of w keys n w of them, a state n updates,
 * less terms of w^2 at the ends: doubling n multiplies the work by 4 or by 2, to within w / (n - w) of the
 * exponent. A window that sees h keys back hands a token on by h a layer: ceil((n - 1) / h) layers from the
 * first to the last. */
#include "experiments/theory/theory.h"

#include <stdio.h>
#include <string.h>

enum { LENGTHS = 5, SHORTEST = 512, HALF = 32, SPECS = 4, TIMED = 3, TOKENS = 8 * HALF + 1 };

typedef struct complexity_room {
  double work[SPECS][LENGTHS], seconds[TIMED * CLAIM_ROUNDS * LENGTHS];
  double zeros[TOKENS], v[TOKENS], o[TOKENS];
} complexity_room;

static double work_of(theory_report *r, const char *spec, int64_t n, size_t *state) {
  attn_problem p = theory_problem(n, n, 64, 64, 1);
  attn_plan *plan = NULL;
  p.causal = true;
  if (!r->status) r->status = attn_plan_create(&plan, &p, spec, &(attn_options){.threads = 1});
  if (r->status) return 0;
  const double work = attn_plan_cost(plan).mul_add;
  *state = attn_plan_state_size(plan);
  attn_plan_destroy(plan);
  return work;
}

/* Layers until the last token depends on the first. */
static int path_of(theory_report *r, complexity_room *x, const char *spec) {
  attn_problem p = theory_problem(TOKENS, TOKENS, 1, 1, 1);
  int layers = 0;
  p.causal = true;
  for (int i = 0; i < TOKENS; i++) x->o[i] = i == 0;
  for (; x->o[TOKENS - 1] == 0 && layers < TOKENS && !r->status; layers++) {
    memcpy(x->v, x->o, sizeof x->v);
    theory_attend(r, &p, spec, &(attn_tensors){.q = x->zeros, .k = x->zeros, .v = x->v, .o = x->o});
  }
  return layers;
}

static void measure(theory_report *r, void *at) {
  static const char *const specs[SPECS] = {"full", "longformer:window=64", "linear", "recurrent"};
  static const double exponents[SPECS] = {2, 1, 1, 1};
  complexity_room *x = at;
  int64_t n[LENGTHS];
  double lengths[LENGTHS], growing[LENGTHS];
  size_t state = 0;
  for (int l = 0; l < LENGTHS; l++) {
    char spec[40];
    n[l] = SHORTEST << l;
    lengths[l] = (double)n[l];
    snprintf(spec, sizeof spec, "longformer:window=%d", (int)n[l] / 4);
    growing[l] = work_of(r, spec, n[l], &state);
    for (int s = 0; s < SPECS; s++) { /* last the one that carries a state */
      x->work[s][l] = work_of(r, specs[s], n[l], &state);
      figure_exact(theory_point(r, specs[s], lengths[l]), x->work[s][l]);
    }
  }
  const double tolerance = 2. * HALF / (SHORTEST - 2 * HALF);
  for (int s = 0; s < SPECS; s++)
    figure_exact(theory_promise(r, false, THEORY_EQUAL, exponents[s], tolerance,
                                "exponent of n of the work, %s", specs[s]),
                 claim_slope(lengths, x->work[s], LENGTHS));
  figure_exact(
      theory_promise(r, true, THEORY_EQUAL, 1, tolerance, "exponent of n of the work, longformer:window=n/4"),
      claim_slope(lengths, growing, LENGTHS));
  figure_exact(
      theory_promise(r, false, THEORY_EQUAL, 64 * 64, 0, "numbers that recurrent carries, d = 64, n = 8192"),
      (double)state / sizeof(double));
  figure_exact(theory_show(r, "numbers in a cache of keys and values, n = 8192"),
               2. * 64 * lengths[LENGTHS - 1]);
  for (int s = 0; s < 2; s++)
    figure_exact(theory_promise(r, false, THEORY_EQUAL, s ? (TOKENS - 1) / HALF : 1, 0,
                                "layers from the first of %d tokens to the last, %s", TOKENS, specs[s]),
                 path_of(r, x, specs[s]));
  if (!r->status) r->status = claim_times(&(claim_options){.seed = 0}, specs, TIMED, n, 3, x->seconds);
  for (int s = 0; s < TIMED && !r->status; s++)
    figure_slope(theory_show(r, "exponent of n of processor time, n = 512 ... 2048, %s", specs[s]), lengths,
                 3, x->seconds + s * CLAIM_ROUNDS * 3, CLAIM_ROUNDS, "rounds");
}

THEORY_DEFINE(
    complexity, .name = "complexity",
    .statement =
        "attention to all keys works in n^2; a window, features and a state in n; a window of h keys back "
        "reaches across n tokens in n / h layers, attention in one",
    .assumption = "the window does not grow with n", .otherwise = "a window of n / 4",
    .source = "Vaswani et al. 2017 (arXiv:1706.03762), Table 1", .x = "n", .y = "multiply-adds",
    .room = sizeof(complexity_room), .measure = measure);
