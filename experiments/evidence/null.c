/* null.c - the null baselines. Rows are computed in fp64 from the inputs as stored. */
#include "experiments/evidence/null.h"

#include <stdlib.h>
#include <string.h>

enum { STREAM_NULL_KEYS = 0x6e756c6c }; /* the purpose of the draws in attn_rng_init */

static int64_t keys_of(const evidence *e, int64_t batch) {
  return e->kv_len ? e->kv_len[batch] : e->problem->n_kv;
}

/* The number of keys that row i may see; they are the first ones. */
static int64_t visible_keys(const evidence *e, const sample_row *row) {
  const int64_t keys = keys_of(e, row->batch);
  const int64_t end = row->i + e->problem->n_kv - e->problem->n_q + 1;
  if (!e->problem->causal || end >= keys) return keys;
  return end > 0 ? end : 0;
}

static void zeros(const evidence *e, const sample_row *row, double *o, double *scratch) {
  (void)row;
  (void)scratch;
  memset(o, 0, (size_t)e->problem->d_v * sizeof *o);
}

static double element(attn_dtype dtype, const void *at, int64_t i) {
  return dtype == ATTN_F64 ? ((const double *)at)[i] : (double)((const float *)at)[i];
}

/* The mean over the keys that the row may see: exact attention at scale 0. */
static void mean_of_v(const evidence *e, const sample_row *row, double *o, double *scratch) {
  (void)scratch;
  const attn_problem *p = e->problem;
  const int64_t group = p->heads / p->kv_heads, keys = visible_keys(e, row);
  const void *v = attn_rows(e->v, p->v, row->batch, row->head / group, p->dtype);
  memset(o, 0, (size_t)p->d_v * sizeof *o);
  for (int64_t j = 0; j < keys; j++)
    for (int64_t c = 0; c < p->d_v; c++) o[c] += element(p->dtype, v, j * p->v.row + c) / (double)keys;
}

/* Keys drawn for one row, as a pattern for attn_reference_row. */
typedef struct drawn_keys {
  int64_t count, keys[NULL_KEYS];
} drawn_keys;

static int64_t drawn_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)head;
  (void)position;
  const drawn_keys *drawn = state;
  for (int64_t i = 0; i < drawn->count; i++) runs[i] = (attn_run){drawn->keys[i], 1, 1};
  return drawn->count;
}

/* Selection sampling (Knuth, TAOCP 2, algorithm S): ascending, without replacement, each set equally
 * likely. */
static void draw_keys(const evidence *e, const sample_row *row, drawn_keys *drawn) {
  const attn_problem *p = e->problem;
  const int64_t visible = visible_keys(e, row), wanted = visible < NULL_KEYS ? visible : NULL_KEYS;
  const int64_t index = (row->batch * p->heads + row->head) * p->n_q + row->i;
  attn_rng rng;
  attn_rng_init(&rng, e->seed, STREAM_NULL_KEYS, (uint64_t)index);
  drawn->count = 0;
  for (int64_t j = 0; drawn->count < wanted; j++)
    if (attn_rng_below(&rng, visible - j) < wanted - drawn->count) drawn->keys[drawn->count++] = j;
}

static void random_keys(const evidence *e, const sample_row *row, double *o, double *scratch) {
  drawn_keys drawn;
  draw_keys(e, row, &drawn);
  const attn_pattern pattern = {.state = &drawn, .row = drawn_row, .max_runs = NULL_KEYS};
  attn_reference_row(e->problem, &pattern, e->q, e->k, e->v, e->kv_len, row->batch, row->head, row->i, NULL,
                     o, scratch);
}

const null_baseline null_baselines[] = {
    {"null_zeros", "null_zeros", "{}", 0, zeros},
    {"null_mean_v", "null_mean_v", "{}", 0, mean_of_v},
    {"null_random_keys", "null_random_keys:keys=256", "{\"keys\":256}", NULL_KEYS, random_keys},
    {NULL, NULL, NULL, 0, NULL}};

const null_baseline *null_find(const char *name) {
  for (const null_baseline *null = null_baselines; null->name; null++)
    if (strcmp(null->name, name) == 0) return null;
  return NULL;
}

attn_status null_fill(const null_baseline *null, const evidence *e, void *o) {
  const attn_problem *p = e->problem;
  const int64_t d = p->d_v;
  double *row = calloc((size_t)(d + p->n_kv), sizeof *row);
  if (!row) return attn_fail(ATTN_ENOMEM, "no memory for a row of %s", null->name);
  for (int64_t r = 0; r < e->exact->count; r++) {
    const sample_row *at = &e->exact->rows[r];
    null->row(e, at, row, row + d);
    const int64_t start = ((at->batch * p->heads + at->head) * p->n_q + at->i) * d;
    for (int64_t c = 0; c < d; c++) {
      if (p->dtype == ATTN_F64)
        ((double *)o)[start + c] = row[c];
      else
        ((float *)o)[start + c] = (float)row[c];
    }
  }
  free(row);
  return ATTN_OK;
}
