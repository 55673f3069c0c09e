/* attention_map.c - what a variant gives to each key, read off from V = I, and the attention map of a run. */
#include "experiments/evidence/columns.h"

#include "attn_tools.h"
#include "experiments/evidence/cache.h"
#include "experiments/reference/transform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Do keys have a weight for each column of V? */
static bool has_columns(const evidence *e) {
  const attn_call call = evidence_call(e);
  const attn_extra *write = attn_call_extra(&call, "write"), *gate = attn_call_extra(&call, "gate");
  return (write && write->columns > 1) ||
         (gate && e->problem->d_v > 1 && gate->columns % e->problem->d_v == 0);
}

/* Would other keys be taken, or other weights given, where V = I? What rounds values to a type leaves I. */
static bool looks_at_values(const attn_view *view) {
  return view && attn_exempt(view->exempt, ATTN_EXEMPT_VALUES) &&
         !(view->store && !view->store->v_scheme.decode);
}

/* A plan of only the first head or, where the variant needs the run's number of heads, as an index of its
 * queries may, of all heads on the tensors of the first. */
static attn_status plan_first_head(const evidence *e, int64_t cells, attn_plan **plan) {
  attn_problem p = *e->problem;
  transform_one_head(&p, 0, 0);
  p.d_v = cells;
  p.q = p.k = p.v = p.o = (attn_stride){0};
  const attn_call call = evidence_call(e);
  attn_status status =
      attn_call_extra(&call, "index_q") ? ATTN_EUNSUPPORTED : evidence_plan(e, &p, NULL, 0, plan, NULL);
  if (status != ATTN_EINVAL && status != ATTN_EUNSUPPORTED) return status;
  p = *e->problem;
  p.batch = 1;
  p.d_v = cells;
  p.q = p.k = (attn_stride){0, 0, p.d_qk, 0};
  p.v = (attn_stride){0, 0, cells, 0};
  p.o = (attn_stride){0};
  return evidence_plan(e, &p, NULL, 0, plan, NULL);
}

attn_status attention_map_weights(const evidence *e, int64_t cells, void **weights) {
  attn_plan *plan = NULL;
  size_t v_bytes, o_bytes;
  void *v = NULL, *o = NULL, *work = NULL;
  *weights = NULL;
  if (has_columns(e) || looks_at_values(e->view)) return ATTN_OK;
  attn_status status = plan_first_head(e, cells, &plan);
  if (status) return status == ATTN_EUNSUPPORTED ? ATTN_OK : status;
  const attn_problem p = *attn_plan_problem(plan);
  const int64_t size = (int64_t)attn_dtype_size(p.dtype);
  status = attn_size_product("cells of the keys", (int64_t[]){p.n_kv, cells, size}, 3, &v_bytes);
  if (!status)
    status = attn_size_product("implied weights", (int64_t[]){p.heads, p.n_q, cells, size}, 4, &o_bytes);
  if (!status && (!(v = calloc(1, v_bytes)) || !(o = malloc(o_bytes))))
    status = attn_fail(ATTN_ENOMEM, "no memory for the implied weights of a head");
  if (status) goto out;
  work = malloc(attn_plan_work_size(plan) + 1);
  if (!work) {
    status = attn_fail(ATTN_ENOMEM, "no memory for the implied weights of a head");
    goto out;
  }
  for (int64_t j = 0; j < p.n_kv; j++) {
    const int64_t at = j * cells + j * cells / p.n_kv;
    attn_set(v, at, p.dtype, 1);
  }
  attn_extra extra[ATTN_EXTRA_KINDS]; /* their first lines */
  const int64_t extras = e->extras < ATTN_EXTRA_KINDS ? e->extras : ATTN_EXTRA_KINDS;
  for (int64_t x = 0; x < extras; x++) {
    extra[x] = e->extra[x];
    extra[x].batch = 1;
    if (p.heads == 1 && strncmp(extra[x].name, "index_", 6) != 0) extra[x].heads = 1;
  }
  status = attn_plan_run(plan, &(attn_tensors){.q = e->q,
                                               .k = e->k,
                                               .v = v,
                                               .kv_len = e->kv_len,
                                               .o = o,
                                               .work = work,
                                               .extra = extra,
                                               .extras = extras});
out:
  attn_plan_destroy(plan);
  free(v);
  free(work);
  if (!status)
    *weights = o;
  else
    free(o);
  return status;
}

/* The first query of a cell. */
static int64_t cell_start(int64_t cell, int64_t n, int64_t cells) { return (cell * n + cells - 1) / cells; }

/* One row of cells of the exact map. scratch: 2 n_kv + cells. */
static bool exact_cells(const evidence *e, int64_t cell, int64_t rows, int64_t columns, double *scratch,
                        float *out) {
  const attn_problem *p = e->problem;
  double *weights = scratch, *scores = scratch + p->n_kv, *sums = scores + p->n_kv;
  const int64_t first = cell_start(cell, p->n_q, rows), last = cell_start(cell + 1, p->n_q, rows);
  for (int64_t c = 0; c < columns; c++) sums[c] = 0;
  for (int64_t i = first; i < last; i++) {
    if (attn_reference_row(p, NULL, e->q, e->k, e->v, e->kv_len, 0, 0, i, weights, NULL, scores) < 0)
      return false;
    for (int64_t j = 0; j < p->n_kv; j++) sums[j * columns / p->n_kv] += weights[j];
  }
  for (int64_t c = 0; c < columns; c++) out[c] = (float)(sums[c] / (double)(last - first));
  return true;
}

static attn_status exact_map(const evidence *e, int64_t rows, int64_t columns) {
  if (e->cache->exact_map) return ATTN_OK;
  float *map = calloc((size_t)(rows * columns), sizeof *map);
  bool failed = !map;
  if (failed) goto out;
#pragma omp parallel
  {
    double *scratch = malloc((size_t)(2 * e->problem->n_kv + columns) * sizeof *scratch);
#pragma omp for schedule(dynamic, 1)
    for (int64_t cell = 0; cell < rows; cell++)
      if (!scratch || !exact_cells(e, cell, rows, columns, scratch, map + cell * columns)) {
#pragma omp atomic write
        failed = true;
      }
    free(scratch);
  }
out:
  if (failed) {
    free(map);
    return attn_fail(ATTN_ENOMEM, "no memory for an attention map");
  }
  e->cache->exact_map = map;
  return ATTN_OK;
}

attn_status evidence_map(const evidence *e, result_row *row) {
  const attn_problem *p = e->problem;
  const int64_t rows = result_map_cells(p->n_q), columns = result_map_cells(p->n_kv);
  const size_t count = (size_t)(rows * columns);
  void *weights = NULL;
  float *map = calloc(2 * count, sizeof *map), *approx = map ? map + count : NULL;
  attn_status status =
      map ? exact_map(e, rows, columns) : attn_fail(ATTN_ENOMEM, "no memory for an attention map");
  if (!status) status = attention_map_weights(e, columns, &weights);
  if (status || !weights) goto out;
  memcpy(map, e->cache->exact_map, count * sizeof *map);
  bool finite = true;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) {
      const int64_t first = cell_start(r, p->n_q, rows), last = cell_start(r + 1, p->n_q, rows);
      double sum = 0;
      for (int64_t i = first; i < last; i++) sum += attn_get(weights, i * columns + c, p->dtype);
      approx[r * columns + c] = (float)(sum / (double)(last - first));
      finite = finite && isfinite(map[r * columns + c]) && isfinite(approx[r * columns + c]);
    }
  if (finite) {
    row->map = map;
    map = NULL;
  }
out:
  free(weights);
  free(map);
  return status;
}
