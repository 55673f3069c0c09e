/* null.c - the null baselines. Rows are computed in fp64 from the inputs as stored. */
#include "experiments/evidence/null.h"

#include "experiments/reference/visible.h"

#include <stdlib.h>
#include <string.h>

enum { STREAM_NULL_KEYS = 0x6e756c6c }; /* the purpose of the draws in attn_rng_init */

/* Room for the rows of a head, one after the other: scores for attn_reference_row, the keys that the row
 * sees, those that are drawn and runs to find them; the sum of the leading values. */
typedef struct null_room {
  double *o, *scores, *sum;
  int64_t summed;
  bool *inside, *chosen;
  attn_run *runs;
  bool refused; /* there was no memory for a row */
} null_room;

/* Marks the keys that the row sees; returns how many. */
static int64_t see(const evidence *e, const sample_row *row, const null_room *room) {
  return visible_mark(NULL, e->problem, row->batch, row->head, row->i, evidence_keys(e, row->batch),
                      room->runs, room->inside);
}

/* Does a row see others than the leading keys? */
static bool is_masked(const attn_problem *p) { return p->mask.kind != ATTN_MASK_NONE || p->score.dense.at; }

static void zeros(const evidence *e, const sample_row *row, null_room *room) {
  (void)row;
  memset(room->o, 0, (size_t)e->problem->d_v * sizeof *room->o);
}

/* The mean over the keys that the row may see: exact attention at scale 0. Where they are the leading ones,
 * rows of a head that follow one another go on with one sum. */
static void mean_of_v(const evidence *e, const sample_row *row, null_room *room) {
  const attn_problem *p = e->problem;
  const bool masked = is_masked(p);
  const int64_t group = p->heads / p->kv_heads,
                leading = visible_keys(p, row->i, evidence_keys(e, row->batch)),
                keys = masked ? see(e, row, room) : leading;
  const void *v = attn_rows(e->v, p->v, row->batch, row->head / group, p->dtype);
  if (masked || leading < room->summed) {
    room->summed = 0;
    memset(room->sum, 0, (size_t)p->d_v * sizeof *room->sum);
  }
  for (; room->summed < leading; room->summed++)
    for (int64_t c = 0; c < p->d_v && (!masked || room->inside[room->summed]); c++)
      room->sum[c] += attn_get(v, room->summed * p->v.row + c, p->dtype);
  for (int64_t c = 0; c < p->d_v; c++) room->o[c] = keys ? room->sum[c] / (double)keys : 0;
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

/* Floyd's algorithm (Bentley & Floyd 1987): as many draws as keys, without replacement, each set equally
 * likely. */
static void draw_keys(const evidence *e, const sample_row *row, const null_room *room, drawn_keys *drawn) {
  const attn_problem *p = e->problem;
  const bool masked = is_masked(p);
  const int64_t visible = masked ? see(e, row, room) : visible_keys(p, row->i, evidence_keys(e, row->batch)),
                wanted = visible < NULL_KEYS ? visible : NULL_KEYS;
  const int64_t index = (row->batch * p->heads + row->head) * p->n_q + row->i;
  attn_rng rng;
  attn_rng_init(&rng, e->seed, STREAM_NULL_KEYS, (uint64_t)index);
  memset(room->chosen, 0, (size_t)visible * sizeof *room->chosen);
  for (int64_t last = visible - wanted; last < visible; last++) {
    const int64_t draw = attn_rng_below(&rng, last + 1);
    room->chosen[room->chosen[draw] ? last : draw] = true;
  }
  drawn->count = 0;
  for (int64_t j = 0, place = 0; drawn->count < wanted; j++)
    if ((!masked || room->inside[j]) && room->chosen[place++]) drawn->keys[drawn->count++] = j;
}

static void random_keys(const evidence *e, const sample_row *row, null_room *room) {
  drawn_keys drawn;
  draw_keys(e, row, room, &drawn);
  const attn_pattern pattern = {.state = &drawn, .row = drawn_row, .max_runs = NULL_KEYS};
  if (attn_reference_row(e->problem, &pattern, e->q, e->k, e->v, e->kv_len, row->batch, row->head, row->i,
                         NULL, room->o, room->scores) < 0)
    room->refused = true;
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

static bool room_make(region *memory, const attn_problem *p, null_room *out) {
  const int64_t n = p->n_kv;
  null_room x = {.o = region_zeros(memory, p->d_v, sizeof *x.o),
                 .sum = region_zeros(memory, p->d_v, sizeof *x.sum),
                 .scores = region_zeros(memory, n, sizeof *x.scores),
                 .inside = region_zeros(memory, n, sizeof *x.inside),
                 .chosen = region_zeros(memory, n, sizeof *x.chosen),
                 .runs = region_zeros(memory, visible_most_runs(NULL, p), sizeof *x.runs)};
  *out = x;
  return !memory->refused;
}

/* The rows of a head that are compared, in order. */
static void line_fill(const null_baseline *null, const evidence *e, int64_t line, null_room *room, void *o) {
  const attn_problem *p = e->problem;
  sample_row at = {line / p->heads, line % p->heads, 0};
  int64_t count = p->n_q, first = e->exact->all ? 0 : exact_line(e->exact, at.batch, at.head, &count);
  room->summed = 0;
  memset(room->sum, 0, (size_t)p->d_v * sizeof *room->sum);
  for (int64_t r = first; r < first + count; r++) {
    at.i = e->exact->all ? r : e->exact->rows[r].i;
    null->row(e, &at, room);
    for (int64_t c = 0; c < p->d_v; c++)
      attn_set(o, (line * p->n_q + at.i) * p->d_v + c, p->dtype, room->o[c]);
  }
}

attn_status null_fill(const null_baseline *null, const evidence *e, void *o) {
  bool failed = false;
#pragma omp parallel
  {
    region memory = {.last = NULL};
    null_room room;
    const bool ready = room_make(&memory, e->problem, &room);
#pragma omp for schedule(dynamic, 1)
    for (int64_t line = 0; line < e->problem->batch * e->problem->heads; line++)
      if (ready) line_fill(null, e, line, &room, o);
    if (!ready || room.refused) {
#pragma omp atomic write
      failed = true;
    }
    region_free(&memory);
  }
  return failed ? attn_fail(ATTN_ENOMEM, "no memory for a row of %s", null->name) : ATTN_OK;
}
