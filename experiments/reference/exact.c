/* exact.c - the rows of the output that are compared, and exact attention on them.
 *
 * Stratified sampling: every (batch, head) and every bin of the position is a stratum with min(size, 4)
 * rows. Edges, where blocks of any kind begin and end, are taken besides. */
#include "experiments/reference/exact.h"

#include "experiments/reference/attend.h"

#include <stdlib.h>

enum { ROWS_MAX = 4096, ROWS_PER_HEAD = 64, ROWS_PER_STRATUM = 4, EDGES = 6, TOGETHER = 96 };
static const int64_t complete_weights = INT64_C(4) << 20;
static const int64_t sampled_weights = INT64_C(16) << 20;
static const uint64_t purpose_rows = 0x726f7773, purpose_edges = 0x65646765; /* "rows", "edge" */

sampling sampling_of(const attn_problem *p, int64_t wanted) {
  int64_t lines = p->batch * p->heads, rows = sampled_weights / lines / p->n_kv;
  sampling s = {.bins = 1, .per_stratum = p->n_q};
  if (wanted ? wanted >= p->n_q && p->n_q <= rows
             : lines * p->n_q <= ROWS_MAX && lines * p->n_q <= complete_weights / p->n_kv)
    return s;
  if (!wanted) wanted = ROWS_PER_HEAD;
  if (rows > wanted) rows = wanted;
  s.bins = rows / ROWS_PER_STRATUM > 0 ? rows / ROWS_PER_STRATUM : 1;
  if (s.bins > p->n_q) s.bins = p->n_q;
  s.per_stratum = wanted < ROWS_PER_STRATUM ? wanted : ROWS_PER_STRATUM;
  return s;
}

int64_t sampling_start(const sampling *s, int64_t n_q, int64_t bin) { return bin * n_q / s->bins; }

int64_t sampling_bin(const sampling *s, int64_t n_q, int64_t i) { return ((i + 1) * s->bins - 1) / n_q; }

bool stratum_next(const attn_problem *p, const exact_rows *x, stratum *at) {
  const sampling *s = &x->design;
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

static int64_t rows_draw(const attn_problem *p, sampling s, uint64_t seed, sample_row *rows) {
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

/* -- edges -- */

/* The first row of a block that begins near i: of 64 or 96 rows, or of a power of two of them. */
static int64_t edge_near(attn_rng *rng, int64_t i, int64_t n) {
  int64_t size = attn_rng_below(rng, 3) ? 64 : 96;
  for (int64_t more = attn_rng_below(rng, 4); more > 0 && 2 * size < n; more--) size *= 2;
  return (i + size / 2) / size * size;
}

void rows_spread(attn_rng *rng, int64_t n, int64_t count, int64_t *rows) {
  for (int64_t r = 0; r < count; r++) {
    int64_t low = r * n / count, high = (r + 1) * n / count, pick = low + attn_rng_below(rng, high - low);
    int64_t edge = edge_near(rng, pick, n) - attn_rng_below(rng, 2);
    if (attn_rng_below(rng, 2)) {
      if (low == 0 && attn_rng_below(rng, 2))
        pick = 0;
      else if (high == n && attn_rng_below(rng, 2))
        pick = n - 1;
      else if (low <= edge && edge < high)
        pick = edge;
    }
    rows[r] = pick;
  }
}

/* How many rows of each (batch, head) are taken at edges. */
static int64_t edges_of(const attn_problem *p, sampling s) {
  int64_t half = s.bins * s.per_stratum / 2;
  if (s.bins * s.per_stratum >= p->n_q) return 0;
  return half < EDGES ? half : EDGES;
}

static void insert(int64_t *sorted, int64_t count, int64_t value) {
  int64_t at = count;
  for (; at > 0 && sorted[at - 1] > value; at--) sorted[at] = sorted[at - 1];
  sorted[at] = value;
}

/* Before and at a small edge, before and at any, the first and the last row. */
static int64_t edges_draw(const attn_problem *p, sampling s, uint64_t seed, sample_row *rows) {
  int64_t want = edges_of(p, s), count = 0;
  for (int64_t line = 0; line < p->batch * p->heads && want > 0; line++) {
    int64_t at[EDGES], found[EDGES] = {0}, early = 64, n = p->n_q;
    attn_rng rng;
    attn_rng_init(&rng, seed, purpose_edges, (uint64_t)line);
    while (2 * early < n && attn_rng_below(&rng, 2)) early *= 2;
    if (early >= n) early = n - 1;
    int64_t any = edge_near(&rng, attn_rng_below(&rng, n), n);
    if (any < 1 || any >= n) any = early;
    at[0] = early - 1, at[1] = early, at[2] = any - 1, at[3] = any, at[4] = 0, at[5] = n - 1;
    for (int64_t e = 0; e < want; e++) insert(found, e, at[e]);
    for (int64_t e = 0; e < want; e++)
      if (e == 0 || found[e] != found[e - 1])
        rows[count++] = (sample_row){line / p->heads, line % p->heads, found[e]};
  }
  return count;
}

/* -- exact attention -- */

void exact_rows_free(exact_rows *x) {
  if (!x) return;
  region_free(&x->memory);
  free(x->all);
  free(x);
}

static bool same_line(const sample_row *a, const sample_row *b) {
  return a->batch == b->batch && a->head == b->head;
}

int64_t exact_line(const exact_rows *x, int64_t batch, int64_t head, int64_t *count) {
  const sample_row line = {batch, head, 0};
  int64_t first = 0;
  while (first < x->count && !same_line(&x->rows[first], &line)) first++;
  for (*count = 0; first + *count < x->count && same_line(&x->rows[first + *count], &line);) ++*count;
  return first;
}

static attn_status exact_rows_alloc(const attn_problem *p, sampling s, exact_rows **out) {
  size_t rows, weights, outputs;
  attn_status status = attn_size_product(
      "rows to compare", (int64_t[]){p->batch, p->heads, s.bins * s.per_stratum + edges_of(p, s), 64}, 4,
      &rows);
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
    x->design = s;
    x->rows = region_take(&x->memory, (int64_t)rows, sizeof *x->rows);
    x->keys = region_take(&x->memory, (int64_t)rows, sizeof *x->keys);
    x->p = region_take(&x->memory, 1, weights);
    x->sink = region_take(&x->memory, (int64_t)rows, sizeof *x->sink);
    x->o = region_take(&x->memory, 1, outputs);
  }
  if (!x || x->memory.refused) {
    exact_rows_free(x);
    return attn_fail(ATTN_ENOMEM, "no memory for %zu exact rows of %lld weights", rows, (long long)p->n_kv);
  }
  *out = x;
  return ATTN_OK;
}

/* Up to TOGETHER rows of one (batch, head), in order of the sample. */
typedef struct row_group {
  int64_t first, count;
} row_group;

static row_group group_after(const exact_rows *x, row_group before) {
  row_group g = {before.first + before.count, 0};
  while (g.first + g.count < x->judged && g.count < TOGETHER &&
         same_line(&x->rows[g.first], &x->rows[g.first + g.count]))
    g.count++;
  return g;
}

static void group_compute(const attn_problem *p, const void *q, const void *k, const void *v,
                          const int64_t *kv_len, row_group g, const exact_rows *x, double *scratch) {
  int64_t row[TOGETHER], at[TOGETHER], batch = x->rows[g.first].batch;
  for (int64_t r = 0; r < g.count; r++) {
    at[r] = g.first + r;
    row[r] = x->rows[at[r]].i;
  }
  attend_rows rows = {.problem = p,
                      .q = q,
                      .k = k,
                      .v = v,
                      .batch = batch,
                      .head = x->rows[g.first].head,
                      .exist = kv_len ? kv_len[batch] : p->n_kv,
                      .count = g.count,
                      .row = row,
                      .at = at,
                      .keys = x->keys,
                      .p = x->p,
                      .o = x->o,
                      .sink = x->sink};
  attend(&rows, scratch);
}

attn_status exact_rows_compute(const attn_problem *problem, const void *q, const void *k, const void *v,
                               const int64_t *kv_len, uint64_t seed, exact_rows **out) {
  return exact_rows_draw(problem, q, k, v, kv_len, seed, 0, out);
}

attn_status exact_rows_draw(const attn_problem *problem, const void *q, const void *k, const void *v,
                            const int64_t *kv_len, uint64_t seed, int64_t rows, exact_rows **out) {
  attn_problem p = *problem;
  attn_status status = attn_problem_resolve(&p);
  if (status) return status;
  exact_rows *x = NULL;
  const sampling design = sampling_of(&p, rows);
  status = exact_rows_alloc(&p, design, &x);
  if (status) return status;
  x->count = rows_draw(&p, design, seed, x->rows);
  x->judged = x->count + edges_draw(&p, design, seed, x->rows + x->count);
  x->complete = x->count == p.batch * p.heads * p.n_q;
  int64_t groups = 0;
  row_group *group = malloc((size_t)x->judged * sizeof *group);
  for (row_group g = {0, 0}; group && (g = group_after(x, g)).count > 0;) group[groups++] = g;
  bool failed = !group;
#pragma omp parallel if (!failed)
  {
    double *scratch = malloc(attend_scratch(&p) * sizeof *scratch);
    if (!scratch) {
#pragma omp atomic write
      failed = true;
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t g = 0; g < groups; g++)
      if (scratch) group_compute(&p, q, k, v, kv_len, group[g], x, scratch);
    free(scratch);
  }
  free(group);
  if (failed) {
    exact_rows_free(x);
    return attn_fail(ATTN_ENOMEM, "no memory for a block of %lld keys", (long long)p.n_kv);
  }
  *out = x;
  return ATTN_OK;
}
