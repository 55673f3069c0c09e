/* group_crossover.c - the group `crossover`: from which length on an approximate variant is faster than exact
 * tiled.
 *
 * Predicted: the length where mul_add / (target rate) of both are equal, by attn_estimate. Measured:
 * where the ratio of times over a grid of lengths passes 1, as a report estimates it (analysis/fit.h). */
#include "experiments/bench/benchmark.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/analysis/fit.h"

enum { HEADS = 2, WIDTH = 64, GRID_MAX = 12 };

struct crossing {
  const bench_meter *variant[GRID_MAX], *exact[GRID_MAX];
  int64_t n[GRID_MAX];
  int count;
  double predicted; /* NaN: the variant has no target rate */
};

/* The target rate of a variant, as a fraction of the peak. */
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
    const attn_problem p = bench_problem(HEADS, (int64_t)ceil(exp2(middle)), WIDTH, c->causal);
    attn_cost own, exact;
    const bool known =
        !attn_estimate(&p, c->spec, NULL, NULL, &own) && !attn_estimate(&p, "tiled", NULL, NULL, &exact);
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

/* In `room`, which holds as many numbers as there are rounds of all lengths. */
static void fill_ratios(const struct crossing *x, double *room, fit_ratios *out) {
  for (int i = 0; i < x->count; i++) {
    const int64_t rounds = x->variant[i]->count;
    out[i] = (fit_ratios){(double)x->n[i], room, (size_t)rounds};
    for (int64_t r = 0; r < rounds; r++) *room++ = log_ratio(x, i, r);
  }
}

/* Where the lengths do not contain the crossover, it is the first of them at most, or above the last. */
static void show_crossing(const struct crossing *x, const fit_crossing *found, bench_row *row) {
  const double first = (double)x->n[0], last = (double)x->n[x->count - 1], above = 2 * last;
  const bool faster = found->kind == CROSSING_FASTER, inside = found->kind == CROSSING_TO_FASTER;
  if (found->kind == CROSSING_UNKNOWN) {
    snprintf(row->note, sizeof row->note, "fewer than two lengths");
    return;
  }
  const double n = inside ? found->n.mid : faster ? first : above;
  snprintf(row->figure, sizeof row->figure, "%sn = %.0f", inside ? "" : faster ? "<= " : "> ", fmin(n, last));
  if (n > last && target_met(row->target, last / x->predicted))
    snprintf(row->note, sizeof row->note, "the lengths end before the target");
  if (faster && !target_met(row->target, first / x->predicted))
    snprintf(row->note, sizeof row->note, "the lengths begin beyond the target");
  row->ratio = n / x->predicted;
  if (!inside || isnan(found->n.lo)) return;
  row->low = fmax(found->n.lo, first) / x->predicted;
  row->high = fmin(found->n.hi, above) / x->predicted;
}

attn_status crossover_settle(bench_row *row) {
  const struct crossing *x = row->crossing;
  fit_ratios ratios[GRID_MAX];
  fit_interval speedups[GRID_MAX];
  fit_crossing found;
  int64_t rounds = 0;
  for (int i = 0; i < x->count; i++) rounds += x->variant[i]->count;
  double *room = calloc((size_t)rounds + 1, sizeof *room);
  if (!room) return attn_fail(ATTN_ENOMEM, "no memory for the crossover of a row");
  fill_ratios(x, room, ratios);
  const attn_status status = fit_cross(ratios, (size_t)x->count, &found, speedups);
  if (!status) show_crossing(x, &found, row);
  free(room);
  return status;
}

void bench_crossover(bench *b) {
  static const int64_t lengths[] = {128, 256, 512, 1024, 2048, 4096, 8192};
  size_t count, contenders = 0;
  const int64_t *n = bench_list(&b->options.n, lengths, b->options.quick ? 5 : 7, &count);
  while (bench_contenders[contenders].spec) contenders++;
  struct crossing *found = calloc(contenders, sizeof *found);
  if (!found && !b->status) b->status = attn_fail(ATTN_ENOMEM, "no memory for crossovers");
  for (size_t i = 0; !b->status && i < count && i < GRID_MAX; i++) {
    bench_set *set = bench_set_add(b, bench_peak(b, NULL, 0, ATTN_PEAK_F32));
    const attn_problem dense = bench_problem(HEADS, n[i], WIDTH, false),
                       causal = bench_problem(HEADS, n[i], WIDTH, true);
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
  for (size_t c = 0; !b->status && c < contenders; c++) {
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
