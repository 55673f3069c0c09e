/* drift.c - what is left of a state that is rounded at every key. The recursion s_t = a s_t-1 + k_t v_t^T,
 * computed and kept in a type of unit roundoff u, is perturbed by |d_t| <= e (|s^_t| + |k_t| |v_t|) at each
 * step, in Frobenius norms: e = 4 u of what computes it in fp32, for its decay, its products and its sum, and
 * what it is kept in. A perturbation decays with the rest, so that with keys and values of length 1 and M the
 * largest |s_t|
 *
 *   D = max |s^_n - s_n| <= e (M + 1 + D) G,  G = 1 + a + ... + a^(n-1) <= 1 / (1 - a),
 *   D <= e (M + 1) G / (1 - e G):
 *
 * the same at all lengths. Without a decay G is n. Nothing is promised beyond the range of the type. */
#include "experiments/theory/theory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "experiments/mathematics/vector.h"

enum { D = 8, D_V = 4, LONG = 1 << 20, SHORT = 1 << 16 };
typedef enum { DECAY, NONE, DELTA } rule;
static const double decay = 0.99;
static const char *const specs[] = {"retention,decay=constant,gamma=0.99", "retention,decay=constant,gamma=1",
                                    "delta,beta=one"};

typedef struct drift_room {
  float k[LONG * D], v[LONG * D_V], state[D * D_V], o[D_V];
  double wide[D * D_V];
} drift_room;

static const struct {
  const char *name;
  attn_dtype kept;
  int64_t longest;
} types[] = {{"own", ATTN_F32, LONG}, {"bf16", ATTN_BF16, SHORT}, {"f16", ATTN_F16, SHORT}};
enum { TYPES = sizeof types / sizeof *types };

static double unit_of(int type) {
  const double compute = 4 * attn_numbers[ATTN_F32].unit;
  return compute + (types[type].kept == ATTN_F32 ? 0 : attn_numbers[types[type].kept].unit);
}

/* Rows of length 1, times `factor`, in fp32. */
static void draw_rows(theory_report *r, int64_t count, int64_t d, double factor, float *to) {
  double row[D];
  for (int64_t i = 0; i < count; i++) {
    theory_directions(r, 1, d, 0, row);
    for (int64_t l = 0; l < d; l++) to[i * d + l] = (float)(factor * row[l]);
  }
}

/* The state behind n keys in fp64, by the rule of a decay or the delta rule, and the largest norm on the
 * way. */
static double recur(drift_room *x, rule of, int64_t n) {
  double most = 0;
  memset(x->wide, 0, sizeof x->wide);
  for (int64_t t = 0; t < n; t++) {
    double k[D], length = 0;
    for (int l = 0; l < D; l++) length += pow((double)x->k[t * D + l], 2);
    for (int l = 0; l < D; l++) k[l] = (double)x->k[t * D + l] / (of == DELTA ? sqrt(length) : 1);
    for (int c = 0; c < D_V; c++) {
      double said = 0;
      for (int l = 0; l < D && of == DELTA; l++) said += k[l] * x->wide[l * D_V + c];
      for (int l = 0; l < D; l++)
        x->wide[l * D_V + c] =
            (of == DECAY ? decay : 1) * x->wide[l * D_V + c] + k[l] * ((double)x->v[t * D_V + c] - said);
    }
    most = theory_larger(most, vector_norm(x->wide, D * D_V));
  }
  return most;
}

/* |s^_n - s_n| of the library's state in this type. */
static double drift_of(theory_report *r, drift_room *x, rule of, int type, int64_t n) {
  char spec[96];
  double state[D * D_V];
  attn_problem p = theory_problem(1, n, D, D_V, 1);
  p.dtype = ATTN_F32;
  p.causal = true;
  snprintf(spec, sizeof spec, "recurrent:rule=%s,chunk=1,state=%s", specs[of], types[type].name);
  theory_attend(r, &p, spec,
                &(attn_tensors){.q = x->k, .k = x->k, .v = x->v, .o = x->o, .state_after = x->state});
  for (int i = 0; i < D * D_V; i++) state[i] = (double)x->state[i];
  return vector_distance(state, x->wide, D * D_V);
}

static double promised(int type, double most, int64_t n) {
  const double e = unit_of(type), g = (1 - pow(decay, (double)n)) / (1 - decay);
  return e * (most + 1) * g / (1 - e * g) / most;
}

static void measure_drift(theory_report *r, void *at) {
  static const char *const names[] = {"fp32", "bf16", "f16"},
                           *const curves[][TYPES] = {{"a = 0.99, fp32", "a = 0.99, bf16", "a = 0.99, f16"},
                                                     {"a = 1, fp32", "a = 1, bf16", "a = 1, f16"},
                                                     {"delta rule, fp32", "delta rule, bf16",
                                                      "delta rule, f16"}},
                           *const bounds[] = {"bound, fp32", "bound, bf16", "bound, f16"};
  drift_room *x = at;
  draw_rows(r, LONG, D, 1, x->k);
  draw_rows(r, LONG, D_V, 1, x->v);
  for (int64_t n = 256; n <= LONG; n *= 16)
    for (rule of = DECAY; of <= DELTA; of++) {
      const double most = recur(x, of, n);
      for (int type = 0; type < TYPES; type++) {
        if (n > types[type].longest) continue;
        const double off = drift_of(r, x, of, type, n) / most;
        figure_exact(theory_point(r, curves[of][type], (double)n), off);
        if (of == DECAY) figure_exact(theory_point(r, bounds[type], (double)n), promised(type, most, n));
        if (n < types[type].longest) continue;
        figure_exact(of == DECAY ? theory_promise(r, false, THEORY_AT_MOST, promised(type, most, n), 0,
                                                  "|s^ - s| / max |s|, a = 0.99, state in %s, n = %d",
                                                  names[type], (int)n)
                                 : theory_show(r, "the same, %s, state in %s",
                                               of == NONE ? "nothing decays" : "the delta rule", names[type]),
                     off);
      }
    }
  /* Values for which some number of the state passes 65504. */
  draw_rows(r, SHORT, D_V, 0x1p16, x->v);
  const double most = recur(x, DECAY, SHORT);
  figure_exact(theory_promise(r, true, THEORY_AT_MOST, promised(2, most, SHORT), 0,
                              "|s^ - s| / max |s|, a = 0.99, state in f16, values of length 65536"),
               drift_of(r, x, DECAY, 2, SHORT) / most);
}

THEORY_DEFINE(
    drift, .name = "drift",
    .statement = "a state that decays by a drifts by about u / (1 - a) at most, however long the sequence",
    .assumption = "decays of at most a < 1, and numbers within the range of the type",
    .otherwise = "values whose sums pass the largest number of 16 bits",
    .source = "the perturbed recursion; the constants are ours", .x = "keys n", .y = "relative drift",
    .room = sizeof(drift_room), .measure = measure_drift);
