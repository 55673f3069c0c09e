/* recurrent_chunk.c - a chunk of keys of the recurrent engine (recurrent.h). Decays that are numbers become
 * the lower triangle of their products L_ij = a_j+1 ... a_i, which multiplies Q K^T; of vectors each key
 * itself is decayed from position to position, and read in between. Either way decays are multiplied, never
 * subtracted as logarithms nor divided. Keys and queries are turned back to the chunk's beginning, and the
 * state on to its end. A key that enters twice has the weight w_j for its own query, and w_j + e_j+1 for
 * later ones. */
#include "core/engines/recurrent/recurrent.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Keys whose betas are known: of a rule that carries, that behind the chunk, too. */
static int64_t known_keys(const recurrent_shape *s, const recurrent_line *x) {
  return attn_max(x->count, attn_min(x->count + s->rule->carries, x->keys - x->first));
}

double attn_recurrent_later_weight(const recurrent_shape *s, const recurrent_room *r, const recurrent_line *x,
                                   int64_t j) {
  const double *b = r->betas + j * s->betas;
  return b[0] + (j + 1 < known_keys(s, x) ? b[s->betas + 1] : 0);
}

int64_t attn_recurrent_chunk_end(const recurrent_shape *s, int64_t first, int64_t end) {
  int64_t next = first + 1;
  while (next < end && next % s->chunk && !attn_document_begins(s->p, next)) next++;
  return next;
}

static void number_products(const recurrent_shape *s, recurrent_room *r, const recurrent_line *x) {
  const bool carries = s->rule->carries && !s->apart;
  const int64_t count = x->count;
  double own = 1;
  for (int64_t i = 0; i < s->chunk; i++) r->before[i] = own *= i < count ? exp(r->logs[i]) : 1;
  own = 1;
  for (int64_t j = count - 1; j >= 0; own *= exp(r->logs[j--]))
    r->after[j] = own * (carries ? attn_recurrent_later_weight(s, r, x, j) : 1);
  *r->whole = own;
  for (int64_t i = 0; i < count; i++) {
    const double a = exp(r->logs[i]);
    r->row[i] = 1;
    for (int64_t j = 0; j < i; j++) r->row[j] *= a;
    for (int64_t j = 0; j <= i && carries; j++)
      r->weighted[j] = r->row[j] * (j < i ? attn_recurrent_later_weight(s, r, x, j) : r->betas[j * s->betas]);
    attn_convert(carries ? r->weighted : r->row, ATTN_F64, i + 1, s->t,
                 attn_at(r->between, i * s->chunk_row, s->t));
  }
}

/* The angles of the chunk's keys, summed and less whole turns, in fp64. */
static void turn_products(const recurrent_shape *s, recurrent_room *r, int64_t count) {
  const int64_t turns = s->rule->turns;
  const double round = 2 * acos(-1.0);
  for (int64_t l = 0; l < turns; l++) r->angles[l] = 0;
  for (int64_t i = 0; i < count; i++) {
    const double *by = r->betas + i * s->betas + s->rule->betas;
    void *cosines = attn_at(r->cosines, 2 * i * turns, s->t), *sines = attn_at(r->sines, 2 * i * turns, s->t);
    for (int64_t l = 0; l < turns; l++) {
      r->angles[l] += by[l];
      r->angles[l] -= round * rint(r->angles[l] / round);
    }
    attn_convert(r->angles, ATTN_F64, turns, s->t, r->swapped);
    attn_trig_row(s->simd, turns, r->swapped, cosines, sines);
    memcpy(attn_at(cosines, turns, s->t), cosines, (size_t)turns * attn_dtype_size(s->t));
    attn_scale_row(s->simd, turns, -1, sines, attn_at(sines, turns, s->t));
  }
}

/* x <- x . cosines +- (its halves swapped) . sines, of 2 turns elements: turned back, or on. */
static void turn_row(const recurrent_shape *s, const recurrent_room *r, int64_t at, bool back, void *x) {
  const int64_t turns = s->rule->turns;
  const size_t half = (size_t)turns * attn_dtype_size(s->t);
  memcpy(r->swapped, (char *)x + half, half);
  memcpy((char *)r->swapped + half, x, half);
  attn_multiply_row(s->simd, 2 * turns, r->swapped, attn_at(r->sines, 2 * at * turns, s->t), r->swapped);
  attn_multiply_row(s->simd, 2 * turns, x, attn_at(r->cosines, 2 * at * turns, s->t), x);
  s->simd->combine_rows(2 * turns, 1, x, back ? 1 : -1, r->swapped, x);
}

void attn_recurrent_turn_rows(const recurrent_shape *s, const recurrent_room *r, const recurrent_line *x,
                              int64_t from, int64_t rows, bool back, void *to) {
  for (int64_t l = 0; l < rows && x->count > 0 && s->rule->turns; l++)
    turn_row(s, r, attn_min(from + l, x->count - 1), back, attn_at(to, l * s->p->d_qk, s->t));
}

void attn_recurrent_turn_state(const recurrent_shape *s, recurrent_room *r, const recurrent_line *x,
                               bool back, void *state, int64_t row) {
  const int64_t turns = s->rule->turns, at = 2 * (x->count - 1) * turns;
  for (int64_t l = 0; l < turns; l++) {
    const double c = attn_get(r->cosines, at + l, s->t),
                 sine = (back ? -1 : 1) * attn_get(r->sines, at + l, s->t);
    void *one = attn_at(state, l * row, s->t), *two = attn_at(state, (l + turns) * row, s->t);
    s->simd->combine_rows(row, c, one, -sine, two, r->turned);
    s->simd->combine_rows(row, sine, one, c, two, two);
    memcpy(one, r->turned, (size_t)row * attn_dtype_size(s->t));
  }
}

/* All logarithms are one row, whose largest element is a 0 behind them, so that none is shifted. */
static void vector_products(const recurrent_shape *s, recurrent_room *r, int64_t count) {
  const int64_t d = s->p->d_qk;
  attn_convert(r->logs, ATTN_F64, count * d, s->t, r->decays);
  attn_set(r->decays, count * d, s->t, 0);
  attn_exp_rows(s->simd, 1, count * d + 1, r->decays, 0, NULL);
  for (int64_t i = 0; i < count; i++) {
    void *to = attn_at(r->before_rows, i * d, s->t);
    const void *a = attn_at(r->decays, i * d, s->t);
    if (i)
      attn_multiply_row(s->simd, d, a, attn_at(r->before_rows, (i - 1) * d, s->t), to);
    else
      memcpy(to, a, (size_t)d * attn_dtype_size(s->t));
  }
  for (int64_t l = 0; l < d; l++)
    r->whole[l] = count ? attn_get(r->before_rows, (count - 1) * d + l, s->t) : 1;
}

static void ask_gates(const recurrent_shape *s, const recurrent_line *x, double *logs, double *betas) {
  s->rule->gates(s->rule->state, x->call, x->batch, x->head, x->first, known_keys(s, x), logs, betas);
}

void attn_recurrent_keep_gates(const recurrent_shape *s, recurrent_room *r, recurrent_line x, int64_t first,
                               int64_t end) {
  x.first = r->kept_first = first;
  x.count = attn_max(0, attn_min(end, x.keys) - first);
  r->kept = known_keys(s, &x);
  ask_gates(s, &x, r->kept_logs, r->kept_betas);
}

/* Those of the chunk, out of those that are kept, if any are. */
static void take_gates(const recurrent_shape *s, const recurrent_room *r, const recurrent_line *x,
                       int64_t width, double *logs) {
  const int64_t at = x->first - r->kept_first, count = known_keys(s, x);
  if (!r->kept) {
    ask_gates(s, x, logs, r->betas);
    return;
  }
  memcpy(logs, r->kept_logs + at * width, (size_t)(count * width) * sizeof *logs);
  if (s->betas)
    memcpy(r->betas, r->kept_betas + at * s->betas, (size_t)(count * s->betas) * sizeof *r->betas);
}

void attn_recurrent_gates(const recurrent_shape *s, recurrent_room *r, const recurrent_line *x) {
  const bool columns = s->rule->columns;
  const int64_t width = columns ? s->p->d_qk : 1;
  double *logs = columns ? r->logs : r->row;
  take_gates(s, r, x, width, logs);
  if (s->rule->turns) turn_products(s, r, x->count);
  for (int64_t i = 0; s->p->mask.kind && i < x->count; i++)
    for (int64_t l = 0; l < width && attn_document_begins(s->p, x->first + i); l++)
      logs[i * width + l] = -(double)INFINITY;
  if (columns) {
    vector_products(s, r, x->count);
    return;
  }
  /* The same numbers have the same triangle. */
  if (!s->rule->carries && r->made == x->count && memcmp(logs, r->logs, (size_t)x->count * sizeof *logs) == 0)
    return;
  r->made = x->count;
  memcpy(r->logs, logs, (size_t)x->count * sizeof *logs);
  number_products(s, r, x);
}

void attn_recurrent_decay_rows(const recurrent_shape *s, const recurrent_room *r, const recurrent_line *x,
                               int64_t from, int64_t rows, attn_matrix m, void *out) {
  const int64_t d = s->p->d_qk;
  if (!s->rule->columns) {
    s->simd->scale_rows(rows, d, m.at, m.row, r->before + from, 1, out);
    return;
  }
  for (int64_t l = 0; l < rows; l++) {
    const int64_t at = attn_min(from + l, x->count - 1);
    const void *row = attn_at(m.at, l * m.row, s->t);
    void *to = attn_at(out, l * d, s->t);
    if (at < 0)
      memcpy(to, row, (size_t)d * attn_dtype_size(s->t));
    else
      attn_multiply_row(s->simd, d, row, attn_at(r->before_rows, at * d, s->t), to);
  }
}

void attn_recurrent_arrive_rows(const recurrent_shape *s, const recurrent_room *r, const recurrent_line *x,
                                attn_matrix m, void *out) {
  const int64_t d = s->p->d_qk;
  if (!s->rule->columns) {
    s->simd->scale_rows(x->count, d, m.at, m.row, r->after, 1, out);
    return;
  }
  s->simd->fill_row(d, 1, r->row_scratch);
  for (int64_t j = x->count - 1; j >= 0; j--) {
    s->simd->multiply_row(d, r->row_scratch, attn_at(m.at, j * m.row, s->t), attn_at(out, j * d, s->t));
    s->simd->multiply_row(d, r->row_scratch, attn_at(r->decays, j * d, s->t), r->row_scratch);
  }
}

/* Row l of the products of decays that are vectors: the key enters, after those before it are decayed. */
static void meet_keys(const recurrent_shape *s, recurrent_room *r, const recurrent_line *x, attn_matrix k,
                      attn_matrix read, int64_t from, int64_t queries) {
  const int64_t d = s->p->d_qk;
  memset(r->transposed, 0, (size_t)(d * s->chunk_row) * attn_dtype_size(s->t));
  for (int64_t i = 0; i < x->count; i++) {
    const void *key = attn_at(k.at, i * k.row, s->t);
    const bool asked = i >= from && i < from + queries;
    s->simd->decay_keys(d, i, r->transposed, s->chunk_row, attn_at(r->decays, i * d, s->t), key,
                        attn_at(read.at, i * read.row, s->t),
                        asked ? attn_at(r->queries, (i - from) * d, s->t) : key,
                        attn_at(r->own, i * s->chunk_row, s->t), attn_at(r->scores, i * s->chunk_row, s->t));
  }
  for (int64_t i = attn_max(from, x->count); i < from + queries && x->count > 0; i++)
    attn_product(s->simd, 1, x->count, d, (attn_matrix){attn_at(r->queries, (i - from) * d, s->t), d, 1},
                 r->transposed, s->chunk_row, false, attn_at(r->scores, i * s->chunk_row, s->t),
                 s->chunk_row);
}

void attn_recurrent_take_keys(const recurrent_shape *s, recurrent_room *r, const recurrent_line *x,
                              attn_matrix k, attn_matrix read, int64_t from, int64_t queries) {
  if (queries <= 0 && !s->rule->delta) return;
  if (s->rule->columns)
    meet_keys(s, r, x, k, read, from, queries);
  else
    s->simd->transpose(x->count, s->p->d_qk, k.at, k.row, r->transposed, s->chunk_row);
}

const void *attn_recurrent_scores(const recurrent_shape *s, recurrent_room *r, const recurrent_line *x,
                                  bool queries, attn_matrix m, int64_t from, int64_t rows, int64_t seen) {
  void *scores = queries ? r->scores : r->own;
  if (s->rule->columns) return attn_at(scores, from * s->chunk_row, s->t);
  attn_product(s->simd, rows, seen, s->p->d_qk, m, r->transposed, s->chunk_row, false, scores, s->chunk_row);
  for (int64_t l = 0; l < rows; l++) {
    void *row = attn_at(scores, l * s->chunk_row, s->t);
    const int64_t last = attn_min(from + l, x->count - 1);
    attn_multiply_row(s->simd, last + 1, row, attn_at(r->between, last * s->chunk_row, s->t), row);
    memset(attn_at(row, last + 1, s->t), 0, (size_t)(seen - last - 1) * attn_dtype_size(s->t));
  }
  return scores;
}

/* Are these elements, of the engine's type, as most are: finite, and of decays at most 0? */
static bool all_plain(const recurrent_shape *s, const attn_extra *x, bool decay, int64_t from, int64_t end) {
  enum { PART = 1 << 20 };
  for (; from < end; from += PART) {
    const int64_t count = attn_min(end - from, PART);
    const void *at = attn_at(x->at, from, s->t);
    if (!attn_all_finite(at, count, 1, count, s->t) || (decay && s->simd->count_above(count, at, 0) > 0))
      return false;
  }
  return true;
}

/* The first of these elements that is not as it must be; end: none. */
static int64_t first_fault(const recurrent_shape *s, const attn_extra *x, bool decay, int64_t from,
                           int64_t end) {
  double part[512];
  if (x->dtype == s->t && all_plain(s, x, decay, from, end)) return end;
  while (from < end) {
    const int64_t count = attn_min(end - from, sizeof part / sizeof *part);
    int64_t good = 0;
    attn_convert(attn_at(x->at, from, x->dtype), x->dtype, count, ATTN_F64, part);
    for (int64_t i = 0; i < count; i++) good += decay ? part[i] <= 0 : fabs(part[i]) <= DBL_MAX;
    for (int64_t i = 0; good < count && i < count; i++)
      if (!(decay ? part[i] <= 0 : fabs(part[i]) <= DBL_MAX)) return from + i;
    from += count;
  }
  return end;
}

static attn_status check_tensor(const recurrent_shape *s, const attn_call *call, const attn_extra *x) {
  const bool decay = strcmp(x->name, "decay") == 0;
  const int64_t n = s->p->n_kv, lines = x->batch * x->heads;
  int64_t first = lines * n * x->columns;
  if (strncmp(x->name, "index_", 6) == 0 || strcmp(x->name, "gate") == 0)
    return ATTN_OK; /* is none of a recurrence */
  if (decay && x->columns > 1 && !s->rule->columns)
    return attn_fail(ATTN_EINVAL,
                     "execute: extra tensor decay has %lld columns: the rule's decay is a number",
                     (long long)x->columns);
#pragma omp parallel for num_threads(s->c->threads) schedule(static) reduction(min : first)
  for (int64_t line = 0; line < lines; line++) {
    const int64_t from = line * n * x->columns,
                  end = from + (x->batch == 1 ? n : attn_call_keys(call, line / x->heads)) * x->columns,
                  at = first_fault(s, x, decay, from, end);
    if (at < end) first = attn_min(first, at);
  }
  if (first == lines * n * x->columns) return ATTN_OK;
  const int64_t row = first / x->columns, line = row / n;
  return attn_fail(ATTN_EINVAL, "execute: extra tensor %s[%lld, %lld, %lld, %lld] = %g, expected %s", x->name,
                   (long long)(line / x->heads), (long long)(line % x->heads), (long long)(row % n),
                   (long long)(first % x->columns), attn_get(x->at, first, x->dtype),
                   decay ? "a logarithm of at most 0" : "a finite number");
}

attn_status attn_recurrent_check(const recurrent_shape *s, const attn_call *call) {
  attn_status status = ATTN_OK;
  if (call->k_position.at)
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: k_position is not supported: a state cannot lose keys",
                     call->context->variant->name);
  if (call->state && s->p->mask.kind)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant %s: a state before documents, of which the first begins anew",
                     call->context->variant->name);
  for (int64_t x = 0; !status && x < call->extras; x++) status = check_tensor(s, call, &call->extra[x]);
  return status;
}
