/* theory_run.c - running statements, judging their figures, and what statements are written with. */
#include "experiments/theory/theory.h"

#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "experiments/mathematics/vector.h"

#define THEORY(name) &theory_##name,
const theory *const theories[] = {
#include "experiments/theory/theory.def"
    NULL};

const char *const theory_relations[] = {"", "=", "<=", ">="};

attn_status theory_run(const theory *t, uint64_t seed, theory_report *r) {
  void *room = calloc(1, t->room);
  if (!room) return attn_fail(ATTN_ENOMEM, "no memory for %s", t->name);
  *r = (theory_report){.count = 0};
  attn_rng_init(&r->rng, seed, UINT64_C(0x7468656f7279), 0);
  t->measure(r, room);
  free(room);
  return r->status;
}

bool theory_figure_holds(const theory_figure *f) {
  const double said = f->figure.said, least = f->figure.low - f->tolerance,
               most = f->figure.high + f->tolerance;
  switch (f->relation) {
  case THEORY_EQUAL:
    return f->breaks ? said < least || said > most : least <= said && said <= most;
  case THEORY_AT_MOST:
    return f->breaks ? least > said : f->figure.high <= said + f->tolerance;
  case THEORY_AT_LEAST:
    return f->breaks ? most < said : f->figure.low >= said - f->tolerance;
  default:
    return true;
  }
}

const char *theory_figure_verdict(const theory_figure *f) {
  if (f->relation == THEORY_SHOWN) return "";
  if (theory_figure_holds(f)) return f->breaks ? "fails, as it must" : "holds";
  return f->breaks ? "is kept without its assumption" : "does not hold";
}

bool theory_holds(const theory_report *r) {
  int i = 0;
  while (i < r->count && theory_figure_holds(&r->figures[i])) i++;
  return i == r->count;
}

claim_figure *theory_promise(theory_report *r, bool breaks, theory_relation relation, double promised,
                             double tolerance, const char *what, ...) {
  theory_figure *f = &r->figures[r->count < THEORY_FIGURES ? r->count++ : THEORY_FIGURES - 1];
  va_list arguments;
  *f = (theory_figure){.figure = {.level = THEORY_LEVEL, .said = promised},
                       .relation = relation,
                       .tolerance = tolerance,
                       .breaks = breaks,
                       .x = (double)NAN};
  va_start(arguments, what);
  vsnprintf(f->figure.what, sizeof f->figure.what, what, arguments);
  va_end(arguments);
  return &f->figure;
}

claim_figure *theory_point(theory_report *r, const char *curve, double x) {
  claim_figure *f = theory_show(r, "%s", curve);
  r->figures[r->count - 1].curve = curve;
  r->figures[r->count - 1].x = x;
  return f;
}

void theory_normals(theory_report *r, int64_t count, double deviation, double *x) {
  for (int64_t i = 0; i < count; i++) x[i] = deviation * attn_rng_normal(&r->rng);
}

void theory_directions(theory_report *r, int64_t count, int64_t d, double mean, double *x) {
  theory_normals(r, count * d, 1, x);
  for (int64_t i = 0; i < count; i++) {
    for (int64_t l = 0; l < d; l++) x[i * d + l] += mean;
    const double norm = vector_norm(x + i * d, d);
    for (int64_t l = 0; l < d; l++) x[i * d + l] /= norm;
  }
}

attn_problem theory_problem(int64_t n_q, int64_t n_kv, int64_t d_qk, int64_t d_v, double scale) {
  attn_problem p = attn_problem_make(1, 1, n_kv, d_qk);
  p.n_q = n_q;
  p.d_v = d_v;
  p.dtype = ATTN_F64;
  p.scale = scale;
  return p;
}

void theory_attend(theory_report *r, const attn_problem *p, const char *spec, const attn_tensors *tensors) {
  attn_plan *plan = NULL;
  attn_tensors t = *tensors;
  if (r->status) return;
  r->status = attn_plan_create(&plan, p, spec, NULL);
  if (!r->status && !(t.work = malloc(attn_plan_work_size(plan) + 1)))
    r->status = attn_fail(ATTN_ENOMEM, "no memory for the work of %s", spec);
  if (!r->status) r->status = attn_plan_run(plan, &t);
  free(t.work);
  attn_plan_destroy(plan);
}

void theory_weights(theory_report *r, attn_problem p, const double *q, const double *k, double *unit,
                    double *weights) {
  for (int64_t j = 0; j < p.n_kv * p.n_kv; j++) unit[j] = j % (p.n_kv + 1) == 0;
  p.d_v = p.n_kv;
  theory_attend(r, &p, "full", &(attn_tensors){.q = q, .k = k, .v = unit, .o = weights});
}

/* With u = 2^-53: a score errs by (d + 2) u size, its distance from the maximum by 2 u size more, and the
 * exponential by 4 u of itself, so each weight by e = (d + 4) u size + 4 u of itself; a quotient of two sums
 * of n such weights by 2 (e + n u) largest. Of two evaluations twice that; terms of u^2 are below a
 * hundredth. */
double theory_rounding(int64_t n, int64_t d, double size, double largest) {
  return 1.01 * 4 * (DBL_EPSILON / 2) * ((double)(d + 4) * size + 4 + (double)n) * largest;
}

double theory_larger(double a, double b) { return b <= a || isnan(a) ? a : b; }

double theory_largest(const double *x, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) largest = theory_larger(largest, fabs(x[i]));
  return largest;
}

double theory_distance(const double *a, const double *b, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) largest = theory_larger(largest, fabs(a[i] - b[i]));
  return largest;
}

double theory_score_size(int64_t n_q, int64_t n_kv, int64_t d, double scale, const double *q,
                         const double *k) {
  double largest = 0;
  for (int64_t i = 0; i < n_q; i++)
    for (int64_t j = 0; j < n_kv; j++) {
      double sum = 0;
      for (int64_t l = 0; l < d; l++) sum += fabs(q[i * d + l] * k[j * d + l]);
      largest = theory_larger(largest, fabs(scale) * sum);
    }
  return largest;
}
