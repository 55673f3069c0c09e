/* attn_lowrank.h - what variants of low rank state of themselves: weights of few rows, keys and values of few
 * columns; and what their methods compute with. Part of attn_variant.h, which includes it. */
#ifndef ATTN_LOWRANK_H
#define ATTN_LOWRANK_H

/* -- weights of low rank that the variant's method computes -- */

typedef enum {
  ATTN_BEST_NONE,
  ATTN_BEST_WEIGHTS, /* the weights are the best approximation of the exact ones, in the Frobenius norm */
  ATTN_BEST_SCORES, /* softmax of the best approximation of the scores scale Q K^T over the keys that exist */
} attn_best;

typedef enum { ATTN_MIDDLE_NEWTON, ATTN_MIDDLE_PINV, ATTN_MIDDLE_AGENTS } attn_middle;

/* What a head's weights are made of, of rows that the variant picks from its data. The engine of picked rows
 * computes them; method may be NULL.
 *   CLUSTERS  picked[i] = the cluster of query i, and `own` = 0: its weights are softmax(scale c.k), c the
 *             mean of the queries of its cluster. own > 0: over the `own` keys of the largest c.k, of equal
 *             ones the first, they are softmax(scale q.k) times what the former have there in all.
 *   KEYS      picked are keys S. With G(x, y) = exp(-scale |x - y|^2 / 2), x_j keys less their mean, over
 *             `temperature`, and y_i queries times it, weights are in proportion to e^(scale |x_j|^2 / 2)
 *             sum_st G(y_i, x_s) (G_SS^-1)_st G(x_t, x_j), which is e^(scale q.k) where j is one of S; NaN
 *             where their sum is not above 2^-26 of that of products' magnitudes.
 *   POINTS    picked are rows of [Q; K], and weights G_iS G_SS^-1 G_Sj, which are not divided by their sum.
 * A row of which at most rcond is left by those before it in S, in G_ii = 1, is left out. scale >= 0. */
typedef enum { ATTN_PICKED_CLUSTERS, ATTN_PICKED_KEYS, ATTN_PICKED_POINTS } attn_picked;

/* What exists of a head. */
typedef struct attn_picked_head {
  int64_t n_q, keys, d;
  const double *q, *k; /* [n_q, d], [keys, d] */
} attn_picked_head;

/* With landmarks, rows Ql and Kl that represent those of a head, the weights are F Z B: F = softmax(scale Q
 * Kl^T), B = softmax(scale Ql K^T), and Z is computed from A = softmax(scale Ql Kl^T): A^+, singular values
 * of at most rcond times the largest counted as 0; or Z_t+1 = Z_t (13 I - A Z_t (15 I - A Z_t (7 I - A Z_t)))
 * / 4 after `iterations` steps from Z_0 = A^T / (|A|_1 |A|_inf). Of agents F = softmax(scale Q Ql^T), and Z =
 * I. The engine of landmarks computes them; method may be NULL. */
typedef struct attn_low_rank {
  const void *state;
  int64_t rank;   /* of what is said to be best, or of the weights, at most */
  attn_best best; /* of all of this rank */
  attn_middle middle;
  int64_t iterations;
  double rcond;
  /* Landmark l of a side is the mean of rows *first ... *first + *count - 1 of n that exist. There are
   * min(rank, n of queries, n of keys) on either side. NULL: no landmarks. */
  void (*segment)(const void *state, attn_side, int64_t n, int64_t landmarks, int64_t l, int64_t *first,
                  int64_t *count);
  /* Writes the clusters of n_q queries, or rows, and returns the number of clusters or rows, at most `rank`.
   * Pure. memory: `scratch` bytes, 64-byte aligned. NULL: nothing is picked. */
  int64_t (*pick)(const void *state, const attn_context *, const attn_picked_head *, int64_t *picked,
                  void *memory);
  size_t scratch;
  attn_picked picked;
  int64_t own;
  double temperature; /* of KEYS, above 0 */
} attn_low_rank;

/* -- keys and values of low rank, which the variant's method attends to -- */

/* Of each batch entry the matrix X = [K of all kv heads | V of all kv heads], [keys, width] with width =
 * kv_heads (d_qk + d_v), is replaced by C W^T, numbers of the problem's dtype as the method multiplies them.
 * The last `shared` columns of C are the means over kv heads of the last columns of keys; those of W are 1
 * there and 0 elsewhere. The others are the best approximation of their rank to X without these columns. With
 * a prompt W is that of the first keys, W^T W = 1, and C = X W of all, so that no later key enters; queries
 * at positions before the prompt's end read keys and values as they are given. */
typedef struct attn_latent {
  int64_t rank;   /* numbers that a cache holds of a token */
  int64_t shared; /* of these; at most d_qk */
  int64_t prompt; /* keys to which W is fitted; 0: all */
} attn_latent;

/* c [rank, keys] and w [rank, width], columns of C and W one after the other, of x [keys, width]. Where the
 * fitted keys are not finite c is NaN. room: 64-byte aligned, of that many bytes for n_kv keys. */
ATTN_API void attn_latent_factor(const attn_latent *, const attn_context *, int64_t keys, const double *x,
                                 double *c, double *w, void *room);
ATTN_API size_t attn_latent_room(const attn_latent *, const attn_problem *);
/* Numbers `first` ... rank - 1 of the row of C that belongs to the row x of X, `step` apart from c on;
 * without a prompt those that are shared. */
ATTN_API void attn_latent_project(const attn_latent *, const attn_problem *, const double *w, const double *x,
                                  int64_t first, double *c, int64_t step);
/* Row j of X, of an entry's keys and values. */
ATTN_API void attn_latent_load(const attn_problem *, const void *k, const void *v, int64_t batch, int64_t j,
                               double *x);
/* The problem of queries [.., rank] that all kv heads attend to C [batch, n_kv, rank], keys and values. */
ATTN_API attn_problem attn_latent_problem(const attn_latent *, const attn_problem *);
/* Row `at` of [batch, heads, n_q]: of its queries from the problem's, and of the problem's outputs from its
 * own. w [batch][rank, width]; room: [max(d_qk, d_v)]. */
ATTN_API void attn_latent_absorb(const attn_latent *, const attn_problem *, const double *w, const void *q,
                                 int64_t at, void *to, double *room);
ATTN_API void attn_latent_expand(const attn_latent *, const attn_problem *, const double *w, const void *from,
                                 int64_t at, void *o, double *room);

/* The power of two, 2^-1000 ... 2^1000, that brings the largest magnitude of x next to 1; 1 where all are 0.
 * Products of what is so scaled neither overflow nor vanish. */
ATTN_API double attn_unit_scale(int64_t count, const double *x);
/* Eigenvectors of a symmetric matrix [n, n], which is overwritten, as rows of `vectors`, with their values,
 * descending. scratch: 2 n. The same bits on every machine. false: it is not finite, or the iteration did not
 * converge. */
ATTN_API bool attn_eigen(int64_t n, double *matrix, double *vectors, double *values, double *scratch);

/* The cost of a variant that states landmarks. */
ATTN_API attn_cost attn_landmark_cost(const attn_context *, const attn_low_rank *);

/* The next column of a Cholesky factor of the kernel exp(-scale |x - y|^2 / 2) of points x [n, d], pivot
 * point `at`: factor [columns, n], rest [n] what the columns leave of the diagonal, 1 beforehand. raise: what
 * is added to exponents of a point; NULL: 0. false, and no column: at most `least` is left of the pivot. */
ATTN_API bool attn_gauss_column(double scale, int64_t n, int64_t d, const double *x, const double *raise,
                                int64_t at, double least, int64_t column, double *factor, double *rest);
/* Those of fp64 of the same instruction set. */
ATTN_API const attn_kernels *attn_kernels_f64(const attn_kernels *);

#endif
