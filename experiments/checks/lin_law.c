/* lin_law.c - LIN-7: the draws of a projection follow the law that its descriptor names.
 *
 * Matrices of the run's seed and of others that follow each other elsewhere (runs of other seeds look at
 * other draws, so that their p-values are independent), of two kv heads and both sides where these are said
 * to draw for themselves (that they are alike where they are said to share is LIN-6). What the law makes
 * exact must be so; what it draws is tested in mathematics/drawn_projection.h. Of independent entries: three
 * seeds on 651 keys, several slices, whose 10^5 entries show a size that is 1 % off. Of rows of transforms:
 * twelve seeds on 81 keys, no power of two and odd. The few tests of sizes and rows and the many of pairs of
 * columns have half of the level each. */
#include "experiments/checks/check_table.h"

#include "experiments/checks/lin_matrix.h"
#include "experiments/mathematics/drawn_projection.h"
#include "experiments/mathematics/sketch.h"

#include <math.h>
#include <stdlib.h>

enum {
  HEADS = 2,
  SEEDS = 3,
  KEYS = 651,
  ROW_SEEDS = 12,
  ROW_KEYS = 81,
  MATRICES_MAX = ROW_SEEDS * HEADS * 2,
  PURPOSE = 0x117
};
static const int64_t numbers_max = INT64_C(1) << 24;
static const double rounded = 0x1p-20; /* entries are given in fp32, and transforms rounded */

typedef struct family {
  int64_t count, heads, sides;
  drawn_matrix matrix[MATRICES_MAX];
} family;

static attn_status matrix_read(region *memory, const projector *p, int64_t head, attn_side side, int64_t n,
                               family *f) {
  int64_t k = p->view.projection->slots, used = 0;
  drawn_matrix *m = &f->matrix[f->count++];
  *m = (drawn_matrix){.k = k,
                      .n = n,
                      .e = region_take(memory, k * n, sizeof(double)),
                      .place = region_zeros(memory, k, sizeof(int64_t)),
                      .sign = region_zeros(memory, n, sizeof(double))};
  if (region_status(memory, "for the matrix of a projection")) return ATTN_ENOMEM;
  attn_status status = projector_read(p, head, side, n, m->e, &used);
  if (!status && used != k)
    status = attn_fail(ATTN_EFOREIGN, "a random projection uses %lld of its %lld slots", (long long)used,
                       (long long)k);
  for (int64_t i = 0; i < k * n && !status; i++) m->e[i] *= sqrt((double)k);
  return status;
}

static attn_status family_read(const evidence *e, int64_t n, int64_t seeds, family *f) {
  const char *name = e->view->seed;
  int64_t own = name ? evidence_seed(e) : 0, other;
  attn_rng rng;
  attn_rng_init(&rng, (uint64_t)own, PURPOSE, 0);
  other = attn_rng_below(&rng, INT64_C(900000000000000));
  attn_problem x = *e->problem;
  x.batch = x.n_q = 1;
  x.heads = x.kv_heads = HEADS;
  x.n_kv = n;
  attn_status status = ATTN_OK;
  for (int64_t t = 0; t < seeds && !status; t++) {
    attn_spec *spec = NULL;
    projector p = {.plan = NULL};
    if (t) status = attn_spec_with_seed(attn_plan_parsed_spec(e->plan), name, other + t, &spec);
    if (!status) status = projector_make(e, spec, &x, &p);
    const attn_projection *of = p.view.projection;
    if (!status && (of->slots != e->view->projection->slots || of->law != e->view->projection->law))
      status = attn_fail(ATTN_EFOREIGN, "the law of the projection depends on its length or seed");
    for (int64_t h = 0; h < f->heads && !status; h++)
      for (int64_t side = 0; side < f->sides && !status; side++)
        status = matrix_read(e->memory, &p, h, side ? ATTN_VALUE : ATTN_KEY, n, f);
    projector_free(&p);
    attn_spec_destroy(spec);
  }
  return status;
}

static attn_status family_judge(attn_projection_law law, family *f, result_bound *bound) {
  surprise sizes = {0}, pairs = {0};
  double deviation = 0, squares = 0;
  for (int64_t i = 0; i < f->count; i++) {
    drawn_matrix *m = &f->matrix[i];
    deviation = fmax(deviation, drawn_deviation(law, m));
    for (int64_t j = 0; j < m->k * m->n; j++) squares += m->e[j] * m->e[j] / (double)(m->k * m->n);
  }
  if (!(deviation <= rounded)) {
    bound_say(bound, "an entry, times the root of k, is off what its law makes exact");
    return bound_hard(bound, deviation, rounded);
  }
  for (int64_t i = 0; i < f->count; i++) {
    drawn_alone(law, &f->matrix[i], &pairs);
    for (int64_t j = 0; j < i; j++) {
      int64_t each = f->heads * f->sides;
      drawn_apart(law, &f->matrix[i], &f->matrix[j], i / each == j / each, &pairs);
    }
  }
  drawn_together(law, f->matrix, f->count, &sizes);
  return bound_prob(bound, squares / (double)f->count, 1, BONFERRONI(surprise_p(&sizes), surprise_p(&pairs)));
}

static attn_status law_evaluate(const evidence *e, result_bound *bound) {
  const attn_projection *of = e->view->projection;
  const char *why = sketch_missing(of);
  if (why) return bound_not_applicable(bound, why);
  family f = {.heads = of->per_head ? HEADS : 1, .sides = of->shared ? 1 : 2};
  bool rows = drawn_order(of->law, 2) > 0;
  int64_t n = rows ? ROW_KEYS : KEYS;
  if (n < of->slots + of->slots / 4) n = (of->slots + of->slots / 4) | 1;
  int64_t each = of->slots > numbers_max / n ? numbers_max + 1 : of->slots * n * f.heads * f.sides;
  int64_t seeds = e->view->seed ? numbers_max / each : numbers_max / each > 0;
  if (seeds > (rows ? ROW_SEEDS : SEEDS)) seeds = rows ? ROW_SEEDS : SEEDS;
  if (seeds == 0) return bound_uncertifiable(bound, "more than 2^24 entries of the matrices");
  attn_status status = family_read(e, n, seeds, &f);
  return status ? status : family_judge(of->law, &f, bound);
}

const check check_lin7 = {
    .name = "LIN-7",
    .of = &of_projections,
    .kind = KIND_PROB,
    .statement =
        "the entries of E and F are drawn by the law that the variant names, independently of each other",
    .source =
        "exact tests: normal and binomial sums of products, chi-square, hypergeometric counts; Massart 1990",
    .formula =
        "Of matrices times the root of k: the sum of all and, of gaussian ones, the sum of squares (chi^2) "
        "and each one's distribution (Kolmogorov and Smirnov); products of entries of slots 1, 2, 4, ... "
        "apart and of columns at every distance; of two matrices (seeds; kv heads and sides that draw for "
        "themselves) slot by slot, of one seed at every shift of columns. rademacher: magnitudes are 1. srht "
        "and dct: every entry is sign_j T_(row_s, j), rows differ, signs are fair, rows lie anywhere in the "
        "transform's order and in any order. measured: the mean square entry times k, value: 1. p = twice "
        "the number of tests of a kind times the least p-value.",
    .assumes = "A random projection whose law is known; at most 2^24 entries. A deviation from what a law "
               "makes exact violates it outright.",
    .nulls = CHECK_BLIND("the projection itself is looked at, and no output"),
    .evaluate = law_evaluate,
};
