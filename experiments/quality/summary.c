/* summary.c - means, intervals and quantiles of an evaluation (summary.h). */
#include "experiments/quality/summary.h"

#include <gsl/gsl_sort_double.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

const char *const quality_words[] = {"open", "no worse", "worse"};

/* Student's interval over windows of the windows' means of of(point). */
static interval mean_over_windows(const quality_data *d, const quality_point *points,
                                  double (*of)(const quality_point *), double *room) {
  for (int64_t w = 0; w < d->windows; w++) {
    room[w] = 0;
    for (int64_t i = 0; i < d->positions; i++)
      room[w] += of(&points[w * d->positions + i]) / (double)d->positions;
  }
  return interval_of_mean(room, (size_t)d->windows);
}

static double dnll_of(const quality_point *p) { return (double)p->dnll; }
static double kl_of(const quality_point *p) { return (double)p->kl; }
static double top_of(const quality_point *p) { return p->same_top; }
static double certified_of(const quality_point *p) { return p->certified; }
static double square_of(const quality_point *p) { return (double)p->dp * (double)p->dp; }

interval quality_nll(const quality_data *d) {
  interval none = {(double)NAN, (double)NAN, (double)NAN};
  double *means = calloc((size_t)d->windows, sizeof *means);
  if (!means) return none;
  for (int64_t w = 0; w < d->windows; w++)
    means[w] = gsl_stats_mean(d->nll + w * d->positions, 1, (size_t)d->positions);
  const interval found = interval_of_mean(means, (size_t)d->windows);
  free(means);
  return found;
}

attn_status quality_summarise(const quality_data *d, int64_t swap, double margin, quality_row *out) {
  const size_t count = (size_t)(d->windows * d->positions);
  const quality_point *points = d->points + swap * (int64_t)count;
  double *room = malloc(count * sizeof *room), read = 0, pairs = 0, error = 0, size = 0;
  if (!room) return attn_fail(ATTN_ENOMEM, "no memory for a summary");
  quality_row r = {.dnll = mean_over_windows(d, points, dnll_of, room),
                   .kl = mean_over_windows(d, points, kl_of, room),
                   .top1 = mean_over_windows(d, points, top_of, room),
                   .top1_certified = mean_over_windows(d, points, certified_of, room).at,
                   .dp_rms = sqrt(mean_over_windows(d, points, square_of, room).at)};
  r.ppl_ratio = (interval){exp(r.dnll.at), exp(r.dnll.lo), exp(r.dnll.hi)};
  for (size_t i = 0; i < count; i++) room[i] = (double)points[i].kl;
  gsl_sort(room, 1, count);
  r.kl_median = gsl_stats_median_from_sorted_data(room, 1, count);
  r.kl_p99 = gsl_stats_quantile_from_sorted_data(room, 1, count, 0.99);
  r.kl_max = room[count - 1];
  for (size_t i = 0; i < count; i++) room[i] = (double)points[i].range;
  r.range_median = gsl_stats_median(room, 1, count);
  for (int64_t l = 0; l < d->layers; l++) {
    const quality_layer *layer = &d->layer[swap * d->layers + l];
    read += layer->read;
    pairs += layer->pairs;
    error += layer->error;
    size += layer->size;
  }
  r.density = read / pairs;
  r.error = size > 0 ? sqrt(error / size) : (double)NAN;
  if (isnan(r.kl.at)) r.kl_median = r.kl_p99 = r.kl_max = r.range_median = (double)NAN; /* NaN has no rank */
  r.word = r.dnll.hi < margin ? QUALITY_NO_WORSE : r.dnll.lo > margin ? QUALITY_WORSE : QUALITY_OPEN;
  free(room);
  *out = r;
  return ATTN_OK;
}
