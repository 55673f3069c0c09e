/* ranking.c - the best of many scores, offered in stretches of ascending columns (ranking.h).
 *
 * A bisection finds a bar that at least as many scores exceed as are kept, and few more: passes of
 * comparisons without a branch. So the first stretch is sifted, later the candidates whenever their room is
 * full, and to the exact number at the end. Candidates stay in order, so that of equal scores the lower
 * columns are those that come first. */
#include "core/engines/softmax/ranking.h"

#include <math.h>

/* Scores above high are fewer than were asked for, those above low are `above`, as many or more. If none was
 * found with as few as were wanted, scores above low that are not above high equal it. */
typedef struct bar {
  double low, high;
  int64_t above;
} bar;

static double halfway(double low, double high, attn_dtype t) { return attn_rounded(low / 2 + high / 2, t); }

typedef struct extent {
  double least, most; /* -Inf apart */
} extent;

static extent extent_of(const void *x, int64_t count, attn_dtype t) {
  extent e = {(double)INFINITY, -(double)INFINITY};
  for (int64_t i = 0; i < count; i++) {
    const double own = attn_get(x, i, t);
    e.most = own > e.most ? own : e.most;
    e.least = own < e.least && own > -(double)INFINITY ? own : e.least;
  }
  return e;
}

/* kept ... most of x are to be above the bar. guess: where to begin, from below. */
static bar find_bar(const attn_kernels *k, const void *x, int64_t count, int64_t kept, int64_t most,
                    double guess) {
  const double limit = attn_numbers[k->dtype].largest;
  const extent e = extent_of(x, count, k->dtype);
  bar b = {-(double)INFINITY, e.most, k->count_above(count, x, -(double)INFINITY)};
  if (b.above < kept) return (bar){b.low, b.low, b.above};
  if (isinf(b.high)) b.high = k->count_above(count, x, limit) < kept ? limit : b.high;
  if (b.above <= most || isinf(b.high)) return isinf(b.high) ? (bar){limit, b.high, count} : b;
  const double least = fmin(e.least, limit);
  for (double at = fmax(guess, least);;) {
    const int64_t found = k->count_above(count, x, at);
    if (found >= kept) {
      b.low = at;
      b.above = found;
      if (found <= most) return b;
    } else
      b.high = at;
    const double low = fmax(b.low, least);
    at = halfway(low, b.high, k->dtype);
    if (at < b.high && at > low) continue;
    /* Nothing lies between. Below the least score there is no bar to look for. */
    if (b.low >= least || b.high <= least) break;
    at = least;
  }
  return b;
}

/* Leaves what is above the bar, and of what equals it the first `equal`. */
static void leave(attn_ranking *r, double least, int64_t equal) {
  r->count = r->kernels->leave(r->count, r->scores, r->columns, least, equal);
  r->least = least;
}

static void sift(attn_ranking *r, int64_t most) {
  const attn_kernels *k = r->kernels;
  if (r->count <= most) return;
  const bar b = find_bar(k, r->scores, r->count, r->kept, most, r->least);
  if (b.above >= r->kept && b.above <= most)
    leave(r, b.low, 0);
  else
    leave(r, b.high, r->kept - k->count_above(r->count, r->scores, b.high));
}

void attn_ranking_select_top(attn_ranking *r) { sift(r, r->kept); }

/* Takes those of columns first, first + 1, ... whose bits are set. */
static void gather(attn_ranking *r, const void *x, int64_t first, uint64_t bits) {
  const attn_dtype t = r->kernels->dtype;
  for (; bits; bits &= bits - 1, r->count++) {
    const int64_t i = __builtin_ctzll(bits);
    const double own = attn_get(x, i, t);
    attn_set(r->scores, r->count, t, isnan(own) ? -(double)INFINITY : own);
    r->columns[r->count] = (int32_t)(first + i);
  }
}

void attn_ranking_offer(attn_ranking *r, const void *x, int64_t first, int64_t count) {
  enum { STRIDE = 64 };
  const attn_kernels *k = r->kernels;
  if (!r->kept || (r->count >= r->kept && isinf(r->least) && r->least > 0)) return;
  if (!r->count && count > 2 * r->kept) {
    const bar b = find_bar(k, x, count, r->kept, r->kept + r->kept / 4, r->least);
    if (b.above >= r->kept) r->least = b.low;
  }
  /* `least` lies above all scores that no longer matter, or is -Inf: then all are candidates, those of -Inf
   * and NaN, too. */
  const bool all = isinf(r->least) && r->least < 0;
  for (int64_t i = 0; i < count; i += STRIDE) {
    const int64_t part = attn_min(STRIDE, count - i);
    const void *at = attn_at(x, i, k->dtype);
    gather(r, at, first + i, all ? UINT64_MAX >> (STRIDE - part) : k->above(part, at, r->least));
  }
  if (r->count >= 2 * r->kept) sift(r, r->kept + r->kept / 4);
}

/* Bisects the bar above which the softmax has the mass. */
void attn_ranking_select_mass(attn_ranking *r, double mass, double *weights) {
  const attn_dtype t = r->kernels->dtype;
  const double high = extent_of(r->scores, r->count, t).most;
  double all = 0, low = (double)INFINITY;
  if (!isfinite(high)) return;
  for (int64_t i = 0; i < r->count; i++) {
    const double own = attn_get(r->scores, i, t);
    weights[i] = exp(own - high);
    all += weights[i];
    if (weights[i] > 0) low = fmin(low, own);
  }
  double most = high, missing = mass * all; /* above `most` lies less than the mass */
  low = nextafter(low, -(double)INFINITY);
  for (double at = halfway(low, most, ATTN_F64); at > low && at < most; at = halfway(low, most, ATTN_F64)) {
    double above = 0;
    for (int64_t i = 0; i < r->count; i++) above += attn_get(r->scores, i, t) > at ? weights[i] : 0;
    if (above >= mass * all)
      low = at;
    else
      most = at;
  }
  int64_t equal = 0;
  for (int64_t i = 0; i < r->count; i++) missing -= attn_get(r->scores, i, t) > most ? weights[i] : 0;
  for (int64_t i = 0; i < r->count && missing > 0; i++)
    if (attn_get(r->scores, i, t) >= most && !(attn_get(r->scores, i, t) > most)) {
      missing -= weights[i];
      equal++;
    }
  leave(r, most, equal);
}
