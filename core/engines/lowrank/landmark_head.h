/* landmark_head.h - what the two files of the engine of landmarks share: its plan, and its work memory. */
#ifndef CORE_ENGINES_LOWRANK_LANDMARK_HEAD_H
#define CORE_ENGINES_LOWRANK_LANDMARK_HEAD_H

#include "core/internal.h"

/* Inner plans: B V, F times the landmarks' values, and F times two columns for the log-sum-exp. */
enum { LANDMARK_FROM, LANDMARK_TO, LANDMARK_RATIO, LANDMARK_PARTS };

typedef struct landmark_state {
  const attn_low_rank *law;
  const attn_plan *parts[LANDMARK_PARTS];
  const attn_kernels *wide; /* of fp64 */
  size_t work;              /* bytes, of the largest part */
} landmark_state;

typedef struct landmark_layout {
  double *q, *k;           /* landmarks in fp64: [batch, heads, m, d_qk], [batch, kv_heads, m, d_qk] */
  void *q_rows, *k_rows;   /* in the tensors' type, those of k for each query head */
  void *messages, *values; /* B V and Z B V: [batch, heads, m, d_v] */
  double *mass;            /* ln b: [batch, heads, m] */
  void *columns, *ratio;   /* Z of ln(b / a) and of 1 [batch, heads, m, 2], and F times that, [.., n_q, 2] */
  int64_t *lengths;        /* landmarks of each batch entry */
  void *work;              /* of the parts */
  attn_slices threads;     /* of landmark_room */
} landmark_layout;

/* What a thread computes Z in: rows of `row` and of `wide` elements. */
typedef struct landmark_room {
  int64_t most, m, row, wide; /* landmarks, and those in use */
  double *a, *z;              /* [m, m] */
  double *u, *values;         /* B V, ln(b / a) and 1, [m, d_v + 2], and Z times that */
  double *sums;               /* ln a, [m] */
  double *scratch;            /* of what makes Z */
} landmark_room;

/* The number of landmarks of `keys` keys. */
int64_t landmark_count(const attn_context *, const attn_low_rank *, int64_t keys);
landmark_room landmark_room_at(const attn_context *, const attn_low_rank *, attn_carver *);
landmark_layout landmark_lay_out(const attn_context *, const attn_low_rank *, size_t work, attn_carver *);

/* The landmarks of all heads. EFOREIGN: the law gives rows that there are not. */
attn_status landmark_prepare(const landmark_state *, const attn_call *, const landmark_layout *);
/* The landmark keys of query head `line`, of `most`. */
const double *landmark_keys(const attn_problem *, const landmark_layout *, int64_t line, int64_t most);
/* A, Z, which is NaN where it is not found, and what Z is multiplied with, of a head. */
landmark_room landmark_meet(const landmark_state *, const attn_call *, const landmark_layout *, int64_t line,
                            attn_carver *);
/* From B V to Z B V, and to Z ln(b / a) and Z 1, of all heads. */
void landmark_pass(const landmark_state *, const attn_call *, const landmark_layout *);
attn_status landmark_run(const landmark_state *, int part, const void *q, const void *k, const void *v,
                         const int64_t *kv_len, void *o, double *lse, void *work);

/* Landmarks of a side, of n rows of x, to [landmarks, d], zeros before. false: of rows that there are not. */
bool landmark_rows(const attn_low_rank *, attn_side, const void *x, int64_t row, attn_dtype, int64_t n,
                   int64_t landmarks, int64_t d, double *to);
void landmark_narrow(const double *x, int64_t count, attn_dtype, void *to, int64_t at);
/* a [m, m], in rows of a_row elements: softmax(scale q k^T) of landmarks [m, d]; the logarithms of what
 * divides its rows. */
void landmark_weights(const double *q, const double *k, int64_t m, int64_t d, double scale, double *a,
                      int64_t a_row, double *sums);
/* Gradients: rows to [n, d] of a tensor += what those by landmarks [landmarks, d] say; dq and dk [m, d] <-
 * what those by a, da in rows like a, and by the logarithms, dsums, say. */
void landmark_rows_back(const attn_low_rank *, attn_side, const double *from, int64_t n, int64_t landmarks,
                        int64_t d, attn_dtype, void *to);
void landmark_weights_back(const double *q, const double *k, int64_t m, int64_t d, double scale,
                           const double *a, const double *da, int64_t a_row, const double *dsums, double *dq,
                           double *dk);

/* z [m, m], in rows of `row` elements like a: the result of `iterations` steps of ATTN_MIDDLE_NEWTON on a.
 * kernels: of fp64; row: attn_padded(m, ATTN_F64) or more, and a's rows are 0 behind their m elements.
 * scratch: 3 m row. */
void iterated_inverse(const attn_kernels *, int64_t iterations, int64_t m, int64_t row, const double *a,
                      double *z, double *scratch);
/* da [m, m] <- the gradient by a, of that by z, dz, which is overwritten. scratch: (iterations + 8) m row. */
void iterated_inverse_back(const attn_kernels *, int64_t iterations, int64_t m, int64_t row, const double *a,
                           double *dz, double *da, double *scratch);
/* The pseudo-inverse, without the singular values of at most rcond times the largest. scratch: 8 m (m + 1).
 * false: as attn_eigen. */
bool pseudo_inverse(double rcond, int64_t m, int64_t row, const double *a, double *z, double *scratch);
/* As iterated_inverse_back, dz as it is. scratch: 16 m (m + 1). */
bool pseudo_inverse_back(double rcond, int64_t m, int64_t row, const double *a, const double *dz, double *da,
                         double *scratch);

attn_status landmark_backward_size(const void *state, const attn_context *, const attn_parts *,
                                   size_t *bytes);
attn_status landmark_backward(const void *state, const attn_call *, const attn_gradients *);

#endif
