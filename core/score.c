/* score.c - what a problem does to its scores and which keys it masks: validity, one score in fp64, the keys
 * of a query, and the tables of ALiBi and T5. The definitions are in attn.h. */
#include "core/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- validity ------------------------------------------------------------------------------------------ */

static attn_status check_bias(const attn_bias *b, const attn_problem *p) {
  if (!b->at) return ATTN_OK;
  if ((unsigned)b->dtype >= ATTN_DTYPES)
    return attn_fail(ATTN_EINVAL, "score.dense: unknown dtype %d", (int)b->dtype);
  if (b->batch < 0 || b->head < 0) return attn_fail(ATTN_EINVAL, "score.dense: negative stride");
  if (b->row < p->n_kv)
    return attn_fail(ATTN_EINVAL, "score.dense: row stride %lld, expected at least n_kv = %lld",
                     (long long)b->row, (long long)p->n_kv);
  return attn_strides_fit("score.dense",
                          (int64_t[3][2]){{p->batch, b->batch}, {p->heads, b->head}, {p->n_q, b->row}});
}

attn_status attn_score_check(const attn_problem *p) {
  const attn_score *s = &p->score;
  const double most = ATTN_SCORE_MOST * attn_numbers[p->dtype].largest;
  if (!(s->softcap >= 0 && s->softcap <= most))
    return attn_fail(ATTN_EINVAL, "score.softcap = %g, expected a positive number up to %g, or 0 for none",
                     s->softcap, most);
  if (!(s->leaky >= 0 && s->leaky < 1))
    return attn_fail(ATTN_EINVAL, "score.leaky = %g, expected a number in (0, 1), or 0 for none", s->leaky);
  if (s->softcap > 0 && s->leaky > 0) return attn_fail(ATTN_EINVAL, "score: give softcap or leaky, not both");
  if (s->relative && s->relative_heads != 1 && s->relative_heads != p->heads)
    return attn_fail(ATTN_EINVAL, "score.relative_heads = %lld, expected 1 or heads = %lld",
                     (long long)s->relative_heads, (long long)p->heads);
  if (s->relative && (s->span < 1 || s->span > PTRDIFF_MAX / 16 / s->relative_heads))
    return attn_fail(ATTN_EINVAL, "score.span = %lld, expected at least 1", (long long)s->span);
  if (s->relative && (s->zero < 0 || s->zero >= s->span))
    return attn_fail(ATTN_EINVAL, "score.zero = %lld, expected 0 ... span - 1 = %lld", (long long)s->zero,
                     (long long)(s->span - 1));
  return check_bias(&s->dense, p);
}

attn_status attn_mask_check(const attn_problem *p) {
  const attn_mask *m = &p->mask;
  switch (m->kind) {
  case ATTN_MASK_NONE:
    return ATTN_OK;
  case ATTN_MASK_PREFIX:
    if (m->size >= 0) return ATTN_OK;
    return attn_fail(ATTN_EINVAL, "mask.size = %lld, expected a prefix of at least 0 keys",
                     (long long)m->size);
  case ATTN_MASK_BLOCK_CAUSAL:
    if (m->size >= 1) return ATTN_OK;
    return attn_fail(ATTN_EINVAL, "mask.size = %lld, expected blocks of at least 1 key", (long long)m->size);
  case ATTN_MASK_DOCUMENTS:
    if (!m->offsets) return attn_null("mask", "offsets");
    if (m->count >= 1 && m->count <= p->n_kv) return ATTN_OK;
    return attn_fail(ATTN_EINVAL, "mask.count = %lld, expected 1 ... n_kv = %lld documents",
                     (long long)m->count, (long long)p->n_kv);
  case ATTN_MASK_PATTERN:
    if (!m->pattern) return attn_null("mask", "pattern");
    return attn_pattern_check("mask", m->pattern);
  }
  return attn_fail(ATTN_EINVAL, "mask.kind = %d, no such kind", (int)m->kind);
}

static attn_status check_numbers(const attn_problem *p, const char *what, const double *x, int64_t count) {
  const double most = ATTN_SCORE_MOST * attn_numbers[p->dtype].largest;
  for (int64_t i = 0; x && i < count; i++)
    if (!(fabs(x[i]) <= most))
      return attn_fail(ATTN_EINVAL, "%s[%lld] = %g, expected a number from -%g to %g", what, (long long)i,
                       x[i], most, most);
  return ATTN_OK;
}

attn_status attn_score_check_arrays(const attn_problem *p) {
  const attn_score *s = &p->score;
  const attn_mask *m = &p->mask;
  attn_status status = check_numbers(p, "score.relative", s->relative, s->relative_heads * s->span);
  if (!status) status = check_numbers(p, "score.sink", s->sink, p->heads);
  if (status || m->kind != ATTN_MASK_DOCUMENTS) return status;
  for (int64_t d = 0; d <= m->count; d++) {
    const int64_t least = d ? m->offsets[d - 1] + 1 : 0, most = d < m->count ? p->n_kv - 1 : p->n_kv;
    if (m->offsets[d] < least || m->offsets[d] > most || (!d && m->offsets[d]) ||
        (d == m->count && m->offsets[d] != p->n_kv))
      return attn_fail(ATTN_EINVAL,
                       "mask.offsets[%lld] = %lld, expected ascending keys from 0 to n_kv = %lld",
                       (long long)d, (long long)m->offsets[d], (long long)p->n_kv);
  }
  return ATTN_OK;
}

static attn_status copy_array(attn_arena *arena, int64_t count, size_t size, const void *from,
                              const void **kept) {
  if (!from) return ATTN_OK;
  void *copy = attn_arena_alloc(arena, count, size);
  if (!copy) return ATTN_ENOMEM;
  memcpy(copy, from, (size_t)count * size);
  *kept = copy;
  return ATTN_OK;
}

attn_status attn_score_keep(attn_problem *p, attn_arena *arena) {
  attn_score *s = &p->score;
  const void *relative = NULL, *sink = NULL, *offsets = NULL;
  const bool documents = p->mask.kind == ATTN_MASK_DOCUMENTS;
  attn_status status = copy_array(arena, s->relative_heads * s->span, sizeof(double), s->relative, &relative);
  if (!status) status = copy_array(arena, p->heads, sizeof(double), s->sink, &sink);
  if (!status && documents)
    status = copy_array(arena, p->mask.count + 1, sizeof(int64_t), p->mask.offsets, &offsets);
  if (status) return status;
  s->relative = relative;
  s->sink = sink;
  p->mask.offsets = offsets;
  return ATTN_OK;
}

/* ---- one score ----------------------------------------------------------------------------------------- */

static double dense_at(const attn_bias *b, int64_t batch, int64_t head, int64_t i, int64_t j) {
  return attn_get(b->at, batch * b->batch + head * b->head + i * b->row + j, b->dtype);
}

double attn_score_slope(const attn_problem *p, double t) {
  if (!p) return (double)NAN;
  const attn_score *s = &p->score;
  const double capped = s->softcap > 0 ? tanh(t / s->softcap) : 0;
  return (1 - capped * capped) * (s->leaky > 0 && !(t > 0) ? s->leaky : 1);
}

double attn_score_of(const attn_problem *p, int64_t batch, int64_t head, int64_t i, int64_t j, double t) {
  if (!p) return (double)NAN;
  const attn_score *s = &p->score;
  if (s->softcap > 0) t = s->softcap * tanh(t / s->softcap);
  if (s->leaky > 0 && t < 0) t *= s->leaky;
  if (s->relative) {
    int64_t at =
        attn_min(attn_max(attn_problem_position(p, i) - attn_key_position(p, j) + s->zero, 0), s->span - 1);
    t += s->relative[(s->relative_heads > 1 ? head : 0) * s->span + at];
  }
  return s->dense.at ? t + dense_at(&s->dense, batch, head, i, j) : t;
}

bool attn_score_hides(const attn_problem *p, int64_t batch, int64_t head, int64_t i, int64_t j) {
  if (!p || !p->score.dense.at) return false;
  return dense_at(&p->score.dense, batch, head, i, j) == -(double)INFINITY;
}

int64_t attn_seen_keys(const attn_problem *p, int64_t batch, int64_t head, int64_t i, int64_t exist,
                       attn_run *runs, int64_t *keys) {
  if (!p || !runs || !keys) return 0;
  const int64_t found =
      attn_pattern_row(p->mask.kind == ATTN_MASK_PATTERN ? p->mask.pattern : NULL, p, head, i, runs);
  int64_t count = 0;
  for (int64_t r = 0; r < found; r++)
    for (int64_t c = 0; c < runs[r].count; c++) {
      const int64_t j = runs[r].first + c * runs[r].step;
      if (j < exist && !attn_score_hides(p, batch, head, i, j)) keys[count++] = j;
    }
  return count;
}

void attn_score_row(const attn_call *call, int64_t batch, int64_t head, int64_t i, int64_t first,
                    int64_t count, void *x) {
  if (!call || !x) return;
  attn_problem biases = attn_call_problem(call, batch, head);
  attn_score *s = &biases.score;
  call->context->kernels->map_row(count, x, biases.scale, (attn_score_map){s->softcap, s->leaky});
  if (!s->relative && !s->dense.at) return;
  s->softcap = s->leaky = 0;
  for (int64_t j = 0; j < count; j++) {
    const double y = attn_score_of(&biases, batch, head, i, first + j, attn_get(x, j, biases.dtype)),
                 most = ATTN_SCORE_MOST * attn_numbers[biases.dtype].largest;
    attn_set(x, j, biases.dtype, isfinite(y) ? fmin(fmax(y, -most), most) : y);
  }
}

/* ---- the keys of a query ------------------------------------------------------------------------------- */

/* The document of a position; of one before all documents, count. */
static int64_t document_of(const attn_mask *m, int64_t position) {
  int64_t low = 0, high = m->count;
  if (position < 0) return m->count;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (m->offsets[middle] <= position)
      low = middle;
    else
      high = middle;
  }
  return low;
}

bool attn_document_begins(const attn_problem *p, int64_t key) {
  if (!p || p->mask.kind != ATTN_MASK_DOCUMENTS) return false;
  const int64_t d = document_of(&p->mask, key);
  return d < p->mask.count && p->mask.offsets[d] == key;
}

int64_t attn_key_at(const attn_problem *p, int64_t position) {
  const attn_positions *x = &p->positions;
  int64_t low = 0, high = x->keys;
  if (!x->key) return position;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (x->key[middle] < position)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

bool attn_mask_is_band(const attn_mask *m) {
  return m->kind == ATTN_MASK_PATTERN && m->pattern->max_runs == 1 && !m->pattern->per_head &&
         !m->pattern->per_head_later;
}

void attn_visible_positions(const attn_problem *p, int64_t i, int64_t *first, int64_t *end) {
  const attn_mask *m = &p->mask;
  const int64_t position = attn_problem_position(p, i);
  int64_t from = 0, to = p->n_kv;
  if (m->kind == ATTN_MASK_PREFIX) to = attn_max(m->size, position + 1);
  if (m->kind == ATTN_MASK_BLOCK_CAUSAL)
    to = position < 0                                   ? 0
         : position / m->size > (p->n_kv - 1) / m->size ? p->n_kv
                                                        : (position / m->size + 1) * m->size;
  if (m->kind == ATTN_MASK_DOCUMENTS) {
    const int64_t d = document_of(m, position);
    from = d < m->count ? m->offsets[d] : 0;
    to = d < m->count ? m->offsets[d + 1] : 0;
  }
  if (attn_mask_is_band(m)) {
    attn_run run = {0, 0, 1};
    const bool any = m->pattern->row(m->pattern->state, 0, position, &run) > 0 && run.first >= 0;
    from = any ? attn_min(run.first, p->n_kv) : 0;
    to = any ? from + attn_min(run.count, p->n_kv - from) : 0;
  }
  if (p->causal) to = attn_min(to, position + 1);
  *first = from;
  *end = attn_max(attn_min(to, p->n_kv), from);
}

void attn_visible_span(const attn_problem *p, int64_t i, int64_t *first, int64_t *end) {
  if (!p || !first || !end) return;
  int64_t from, to;
  attn_visible_positions(p, i, &from, &to);
  *first = attn_key_at(p, from);
  *end = attn_key_at(p, to);
}

void attn_visible_keys(const attn_call *call, int64_t batch, int64_t head, int64_t i, int64_t *first,
                       int64_t *end) {
  if (!call || !first || !end) return;
  const attn_problem p = attn_call_problem(call, batch, head);
  attn_visible_span(&p, i, first, end);
  *end = attn_min(*end, attn_call_keys(call, batch));
  *first = attn_min(*first, *end);
}

int64_t attn_last_keys(const attn_call *call, int64_t batch, int64_t head, int64_t i, int64_t count) {
  int64_t first = 0, end = 0;
  if (!call) return 0;
  const attn_problem *p = call->context->problem;
  attn_visible_keys(call, batch, head, i, &first, &end);
  if (!p->score.dense.at) return end - attn_min(count, end - first);
  while (end > first && count > 0) count -= !attn_score_hides(p, batch, head, i, --end);
  return end;
}

double attn_visible_pairs(const attn_problem *p) {
  if (!p) return 0;
  if (p->mask.kind == ATTN_MASK_NONE) {
    if (!p->causal) return (double)p->n_q * (double)p->n_kv;
    double last = (double)p->n_kv, first = (double)attn_max(attn_problem_position(p, 0) + 1, 1);
    return (first + last) * (last - first + 1) / 2;
  }
  const attn_pattern *graph = p->mask.kind == ATTN_MASK_PATTERN ? p->mask.pattern : NULL;
  attn_run *runs = malloc((size_t)(graph ? graph->max_runs : 1) * sizeof *runs);
  double pairs = 0;
  for (int64_t i = 0; runs && i < p->n_q; i++) {
    int64_t count = attn_pattern_row(graph, p, 0, i, runs);
    for (int64_t r = 0; r < count; r++) pairs += (double)runs[r].count;
  }
  free(runs);
  return pairs;
}

/* ---- tables -------------------------------------------------------------------------------------------- */

attn_status attn_alibi(int64_t heads, int64_t n, double *table) {
  if (!table) return attn_null("alibi", "table");
  if (heads < 1 || n < 1)
    return attn_fail(ATTN_EINVAL, "alibi: %lld heads of %lld rows", (long long)heads, (long long)n);
  int64_t power = 1;
  while (power <= heads / 2) power *= 2;
  for (int64_t h = 0; h < heads; h++) {
    const double slope = h < power ? exp2(-8.0 * (double)(h + 1) / (double)power)
                                   : exp2(-4.0 * (double)(2 * (h - power) + 1) / (double)power);
    for (int64_t at = 0; at < 2 * n - 1; at++)
      table[h * (2 * n - 1) + at] = -slope * fabs((double)(at - (n - 1)));
  }
  return ATTN_OK;
}

attn_status attn_t5_bucket(int64_t distance, bool bidirectional, int64_t buckets, int64_t most_distance,
                           int64_t *bucket) {
  if (!bucket) return attn_null("t5_bucket", "bucket");
  const int64_t half = bidirectional ? buckets / 2 : buckets, exact = half / 2;
  if (buckets < (bidirectional ? 8 : 4) || buckets > 1 << 20 || most_distance <= exact)
    return attn_fail(ATTN_EINVAL, "t5_bucket: %lld buckets for distances up to %lld", (long long)buckets,
                     (long long)most_distance);
  const int64_t after = distance < 0 && bidirectional ? half : 0;
  int64_t away = distance < 0 ? (bidirectional ? -attn_max(distance, -INT64_MAX) : 0) : distance;
  if (away >= exact) {
    const double part = log((double)away / (double)exact) / log((double)most_distance / (double)exact);
    away = attn_min(exact + (int64_t)(part * (double)(half - exact)), half - 1);
  }
  *bucket = after + away;
  return ATTN_OK;
}

/* ---- rows of parts of the keys ------------------------------------------------------------------------ */

void attn_join_row(const attn_problem *p, void *o, double *lse, const void *more, double more_lse) {
  if (!p || !o || !lse || !more) return;
  const double most = fmax(*lse, more_lse);
  if (more_lse == -(double)INFINITY) return;
  const double own = *lse == -(double)INFINITY ? 0 : exp(*lse - most), other = exp(more_lse - most),
               both = own + other;
  for (int64_t l = 0; l < p->d_v; l++) {
    const double kept = own > 0 || isnan(own) ? own / both * attn_get(o, l, p->dtype) : 0;
    attn_set(o, l, p->dtype, kept + other / both * attn_get(more, l, p->dtype));
  }
  *lse = isnan(*lse) || isnan(more_lse) ? (double)NAN : most + log(both);
}
