/* null.c - the null baselines. Rows are computed in fp64 from the inputs as stored. */
#include "experiments/evidence/null.h"

#include "experiments/reference/visible.h"

#include <stdlib.h>
#include <string.h>

enum { STREAM_NULL_KEYS = 0x6e756c6c }; /* the purpose of the draws in attn_rng_init */

/* Room for a row: scores for attn_reference_row, the keys that the row sees, and runs to find them. */
typedef struct null_room {
  double *scores;
  bool *inside;
  attn_run *runs;
} null_room;

/* Marks the keys that the row sees; returns how many. */
static int64_t see(const evidence *e, const sample_row *row, const null_room *room) {
  const int64_t keys = e->kv_len ? e->kv_len[row->batch] : e->problem->n_kv;
  return visible_mark(NULL, e->problem, row->batch, row->head, row->i, keys, room->runs, room->inside);
}

static void zeros(const evidence *e, const sample_row *row, double *o, const null_room *room) {
  (void)row;
  (void)room;
  memset(o, 0, (size_t)e->problem->d_v * sizeof *o);
}

static double element(attn_dtype dtype, const void *at, int64_t i) {
  return dtype == ATTN_F64 ? ((const double *)at)[i] : (double)((const float *)at)[i];
}

/* The mean over the keys that the row may see: exact attention at scale 0. */
static void mean_of_v(const evidence *e, const sample_row *row, double *o, const null_room *room) {
  const attn_problem *p = e->problem;
  const int64_t group = p->heads / p->kv_heads, keys = see(e, row, room);
  const void *v = attn_rows(e->v, p->v, row->batch, row->head / group, p->dtype);
  memset(o, 0, (size_t)p->d_v * sizeof *o);
  for (int64_t j = 0; j < p->n_kv; j++)
    for (int64_t c = 0; c < p->d_v && room->inside[j]; c++)
      o[c] += element(p->dtype, v, j * p->v.row + c) / (double)keys;
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
static void draw_keys(const evidence *e, const sample_row *row, const null_room *room, drawn_keys *drawn) {
  const attn_problem *p = e->problem;
  int64_t visible = see(e, row, room), wanted = visible < NULL_KEYS ? visible : NULL_KEYS;
  const int64_t index = (row->batch * p->heads + row->head) * p->n_q + row->i;
  attn_rng rng;
  attn_rng_init(&rng, e->seed, STREAM_NULL_KEYS, (uint64_t)index);
  drawn->count = 0;
  for (int64_t j = 0; drawn->count < wanted; j++) {
    if (!room->inside[j]) continue;
    if (attn_rng_below(&rng, visible--) < wanted - drawn->count) drawn->keys[drawn->count++] = j;
  }
}

static void random_keys(const evidence *e, const sample_row *row, double *o, const null_room *room) {
  drawn_keys drawn;
  draw_keys(e, row, room, &drawn);
  const attn_pattern pattern = {.state = &drawn, .row = drawn_row, .max_runs = NULL_KEYS};
  attn_reference_row(e->problem, &pattern, e->q, e->k, e->v, e->kv_len, row->batch, row->head, row->i, NULL,
                     o, room->scores);
}

const null_baseline null_baselines[] = {{"null_zeros", "null_zeros", "{}", "zeros", 0, zeros},
                                        {"null_mean_v", "null_mean_v", "{}", "the mean of V", 0, mean_of_v},
                                        {"null_random_keys", "null_random_keys:keys=256", "{\"keys\":256}",
                                         "random keys", NULL_KEYS, random_keys},
                                        {0}};

const null_baseline *null_find(const char *name) {
  for (const null_baseline *null = null_baselines; null->name; null++)
    if (strcmp(null->name, name) == 0) return null;
  return NULL;
}

attn_status null_fill(const null_baseline *null, const evidence *e, void *o) {
  const attn_problem *p = e->problem;
  const int64_t d = p->d_v;
  double *row = calloc((size_t)(d + p->n_kv), sizeof *row);
  const null_room room = {row ? row + d : NULL, calloc((size_t)p->n_kv, sizeof *room.inside),
                          calloc((size_t)visible_most_runs(NULL, p), sizeof *room.runs)};
  const bool ready = row && room.inside && room.runs;
  for (int64_t r = 0; ready && r < e->exact->count; r++) {
    const sample_row *at = &e->exact->rows[r];
    null->row(e, at, row, &room);
    const int64_t start = ((at->batch * p->heads + at->head) * p->n_q + at->i) * d;
    for (int64_t c = 0; c < d; c++) {
      if (p->dtype == ATTN_F64)
        ((double *)o)[start + c] = row[c];
      else
        ((float *)o)[start + c] = (float)row[c];
    }
  }
  free(row);
  free(room.inside);
  free(room.runs);
  return ready ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a row of %s", null->name);
}
