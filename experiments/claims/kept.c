/* kept.c - the keys that a pattern or a selection keeps, row by row, and their exact mass. */
#include "experiments/claims/kept.h"

#include <stdlib.h>

#include "experiments/reference/seen.h"
#include "experiments/reference/visible.h"

enum { MOST_ROWS = 2048 };

void kept_subject_free(kept_subject *s) {
  data_qkv_free(&s->in);
  exact_rows_free(s->x);
  free(s->take);
}

attn_status kept_subject_make(const claim_options *o, kept_subject *s) {
  *s = (kept_subject){.x = NULL};
  attn_status status = claim_tensors(o, KEPT_N, &s->in);
  s->p = data_qkv_problem(&s->in);
  s->p.causal = true;
  if (!status) status = exact_rows_compute(&s->p, s->in.q, s->in.k, s->in.v, NULL, o->seed, &s->x);
  if (!status && !(s->take = calloc((size_t)s->x->judged + 1, sizeof *s->take)))
    status = attn_fail(ATTN_ENOMEM, "no memory for the rows of a claim");
  for (int64_t r = 0, step = status ? 1 : s->x->count / MOST_ROWS + 1; !status && r < s->x->count; r += step)
    s->take[r] = s->x->keys[r] >= KEPT_FEWEST;
  return status;
}

attn_status kept_rows(const kept_subject *s, const char *spec, kept_visit *visit, void *context) {
  attn_plan *plan = NULL;
  attn_view view;
  seen_keys seen = {.pattern = NULL};
  region memory = {.last = NULL};
  attn_status status = attn_plan_create(&plan, &s->p, spec, NULL);
  if (!status) status = attn_plan_inspect(plan, &view);
  if (!status)
    status = seen_make(&(seen_run){plan, &view, {.q = s->in.q, .k = s->in.k, .v = s->in.v}}, s->x->rows,
                       s->take, s->x->count, &seen);
  if (status) goto out;
  bool *inside = region_zeros(&memory, s->p.n_kv, sizeof *inside);
  int64_t *keys = region_zeros(&memory, s->p.n_kv, sizeof *keys);
  double *own = region_zeros(&memory, s->p.n_kv, sizeof *own),
         *log_weights = region_zeros(&memory, s->p.n_kv, sizeof *own);
  attn_run *runs = region_take(&memory, visible_most_runs(seen_of(&seen, 0), &s->p), sizeof *runs);
  status = region_status(&memory, "for the keys of a row");
  for (int64_t r = 0; r < s->x->count && !status; r++) {
    const sample_row *row = &s->x->rows[r];
    if (!s->take[r]) continue;
    visible_mark(seen_of(&seen, row->batch), &s->p, row->batch, row->head, row->i, s->p.n_kv, runs, inside);
    int64_t count = 0;
    for (int64_t j = 0; j < s->x->keys[r]; j++)
      if (inside[j]) keys[count++] = j;
    if (seen.log_weights) seen_log_weights(&seen, row, keys, count, own);
    for (int64_t a = 0; a < count; a++) log_weights[keys[a]] = seen.log_weights ? own[a] : 0;
    visit(s, r, inside, log_weights, context);
  }
out:
  seen_free(&seen);
  attn_plan_destroy(plan);
  region_free(&memory);
  return status;
}

static void add(const kept_subject *s, int64_t r, const bool *inside, const double *log_weights,
                void *context) {
  (void)log_weights;
  kept *k = context;
  const double *p = s->x->p + r * s->p.n_kv;
  double mass = 0, keys = 0;
  for (int64_t j = 0; j < s->x->keys[r]; j++)
    if (inside[j]) {
      mass += p[j];
      keys++;
    }
  k->visible[k->count] = (double)s->x->keys[r];
  k->keys[k->count] = keys;
  k->mass[k->count++] = mass;
}

attn_status kept_make(const kept_subject *s, const char *spec, kept *out) {
  *out = (kept){.count = 0};
  out->mass = region_zeros(&out->memory, s->x->count, sizeof *out->mass);
  out->keys = region_zeros(&out->memory, s->x->count, sizeof *out->keys);
  out->visible = region_zeros(&out->memory, s->x->count, sizeof *out->visible);
  const attn_status status = region_status(&out->memory, "for the masses of rows");
  return status ? status : kept_rows(s, spec, add, out);
}
