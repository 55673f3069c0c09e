/* attn_variant.h - what a variant is made of, for those who write one or look into a plan: capabilities,
 * the context and the builder, the parts, the view, memory; of the headers that it includes
 * attn_arithmetic.h has what variants compute with, attn_engines.h, attn_features.h, attn_selector.h and
 * attn_lowrank.h have the parts, attn_tools.h the readers of files that parameters name. */
#ifndef ATTN_VARIANT_H
#define ATTN_VARIANT_H

#include "attn_arithmetic.h"
#include "attn_gradients.h"
#include "attn_tools.h"

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
       ATTN_CAP_POSITIONS = 1u << 12,  /* heeds attn_call.q_position and k_position */
       ATTN_CAP_HALF = 1u << 13,       /* tensors that are stored in another type (attn_stride.stored) */
       ATTN_CAP_KEYS = 1u << 14, /* one softmax over keys that its parts name: a term of a join may be it */
       ATTN_CAP_FEATURES = 1u << 15, /* sums of features: the last term of a join may be it */
       ATTN_CAP_STORE = 1u << 16,    /* a store of keys and values: it may stand behind '|' */
       ATTN_CAP_RELATIVE = 1u << 17, /* attn_score.relative, if not all of ATTN_CAP_SCORE */
       /* What the softmax engine gives every pattern and selector; what the linear engine gives every feature
          map. A pattern
	 * whose row and group accept every position 0 ... n_kv - 1 declares ATTN_CAP_POSITIONS as well. */
       ATTN_CAP_SOFTMAX = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_STOCHASTIC |
                          ATTN_CAP_CONVEX | ATTN_CAP_SHIFT | ATTN_CAP_SCORE | ATTN_CAP_MASK | ATTN_CAP_HALF |
                          ATTN_CAP_KEYS,
       ATTN_CAP_LINEAR = ATTN_CAP_CAUSAL | ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_STOCHASTIC |
                         ATTN_CAP_CONVEX | ATTN_CAP_PERMUTATION | ATTN_CAP_HALF | ATTN_CAP_FEATURES,
};

/* What every variant is checked for unless it says that it cannot keep it, and why. */
enum {                                  /* attn_exemption.properties */
       ATTN_EXEMPT_LOOKAHEAD = 1u << 0, /* of causal rows: later keys enter, later values do not */
       ATTN_EXEMPT_PREFIX = 1u << 1,    /* a causal row may depend on the length of the sequence */
       ATTN_EXEMPT_ROWS = 1u << 2,      /* a row may depend on other queries */
       ATTN_EXEMPT_BATCH = 1u << 3,     /* on other batch entries */
       ATTN_EXEMPT_LENGTH = 1u << 4,    /* at some lengths the output is not that of the definition */
       ATTN_EXEMPT_GROUPS = 1u << 5,    /* heads that share keys are not heads with copies of them */
       ATTN_EXEMPT_CAUSAL = 1u << 6,    /* of causal rows: later keys and values enter */
       ATTN_EXEMPT_VALUES = 1u << 7,    /* which keys are taken depends on V */
       ATTN_EXEMPT_HEADS = 1u << 8,     /* a row may depend on other kv heads */
       ATTN_EXEMPT_BITS = 1u << 9, /* sums may be of another order in another call, which are made in turn */
};
typedef struct attn_exemption {
  uint32_t properties;
  const char *reason; /* one sentence; NULL ends the list */
} attn_exemption;
/* Why a list, or NULL, exempts from some of these properties; NULL: it does not. */
static inline const char *attn_exempt(const attn_exemption *list, uint32_t properties) {
  while (list && list->reason && !(list->properties & properties)) list++;
  return list ? list->reason : NULL;
}

typedef struct attn_view attn_view; /* what checks and plots may look into */

/* What every function of a variant may look at. */
typedef struct attn_context {
  const attn_problem *problem; /* resolved */
  const attn_variant *variant;
  const void *params;
  const struct attn_expression *expression; /* attn_expression.h; NULL: the spec is a single name */
  const attn_kernels *kernels;
  int threads;
  attn_blocks blocks; /* what 0 means in a tiling, except of kernels with their own; none is 0 */
  bool verify;        /* this is attn_plan_verify: a work size has room for redzones */
} attn_context;

typedef struct attn_builder attn_builder;
ATTN_API const attn_context *attn_builder_context(const attn_builder *);
/* count * size bytes, 64-byte aligned, owned by the plan. NULL with the error recorded. */
ATTN_API void *attn_builder_alloc(attn_builder *, int64_t count, size_t size);
/* *kept: a copy of the value in the plan's memory; without a builder (NULL) NULL. */
ATTN_API attn_status attn_builder_keep(attn_builder *, const void *value, size_t size, const void **kept);
/* As attn_builder_alloc, but released when the (outer) plan is made. */
ATTN_API void *attn_builder_scratch(attn_builder *, int64_t count, size_t size);
/* Gives the plan a foreign handle, released with it, or at once if this or a later step of planning fails. */
ATTN_API attn_status attn_builder_own(attn_builder *, void *handle, void (*release)(void *handle));
/* A plan within the plan: of another spec or problem, with the threads, instruction set and blocks of this
 * one. It lies in the outer plan's memory, which counts it, and goes with it. The problem may say where rows
 * lie in the caller's work memory, by its strides. It is executed like any plan, with separate work
 * memory. */
ATTN_API attn_status attn_builder_plan(attn_builder *, const attn_problem *, const char *spec,
                                       const attn_plan **);
/* Its work memory and cost; pure. As attn_estimate. */
ATTN_API attn_status attn_context_estimate(const attn_context *, const attn_problem *, const char *spec,
                                           size_t *work_size, attn_cost *);

typedef struct attn_kv_store attn_kv_store;
/* Rows that queries read in place of the call's, as far as attn_kv_coded of the store says. */
typedef struct attn_settled {
  const void *k, *v; /* NULL: these are read as they are given */
  attn_stride k_at, v_at;
  const attn_kv_store *store;
} attn_settled;

typedef struct attn_call {
  const attn_context *context;
  const void *q, *k, *v; /* by the problem's strides, as these say that they are stored */
  const int64_t *kv_len,
      *q_position; /* [batch]; or NULL, as are q_position and k_position.at without ATTN_CAP_POSITIONS */
  attn_key_positions k_position;
  void *o, *work;      /* work is 64-byte aligned here */
  double *lse;         /* [batch, heads, n_q]; NULL if it is not wanted, always without ATTN_CAP_LSE */
  attn_guards *guards; /* NULL but under attn_plan_verify */
  attn_stages *stages; /* to which the engine adds its own; NULL: nobody asks */
  const attn_settled *settled; /* NULL, except in calls of the softmax engines */
  const attn_extra *extra;     /* [extras] */
  int64_t extras;
  const void *state; /* NULL, except in calls of the recurrent engine */
  void *state_after;
} attn_call;

/* The call's extra tensor of this name, or NULL. Elements of a row of it, [columns]: of one of its heads, and
 * of a query head, which may share them with others. */
ATTN_API const attn_extra *attn_call_extra(const attn_call *, const char *name);
ATTN_API const void *attn_extra_row(const attn_extra *, int64_t batch, int64_t head, int64_t row);
ATTN_API const void *attn_call_extra_row(const attn_call *, const attn_extra *, int64_t batch, int64_t head,
                                         int64_t row);
/* Number of keys that exist in a batch entry. */
ATTN_API int64_t attn_call_keys(const attn_call *, int64_t batch);
/* position(i) of a query of a batch entry. */
static inline int64_t attn_call_position(const attn_call *call, int64_t batch, int64_t i) {
  return call->q_position ? call->q_position[batch] + i : attn_problem_position(call->context->problem, i);
}
/* Does the call say where queries or keys stand? */
static inline bool attn_call_placed(const attn_call *call) { return call->q_position || call->k_position.at; }
/* Are scores as they are, and keys hidden by causality and padding alone? */
static inline bool attn_problem_plain(const attn_problem *p) {
  const attn_score *s = &p->score;
  return !p->mask.kind && !(s->softcap > 0) && !(s->leaky > 0) && !s->relative && !s->dense.at && !s->sink;
}
/* The problem of a batch entry and query head, with attn_problem.positions as the call says them: for the
 * functions below, which take a problem and a query. */
ATTN_API attn_problem attn_call_problem(const attn_call *, int64_t batch, int64_t head);
/* Runs an inner plan on the call's tensors and positions, with the given o, lse (or NULL) and work. */
ATTN_API attn_status attn_call_run(const attn_call *, const attn_plan *, void *o, double *lse, void *work);
/* The gradients of an inner plan at the call's tensors, o and lse (NULL where it gives none) as it left them;
 * work of attn_plan_backward_size bytes. */
ATTN_API attn_status attn_call_backward(const attn_call *, const attn_plan *, void *o, double *lse,
                                        const attn_gradients *, void *work);
/* Keys *first ... *end - 1 are those that query i may see by causality and by every mask but a user's
 * graph of several runs a row, or of heads that differ; padding is not looked at. */
ATTN_API void attn_visible_span(const attn_problem *, int64_t i, int64_t *first, int64_t *end);
/* The score of query i and key j after attn_problem.score, of t = scale * q.k, in fp64. */
ATTN_API double attn_score_of(const attn_problem *, int64_t batch, int64_t head, int64_t i, int64_t j,
                              double t);
/* Its derivative by t; of a leaky slope at 0 that of negative scores. */
ATTN_API double attn_score_slope(const attn_problem *, double t);
/* Whether attn_score.dense hides the key: its bias is -Inf. */
ATTN_API bool attn_score_hides(const attn_problem *, int64_t batch, int64_t head, int64_t i, int64_t j);
/* Address of row 0 of a tensor's (batch, head), and of row i. dtype: the problem's. Elements are of the type
 * attn_stored. */
ATTN_API const void *attn_rows(const void *base, attn_stride, int64_t batch, int64_t head, attn_dtype);
static inline void *attn_row(const void *base, attn_stride s, int64_t batch, int64_t head, int64_t i,
                             attn_dtype dtype) {
  return attn_at(attn_rows(base, s, batch, head, dtype), i * s.row, attn_stored(s, dtype));
}
/* Row i behind a row. */
static inline void *attn_row_behind(const void *row, attn_stride s, int64_t i, attn_dtype dtype) {
  return attn_at(row, i * s.row, attn_stored(s, dtype));
}
/* Bytes of Q, K, V and O. */
ATTN_API double attn_problem_bytes(const attn_problem *);

/* How rounding errors enter a computed row; the terms of the floating-point bounds (FP-1 ... FP-3). Relative
 * errors are at most bf16's unit roundoff, 2^-8, chains at most 16 roundings a term and 4096 besides:
 * attn_plan_inspect refuses more, which is no rounding. */
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

/* x[j] <- the score of query i and key first + j, of x[j] = q.k: attn_problem.scale and score. */
ATTN_API void attn_score_row(const attn_call *, int64_t batch, int64_t head, int64_t i, int64_t first,
                             int64_t count, void *x);
/* Of attn_softmax_row, followed by attn_gemm. */
ATTN_API attn_rounding attn_softmax_row_rounding(const attn_context *);

/* A matrix from a file that a parameter names, by the program's reader. values: row-major, to be released
 * with free. */
ATTN_API attn_status attn_matrix_read(const char *path, int64_t *rows, int64_t *columns, double **values);
/* A carver that counts, for work_size; one at call->work or within. */
static inline attn_carver attn_carver_count(const attn_context *c) {
  return (attn_carver){NULL, 0, c->verify ? ATTN_REDZONE : 0, NULL};
}
static inline attn_carver attn_carver_at(const attn_call *call, void *base) {
  return (attn_carver){(char *)base, 0, call->context->verify ? ATTN_REDZONE : 0, call->guards};
}

/* Asks for a row of x, to be read soon, from memory: where the processor cannot see which one comes next.
 * Rows that do not exist may be asked for. Nothing where the compiler has no word for it. */
static inline void attn_prefetch_row(const void *x, int64_t columns, attn_dtype t) {
#ifdef __GNUC__
  const char *row = x;
  for (size_t at = 0; at < attn_row_bytes(columns, t); at += 64) __builtin_prefetch(row + at, 0, 2);
#else
  (void)x, (void)columns, (void)t;
#endif
}

typedef struct attn_parts attn_parts; /* what a variant is made of */

typedef enum { ATTN_QUERY, ATTN_KEY, ATTN_VALUE } attn_side;

#include "attn_engines.h"
#include "attn_features.h"
#include "attn_lowrank.h"
#include "attn_eviction.h"

/* -- what a variant is made of -- */

/* The parameter that buys accuracy. */
typedef struct attn_budget {
  const char *parameter; /* NULL: there is none */
  /* Its value for `needed` random vectors, slots, or keys around a query; 0: no value gives that many. NULL:
   * `needed` itself. */
  int64_t (*value)(const attn_context *, int64_t needed);
} attn_budget;

/* How attention is computed from parts: by an engine, or by a method of the variant that no engine makes. */
typedef struct attn_method {
  /* Bytes of work memory, of parts described with or without a builder; pure. NULL: none. */
  attn_status (*work_size)(const attn_context *, const attn_parts *, size_t *);
  /* *state: what execute and inspect take. The parts live as long as the plan. NULL: the state is NULL. */
  attn_status (*plan)(attn_builder *, const attn_parts *, void **state);
  attn_status (*execute)(const void *state, const attn_call *);
  /* What is known beyond the parts. NULL: nothing. */
  void (*inspect)(const void *state, const attn_context *, attn_view *);
  /* The gradients (attn_gradients.h): bytes of work memory of a planned state, pure; EUNSUPPORTED gives the
   * reason why there are none. In the call o and lse are those of the execution. NULL: there are none. */
  attn_status (*backward_size)(const void *state, const attn_context *, const attn_parts *, size_t *);
  attn_status (*backward)(const void *state, const attn_call *, const attn_gradients *);
  const char *no_gradient; /* why there are none, where backward_size is NULL; NULL: no reason is given */
  bool bias_gradients;     /* backward adds to drelative and ddense; else they are refused */
} attn_method;

/* The parts of a variant with the parameters and the problem of a context. A part whose function is NULL is
 * not there; with none, every query attends to every key (ATTN_CAP_EXACT). A pattern or a selector names
 * keys; features sum over all keys, and beside a pattern or a selector over those that it leaves; a
 * projection makes few keys of many; a recurrence keeps a state of them; a store rounds them; a normaliser
 * weighs them by another function than softmax; landmarks and picked rows (of low_rank) stand for others, and
 * means of blocks for the keys that are far. */
struct attn_parts {
  /* Set to the variant's beforehand: what these parameters change of it. */
  uint32_t caps;
  const char *seed;
  const attn_exemption *exempt;
  attn_pattern pattern;
  attn_selector selector;
  attn_feature_map features;
  attn_projection projection;
  attn_recurrence recurrence;
  attn_kv_store store;       /* in which types keys and values are read; zeros: as they are given */
  attn_tiling tiling;        /* of a pattern or of every key */
  attn_kv_rule cache;        /* the selection is what a cache holds under it; score NULL: it is not */
  const attn_method *method; /* NULL: that of the engine that accepts the parts */
  /* What a method states of itself; an engine states its own rounding. */
  attn_low_rank low_rank;     /* rank 0: none; a part if it has landmarks or picked rows */
  attn_latent latent;         /* rank 0: none */
  attn_pooling pooling;       /* a part; block 0: none */
  attn_rounding rounding;     /* unit 0: none */
  attn_toeplitz toeplitz;     /* beside features; block 0: none */
  attn_normaliser normaliser; /* of every key's score; normalise NULL: softmax */
};

/* What checks and plots may look into; pointers live as long as the plan, and are NULL where they mean
 * nothing. caps, seed, exempt: those of the parts. rounding.unit is 0 where no descriptor is given. */
struct attn_view {
  uint32_t caps;
  const char *seed; /* the parameter of which another value makes independent draws; NULL: nothing is drawn */
  attn_budget budget;
  const attn_exemption *exempt;
  const attn_pattern *pattern;
  const attn_selector *selector;
  const attn_feature_map *features;
  const attn_projection *projection;
  const attn_recurrence *recurrence;
  const attn_kv_rule *cache;
  const attn_kv_store *store;
  const attn_low_rank *low_rank;
  const attn_latent *latent;
  const attn_pooling *pooling;
  const attn_relocation *relocation;
  const struct attn_expression *expression; /* of a sum or of dyadic, not of a join */
  const attn_residual *residual;            /* then the view has no pattern, selector or features */
  bool gradients;                           /* attn_plan_backward gives them */
  bool by_features; /* a query meets keys by features, in one term of an expression at least */
  attn_rounding rounding;
  const attn_toeplitz *toeplitz; /* then the view has no features */
  const attn_normaliser *normaliser;
};

/* EINVAL: the descriptors cannot be followed: a NULL function, a number out of range, no such parameter. */
ATTN_API attn_status attn_plan_inspect(const attn_plan *, attn_view *);
ATTN_API const attn_context *attn_plan_context(const attn_plan *);
ATTN_API const attn_variant *attn_plan_variant(const attn_plan *);

struct attn_variant {
  uint32_t abi, size; /* ATTN_ABI, sizeof(attn_variant) */
  const char *name, *summary, *cite;
  /* What a row computes, or which keys it sees, and what that costs, in one line: "keys |i - j| <= w; O(n w
   * d)". NULL: it is not said. */
  const char *formula;
  uint32_t caps;
  const attn_param *params; /* ends with a row whose name is NULL */
  size_t params_size;
  const char *seed;             /* the parameter that seeds the draws; NULL: nothing is drawn */
  attn_budget budget;           /* zero: no parameter of the kind */
  const attn_exemption *exempt; /* NULL: from nothing */
  /* The expression that the variant names, in which {name} is replaced by a parameter's value; the caps are
   * then the expression's (attn_expression.h). */
  const char *expression;
  /* Conditions beyond caps, each with its reason; NULL: none. */
  attn_status (*applicable)(const attn_context *);
  /* Fills the parts. With a builder it prepares what their functions read; without one (NULL) sizes alone are
   * asked for: no function of a part is called, and the states may be NULL. Sizes with a builder are at most
   * those without. */
  attn_status (*describe)(attn_builder *, const attn_context *, attn_parts *);
  attn_cost (*cost)(const attn_context *); /* pure */
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
