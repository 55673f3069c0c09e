/* kv_latents.c - a cache of latents (attn_latent): of a token rank numbers that all kv heads have in common,
 * in place of their keys and values. A sequence is held as it is given, in a cache of its prompt, until a
 * position behind the prompt arrives. Then W is fitted to the prompt, and only latents are held, which one kv
 * head of the cache's problem reads: as keys, and their first numbers as values. */
#include "core/cache/kv_memory.h"

#include <math.h>
#include <omp.h>
#include <string.h>

static int64_t width_of(const attn_problem *p) { return p->kv_heads * (p->d_qk + p->d_v); }
static int64_t queries_of(const attn_problem *p, int64_t n) { return p->batch * p->heads * n; }
static bool is_factored(const attn_kv_cache *c, int64_t batch) { return c->went[batch] >= 0; }
static double *factors_of(const attn_kv_cache *c, int64_t batch) {
  return c->latents.w + batch * c->latents.law.rank * width_of(&c->latents.given);
}

/* ---- making ------------------------------------------------------------------------------------------- */

attn_status kv_latents_take(attn_kv_cache *c, const attn_latent *law) {
  if (!law->prompt)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "cache: the latents of %s are fitted to keys that are still to come; name its prompt",
                     c->reader->text);
  c->latents.law = *law;
  c->latents.given = c->problem;
  c->problem = attn_latent_problem(law, &c->problem);
  c->problem.kv_heads = 1;
  c->problem.k = c->problem.v = (attn_stride){.batch = 0};
  attn_spec_destroy(c->reader);
  c->reader = NULL;
  const attn_status status = attn_problem_resolve(&c->problem);
  return status ? status : attn_spec_parse(&c->reader, "tiled");
}

static int64_t factor_numbers(const attn_kv_cache *c) {
  return c->problem.batch * c->latents.law.rank * width_of(&c->latents.given);
}
static int64_t row_numbers(const attn_kv_cache *c) {
  return c->options.threads * (c->latents.law.rank + width_of(&c->latents.given));
}

attn_status kv_latents_begin(attn_kv_cache *c) {
  kv_latents *x = &c->latents;
  x->given.score = c->problem.score;
  x->given.mask = c->problem.mask;
  x->w = kv_take(c, factor_numbers(c), sizeof *x->w);
  x->row = x->w ? kv_take(c, row_numbers(c), sizeof *x->row) : NULL;
  return x->row ? ATTN_OK : ATTN_ENOMEM;
}

void kv_latents_free(attn_kv_cache *c) {
  attn_kv_cache_destroy(c->latents.prompt);
  kv_give(c, c->latents.w, factor_numbers(c), sizeof *c->latents.w);
  kv_give(c, c->latents.row, row_numbers(c), sizeof *c->latents.row);
}

attn_status kv_latents_copy(const attn_kv_cache *from, attn_kv_cache *to) {
  memcpy(to->latents.w, from->latents.w, (size_t)factor_numbers(to) * sizeof *to->latents.w);
  return from->latents.prompt ? attn_kv_cache_copy(from->latents.prompt, &to->latents.prompt) : ATTN_OK;
}

/* ---- arrivals ----------------------------------------------------------------------------------------- */

static attn_stride rows_of(int64_t heads, int64_t rows, int64_t d, attn_dtype stored) {
  const int64_t row = attn_row_elements(d, stored);
  return (attn_stride){heads * rows * row, rows * row, row, stored};
}

/* The given problem, of keys and values [batch, kv_heads, rows, d] as they arrive. */
static attn_problem given_rows(const attn_kv_cache *c, int64_t rows) {
  attn_problem p = c->latents.given;
  p.k = rows_of(p.kv_heads, rows, p.d_qk, c->k_given);
  p.v = rows_of(p.kv_heads, rows, p.d_v, c->v_given);
  return p;
}

static void store_latent(attn_kv_cache *c, int64_t batch, int64_t position, const double *from,
                         int64_t step) {
  void *to = kv_row(c, KV_KEYS, batch, position);
  for (int64_t e = 0; e < c->latents.law.rank; e++) attn_set(to, e, c->problem.dtype, from[e * step]);
}

/* From the prompt's cache to latents. The memory is that of X, of C, and of attn_latent_factor; without it
 * the bytes are counted. */
static size_t factor_prompt(attn_kv_cache *c, int64_t batch, void *memory) {
  const kv_latents *x = &c->latents;
  const int64_t keys = x->law.prompt, width = width_of(&x->given);
  attn_carver carver = {.base = memory};
  double *rows = attn_carve(&carver, keys, width, sizeof *rows),
         *latents = attn_carve(&carver, keys, x->law.rank, sizeof *latents), *w = factors_of(c, batch);
  void *room = attn_carve(&carver, 1, 1, attn_latent_room(&x->law, &x->given));
  if (!memory) return carver.used;
  const attn_kv_cache *prompt = x->prompt;
  const attn_problem p = given_rows(c, prompt->rows);
  const attn_context context = {.problem = &x->given, .threads = c->options.threads};
  for (int64_t j = 0; j < keys; j++)
    attn_latent_load(&p, prompt->field[KV_KEYS].at, prompt->field[KV_VALUES].at, batch, j, rows + j * width);
  attn_latent_factor(&x->law, &context, keys, rows, latents, w, room);
  for (int64_t j = 0; j < keys; j++) store_latent(c, batch, j, latents + j, keys);
  /* Keys that are not finite have no factors, and later keys no latents. */
  for (int64_t i = 0; isnan(latents[0]) && i < x->law.rank * width; i++) w[i] = (double)NAN;
  c->held[batch] = c->went[batch] = keys;
  return carver.used;
}

/* Row i of what arrives in a sequence that is factored. */
static void take_row(attn_kv_cache *c, const kv_arrivals *a, int64_t batch, int64_t i) {
  const kv_latents *x = &c->latents;
  const attn_problem p = given_rows(c, a->n);
  double *row = x->row + omp_get_thread_num() * (x->law.rank + width_of(&p)), *own = row + x->law.rank;
  attn_latent_load(&p, a->k, a->v, batch, i, own);
  attn_latent_project(&x->law, &x->given, factors_of(c, batch), own, 0, row, 1);
  store_latent(c, batch, c->length[batch] + i, row, 1);
}

static void take_sequence(attn_kv_cache *c, const kv_arrivals *a, int64_t batch, void *memory) {
  const int64_t rest = c->latents.law.prompt - c->length[batch], n = kv_arriving(a, batch);
  if (n <= rest) return;
  if (!is_factored(c, batch)) factor_prompt(c, batch, memory);
#pragma omp parallel for num_threads(c->options.threads) schedule(static)
  for (int64_t i = attn_max(rest, 0); i < n; i++) {
    fenv_t outer;
    attn_float_enter(&outer);
    take_row(c, a, batch, i);
    attn_float_leave(&outer);
  }
  c->held[batch] = c->length[batch] + n;
}

/* Of each sequence the first c->first[b] of what arrives. */
static attn_status give_to_prompts(attn_kv_cache *c, const kv_arrivals *a) {
  attn_problem p = c->latents.given;
  p.k = (attn_stride){.stored = c->k_given};
  p.v = (attn_stride){.stored = c->v_given};
  attn_options options = c->options;
  options.allocator = &c->allocator;
  const attn_status status =
      c->latents.prompt ? ATTN_OK : attn_kv_cache_create(&c->latents.prompt, &p, "tiled", &options);
  return status ? status : attn_kv_cache_append(c->latents.prompt, a->n, c->first, NULL, a->k, a->v);
}

static attn_status truncate_prompts(attn_kv_cache *c, const int64_t *length) {
  for (int64_t b = 0; b < c->problem.batch; b++) c->first[b] = attn_min(length[b], c->latents.law.prompt);
  return c->latents.prompt ? attn_kv_cache_truncate(c->latents.prompt, c->first) : ATTN_OK;
}

attn_status kv_latents_append(attn_kv_cache *c, const kv_arrivals *a) {
  kv_latents *x = &c->latents;
  int64_t most = 0, given = 0;
  bool fits = false, rests = false; /* is a sequence factored now; is one not even then? */
  void *memory = NULL;
  const size_t bytes = factor_prompt(c, 0, NULL);
  for (int64_t b = 0; b < c->problem.batch; b++) {
    const int64_t end = c->length[b] + kv_arriving(a, b);
    given += c->first[b] = attn_max(attn_min(end, x->law.prompt) - c->length[b], 0);
    if (end > x->law.prompt) most = attn_max(most, end);
    fits = fits || (end > x->law.prompt && !is_factored(c, b));
    rests = rests || end <= x->law.prompt;
  }
  attn_status status = given ? give_to_prompts(c, a) : ATTN_OK;
  if (status) return status;
  if (most) status = kv_grow(c, most);
  if (!status && fits && !(memory = kv_take(c, 1, bytes))) status = ATTN_ENOMEM;
  if (!status) status = attn_threads_enter(c->options.threads);
  for (int64_t b = 0; !status && b < c->problem.batch; b++) {
    take_sequence(c, a, b, memory);
    c->length[b] += kv_arriving(a, b);
  }
  kv_give(c, memory, 1, bytes);
  if (status) (void)truncate_prompts(c, c->length);
  if (status || rests) return status;
  attn_kv_cache_destroy(x->prompt);
  x->prompt = NULL;
  return ATTN_OK;
}

attn_status kv_latents_truncate(attn_kv_cache *c, const int64_t *length) {
  for (int64_t b = 0; b < c->problem.batch; b++) {
    c->length[b] = length[b];
    if (is_factored(c, b)) c->held[b] = length[b];
  }
  return truncate_prompts(c, length);
}

/* ---- attention ---------------------------------------------------------------------------------------- */

/* Queries, outputs and log-sum-exps of latents, at the beginning of the work memory. */
typedef struct turned {
  void *q, *o;
  double *lse;
} turned;

static turned turned_at(const attn_kv_cache *c, int64_t n, attn_carver *carver) {
  const int64_t rows = queries_of(&c->problem, n);
  const size_t size = attn_dtype_size(c->problem.dtype);
  return (turned){.q = attn_carve(carver, rows, c->problem.d_qk, size),
                  .o = attn_carve(carver, rows, c->problem.d_v, size),
                  .lse = attn_carve(carver, rows, 1, sizeof(double))};
}

size_t kv_latents_work(const attn_kv_cache *c, int64_t n) {
  attn_carver counter = {.base = NULL};
  if (c->latents.law.rank) turned_at(c, n, &counter);
  return counter.used;
}

/* With q, queries on their way to latents; else outputs and their log-sum-exps back. */
static void turn_rows(const attn_kv_cache *c, int64_t n, const turned *t, const void *q, void *o,
                      double *lse) {
  const kv_latents *x = &c->latents;
  attn_problem asked = x->given;
  asked.n_q = n;
  asked.q = rows_of(asked.heads, n, asked.d_qk, asked.q.stored);
  asked.o = rows_of(asked.heads, n, asked.d_v, asked.o.stored);
#pragma omp parallel for num_threads(c->options.threads) schedule(static)
  for (int64_t at = 0; at < queries_of(&asked, n); at++) {
    double *room = x->row + omp_get_thread_num() * (x->law.rank + width_of(&asked));
    fenv_t outer;
    attn_float_enter(&outer);
    if (!is_factored(c, at / n / asked.heads)) {
      if (q)
        for (int64_t e = 0; e < x->law.rank; e++) attn_set(t->q, at * x->law.rank + e, asked.dtype, 0);
    } else if (q) {
      attn_latent_absorb(&x->law, &asked, x->w, q, at, t->q, room);
    } else {
      attn_latent_expand(&x->law, &asked, x->w, t->o, at, o, room);
      if (lse) lse[at] = t->lse[at];
    }
    attn_float_leave(&outer);
  }
}

attn_status kv_latents_attend(attn_kv_cache *c, int64_t n, const void *q, void *o, double *lse) {
  bool any = false;
  if (!q) return attn_null("cache", "q");
  if (!o) return attn_null("cache", "o");
  for (int64_t b = 0; b < c->problem.batch; b++) any = any || is_factored(c, b);
  /* Of a sequence that is factored the prompt's cache gives what is written over. */
  attn_status status = c->latents.prompt ? attn_kv_cache_attend(c->latents.prompt, n, q, o, lse) : ATTN_OK;
  if (status || !any) return status;
  if (!(status = kv_plan(c, n))) status = attn_threads_enter(c->options.threads);
  if (status) return status;
  attn_carver carver = {.base = c->work};
  const turned t = turned_at(c, n, &carver);
  turn_rows(c, n, &t, q, NULL, NULL);
  status = kv_run(c, t.q, t.o, lse ? t.lse : NULL);
  if (!status) turn_rows(c, n, &t, NULL, o, lse);
  return status;
}
