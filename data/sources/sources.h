/* sources.h - what the files of datasets share. Internal to data/. */
#ifndef DATA_SOURCES_SOURCES_H
#define DATA_SOURCES_SOURCES_H

#include "attn_variant.h"
#include "data/data.h"

/* iid.c */
extern const data_source source_gaussian, source_clustered, source_lowrank, source_heavytailed;
extern const data_source source_flat, source_peaked, source_duplicate, source_outlier; /* scores.c */
extern const data_source source_hopfield, source_gat;                                  /* lookup.c */
extern const data_source source_needle, source_rope;                                   /* position.c */
extern const data_source source_captured, source_hdf5, source_safetensors, source_npy; /* from_file.c */

/* As data_source_sizes, of the parameters of a source. */
attn_status from_file_sizes(const data_source *, const void *params, data_request *out, bool *known);

typedef enum { DRAW_Q, DRAW_K, DRAW_V, DRAW_SHARED } draw_tensor;

/* One head of one tensor while it is drawn. */
typedef struct draw_head {
  const void *params;
  const data_request *request;
  const data_qkv *made; /* v is drawn first, q last: see draw_made */
  draw_tensor tensor;
  int64_t batch, head, kv_head;
  int64_t d;
  attn_rng rng;         /* this head's stream */
  attn_rng start;       /* the same at its beginning */
  const double *shared; /* this (batch, kv head)'s table */
} draw_head;

/* How a source draws rows. */
typedef struct draw_plan {
  int64_t shared; /* doubles in the table of a (batch, kv head) */
  void (*share)(const void *params, const data_request *, attn_rng *,
                double *table);                   /* NULL if shared is 0 */
  void (*row)(draw_head *, int64_t i, double *x); /* row i, d values */
} draw_plan;

/* Draws every row of every tensor, rounded to f32, into a cleared *out. Parallel over heads, the same for any
 * number of threads. */
attn_status draw_all(const draw_plan *, const void *params, const data_request *, data_qkv *out);

/* x[i] = std * N(0, 1) for a row. */
void draw_normal(attn_rng *, double std, int64_t d, double *x);

/* Where row i stands among the keys. */
static inline int64_t draw_position(const draw_head *h, int64_t i) {
  return h->tensor == DRAW_Q ? i + h->request->n_kv - h->request->n_q : i;
}

/* A position among n of them, which go round. */
static inline int64_t draw_wrapped(int64_t position, int64_t n) { return (position % n + n) % n; }

/* Channel j of a row, as it was rounded, of the head's values (for keys and queries) or of its keys (for
 * queries, and for later rows of the keys themselves). */
static inline double draw_made(const draw_head *h, draw_tensor tensor, int64_t row, int64_t j) {
  const data_request *r = h->request;
  const void *x = tensor == DRAW_V ? h->made->v : h->made->k;
  const int64_t d = tensor == DRAW_V ? r->d_v : r->d_qk;
  const int64_t at = ((h->batch * r->kv_heads + h->kv_head) * r->n_kv + row) * d + j;
  return attn_get(x, at, r->dtype);
}

#endif
