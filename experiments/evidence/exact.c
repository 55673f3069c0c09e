/* exact.c - the rows of the output that are compared, and exact attention on them.
 *
 * Stratified sampling: every (batch, head) and every bin of the position is a stratum with min(size, 4)
 * rows. */
#include "experiments/evidence/exact.h"
#include "attn_variant.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS_MAX = 4096, ROWS_PER_HEAD = 64, ROWS_PER_STRATUM = 4 };
static const int64_t complete_weights = INT64_C(4) << 20;
static const int64_t sampled_weights = INT64_C(16) << 20;
static const uint64_t purpose_rows = 0x726f7773; /* "rows" */

sampling sampling_of(const attn_problem *p) {
  int64_t lines = p->batch * p->heads;
  sampling s = {.bins = 1, .per_stratum = p->n_q};
  if (lines * p->n_q <= ROWS_MAX && lines * p->n_q <= complete_weights / p->n_kv) return s;
  int64_t rows = sampled_weights / lines / p->n_kv;
  if (rows > ROWS_PER_HEAD) rows = ROWS_PER_HEAD;
  s.bins = rows / ROWS_PER_STRATUM > 0 ? rows / ROWS_PER_STRATUM : 1;
  if (s.bins > p->n_q) s.bins = p->n_q;
  s.per_stratum = ROWS_PER_STRATUM;
  return s;
}

int64_t sampling_start(const sampling *s, int64_t n_q, int64_t bin) { return bin * n_q / s->bins; }

int64_t sampling_bin(const sampling *s, int64_t n_q, int64_t i) { return ((i + 1) * s->bins - 1) / n_q; }

bool stratum_next(const attn_problem *p, const exact_rows *x, const sampling *s, stratum *at) {
  int64_t first = at->first + at->count;
  if (first >= x->count) return false;
  const sample_row *head = &x->rows[first];
  int64_t bin = sampling_bin(s, p->n_q, head->i), count = 1;
  while (first + count < x->count) {
    const sample_row *row = &x->rows[first + count];
    if (row->batch != head->batch || row->head != head->head || sampling_bin(s, p->n_q, row->i) != bin) break;
    count++;
  }
  int64_t size = sampling_start(s, p->n_q, bin + 1) - sampling_start(s, p->n_q, bin);
  *at = (stratum){first, count, (double)size};
  return true;
}

/* Knuth's selection sampling: ascending, without replacement. */
static int64_t stratum_draw(attn_rng *rng, int64_t first, int64_t last, int64_t want, sample_row row,
                            sample_row *out) {
  int64_t taken = 0;
  for (int64_t i = first; i < last && taken < want; i++) {
    if (attn_rng_below(rng, last - i) >= want - taken) continue;
    row.i = i;
    out[taken++] = row;
  }
  return taken;
}

static int64_t rows_draw(const attn_problem *p, uint64_t seed, sample_row *rows) {
  sampling s = sampling_of(p);
  int64_t count = 0;
  for (int64_t line = 0; line < p->batch * p->heads; line++) {
    attn_rng rng;
    attn_rng_init(&rng, seed, purpose_rows, (uint64_t)line);
    sample_row row = {.batch = line / p->heads, .head = line % p->heads};
    for (int64_t bin = 0; bin < s.bins; bin++) {
      int64_t first = sampling_start(&s, p->n_q, bin), last = sampling_start(&s, p->n_q, bin + 1);
      int64_t want = last - first < s.per_stratum ? last - first : s.per_stratum;
      count += stratum_draw(&rng, first, last, want, row, rows + count);
    }
  }
  return count;
}

void exact_rows_free(exact_rows *x) {
  if (!x) return;
  free(x->rows);
  free(x->keys);
  free(x->p);
  free(x->o);
  free(x);
}

static attn_status exact_rows_alloc(const attn_problem *p, exact_rows **out) {
  sampling s = sampling_of(p);
  size_t rows, weights, outputs;
  attn_status status = attn_size_product(
      "rows to compare", (int64_t[]){p->batch, p->heads, s.bins, s.per_stratum, 64}, 5, &rows);
  if (status) return status;
  rows /= 64;
  status =
      attn_size_product("exact weights", (int64_t[]){(int64_t)rows, p->n_kv, sizeof(double)}, 3, &weights);
  if (status) return status;
  status =
      attn_size_product("exact outputs", (int64_t[]){(int64_t)rows, p->d_v, sizeof(double)}, 3, &outputs);
  if (status) return status;
  exact_rows *x = calloc(1, sizeof *x);
  if (x) {
    x->rows = malloc(rows * sizeof *x->rows);
    x->keys = malloc(rows * sizeof *x->keys);
    x->p = malloc(weights);
    x->o = malloc(outputs);
  }
  if (!x || !x->rows || !x->keys || !x->p || !x->o) {
    exact_rows_free(x);
    return attn_fail(ATTN_ENOMEM, "no memory for %zu exact rows of %lld weights", rows, (long long)p->n_kv);
  }
  *out = x;
  return ATTN_OK;
}

attn_status exact_rows_compute(const attn_problem *problem, const void *q, const void *k, const void *v,
                               const int64_t *kv_len, uint64_t seed, exact_rows **out) {
  attn_problem p = *problem;
  attn_status status = attn_problem_resolve(&p);
  if (status) return status;
  exact_rows *x = NULL;
  status = exact_rows_alloc(&p, &x);
  if (status) return status;
  x->count = rows_draw(&p, seed, x->rows);
  x->complete = x->count == p.batch * p.heads * p.n_q;
  bool failed = false;
#pragma omp parallel
  {
    double *scratch = malloc((size_t)p.n_kv * sizeof *scratch);
    if (!scratch) {
#pragma omp atomic write
      failed = true;
    }
#pragma omp for schedule(dynamic, 4)
    for (int64_t r = 0; r < x->count; r++) {
      const sample_row *row = &x->rows[r];
      if (scratch)
        x->keys[r] = attn_reference_row(&p, NULL, q, k, v, kv_len, row->batch, row->head, row->i,
                                        x->p + r * p.n_kv, x->o + r * p.d_v, scratch);
    }
    free(scratch);
  }
  if (failed) {
    exact_rows_free(x);
    return attn_fail(ATTN_ENOMEM, "no memory for the scores of one row of %lld keys", (long long)p.n_kv);
  }
  *out = x;
  return ATTN_OK;
}
