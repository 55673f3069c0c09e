/* crossover.c - the group `crossover`: from which length on an approximate variant is faster than exact
 * tiled.
 *
 * Predicted: the length where mul_add / (target rate) of both are equal, by attn_estimate. Measured, in every
 * round: the ratio of times over a grid of lengths, interpolated in log n and log ratio where it passes 1 for
 * good. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/bench/bench.h"

enum { HEADS = 4, WIDTH = 64, GRID_MAX = 12 };

struct crossing {
  const bench_meter *variant[GRID_MAX], *exact[GRID_MAX];
  int64_t n[GRID_MAX];
  int count;
  double predicted; /* NaN: no rate is asked of this variant */
};

static attn_problem problem_of(int64_t n, bool causal) {
  attn_problem p = attn_problem_make(1, HEADS, n, WIDTH);
  p.causal = causal;
  return p;
}

/* Rates as parts of the peak. */
static double rate_of(bench_target t) {
  const double tiled = bench_goals[TARGET_EXACT_AVX512].value;
  if (t == TARGET_TRANSFORM) return (double)NAN;
  return bench_goals[t].value * (t == TARGET_SPARSE ? tiled : 1);
}

static double predict(const bench_contender *c) {
  const double rate = rate_of(c->target), tiled = bench_goals[TARGET_EXACT_AVX512].value;
  double low = 0, high = 24; /* log2 of the length */
  if (isnan(rate)) return rate;
  while (high - low > 1e-3) {
    const double middle = (low + high) / 2;
    const attn_problem p = problem_of((int64_t)ceil(exp2(middle)), c->causal);
    attn_cost own, exact;
    const bool known = attn_estimate(&p, c->spec, NULL, NULL, &own) == ATTN_OK &&
                       attn_estimate(&p, "tiled", NULL, NULL, &exact) == ATTN_OK;
    if (known && own.mul_add / rate <= exact.mul_add / tiled)
      high = middle;
    else
      low = middle;
  }
  return exp2(high);
}

static double log_ratio(const struct crossing *x, int i, int64_t round) {
  const bench_meter *a = x->variant[i], *b = x->exact[i];
  return log(a->seconds[round] * a->limit[round] / (b->seconds[round] * b->limit[round]));
}

/* The first length at least if it is faster everywhere, twice the last if not even there. */
static double cross(const struct crossing *x, int64_t round) {
  int i = x->count - 1;
  while (i >= 0 && !(log_ratio(x, i, round) > 0)) i--;
  if (i < 0) return (double)x->n[0];
  if (i == x->count - 1) return 2 * (double)x->n[i];
  const double before = log_ratio(x, i, round), after = log_ratio(x, i + 1, round);
  const double part = before / (before - after), step = log((double)x->n[i + 1] / (double)x->n[i]);
  return (double)x->n[i] * exp(part * step);
}

attn_status crossing_settle(bench *b, bench_row *row) {
  const struct crossing *x = row->crossing;
  if (x->count == 0) return ATTN_OK;
  int64_t rounds = x->variant[0]->count;
  for (int i = 1; i < x->count; i++) rounds = x->variant[i]->count < rounds ? x->variant[i]->count : rounds;
  double *values = calloc((size_t)rounds + 1, sizeof *values);
  if (!values) return attn_fail(ATTN_ENOMEM, "no memory for the crossover of a row");
  for (int64_t r = 0; r < rounds; r++) values[r] = cross(x, r);
  const attn_status status = bench_summarise(b, values, rounds, row);
  free(values);
  if (status != ATTN_OK) return status;
  const double last = (double)x->n[x->count - 1];
  snprintf(row->figure, sizeof row->figure, "%sn = %.0f",
           row->ratio > last              ? "> "
           : row->ratio > (double)x->n[0] ? ""
                                          : "<= ",
           fmin(row->ratio, last));
  if (row->ratio > last && target_met(row->target, last / x->predicted))
    snprintf(row->note, sizeof row->note, "the lengths end before the target");
  row->ratio /= x->predicted;
  row->low /= x->predicted;
  row->high /= x->predicted;
  return ATTN_OK;
}

void bench_crossover(bench *b) {
  static const int64_t lengths[] = {128, 256, 512, 1024, 2048, 4096, 8192};
  size_t count, contenders = 0;
  const int64_t *n = bench_list(&b->options.n, lengths, b->options.quick ? 5 : 7, &count);
  while (bench_contenders[contenders].spec) contenders++;
  struct crossing *found = calloc(contenders, sizeof *found);
  if (!found && b->status == ATTN_OK) b->status = attn_fail(ATTN_ENOMEM, "no memory for crossovers");
  for (size_t i = 0; b->status == ATTN_OK && i < count && i < GRID_MAX; i++) {
    bench_set *set = bench_set_add(b, bench_peak(b, NULL, 0, ATTN_PEAK_F32));
    const attn_problem dense = problem_of(n[i], false), causal = problem_of(n[i], true);
    const bench_meter *exact[] = {bench_put(b, set, bench_plan(b, "tiled", &dense, NULL, 0)),
                                  bench_put(b, set, bench_plan(b, "tiled", &causal, NULL, 0))};
    for (size_t c = 0; c < contenders; c++) {
      const attn_problem *p = bench_contenders[c].causal ? &causal : &dense;
      const bench_meter *m = bench_put(b, set, bench_plan(b, bench_contenders[c].spec, p, NULL, 0));
      struct crossing *x = &found[c];
      if (!m) continue;
      x->variant[x->count] = m;
      x->exact[x->count] = exact[bench_contenders[c].causal];
      x->n[x->count++] = n[i];
    }
  }
  for (size_t c = 0; b->status == ATTN_OK && c < contenders; c++) {
    found[c].predicted = predict(&bench_contenders[c]);
    char predicted[48] = "";
    const bool known = !isnan(found[c].predicted);
    if (known) snprintf(predicted, sizeof predicted, ", predicted n = %.0f", found[c].predicted);
    bench_row *row = bench_row_add(b, ROW_VALUE, NULL, NULL, known ? TARGET_CROSSOVER : TARGET_NONE,
                                   "%s%s: overtakes tiled%s", bench_contenders[c].spec,
                                   bench_contenders[c].causal ? ", causal" : "", predicted);
    if (!row) break;
    row->d = WIDTH;
    row->crossing = malloc(sizeof *row->crossing);
    if (row->crossing)
      *row->crossing = found[c];
    else
      b->status = attn_fail(ATTN_ENOMEM, "no memory for a crossover");
  }
  free(found);
}
