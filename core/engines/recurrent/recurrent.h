/* recurrent.h - a chunk of keys of the recurrent engine: its gates, its rows, and products of rows with its
 * keys, each decayed by what lies between. */
#ifndef ATTN_CORE_ENGINES_RECURRENT_H
#define ATTN_CORE_ENGINES_RECURRENT_H

#include "core/internal.h"

/* Rows that share the keys that they are multiplied with, a multiple of every register tile. */
enum { ATTN_RECURRENT_STEP = 24 };

typedef struct recurrent_shape {
  const attn_context *c;
  const attn_problem *p;
  const attn_kernels *simd;
  const attn_recurrence *rule;
  attn_dtype t;
  int64_t chunk, chunk_row, d_row, v_row; /* rows of products are padded */
  int64_t d_v;   /* columns of S: and one of values 1 where outputs are divided by its */
  int64_t betas; /* numbers of a key, its angles among them */
  bool vectors;  /* b and w are vectors */
  bool apart;    /* of a rule that carries: keys enter U with their weights for later queries, no product */
} recurrent_shape;

/* One thread's workspace. With A_i = a_first ... a_i and A_C that of the chunk: */
typedef struct recurrent_room {
  void *sums, *own_sums;          /* [d_qk] rows of d_v: S, where it stands; here */
  int64_t sums_row;               /* of S */
  void *between;                  /* of decays that are numbers: [chunk] rows of chunk, a_j+1 ... a_i */
  void *transposed;               /* [d_qk] rows of chunk: K^T; of vectors (A_C / A_j . K)^T */
  void *scores, *own;             /* of queries and of keys: [STEP], or [chunk], rows of chunk */
  void *queries, *keys, *values;  /* [chunk] rows; queries times the scale */
  void *scaled;                   /* [chunk] rows of d_qk */
  void *reads, *written;          /* of delta and of betas: [chunk] rows of d_v */
  void *outputs;                  /* [chunk] rows of d_v, where the call's are of another type */
  void *erased;                   /* of gates that are vectors: [chunk] rows of d_qk, b . k */
  double *logs, *betas;           /* [chunk + 1] of ln a, or [chunk + 1, d_qk]; [chunk + 1, betas] */
  double *kept_logs, *kept_betas; /* of keys kept_first ... kept_first + kept - 1, as the rule gave them */
  int64_t kept_first, kept;
  double *before, *after;     /* [chunk]: A_i, A_C / A_j */
  double *row, *weighted;     /* [chunk + 1], [chunk] */
  double *angles;             /* [turns]: of R_first ... R_i */
  void *cosines, *sines;      /* [chunk] rows of 2 turns: of these angles, the sine of -i behind that of i */
  void *swapped, *turned;     /* [2 turns]; a row of d_v */
  double *whole;              /* A_C, [d_qk] of vectors */
  void *decays, *before_rows; /* of vectors: [chunk] rows of d_qk: a_i, A_i */
  void *row_scratch;          /* a row of d_qk or d_v */
  int64_t made;               /* keys whose products of decays stand; -1: of none */
} recurrent_room;

/* One head's tensors, and where it stands. */
typedef struct recurrent_line {
  const attn_call *call;
  int64_t batch, head, kv_head, keys;
  int64_t beyond;       /* where the first document begins that has no key; n_kv: there is none */
  int64_t first, count; /* keys of the chunk that exist */
} recurrent_line;

/* A chunk's keys, as they enter the state and as it is asked with them, and U, as products take them; its
 * queries, at positions from ... of the chunk, the first ... of the call. */
typedef struct recurrent_chunk {
  attn_matrix k, read, v;
  int64_t from, first, queries;
} recurrent_chunk;

recurrent_shape attn_recurrent_shape(const attn_context *, const attn_recurrence *);
/* Query head h of all batch entries. */
recurrent_line attn_recurrent_line(const recurrent_shape *, const attn_call *, int64_t h);
/* Is there a state that query i reads? There is none before every key, nor in a document without keys. */
bool attn_recurrent_reads(const recurrent_shape *, const recurrent_line *, int64_t i);
/* The key behind which query i reads the state. */
int64_t attn_recurrent_asks_at(const recurrent_shape *, const recurrent_line *, int64_t i);

recurrent_room attn_recurrent_carve(const recurrent_shape *, attn_carver *);
/* Keys x->first ... next - 1, of which x->count exist, and if `queries` those that read behind them; S as it
 * stands. */
recurrent_chunk attn_recurrent_take_chunk(const recurrent_shape *, recurrent_room *, recurrent_line *,
                                          int64_t next, bool queries);
/* r->queries <- those of the call from number `first` on, at positions `from` ... of the chunk, times the
 * scale. */
void attn_recurrent_load_queries(const recurrent_shape *, recurrent_room *, const recurrent_line *,
                                 int64_t from, int64_t first, int64_t count);
/* S <- A_C . S + (A_C / A . K)^T U */
void attn_recurrent_add_keys(const recurrent_shape *, recurrent_room *, const recurrent_line *,
                             const recurrent_chunk *);

/* The call's extra tensors: every element that belongs to a key that exists. EINVAL names the first that is
 * wrong. */
attn_status attn_recurrent_check(const recurrent_shape *, const attn_call *);

/* Keeps what the rule gives for keys first ... end - 1, so that it is asked once for chunks of theirs. */
void attn_recurrent_keep_gates(const recurrent_shape *, recurrent_room *, recurrent_line, int64_t first,
                               int64_t end);
/* The gates of the chunk, and the products of its decays. */
void attn_recurrent_gates(const recurrent_shape *, recurrent_room *, const recurrent_line *);

/* Where the chunk ends that begins with key `first`: at the latest where a document does, so that no zero
 * multiplies what another holds, or at `end`. */
int64_t attn_recurrent_chunk_end(const recurrent_shape *, int64_t first, int64_t end);
/* The weight of key j of the chunk for queries after its own. */
double attn_recurrent_later_weight(const recurrent_shape *, const recurrent_room *, const recurrent_line *,
                                   int64_t j);

/* x [rows, d_qk], in place: as the state of the chunk's beginning meets them, turned back by what lies
 * between it and positions from ... of the chunk; or on. */
void attn_recurrent_turn_rows(const recurrent_shape *, const recurrent_room *, const recurrent_line *,
                              int64_t from, int64_t rows, bool back, void *x);
/* A state [d_qk] rows of `row`, in place: turned from the chunk's beginning to its last key, or back. */
void attn_recurrent_turn_state(const recurrent_shape *, recurrent_room *, const recurrent_line *, bool back,
                               void *state, int64_t row);

/* out[rows, d_qk] <- diag(A) x, row l at position from + l of the chunk. */
void attn_recurrent_decay_rows(const recurrent_shape *, const recurrent_room *, const recurrent_line *,
                               int64_t from, int64_t rows, attn_matrix x, void *out);

/* out[count, d_qk] <- diag(A_C / A) x, of the chunk's keys. */
void attn_recurrent_arrive_rows(const recurrent_shape *, const recurrent_room *, const recurrent_line *,
                                attn_matrix x, void *out);

/* Puts the keys k where products read them. read: b . k, with which the state is asked; queries: those at
 * positions from ... from + queries - 1 of the chunk. */
void attn_recurrent_take_keys(const recurrent_shape *, recurrent_room *, const recurrent_line *,
                              attn_matrix k, attn_matrix read, int64_t from, int64_t queries);

/* Products, decayed, of rows at positions from ... from + rows - 1, at most STEP, which are queries (x their
 * first, [rows][d_qk]) or keys, with the first `seen` keys of the chunk: those that do not come later than
 * the row, else 0. Returns rows of chunk_row. */
const void *attn_recurrent_scores(const recurrent_shape *, recurrent_room *, const recurrent_line *,
                                  bool queries, attn_matrix x, int64_t from, int64_t rows, int64_t seen);

/* attn_method.backward_size and backward (recurrent_backward.c). */
attn_status attn_recurrent_backward_size(const void *state, const attn_context *, const attn_parts *,
                                         size_t *);
attn_status attn_recurrent_backward(const void *state, const attn_call *, const attn_gradients *);

#endif
