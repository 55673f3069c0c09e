/* attn_arithmetic.h - what variants compute with: products of matrices, rows of scores and features,
 * transforms, random numbers, sizes and pieces of memory. Part of attn_variant.h, which includes it; kernels
 * see no more than this of the interface. */
#ifndef ATTN_ARITHMETIC_H
#define ATTN_ARITHMETIC_H

#include "attn.h"

#include <fenv.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_kernels attn_kernels; /* one instruction set and dtype */

enum { ATTN_TILE = 64 }; /* queries that share a register tile: the smallest sensible block of queries */

/* The default floating-point environment (round to nearest, subnormals kept, no traps) for the calling
 * thread, until leave. The thread that calls a variant's functions has it; a parallel region of the variant's
 * own enters it, since its threads may have been started with another. */
static inline void attn_float_enter(fenv_t *outer) {
  fegetenv(outer);
  fesetenv(FE_DFL_ENV);
}
static inline void attn_float_leave(const fenv_t *outer) { fesetenv(outer); }

static inline int64_t attn_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t attn_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t attn_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* x.y in fp64, as four sums in a fixed order; y += by x. */
static inline double attn_inner(const double *x, const double *y, int64_t n) {
  double s[4] = {0};
  int64_t l = 0;
  for (; l + 4 <= n; l += 4)
    for (int i = 0; i < 4; i++) s[i] += x[l + i] * y[l + i];
  for (; l < n; l++) s[0] += x[l] * y[l];
  return (s[0] + s[1]) + (s[2] + s[3]);
}
static inline void attn_add_times(double by, const double *x, double *y, int64_t n) {
  for (int64_t l = 0; l < n; l++) y[l] += by * x[l];
}

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

/* How a row of a model's weights is stored: as elements, or in whole blocks of codes as GGUF files hold
 * them. */
typedef enum attn_weight_format {
  ATTN_WEIGHT_NONE, /* of another kind: for who has formats that are not here */
  ATTN_WEIGHT_F32,
  ATTN_WEIGHT_F16,
  ATTN_WEIGHT_BF16,
  ATTN_WEIGHT_Q8_0,
  ATTN_WEIGHT_Q4_0,
  ATTN_WEIGHT_Q4_1,
  ATTN_WEIGHT_Q2_K,
  ATTN_WEIGHT_Q3_K,
  ATTN_WEIGHT_Q4_K,
  ATTN_WEIGHT_Q5_K,
  ATTN_WEIGHT_Q6_K,
  ATTN_WEIGHT_IQ2_XXS,
  ATTN_WEIGHT_FORMATS
} attn_weight_format;

/* y[i][r] (+)= w[r].x[i], i < n, r < rows, over k columns; y_row and x_row elements from row to row. w: the
 * addresses of rows, which are read where they are, elements aligned to their size; x, y and the arithmetic
 * are fp32 (kernels of fp64: nothing happens). No row is widened: the product is that of the exact numbers of
 * the codes up to the order of the sum, |y - w.x| <= gamma_k |w|.|x|, and depends on w[r] and x[i] alone,
 * bitwise. */
ATTN_API void attn_weight_product(const attn_kernels *, attn_weight_format, int64_t rows, int64_t n,
                                  int64_t k, const void *const *w, const float *x, int64_t x_row,
                                  bool accumulate, float *y, int64_t y_row);

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
/* Of a row f of these: df <- the gradients by x, of those by f, df, and by max, of which the first of the
 * largest x is made. */
ATTN_API void attn_exp_row_vjp(const attn_kernels *, int64_t count, const void *f, void *df, double dmax);
/* Cosines and sines, either of which may be x: absolute error 4 u. */
ATTN_API void attn_trig_row(const attn_kernels *, int64_t count, const void *x, void *cosines, void *sines);
/* y <- a x; y may be x. y <- y + a x */
ATTN_API void attn_scale_row(const attn_kernels *, int64_t count, double a, const void *x, void *y);
ATTN_API void attn_add_row(const attn_kernels *, int64_t count, double a, const void *x, void *y);
ATTN_API void attn_relu_row(const attn_kernels *, int64_t count, void *x); /* x <- max(x, 0) */
ATTN_API void attn_elu_row(const attn_kernels *, int64_t count, void *x);  /* x <- x < 0 ? exp(x) : x + 1 */
/* z <- x y, element by element; z may be x or y, or begin before them in the same memory */
ATTN_API void attn_multiply_row(const attn_kernels *, int64_t count, const void *x, const void *y, void *z);
/* pairs <- x_0^2 / sqrt(2), x_0 x_1, ..., x_1^2 / sqrt(2), x_1 x_2, ...: count (count + 1) / 2 elements, of
 * which those of x and of y have the product (x.y)^2 / 2. */
ATTN_API void attn_pairs_row(const attn_kernels *, int64_t count, const void *x, void *pairs);
ATTN_API double attn_square_row(const attn_kernels *, int64_t count, const void *x); /* x.x, summed in fp64 */
/* x <- softmax(scale * x) */
ATTN_API void attn_softmax_row(const attn_kernels *, int64_t count, void *x, double scale);

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
/* The transposed map: y [x_rows, columns] = gain (T diag(sign))^T of x [count, columns], put where `rows`
 * says and zeros elsewhere. */
ATTN_API void attn_transform_transposed(const attn_transform *, const attn_kernels *,
                                        const attn_transform_job *, void *scratch);
ATTN_API size_t attn_transform_scratch(attn_transform_kind, int64_t n, int64_t count, attn_dtype);

/* A row of a tensor, stored in a type whose arithmetic is that of the kernels: to <- x in the kernels' type,
 * and the way back. */
ATTN_API void attn_load_row(const attn_kernels *, attn_dtype stored, int64_t count, const void *x, void *to);
ATTN_API void attn_store_row(const attn_kernels *, attn_dtype stored, int64_t count, const void *x, void *to);
/* Rows of it, `row` elements apart, as products take them: where they are, if their type is the kernels' own,
 * else converted into room, [rows][columns]. */
ATTN_API attn_matrix attn_load_rows(const attn_kernels *, attn_dtype stored, const void *x, int64_t row,
                                    int64_t rows, int64_t columns, void *room);

/* Is every element of `rows` rows of d finite? */
ATTN_API bool attn_all_finite(const void *x, int64_t row_stride, int64_t rows, int64_t d, attn_dtype);

/* Sizes in bytes that stay at PTRDIFF_MAX instead of wrapping round; a plan of such a work size is
 * refused. */
static inline size_t attn_size_sum(size_t a, size_t b) { return a > PTRDIFF_MAX - b ? PTRDIFF_MAX : a + b; }
static inline size_t attn_size_times(size_t a, size_t b) {
  return b && a > PTRDIFF_MAX / b ? PTRDIFF_MAX : a * b;
}

/* The address of element i, of codes that of its block. One element, for code that is not worth a kernel;
 * attn_set not of codes. A number rounded to a type of tensors. */
static inline void *attn_at(const void *x, int64_t i, attn_dtype t) {
  return (char *)(uintptr_t)x + (i >> attn_numbers[t].shift) * (int64_t)attn_numbers[t].bytes;
}
static inline double attn_get(const void *x, int64_t i, attn_dtype t) {
  double block[32];
  int64_t at;
  switch (t) {
  case ATTN_F32:
    return (double)((const float *)x)[i];
  case ATTN_F64:
    return ((const double *)x)[i];
  default:
    at = i & (((int64_t)1 << attn_numbers[t].shift) - 1);
    attn_numbers[t].load(attn_at(x, i, t), at + 1, block);
    return block[at];
  }
}
static inline void attn_set(void *x, int64_t i, attn_dtype t, double value) {
  switch (t) {
  case ATTN_F32:
    ((float *)x)[i] = (float)value;
    break;
  case ATTN_F64:
    ((double *)x)[i] = value;
    break;
  default:
    attn_numbers[t].store(&value, 1, attn_at(x, i, t));
  }
}
static inline double attn_rounded(double x, attn_dtype t) {
  uint64_t room;
  attn_numbers[t].store(&x, 1, &room);
  attn_numbers[t].load(&room, 1, &x);
  return x;
}

typedef struct attn_guards attn_guards; /* what attn_plan_verify watches */

/* Hands out 64-byte aligned pieces of a workspace in order; with base NULL it only counts. Under
 * attn_plan_verify a redzone follows each piece: what is written behind it is found. */
typedef struct attn_carver {
  char *base;
  size_t used, redzone; /* bytes */
  attn_guards *guards;
} attn_carver;
enum { ATTN_REDZONE = 256 };
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

#ifdef __cplusplus
}
#endif
#endif
