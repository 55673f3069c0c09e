/* recurrent_back.h - a segment of keys of the recurrent engine, chunk by chunk and back. */
#ifndef ATTN_CORE_ENGINES_RECURRENT_BACK_H
#define ATTN_CORE_ENGINES_RECURRENT_BACK_H

#include "core/engines/recurrent/recurrent.h"

enum { ATTN_RECURRENT_SEGMENT = 128 }; /* keys */

/* A head's segment, and where its gradients go. */
typedef struct recurrent_gradients {
  const attn_gradients *of;
  void *state;          /* G */
  void *dk, *dv;        /* rows of the segment's keys */
  double *logs, *betas; /* the same */
} recurrent_gradients;

static inline void *recurrent_row(const recurrent_shape *s, const void *rows, int64_t i, int64_t width) {
  return attn_at(rows, i * width, s->t);
}
/* States: [d_qk] rows of v_row. */
static inline int64_t recurrent_state_size(const recurrent_shape *s) { return s->p->d_qk * s->v_row; }
static inline void *recurrent_state(const recurrent_shape *s, const void *states, int64_t i) {
  return recurrent_row(s, states, i, recurrent_state_size(s));
}
static inline size_t recurrent_state_bytes(const recurrent_shape *s) {
  return (size_t)recurrent_state_size(s) * attn_dtype_size(s->t);
}

static inline void recurrent_load(const recurrent_shape *s, const void *x, attn_stride at,
                                  const recurrent_line *of, int64_t head, int64_t i, int64_t d, void *to) {
  attn_load_row(s->simd, attn_stored(at, s->t), d, attn_row(x, at, of->batch, head, i, s->t), to);
}

/* Numbers of a decay. */
static inline int64_t recurrent_width(const recurrent_shape *s) { return s->rule->columns ? s->p->d_qk : 1; }

/* Rows that ask the state, at positions from ... of the chunk. */
typedef struct recurrent_readers {
  const void *x, *up; /* rows of d_qk, and of v_row: upstream gradients */
  void *pairs;        /* rows of chunk_row: P */
  void *dx;           /* rows of d_qk */
  int64_t from, rows;
  bool strict; /* they do not see the key at their own position */
} recurrent_readers;

/* One thread's workspace: the forward pass's, in which S stands, and a chunk's gradients. */
typedef struct recurrent_chunk_room {
  recurrent_room own;
  void *states;          /* of a segment, at the beginnings of its chunks */
  void *keys, *erased;   /* [chunk] rows of d_qk: k, b . k */
  void *decayed;         /* of decays that are vectors: [chunk][chunk] rows of d_qk, L_tj . k_j */
  void *arrived;         /* [chunk] rows of d_qk: what keys have of pairs, decayed back */
  void *dq, *de, *dk;    /* [chunk] rows of d_qk */
  void *du, *up, *taken; /* [chunk] rows of v_row: upstream gradients of queries, and of what is taken out */
  void *pairs, *own_pairs, *products; /* [chunk] rows of chunk_row: P of queries and of keys, R */
  void *falls;                        /* [chunk] rows of 1 or d_qk: d ln a */
  void *bends, *swapped, *ones;       /* of rules that turn: [chunk] rows of d_qk, before d angle; k; a row */
  void *sum, *scratch;                /* rows */
  void *state_columns, *gradient_columns, *written_columns; /* [d_v] rows: S^T, G^T, U^T */
} recurrent_chunk_room;

recurrent_chunk_room attn_recurrent_chunk_carve(const recurrent_shape *, attn_carver *);
/* S passes keys first ... end - 1, by which a segment begins; keep: what stands at the chunks of theirs. */
void attn_recurrent_pass_chunks(const recurrent_shape *, recurrent_chunk_room *, recurrent_line *,
                                int64_t first, int64_t end, bool keep);
/* From S at key `first` and G behind end - 1: the gradients of these keys and of the queries that read behind
 * them, and G at `first`. */
void attn_recurrent_back_chunks(const recurrent_shape *, recurrent_chunk_room *, recurrent_line *,
                                const recurrent_gradients *, int64_t first, int64_t end);

/* -- pairs of a chunk (recurrent_pairs_back.c) -- */

/* P of readers. */
void attn_recurrent_score_readers(const recurrent_shape *, const recurrent_chunk_room *,
                                  const recurrent_line *, const recurrent_readers *);
/* out, rows of keys, += pairs^T y, y rows of readers of `row`, as those of out. */
void attn_recurrent_give_keys(const recurrent_shape *, const recurrent_line *, const recurrent_readers *,
                              const void *pairs, const void *y, int64_t row, int64_t columns, void *out);
/* Decays and angles begin with what lies on both sides of the chunk, and of r->dk, by G. */
void attn_recurrent_begin_pairs(const recurrent_shape *, recurrent_chunk_room *, const recurrent_line *,
                                const recurrent_gradients *);
/* dx and r->dk += of pairs; falls: of decays and angles, too, to which P is given up. */
void attn_recurrent_back_pairs(const recurrent_shape *, recurrent_chunk_room *, const recurrent_line *,
                               const recurrent_readers *, bool falls);

#endif
