/* kernels.h - the table of kernels of one instruction set and dtype.
 *
 * One body per operation (body.inc) is written on a small SIMD vocabulary. The file of an instruction set,
 * such as avx2.c, defines the vocabulary for fp32 and fp64 and includes the body. dispatch.c chooses a table,
 * and a plan keeps it. Pointers are to elements of the table's dtype; strides count elements. */
#ifndef ATTN_CORE_KERNELS_KERNELS_H
#define ATTN_CORE_KERNELS_KERNELS_H

#include "attn_arithmetic.h"

enum {
  ATTN_LANES = ATTN_TILE, /* queries of one tile: a bit each in a key's mask */
  ATTN_EXP_ZERO = -1075,  /* 2^x rounds to 0 in fp64 below this x */
  ATTN_DECODE_ROWS = 16,  /* up to this many queries the kernels for decoding are faster */
  PEAK_BYTES = 4096,      /* of random numbers: in L1 together with everything else */
};

/* Keys key ... end - 1 of a step, for which the vectors first ... last - 1 of a group of lanes are computed:
 * no other lane sees any of them. masked: not all of these lanes see all of them. */
typedef struct attn_span {
  int64_t key, end;
  int first, last;
  bool masked;
} attn_span;

/* Up to ATTN_LANES queries in transposed form, lanes = queries, in groups of as many lanes as fit the
 * registers: S^T = K Q^T and O^T += V^T P^T then need no horizontal operation, and K and V are read in
 * place. */
typedef struct attn_tile {
  void *q;          /* [group][d_qk][lane of group] */
  void *o;          /* [group][d_v][lane of group], unnormalised */
  void *weights;    /* [keys of a step][lane of group] */
  attn_span *spans; /* room for as many as keys of a step */
  void *max;        /* [lane] running maximum of the scores, in units of log 2 */
  void *sum;        /* [lane] running sum of weights */
  void *packed;     /* queries in the form of attn_tile_kernels.room */
  void *scratch;    /* of a step */
  int64_t rows;     /* lanes in use */
  uint64_t seen;    /* lanes that have seen a key */
} attn_tile;

/* Bytes that kernels with a room need besides: for the queries of a tile, for the keys and values of a step
 * (once for all tiles), and while a tile takes a step. */
typedef struct attn_tile_room {
  size_t query, step, scratch;
} attn_tile_room;

/* What becomes of a score, in units of log 2: cap tanh(t / cap), or leaky t where t < 0; 0: neither. */
typedef struct attn_score_map {
  double cap, leaky;
} attn_score_map;

/* The biases of the lanes of a tile: for the key j, log2(e) dense[j] + relative[-j], where they are not
 * NULL. */
typedef struct attn_bias_lanes {
  int64_t rows;
  attn_dtype dtype;                 /* of dense */
  const void *dense[ATTN_LANES];    /* in units of log e */
  const void *relative[ATTN_LANES]; /* of the table's dtype, in units of log 2 */
} attn_bias_lanes;

/* Keys of one online step: rows keys[0 .. count) of k and v. mask: for each key the lanes that see it; NULL:
 * all. map: NULL where scores stay as they are. bias: for each key what is added to the lanes' scores after
 * the map, [ATTN_LANES] in units of log 2; NULL: nothing. */
typedef struct attn_step {
  const void *k, *v;
  int64_t k_row, v_row;
  attn_dtype stored; /* of k and v, f16 or bf16: for a tile whose rows see all keys; 0: the arithmetic's */
  const int64_t *keys;
  int64_t first; /* place of keys[0] among the keys that were packed */
  int64_t count;
  int64_t seen; /* by a row, at most */
  const uint64_t *mask;
  const attn_score_map *map;
  const void *const *bias;
  void *packed; /* these keys and values as attn_tile_kernels.pack left them */
} attn_step;

#define ATTN_LOG2E 1.4426950408889634
/* Of the largest number: the largest score whose product with log2(e) is finite. */
#define ATTN_SCORE_MOST 0.693

/* How a tile of queries takes keys. */
typedef struct attn_tile_kernels {
  /* Loads queries q[0 .. tile->rows), addresses of rows, and resets the running state. */
  void (*begin)(attn_tile *, const void *const *q, int64_t d_qk, int64_t d_v);
  /* scale: of the scores, times log2(e). */
  void (*step)(attn_tile *, const attn_step *, int64_t d_qk, int64_t d_v, double scale);
  /* The same if some row has a score in the step that is not below its maximum before the step plus margin,
   * in units of log 2; else nothing changes, and it returns false. NULL: only `tile` has it. */
  bool (*step_above)(attn_tile *, const attn_step *, int64_t d_qk, int64_t d_v, double scale, double margin);
  /* Adds what another tile of the same queries has taken: M = max(M1, M2), O = 2^(M1 - M) O1 + 2^(M2 - M)
   * O2. */
  void (*merge)(attn_tile *, const attn_tile *from, int64_t d_v);
  /* Writes the normalised rows to o[0 .. tile->rows); a lane that saw no key gives zeros. Returns the lanes
   * whose row has an infinite element. */
  uint64_t (*end)(const attn_tile *, void *const *o, int64_t d_v);
  int64_t lanes; /* most rows of a tile */
  int64_t row_unit,
      width_unit;      /* q and o have room for rows and elements of a row up to multiples of these */
  int64_t key_unit;    /* where a tile may begin to take a step: at multiples of this */
  int64_t stored_unit; /* attn_step.stored: of rows of multiples of this many elements; 0: of none */
  /* The rest is for kernels on tile products, and NULL or 0 for others. */
  void (*pack)(const attn_step *, int64_t d_qk, int64_t d_v, void *room); /* before tiles take the step */
  attn_tile_room (*room)(int64_t keys, int64_t d_qk, int64_t d_v); /* at most, for steps of `keys` keys */
  void (*enter)(void); /* each thread, before any of the above and after all of them */
  void (*leave)(void);
  int64_t products; /* tile products for one 16 x 32 by 32 x 16 product of the tensors: bf16 1, split 6 */
} attn_tile_kernels;

typedef struct attn_peak_loop {
  double flops; /* of a step */
  double (*run)(int64_t steps, const void *factors);
} attn_peak_loop;

/* Attention of fp32 by tile products of bf16 (bf16.inc). */
typedef struct attn_products {
  attn_tile_kernels bf16, split; /* operands rounded to bf16, or in three terms of bf16 */
  bool emulated;                 /* they are not the processor's own */
  bool split_pays;               /* six of them are faster than a product in fp32 */
  void (*one)(float *c, const uint32_t *a, const uint32_t *b); /* one of them, to be tested */
  attn_peak_loop peak;
} attn_products;

struct attn_kernels {
  const char *isa;
  attn_dtype dtype;
  int64_t key_bytes;   /* of a key's weights that a step uses at a time */
  double exp_error;    /* relative error of one exponential */
  double map_error;    /* of cap tanh(t / cap) */
  int64_t gemm_depth;  /* the sum over k is taken in blocks of this many */
  int64_t gemm_width;  /* columns of B that are best packed at once */
  int64_t gemm_group;  /* a packed B has whole groups of this many columns */
  int64_t row_lanes;   /* partial sums of softmax_row */
  size_t gemm_scratch; /* bytes for a block of A */

  attn_tile_kernels tile;        /* for many queries */
  attn_tile_kernels decode;      /* for few queries */
  const attn_products *products; /* of fp32; NULL: none */

  /* Elements that are stored in another type, from and to the table's; NULL of a type that it does not
   * take. Of rows, those that stand at keys[i] of x (NULL: at i), `row` elements apart. */
  void (*load[ATTN_STORES])(int64_t rows, int64_t count, const void *x, int64_t row, const int64_t *keys,
                            void *to, int64_t to_row);
  void (*store[ATTN_DTYPES])(int64_t count, const void *x, void *to);
  /* As attn_weight_product, of fp32; NULL of ATTN_WEIGHT_NONE. */
  void (*weights[ATTN_WEIGHT_FORMATS])(int64_t rows, int64_t n, int64_t k, const void *const *w,
                                       const float *x, int64_t x_row, bool accumulate, float *y,
                                       int64_t y_row);
  void (*gemm_pack)(int64_t k, int64_t n, attn_matrix b, void *packed);
  void (*gemm)(int64_t m, int64_t n, int64_t k, attn_matrix a, attn_packed b, bool accumulate, void *c,
               int64_t c_row, void *scratch);
  /* Of a step's scores s = q.k and dp = d_o.v, [keys][ATTN_LANES], its weights and the gradients by the
   * scores, in place (backward.inc), for some lanes. scale: times log2(e); lse + rest in units of log 2, and
   * delta, [ATTN_LANES]. */
  void (*step_back)(const attn_step *, int64_t first, int64_t lanes, double scale, const void *lse,
                    const void *rest, const void *delta, void *s, void *dp);
  /* x <- softmax(scale x) over count elements; scale times log2(e), as above. */
  void (*softmax_row)(int64_t count, void *x, double scale);
  int64_t (*count_above)(int64_t count, const void *x, double least); /* how many x are; count below 2^24 */
  uint64_t (*above)(int64_t count, const void *x, double least);      /* which of 64, at most, are */
  /* Leaves those x that are above `least`, and the first `equal` of those that equal it, with their columns,
   * in their order. Returns how many. */
  int64_t (*leave)(int64_t count, void *x, int32_t *columns, double least, int64_t equal);
  /* out[count][ATTN_LANES]; a lane's bit of mask is cleared where dense is -Inf. */
  void (*bias_block)(const attn_bias_lanes *, int64_t count, const int64_t *keys, void *out, uint64_t *mask);
  void (*map_row)(int64_t count, void *x, double scale, attn_score_map);              /* x <- map(scale x) */
  void (*exp_rows)(int64_t rows, int64_t count, void *x, int64_t x_row, double *max); /* as attn_exp_rows */

  /* As attn_product and the rows of features in attn_variant.h. */
  void (*product)(int64_t m, int64_t n, int64_t k, attn_matrix a, const void *b, int64_t b_row,
                  bool accumulate, void *c, int64_t c_row);
  double (*inner_row)(int64_t count, const void *x, const void *y); /* x.y, summed in fp64 */
  bool (*finite)(int64_t count, const void *x);                     /* no NaN or Inf */
  void (*trig_row)(int64_t count, const void *x, void *cosines, void *sines);
  void (*relu_row)(int64_t count, void *x);
  void (*elu_row)(int64_t count, void *x);
  void (*multiply_row)(int64_t count, const void *x, const void *y, void *z);
  void (*pairs_row)(int64_t count, const void *x, void *pairs);

  /* out[columns, rows] = x[rows, columns]^T */
  void (*transpose)(int64_t rows, int64_t columns, const void *x, int64_t x_row, void *out, int64_t out_row);
  void (*walsh)(int64_t n, int64_t columns, void *x); /* attn_wht */
  /* out[rows, columns] = diag(factor[0], factor[factor_step], ...) x */
  void (*scale_rows)(int64_t rows, int64_t columns, const void *x, int64_t x_row, const double *factor,
                     int64_t factor_step, void *out);
  /* Keys in columns, keys[d][row], of which the first `at` are multiplied by decay[l] in each row l, and k
   * becomes column `at`; then with_x and with_q[0 ... at] are the products of x and of q with them. Columns
   * behind are zeros before and after, up to whole 64 bytes, and so are their products. */
  void (*decay_keys)(int64_t d, int64_t at, void *keys, int64_t row, const void *decay, const void *k,
                     const void *x, const void *q, void *with_x, void *with_q);
  /* The way back, of rows of d: arrived[0 ... at] += pairs[j] q (NULL: of none), fall (NULL: none) +=
   * arrived[j] . keys[j] of the rows before `at`, which then are multiplied by decay. */
  void (*decay_back)(int64_t d, int64_t at, void *arrived, const void *decay, const void *pairs,
                     const void *q, const void *keys, void *fall);
  double (*dot_row)(int64_t count, const void *x, const void *y);
  /* x <- weights x + add; returns sum x. weights NULL: 1 */
  double (*weigh_row)(int64_t count, void *x, const void *weights, double add);
  void (*scale_row)(int64_t count, double a, const void *x, void *out); /* out = a x; out may be x */
  void (*divide_row)(int64_t count, const void *x, double divisor, void *out);
  void (*fill_row)(int64_t count, double value, void *out);
  /* out = a x + b y; out may be x or y */
  void (*combine_rows)(int64_t count, double a, const void *x, double b, const void *y, void *out);

  /* What bounds all of the above (peak.c): steps * flops operations on PEAK_BYTES of numbers of magnitude
   * below 1; one pass over count elements, up to whole steps. Both return something that depends on all. */
  attn_peak_loop peak;
  double (*read)(int64_t count, const void *x);
};

typedef struct attn_isa {
  const char *name;
  bool (*has)(void);              /* the processor has it and the system saves its registers */
  bool (*correct)(void);          /* it computes what its manual says; NULL: not in doubt */
  const attn_kernels *kernels[2]; /* of ATTN_F32 and ATTN_F64 */
} attn_isa;

extern const attn_kernels attn_kernels_scalar_f32, attn_kernels_scalar_f64;
extern const attn_kernels attn_kernels_avx2_f32, attn_kernels_avx2_f64;
extern const attn_kernels attn_kernels_avx512_f32, attn_kernels_avx512_f64;
extern const attn_products attn_products_amx, attn_products_avx512_bf16; /* beside the kernels of avx512 */
extern const attn_kernels attn_kernels_neon_f32, attn_kernels_neon_f64;

/* Kernels of an instruction set ("": the environment's or the best); EINVAL names the known ones. */
attn_status attn_kernels_select(const char *isa, attn_dtype, const attn_kernels **);

/* Roundings of a score before its scaling is counted: in fp64 scale * log2(e) is itself rounded twice. */
static inline int64_t attn_score_chain(const attn_problem *p) {
  return p->d_qk + (attn_numbers[p->dtype].unit < 0x1p-52 ? 1 : 0);
}

/* In plain C: a tile product (emulated.inc), and the dot products that avx512_bf16.c has in its place. */
void attn_emulated_product(float *c, const uint32_t *a, const uint32_t *b);
void attn_emulated_dots(float *c, const uint32_t *a, const uint32_t *b);

bool attn_cpu_has_avx2(void);
bool attn_cpu_has_avx512(void);
bool attn_cpu_has_avx512_bf16(void);
bool attn_cpu_has_amx(void); /* asks the kernel of the system for the process's right to use it */

#endif
