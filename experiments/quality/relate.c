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

static int by_p(const void *a, const void *b) {
  const quality_record *const *x = a, *const *y = b;
  return ((*x)->word_p > (*y)->word_p) - ((*x)->word_p < (*y)->word_p);
}

/* Holm's correction over the runs of first's question. */
static void judge_words(quality_set *s, size_t first, quality_record **room) {
  size_t count = 0, i;
  for (i = first; i < s->count; i++)
    if (quality_same_question(&s->records[first], &s->records[i]) && !isnan(s->records[i].word_p))
      room[count++] = &s->records[i];
  qsort(room, count, sizeof *room, by_p);
  for (i = 0; i < count && room[i]->word_p <= ALPHA / (double)(count - i); i++)
    room[i]->word_holm = room[i]->dnll < room[i]->margin ? QUALITY_NO_WORSE : QUALITY_WORSE;
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
  quality_record **room = calloc(s->count + 1, sizeof *room);
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
    if (before == i) judge_words(s, i, room);
  }
  free(room);
  return judge_draws(s);
}
