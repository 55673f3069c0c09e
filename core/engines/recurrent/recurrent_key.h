/* recurrent_key.h - a segment of keys of the recurrent engine, key by key and back: the state that a key
 * meets and leaves, and the gradients that a key and the queries behind it give. */
#ifndef ATTN_CORE_ENGINES_RECURRENT_KEY_H
#define ATTN_CORE_ENGINES_RECURRENT_KEY_H

#include "core/engines/recurrent/recurrent.h"

/* Keys of a segment, and of a block, of which the states that its keys meet are held together. */
enum { ATTN_RECURRENT_SEGMENT = 128, ATTN_RECURRENT_BLOCK = 8 };

/* One thread's workspace: a segment of a query head. */
typedef struct recurrent_segment {
  void *k, *v;         /* [ATTN_RECURRENT_SEGMENT + 1] rows: of the key before, and of the segment's keys */
  void *asks, *enters; /* [ATTN_RECURRENT_SEGMENT] rows: b . k, w . v */
  double *decays, *betas; /* [ATTN_RECURRENT_SEGMENT] rows */
  void *state;            /* S */
  void *blocks; /* [ATTN_RECURRENT_SEGMENT / ATTN_RECURRENT_BLOCK] states, at the beginnings of blocks */
  void *met, *written; /* [ATTN_RECURRENT_BLOCK]: S', u */
  void *row, *up, *du; /* a row of d_qk; rows of d_v */
  void *scratch;       /* a row of either */
  double *product;     /* a row of d_qk */
} recurrent_segment;

/* A head's segment, and where its gradients go. */
typedef struct recurrent_gradients {
  const attn_gradients *of;
  void *state;          /* G */
  double *k, *v;        /* rows of the key before the segment, and of its keys */
  double *logs, *betas; /* rows of the segment's keys */
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

recurrent_segment attn_recurrent_segment_carve(const recurrent_shape *, attn_carver *);
/* Keys first ... first + count - 1, and the one before, as the recurrence meets them. */
void attn_recurrent_load_segment(const recurrent_shape *, recurrent_segment *, recurrent_line *,
                                 int64_t first, int64_t count);
/* S, S_t-1, becomes S' of key i of the segment. */
void attn_recurrent_meet_key(const recurrent_shape *, recurrent_segment *, const recurrent_line *, int64_t i,
                             void *state);
/* S, S', becomes S_t; u <- what is written. */
void attn_recurrent_write_key(const recurrent_shape *, recurrent_segment *, int64_t i, void *state, void *u);
/* G, by S_t, becomes that by S_t-1, and key i and the queries that read behind it give their gradients; met:
 * S', u what was written. */
void attn_recurrent_back_key(const recurrent_shape *, recurrent_segment *, const recurrent_line *,
                             const recurrent_gradients *, int64_t i, const void *met, const void *u);

#endif
