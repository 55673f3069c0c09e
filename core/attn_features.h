/* attn_features.h - the descriptors of linear attention: feature maps and their laws, biases of the distance
 * whose sums are convolutions, and exact keys beside features of the rest. Part of attn_variant.h, which
 * includes it. */
#ifndef ATTN_FEATURES_H
#define ATTN_FEATURES_H

/* -- features: linear attention, o = phi(q)^T (sum_j phi(k_j) v_j^T) / phi(q)^T sum_j phi(k_j) -- */

typedef enum {
  ATTN_FEATURES_UNKNOWN,    /* no law */
  ATTN_FEATURES_POSITIVE,   /* exp(w.x - |x|^2/2); or of attn_feature_law.a */
  ATTN_FEATURES_HYPERBOLIC, /* the same of w and -w */
  ATTN_FEATURES_TRIG,       /* exp(|x|^2/2) (cos w.x, sin w.x) */
  ATTN_FEATURES_RELU,       /* max(w.x, 0) */
  ATTN_FEATURES_OTHER,      /* of a kernel that mean and square state */
  ATTN_FEATURES_FIXED,      /* nothing is drawn: of a kernel that kernel states */
} attn_features_kind;

/* How the random vectors of different kv heads hang together. */
typedef enum {
  ATTN_DRAWS_ANY,    /* not said: the same, or independent */
  ATTN_DRAWS_SHARED, /* the same, to the bit */
  ATTN_DRAWS_APART,  /* independent */
} attn_draws;

/* A query and a key at these positions, d_qk components each. */
typedef struct attn_feature_pair {
  const double *q, *k;
  int64_t query, key;
} attn_feature_pair;

/* The law of features, which checks hold the map against. x and y are a query and a key times
 * sqrt(scale); column c belongs to the random vector c mod vectors, and the product of a vector is the sum of
 * phi_c(x) phi_c(y) over its columns. */
typedef struct attn_feature_law {
  attn_features_kind kind;
  int64_t vectors;   /* number drawn: N(0, I) of d_qk components, unless a member below says otherwise */
  bool orthogonal;   /* in blocks of d_qk vectors, the last of which may be shorter; else independent */
  bool fixed_length; /* orthogonal vectors of length sqrt(d_qk), not of chi-distributed lengths */
  bool softmax;      /* the kernel that is estimated is exp(x.y) */
  attn_draws heads;
  /* ATTN_FEATURES_POSITIVE: (1 - 4a)^(d/4) exp(a |w|^2 + sqrt(1 - 4a) w.x - |x|^2/2), d components, a <
   * 1/8. */
  double a;
  /* ATTN_FEATURES_OTHER: mean over the draws of a vector's product, and of its square. */
  double (*mean)(const void *state, double x_square, double y_square, double inner);
  double (*square)(const void *state, double x_square, double y_square, double inner);
  /* ATTN_FEATURES_FIXED: (phi(q) + eps).(phi(k) + eps) from the definition, apart from map. *size: what its
   * rounding is relative to: with features in arithmetic of unit u it is off by O(d_qk + columns) u *size at
   * the most, so that *size >= sum_c |phi_c(q) phi_c(k)|. */
  double (*kernel)(const void *state, const attn_context *, const attn_feature_pair *, double *size);
  int64_t degree; /* the kernel is sum_(g <= degree) s^g / g!, s the score; 0: another one */
} attn_feature_law;

/* Rows of a kv head on their way through a map: queries or keys of d_qk elements, `stride` apart, the first
 * of them at this position (queries: among the keys), each one further than the row before it. */
typedef struct attn_feature_rows {
  int64_t head;
  attn_side side;
  const void *x;
  int64_t stride, first, rows;
} attn_feature_rows;

/* Gradients on their way back through a map: of rows f, as it gave them, by f and by scale (NULL: zeros). */
typedef struct attn_feature_gradients {
  void *f, *df; /* may be overwritten */
  int64_t f_row;
  const double *dscale; /* [rows] */
  void *dx;             /* [rows] of d_qk: overwritten */
  void *scratch;        /* for attn_gemm */
} attn_feature_gradients;

/* phi(x) = exp(scale(x)) f(x): rows of f are well scaled, and scale(x), one number a row, is kept apart and
 * cancels (queries) or is carried as a running maximum (keys), so that nothing overflows and no row of a
 * causal result depends on later keys. eps > 0 adds eps to every stabilised feature, as the Performer code
 * does. */
typedef struct attn_feature_map {
  const void *state;
  int64_t columns; /* of f */
  double eps;
  /* f: rows of `columns` elements, f_row apart; scale: [rows], or NULL where it cancels. The context may be
   * another variant's, with which these features are joined: parameters are to be found in state. */
  void (*map)(const void *state, const attn_context *, const attn_feature_rows *, void *f, int64_t f_row,
              double *scale);
  /* Its vector-Jacobian product: dx_l <- sum_c df_c df_c/dx_l + dscale dscale/dx_l of each row, those of what
   * map computes, a maximum that it takes out of f included. NULL: there is no gradient. */
  void (*vjp)(const void *state, const attn_context *, const attn_feature_rows *,
              const attn_feature_gradients *);
  bool positions;      /* features depend on them */
  bool unnormalised;   /* o = phi(q)^T sum_j phi(k_j) v_j^T, without a denominator; every scale is 0 */
  double mul_add, exp; /* of map, for a row: multiply-adds, exponentials */
  attn_feature_law law;
} attn_feature_map;

ATTN_API attn_cost attn_linear_cost(const attn_context *, const attn_feature_map *);
/* The attn_variant.cost of a variant that is a feature map. */
ATTN_API attn_cost attn_features_cost(const attn_context *);

/* The fixed maps of `linear`, and of others that take them: parameters, their rows of a table (params: the
 * struct that has them, behind `member`: a prefix like "map.", or nothing), and what they make of parts. */
typedef struct attn_fixed_features {
  int64_t degree, nu, length, rows;
  double eps;
  const char *weights;
  int feature, normalise;
} attn_fixed_features;
enum { ATTN_FIXED_EXP = 5, ATTN_FIXED_HEDGEHOG = 8 }; /* attn_fixed_features.feature, the last one */
ATTN_API extern const char *const attn_fixed_features_names[];
ATTN_API extern const char *const attn_fixed_features_answers[];
#define ATTN_FIXED_FEATURES_PARAMS(params, member)                                                          \
  {"feature",           ATTN_CHOICE, offsetof(params, member feature), 0,                                   \
   ATTN_FIXED_HEDGEHOG, "elu",       attn_fixed_features_names,        "feature map"},                      \
      {"degree", ATTN_INT, offsetof(params, member degree), 1, 2, "2", NULL, "degree of taylor"},           \
      {"nu", ATTN_INT, offsetof(params, member nu), 1, 1 << 10, "3", NULL, "shifts of dpfp"},               \
      {"M",                                                                                                 \
       ATTN_INT,                                                                                            \
       offsetof(params, member length),                                                                     \
       0,                                                                                                   \
       INT64_C(1) << 31,                                                                                    \
       "0",                                                                                                 \
       NULL,                                                                                                \
       "length that cos counts in, n_kv or more; 0: n_kv"},                                                 \
      {"weights",                                                                                           \
       ATTN_TEXT,                                                                                           \
       offsetof(params, member weights),                                                                    \
       0,                                                                                                   \
       0,                                                                                                   \
       "",                                                                                                  \
       NULL,                                                                                                \
       "npy [rows, d_qk] that q and k are multiplied with first"},                                          \
      {"rows", ATTN_INT, offsetof(params, member rows), 0, 1 << 16, "0", NULL, "rows of weights; 0: d_qk"}, \
      {"eps",                                                                                               \
       ATTN_REAL,                                                                                           \
       offsetof(params, member eps),                                                                        \
       0,                                                                                                   \
       1,                                                                                                   \
       "0",                                                                                                 \
       NULL,                                                                                                \
       "added to each feature of relu, relu2, dpfp"},                                                       \
  {                                                                                                         \
    "normalise", ATTN_CHOICE, offsetof(params, member normalise), 0, 1, "yes", attn_fixed_features_answers, \
        "divide by the sum of the weights"                                                                  \
  }
/* attn_variant.applicable and .describe of them. */
ATTN_API attn_status attn_fixed_features_check(const attn_context *, const attn_fixed_features *);
ATTN_API attn_status attn_fixed_features_describe(attn_builder *, const attn_context *,
                                                  const attn_fixed_features *, attn_parts *);

/* -- features with a bias of the distance, whose sums over keys are convolutions --
 *
 *   w_ij = e^b(position(i) - position(j)) phi(q_i).phi(k_j),   o_i = sum_j w_ij v_j / sum_j w_ij */

/* Beside features, the same of queries and of keys, whose every scale is 0. A causal query meets the keys of
 * its own block one by one, and others by transforms of whole blocks, of which none has a later key. A row
 * that has met keys so is NaN where its denominator may be made of rounding. */
typedef struct attn_toeplitz {
  const void *state;
  int64_t block;   /* of causal queries, a multiple of 8 */
  attn_score bias; /* relative, relative_heads, span and zero: the numbers b; without a builder may be NULL */
  /* b, from the definition, of a problem whose score has no relative part. */
  double (*law)(const void *state, int64_t head, int64_t distance);
  /* Of a view: the features, the largest number of transforms that a row is a sum of, and the length of the
   * longest. */
  const attn_feature_map *features;
  int64_t transforms, length;
} attn_toeplitz;

/* The attn_variant.cost of such a variant. */
ATTN_API attn_cost attn_toeplitz_cost(const attn_context *);

/* -- a pattern or a selector with features: exact keys of a head, and features of all others that a query
 * sees, which are those of all keys less the head's (core/engines/linear/residual.c) -- */

/* Of a view. A row is NaN whose denominator is lost in rounding. */
typedef struct attn_residual {
  const attn_pattern *pattern; /* the head's keys; or a selector without weights and without an order */
  const attn_selector *selector;
  const attn_feature_map *features; /* eps = 0 */
} attn_residual;

/* What it costs besides attn_softmax_cost of the head's pairs and attn_linear_cost of the map. */
ATTN_API attn_cost attn_residual_cost(const attn_context *, const attn_feature_map *, double pairs);

#endif
