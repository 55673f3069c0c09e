/* decoding.c - see decoding.h. */
#include "experiments/checks/caches/decoding.h"
#include "experiments/checks/variant_kind.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POSITIONS = 192, MOST_POSITIONS = 512, BEYOND = 48, LAG = 5, PART = 24, QUERIES = 2 };
static const double work_most = 0x1p27;     /* multiply-adds of a sequence, or about */
static const uint64_t purpose = 0x6b766361; /* "kvca" */

static attn_status no_memory(void) { return attn_fail(ATTN_ENOMEM, "no memory to decode a run"); }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- the run ------------------------------------------------------------------------------------------ */

static int64_t positions_of(const evidence *e, const attn_view *view) {
  const attn_problem *p = e->problem;
  const int64_t whole = decoding_whole(view), beyond = whole ? whole + BEYOND : 0;
  int64_t n = beyond > POSITIONS && beyond <= MOST_POSITIONS ? beyond : POSITIONS;
  n = smaller(n, (int64_t)sqrt(work_most / (double)(p->heads * (p->d_qk + p->d_v))));
  for (int64_t b = 0; e->kv_len && b < smaller(p->batch, DECODED_ENTRIES); b++) n = smaller(n, e->kv_len[b]);
  return smaller(n, p->n_kv);
}

/* Rows 0 ... n - 1 of each head, again from row 0 on where there are fewer. */
static char *take_rows(const decoding *d, const void *x, int64_t heads, int64_t rows, int64_t width) {
  const int64_t n = d->problem.n_kv, lines = d->problem.batch * heads;
  const size_t bytes = (size_t)width * attn_dtype_size(d->problem.dtype);
  char *out = malloc((size_t)(lines * n) * bytes + 1);
  for (int64_t r = 0; out && r < lines * n; r++)
    memcpy(out + (size_t)r * bytes, (const char *)x + (size_t)(r / n * rows + r % n % rows) * bytes, bytes);
  return out;
}

static attn_status take_tensors(decoding *d) {
  const attn_problem *of = d->e->problem, *p = &d->problem;
  const int64_t n = p->n_kv;
  d->q = take_rows(d, d->e->q, p->heads, of->n_q, p->d_qk);
  d->k = take_rows(d, d->e->k, p->kv_heads, of->n_kv, p->d_qk);
  d->v = take_rows(d, d->e->v, p->kv_heads, of->n_kv, p->d_v);
  if (!d->q || !d->k || !d->v) return no_memory();
  bool (*finite)(const void *, int64_t) = attn_numbers[p->dtype].finite;
  d->finite = finite(d->q, p->batch * p->heads * n * p->d_qk) &&
              finite(d->k, p->batch * p->kv_heads * n * p->d_qk) &&
              finite(d->v, p->batch * p->kv_heads * n * p->d_v);
  attn_status status = stored_copies_make(p, d->e->view->store, d->k, d->v, NULL, &d->kept);
  if (!status && d->view.latent) status = latent_run_make(d->plan, &d->view, d->k, d->v, NULL, &d->latents);
  return status;
}

/* A plan for n positions. */
static attn_status make_plan(decoding *d, int64_t n) {
  attn_plan *plan = NULL;
  attn_plan_destroy(d->plan);
  d->plan = NULL;
  d->problem.n_q = d->problem.n_kv = n;
  d->problem.q = d->problem.k = d->problem.v = d->problem.o = (attn_stride){.batch = 0};
  attn_status status = attn_problem_resolve(&d->problem);
  if (!status)
    status = attn_plan_create_spec(&plan, &d->problem, attn_plan_parsed_spec(d->e->plan), &d->options);
  if (!status && d->e->view->store) {
    status = stored_reader_plan(plan, &d->plan);
    attn_plan_destroy(plan);
  } else {
    d->plan = plan;
  }
  return status ? status : attn_plan_inspect(d->plan, &d->view);
}

/* What a policy leaves is read by tiled. */
static attn_status find_rounding(decoding *d) {
  attn_plan *reader = NULL;
  attn_view view = d->view;
  attn_status status = d->view.cache ? attn_plan_create(&reader, &d->problem, "tiled", &d->options) : ATTN_OK;
  if (!status && reader) status = attn_plan_inspect(reader, &view);
  attn_plan_destroy(reader);
  d->rounding = view.rounding;
  if (status || view.rounding.unit > 0) return status;
  return attn_fail(ATTN_EUNSUPPORTED, "the variant describes no rounding");
}

attn_status decoding_make(const evidence *e, decoding *d) {
  const attn_context *c = attn_plan_context(e->plan);
  attn_kv_cache *cache = NULL;
  *d = (decoding){.e = e,
                  .spec = attn_plan_parsed_spec(e->plan)->text,
                  .problem = *e->problem,
                  .options = {.threads = 1, .isa = attn_plan_isa(e->plan), .blocks = c->blocks}};
  if (!e->problem->causal)
    return attn_fail(ATTN_EUNSUPPORTED, "not causal: the keys of a cache arrive in order");
  if (e->problem->mask.kind != ATTN_MASK_NONE || e->problem->score.dense.at)
    return attn_fail(ATTN_EUNSUPPORTED, "a mask or bias of this very sequence");
  d->problem.batch = smaller(e->problem->batch, DECODED_ENTRIES);
  attn_status status = ATTN_OK;
  for (int64_t n = -1, wanted = positions_of(e, &d->view); !status && n != wanted;) {
    n = wanted;
    status = n < 1 ? attn_fail(ATTN_EUNSUPPORTED, "a batch entry without keys") : make_plan(d, n);
    if (!status) wanted = positions_of(e, &d->view);
  }
  if (!status && !of_cached.holds(&d->view))
    status = attn_fail(ATTN_EUNSUPPORTED, "what a query reads depends on other queries or on keys to come");
  if (!status) status = decoding_cache(d, NULL, &cache);
  attn_kv_cache_destroy(cache);
  if (!status) status = find_rounding(d);
  return status ? status : take_tensors(d);
}

void decoding_free(decoding *d) {
  stored_copies_free(&d->kept);
  latent_run_free(&d->latents); /* of the plan's problem */
  attn_plan_destroy(d->plan);
  free(d->q);
  free(d->k);
  free(d->v);
}

/* ---- a cache ------------------------------------------------------------------------------------------ */

attn_status decoding_cache(const decoding *d, const attn_allocator *allocator, attn_kv_cache **out) {
  attn_options options = d->options;
  options.allocator = allocator;
  return attn_kv_cache_create(out, &d->problem, d->spec, &options);
}

/* Rows from[b] ... from[b] + n - 1 of each head, as far as there are. */
static char *slice(const decoding *d, const char *x, int64_t heads, int64_t width, const int64_t *from,
                   int64_t n) {
  const size_t bytes = (size_t)width * attn_dtype_size(d->problem.dtype);
  char *out = calloc((size_t)(d->problem.batch * heads * n) + 1, bytes);
  for (int64_t line = 0; out && line < d->problem.batch * heads; line++) {
    const int64_t first = from[line / heads], rows = smaller(n, d->problem.n_kv - first);
    memcpy(out + (size_t)(line * n) * bytes, x + (size_t)(line * d->problem.n_kv + first) * bytes,
           (size_t)rows * bytes);
  }
  return out;
}

attn_status decoding_append(const decoding *d, attn_kv_cache *c, const int64_t *from, const int64_t *count) {
  const attn_problem *p = &d->problem;
  int64_t n = 1;
  for (int64_t b = 0; b < p->batch; b++) n = count[b] > n ? count[b] : n;
  char *q = slice(d, d->q, p->heads, p->d_qk, from, n), *k = slice(d, d->k, p->kv_heads, p->d_qk, from, n),
       *v = slice(d, d->v, p->kv_heads, p->d_v, from, n);
  const attn_status status = q && k && v ? attn_kv_cache_append(c, n, count, q, k, v) : no_memory();
  free(q);
  free(k);
  free(v);
  return status;
}

attn_status decoding_attend(const decoding *d, attn_kv_cache *c, const int64_t *from, int64_t n, void *o) {
  char *q = slice(d, d->q, d->problem.heads, d->problem.d_qk, from, n);
  const attn_status status = q ? attn_kv_cache_attend(c, n, q, o, NULL) : no_memory();
  free(q);
  return status;
}

/* ---- in parts ----------------------------------------------------------------------------------------- */

static void *count_alloc(void *context, size_t bytes) {
  void *at = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (at) *(size_t *)context += bytes;
  return at;
}
static void count_release(void *context, void *at, size_t bytes) {
  *(size_t *)context -= bytes;
  free(at);
}

static void compare_bytes(size_t given, const attn_kv_cache *c, decoded *r) {
  const size_t told = attn_kv_cache_bytes(c), off = told > given ? told - given : given - told;
  if (off > r->wrong) r->wrong = off;
}

/* Outputs [batch, heads, m, d_v] of queries from[b] ..., and what they had to see. */
static attn_status record(const decoding *d, const attn_kv_cache *c, const int64_t *from, int64_t m,
                          const char *o, decoded *r) {
  const attn_problem *p = &d->problem;
  const int64_t n = p->n_kv;
  const size_t bytes = (size_t)p->d_v * attn_dtype_size(p->dtype);
  for (int64_t x = 0; x < p->batch * p->heads * m; x++) {
    const int64_t line = x / m, i = from[line / p->heads] + x % m;
    memcpy(r->o + (size_t)(line * n + i) * bytes, o + (size_t)x * bytes, bytes);
    r->asked[line / p->heads * n + i] = true;
  }
  for (int64_t line = 0; line < p->batch * p->kv_heads; line++) {
    attn_kv_cache_view view;
    const attn_status status = attn_kv_cache_look(c, line / p->kv_heads, line % p->kv_heads, &view);
    if (status) return status;
    for (int64_t i = from[line / p->kv_heads]; i < from[line / p->kv_heads] + m; i++)
      for (int64_t x = 0; x < view.held; x++) {
        const int64_t j = view.position ? view.position[x] : x;
        if (j >= 0 && j <= i) r->held[(line * n + i) * n + j] = true;
      }
  }
  return ATTN_OK;
}

static attn_status take_part(const decoding *d, attn_kv_cache *c, attn_rng *rng, const size_t *given, char *o,
                             decoded *r) {
  const int64_t n = d->problem.n_kv, batch = d->problem.batch;
  const bool first = !r->length[0];
  const int64_t part =
      first ? 1 + attn_rng_below(rng, (n + 1) / 2) : smaller(1 + attn_rng_below(rng, PART), n - r->length[0]);
  int64_t count[DECODED_ENTRIES] = {part, part}, from[DECODED_ENTRIES];
  if (first) count[1] -= smaller(LAG, part - 1);
  attn_status status = decoding_append(d, c, r->length, count);
  if (status) return status;
  compare_bytes(*given, c, r);
  /* Of several queries the first may have seen keys that the others do not. */
  const int64_t whole = decoding_whole(&d->view);
  const bool gone = whole && (!first || part > whole);
  const int64_t queries = gone ? 1 : smaller(QUERIES, count[batch - 1]);
  for (int64_t b = 0; b < batch; b++) from[b] = (r->length[b] += count[b]) - queries;
  status = decoding_attend(d, c, from, queries, o);
  compare_bytes(*given, c, r);
  return status ? status : record(d, c, from, queries, o, r);
}

attn_status decoding_run(const decoding *d, decoded *r) {
  const attn_problem *p = &d->problem;
  const int64_t n = p->n_kv;
  const size_t row = (size_t)p->d_v * attn_dtype_size(p->dtype);
  size_t given = 0;
  const attn_allocator allocator = {count_alloc, count_release, &given};
  attn_kv_cache *c = NULL, *copy = NULL;
  attn_rng rng;
  *r = (decoded){.asked = calloc((size_t)(p->batch * n), 1),
                 .held = calloc((size_t)(p->batch * p->kv_heads * n), (size_t)n),
                 .o = calloc((size_t)(p->batch * p->heads * n), row),
                 .last = malloc((size_t)(p->batch * p->heads) * row)};
  char *o = malloc((size_t)(p->batch * p->heads * QUERIES) * row);
  int64_t last[DECODED_ENTRIES] = {0};
  attn_status status =
      r->asked && r->held && r->o && r->last && o ? decoding_cache(d, &allocator, &c) : no_memory();
  attn_rng_init(&rng, d->e->seed, purpose, 0);
  while (!status && r->length[0] < n) status = take_part(d, c, &rng, &given, o, r);
  for (int64_t b = 0; b < p->batch; b++) last[b] = r->length[b] - 1;
  if (!status) status = decoding_attend(d, c, last, 1, r->last);
  const size_t own = given;
  if (!status && !(status = attn_kv_cache_copy(c, &copy))) compare_bytes(given - own, copy, r);
  attn_kv_cache_destroy(copy);
  attn_kv_cache_destroy(c);
  compare_bytes(given, NULL, r);
  free(o);
  return status;
}

void decoded_free(decoded *r) {
  free(r->asked);
  free(r->held);
  free(r->o);
  free(r->last);
}

/* ---- rows --------------------------------------------------------------------------------------------- */

static outcome judge_row(const decoding *d, const head_data *h, const seen_keys *seen, const decoded *r,
                         int64_t i, row_space *s) {
  const attn_problem *p = h->problem;
  const int64_t n = p->n_kv;
  const sample_row row = {h->batch, h->head, i};
  row_widen(d->q, p->dtype, row_offset(p, &row, p->d_qk), p->d_qk, s->q);
  row_widen(r->o, p->dtype, row_offset(p, &row, p->d_v), p->d_v, s->given);
  if (seen) {
    row_see(h, seen, i, s);
  } else {
    const int64_t line = h->batch * p->kv_heads + h->head / (p->heads / p->kv_heads);
    s->i = i;
    s->count = 0;
    for (int64_t j = 0; j <= i; j++)
      if (r->held[(line * n + i) * n + j]) s->index[s->count++] = j;
    memset(s->log_weight, 0, (size_t)s->count * sizeof *s->log_weight);
  }
  prior rounding;
  double v_reach;
  const row_verdict verdict = d->view.latent ? latent_row_bound(&d->latents, h, s, &rounding, &v_reach)
                                             : row_bound(h, &d->rounding, false, NULL, s);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  for (int64_t l = 0; d->view.latent && l < p->d_v; l++)
    s->bound[l] = latent_off(&rounding, row_range(h, l), v_reach);
  return outcome_rounded(s->given, s->o, s->bound, p->d_v, h->v_max);
}

static attn_status judge_head(const evidence *e, const decoding *d, const seen_keys *seen, const decoded *r,
                              int64_t line, row_space *s, outcome *worst, char *text, size_t size) {
  const attn_problem *p = e->problem;
  const int64_t batch = line / p->heads, head = line % p->heads;
  const attn_latent *law = d->view.latent;
  evidence by_latents = *e;
  head_data given, products = {.k = NULL};
  attn_status status = head_data_load(e, batch, head, &given);
  if (status) return status;
  by_latents.k = d->latents.kept.k;
  by_latents.v = d->latents.kept.v;
  if (law) status = head_data_load(&by_latents, batch, head, &products);
  for (int64_t i = 0; !status && i < p->n_kv; i++) {
    const head_data *h = law && latent_reads(law, p, i) ? &products : &given;
    if (r->asked[batch * p->n_kv + i] && outcome_worsen(worst, judge_row(d, h, seen, r, i, s)))
      snprintf(text, size, "batch entry %lld, head %lld, query at position %lld", (long long)batch,
               (long long)head, (long long)i);
  }
  head_data_free(&products);
  head_data_free(&given);
  return status;
}

attn_status decoding_judge(const decoding *d, const decoded *r, bool by_held, outcome *worst, char *text,
                           size_t size) {
  const evidence e = {.plan = d->plan,
                      .problem = attn_plan_problem(d->plan),
                      .view = &d->view,
                      .q = d->q,
                      .k = d->kept.k,
                      .v = d->kept.v};
  const attn_problem *p = e.problem;
  const int64_t rows = p->batch * p->heads * p->n_kv;
  sample_row *all = malloc((size_t)rows * sizeof *all);
  int64_t count = 0;
  row_space space = {.q = NULL};
  seen_keys seen;
  attn_status status = all ? row_space_make(p, by_held ? NULL : d->view.pattern, &space) : no_memory();
  for (int64_t x = 0; !status && x < rows; x++)
    if (r->asked[x / p->n_kv / p->heads * p->n_kv + x % p->n_kv])
      all[count++] = (sample_row){x / p->n_kv / p->heads, x / p->n_kv % p->heads, x % p->n_kv};
  if (!status && !by_held)
    status = seen_make(&(seen_run){e.plan, e.view, {.q = e.q, .k = e.k, .v = e.v}}, all, NULL, count, &seen);
  const bool made = !status && !by_held;
  for (int64_t line = 0; !status && line < p->batch * p->heads; line++)
    status = judge_head(&e, d, made ? &seen : NULL, r, line, &space, worst, text, size);
  if (made) seen_free(&seen);
  row_space_free(&space);
  free(all);
  return status;
}
