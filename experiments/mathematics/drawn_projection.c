/* drawn_projection.c - tests of random projections.
 *
 * Sums of products over pairs of entries, no entry in two of them: given the first of each pair, sum x y /
 * |x| is N(0, 1) for normal entries, and (pairs + sum) / 2 is binomial for signs, exactly. Entries that lie L
 * apart are paired where floor(j / L) is even, so that a draw that repeats shows at its period. Of a
 * transform's rows, drawn without replacement, the number with a property is hypergeometric; m rows in the
 * same slots of two independent matrices have probability C(k, m) (N-m)! / N! at most (the mean number of
 * such m-tuples). */
#include "experiments/mathematics/drawn_projection.h"

#include "experiments/mathematics/vector.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4 /* whose columns are compared at every distance */, LEVELS = 4096 };

static bool is_transform(attn_projection_law law) {
  return law == ATTN_PROJECTION_SRHT || law == ATTN_PROJECTION_DCT;
}

int64_t drawn_order(attn_projection_law law, int64_t n) {
  int64_t order = 1;
  if (law == ATTN_PROJECTION_DCT) return n;
  while (order < n) order *= 2;
  return law == ATTN_PROJECTION_SRHT ? order : 0;
}

/* -- exact parts -- */

static double transform_entry(attn_projection_law law, int64_t n, int64_t row, int64_t column) {
  if (law == ATTN_PROJECTION_DCT)
    return row ? sqrt(2) * cos(acos(-1) * (double)row * (2 * (double)column + 1) / (2 * (double)n)) : 1;
  bool odd = false;
  for (int64_t bits = row & column; bits; bits &= bits - 1) odd = !odd;
  return odd ? -1 : 1;
}

static double sign_of(double x) { return x < 0 ? -1 : 1; }

static void walsh_read(drawn_matrix *m) {
  for (int64_t j = 0; j < m->n; j++) m->sign[j] = sign_of(m->e[j]);
  for (int64_t s = 0; s < m->k; s++) {
    const double *row = m->e + s * m->n;
    m->place[s] = 0;
    for (int64_t bit = 1; bit < m->n; bit *= 2)
      if (sign_of(row[0]) * sign_of(row[bit]) * m->sign[0] * m->sign[bit] < 0) m->place[s] |= bit;
  }
}

static void cosine_read(drawn_matrix *m) {
  double *largest = m->sign; /* of the entries of T in the column so far; then their sign */
  for (int64_t s = 0; s < m->k; s++) {
    const double *row = m->e + s * m->n;
    double flat = 0;
    for (int64_t j = 0; j < m->n; j++) flat = fmax(flat, fabs(fabs(row[j]) - 1));
    double angle = acos(fmin(1, fabs(row[0]) / sqrt(2))) / acos(-1);
    m->place[s] = flat < 1e-6 ? 0 : (int64_t)fmin((double)m->n - 1, fmax(1, round(2 * (double)m->n * angle)));
  }
  for (int64_t j = 0; j < m->n; j++) {
    double most = 0, sign = 1;
    for (int64_t s = 0; s < m->k; s++) {
      double t = transform_entry(ATTN_PROJECTION_DCT, m->n, m->place[s], j);
      if (fabs(t) <= most) continue;
      most = fabs(t);
      sign = sign_of(t) * sign_of(m->e[s * m->n + j]);
    }
    largest[j] = sign;
  }
}

static int compare_places(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static bool repeated(const drawn_matrix *m) {
  bool twice = false;
  int64_t *sorted = malloc((size_t)m->k * sizeof *sorted);
  if (!sorted) return false;
  memcpy(sorted, m->place, (size_t)m->k * sizeof *sorted);
  qsort(sorted, (size_t)m->k, sizeof *sorted, compare_places);
  for (int64_t s = 1; s < m->k; s++) twice = twice || sorted[s] == sorted[s - 1];
  free(sorted);
  return twice;
}

double drawn_deviation(attn_projection_law law, drawn_matrix *m) {
  double worst = 0;
  if (law == ATTN_PROJECTION_SRHT) walsh_read(m);
  if (law == ATTN_PROJECTION_DCT) cosine_read(m);
  for (int64_t s = 0; s < m->k; s++)
    for (int64_t j = 0; j < m->n; j++) {
      double x = m->e[s * m->n + j], off = 0;
      if (law == ATTN_PROJECTION_RADEMACHER) off = fabs(fabs(x) - 1);
      if (is_transform(law)) off = fabs(x - m->sign[j] * transform_entry(law, m->n, m->place[s], j));
      if (!(off <= worst)) worst = off;
    }
  return is_transform(law) && repeated(m) ? fmax(2, worst) : worst;
}

/* -- sums of products -- */

typedef struct products {
  double sum, square;
  int64_t count;
} products;

static void add_products(products *p, const double *x, const double *y, int64_t count, bool normal) {
  p->sum += vector_dot_fast(x, y, count);
  if (normal) p->square += vector_dot_fast(x, x, count);
  p->count += count;
}

/* x normal, or signs */
static double products_p(const products *p, bool normal) {
  if (isnan(p->sum)) return 0;
  if (normal) return p->square > 0 ? fmin(1, 2 * gsl_cdf_ugaussian_Q(fabs(p->sum) / sqrt(p->square))) : 1;
  return p->count > 0 ? hits_p_value((p->count + (int64_t)lround(p->sum)) / 2, p->count, 0.5, 0.5) : 1;
}

static void columns_apart(const double *x, int64_t rows, int64_t n, bool normal, surprise *out) {
  for (int64_t lag = 1; lag < n; lag++) {
    products p = {0, 0, 0};
    for (int64_t s = 0; s < rows; s++)
      for (int64_t j = 0; j + lag < n; j += 2 * lag) {
        int64_t count = lag < n - j - lag ? lag : n - j - lag;
        add_products(&p, x + s * n + j, x + s * n + j + lag, count, normal);
      }
    surprise_add(out, products_p(&p, normal));
  }
}

static void shifted(const double *x, const double *y, int64_t rows, int64_t n, int64_t shift, bool normal,
                    surprise *out) {
  products p = {0, 0, 0};
  int64_t size = n - (shift < 0 ? -shift : shift);
  for (int64_t s = 0; s < rows; s++)
    add_products(&p, x + s * n + (shift < 0 ? -shift : 0), y + s * n + (shift > 0 ? shift : 0), size, normal);
  surprise_add(out, products_p(&p, normal));
}

/* -- one matrix -- */

static void dense_alone(const drawn_matrix *m, bool normal, surprise *out) {
  int64_t size = m->k * m->n, count = size < LEVELS ? size : LEVELS;
  const double *x = m->e;
  double level[LEVELS];
  if (normal) {
    for (int64_t i = 0; i < count; i++) level[i] = gsl_cdf_ugaussian_P(x[i * (size / count)]);
    surprise_add(out, dkw_p_value(level, count));
  }
  for (int64_t lag = 1; lag < m->k; lag *= 2) {
    products p = {0, 0, 0};
    for (int64_t s = 0; s + lag < m->k; s++)
      if (s / lag % 2 == 0) add_products(&p, x + s * m->n, x + (s + lag) * m->n, m->n, normal);
    surprise_add(out, products_p(&p, normal));
  }
  columns_apart(x, m->k < SLOTS ? m->k : SLOTS, m->n, normal, out);
}

void drawn_alone(attn_projection_law law, const drawn_matrix *m, surprise *out) {
  if (!is_transform(law)) {
    dense_alone(m, law == ATTN_PROJECTION_GAUSSIAN, out);
    return;
  }
  columns_apart(m->sign, 1, m->n, false, out);
}

/* -- two matrices -- */

/* The mean number of m-tuples of slots with the same rows. */
static double matches_p(int64_t matches, int64_t slots, int64_t population) {
  double k = (double)slots, n = (double)population, m = (double)matches;
  if (matches == 0) return 1;
  return fmin(1, exp(lgamma(k + 1) - lgamma(m + 1) - lgamma(k - m + 1) + lgamma(n - m + 1) - lgamma(n + 1)));
}

/* Signs that are known up to a row of the Walsh-Hadamard transform: the best of all of them, fast. */
static double walsh_signs_p(const drawn_matrix *a, const drawn_matrix *b, int64_t order) {
  double *x = calloc((size_t)order, sizeof *x), most = 0;
  if (!x) return 1;
  for (int64_t j = 0; j < a->n; j++) x[j] = a->sign[j] * b->sign[j];
  for (int64_t half = 1; half < order; half *= 2)
    for (int64_t i = 0; i < order; i++)
      if (!(i & half)) {
        double sum = x[i] + x[i + half];
        x[i + half] = x[i] - x[i + half];
        x[i] = sum;
      }
  for (int64_t i = 0; i < order; i++) most = fmax(most, fabs(x[i]));
  free(x);
  products p = {most, 0, a->n};
  return fmin(1, (double)order * products_p(&p, false));
}

void drawn_apart(attn_projection_law law, const drawn_matrix *a, const drawn_matrix *b, bool all,
                 surprise *out) {
  int64_t n = a->n, order = drawn_order(law, n), most = all ? n / 2 : 0;
  bool normal = law == ATTN_PROJECTION_GAUSSIAN;
  if (is_transform(law)) {
    int64_t first = law == ATTN_PROJECTION_SRHT, matches = 0;
    for (int64_t s = first; s < a->k; s++) matches += a->place[s] == b->place[s];
    surprise_add(out, matches_p(matches, a->k - first, order - first));
  }
  if (law == ATTN_PROJECTION_SRHT) {
    surprise_add(out, walsh_signs_p(a, b, order));
    return;
  }
  const double *x = is_transform(law) ? a->sign : a->e, *y = is_transform(law) ? b->sign : b->e;
  int64_t rows = is_transform(law) ? 1 : a->k < SLOTS ? a->k : SLOTS;
  for (int64_t shift = -most; shift <= most; shift++) shifted(x, y, rows, n, shift, normal, out);
}

/* -- rows of transforms -- */

static double hypergeometric_p(int64_t hits, int64_t with, int64_t without, int64_t drawn) {
  unsigned k = (unsigned)hits, w = (unsigned)with, o = (unsigned)without, t = (unsigned)drawn;
  double below = gsl_cdf_hypergeometric_P(k, w, o, t);
  double above = k > 0 ? gsl_cdf_hypergeometric_Q(k - 1, w, o, t) : 1;
  return two_sided(below, above);
}

/* Property `bit` of a row: a bit of its number (so that no row of a set apart can be left out), or, of a DCT,
 * that it is odd, or beyond 1, 2, ... quarters. */
static bool has(attn_projection_law law, int64_t order, int64_t place, int bit) {
  if (law == ATTN_PROJECTION_SRHT) return place >> bit & 1;
  return bit == 0 ? place % 2 == 1 : place >= bit * order / 4;
}

static void places(attn_projection_law law, const drawn_matrix *m, int64_t count, surprise *out) {
  int64_t order = drawn_order(law, m->n), first = law == ATTN_PROJECTION_SRHT, slots = m->k - first;
  int64_t ascents = 0, pairs = 0;
  int bits = law == ATTN_PROJECTION_SRHT ? 0 : 4;
  if (!is_transform(law) || slots < 1) return;
  while (law == ATTN_PROJECTION_SRHT && INT64_C(1) << bits < order) bits++;
  for (int bit = 0; bit < bits; bit++) {
    int64_t with = 0;
    double sum = 0, tail = 0, term;
    for (int64_t place = first; place < order; place++) with += has(law, order, place, bit);
    for (int64_t i = 0; i < count; i++) {
      int64_t hits = 0;
      for (int64_t s = first; s < m->k; s++) hits += has(law, order, m[i].place[s], bit);
      sum -= log(hypergeometric_p(hits, with, order - first - with, slots));
    }
    term = -sum; /* Fisher: P(chi^2_2count >= 2 sum) */
    for (int64_t i = 0; i < count; i++) {
      tail += exp(term);
      term += log(sum / (double)(i + 1));
    }
    surprise_add(out, sum < (double)INFINITY ? fmin(1, tail) : 0);
  }
  for (int64_t i = 0; i < count; i++)
    for (int64_t s = first; s + 1 < m->k; s += 2, pairs++) ascents += m[i].place[s] < m[i].place[s + 1];
  if (pairs > 0) surprise_add(out, hits_p_value(ascents, pairs, 0.5, 0.5));
}

/* The sum and the sum of squares of all entries, or of all signs. */
void drawn_together(attn_projection_law law, const drawn_matrix *m, int64_t count, surprise *out) {
  bool normal = law == ATTN_PROJECTION_GAUSSIAN;
  products all = {0, 0, 0};
  double squares = 0;
  for (int64_t i = 0; i < count; i++) {
    const double *x = is_transform(law) ? m[i].sign : m[i].e;
    int64_t size = is_transform(law) ? m[i].n : m[i].k * m[i].n;
    for (int64_t j = 0; j < size; j++) all.sum += x[j];
    squares += vector_dot_fast(x, x, size);
    all.count += size;
  }
  all.square = (double)all.count; /* of weights 1 */
  surprise_add(out, products_p(&all, normal));
  if (normal) {
    double n = (double)all.count, below = gsl_cdf_chisq_P(squares, n), above = gsl_cdf_chisq_Q(squares, n);
    surprise_add(out, two_sided(below, above));
  }
  places(law, m, count, out);
}

/* -- draws -- */

void drawn_sample(attn_projection_law law, int64_t k, int64_t n, attn_rng *rng, double *e) {
  int64_t order = drawn_order(law, n), size = is_transform(law) ? order + n : 1;
  double root = sqrt((double)k);
  int64_t *place = malloc((size_t)size * sizeof *place), *sign = place + order;
  for (int64_t j = 0; place && j < n && is_transform(law); j++) sign[j] = attn_rng_bits(rng) & 1 ? 1 : -1;
  for (int64_t i = 0; place && i < order && is_transform(law); i++) place[i] = i;
  for (int64_t s = 0; s < k; s++) {
    if (place && is_transform(law)) {
      int64_t at = s + attn_rng_below(rng, order - s), other = place[s];
      place[s] = place[at];
      place[at] = other;
    }
    for (int64_t j = 0; j < n; j++) {
      double x = (double)NAN;
      if (law == ATTN_PROJECTION_GAUSSIAN) x = attn_rng_normal(rng);
      if (law == ATTN_PROJECTION_RADEMACHER) x = attn_rng_bits(rng) & 1 ? 1 : -1;
      if (place && is_transform(law)) x = (double)sign[j] * transform_entry(law, n, place[s], j);
      e[s * n + j] = x / root;
    }
  }
  free(place);
}
