/* attn_engines.h - the descriptors that a variant is made of (attn_parts), which the engines follow and
 * checks hold it to: patterns and selectors for a softmax, stores, recurrences, normalisers, projections,
 * means of blocks. Part of attn_variant.h, which includes it. */
#ifndef ATTN_ENGINES_H
#define ATTN_ENGINES_H

/* -- a pattern: softmax over the keys that it names (tiled, online softmax; never stores n x n) -- */

typedef struct attn_run {
  int64_t first, count, step; /* keys first, first + step, ... ; step >= 1 */
} attn_run;

/* Which keys a query sees, before causality and padding, which the engine applies. Queries and keys are named
 * by their positions, 0 ... n_kv - 1 (attn_positions); those of queries are negative where n_q > n_kv. */
struct attn_pattern {
  const void *state;
  /* Writes disjoint runs in ascending order of first; returns how many (<= max_runs). Pure. */
  int64_t (*row)(const void *state, int64_t head, int64_t position, attn_run *runs);
  int64_t max_runs;
  /* Queries of one group share a tile, so that their keys overlap; NULL: neighbours do. Pure. */
  int64_t (*group)(const void *state, int64_t position);
  bool per_head;       /* row depends on head */
  bool per_head_later; /* without a builder: whether it does is not known yet */
  /* Runs of step 1 that the keys of a row make up; 0: max_runs, for all runs have step 1. */
  int64_t max_pieces;

  /* The law of the pattern, which checks hold row against. It is written from the definition, apart from row.
   * sees: must the query see the key, whatever is drawn? NULL: no law. */
  bool (*sees)(const void *state, int64_t head, int64_t position, int64_t key);
  /* Under a causal mask: the number of keys that a decoding cache must hold. A query sees its own key,
   * otherwise only keys that the query before it saw, and this many in all once as many exist; 0: not
   * stated. */
  int64_t cache;
  int64_t reach; /* no query sees a key further away than this; 0: unlimited */
  /* Positions come in blocks of this size: queries of a block see the same keys, and keys are drawn by the
   * block; 0: no blocks. */
  int64_t grain;
  bool global; /* some block sees every key and is seen by every query */
  /* Random parts: for each head and each block of queries this many blocks of keys are drawn uniformly
   * without replacement among the candidates, or all of them where there are fewer. Causality included. */
  int64_t drawn;
  bool (*candidate)(const void *state, int64_t head, int64_t position, int64_t block); /* NULL: none is */
};

/* The runs of query row i of a head under a pattern (NULL: every key), causality included, padding not. runs
 * has room for max_runs (1 for NULL). Runs of step 1 are of keys, others of positions, which are the same
 * unless attn_problem.positions has keys. Returns their number; -1: the pattern's row gives too many, or one
 * of first < 0 or step < 1. */
ATTN_API int64_t attn_pattern_row(const attn_pattern *, const attn_problem *, int64_t head, int64_t i,
                                  attn_run *runs);

/* Query-key pairs of a head, counted row by row; the mean over heads where they differ. NaN without
 * memory. */
ATTN_API double attn_pattern_pairs(const attn_pattern *, const attn_problem *);

/* A graph from a file that a parameter names, by the program's reader. free: what it holds; keep: moves it
 * into the plan's memory, or frees it; sees: is there this edge? Rows that the graph lacks have none. */
ATTN_API attn_status attn_graph_read(const char *path, const attn_graph_request *, attn_graph *);
ATTN_API void attn_graph_free(attn_graph *);
ATTN_API attn_status attn_graph_keep(attn_builder *, attn_graph *);
ATTN_API bool attn_graph_sees(const attn_graph *, int64_t head, int64_t row, int64_t column);
/* The runs of a row whose columns are blocks of `block` of n keys. Returns their number. */
ATTN_API int64_t attn_graph_row(const attn_graph *, int64_t head, int64_t row, int64_t block, int64_t n,
                                attn_run *runs);
/* A graph of one head whose rows have at most one column, their parent, which stands before them: EINVAL
 * (naming the file) if it is not so; the parent of a row, or -1; the runs of a row and all above it. Returns
 * how many. */
ATTN_API attn_status attn_graph_forest(const char *path, const attn_graph *);
ATTN_API int64_t attn_graph_parent(const attn_graph *, int64_t row);
ATTN_API int64_t attn_graph_ancestors(const attn_graph *, int64_t row, attn_run *runs);

/* The arithmetic of products: only fp32 tensors have a choice. */
typedef enum {
  ATTN_PATH_AUTO,  /* split where the processor multiplies tiles of bf16 itself, else FMA */
  ATTN_PATH_FMA,   /* fused multiply-adds (scalar: a product and a sum) */
  ATTN_PATH_SPLIT, /* three terms of bf16 for each element, six tile products: an error as of fp32 */
  ATTN_PATH_BF16,  /* Q, K, V and the weights rounded to bf16, fp32 sums */
} attn_path;

/* In which order a tile visits its steps of keys: ascending; from that of its last query's position
 * backwards, then what comes after it; or the same after the first. */
typedef enum { ATTN_ORDER_FORWARD, ATTN_ORDER_DIAGONAL, ATTN_ORDER_SINK_FIRST } attn_order;

/* -- a store: keys and values as a cache holds them, each row by itself or keys in groups -- */

/* How the code of a row x is made, u = x / |x|:
 *   x^ = |x| (u^ + g sqrt(pi/2) / m S' sign(S e)),   u^ = R' c(R u),   e = u - u^,   g = |e|
 * c takes each coordinate to the nearest of 2^bits levels, those of least mean square error for a coordinate
 * of a uniform unit vector. |x| and g are rounded to f16. bits 0: u^ = 0 and g = 1; signs 0: u^ alone. */
typedef struct attn_kv_law {
  int64_t bits, signs;              /* 0 ... 4; m */
  const double *rotation, *vectors; /* R [d, d], uniform over seeds; S [m, d], of N(0, 1) over seeds */
  /* Not 0, and bits and signs 0: x^ = H dec(enc(H x)) by the codes of this type, H the Walsh-Hadamard matrix
   * over sqrt(B) of B elements at a time, the largest power of two that divides d. */
  attn_dtype turned;
} attn_kv_law;

/* A code of rows that is no number type. Pure: a row's code depends on the row and the state alone. */
typedef struct attn_kv_scheme {
  const void *state;
  /* kept[d] <- dec(enc(x)) of a row of d elements, in fp64; x may be overwritten. NULL: no scheme. */
  void (*decode)(const void *state, int64_t d, double *x, double *kept);
  double bits;     /* that a row's code takes, all that is stored for the row counted */
  attn_kv_law law; /* zeros: not stated */
} attn_kv_scheme;

/* Are rows stored otherwise than they are given? */
static inline bool attn_kv_changes(attn_dtype type, const attn_kv_scheme *s) { return type || s->decode; }

struct attn_kv_store {
  attn_dtype k, v;                   /* ATTN_F32: as it is given */
  attn_kv_scheme k_scheme, v_scheme; /* in place of a type */
  const char *reader;                /* the spec of what reads them; NULL: "tiled" */
  /* residual > 0: a query reads the newest rows as they are given (attn_kv_coded). Then group > 0: keys at
   * positions c group ... c group + group - 1 are coded together, channel by channel, by the int<b> in k with
   * the group as its block, and residual is a multiple of group. prompt: queries at positions before this
   * read all rows as they are given. Without a residual group > 0: keys of a head that follow each other have
   * one scale for all their elements, with or without smooth, the int<b> in k, b >= 2 (attn_kv_groups). */
  int64_t residual, group, prompt;
  bool smooth;
};

/* Of a store with a residual and n keys that exist: the query at position t reads keys or values of positions
 * below this as they are stored. Groups wait until there are as many as the residual. */
ATTN_API int64_t attn_kv_coded(const attn_kv_store *, bool keys, int64_t t, int64_t n);

/* The scheme of a law for rows of d elements, with R and S drawn from the streams (seed, purpose, 0) and
 * (seed, purpose, 1); d >= 3 where bits > 0. Without a builder (NULL) what its code takes. */
ATTN_API attn_status attn_kv_codes(attn_builder *, int64_t d, int64_t bits, int64_t signs, uint64_t seed,
                                   uint64_t purpose, attn_kv_scheme *);
/* `count` numbers that are a block of int<bits>, 1 ... 8, as they are read; in place. */
ATTN_API void attn_kv_block(int64_t bits, int64_t count, float *x);
/* All `keys` of a head [keys, d], as they are read of a store with groups and no residual; in place:
 *   x^ = m + s round((x - m) / s),   s = max |x - m| / (2^(b-1) - 1)
 * m the mean of the keys if smooth, else 0; the maximum of a group, of which the last may be shorter. All in
 * fp32, m from a sum in fp64. A group in which a number is not finite is NaN. mean: [d], room. */
ATTN_API void attn_kv_groups(const attn_kv_store *, attn_dtype, int64_t keys, int64_t d, void *x,
                             double *mean);
/* attn_variant.cost of a store: that of exact attention, and the products with R and S. */
ATTN_API attn_cost attn_kv_store_cost(const attn_context *);
/* What a variant that is a store declares. */
#define ATTN_CAP_KV_STORE                                                                  \
  ((ATTN_CAP_SOFTMAX &                                                                     \
    ~(uint32_t)(ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX | ATTN_CAP_SHIFT | ATTN_CAP_KEYS)) | \
   ATTN_CAP_PERMUTATION | ATTN_CAP_LSE | ATTN_CAP_POSITIONS | ATTN_CAP_STORE)

/* How the engine cuts the work. A tile visits the union of its queries' keys: patterns do best with ATTN_TILE
 * queries. */
typedef struct attn_tiling {
  attn_blocks blocks; /* 0: the context's, but ATTN_TILE queries under a pattern */
  attn_path path;
  /* 0 < skip <= 1: ATTN_TILE queries of one head pass over a step if none of them has a score in it that
   * reaches its maximum so far plus ln(skip); what they visit is a selection (attn_selector.h). blocks.query:
   * at most ATTN_TILE, or a multiple of it; path: auto or fma; no pattern, and no user's graph. 0: every step
   * is taken, in ascending order. */
  double skip;
  attn_order order;
} attn_tiling;

/* The keys that query i of a head sees, of the `exist` keys there are: causality, masks and biases of -Inf.
 * runs: room for those of the problem's graph, or 1; keys: [exist]. Returns their number. */
ATTN_API int64_t attn_seen_keys(const attn_problem *, int64_t batch, int64_t head, int64_t i, int64_t exist,
                                attn_run *runs, int64_t *keys);

/* The cost of `pairs` query-key pairs of one head; the number of pairs that causality and the problem's mask
 * leave. */
ATTN_API attn_cost attn_softmax_cost(const attn_context *, double pairs);
ATTN_API double attn_visible_pairs(const attn_problem *);
/* Keys *first ... *end - 1 are those of attn_visible_span that exist; *first <= *end. */
ATTN_API void attn_visible_keys(const attn_call *, int64_t batch, int64_t head, int64_t i, int64_t *first,
                                int64_t *end);
/* The first of the last `count` of these that no bias hides from query i of the head; *first if there are
 * fewer. */
ATTN_API int64_t attn_last_keys(const attn_call *, int64_t batch, int64_t head, int64_t i, int64_t count);

/* Keys that are selected for each call. */
#include "attn_selector.h"

/* Adds keys first ... end - 1, which lie behind the others, to selection i: to its last run, where that has
 * this log-weight. A run for which max_runs leaves no room is counted, and not written. */
ATTN_API void attn_picks_add(attn_picks *, int64_t i, int64_t first, int64_t end, double log_weight);

/* x[at + i step], i = 0 ... count - 1: draws N(0, 1) rounded to fp32, so that they are the same in either
 * type. */
ATTN_API void attn_rng_normals(attn_rng *, int64_t count, attn_dtype, void *x, int64_t at, int64_t step);
/* q [d, d]: a uniform orthogonal matrix of a Gaussian one, a [d, d], which is overwritten; scratch: [d]. */
ATTN_API attn_status attn_orthogonalise(int64_t d, double *a, double *scratch, double *q);

/* Hash tables of keys: a vector's word in table t is the signs of its products with G_t [d_qk, k], whose
 * column b is drawn from the stream (seed, purpose, t << 32 | b). At most 32 signs and 1024 tables. */
typedef struct attn_sign_tables attn_sign_tables;
ATTN_API attn_status attn_sign_tables_plan(attn_builder *, int64_t k, int64_t l, uint64_t seed,
                                           uint64_t purpose, const attn_sign_tables **);
ATTN_API size_t attn_sign_tables_bytes(const attn_context *, int64_t k,
                                       int64_t l); /* of a kv head's tables */
ATTN_API size_t attn_sign_tables_scratch(const attn_context *, int64_t k, int64_t l); /* bytes, of a thread */
/* Tables of keys 0 ... count - 1, vectors [count, d_qk]. */
ATTN_API void attn_sign_tables_fill(const attn_sign_tables *, const attn_context *, int64_t count,
                                    const double *vectors, void *tables, void *scratch);
/* words [count, l] of at most 64 vectors. */
ATTN_API void attn_sign_tables_words(const attn_sign_tables *, const attn_context *, int64_t count,
                                     const double *vectors, uint32_t *words, void *scratch);
/* hits[first ... end - 1] <- the number of tables, counted up to `most`, in which the keys have these
 * words. */
ATTN_API void attn_sign_tables_count(const attn_sign_tables *, const attn_context *, const void *tables,
                                     const uint32_t *words, int64_t most, int64_t first, int64_t end,
                                     uint8_t *hits, void *scratch);
/* Rows in the order of their hashes: the signs w_b.x > 0, w_b [d_qk] drawn from the stream (seed, purpose,
 * b), by their place in the reflected Gray code. At most 32 bits. */
typedef struct attn_sign_order attn_sign_order;
ATTN_API attn_status attn_sign_order_plan(attn_builder *, int64_t bits, uint64_t seed, uint64_t purpose,
                                          const attn_sign_order **);
ATTN_API size_t attn_sign_order_scratch(const attn_context *, int64_t bits,
                                        int64_t rows); /* bytes, of a thread */
/* order [count]: rows of x, a head of Q or K, of one place as they come. */
ATTN_API void attn_sign_order_sort(const attn_sign_order *, const attn_context *, const void *x, attn_stride,
                                   int64_t count, int64_t *order, void *scratch);
/* The place of a row of that type, by its definition and apart from the sort, for laws. */
ATTN_API uint32_t attn_sign_order_place(const attn_sign_order *, const attn_problem *, const void *row,
                                        attn_dtype);

/* -- a recurrence: of each query head a state S [d_qk, d_v], from 0; only causal --
 *
 *   S' = diag(a_t) R_t S_t-1,   u_t = w_t . v_t, or with delta w_t . v_t - S'^T (b_t . k_t),
 *   S_t = S' + k_t u_t^T,       o_t = scale S_t^T q_t, or scale S_t-1^T q_t */

/* Keys are 0 ... n_kv - 1; those that do not exist (padding) change nothing. The first key of a document
 * (ATTN_MASK_DOCUMENTS) finds S = 0. */
typedef struct attn_recurrence {
  const void *state;
  int64_t chunk; /* keys that are taken together */
  bool delta;    /* what the state says of a key is taken out before its value enters */
  bool columns;  /* a_t is a vector of d_qk, else a number */
  bool before;   /* o_t = scale S_t-1^T q_t; 0 at the first key, and at that of a document */
  /* Numbers of b and w for each key: 0, b = w = 1; 1, b = w; or d_qk + d_v, b and then w. */
  int64_t betas;
  /* Without delta and columns, and with 2 betas, w and e: the key before enters once more,
   * S' = a_t R_t (S_t-1 + e_t k_t-1 v_t-1^T). */
  bool carries;
  /* R_t turns elements l and l + turns of each column by the angle l: (x, y) to (x cos - y sin, x sin + y
   * cos), l = 0 ... turns - 1; at most d_qk / 2, without columns and with at most 2 betas. 0: R = 1. */
  int64_t turns;
  /* What a key, or a query, is multiplied by, of the sum of its squares; NULL: 1. The definition itself. */
  double (*key_scale)(const void *state, int64_t d, double square);
  double (*query_scale)(const void *state, int64_t d, double square);
  /* Their derivatives by the square, without which there are no gradients. */
  double (*key_slope)(const void *state, int64_t d, double square);
  double (*query_slope)(const void *state, int64_t d, double square);
  /* o_t is divided by max(|x|, 1), x the same of values that are all 1: the sum of the row's weights. Where w
   * is no vector; then calls carry no state, and there are no gradients. */
  bool normalised;
  bool rounds; /* the state is rounded to the type `stored` at the end of each chunk, counted from key 0 */
  attn_dtype stored;
  /* Of keys first + i, i = 0 ... count - 1: logs[i], or logs[i d_qk + l], <- ln a, at most 0, -Inf forgets;
   * betas[i (betas + turns) + l] <- b and w, and behind them the angles, finite; NULL without. They may read
   * the call's extra tensors. Pure. */
  void (*gates)(const void *state, const attn_call *, int64_t batch, int64_t head, int64_t first,
                int64_t count, double *logs, double *betas);
  /* The gradients by logs and betas of one key, to be added to those by the extra tensors that gates reads,
   * as in attn_gradients; NULL: it reads none. */
  void (*gates_back)(const void *state, const attn_call *, int64_t batch, int64_t head, int64_t key,
                     const double *logs, const double *betas, double *const *dextra);
  /* The law: the same of one key, from the definition, apart from gates; `betas` is 1 before, where there are
   * none. NULL: no law. */
  void (*law)(const void *state, const attn_call *, int64_t batch, int64_t head, int64_t key, double *logs,
              double *betas);
} attn_recurrence;

/* -- weights of another function of the scores than softmax, a row at a time --
 *
 *   s_ij = scale q_i.k_j, transformed and masked, + the sum of g_h over position(j) < h <= position(i)
 *   o_i = sum_j w_ij v_j,   w_ij = weight(n, s_ij - tau_i), n the keys that the query sees */

typedef struct attn_normaliser {
  const void *state;
  /* Replaces x[n], the scores of the keys that a query sees, n > 0, by their weights. Each is accurate to 16
   * fp64 roundings, and a sum that must be 1 to 4 n + 64 of them. A NaN score gives a NaN weight. room: [n +
   * 1]. Pure. */
  void (*normalise)(const void *state, const attn_context *, int64_t n, double *x, double *room);
  /* ds[n], the gradients by the weights w[n], become those by the scores. Pure. NULL: there are none. */
  void (*differentiate)(const void *state, int64_t n, const double *w, double *ds);
  /* The law of the weights, from the definition, apart from normalise: not negative, and not falling with x.
   * tau is 0, or if sums the number for which the weights of a row sum to 1. NULL: no law. */
  double (*weight)(const void *state, int64_t n, double x);
  bool sums;
  /* Scores are gain scale q.k of columns first ... first + columns - 1 of queries and keys; columns 0: of
   * all, and gain is not read. */
  int64_t first, columns;
  double gain;
  double reach; /* a law: keys whose scores are below the row's largest by this have no weight; 0: none */
  /* g of keys first + i, i = 0 ... count - 1, -1e30 ... 0; only causal, and positions are keys. It may read
   * the call's extra tensors. NULL: 0. Then the law: g of one key, from the definition. */
  void (*gates)(const void *state, const attn_call *, int64_t batch, int64_t head, int64_t first,
                int64_t count, double *logs);
  double (*gate)(const void *state, const attn_call *, int64_t batch, int64_t head, int64_t key);
  /* d[i], the gradients by the gates of keys first + i, to be added to those by the extra tensors that gates
   * reads, as in attn_gradients; NULL: it reads none. */
  void (*gates_back)(const void *state, const attn_call *, int64_t batch, int64_t head, int64_t first,
                     int64_t count, const double *d, double *const *dextra);
} attn_normaliser;

/* attn_method.backward_size and .backward of any method whose weights these are, row by row in fp64; a sink
 * is one more score. */
ATTN_API attn_status attn_normaliser_back_size(const attn_normaliser *, const attn_context *, size_t *bytes);
ATTN_API attn_status attn_normaliser_backward(const attn_normaliser *, const attn_call *,
                                              const attn_gradients *);

/* normalise, differentiate, weight and sums of a softmax, for scores that no other engine makes. */
ATTN_API attn_normaliser attn_softmax_normaliser(void);

/* Does a document begin with this key? */
ATTN_API bool attn_document_begins(const attn_problem *, int64_t key);

/* The attn_variant.cost of a variant that is a recurrence. */
ATTN_API attn_cost attn_recurrent_cost(const attn_context *);

/* -- a projection: compression of K and V to few slots, then softmax over those -- */

/* y[slots, d] = (accumulate: +=) E[:, first .. first + rows) x with x [rows, d], rows first ... of the keys
 * or values of a kv head that exist: padding never enters. */
typedef struct attn_slab {
  int64_t head;
  attn_side side;
  const void *x;
  int64_t x_row, first, rows, d;
  void *y;
  int64_t y_row;
  bool accumulate;
} attn_slab;

/* The law of E, [slots, keys], which checks hold the projection against. */
typedef enum {
  ATTN_PROJECTION_UNKNOWN,    /* no law */
  ATTN_PROJECTION_GAUSSIAN,   /* independent N(0, 1/slots) */
  ATTN_PROJECTION_RADEMACHER, /* independent +-1/sqrt(slots) */
  /* sqrt(N/slots) S T D: D random signs, S rows drawn without replacement of the orthonormal transform T */
  ATTN_PROJECTION_SRHT,     /* Walsh-Hadamard of order N, the power of two from n_kv up */
  ATTN_PROJECTION_DCT,      /* DCT-II of order N = n_kv */
  ATTN_PROJECTION_AVERAGES, /* slots are means of consecutive blocks of the keys that exist; nothing drawn */
} attn_projection_law;

typedef struct attn_projection {
  const void *state;
  int64_t slots;
  int64_t slice; /* a slab may begin at multiples of this many rows and accumulate; 0: slabs have all rows */
  int64_t columns; /* of a slab that are best projected together; 0: all d */
  /* Returns the slots in use: all, or fewer if there are fewer rows. */
  int64_t (*project)(const void *state, const attn_context *, const attn_slab *, void *scratch);
  /* The other way, for gradients: x and y of the slab have changed places, y [rows, d] = E[:, first .. first
   * + rows)^T x with x [slots, d]; `accumulate` is not read. NULL: there are none. */
  void (*transpose)(const void *state, const attn_context *, const attn_slab *, void *scratch);
  size_t scratch; /* bytes, of either */
  attn_projection_law law;
  bool shared;   /* keys and values have the same E, else independent ones */
  bool per_head; /* kv heads have independent ones, else the same */
} attn_projection;

ATTN_API attn_cost attn_compression_cost(const attn_context *, int64_t slots,
                                         double project_mul_add_per_column);

/* -- a softmax over last keys and means of blocks of keys: the engine of pooling -- */

/* Terms of the softmax of a causal query at position t: each key t - window < j <= t, and each entry b, from
 * `first` on, whose last key b block + block - 1 exists and is at most t. Its key and its value are the means
 * of those of keys b block - overlap, or 0, ... b block + block - 1. With `top` only that many of them, of
 * the largest score by the index, of equal ones the earlier (attn_index_score). */
typedef struct attn_pooling {
  int64_t window, block, overlap, first;
  int64_t top;      /* 0: all */
  attn_index index; /* heads 0 without top */
} attn_pooling;

/* A row o of softmax over keys whose log-sum-exp is *lse becomes that over these and others, of which there
 * is a row `more`; elements of the problem's dtype. */
ATTN_API void attn_join_row(const attn_problem *, void *o, double *lse, const void *more, double more_lse);

/* -- a pattern whose keys are met elsewhere than where they stand, by the variant's method -- */

typedef struct attn_relocation {
  const void *state;
  /* k [d_qk], a key of the pattern: as the query at this position meets it. From the definition, apart from
   * what is executed. */
  void (*meet)(const void *state, int64_t position, int64_t key, double *k);
} attn_relocation;

#endif
