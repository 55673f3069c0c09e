/* attn.h - the public header of libattn, for those who compute attention. attn_tools.h, for programs that
 * read what users write, and attn_variant.h, for those who write variants or look into plans, include it.
 *
 * Attention: o_i = sum_j p_ij v_j with p_i = softmax_j(scale * q_i . k_j) over the keys that query i may see
 * (Vaswani et al. 2017), and its efficient approximations behind one interface.
 *
 * Part 1  errors
 * Part 2  the problem: shapes, strides, scale, transforms of the scores, masks
 * Part 3  attention: in one call; by a plan, which is executed any number of times
 * Part 4  the registry and parameters
 * Part 5  the fp64 reference
 * Part 6  versions
 *
 * Conventions. Tensors are [batch, heads, n, d] with element strides given in the problem; the last axis is
 * contiguous. Sizes and strides count elements, work sizes count bytes. Every fallible function returns an
 * attn_status, writes its result through a pointer that stays untouched on failure, and leaves one line of
 * explanation in attn_last_error(). The library never prints, exits or aborts. A NULL where none is allowed
 * is EINVAL with the argument's name; a function without a status then gives 0, NULL, NaN or -1, and one
 * without a result does nothing. */
#ifndef ATTN_H
#define ATTN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the shared library exports; everything else in it is hidden. */
#if defined(__GNUC__)
#define ATTN_API __attribute__((visibility("default")))
#else
#define ATTN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Part 1: errors ------------------------------------------------------------------------------------ */

typedef enum {
  ATTN_OK,
  ATTN_EINVAL,       /* an argument is wrong, or contradicts another */
  ATTN_EUNSUPPORTED, /* well formed, but this variant or machine cannot do it; the message says why */
  ATTN_ENOMEM,       /* the allocator refused */
  ATTN_ENOTFOUND,    /* no such variant, parameter or file */
  ATTN_EEXIST,       /* the name is taken */
  ATTN_EABI,         /* a plug-in built for another interface */
  ATTN_ENUMERIC,     /* a computation that cannot be carried out in the given precision */
  ATTN_EFOREIGN,     /* a library or system call failed */
} attn_status;

ATTN_API const char *attn_status_name(attn_status);

/* The message of this thread's last failure: one line, never NULL, valid until the thread's next failure. */
ATTN_API const char *attn_last_error(void);

/* Records a printf-style message and returns the status: `return attn_fail(ATTN_EINVAL, "n=%d", n);` */
ATTN_API attn_status attn_fail(attn_status, const char *format, ...);

/* ---- Part 2: the problem ------------------------------------------------------------------------------- */

/* Types of numbers. Tensors are stored in any of the first ATTN_DTYPES; kernels compute in fp32 and fp64.
 * Keys and values may also be codes of few bits (core/kernels/codes.h has each), in blocks of 32 elements of
 * a row: rows of a tensor then begin at multiples of 32 elements. */
typedef enum {
  ATTN_F32,
  ATTN_F64,
  ATTN_F16,  /* IEEE binary16 */
  ATTN_BF16, /* bfloat16 */
  ATTN_FP8,  /* e4m3 */
  ATTN_Q8_0, /* llama.cpp's */
  ATTN_Q4_0,
  ATTN_INT1, /* 1 ... 8 bits, with a scale and a least value */
  ATTN_INT2,
  ATTN_INT3,
  ATTN_INT4,
  ATTN_INT5,
  ATTN_INT6,
  ATTN_INT7,
  ATTN_INT8,
} attn_dtype;
enum { ATTN_DTYPES = 4, ATTN_STORES = 15 };

/* What is known of each. Conversions round to nearest, ties to even: what is too large becomes Inf,
 * subnormals are kept, NaN stays NaN. Of codes unit is 0, and what is not finite becomes NaN, with its whole
 * block where that has a scale. */
typedef struct attn_number {
  const char *name;         /* "f32" */
  size_t bytes;             /* of an element; of a block of codes */
  int shift;                /* a block is 2^shift elements: 0, or 5 of codes */
  attn_dtype arithmetic;    /* of the kernels for tensors that are stored so: ATTN_F32 or ATTN_F64 */
  double unit;              /* unit roundoff: 2^-24 of fp32 */
  double largest;           /* finite number */
  double normal, subnormal; /* least positive ones */
  void (*load)(const void *x, int64_t count, double *to);
  void (*store)(const double *x, int64_t count, void *to);
  bool (*finite)(const void *x, int64_t count); /* no NaN, no Inf */
  /* to [d] += the sum of `count` rows of d elements, `row` elements apart */
  void (*add)(const void *x, int64_t row, int64_t count, int64_t d, double *to);
} attn_number;
ATTN_API extern const attn_number attn_numbers[ATTN_STORES];

/* The type of tensors of that name; false: there is none. */
ATTN_API bool attn_dtype_find(const char *name, attn_dtype *);
/* y[0 .. count) <- x, in another type */
ATTN_API void attn_convert(const void *x, attn_dtype from, int64_t count, attn_dtype to, void *y);
static inline size_t attn_dtype_size(attn_dtype t) { return attn_numbers[t].bytes; }
/* Elements from row to row of d elements where rows follow each other, negative where they are too many;
 * bytes of such a row. */
static inline int64_t attn_row_elements(int64_t d, attn_dtype t) {
  const uint64_t last = (UINT64_C(1) << attn_numbers[t].shift) - 1;
  return (int64_t)(((uint64_t)d + last) & ~last);
}
static inline size_t attn_row_bytes(int64_t d, attn_dtype t) {
  return (size_t)(attn_row_elements(d, t) >> attn_numbers[t].shift) * attn_numbers[t].bytes;
}

typedef struct attn_stride {
  int64_t batch, head, row; /* elements between neighbours; all zero means contiguous [batch, heads, n, d] */
  attn_dtype stored; /* the type of this tensor's elements, of Q and O not codes; 0: attn_problem.dtype */
} attn_stride;
static inline attn_dtype attn_stored(attn_stride s, attn_dtype dtype) { return s.stored ? s.stored : dtype; }

typedef struct attn_pattern attn_pattern; /* which keys a query sees: attn_variant.h */

/* Numbers that are added to the scores: that of (batch b, query head h, query i, key j) stands at b * batch +
 * h * head + i * row + j. -Inf: the query does not see the key; NaN and +Inf do to a row what such scores
 * do. */
typedef struct attn_bias {
  const void *at; /* NULL: none */
  attn_dtype dtype;
  int64_t batch, head, row; /* elements between neighbours; batch and head may be 0: the same for all */
} attn_bias;

/* What becomes of the score t = scale * q.k of query i and key j, in this order:
 *   t <- softcap * tanh(t / softcap), or t <- t < 0 ? leaky * t : t
 *   t <- t + relative[h][clamp(position(i) - position(j) + zero, 0, span - 1)]
 *   t <- t + dense[b][h][i][j]
 * and the row's softmax has sink[h] as one more logit, whose value is 0. All zeros: nothing of it.
 * Soft cap: Gemma 2 (arXiv:2408.00118); leaky: GAT (arXiv:1710.10903); relative: ALiBi (arXiv:2108.12409), T5
 * (arXiv:1910.10683); sink: Xiao et al. 2023 (arXiv:2309.17453), section 4. A soft cap, a sink, relative
 * numbers and the scale are at most 0.693 of the largest number of the arithmetic; beyond it a finite dense
 * bias counts as that. */
typedef struct attn_score {
  double softcap;         /* > 0; 0: none */
  double leaky;           /* 0 < leaky < 1; 0: none. Not together with softcap */
  const double *relative; /* [relative_heads][span], of finite numbers; NULL: none. A plan copies it */
  int64_t relative_heads, /* 1 or heads */
      span, zero;         /* 0 <= zero < span */
  attn_bias dense;        /* the caller's, for the life of a plan: each execution reads it */
  const double *sink;     /* [heads], finite; NULL: none. A plan copies it */
} attn_score;

/* Which keys exist for a query besides `causal` and padding; j is the position of a key. */
typedef enum {
  ATTN_MASK_NONE,
  ATTN_MASK_PREFIX,       /* key j < size, or j <= position(i) */
  ATTN_MASK_BLOCK_CAUSAL, /* j / size <= position(i) / size */
  ATTN_MASK_DOCUMENTS,    /* both in one of the documents offsets[d] ... offsets[d + 1] - 1 */
  ATTN_MASK_PATTERN,      /* the user's graph */
} attn_mask_kind;
typedef struct attn_mask {
  attn_mask_kind kind;
  int64_t size;           /* of the prefix (from 0), or of a block (from 1) */
  const int64_t *offsets; /* [count + 1], ascending from 0 to n_kv; a plan copies them */
  int64_t count;          /* documents, at least 1 */
  /* Runs of step 1; its functions and state live as long as a plan. A call with positions may ask it for
   * any. */
  const attn_pattern *pattern;
} attn_mask;

/* Where queries and keys stand among the positions 0 ... n_kv - 1. Zeros: key j stands at j, and query i at i
 * + n_kv - n_q (bottom right). Otherwise these are of one batch entry and kv head: attn_reference_row takes
 * them, a plan does not, since they come with each call (attn_tensors). */
typedef struct attn_positions {
  int64_t shift;      /* how much further than at the bottom right the queries stand; negative: before that */
  const int64_t *key; /* [keys] of the keys that exist, ascending; NULL: key j stands at j */
  int64_t keys;
} attn_positions;

typedef struct attn_problem {
  int64_t batch;
  int64_t heads;    /* query heads */
  int64_t kv_heads; /* divides heads; query head h reads key/value head h / (heads / kv_heads) */
  int64_t n_q, n_kv;
  int64_t d_qk, d_v;
  attn_stride q, k, v, o;
  /* Of tensors and arithmetic. ATTN_F16, ATTN_BF16: all tensors are stored so, and converted row by row for
   * fp32 arithmetic; resolved, it is ATTN_F32, and q.stored, ... are what it was. */
  attn_dtype dtype;
  bool causal;  /* query i sees key j iff position(j) <= position(i); by default j <= i + n_kv - n_q */
  double scale; /* of the scores; finite */
  attn_score score;
  attn_mask mask;
  attn_positions positions;
} attn_problem;

/* position(i) of query i, and position(j) of key j. */
static inline int64_t attn_problem_position(const attn_problem *p, int64_t i) {
  return i + p->n_kv - p->n_q + p->positions.shift;
}
static inline int64_t attn_key_position(const attn_problem *p, int64_t j) {
  return p->positions.key ? p->positions.key[j] : j;
}

/* A self-attention problem of one width: kv_heads = heads, n_q = n_kv = n, d_qk = d_v = d, contiguous, fp32,
 * not causal, scale 1/sqrt(d), the scores as they are, no mask. Adjust the fields afterwards; validity is
 * checked when a plan is made. */
ATTN_API attn_problem attn_problem_make(int64_t batch, int64_t heads, int64_t n, int64_t d);

/* Checks a problem, replaces zero strides by the contiguous ones, and a dtype of 16 bits as told there.
 * EINVAL names the field. */
ATTN_API attn_status attn_problem_resolve(attn_problem *);

/* ALiBi as attn_score.relative: table [heads][2 n - 1], zero = n - 1: -slope(h) |distance|, also where the
 * key comes after the query. With m the power of two up to `heads`, the slopes are 2^(-8 h / m), h = 1 ... m,
 * then for the other heads every second of 2^(-8 h / 2m). Causal attention needs the first half alone, but
 * takes all. */
ATTN_API attn_status attn_alibi(int64_t heads, int64_t n, double *table);
/* The bucket of T5 for position(i) - j: `buckets` of them, the last for distances from most_distance up; with
 * bidirectional, half of them are for keys after the query. EINVAL: fewer than 4 (8) buckets, or
 * most_distance too small for them. */
ATTN_API attn_status attn_t5_bucket(int64_t distance, bool bidirectional, int64_t buckets,
                                    int64_t most_distance, int64_t *bucket);

/* a * b * ... without overflow into *out; EINVAL otherwise. `what` names the quantity in the message. */
ATTN_API attn_status attn_size_product(const char *what, const int64_t *factors, size_t count, size_t *out);

/* ---- Part 3: attention --------------------------------------------------------------------------------- */

/* Attention in one call: o from q, k and v by the variant that spec names, "longformer:window=256,global=4",
 * with the options' defaults. It makes a plan, executes it once and releases it: whoever computes the same
 * problem again keeps a plan, as below. Errors are those of attn_plan_create and attn_plan_execute; ENOMEM:
 * no memory for the work. */
ATTN_API attn_status attn_attention(const void *q, const void *k, const void *v, void *o,
                                    const attn_problem *, const char *spec);

/* All memory of a plan comes from its allocator: alignment is 64 bytes, alloc returns NULL on failure. */
typedef struct attn_allocator {
  void *(*alloc)(void *context, size_t bytes);
  void (*release)(void *context, void *pointer, size_t bytes);
  void *context;
} attn_allocator;

/* The exact engine's work: queries that share keys, keys of an online step. Sums run over the keys of a step,
 * and steps, so that results depend on the latter bitwise. */
typedef struct attn_blocks {
  int64_t query, key;
} attn_blocks;

enum { ATTN_BLOCK_MAX = 1 << 20 };

typedef struct attn_options {
  int threads;                     /* 0: the OpenMP default */
  const char *isa;                 /* NULL: the environment's ATTN_ISA, else the best of this machine */
  const attn_allocator *allocator; /* NULL: the C library's */
  attn_blocks blocks;              /* for variants that set none; 0: sizes that fit the caches */
} attn_options;

/* Fills in what options (or NULL) leave open, as a plan for such tensors does: threads, isa, blocks.
 * EINVAL as in attn_plan_create. */
ATTN_API attn_status attn_options_fill(const attn_options *, attn_dtype, int64_t d_qk, int64_t d_v,
                                       attn_options *);

/* Operation counts from formulas, for all heads and batches. */
typedef struct attn_cost {
  double mul_add; /* multiply-adds; flops = 2 * mul_add */
  double exp;     /* exponentials (and sines, cosines) */
  double bytes;   /* compulsory traffic: inputs, outputs and stored draws once each */
} attn_cost;

typedef struct attn_plan attn_plan;
typedef struct attn_spec attn_spec; /* part 4 */

/* Prepares a variant for a problem: draws, projections, patterns - all that does not depend on Q, K, V.
 * spec: a name and parameters, "longformer:window=256,global=4". options may be NULL. */
ATTN_API attn_status attn_plan_create(attn_plan **, const attn_problem *, const char *spec,
                                      const attn_options *);
/* The same of a parsed spec, of which the plan becomes an owner. */
ATTN_API attn_status attn_plan_create_spec(attn_plan **, const attn_problem *, const attn_spec *,
                                           const attn_options *);
ATTN_API void attn_plan_destroy(attn_plan *);

/* Positions of keys: that of key j of (batch b, kv head h) stands at at[b * batch + h * head + j]. */
typedef struct attn_key_positions {
  const int64_t *at; /* NULL: key j stands at j */
  int64_t batch,
      head; /* elements between neighbours; head may be 0: the kv heads of an entry have the same */
} attn_key_positions;

/* How long the stages of an execution took, in seconds of all threads together: selecting keys, attending to
 * them. */
typedef struct attn_stages {
  double select, attend;
} attn_stages;

/* A tensor besides q, k and v, contiguous: [batch, heads, n, columns], batch the problem's or 1, heads the
 * problem's, its kv_heads or 1, n its n_kv. name: "decay", logarithms of at most 0 of what a state keeps at
 * each key, of 1 column, or of d_qk where the rule has a decay for each, or of forget's gates, -1e30 at
 * least; "beta", 1 column, by which a key is written; "erase", d_qk columns, and "write", d_v, by which what
 * it says is taken out and its value enters; "previous", 1 column, by which the key before is written once
 * more; "angle", d_qk / 2, by which a state is turned: all finite. Of a tensor with 1 column all columns are
 * the same.
 *   Of a ranking by an index: "index_q" [batch, index heads, n_q, width], "index_k" [batch, 1, n_kv, width],
 * which come together, and "index_w" [batch, index heads, n_q, 1]; without it all weights are 1.
 *   Of a sum with gates (attn_expression.h): "gate" [batch, heads, n_q, columns], what the outputs of its
 * gated terms are multiplied by, after any sigmoid: finite, for each of them in order 1 column, or d_v.
 *   attn_extra_kinds (attn_tools.h) lists them. */
typedef struct attn_extra {
  const char *name;
  attn_dtype dtype;
  const void *at;
  int64_t batch, heads, n, columns;
} attn_extra;

/* What an execution reads and writes; what is NULL is not given.
 *   q, k, v, o  tensors by the shapes and strides of the plan's problem
 *   kv_len      [batch]: how many keys exist; the others are padding and are never read. NULL: n_kv
 *   q_position  [batch]: position of an entry's first query, 0 ... n_kv - n_q; query i stands i further.
 *               NULL: n_kv - n_q. A sequence of kv_len keys of which the queries are the last has kv_len -
 *               n_q
 *   k_position  of the keys that exist, strictly ascending in 0 ... n_kv - 1: where keys were taken out of a
 *               sequence, those that are left keep their positions. n_kv is then the length of the sequence,
 *               and kv_len the number of keys that are left
 *   lse         [batch, heads, n_q] or NULL: log sum_j exp(s_j) over the scores of the keys that a query sees
 *               and its sink, the softmax's denominator; where it sees no key the sink's logit, without a
 *               sink -Inf. By it attention over parts of the keys, a sink in one, is joined: o = sum_b w_b
 *               o_b / sum_b w_b, w_b = exp(lse_b - max lse). The running maximum and sum are those of the
 *               tensors' precision; their logarithm is taken in fp64
 *   work        attn_plan_work_size bytes, any alignment; may be NULL if that is 0
 *   stages      filled in by engines that select keys; zero with others. NULL: not wanted
 *   extra       [extras]: tensors besides, of which a variant reads those whose names it knows
 *   state       of a recurrence: what it carries before the first key, attn_plan_state_size bytes, [batch,
 *               heads, d_qk, d_v] of the problem's dtype. NULL: zeros
 *   state_after of a recurrence: where it is written what it carries behind the last key that exists; may be
 *               state. A sequence is computed in parts, a token a part, by handing it on: with its gates,
 *               since those that are drawn are of a key's number in the call; of mamba3 each part's first key
 *               lacks the term of the key before it, which is no part of the state */
typedef struct attn_tensors {
  const void *q, *k, *v;
  const int64_t *kv_len, *q_position;
  attn_key_positions k_position;
  void *o, *work;
  double *lse;
  attn_stages *stages;
  const attn_extra *extra;
  int64_t extras;
  const void *state;
  void *state_after;
} attn_tensors;

/* Computes o, and lse. Does not allocate (FFTW and the OpenMP runtime excepted); may run at the same time on
 * one plan with distinct work and o. Bitwise the same for any number of threads. A query that sees no key
 * gives zeros. Here as in attn_plan_create the caller's floating-point environment (rounding direction,
 * flushing of subnormals, exception flags) neither matters nor changes. EUNSUPPORTED: the variant lacks
 * ATTN_CAP_PADDING, ATTN_CAP_POSITIONS or ATTN_CAP_LSE, or carries no state, and is given what takes it. */
ATTN_API attn_status attn_plan_run(const attn_plan *, const attn_tensors *);

/* The same in two calls of fewer arguments; lse must not be NULL. */
ATTN_API attn_status attn_plan_execute(const attn_plan *, const void *q, const void *k, const void *v,
                                       const int64_t *kv_len, void *o, void *work);
ATTN_API attn_status attn_plan_execute_lse(const attn_plan *, const void *q, const void *k, const void *v,
                                           const int64_t *kv_len, void *o, double *lse, void *work);

/* Executes once under watch: the same bits, but slower. It tells what a variant does to memory, whose verdict
 * is worth nothing otherwise. The work memory, o, lse and what the variant's functions are to fill (features,
 * slots, scratch) hold NaN beforehand; redzones lie around all of these, and behind each piece that
 * attn_carve hands out. EFOREIGN names the variant, its function and the place of what was written outside or
 * left unwritten, of an input that was changed, or of a pattern's row that is not the same when asked again;
 * o is then worth nothing. work: attn_plan_verify_size bytes. Allocates. */
ATTN_API attn_status attn_plan_verify(const attn_plan *, const attn_tensors *);
ATTN_API size_t attn_plan_verify_size(const attn_plan *); /* bytes; SIZE_MAX: there is no such size */

ATTN_API size_t attn_plan_work_size(const attn_plan *);  /* bytes */
ATTN_API size_t attn_plan_state_size(const attn_plan *); /* bytes; 0: it carries none */
ATTN_API size_t attn_plan_bytes(const attn_plan *);      /* bytes held by the plan itself */
ATTN_API attn_cost attn_plan_cost(const attn_plan *);
ATTN_API const attn_problem *attn_plan_problem(const attn_plan *); /* with strides resolved */
ATTN_API const char *attn_plan_spec(const attn_plan *); /* canonical: every parameter, in table order */
ATTN_API const attn_spec *attn_plan_parsed_spec(const attn_plan *); /* the same; lives as long as the plan */
ATTN_API const char *attn_plan_isa(const attn_plan *);

/* Would this spec run, with how much work memory and at what cost? Pure: makes no plan, allocates O(1).
 * Any result pointer may be NULL. EUNSUPPORTED or EINVAL says why not. */
ATTN_API attn_status attn_estimate(const attn_problem *, const char *spec, const attn_options *,
                                   size_t *work_size, attn_cost *);
ATTN_API attn_status attn_estimate_spec(const attn_problem *, const attn_spec *, const attn_options *,
                                        size_t *work_size, attn_cost *);

/* What bounds an execution here and now, on the same vocabulary as the kernels. Both run for the given time.
 * The rate of independent multiply-adds (2 flops each) on random data, without memory traffic, over all
 * threads; for bf16 that of tile products, emulated where the processor has none. The rate at which all
 * threads together read a buffer of `bytes`, over and over, each its own part: of memory if the buffer
 * exceeds the caches. EINVAL: a part is smaller than a page. options may be NULL. */
typedef enum { ATTN_PEAK_F32, ATTN_PEAK_F64, ATTN_PEAK_BF16 } attn_peak_kind;
ATTN_API attn_status attn_peak(const attn_options *, attn_peak_kind, double seconds,
                               double *flops_per_second);
ATTN_API attn_status attn_read_bandwidth(const attn_options *, const void *buffer, size_t bytes,
                                         double seconds, double *bytes_per_second);

/* Instruction sets of this machine that the library has kernels for, best first, NULL-terminated. */
ATTN_API const char *const *attn_isa_list(void);
/* Those that the processor has, but whose products are not what its manual says: they are not used. */
ATTN_API const char *const *attn_isa_wrong(void);

/* Bytes of the first processor's cache of level 1 (data), 2 or 3, and its source: "sysconf", "/sys" or,
 * without either, "assumed". */
typedef struct attn_cache {
  int64_t bytes;
  const char *from;
} attn_cache;
ATTN_API attn_cache attn_cache_size(int level); /* another level: 0 bytes, "none" */

/* ---- Part 4: the registry and parameters --------------------------------------------------------------- */

typedef struct attn_int_list {
  int64_t count;
  const int64_t *items;
} attn_int_list;

typedef enum {
  ATTN_INT,      /* int64_t, as attn_int_parse reads it */
  ATTN_REAL,     /* double */
  ATTN_CHOICE,   /* int: index into choices */
  ATTN_TEXT,     /* const char *: the path of a file, or "" */
  ATTN_INT_LIST, /* attn_int_list, written 3+17+40, ascending and distinct */
} attn_param_type;

/* One row of a variant's parameter table; it drives the parser, `attnlab describe`, the ranges, the error
 * messages and the attributes of the results file. */
typedef struct attn_param {
  const char *name;
  attn_param_type type;
  size_t offset;   /* of the field in the variant's parameter struct */
  double min, max; /* inclusive; of each item for a list */
  /* The default, as it would be written; of an ATTN_INT also "min(8,NAME)", no more than the ATTN_INT of that
   * name. */
  const char *preset;
  const char *const *choices; /* NULL-terminated, for ATTN_CHOICE */
  const char *help;
} attn_param;

typedef struct attn_variant attn_variant;

ATTN_API size_t attn_variant_count(void);
ATTN_API const attn_variant *attn_variant_at(size_t index); /* registration order, NULL past the end */
ATTN_API attn_status attn_variant_find(const char *name, const attn_variant **);
/* EEXIST: another variant has the name; EABI. The same again changes nothing. Not thread-safe. */
ATTN_API attn_status attn_variant_register(const attn_variant *);
/* A shared object with attn_plugin(); a list of them with colons, as in ATTN_PLUGIN_PATH, NULL is fine. */
ATTN_API attn_status attn_plugin_load(const char *path);
ATTN_API attn_status attn_plugin_load_path(const char *colon_separated);

/* Parses "name=value,name=value" (or "" or NULL) by a table into a new parameter block of `size` bytes,
 * presets for what is not named, and into canonical text. owner names the whole in messages: "variant
 * longformer". Release the block with attn_params_free, the text with free. */
ATTN_API attn_status attn_params_parse(const char *owner, const attn_param *table, size_t size,
                                       const char *text, void **params, char **canonical);
ATTN_API void attn_params_free(const attn_param *table, void *params);

/* A parsed spec. It never changes. It may have several owners, each with an attn_spec * to destroy; a
 * borrower has a const attn_spec *. A function that writes an attn_spec * makes its caller an owner. */
struct attn_spec {
  const attn_variant *variant;
  void *params;                             /* of variant->params_size bytes */
  char *text;                               /* canonical */
  const struct attn_expression *expression; /* NULL: the spec is a single name */
};

ATTN_API attn_status attn_spec_parse(attn_spec **, const char *text);
ATTN_API attn_spec *attn_spec_share(const attn_spec *); /* the same spec for one more owner; of NULL, NULL */
ATTN_API void attn_spec_destroy(attn_spec *);           /* the last owner releases it */
ATTN_API bool attn_spec_equal(const attn_spec *, const attn_spec *); /* the same canonical text */

/* Parameters by their names. In an expression a name means the parameter of every term that has it, and the
 * name of the expression's seed means the seed of every term. */
/* Did the text that was parsed give the parameter a value, or leave it at its default? */
ATTN_API bool attn_spec_names(const attn_spec *, const char *parameter);
/* The value as attn_param_number gives it, of the first term that has the parameter; NaN: none has. */
ATTN_API double attn_spec_number(const attn_spec *, const char *parameter);
/* *out: the spec with another value, as it would be written. EINVAL: no such parameter, or no value of it. */
ATTN_API attn_status attn_spec_with(const attn_spec *, const char *parameter, const char *value,
                                    attn_spec **out);
ATTN_API attn_status attn_spec_with_int(const attn_spec *, const char *parameter, int64_t value,
                                        attn_spec **out);
/* The same of a seed: beyond the range that all terms take, seeds begin again. */
ATTN_API attn_status attn_spec_with_seed(const attn_spec *, const char *parameter, int64_t seed,
                                         attn_spec **out);
/* *out: the canonical text with only those parameters for which keep is true, to be freed. of: the variant
 * with its parameters, a term of an expression; preset: the parameter has its default. */
typedef bool (*attn_param_filter)(void *context, const attn_spec *of, const attn_param *, bool preset);
ATTN_API attn_status attn_spec_print(const attn_spec *, attn_param_filter keep, void *context, char **out);

/* Value of one parameter as it would be written, into buffer (truncated to size). */
ATTN_API void attn_param_print(const attn_param *, const void *params, char *buffer, size_t size);
/* Value as a number (choice: its index; list: its length; text: NaN). */
ATTN_API double attn_param_number(const attn_param *, const void *params);

/* ---- Part 5: the fp64 reference ------------------------------------------------------------------------ */

/* One row of exact attention in fp64 by the textbook formula, independent of every kernel: weights p [n_kv]
 * (or NULL) and output o [d_v] (or NULL) of query row i of (batch, head). pattern: NULL for every key.
 * scratch: n_kv doubles. Returns the number of keys seen; with none, p and o are zeros; -1: the problem is
 * wrong, or there is no memory for the runs of a pattern or for a mask that is a graph. With a sink the
 * weights do not add up to 1. Inputs as in attn_plan_execute, positions as the problem says. */
ATTN_API int64_t attn_reference_row(const attn_problem *, const attn_pattern *, const void *q, const void *k,
                                    const void *v, const int64_t *kv_len, int64_t batch, int64_t head,
                                    int64_t i, double *p, double *o, double *scratch);

/* ---- Part 6: versions ---------------------------------------------------------------------------------- */

/* The binary interface of both headers. Every incompatible change of a struct, a function or an enumeration
 * raises it: 9 since a variant describes its parts, a call says where queries and keys stand, and has
 * stages, tensors say how they are stored, and specs have owners; 10 since a view says whether features are
 * met, and under which rule a cache holds keys; 11 since such a rule has a schedule and chunks; 12 since
 * scores may read values, products and vectors of a file, and stores code groups of tokens; 13 since kv
 * heads may share the budget of a rule, and variants may be recurrences; 14 since calls have extra tensors,
 * which gates of recurrences read, rules admit keys by their scores, latents have a prompt and shared
 * columns; 15 since recurrences turn their state and carry keys, selections rank by an index or have margins,
 * normalisers, means of keys and picked rows are parts; 16 since methods have a backward pass, sums have
 * gates, and gates gradients; 18 since biases have gradients. A variant built for another is refused
 * (ATTN_EABI). */
#define ATTN_ABI 18u

ATTN_API unsigned attn_abi(void);        /* ATTN_ABI as the library was built */
ATTN_API const char *attn_version(void); /* of the library, "0.1.0" */

/* sizeof of a public struct by its name without attn_, such as "problem" or "options"; 0: no such struct. For
 * callers that declare them in another language. */
ATTN_API size_t attn_sizeof(const char *name);

#ifdef __cplusplus
}
#endif
#endif
