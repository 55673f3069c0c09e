/* checks_generator.h - random features of the fake with a deliberately wrong generator; drawn anew
 * for each seed, as those of a real variant. */
#ifndef TESTS_SUPPORT_CHECKS_GENERATOR_H
#define TESTS_SUPPORT_CHECKS_GENERATOR_H

#include "tests/support/checks_fake.h"

typedef struct generator_fault {
  bool independent; /* not orthogonal */
  bool leaning;     /* the first component of each block's first vector is negative */
  double length;    /* of every vector; 0: chi_d draws */
  double gain;      /* of w in the features */
  bool uneven;      /* every other product is a half as large, the others by a half larger */
  bool few;         /* draws: those of a thousand seeds */
} generator_fault;

static generator_fault fault;

static inline double generator_dot(const double *a, const double *b, int64_t d) {
  double sum = 0;
  for (int64_t l = 0; l < d; l++) sum += a[l] * b[l];
  return sum;
}

/* m vectors of R^d: Haar blocks by Gram and Schmidt, with their own lengths. */
static inline void generator_draw(attn_rng *rng, int64_t m, int64_t d, double *w) {
  for (int64_t r = 0; r < m; r++) {
    double *own = w + r * d, length = 0;
    for (int64_t l = 0; l < d; l++) own[l] = attn_rng_normal(rng);
    for (int64_t s = r / d * d; s < r && !fault.independent; s++) {
      const double *other = w + s * d;
      double share = generator_dot(own, other, d) / generator_dot(other, other, d);
      for (int64_t l = 0; l < d; l++) own[l] -= share * other[l];
    }
    for (int64_t l = 0; l < d; l++) {
      double x = attn_rng_normal(rng);
      length += x * x;
    }
    length = fault.length > 0 ? fault.length : sqrt(length);
    if (fault.independent && !(fault.length > 0)) continue;
    length /= sqrt(generator_dot(own, own, d));
    if (fault.leaning && r % d == 0 && own[0] > 0) length = -length;
    for (int64_t l = 0; l < d; l++) own[l] *= length;
  }
}

/* Positive, trigonometric or rectified features by the law that the fake claims, or w.x itself. */
static void generator_map(const void *state, const attn_context *c, const attn_feature_rows *given, void *f_,
                          int64_t f_row, double *scale) {
  const fake_params *p = c->params;
  const double *x = given->x;
  const int64_t rows = given->rows, stride = given->stride;
  double *f = f_, root = sqrt(c->problem->scale) * fault.gain;
  attn_features_kind kind = fake.view.features->law.kind;
  int64_t m = p->w, d = c->problem->d_qk;
  double *w = malloc((size_t)(m * d) * sizeof *w);
  attn_rng rng = rng_of((uint64_t)(fault.few ? p->r % 1000 : p->r), 3, 3);
  generator_draw(&rng, m, d, w);
  (void)state;
  for (int64_t i = 0; i < rows; i++) {
    const double *at = x + i * stride;
    double half = c->problem->scale * generator_dot(at, at, d) / 2;
    scale[i] = kind == ATTN_FEATURES_POSITIVE ? -half : kind == ATTN_FEATURES_TRIG ? half : 0;
    for (int64_t r = 0; r < m; r++) {
      double t = root * generator_dot(at, w + r * d, d), *to = f + i * f_row + r;
      if (kind == ATTN_FEATURES_TRIG) to[m] = sin(t);
      *to = kind == ATTN_FEATURES_POSITIVE ? exp(t)
            : kind == ATTN_FEATURES_TRIG   ? cos(t)
            : kind == ATTN_FEATURES_RELU   ? fmax(t, 0)
                                           : t;
      if (fault.uneven) *to *= sqrt(r % 2 ? 0.5 : 1.5);
    }
  }
  free(w);
}

/* Orthogonal vectors with chi lengths. */
static inline attn_feature_law generator_law(attn_features_kind kind, int64_t vectors) {
  return (attn_feature_law){
      .kind = kind, .vectors = vectors, .orthogonal = true, .softmax = kind != ATTN_FEATURES_RELU};
}

/* One check on a run of the fake with such features. */
static inline result_bound generator_check(const char *name, attn_feature_law law, int64_t d,
                                           generator_fault wrong) {
  int64_t columns = law.kind == ATTN_FEATURES_TRIG ? 2 * law.vectors : law.vectors;
  attn_feature_map map = {.columns = columns, .map = generator_map, .law = law};
  fake_reset(weight_exact);
  fault = wrong;
  fake.view.features = &map;
  return case_judge(text_of("fake:w=%d", (int)law.vectors), attn_problem_make(1, 1, 20, d), 0.5, name);
}

#endif
