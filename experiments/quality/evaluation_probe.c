/* evaluation_probe.c - EV-4, EV-6, EV-7 and EV-8 (evaluation_checks.h).
 *
 * One pass of two short windows, which differ from the middle on. For each swap four streams: the swap
 * itself, the same with the opposite mix, with mix 0, and with no head; and for the first swap one with its
 * first l layers for each l. Nothing is kept of the logits but a digest of each row of the first window. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/mathematics/spectrum.h"
#include "experiments/quality/evaluation_checks.h"

enum { LENGTH = 128, SELF = 1, OPPOSITE, UNMIXED, NOWHERE, EACH = 4, WINDOWS = 2 };

typedef struct finding {
  quality_extreme hops, state; /* EV-4, EV-6 */
  int64_t early, inexact;      /* rows that EV-7, EV-8 name */
} finding;

typedef struct probe {
  const quality_checked *of;
  int64_t n, changed, streams; /* tokens differ from `changed` on */
  int64_t steps, layers, heads, vocab;
  data_llama_swap *swaps;
  unsigned char *where; /* [steps + 1, layers, heads]: the last is empty */
  finding *found;       /* [count] */
  uint64_t *digest;     /* [streams, n] of window 0 */
  float *opposite;      /* [n, hidden] the state of the stream OPPOSITE */
  float *own;           /* [n, heads * d] the variant's output */
  double *hop;          /* [vocab] */
  int64_t of_layer;     /* whose norms these are; -1: none yet */
  double norm, frobenius;
} probe;

static bool replaces(const probe *p, const data_llama_swap *s, int64_t layer) {
  for (int64_t h = 0; h < p->heads; h++)
    if (!s->where || s->where[layer * p->heads + h]) return true;
  return false;
}

static int64_t first_layer(const probe *p, const data_llama_swap *s) {
  int64_t layer = 0;
  while (layer < p->layers && !replaces(p, s, layer)) layer++;
  return layer;
}

/* -- EV-6 -- */

static attn_status load_norm(probe *p, int64_t layer) {
  const data_llama_config *c = data_llama_get_config(p->of->model);
  const int64_t columns = c->heads * c->head_dim;
  if (p->of_layer == layer) return ATTN_OK;
  float *w = malloc((size_t)(c->hidden * columns) * sizeof *w);
  attn_status status =
      w ? data_llama_output(p->of->model, layer, w) : attn_fail(ATTN_ENOMEM, "no memory for Wo");
  if (!status) status = spectrum_norm(w, c->hidden, columns, &p->norm, &p->frobenius);
  if (!status) p->of_layer = layer;
  free(w);
  return status;
}

static double norm_of(const float *x, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += (double)x[i] * (double)x[i];
  return sqrt(sum);
}

static void judge_row(probe *p, const data_llama_swap *s, const data_llama_attention *a, int64_t i,
                      finding *f) {
  const data_llama_config *c = data_llama_get_config(p->of->model);
  const int64_t d = c->head_dim, width = c->heads * d;
  const double u = (double)FLT_EPSILON / 2, k = (double)width + 8, mix = fabs(s->mix);
  const float *x = a->state + i * c->hidden, *y = p->opposite + i * c->hidden;
  const float *exact = a->exact + i * width, *own = p->own + i * width;
  double change = 0, moved = 0;
  for (int64_t h = 0; h < c->heads; h++)
    for (int64_t l = h * d; l < (h + 1) * d; l++)
      if ((!s->where || s->where[a->layer * c->heads + h]) && i >= a->first && i < a->first + a->count)
        change += ((double)own[l] - (double)exact[l]) * ((double)own[l] - (double)exact[l]);
  for (int64_t l = 0; l < c->hidden; l++)
    moved += ((double)x[l] - (double)y[l]) * ((double)x[l] - (double)y[l]);
  const double reach = norm_of(exact, width) + mix * sqrt(change); /* of either output */
  const double rounding = k * u / (1 - k * u) * p->frobenius * 2 * reach +
                          8 * u * (1 + mix) * p->norm * (norm_of(exact, width) + norm_of(own, width)) +
                          u * (norm_of(x, c->hidden) + norm_of(y, c->hidden));
  if (isfinite(moved) && isfinite(change))
    quality_extreme_keep(&f->state, sqrt(moved), 2 * mix * p->norm * sqrt(change) + rounding);
}

static attn_status take_attention(void *to, const data_llama_attention *a) {
  probe *p = to;
  const int64_t of = (a->stream - 1) / EACH, kind = (a->stream - 1) % EACH + 1;
  if (a->window > 0 || of >= p->of->count || (kind != SELF && kind != OPPOSITE)) return ATTN_OK;
  const data_llama_config *c = data_llama_get_config(p->of->model);
  const data_llama_swap *s = &p->of->swaps[of];
  if (a->layer != first_layer(p, s)) return ATTN_OK;
  if (kind == OPPOSITE) { /* streams come last first */
    memcpy(p->opposite, a->state, (size_t)(p->n * c->hidden) * sizeof *p->opposite);
    return ATTN_OK;
  }
  const int64_t width = c->heads * c->head_dim;
  attn_status status = load_norm(p, a->layer);
  if (status) return status;
  void *work = malloc(attn_plan_work_size(a->plan) + 1);
  status = work ? attn_plan_execute(a->plan, a->q + a->first * width, a->k, a->v, NULL,
                                    p->own + a->first * width, work)
                : attn_fail(ATTN_ENOMEM, "no memory to repeat an attention");
  for (int64_t i = 0; !status && i < p->n; i++) judge_row(p, s, a, i, &p->found[of]);
  free(work);
  return status;
}

/* -- EV-4, EV-7, EV-8 -- */

static double range_of(const float *from, const float *to, int64_t count) {
  double most = -(double)INFINITY, least = (double)INFINITY;
  for (int64_t t = 0; t < count; t++) {
    most = fmax(most, (double)to[t] - (double)from[t]);
    least = fmin(least, (double)to[t] - (double)from[t]);
  }
  return most - least;
}

/* z: of all streams, at one position. */
static void judge_hops(probe *p, const float *const *z) {
  const int64_t first = 1 + EACH * p->of->count;
  finding *f = &p->found[0];
  double ranges = 0, size = 0, apart = 0;
  memset(p->hop, 0, (size_t)p->vocab * sizeof *p->hop);
  for (int64_t l = 0; l < p->steps; l++) {
    const float *from = l ? z[first + l - 1] : z[0], *to = z[first + l];
    ranges += range_of(from, to, p->vocab);
    for (int64_t t = 0; t < p->vocab; t++) {
      p->hop[t] += (double)to[t] - (double)from[t];
      size = fmax(size, fabs((double)to[t]) + fabs((double)from[t]));
    }
  }
  for (int64_t t = 0; t < p->vocab; t++)
    apart = fmax(apart, fabs(p->hop[t] - ((double)z[SELF][t] - (double)z[0][t])));
  const double rounding = ((double)p->steps + 2) * (double)p->steps * DBL_EPSILON * size;
  if (!isfinite(ranges)) return;
  quality_extreme_keep(&f->hops, apart, rounding);
  quality_extreme_keep(&f->hops, range_of(z[0], z[SELF], p->vocab), ranges + rounding);
}

static uint64_t digest_of(const float *z, int64_t count) {
  uint64_t sum = 0xcbf29ce484222325u;
  for (int64_t t = 0; t < count; t++) {
    uint32_t bits;
    memcpy(&bits, &z[t], sizeof bits);
    sum = (sum ^ bits) * 0x100000001b3u;
  }
  return sum;
}

static attn_status take_logits(void *to, const data_llama_rows *r) {
  probe *p = to;
  const float **z = malloc((size_t)p->streams * sizeof *z);
  if (!z) return attn_fail(ATTN_ENOMEM, "no memory for rows of logits");
  for (int64_t row = 0; row < r->rows; row++) {
    const int64_t i = r->first + row;
    for (int64_t s = 0; s < p->streams; s++) z[s] = r->logits[s] + row * p->vocab;
    for (int64_t s = 0; s < p->of->count && r->window == 0; s++)
      for (int kind = UNMIXED; kind <= NOWHERE; kind++)
        p->found[s].inexact += memcmp(z[s * EACH + kind], z[0], (size_t)p->vocab * sizeof **z) != 0;
    if (p->steps > 0 && r->window == 0) judge_hops(p, z);
    for (int64_t s = 0; s <= p->of->count && i < p->changed; s++) {
      uint64_t *kept = &p->digest[s * p->n + i];
      const uint64_t own = digest_of(z[s ? (s - 1) * EACH + SELF : 0], p->vocab);
      if (r->window == 0)
        *kept = own;
      else if (s > 0)
        p->found[s - 1].early += own != *kept;
      else
        for (int64_t all = 0; all < p->of->count; all++) p->found[all].early += own != *kept;
    }
  }
  free(z);
  return ATTN_OK;
}

/* -- the pass -- */

static int64_t length_of(const quality_checked *c) { return c->windows->n < LENGTH ? c->windows->n : LENGTH; }

static attn_status make(const quality_checked *c, bool whole, probe *p) {
  const data_llama_config *m = data_llama_get_config(c->model);
  *p = (probe){
      .of = c, .n = length_of(c), .layers = m->layers, .heads = m->heads, .vocab = m->vocab, .of_layer = -1};
  p->changed = p->n / 2;
  for (int64_t l = 0; whole && l < m->layers; l++) p->steps += replaces(p, &c->swaps[0], l);
  p->streams = 1 + EACH * c->count + p->steps;
  p->swaps = calloc((size_t)p->streams, sizeof *p->swaps);
  p->where = calloc((size_t)((p->steps + 1) * m->layers * m->heads), 1);
  p->found = calloc((size_t)c->count, sizeof *p->found);
  p->digest = calloc((size_t)((c->count + 1) * p->n), sizeof *p->digest);
  p->opposite = malloc((size_t)(p->n * m->hidden) * sizeof *p->opposite);
  p->own = malloc((size_t)(p->n * m->heads * m->head_dim) * sizeof *p->own);
  p->hop = malloc((size_t)m->vocab * sizeof *p->hop);
  if (p->swaps && p->where && p->found && p->digest && p->opposite && p->own && p->hop) return ATTN_OK;
  return attn_fail(ATTN_ENOMEM, "no memory for the checks of %lld runs", (long long)c->count);
}

static void unmake(probe *p) {
  void *all[] = {p->swaps, p->where, p->found, p->digest, p->opposite, p->own, p->hop};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* The swap on a short window: what is decoded is the second half at most. Of several variants the first
 * alone. */
static data_llama_swap shorten(int64_t n, data_llama_swap s) {
  s.next = NULL;
  if (s.phase != DATA_LLAMA_BOTH && s.decode > n / 2) s.decode = n / 2;
  return s;
}

static void fill_swaps(probe *p) {
  const int64_t size = p->layers * p->heads;
  int64_t step = 0;
  for (int64_t s = 0; s < p->of->count; s++) {
    data_llama_swap *to = p->swaps + s * EACH - 1; /* streams count from 1 */
    for (int kind = SELF; kind <= NOWHERE; kind++) to[kind] = shorten(p->n, p->of->swaps[s]);
    to[OPPOSITE].mix = -to[OPPOSITE].mix;
    to[UNMIXED].mix = 0;
    to[NOWHERE].where = p->where + p->steps * size;
  }
  for (int64_t l = 0; l < p->layers && step < p->steps; l++) {
    const data_llama_swap *all = &p->of->swaps[0];
    unsigned char *where = p->where + step * size;
    if (!replaces(p, all, l)) continue;
    if (step > 0) memcpy(where, where - size, (size_t)size);
    for (int64_t h = 0; h < p->heads; h++)
      where[l * p->heads + h] = !all->where || all->where[l * p->heads + h];
    p->swaps[p->of->count * EACH + step] = shorten(p->n, *all);
    p->swaps[p->of->count * EACH + step++].where = where;
  }
}

static void settle(const probe *p, int64_t swap, result_bound *cells) {
  const finding *f = &p->found[swap];
  if (swap == 0 && p->steps > 0) bound_hard(&cells[EV_4], f->hops.measured, f->hops.limit);
  bound_hard(&cells[EV_6], f->state.measured, f->state.limit);
  if (first_layer(p, &p->of->swaps[swap]) == p->layers || p->of->swaps[swap].mix == 0)
    bound_not_applicable(&cells[EV_6], "nothing is replaced");
  bound_hard(&cells[EV_7], (double)f->early, 0);
  const char *exempt = f->early
                           ? quality_exempt(p->of->model, p->n, &p->of->swaps[swap],
                                            ATTN_EXEMPT_ROWS | ATTN_EXEMPT_LOOKAHEAD | ATTN_EXEMPT_CAUSAL)
                           : NULL;
  if (exempt) bound_not_applicable(&cells[EV_7], exempt);
  bound_hard(&cells[EV_8], (double)f->inexact, 0);
}

static attn_status probe_all(const quality_checked *c, bool whole, result_bound (*cells)[QUALITY_CHECKS]) {
  probe p;
  int64_t tokens[WINDOWS * LENGTH];
  attn_status status = make(c, whole, &p);
  for (int64_t i = 0; !status && i < p.n; i++) {
    tokens[i] = c->windows->tokens[i];
    tokens[p.n + i] = i < p.changed ? tokens[i] : (tokens[i] + 1) % p.vocab;
  }
  if (!status) {
    fill_swaps(&p);
    status = data_llama_run(c->model, &(data_llama_pass){.tokens = tokens,
                                                         .windows = WINDOWS,
                                                         .n = p.n,
                                                         .swaps = p.swaps,
                                                         .count = p.streams - 1,
                                                         .to = &p,
                                                         .attention = take_attention,
                                                         .logits = take_logits});
  }
  for (int64_t s = 0; !status && s < c->count; s++) settle(&p, s, cells[s]);
  unmake(&p);
  return status;
}

/* Files and parameters may fit the windows' length and not this one. */
attn_status quality_probe(const quality_checked *c, bool whole, result_bound (*cells)[QUALITY_CHECKS]) {
  static const int own[] = {EV_4, EV_6, EV_7, EV_8};
  const int64_t n = length_of(c);
  data_llama_swap *swaps = calloc((size_t)c->count, sizeof *swaps);
  int64_t *number = calloc((size_t)c->count, sizeof *number);
  result_bound(*found)[QUALITY_CHECKS] = calloc((size_t)c->count, sizeof *found);
  quality_checked able = *c;
  attn_status status = swaps && number && found
                           ? ATTN_OK
                           : attn_fail(ATTN_ENOMEM, "no memory for %lld checks", (long long)c->count);
  able.swaps = swaps;
  able.count = 0;
  for (int64_t s = 0; !status && s < c->count; s++) {
    const data_llama_swap swap = shorten(n, c->swaps[s]);
    const attn_status refused = data_llama_try(c->model, n, &swap);
    if (refused == ATTN_ENOMEM) status = refused;
    for (int i = whole && s == 0 ? 0 : 1; refused && i < 4; i++)
      bound_not_applicable(&cells[s][own[i]], attn_last_error());
    if (refused) continue;
    memcpy(found[able.count], cells[s], sizeof *cells);
    swaps[able.count] = c->swaps[s];
    number[able.count++] = s;
  }
  if (!status && able.count > 0) status = probe_all(&able, whole && number[0] == 0, found);
  for (int64_t i = 0; !status && i < able.count; i++) memcpy(cells[number[i]], found[i], sizeof *cells);
  free(swaps);
  free(number);
  free(found);
  return status;
}
