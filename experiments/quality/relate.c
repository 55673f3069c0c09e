/* relate.c - runs of one question side by side (relate.h). */
#include "experiments/quality/relate.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/results/bound.h"

static const double ALPHA = 0.05;

bool quality_same_question(const quality_record *a, const quality_record *b) {
  return a->n == b->n && a->windows == b->windows && a->seed == b->seed && a->bos == b->bos &&
         strcmp(a->model_sha256, b->model_sha256) == 0 && strcmp(a->data_sha256, b->data_sha256) == 0 &&
         strcmp(a->config_sha256, b->config_sha256) == 0 && strcmp(a->tokens_sha256, b->tokens_sha256) == 0 &&
         strcmp(a->task, b->task) == 0;
}

/* Two-sided, of Student's test that the mean change is the margin; NaN: too few windows. */
static double p_of(const quality_record *r) {
  if (!r->window_dnll || isnan(r->dnll_lo)) return (double)NAN;
  const size_t n = (size_t)r->windows;
  const double apart = fabs(r->dnll - r->margin),
               error = gsl_stats_sd_m(r->window_dnll, 1, n, r->dnll) / sqrt((double)n);
  if (error == 0) return apart > 0 ? 0 : 1;
  return 2 * gsl_cdf_tdist_Q(apart / error, (double)(n - 1));
}

typedef struct tested {
  double p;
  quality_record *run;
} tested;

static int by_p(const void *a, const void *b) {
  const tested *x = a, *y = b;
  return (x->p > y->p) - (x->p < y->p);
}

/* The runs of first's question with p, a member of the record, that is known, after Holm's correction: each p
 * is the least level at which its hypothesis is rejected. Returns how many. */
static size_t correct(quality_set *s, size_t first, size_t p, tested *out) {
  size_t count = 0;
  for (size_t i = first; i < s->count; i++) {
    tested t = {.run = &s->records[i]};
    memcpy(&t.p, (const char *)t.run + p, sizeof t.p);
    if (quality_same_question(&s->records[first], t.run) && !isnan(t.p)) out[count++] = t;
  }
  qsort(out, count, sizeof *out, by_p);
  for (size_t i = 0; i < count; i++)
    out[i].p = fmin(1, fmax(i ? out[i - 1].p : 0, (double)(count - i) * out[i].p));
  return count;
}

static void judge_question(quality_set *s, size_t first, tested *room) {
  size_t count = correct(s, first, offsetof(quality_record, word_p), room);
  for (size_t i = 0; i < count && room[i].p <= ALPHA; i++) {
    quality_record *r = room[i].run;
    r->word_holm = r->dnll < r->margin ? QUALITY_NO_WORSE : QUALITY_WORSE;
  }
  count = correct(s, first, offsetof(quality_record, score_p), room);
  for (size_t i = 0; i < count; i++) room[i].run->score_p_holm = room[i].p;
}

/* The layer of a run over one; -1: over others. */
static int64_t layer_of(const quality_record *r) {
  char *end;
  const long long layer = strtoll(r->layers, &end, 10);
  return *r->layers && !*end ? layer : -1;
}

static void add_layers(quality_set *s, quality_record *all) {
  double sum = 0;
  int64_t found = 0;
  for (size_t i = 0; i < s->count; i++) {
    const quality_record *r = &s->records[i];
    if (r->status != RUN_OK || layer_of(r) < 0 || layer_of(r) >= all->layer_count ||
        !quality_same_question(all, r) || r->mix != all->mix || strcmp(r->heads, all->heads) != 0 ||
        strcmp(r->phase, all->phase) != 0 || strcmp(r->spec, all->spec) != 0)
      continue;
    sum += r->kl;
    found++;
  }
  all->additivity = found > 0 && found == all->layer_count ? sum / all->kl : (double)NAN;
}

static int64_t replaced_layers(const quality_record *r) {
  int64_t count = 0;
  for (int64_t l = 0; l < r->layer_count; l++) count += !isnan(r->layer_error[l]);
  return count;
}

/* What the draws of all runs say together (results_holm), which share the seed of what checks draw. */
static attn_status judge_draws(quality_set *s) {
  result_row *rows = calloc(s->count + 1, sizeof *rows);
  if (!rows) return attn_fail(ATTN_ENOMEM, "no memory for %zu runs", s->count);
  for (size_t i = 0; i < s->count; i++) {
    const quality_record *r = &s->records[i];
    rows[i] = (result_row){
        .variant = r->variant, .params = r->spec, .bounds = r->checks, .bounds_count = r->check_count};
  }
  const attn_status status = results_holm(rows, s->count, RESULTS_ALPHA);
  for (size_t i = 0; i < s->count; i++)
    if (s->records[i].status == RUN_OK)
      s->records[i].verdict = (int)bounds_worst(rows[i].bounds, rows[i].bounds_count);
  free(rows);
  return status;
}

attn_status quality_relate(quality_set *s) {
  tested *room = calloc(s->count + 1, sizeof *room);
  if (!room) return attn_fail(ATTN_ENOMEM, "no memory for %zu runs", s->count);
  for (size_t i = 0; i < s->count; i++) {
    quality_record *r = &s->records[i];
    r->word_holm = QUALITY_OPEN;
    if (r->status != RUN_OK) continue;
    r->word = (int)quality_word_of((interval){r->dnll, r->dnll_lo, r->dnll_hi}, r->margin);
    r->word_p = p_of(r);
    r->doubt = r->dnll_hi < 0 && r->kl_lo > r->margin;
    r->sensitivity = r->attention_error > 0 ? r->kl / (r->attention_error * r->attention_error) : (double)NAN;
    r->error_allowed =
        sqrt(r->kl_budget * (double)replaced_layers(r) / ((double)r->layer_count * r->sensitivity));
    if (strcmp(r->layers, "all") == 0) add_layers(s, r);
  }
  for (size_t i = 0; i < s->count; i++) {
    size_t before = 0;
    while (before < i && !quality_same_question(&s->records[before], &s->records[i])) before++;
    if (before == i) judge_question(s, i, room);
  }
  free(room);
  return judge_draws(s);
}
