/* evaluation_summary.c - means, intervals and quantiles of an evaluation (evaluation_summary.h). */
#include "experiments/quality/evaluation_summary.h"

#include <gsl/gsl_sort_double.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

const char *const quality_words[] = {"open", "no_worse", "worse", NULL};

/* A number of window w, position i. swap -1: of the exact model. */
typedef double number(const quality_data *, int64_t swap, int64_t at);

static const quality_point *point(const quality_data *d, int64_t swap, int64_t at) {
  return &d->points[swap * d->windows * d->positions + at];
}
static double dnll(const quality_data *d, int64_t s, int64_t at) { return (double)point(d, s, at)->dnll; }
static double kl(const quality_data *d, int64_t s, int64_t at) { return (double)point(d, s, at)->kl; }
static double range(const quality_data *d, int64_t s, int64_t at) { return (double)point(d, s, at)->range; }
static double same_top(const quality_data *d, int64_t s, int64_t at) { return point(d, s, at)->same_top; }
static double certified(const quality_data *d, int64_t s, int64_t at) { return point(d, s, at)->certified; }
static double dp_square(const quality_data *d, int64_t s, int64_t at) {
  return (double)point(d, s, at)->dp * (double)point(d, s, at)->dp;
}
static double right(const quality_data *d, int64_t s, int64_t at) {
  return s < 0 ? d->right[at] : point(d, s, at)->right;
}
static double nll(const quality_data *d, int64_t s, int64_t at) { return s < 0 ? d->nll[at] : (double)NAN; }

/* Student's interval over windows of their means. room: [windows] */
static interval over_windows(const quality_data *d, int64_t swap, number *of, double *room) {
  for (int64_t w = 0; w < d->windows; w++) {
    room[w] = 0;
    for (int64_t i = 0; i < d->scored[w]; i++)
      room[w] += of(d, swap, w * d->positions + i) / (double)d->scored[w];
  }
  return interval_of_mean(room, (size_t)d->windows);
}

static bool is_whole(const quality_data *d, int64_t swap, int64_t w) {
  int64_t i = 0;
  while (i < d->scored[w] && right(d, swap, w * d->positions + i) > 0) i++;
  return i == d->scored[w];
}

static interval whole_windows(const quality_data *d, int64_t swap) {
  int64_t hits = 0;
  for (int64_t w = 0; w < d->windows; w++) hits += is_whole(d, swap, w);
  return interval_of_share(hits, d->windows);
}

/* room: [2 windows] */
static interval whole_change(const quality_data *d, int64_t swap, double *room) {
  for (int64_t w = 0; w < d->windows; w++) {
    room[w] = is_whole(d, swap, w);
    room[d->windows + w] = is_whole(d, -1, w);
  }
  return interval_of_difference(room, room + d->windows, (size_t)d->windows, 0);
}

/* Windows that stream `by` has whole and stream `not_by` has not. */
static int64_t whole_in_one(const quality_data *d, int64_t by, int64_t not_by) {
  int64_t count = 0;
  for (int64_t w = 0; w < d->windows; w++) count += is_whole(d, by, w) && !is_whole(d, not_by, w);
  return count;
}

/* All scored positions, ascending; NaN has no rank. Returns how many. */
static size_t sorted(const quality_data *d, int64_t swap, number *of, double *room) {
  size_t count = 0;
  for (int64_t w = 0; w < d->windows; w++)
    for (int64_t i = 0; i < d->scored[w]; i++) room[count++] = of(d, swap, w * d->positions + i);
  gsl_sort(room, 1, count);
  return count;
}

static attn_status make_room(const quality_data *d, double **out) {
  *out = malloc((size_t)(d->windows * (d->positions + 2)) * sizeof **out);
  return *out ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for a summary");
}

attn_status quality_summarise_exact(const quality_data *d, quality_exact *out) {
  double *room;
  attn_status status = make_room(d, &room);
  if (status) return status;
  *out =
      (quality_exact){over_windows(d, -1, nll, room), over_windows(d, -1, right, room), whole_windows(d, -1)};
  free(room);
  return ATTN_OK;
}

quality_word quality_word_of(interval dnll, double margin) {
  return dnll.hi < margin ? QUALITY_NO_WORSE : dnll.lo > margin ? QUALITY_WORSE : QUALITY_OPEN;
}

attn_status quality_summarise(const quality_data *d, int64_t swap, quality_row *out) {
  double *room, read = 0, pairs = 0, left = 0, judged = 0, bits = 0, replaced = 0, error = 0, size = 0;
  attn_status status = make_room(d, &room);
  if (status) return status;
  quality_row r = {.dnll = over_windows(d, swap, dnll, room),
                   .kl = over_windows(d, swap, kl, room),
                   .top1 = over_windows(d, swap, same_top, room),
                   .right = over_windows(d, swap, right, room),
                   .whole = whole_windows(d, swap),
                   .whole_change = whole_change(d, swap, room),
                   .lost = whole_in_one(d, -1, swap),
                   .won = whole_in_one(d, swap, -1),
                   .top1_certified = over_windows(d, swap, certified, room).at,
                   .dp_rms = sqrt(over_windows(d, swap, dp_square, room).at)};
  r.ppl_ratio = (interval){exp(r.dnll.at), exp(r.dnll.lo), exp(r.dnll.hi)};
  size_t count = sorted(d, swap, kl, room);
  r.kl_median = gsl_stats_median_from_sorted_data(room, 1, count);
  r.kl_p99 = gsl_stats_quantile_from_sorted_data(room, 1, count, 0.99);
  r.kl_max = room[count - 1];
  count = sorted(d, swap, range, room);
  r.range_median = gsl_stats_median_from_sorted_data(room, 1, count);
  if (isnan(r.kl.at)) r.kl_median = r.kl_p99 = r.kl_max = r.range_median = (double)NAN;
  for (int64_t l = 0; l < d->layers; l++) {
    const quality_layer *layer = &d->layer[swap * d->layers + l];
    read += layer->read;
    pairs += layer->pairs;
    left += layer->left;
    judged += layer->judged;
    r.seconds += layer->seconds;
    bits += layer->bits;
    replaced += layer->bits > 0;
    error += layer->error;
    size += layer->size;
  }
  r.density = read / pairs;
  r.mass_left = left / judged;
  r.kv_bits = bits / replaced;
  r.error = size > 0 ? sqrt(error / size) : (double)NAN;
  free(room);
  *out = r;
  return ATTN_OK;
}

attn_status quality_unigram(const quality_windows *text, int64_t vocab, double *out) {
  int64_t *seen = calloc((size_t)vocab, sizeof *seen), total = 0;
  double nll = 0;
  if (!seen) return attn_fail(ATTN_ENOMEM, "no memory for a vocabulary of %lld", (long long)vocab);
  for (int64_t w = 0; w < text->count; w++)
    for (int64_t i = text->first[w] + 1; i < text->n; i++, total++) seen[text->tokens[w * text->n + i]]++;
  for (int64_t t = 0; t < vocab; t++)
    if (seen[t]) nll -= (double)seen[t] / (double)total * log((double)seen[t] / (double)total);
  free(seen);
  *out = nll;
  return ATTN_OK;
}
