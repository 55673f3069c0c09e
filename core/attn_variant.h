/* attn_variant.h - what a variant is made of, for those who write one or look into a plan: capabilities, the
 * context and the builder, kernels, random numbers, memory; attn_engines.h and attn_selector.h, which it includes, have
 * the engines and their descriptors. */
#ifndef ATTN_VARIANT_H
#define ATTN_VARIANT_H

#include "attn.h"

#include <fenv.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {                           /* attn_variant.caps and attn_view.caps */
       ATTN_CAP_EXACT = 1u << 0, /* equals full attention up to rounding */
       ATTN_CAP_CAUSAL = 1u << 1,
       ATTN_CAP_CROSS = 1u << 2,       /* n_q may differ from n_kv */
       ATTN_CAP_PADDING = 1u << 3,     /* kv_len */
       ATTN_CAP_STOCHASTIC = 1u << 4,  /* the implied weights of a row sum to 1 */
       ATTN_CAP_CONVEX = 1u << 5,      /* ... and are not negative: outputs lie in the hull of V */
       ATTN_CAP_PERMUTATION = 1u << 6, /* permuting the keys (with their values) changes nothing */
       ATTN_CAP_SHIFT = 1u << 7,       /* adding one vector to every key changes nothing */
       ATTN_CAP_LSE = 1u << 8,         /* fills attn_call.lse */
       ATTN_CAP_SCORE = 1u << 9,       /* attn_problem.score */
       ATTN_CAP_MASK = 1u << 10,       /* attn_problem.mask */
       ATTN_CAP_DATA = 1u << 11,       /* which keys a query sees depends on Q and K */
       /* What the softmax engine gives every pattern. */
       ATTN_CAP_SOFTMAX = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_STOCHASTIC |
                          ATTN_CAP_CONVEX | ATTN_CAP_SHIFT | ATTN_CAP_SCORE | ATTN_CAP_MASK,
};

/* What every variant is checked for unless it says that it cannot keep it, and why. */
enum {                                  /* attn_exemption.properties */
       ATTN_EXEMPT_LOOKAHEAD = 1u << 0, /* of causal rows: later keys enter, later values do not */
       ATTN_EXEMPT_PREFIX = 1u << 1,    /* a causal row may depend on the length of the sequence */
       ATTN_EXEMPT_ROWS = 1u << 2,      /* a row may depend on other queries */
       ATTN_EXEMPT_BATCH = 1u << 3,     /* on other batch entries */
       ATTN_EXEMPT_LENGTH = 1u << 4,    /* at some lengths the output is not that of the definition */
       ATTN_EXEMPT_GROUPS = 1u << 5,    /* heads that share keys are not heads with copies of them */
};
typedef struct attn_exemption {
  uint32_t properties;
  const char *reason; /* one sentence; NULL ends the list */
} attn_exemption;

typedef struct attn_kernels attn_kernels; /* one instruction set and dtype */
typedef struct attn_view attn_view;       /* what checks and plots may look into */

/* What every function of a variant may look at. */
typedef struct attn_context {
  const attn_problem *problem; /* resolved */
  const attn_variant *variant;
  const void *params;
  const struct attn_expression *expression; /* attn_expression.h; NULL: the spec is a single name */
  const attn_kernels *kernels;
  int threads;
  attn_blocks blocks; /* what 0 means in a tiling, but for kernels with their own; none is 0 */
  bool verify;        /* this is attn_plan_verify: a work size has room for redzones */
} attn_context;

typedef struct attn_builder attn_builder;
ATTN_API const attn_context *attn_builder_context(const attn_builder *);
/* count * size bytes, 64-byte aligned, owned by the plan. NULL with the error recorded. */
ATTN_API void *attn_builder_alloc(attn_builder *, int64_t count, size_t size);
/* The same, but released when the (outer) plan is made. */
ATTN_API void *attn_builder_scratch(attn_builder *, int64_t count, size_t size);
/* Gives the plan a foreign handle, released with it, or at once if this or a later step of planning fails. */
ATTN_API attn_status attn_builder_own(attn_builder *, void *handle, void (*release)(void *handle));
/* A plan within the plan: of another spec or problem, with the threads, instruction set and blocks of this one. It lies in
 * the outer plan's memory, which counts it, and goes with it. The problem may say where rows lie in the caller's work
 * memory, by its strides. It is executed as any plan, with work memory of its own. */
ATTN_API attn_status attn_builder_plan(attn_builder *, const attn_problem *, const char *spec,
                                       const attn_plan **);
/* Its work memory and cost; pure. As attn_estimate. */
ATTN_API attn_status attn_context_estimate(const attn_context *, const attn_problem *, const char *spec,
                                           size_t *work_size, attn_cost *);

typedef struct attn_guards attn_guards; /* what attn_plan_verify watches */

typedef struct attn_call {
  const attn_context *context;
  const void *q, *k, *v;
  const int64_t *kv_len;
  void *o, *work;      /* work is 64-byte aligned here */
  double *lse;         /* [batch, heads, n_q]; NULL if it is not wanted, always without ATTN_CAP_LSE */
  attn_guards *guards; /* NULL but under attn_plan_verify */
} attn_call;

/* Number of keys that exist in a batch entry. */
ATTN_API int64_t attn_call_keys(const attn_call *, int64_t batch);
/* Are scores as they are, and keys hidden by causality and padding alone? */
static inline bool attn_problem_plain(const attn_problem *p) {
  const attn_score *s = &p->score;
  return !p->mask.kind && !(s->softcap > 0) && !(s->leaky > 0) && !s->relative && !s->dense.at && !s->sink;
}
/* Keys *first ... *end - 1 are those that query i may see by causality and by every mask but the user's graph;
 * padding is not looked at. */
ATTN_API void attn_visible_span(const attn_problem *, int64_t i, int64_t *first, int64_t *end);
/* The score of query i and key j after attn_problem.score, of t = scale * q.k, in fp64. */
ATTN_API double attn_score_of(const attn_problem *, int64_t batch, int64_t head, int64_t i, int64_t j,
                              double t);
/* Whether attn_score.dense hides the key: its bias is -Inf. */
ATTN_API bool attn_score_hides(const attn_problem *, int64_t batch, int64_t head, int64_t i, int64_t j);
/* Address of row 0 of a tensor's (batch, head). */
ATTN_API const void *attn_rows(const void *base, attn_stride, int64_t batch, int64_t head, attn_dtype);

/* How rounding errors enter a computed row; the terms of the floating-point bounds (FP-1 ... FP-3). */
typedef struct attn_rounding {
  double unit;      /* unit roundoff u */
  int64_t score;    /* D_s: longest rounding chain of q . k */
  int64_t value;    /* D_N: of the numerator sum */
  int64_t sum;      /* D_Z: of the denominator sum */
  int64_t block;    /* keys of an online step; sums are rescaled between steps. 0: no steps */
  double exp_error; /* relative error of one exponential */
  double kappa_s;   /* roundings in the exponent, in units of |m - s| */
  double kappa_d;   /* roundings of the final division */
  double map;       /* relative error of softcap tanh(t / softcap); 0 without a soft cap */
  double operand;   /* relative error of an element of Q, K or V as it is multiplied; 0: it is as given */
  double weight;    /* relative error of a weight beyond that of its exponential, the same in both sums */
  double underflow; /* absolute error of one product and its sum by underflow; 0: that of the dtype */
  const char *path; /* arithmetic of the products ("fma", "split", "bf16-emulated"); NULL without a choice */
} attn_rounding;

/* The default floating-point environment (round to nearest, subnormals kept, no traps) for the calling
 * thread, until leave. The thread that calls a variant's functions has it; a parallel region of the variant's
 * own enters it, since its threads may have been started with another. */
static inline void attn_float_enter(fenv_t *outer) {
  fegetenv(outer);
  fesetenv(FE_DFL_ENV);
}
static inline void attn_float_leave(const fenv_t *outer) { fesetenv(outer); }

/* Random numbers: a stream for each (seed, purpose, index); the same on every machine. */
typedef struct attn_rng {
  uint64_t state[4];
} attn_rng;
ATTN_API void attn_rng_init(attn_rng *, uint64_t seed, uint64_t purpose, uint64_t index);
ATTN_API uint64_t attn_rng_bits(attn_rng *);
ATTN_API double attn_rng_uniform(attn_rng *);               /* in (0, 1) */
ATTN_API double attn_rng_normal(attn_rng *);                /* N(0, 1) */
ATTN_API int64_t attn_rng_below(attn_rng *, int64_t bound); /* uniform on 0 .. bound-1, without bias */

/* C[m,n] (+)= A[m,k] B[k,n]; A and B by row and column stride in elements, C with unit column stride.
 * The sum over k runs in ascending order in blocks fixed per instruction set: row i of C depends on row i of
 * A and on B alone, bitwise. scratch: attn_gemm_scratch bytes, 64-byte aligned. */
typedef struct attn_matrix {
  const void *at;
  int64_t row, column;
} attn_matrix;
ATTN_API size_t attn_gemm_scratch(const attn_kernels *);
ATTN_API void attn_gemm(const attn_kernels *, int64_t m, int64_t n, int64_t k, attn_matrix a, attn_matrix b,
                        bool accumulate, void *c, int64_t c_row, void *scratch);

/* The same with a B that is packed once and multiplied often: the same bits. The product may be of the first
 * columns and the first rows of B alone. packed: attn_gemm_packed_bytes bytes, 64-byte aligned. */
typedef struct attn_packed {
  const void *at;
  int64_t k, n; /* of the whole B */
} attn_packed;
ATTN_API size_t attn_gemm_packed_bytes(const attn_kernels *, int64_t k, int64_t n);
ATTN_API attn_packed attn_gemm_pack(const attn_kernels *, int64_t k, int64_t n, attn_matrix b, void *packed);
ATTN_API void attn_gemm_packed(const attn_kernels *, int64_t m, int64_t n, int64_t k, attn_matrix a,
                               attn_packed b, bool accumulate, void *c, int64_t c_row, void *scratch);

/* The same of matrices that the cache holds, in place: B and C have unit column stride, and the rows of B can
 * be read up to a whole 64 bytes (attn_padded). Bitwise as above. */
ATTN_API void attn_product(const attn_kernels *, int64_t m, int64_t n, int64_t k, attn_matrix a,
                           const void *b, int64_t b_row, bool accumulate, void *c, int64_t c_row);
/* Elements from row to row of a matrix for attn_product: an odd number of 64 bytes, so that the rows of a
 * column fall into different sets of the cache. */
static inline int64_t attn_padded(int64_t columns, attn_dtype t) {
  int64_t line = 64 / (int64_t)attn_dtype_size(t);
  return ((columns + line - 1) / line | 1) * line;
}

/* Rows of features. x[rows, count] <- exp(x - max), max[row] the largest of a row, NaNs passed over; or
 * NULL. */
ATTN_API void attn_exp_rows(const attn_kernels *, int64_t rows, int64_t count, void *x, int64_t x_row,
                            double *max);
/* Cosines and sines, either of which may be x: absolute error 4 u. */
ATTN_API void attn_trig_row(const attn_kernels *, int64_t count, const void *x, void *cosines, void *sines);
/* y <- a x; y may be x */
ATTN_API void attn_scale_row(const attn_kernels *, int64_t count, double a, const void *x, void *y);
ATTN_API void attn_relu_row(const attn_kernels *, int64_t count, void *x); /* x <- max(x, 0) */
ATTN_API void attn_elu_row(const attn_kernels *, int64_t count, void *x);  /* x <- x < 0 ? exp(x) : x + 1 */
/* z <- x y, element by element; z may be x or y, or begin before them in the same memory */
ATTN_API void attn_multiply_row(const attn_kernels *, int64_t count, const void *x, const void *y, void *z);
/* pairs <- x_0^2 / sqrt(2), x_0 x_1, ..., x_1^2 / sqrt(2), x_1 x_2, ...: count (count + 1) / 2 elements, of which those of
 * x and of y have the product (x.y)^2 / 2. */
ATTN_API void attn_pairs_row(const attn_kernels *, int64_t count, const void *x, void *pairs);
ATTN_API double attn_square_row(const attn_kernels *, int64_t count, const void *x); /* x.x, summed in fp64 */
/* x[j] <- the score of query i and key first + j, of x[j] = q.k: attn_problem.scale and score. */
ATTN_API void attn_score_row(const attn_context *, int64_t batch, int64_t head, int64_t i, int64_t first,
                             int64_t count, void *x);
/* x <- softmax(scale * x); its rounding, followed by attn_gemm. */
ATTN_API void attn_softmax_row(const attn_kernels *, int64_t count, void *x, double scale);
ATTN_API attn_rounding attn_softmax_row_rounding(const attn_context *);

/* x[n, columns] <- H x, H the Walsh-Hadamard matrix of entries +-1; n a power of two. */
ATTN_API void attn_wht(const attn_kernels *, int64_t n, int64_t columns, void *x);

/* Rows of an orthogonal transform T of order n, of columns: the DCT-II, or Walsh-Hadamard with n a power of
 * two. */
typedef enum { ATTN_DCT, ATTN_WALSH } attn_transform_kind;
typedef struct attn_transform attn_transform;
ATTN_API attn_status attn_transform_create(attn_transform **, attn_transform_kind, int64_t n, attn_dtype);
ATTN_API void attn_transform_destroy(attn_transform *);
/* y[count, columns] = gain (T diag(sign) x)[rows[0 .. count)], x [x_rows, columns] followed by zeros, sign
 * +-1 for each of its rows. Each column's result depends on that column alone. */
typedef struct attn_transform_job {
  const void *x;
  int64_t x_row, x_rows, columns;
  const double *sign;
  const int64_t *rows;
  int64_t count;
  double gain;
  void *y;
  int64_t y_row;
} attn_transform_job;
enum { ATTN_TRANSFORM_COLUMNS = 16 }; /* that are transformed together */
/* scratch: attn_transform_scratch bytes for at most `count` rows, 64-byte aligned. Reentrant. */
ATTN_API void attn_transform_rows(const attn_transform *, const attn_kernels *, const attn_transform_job *,
                                  void *scratch);
ATTN_API size_t attn_transform_scratch(attn_transform_kind, int64_t n, int64_t count, attn_dtype);

/* A matrix from a file that a parameter names, by the program's reader. values: row-major, to be released
 * with free. */
ATTN_API attn_status attn_matrix_read(const char *path, int64_t *rows, int64_t *columns, double **values);
/* Is every element of `rows` rows of d finite? */
ATTN_API bool attn_all_finite(const void *x, int64_t row_stride, int64_t rows, int64_t d, attn_dtype);

/* Sizes in bytes that stay at PTRDIFF_MAX instead of wrapping round; a plan of such a work size is
 * refused. */
static inline size_t attn_size_sum(size_t a, size_t b) { return a > PTRDIFF_MAX - b ? PTRDIFF_MAX : a + b; }
static inline size_t attn_size_times(size_t a, size_t b) {
  return b && a > PTRDIFF_MAX / b ? PTRDIFF_MAX : a * b;
}

/* Hands out 64-byte aligned pieces of a workspace in order; with base NULL it only counts. Under
 * attn_plan_verify a redzone follows each piece: what is written behind it is found. */
typedef struct attn_carver {
  char *base;
  size_t used, redzone; /* bytes */
  attn_guards *guards;
} attn_carver;
enum { ATTN_REDZONE = 256 };
/* A carver that counts, for work_size; one at call->work or within. */
static inline attn_carver attn_carver_count(const attn_context *c) {
  return (attn_carver){NULL, 0, c->verify ? ATTN_REDZONE : 0, NULL};
}
static inline attn_carver attn_carver_at(const attn_call *call, void *base) {
  return (attn_carver){(char *)base, 0, call->context->verify ? ATTN_REDZONE : 0, call->guards};
}
/* Paints the redzone behind a piece, and watches it from now on. */
ATTN_API void attn_guards_piece(attn_guards *, void *piece, size_t bytes, size_t with_redzone);
/* rows * columns * size bytes */
static inline void *attn_carve(attn_carver *c, int64_t rows, int64_t columns, size_t size) {
  char *piece = c->base ? c->base + c->used : NULL;
  size_t bytes = attn_size_times(attn_size_times((size_t)rows, (size_t)columns), size);
  size_t whole = attn_size_sum(attn_size_sum(bytes, 63) & ~(size_t)63, c->redzone);
  if (piece && c->guards) attn_guards_piece(c->guards, piece, bytes, whole);
  c->used = attn_size_sum(c->used, whole);
  return piece;
}

/* `count` pieces of one size, such as one for each thread. */
typedef struct attn_slices {
  char *base;
  size_t stride; /* bytes from one to the next */
} attn_slices;
static inline attn_slices attn_carve_slices(attn_carver *c, int64_t count, size_t bytes) {
  attn_slices s = {c->base ? c->base + c->used : NULL,
                   attn_size_sum(attn_size_sum(bytes, 63) & ~(size_t)63, c->redzone)};
  if (!c->base) c->used = attn_size_sum(c->used, attn_size_times((size_t)count, s.stride));
  for (int64_t i = 0; c->base && i < count; i++) attn_carve(c, 1, 1, bytes);
  return s;
}
static inline void *attn_slice(attn_slices s, int64_t i) { return s.base + (size_t)i * s.stride; }

/* One element, for code that is not worth a kernel; the address of element i. */
static inline double attn_get(const void *x, int64_t i, attn_dtype t) {
  return t == ATTN_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}
static inline void attn_set(void *x, int64_t i, attn_dtype t, double value) {
  if (t == ATTN_F64)
    ((double *)x)[i] = value;
  else
    ((float *)x)[i] = (float)value;
}
static inline void *attn_at(const void *x, int64_t i, attn_dtype t) {
  return (char *)(uintptr_t)x + i * (int64_t)attn_dtype_size(t);
}

#include "attn_engines.h"

/* -- the variant -- */

/* The parameter that buys accuracy. */
typedef struct attn_budget {
  const char *parameter; /* NULL: there is none */
  /* Its value for so many random vectors, slots, or keys around a query; 0: it does not go so far. NULL: that
   * many. */
  int64_t (*value)(const attn_context *, int64_t needed);
} attn_budget;

/* What checks and plots may look into; pointers live as long as the plan, and are NULL where they mean
 * nothing. caps, seed, budget, exempt: the variant's, adjusted to these parameters. rounding.unit is 0 where no
 * descriptor is given. */
struct attn_view {
  uint32_t caps;
  const char *seed; /* the parameter of which another value makes independent draws; NULL: nothing is drawn */
  attn_budget budget;
  const attn_exemption *exempt;
  const attn_pattern *pattern;
  const attn_selector *selector;
  const attn_feature_map *features;
  const attn_projection *projection;
  attn_rounding rounding;
};

/* EINVAL: the descriptors cannot be followed: a NULL function, a number out of range, no such parameter. */
ATTN_API attn_status attn_plan_inspect(const attn_plan *, attn_view *);
ATTN_API const attn_context *attn_plan_context(const attn_plan *);
ATTN_API const attn_variant *attn_plan_variant(const attn_plan *);

struct attn_variant {
  uint32_t abi, size; /* ATTN_ABI, sizeof(attn_variant) */
  const char *name, *summary, *cite;
  uint32_t caps;
  const attn_param *params; /* ends with a row whose name is NULL */
  size_t params_size;
  const char *seed;             /* the parameter that seeds the draws; NULL: nothing is drawn */
  attn_budget budget;           /* zero: no parameter of the kind */
  const attn_exemption *exempt; /* NULL: from nothing */
  /* Another name for an expression, in which {name} stands for a parameter's value; the caps are then the
   * expression's (attn_expression.h). */
  const char *expression;
  /* Conditions beyond caps, each with its reason; NULL: none. */
  attn_status (*applicable)(const attn_context *);
  /* Of a variant of ATTN_SOFTMAX: its pattern. With a builder it prepares what the pattern's functions read;
   * without one (NULL) they are not called, and state may be NULL. */
  attn_status (*pattern)(attn_builder *, const attn_context *, attn_pattern *);
  size_t (*work_size)(const attn_context *); /* pure, as is cost */
  attn_cost (*cost)(const attn_context *);
  attn_status (*plan)(attn_builder *, void **state);
  attn_status (*execute)(const void *state, const attn_call *);
  void (*inspect)(const void *state, const attn_context *, attn_view *);
};

/* Ends a variant's file: ATTN_VARIANT(name, .summary = ..., and the other members). In the tree it defines
 * attn_variant_<name>, and with ATTN_PLUGIN defined the object that attn_plugin() returns. */
#ifdef ATTN_PLUGIN
ATTN_API const attn_variant *attn_plugin(void);
#define ATTN_VARIANT(name_, ...)                                                   \
  static const attn_variant attn_variant_plugin = {                                \
      .abi = ATTN_ABI, .size = sizeof(attn_variant), .name = #name_, __VA_ARGS__}; \
  const attn_variant *attn_plugin(void) { return &attn_variant_plugin; }
#else
#define ATTN_VARIANT(name_, ...)                  \
  extern const attn_variant attn_variant_##name_; \
  const attn_variant attn_variant_##name_ = {     \
      .abi = ATTN_ABI, .size = sizeof(attn_variant), .name = #name_, __VA_ARGS__};
#endif

#ifdef __cplusplus
}
#endif
#endif
