/* block.c - see block.h. */
#include "experiments/checks/lowrank/block.h"

#include "experiments/evidence/support_row.h"
#include "experiments/mathematics/spectrum.h"

#include <stdlib.h>

int64_t block_rank(const attn_view *v) {
  return v->features ? v->features->columns : v->projection ? v->projection->slots : v->low_rank->rank;
}

/* Evenly spaced: place t of count among n. */
static int64_t place(int64_t t, int64_t count, int64_t n) { return t * n / count; }

/* The problem of a block, of one head; rows lie as the run's. */
static attn_problem problem_of(const evidence *e, block_shape shape) {
  attn_problem x = *e->problem;
  x.batch = x.heads = x.kv_heads = 1;
  x.n_q = shape.n_q;
  x.n_kv = shape.n_kv;
  return x;
}

static int64_t keys_of(const evidence *e, block_shape shape) {
  const int64_t keys = evidence_keys(e, 0);
  return keys < shape.n_kv ? keys : shape.n_kv;
}

static attn_status exact_block(const evidence *e, block_shape shape, double *out) {
  const attn_problem own = problem_of(e, shape), *x = &own;
  const int64_t count = shape.count, keys = keys_of(e, shape);
  bool failed = false;
#pragma omp parallel
  {
    double *weights = malloc((size_t)x->n_kv * sizeof *weights),
           *scratch = malloc((size_t)x->n_kv * sizeof *scratch);
#pragma omp for schedule(dynamic, 4)
    for (int64_t t = 0; t < count; t++) {
      if (!weights || !scratch ||
          attn_reference_row(x, NULL, e->q, e->k, e->v, &keys, 0, 0, place(t, count, x->n_q), weights, NULL,
                             scratch) < 0) {
#pragma omp atomic write
        failed = true;
        continue;
      }
      for (int64_t c = 0; c < count; c++) out[t * count + c] = weights[place(c, count, x->n_kv)];
    }
    free(weights);
    free(scratch);
  }
  return failed ? attn_fail(ATTN_ENOMEM, "no memory for a block of exact weights") : ATTN_OK;
}

attn_status block_exact(const evidence *e, block_shape shape, const spectrum_entry **out) {
  const int64_t count = shape.count;
  struct block_cache *cache = e->cache;
  for (int i = 0; i < SPECTRA; i++)
    if (cache->spectra[i].count == count && cache->spectra[i].n_q == shape.n_q &&
        cache->spectra[i].n_kv == shape.n_kv) {
      *out = &cache->spectra[i];
      return ATTN_OK;
    }
  spectrum_entry *entry = &cache->spectra[cache->spectrum_next];
  spectrum_entry made = {.count = count,
                         .n_q = shape.n_q,
                         .n_kv = shape.n_kv,
                         .block = malloc((size_t)(count * count) * sizeof(double)),
                         .squares = malloc((size_t)count * sizeof(double))};
  const double **rows = malloc((size_t)count * sizeof *rows);
  attn_status status =
      made.block && made.squares && rows ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for exact weights");
  if (!status) status = exact_block(e, shape, made.block);
  for (int64_t t = 0; t < count && !status; t++) rows[t] = made.block + t * count;
  if (!status) status = spectrum_squares(rows, count, count, made.squares);
  free(rows);
  if (status) {
    free(made.block);
    free(made.squares);
    return status;
  }
  free(entry->block);
  free(entry->squares);
  *entry = made;
  cache->spectrum_next = (cache->spectrum_next + 1) % SPECTRA;
  *out = entry;
  return ATTN_OK;
}

attn_status block_implied(const evidence *e, block_shape shape, double *out) {
  attn_problem x = problem_of(e, shape);
  const int64_t count = shape.count, keys = keys_of(e, shape);
  x.q = x.k = x.v = x.o = (attn_stride){0};
  x.dtype = ATTN_F64;
  x.n_q = count;
  x.d_v = count;
  attn_plan *plan = NULL;
  attn_status status = evidence_plan(e, &x, NULL, 0, &plan, NULL);
  if (status) return status;
  double *q = region_take(e->memory, count * x.d_qk, sizeof *q),
         *k = region_take(e->memory, x.n_kv * x.d_qk, sizeof *k),
         *v = region_zeros(e->memory, x.n_kv * count, sizeof *v);
  void *work = region_take(e->memory, 1, attn_plan_work_size(plan) + 1);
  if (!(status = region_status(e->memory, "to read weights off"))) {
    for (int64_t t = 0; t < count; t++) {
      row_widen(e->q, e->problem->dtype, place(t, count, shape.n_q) * x.d_qk, x.d_qk, q + t * x.d_qk);
      v[place(t, count, x.n_kv) * count + t] = 1;
    }
    row_widen(e->k, e->problem->dtype, 0, x.n_kv * x.d_qk, k);
    status = attn_plan_execute(plan, q, k, v, &keys, out, work);
  }
  attn_plan_destroy(plan);
  return status;
}
