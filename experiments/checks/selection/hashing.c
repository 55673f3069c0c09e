/* hashing.c - LSH-1: keys fall into a query's bucket as often as the law of the hash says.
 *
 * A pair of a query and a key is put into one bucket by one of the hashes with a probability that depends
 * on their angle alone (mathematics/collision.h). Pairs in planes that are orthogonal to one another meet
 * independent parts of the normal vectors, whatever the planes are; those of plans with other seeds meet
 * others. So their meetings are independent, and their number at an angle is binomial. Three angles, at
 * which a quarter, a half and three quarters of the pairs should meet. */
#include "experiments/checks/check_table.h"

#include "experiments/mathematics/collision.h"
#include "experiments/mathematics/statistics.h"
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>

enum { ANGLES = 3, PAIRS = 1536, SEEDS_MAX = 128, SEED_STEP = 7919, FILL = 64, PURPOSE = 0x1541 };
static const double work = 0x1p24; /* numbers that are drawn */
/* By how much a probability may be off: the law's sums, and vectors of fp32 whose two largest products are
 * as good as equal. */
static const double known = 1e-3;

typedef struct hash_case {
  const evidence *e;
  attn_problem p; /* query and key a < pairs belong together; further keys, which are always taken */
  int64_t pairs, seeds;
  double angle[ANGLES];
  int64_t met[ANGLES], all[ANGLES];
  double *basis; /* [d][d] */
  void *q, *k;
  int64_t *rows, *counts;
  attn_run *runs; /* [pairs][max_runs] */
} hash_case;

/* Random orthogonal vectors of length 1. */
static void turn(double *basis, int64_t d, uint64_t seed) {
  attn_rng rng;
  attn_rng_init(&rng, seed, PURPOSE, 0);
  for (int64_t i = 0; i < d; i++) {
    double *own = basis + i * d;
    for (int64_t l = 0; l < d; l++) own[l] = attn_rng_normal(&rng);
    for (int twice = 0; twice < 2; twice++)
      for (int64_t other = 0; other < i; other++) {
        const double along = vector_dot(own, basis + other * d, d);
        for (int64_t l = 0; l < d; l++) own[l] -= along * basis[other * d + l];
      }
    const double length = vector_norm(own, d);
    for (int64_t l = 0; l < d; l++) own[l] /= length;
  }
}

/* Query and key of pair a lie in a plane of their own, at an angle; their lengths, 2 and 1/2, must not
 * matter. */
static void place(hash_case *c, int64_t a, double angle) {
  const int64_t d = c->p.d_qk;
  const double *one = c->basis + 2 * a * d, *other = one + d;
  for (int64_t l = 0; l < d; l++) {
    attn_set(c->q, a * d + l, c->p.dtype, 2 * one[l]);
    attn_set(c->k, a * d + l, c->p.dtype, (cos(angle) * one[l] + sin(angle) * other[l]) / 2);
  }
}

static attn_status make(const evidence *e, hash_case *c) {
  const attn_selector *x = e->view->selector;
  const int64_t d = e->problem->d_qk;
  *c = (hash_case){.e = e, .p = attn_problem_make(1, 1, d / 2, d), .pairs = d / 2};
  c->p.d_v = 1;
  c->p.n_kv = c->pairs + FILL;
  c->p.dtype = e->problem->dtype;
  c->p.causal = e->problem->causal;
  c->seeds = (int64_t)fmin(fmin(ceil(PAIRS / (double)c->pairs), SEEDS_MAX),
                           fmax(work / (double)(x->hashes * x->buckets / 2 * d), 1));
  for (int i = 0; i < ANGLES; i++) c->angle[i] = collision_angle((i + 1) / 4.0, x->buckets, x->hashes);
  const size_t size = attn_dtype_size(c->p.dtype);
  c->basis = region_take(e->memory, d * d, sizeof *c->basis);
  c->q = region_zeros(e->memory, c->pairs * d, size);
  c->k = region_zeros(e->memory, c->p.n_kv * d, size);
  c->rows = region_take(e->memory, c->pairs, sizeof *c->rows);
  c->counts = region_take(e->memory, c->pairs, sizeof *c->counts);
  if (region_status(e->memory, "for the hashes of a selector")) return ATTN_ENOMEM;
  for (int64_t a = 0; a < c->pairs; a++) c->rows[a] = a;
  turn(c->basis, d, e->seed);
  return ATTN_OK;
}

static bool meets(const hash_case *c, const attn_selector *x, int64_t a) {
  const attn_run *runs = c->runs + a * x->max_runs;
  for (int64_t r = 0; r < c->counts[a]; r++)
    if (runs[r].first <= a && a < runs[r].first + runs[r].count) return true;
  return false;
}

/* Counts the pairs that meet under a plan. Values are not read: keys stand in for them. */
static attn_status count(hash_case *c, const attn_plan *plan, const attn_selector *x, int64_t turned) {
  const attn_selector *own = c->e->view->selector;
  const attn_row_set all = {.count = c->pairs, .rows = c->rows};
  const attn_call call = {.context = attn_plan_context(plan), .q = c->q, .k = c->k, .v = c->k};
  if (!x || x->hashes != own->hashes || x->buckets != own->buckets)
    return attn_fail(ATTN_EUNSUPPORTED, "%s: the law of its hashes depends on the problem",
                     attn_plan_spec(plan));
  free(c->runs);
  c->runs = malloc((size_t)(c->pairs * x->max_runs) * sizeof *c->runs);
  if (!c->runs) return attn_fail(ATTN_ENOMEM, "no memory for the keys of a selector");
  for (int64_t a = 0; a < c->pairs; a++) place(c, a, c->angle[(a + turned) % ANGLES]);
  attn_picks picks = {.max_runs = x->max_runs, .runs = c->runs, .counts = c->counts};
  const attn_status status =
      attn_plan_select(plan, &(attn_tensors){.q = c->q, .k = c->k, .v = c->k}, &all, &picks);
  for (int64_t a = 0; a < c->pairs && !status; a++) {
    const attn_query query = {.call = &call, .i = a};
    if (x->always && x->always(x->state, &query, a)) continue;
    c->all[(a + turned) % ANGLES]++;
    c->met[(a + turned) % ANGLES] += meets(c, x, a);
  }
  return status;
}

static attn_status count_seed(hash_case *c, int64_t turned) {
  attn_plan *plan = NULL;
  attn_view view;
  attn_status status =
      evidence_seeded_plan(c->e, &c->p, evidence_seed(c->e) + turned * SEED_STEP, 0, &plan, &view);
  if (!status) status = count(c, plan, view.selector, turned);
  attn_plan_destroy(plan);
  return status;
}

static void judge(const hash_case *c, result_bound *bound) {
  const attn_selector *x = c->e->view->selector;
  double least = 1, met = 0, due = 0, all = 0;
  for (int i = 0; i < ANGLES; i++) {
    const double p = collision_any(c->angle[i], x->buckets, x->hashes);
    met += (double)c->met[i];
    due += p * (double)c->all[i];
    all += (double)c->all[i];
    least = fmin(least, hits_p_value(c->met[i], c->all[i], fmax(p - known, 0), fmin(p + known, 1)));
  }
  bound_prob(bound, met / all, due / all, fmin(1, ANGLES * least));
  bound_say(bound, "%.0f pairs at %.2f, %.2f and %.2f rad, %lld seeds", all, c->angle[0], c->angle[1],
            c->angle[2], (long long)c->seeds);
}

static attn_status evaluate(const evidence *e, result_bound *bound) {
  hash_case c;
  if (e->problem->d_qk < 2) return bound_not_applicable(bound, "of one component all angles are 0 or pi");
  if (!e->view->seed)
    return bound_not_applicable(bound, "the variant names no seed: there are no other draws");
  attn_status status = make(e, &c);
  for (int64_t s = 0; s < c.seeds && !status; s++) status = count_seed(&c, s);
  if (status == ATTN_EUNSUPPORTED || status == ATTN_EINVAL) /* a file that a term names has other sizes */
    status = bound_uncertifiable(bound, attn_last_error());
  else if (!status && !(c.all[0] && c.all[1] && c.all[2]))
    status = bound_not_applicable(bound, "every key near a query is always taken");
  else if (!status)
    judge(&c, bound);
  free(c.runs);
  return status;
}

const check check_lsh1 = {
    .name = "LSH-1",
    .of = &of_hashes,
    .kind = KIND_PROB,
    .statement =
        "keys fall into a query's bucket as often as independent hashes by normal vectors put them there",
    .source =
        "derived: symmetry of normal vectors; the hash of Andoni et al. 2015 as Kitaev et al. 2020 take it",
    .formula =
        "b = 2 r buckets, a hash: which of r independent normal vectors and their negatives has the largest "
        "product. For q and k at an angle with cosine rho, P = 2 r E[1(X > 0, Y > 0) F(X, Y)^(r-1)], X and Y "
        "normal of correlation rho, F(x, y) = P(|X'| < x, |Y'| < y); r = 1: 1 - angle/pi, r = 2: (1 - "
        "angle/pi)^2. One of T hashes: 1 - (1 - P)^T. measured: the share of pairs that meet, value: the one "
        "expected; p: three times the least two-sided binomial p-value at the angles where 1/4, 1/2 and 3/4 "
        "are expected to meet (as near as 0.3 ... pi - 0.3 rad allow).",
    .assumes = "The selector states its hashes and buckets (attn_selector.hashes), and names its seed. Pairs "
               "lie in planes orthogonal to one another, in random directions, so that they are independent; "
               "seeds of the run and every 7919 more. Power: of 512 pairs an angle, 12 points of a hundred "
               "are a violation in a single cell, 2 points are not seen. That hashes of different heads are "
               "the same, or apart, is not asked.",
    .cause = "the hashes of a call share their vectors, the negatives are left out, or draws do not depend "
             "on the seed",
    .nulls = CHECK_BLIND("it judges what is selected, on separate pairs of vectors, and looks at no output"),
    .evaluate = evaluate,
};
