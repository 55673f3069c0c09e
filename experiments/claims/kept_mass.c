/* kept_mass.c - claims about pages of keys and about hashing: what is kept of the exact softmax's mass. Tang
 * et al. 2024 (Quest, arXiv:2406.10774), Kitaev et al. 2020 (Reformer, arXiv:2001.04451). */
#include "experiments/claims/kept.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { D = 64, BUDGET = 128 };

static double least_of(const kept *k) {
  double least = 1;
  for (int i = 0; i < k->count; i++) least = fmin(least, k->mass[i]);
  return least;
}

/* ---- a bound is not a ranking -------------------------------------------------------------------------- */

/* Quest ranks pages by a bound on their scores. A bound grows with the spread of a page as well as with its
 * scores; the mean of the keys ranks by the scores alone. Row by row, at the same budget: the mean keeps more
 * where pages are large. */
static attn_status ranking_on(const claim_options *options, claim_report *r, bool *holds) {
  static const char *const scores[] = {"box", "mean", "max"};
  static const int pages[] = {16, 64};
  const claim_figure *gain = NULL;
  kept_subject s;
  attn_status status = kept_subject_make(options, &s);
  for (int b = 0; b < 2 && !status; b++) {
    kept found[3] = {{.count = 0}};
    for (int v = 0; v < 3 && !status; v++) {
      char spec[64];
      snprintf(spec, sizeof spec, "pages:page=%d,budget=%d,score=%s", pages[b], BUDGET, scores[v]);
      if ((status = kept_make(&s, spec, &found[v]))) break;
      figure_mean(claim_add(r, CLAIM_UNSAID, "mass kept, pages of %d by %s, 128 of %d to %d keys, %s Q, K, V",
                            pages[b], v == 2 ? "best key (an oracle)" : scores[v], KEPT_FEWEST, KEPT_N,
                            claim_tensors_name(options)),
                  found[v].mass, found[v].count, "rows");
      figure_exact(claim_add(r, CLAIM_UNSAID, "... in the worst row"), least_of(&found[v]));
    }
    for (int i = 0; !status && i < found[0].count; i++) found[1].mass[i] -= found[0].mass[i];
    if (!status)
      gain = figure_mean(claim_add(r, CLAIM_UNSAID,
                                   "mass that the mean keeps above the box, pages of %d, %s Q, K, V",
                                   pages[b], claim_tensors_name(options)),
                         found[1].mass, found[1].count, "rows");
    for (int v = 0; v < 3; v++) region_free(&found[v].memory);
  }
  kept_subject_free(&s);
  if (!status) *holds = gain->low > 0;
  return status;
}

static attn_status ranking(const claim_options *options, claim_report *r) {
  const claim_options drawn = {.seed = options->seed};
  bool normal = false, captured = true;
  attn_status status = ranking_on(&drawn, r, &normal);
  if (!status && options->captured) status = ranking_on(options, r, &captured);
  if (status) return status;
  r->telling = r->count - 1;
  if (normal && captured)
    r->word = CLAIM_DERIVED;
  else if (normal)
    claim_holds_under(r, "standard normal queries and keys");
  return ATTN_OK;
}
const claim claim_pages_ranking = {"pages-ranking",
                                   "an upper bound is not a good ranking: of pages of 64 keys, the mean of "
                                   "the keys keeps more mass than the box",
                                   "ours; Tang et al. 2024 rank by the box, pages of 16", ranking};

/* ---- what the bounds certify --------------------------------------------------------------------------- */

enum { PAGE = 16 };

/* A page's statistics: the box of its keys, their mean and the radius about it. */
typedef struct page {
  double low[D], high[D], mean[D], radius;
} page;

typedef struct certificates {
  page *pages; /* [heads][n / PAGE] */
  double *certified, *missing;
  int count;
} certificates;

static double key_at(const kept_subject *s, int64_t head, int64_t j, int64_t l) {
  return attn_get(s->in.k, (head * s->p.n_kv + j) * s->p.d_qk + l, s->p.dtype);
}

static void measure(const kept_subject *s, int64_t head, int64_t b, page *out) {
  *out = (page){.radius = 0};
  for (int64_t l = 0; l < D; l++) {
    out->low[l] = out->high[l] = key_at(s, head, b * PAGE, l);
    for (int64_t j = b * PAGE; j < (b + 1) * PAGE; j++) {
      out->low[l] = fmin(out->low[l], key_at(s, head, j, l));
      out->high[l] = fmax(out->high[l], key_at(s, head, j, l));
      out->mean[l] += key_at(s, head, j, l) / PAGE;
    }
  }
  for (int64_t j = b * PAGE; j < (b + 1) * PAGE; j++) {
    double sum = 0;
    for (int64_t l = 0; l < D; l++) sum += pow(key_at(s, head, j, l) - out->mean[l], 2);
    out->radius = fmax(out->radius, sqrt(sum));
  }
}

/* The lesser of the two bounds on the scores of a page. */
static double page_bound(const kept_subject *s, const double *q, const page *p) {
  double box = 0, ball = 0, norm = 0;
  for (int64_t l = 0; l < D; l++) {
    box += fmax(q[l] * p->low[l], q[l] * p->high[l]);
    ball += q[l] * p->mean[l];
    norm += q[l] * q[l];
  }
  return s->p.scale * fmin(box, ball + sqrt(norm) * p->radius);
}

/* t <= Z / (Z_S + Z), Z the sum over pages of (keys left out) e^bound; Z_S follows from the exact weights and
 * the score of the kept key that has the largest. */
static void certify_row(const kept_subject *s, int64_t r, const bool *inside, const double *log_weights,
                        void *context) {
  (void)log_weights;
  certificates *c = context;
  const sample_row *row = &s->x->rows[r];
  const double *p = s->x->p + r * s->p.n_kv;
  const int64_t kv_head = row->head / (s->p.heads / s->p.kv_heads), pages = s->p.n_kv / PAGE;
  double q[D];
  double kept_mass = 0, missing = 0, left = 0, score = 0;
  int64_t best = -1;
  for (int64_t l = 0; l < D; l++)
    q[l] = attn_get(s->in.q, (row->head * s->p.n_q + row->i) * D + l, s->p.dtype);
  for (int64_t j = 0; j < s->x->keys[r]; j++) {
    if (inside[j] && (best < 0 || p[j] > p[best])) best = j;
    *(inside[j] ? &kept_mass : &missing) += p[j];
  }
  for (int64_t l = 0; l < D; l++) score += s->p.scale * q[l] * key_at(s, kv_head, best, l);
  const double log_kept = score + log(kept_mass / p[best]);
  for (int64_t b = 0; b * PAGE < s->x->keys[r]; b++) {
    int64_t out = 0;
    for (int64_t j = b * PAGE; j < (b + 1) * PAGE && j < s->x->keys[r]; j++) out += !inside[j];
    if (out) left += (double)out * exp(page_bound(s, q, &c->pages[kv_head * pages + b]) - log_kept);
  }
  c->certified[c->count] = left / (1 + left);
  c->missing[c->count++] = missing;
}

static attn_status certificate(const claim_options *options, claim_report *r) {
  kept_subject s;
  certificates c = {NULL, NULL, NULL, 0};
  region memory = {.last = NULL};
  attn_status status = kept_subject_make(options, &s);
  if (!status && (s.p.d_qk != D || s.p.batch != 1))
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: expected one batch entry of width %d", options->captured, D);
  if (!status) {
    c.pages = region_take(&memory, s.p.kv_heads * KEPT_N / PAGE, sizeof *c.pages);
    c.certified = region_take(&memory, s.x->count, sizeof *c.certified);
    c.missing = region_take(&memory, s.x->count, sizeof *c.missing);
    status = region_status(&memory, "for the bounds of pages");
  }
  for (int64_t h = 0; !status && h < s.p.kv_heads; h++)
    for (int64_t b = 0; b < KEPT_N / PAGE; b++) measure(&s, h, b, &c.pages[h * (KEPT_N / PAGE) + b]);
  if (!status) status = kept_rows(&s, "pages:page=16,budget=128,score=box", certify_row, &c);
  if (!status) {
    const claim_figure *certified = figure_mean(
        claim_add(r, CLAIM_UNSAID,
                  "mass that may be missing by the lesser of box and ball, pages of 16, 128 keys, %s Q, K, V",
                  claim_tensors_name(options)),
        c.certified, c.count, "rows");
    const claim_figure *missing =
        figure_mean(claim_add(r, CLAIM_UNSAID, "mass that is missing"), c.missing, c.count, "rows");
    if (certified->low > 0.5 && missing->high < 0.1) r->word = CLAIM_DERIVED;
  }
  region_free(&memory);
  kept_subject_free(&s);
  return status;
}
const claim claim_pages_certificate = {"pages-certificate",
                                       "bounds on the scores of pages certify nothing of the mass left out: "
                                       "half of it may be missing where a tenth is not",
                                       "ours, from the bound of Tang et al. 2024", certificate};

/* ---- rounds of hashing --------------------------------------------------------------------------------- */

/* "Near" full attention: at most a twentieth of the mass is left out, with half of the keys. */
static attn_status rounds(const claim_options *options, claim_report *r) {
  enum { COUNT = 5 };
  kept_subject s;
  attn_status status = kept_subject_make(options, &s);
  for (int t = 0; t < COUNT && !status; t++) {
    char spec[64];
    kept found = {.count = 0};
    snprintf(spec, sizeof spec, "lsh:rounds=%d,seed=%llu", 1 << t,
             (unsigned long long)claim_seed(options, 0));
    status = kept_make(&s, spec, &found);
    if (!status) {
      const claim_figure *mass =
          figure_mean(claim_add(r, CLAIM_UNSAID, "mass kept by %d rounds of 64 buckets, %s Q, K, V", 1 << t,
                                claim_tensors_name(options)),
                      found.mass, found.count, "rows");
      for (int i = 0; i < found.count; i++) found.keys[i] /= KEPT_N;
      const claim_figure *keys = figure_mean(claim_add(r, CLAIM_UNSAID, "... with this share of 1024 keys"),
                                             found.keys, found.count, "rows");
      if (t == 3 && mass->low >= 0.95 && keys->high <= 0.5) r->word = CLAIM_REPRODUCED;
    }
    region_free(&found.memory);
  }
  kept_subject_free(&s);
  r->telling = 6;
  return status;
}
const claim claim_reformer_rounds = {"reformer-rounds", "8 rounds of hashing come near to full attention",
                                     "Kitaev et al. 2020, Figure 4, as recalled", rounds};
