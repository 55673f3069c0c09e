/* trial.c - small problems made from the plan of a run, and runs on them. */
#include "experiments/properties/property.h"

#include "experiments/evidence/support_row.h"
#include "experiments/reference/transform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MARGIN = 256 }; /* bytes before and behind an output that must stay as they are */
static const uint64_t purpose_inputs = 0x747269616c; /* "trial" */
static const int canary = 0x5a;

/* -- inputs -- */

static size_t rows_of(const attn_problem *p, attn_side side) {
  return (size_t)(p->batch * (side == ATTN_QUERY ? p->heads * p->n_q : p->kv_heads * p->n_kv));
}

static int64_t width_of(const attn_problem *p, attn_side side) {
  return side == ATTN_VALUE ? p->d_v : p->d_qk;
}

static attn_dtype type_of(const attn_problem *p, attn_side side) {
  return attn_stored(side == ATTN_QUERY ? p->q : side == ATTN_KEY ? p->k : p->v, p->dtype);
}

static size_t row_bytes(const attn_problem *p, attn_side side) {
  return (size_t)width_of(p, side) * attn_dtype_size(type_of(p, side));
}

static char **tensor_of(trial_inputs *in, attn_side side) {
  return side == ATTN_QUERY ? &in->q : side == ATTN_KEY ? &in->k : &in->v;
}

static const attn_side sides[] = {ATTN_QUERY, ATTN_KEY, ATTN_VALUE};

static attn_status inputs_alloc(region *memory, const attn_problem *p, trial_inputs *out) {
  trial_inputs in = {.problem = *p};
  attn_problem *own = &in.problem;
  own->q = (attn_stride){.stored = p->q.stored};
  own->k = (attn_stride){.stored = p->k.stored};
  own->v = (attn_stride){.stored = p->v.stored};
  own->o = (attn_stride){.stored = p->o.stored};
  attn_status status = attn_problem_resolve(own);
  for (int s = 0; !status && s < 3; s++)
    *tensor_of(&in, sides[s]) =
        region_take(memory, (int64_t)rows_of(own, sides[s]), row_bytes(own, sides[s]));
  *out = in;
  return status ? status : region_status(memory, "for the inputs of a trial");
}

void *trial_row(const trial_inputs *in, attn_side side, int64_t batch, int64_t head, int64_t row) {
  const attn_problem *p = &in->problem;
  const int64_t heads = side == ATTN_QUERY ? p->heads : p->kv_heads,
                n = side == ATTN_QUERY ? p->n_q : p->n_kv;
  char *at = side == ATTN_QUERY ? in->q : side == ATTN_KEY ? in->k : in->v;
  return at + (size_t)((batch * heads + head) * n + row) * row_bytes(p, side);
}

void trial_row_fill(const trial_inputs *in, attn_side side, int64_t batch, int64_t head, int64_t row,
                    double value) {
  const attn_problem *p = &in->problem;
  void *at = trial_row(in, side, batch, head, row);
  for (int64_t l = 0; l < width_of(p, side); l++) attn_set(at, l, type_of(p, side), value);
}

attn_status trial_inputs_draw(region *memory, const attn_problem *p, uint64_t seed, trial_inputs *out) {
  attn_status status = inputs_alloc(memory, p, out);
  for (uint64_t s = 0; !status && s < 3; s++) {
    attn_rng rng;
    attn_rng_init(&rng, seed, purpose_inputs, s);
    const attn_problem *own = &out->problem;
    const int64_t count = (int64_t)rows_of(own, sides[s]) * width_of(own, sides[s]);
    const attn_dtype type = type_of(own, sides[s]);
    char *to = *tensor_of(out, sides[s]);
    for (int64_t i = 0; i < count; i++) attn_set(to, i, type, (2 * attn_rng_uniform(&rng) - 1) * sqrt(3));
  }
  return status;
}

attn_status trial_inputs_gather(region *memory, const trial_inputs *from, const attn_problem *to,
                                int64_t first, trial_inputs *out) {
  trial_inputs in;
  attn_status status = inputs_alloc(memory, to, &in);
  if (status) return status;
  for (int s = 0; s < 3; s++) {
    const attn_problem *x = &in.problem, *y = &from->problem;
    const bool query = sides[s] == ATTN_QUERY;
    const int64_t heads = query ? x->heads : x->kv_heads, old = query ? y->heads : y->kv_heads;
    const size_t bytes = row_bytes(x, sides[s]) * (size_t)(query ? x->n_q : x->n_kv);
    for (int64_t b = 0; b < x->batch; b++)
      for (int64_t h = 0; h < heads; h++)
        memcpy(trial_row(&in, sides[s], b, h, 0),
               trial_row(from, sides[s], (first + b) % y->batch, h * old / heads, 0), bytes);
  }
  *out = in;
  return ATTN_OK;
}

attn_status trial_inputs_copy(region *memory, const trial_inputs *from, trial_inputs *out) {
  return trial_inputs_gather(memory, from, &from->problem, 0, out);
}

/* -- runs -- */

/* An output between two margins. */
attn_status trial_execute(region *memory, const attn_plan *plan, const trial_inputs *in, trial_poison poison,
                          char **out) {
  static const int bytes_of[] = {[POISON_NAN] = 0xff, [POISON_HUGE] = 0x7b};
  const attn_problem *p = &in->problem;
  const size_t bytes = (size_t)(p->batch * p->heads * p->n_q * p->d_v) *
                       attn_dtype_size(attn_stored(p->o, p->dtype)),
               work_bytes = attn_plan_work_size(plan);
  region own = {.last = NULL};
  char *room = region_take(&own, 1, bytes + 2 * MARGIN), *work = region_take(&own, 1, work_bytes + 1);
  char *o = *out = region_take(memory, 1, bytes + 1);
  attn_status status = region_status(o ? &own : memory, "for the output of a trial");
  if (status) goto out;
  memset(room, canary, bytes + 2 * MARGIN);
  memset(room + MARGIN, bytes_of[poison], bytes);
  memset(work, bytes_of[poison], work_bytes);
  status = attn_plan_run(plan, &(attn_tensors){.q = in->q,
                                               .k = in->k,
                                               .v = in->v,
                                               .kv_len = in->padded ? in->kv_len : NULL,
                                               .o = room + MARGIN,
                                               .lse = in->lse,
                                               .work = work});
  for (size_t i = 0; !status && i < MARGIN; i++)
    if (room[i] != canary || room[MARGIN + bytes + i] != canary)
      status = attn_fail(ATTN_EFOREIGN, "wrote %s its output", room[i] != canary ? "before" : "behind");
  if (!status) memcpy(o, room + MARGIN, bytes);
out:
  region_free(&own);
  return status;
}

static bool same_problem(const attn_problem *a, const attn_problem *b) {
  return a->batch == b->batch && a->heads == b->heads && a->kv_heads == b->kv_heads && a->n_q == b->n_q &&
         a->n_kv == b->n_kv && a->dtype == b->dtype && a->q.stored == b->q.stored &&
         a->k.stored == b->k.stored && a->v.stored == b->v.stored && a->o.stored == b->o.stored;
}

attn_status trial_run(const trial *t, const trial_inputs *in, int threads, trial_poison poison, char **o) {
  if (threads == t->options.threads && same_problem(&in->problem, &t->in.problem))
    return trial_execute(t->memory, t->plan, in, poison, o);
  attn_options options = t->options;
  attn_plan *plan = NULL;
  options.threads = threads;
  attn_status status = attn_plan_create_spec(&plan, &in->problem, t->spec, &options);
  if (status == ATTN_EINVAL) status = attn_fail(ATTN_EUNSUPPORTED, "%s", attn_last_error());
  if (!status) status = trial_execute(t->memory, plan, in, poison, o);
  attn_plan_destroy(plan);
  return status;
}

/* -- the trial -- */

/* From what serves best to what takes least of a variant. */
static const struct {
  int64_t batch, heads, kv_heads, n;
} shapes[] = {{2, 4, 2, 197}, {2, 4, 4, 197}, {2, 2, 1, 389}, {2, 2, 2, 389}, {2, 2, 1, 197}, {2, 2, 2, 256},
              {2, 1, 1, 197}, {1, 1, 1, 197}, {2, 2, 2, 512}, {1, 1, 1, 512}, {2, 1, 1, 1024}};
enum { SHAPES = sizeof shapes / sizeof *shapes, LONGER = 2 };

/* Does a row in the middle see every key? Then a longer sequence may show more of the pattern. */
static bool is_dense(const trial *t) {
  const attn_problem *p = &t->in.problem;
  const attn_pattern *pattern = t->view.pattern;
  if (!pattern) return false;
  attn_run *runs = calloc((size_t)pattern->max_runs, sizeof *runs);
  const int64_t count = runs ? attn_pattern_row(pattern, p, 0, p->n_q - 1, runs) : 0;
  int64_t seen = 0;
  for (int64_t r = 0; r < count; r++) seen += runs[r].count;
  free(runs);
  return seen >= p->n_kv;
}

static attn_status trial_plan(trial *t, attn_problem p, int shape) {
  p.batch = shapes[shape].batch;
  p.heads = shapes[shape].heads;
  p.kv_heads = shapes[shape].kv_heads;
  p.n_q = p.n_kv = shapes[shape].n;
  attn_plan_destroy(t->plan);
  t->plan = NULL;
  t->in.problem = p;
  attn_status status = attn_plan_create_spec(&t->plan, &p, t->spec, &t->options);
  if (!status) t->in.problem = *attn_plan_problem(t->plan);
  return status ? status : attn_plan_inspect(t->plan, &t->view);
}

static attn_status choose_shape(trial *t, attn_problem p) {
  attn_status status = ATTN_EUNSUPPORTED;
  int s = -1;
  while ((status == ATTN_EUNSUPPORTED || status == ATTN_EINVAL) && ++s < SHAPES) status = trial_plan(t, p, s);
  if (s == SHAPES) return attn_fail(ATTN_EUNSUPPORTED, "no trial: %s", attn_last_error());
  if (status || s >= LONGER || !(t->view.projection || is_dense(t))) return status;
  status = trial_plan(t, p, LONGER);
  return status == ATTN_EUNSUPPORTED || status == ATTN_EINVAL ? trial_plan(t, p, s) : status;
}

attn_status trial_make(const evidence *e, region *memory, trial *t) {
  const attn_context *c = attn_plan_context(e->plan);
  attn_problem p = *c->problem;
  transform_clear(&p);
  p.q = p.k = p.v = p.o = (attn_stride){0};
  /* Steps of 64 queries and 96 keys, so that there are several, and the same ones at every length. */
  *t = (trial){.spec = attn_plan_parsed_spec(e->plan),
               .options = {.threads = 1, .isa = attn_plan_isa(e->plan), .blocks = {64, 96}},
               .memory = memory};
  attn_status status = choose_shape(t, p);
  if (!status) {
    p = t->in.problem;
    status = trial_inputs_draw(memory, &p, 1, &t->in);
  }
  return status ? status : trial_execute(memory, t->plan, &t->in, POISON_NAN, &t->o);
}

const char *trial_exempt(const trial *t, uint32_t properties) {
  return attn_exempt(t->view.exempt, properties);
}
