/* cached.c - claims about caches of keys and values: what fewer bits and fewer keys lose, and which keys
 * stay. Zhang et al. 2023 (H2O, arXiv:2306.14048), Tao et al. 2024 (AsymKV, arXiv:2410.13212). */
#include "experiments/claims/estimators.h"
#include "experiments/claims/kept.h"

#include <math.h>
#include <stdlib.h>

#include "attn_variant.h"

/* ---- errors of blocks of queries --------------------------------------------------------------------- */

enum { N = 1024, BLOCK = 64, BLOCKS_MAX = 1024, BUDGET = 512 /* as in specs below */ };

typedef struct subject {
  const claim_options *options;
  data_qkv in;
  estimate exact;
  int blocks; /* of all heads */
} subject;

static attn_status subject_make(const claim_options *options, subject *s) {
  *s = (subject){.options = options};
  attn_status status = claim_tensors(options, N, &s->in);
  if (!status) status = estimate_make(&s->in, true, "tiled", &s->exact);
  const int64_t blocks = s->in.heads * (s->in.n_q / BLOCK);
  s->blocks = (int)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX);
  return status;
}

static void subject_free(subject *s) {
  estimate_free(&s->exact);
  data_qkv_free(&s->in);
}

/* |o - exact| of each block of queries, causal. */
static attn_status errors_of(const subject *s, const char *spec, double *error) {
  const int64_t count = BLOCK * s->in.d_v;
  estimate e = {NULL, NULL};
  const attn_status status = estimate_make(&s->in, true, spec, &e);
  for (int b = 0; b < s->blocks && !status; b++) {
    double sum = 0;
    for (int64_t i = b * count; i < (b + 1) * count; i++)
      sum += pow(attn_get(e.o, i, s->in.dtype) - attn_get(s->exact.o, i, s->in.dtype), 2);
    error[b] = sqrt(sum);
  }
  estimate_free(&e);
  return status;
}

/* log of one variant's error over another's, block by block. */
static attn_status compare(const subject *s, claim_report *r, const char *more, const char *less,
                           const claim_figure **out) {
  double a[BLOCKS_MAX], b[BLOCKS_MAX];
  attn_status status = errors_of(s, more, a);
  if (!status) status = errors_of(s, less, b);
  if (status) return status;
  for (int i = 0; i < s->blocks; i++) a[i] = log(a[i] / b[i]);
  *out = figure_mean(claim_add(r, CLAIM_UNSAID, "log of the error of %s over that of %s, %s", more, less,
                               claim_tensors_name(s->options)),
                     a, s->blocks, "blocks of 64 queries");
  return ATTN_OK;
}

/* ---- bits ---------------------------------------------------------------------------------------------- */

/* Of a block of 32 the step is the largest magnitude over 127; the relative step of e4m3 is 1/8, and few
 * elements are so small beside the largest that theirs is less. */
static attn_status uniform(const claim_options *options, claim_report *r) {
  subject s;
  const claim_figure *f = NULL;
  attn_status status = subject_make(options, &s);
  if (!status) status = compare(&s, r, "store:k=fp8,v=f32", "store:k=q8_0,v=f32", &f);
  if (!status && f->low > 0) r->word = CLAIM_DERIVED;
  subject_free(&s);
  return status;
}
const claim claim_store_uniform = {"store-uniform",
                                   "keys in 8 bits of equal steps (q8_0, 8.5 bits an element) lose less than "
                                   "keys in e4m3 without a scale (8 bits)",
                                   "ours", uniform};

static attn_status asymmetric(const claim_options *options, claim_report *r) {
  subject s;
  const claim_figure *f = NULL;
  attn_status status = subject_make(options, &s);
  if (!status) status = compare(&s, r, "store:k=int2,v=int8", "store:k=int8,v=int2", &f);
  if (!status && f->low > log(1.1)) r->word = CLAIM_REPRODUCED;
  subject_free(&s);
  return status;
}
const claim claim_store_keys = {"store-keys", "2 bits of the keys lose more than 2 bits of the values",
                                "Tao et al. 2024 (arXiv:2410.13212), as recalled", asymmetric};

/* Errors of another origin that have nothing to do with each other add as squares. */
static attn_status together(const claim_options *options, claim_report *r) {
  static const char *const specs[] = {"evict:score=knorm,budget=512", "store:k=int2,v=int2",
                                      "evict:score=knorm,budget=512 | store:k=int2,v=int2"};
  double error[3][BLOCKS_MAX];
  subject s;
  attn_status status = subject_make(options, &s);
  int count = 0;
  for (int v = 0; v < 3 && !status; v++) status = errors_of(&s, specs[v], error[v]);
  for (int b = 0; b < s.blocks && !status; b++) {
    if (b % (N / BLOCK) < BUDGET / BLOCK) continue; /* nothing went yet */
    const double both = hypot(error[0][b], error[1][b]), of = error[0][b] / error[1][b];
    error[0][count] = log(error[2][b] / both);
    error[1][count++] = log(of);
  }
  subject_free(&s);
  if (status) return status;
  figure_mean(claim_add(r, CLAIM_UNSAID, "log of the error of %s over that of %s, %s", specs[0], specs[1],
                        claim_tensors_name(options)),
              error[1], count, "blocks of 64 queries");
  const claim_figure *f = figure_mean(
      claim_add(r, CLAIM_UNSAID, "log of the error of both over the root of the sum of squares, %s",
                claim_tensors_name(options)),
      error[0], count, "blocks of 64 queries");
  r->telling = r->count - 1;
  if (f->low > -log(1.25) && f->high < log(1.25)) r->word = CLAIM_DERIVED;
  return ATTN_OK;
}
const claim claim_evict_store = {"evict-store",
                                 "what is lost with keys that go and with 2 bits of those that stay adds as "
                                 "squares, within a quarter",
                                 "ours", together};

/* ---- which keys stay ----------------------------------------------------------------------------------- */

typedef struct early {
  double *share;
  int count;
} early;

/* The share of a row's keys that stand in the first half of those it could see. */
static void count_early(const kept_subject *s, int64_t r, const bool *inside, const double *log_weights,
                        void *context) {
  early *e = context;
  int64_t first = 0, all = 0;
  (void)log_weights;
  for (int64_t j = 0; j < s->x->keys[r]; j++) {
    all += inside[j];
    first += inside[j] && 2 * j < s->x->keys[r];
  }
  e->share[e->count++] = (double)first / (double)all;
}

/* A key that has been held for longer has been given more. */
static attn_status sums(const claim_options *options, claim_report *r) {
  static const char *const specs[] = {"evict:score=h2o,budget=256,recent=128",
                                      "evict:score=h2o_mean,budget=256,recent=128"};
  kept_subject s;
  double level[2][2] = {{0}};
  attn_status status = kept_subject_make(options, &s);
  for (int v = 0; v < 2 && !status; v++) {
    early e = {.share = malloc((size_t)s.x->count * sizeof *e.share)};
    status =
        e.share ? kept_rows(&s, specs[v], count_early, &e) : attn_fail(ATTN_ENOMEM, "no memory for shares");
    if (!status) {
      const claim_figure *f =
          figure_mean(claim_add(r, CLAIM_UNSAID, "share of the held keys in the first half, %s, %s", specs[v],
                                claim_tensors_name(options)),
                      e.share, e.count, "rows");
      level[v][0] = f->low;
      level[v][1] = f->high;
    }
    free(e.share);
  }
  kept_subject_free(&s);
  if (!status && level[0][0] > level[1][1]) r->word = CLAIM_DERIVED;
  return status;
}
const claim claim_h2o_early = {
    "h2o-early",
    "sums of weights keep early keys: the mean over the queries that saw a key keeps fewer "
    "of the first half",
    "ours; Zhang et al. 2023 rank by the sum", sums};
