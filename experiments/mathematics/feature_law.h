/* feature_law.h - how the vectors of random features are drawn. */
#ifndef EXPERIMENTS_MATHEMATICS_FEATURE_LAW_H
#define EXPERIMENTS_MATHEMATICS_FEATURE_LAW_H

#include "attn_variant.h"

/* The law of w_1 ... w_m. */
typedef struct feature_law {
  attn_features_kind kind;
  int64_t m, d;
  double a;        /* attn_feature_law.a */
  bool orthogonal; /* in blocks of d, of which the last has the first rows only */
  bool constant;   /* orthogonal, and of length sqrt(d) instead of chi_d draws */
  double pairs;    /* ordered pairs of vectors that share a block */
  /* So many independent vectors have a mean as spread as these at the most: E |sum W_r|^2 <= m^2 /
   * independent E |W|^2 for every W_r = W(w_r) of mean 0. Let u and v be the directions of two vectors of a
   * block, uniform and orthogonal, lengths apart. E W(u).W(v) is a form on the sphere that commutes with
   * rotations: on harmonics of degree l it is the Gegenbauer polynomial of value 1 at 1, at 0 (Funk and
   * Hecke): 0 for odd l, -1/(d-1), 3/(d^2-1), and smaller from there on. So E W_r.W_s <= 3/(d^2-1) E |W|^2,
   * and a block of s adds at most s (1 + 3 (s-1)/(d^2-1)) E |W|^2. */
  double independent;
  /* The same for tails of sums of bounded variables, where all that is used is that blocks are independent:
   * m^2 / sum s^2; and the largest share s / m. */
  double blocks, share;
} feature_law;

/* Another number of vectors. */
void feature_law_resize(feature_law *, int64_t m);
/* From the descriptor of a map of vectors of d components; map may be NULL. Returns why there is no law, or
 * NULL. */
const char *feature_law_of(const attn_feature_map *map, int64_t d, feature_law *);
/* Positive, hyperbolic or trigonometric: the softmax kernel by a known formula. */
bool feature_law_is_favor(const feature_law *);

#endif
