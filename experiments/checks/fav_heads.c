/* fav_heads.c - FAV-10: kv heads draw together or apart as the law says, and each query head has the draw of
 * its own kv head.
 *
 * The variant runs in fp64, with all its heads, on the first tokens of the run; each output is compared with
 * the quadratic form of features by definition (feature_maps.h) of the vectors that the map shows for its kv
 * head. Zeros, the mean of V and random keys in place of the variant are rejected wherever they are not
 * that. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/feature_draws.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/feature_maps.h"
#include "experiments/mathematics/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 24, ROWS = 4, BATCHES = 2, HEADS = 8 };
static const double unit = 0x1p-53, pair_work = 0x1p25;

typedef struct heads_case {
  probe small; /* plan, problem, view and kv_head alone */
  feature_law law;
  double *q, *k, *v, *o; /* contiguous, of the small problem */
  void *work;
  draws w[HEADS]; /* of the first kv heads */
  int64_t drawn;
  /* Features of the keys of a head and of one query, with their errors; [TOKENS, columns] and [columns]. */
  double *key, *key_error, *query, *query_error, *x, *f;
  double key_scale[TOKENS];
  outcome worst;
  int64_t rows; /* judged */
} heads_case;

/* The first `count` of the `size` numbers of each (batch, head). */
static double *gather(region *memory, const void *from, attn_dtype type, int64_t lines, int64_t size,
                      int64_t count) {
  double *out = region_take(memory, lines * count, sizeof *out);
  for (int64_t line = 0; line < lines && out; line++)
    row_widen(from, type, line * size, count, out + line * count);
  return out;
}

static attn_status case_make(const evidence *e, heads_case *c) {
  const attn_problem *from = e->problem;
  attn_problem *to = &c->small.problem;
  *to = *from;
  to->dtype = ATTN_F64;
  to->q = to->k = to->v = to->o = (attn_stride){0};
  int64_t n = from->n_q < from->n_kv ? from->n_q : from->n_kv;
  if (to->batch > BATCHES) to->batch = BATCHES;
  for (int64_t b = 0; b < to->batch && e->kv_len; b++) n = e->kv_len[b] < n ? e->kv_len[b] : n;
  if (n > TOKENS) n = TOKENS;
  if (n < 1) return attn_fail(ATTN_EUNSUPPORTED, "a batch entry has no keys");
  to->n_q = to->n_kv = n;
  const attn_status status = evidence_plan(e, to, NULL, 0, &c->small.plan, &c->small.view);
  if (status) return status;
  if (feature_law_of(c->small.view.features, from->d_qk, &c->law) ||
      c->law.m != e->view->features->law.vectors)
    return attn_fail(ATTN_EUNSUPPORTED, "with fewer keys the features have another law");
  const int64_t columns = c->small.view.features->columns;
  const int64_t lines = to->batch * to->heads, kv_lines = to->batch * to->kv_heads, keys = from->n_kv;
  c->q = gather(e->memory, e->q, from->dtype, lines, from->n_q * to->d_qk, n * to->d_qk);
  c->k = gather(e->memory, e->k, from->dtype, kv_lines, keys * to->d_qk, n * to->d_qk);
  c->v = gather(e->memory, e->v, from->dtype, kv_lines, keys * to->d_v, n * to->d_v);
  c->o = region_zeros(e->memory, lines * n * to->d_v, sizeof *c->o);
  c->work = region_take(e->memory, 1, attn_plan_work_size(c->small.plan) + 1);
  c->key = region_take(e->memory, 2 * TOKENS * columns, sizeof *c->key);
  c->query = region_take(e->memory, 3 * columns, sizeof *c->query);
  c->x = region_take(e->memory, to->d_qk, sizeof *c->x);
  if (region_status(e->memory, "for the heads of a run")) return ATTN_ENOMEM;
  c->key_error = c->key + TOKENS * columns;
  c->query_error = c->query + columns;
  c->f = c->query_error + columns;
  return attn_plan_execute(c->small.plan, c->q, c->k, c->v, NULL, c->o, c->work);
}

/* Features of a row by definition, relative to the scale that the map gives it. */
static bool features_of(heads_case *c, int64_t g, attn_side side, const double *row, double *f, double *error,
                        double *scale) {
  const attn_feature_map *map = c->small.view.features;
  int64_t d = c->law.d;
  map->map(map->state, attn_plan_context(c->small.plan), &(attn_feature_rows){g, side, row, d, 0, 1}, c->f,
           map->columns, scale);
  for (int64_t l = 0; l < d; l++) c->x[l] = sqrt(c->small.problem.scale) * row[l];
  return isfinite(*scale) && features_fill(&c->law, c->w[g].w, c->x, *scale, f, error);
}

/* Row i of a query head, against the quadratic form of features over the keys that it sees; probe_bound.c
 * derives the bound, to which the errors of features are added. */
static void judge_row(heads_case *c, int64_t g, const double *q, const double *v, int64_t i,
                      const double *o) {
  const attn_problem *p = &c->small.problem;
  int64_t columns = c->small.view.features->columns, keys = p->causal ? i + 1 : p->n_kv;
  double eps = c->small.view.features->eps, top = -(double)INFINITY, scale, sum = 0, off = 0;
  double weight[TOKENS], error[TOKENS];
  if (!features_of(c, g, ATTN_QUERY, q, c->query, c->query_error, &scale)) return;
  for (int64_t j = 0; j < keys; j++) top = fmax(top, c->key_scale[j]);
  for (int64_t j = 0; j < keys; j++) {
    const double *k = c->key + j * columns, *k_error = c->key_error + j * columns;
    double factor = exp(c->key_scale[j] - top), size = 0, wrong = 0;
    double growth = gamma_of(2 * TOKENS + columns + 64, unit) + 2 * unit * (top - c->key_scale[j] + 1);
    weight[j] = 0;
    for (int64_t t = 0; t < columns; t++) {
      double a = c->query[t] + eps, b = factor * k[t] + eps;
      weight[j] += a * b;
      size += fabs(a * b);
      wrong += c->query_error[t] * (fabs(b) + factor * k_error[t]) + fabs(a) * factor * k_error[t];
    }
    error[j] = 2 * (wrong + growth * (size + wrong));
    sum += weight[j];
    off += error[j];
  }
  if (!(fabs(sum) > 4 * off) || !isfinite(sum)) return;
  for (int64_t i_v = 0; i_v < keys * p->d_v; i_v++)
    if (!isfinite(v[i_v])) return;
  for (int64_t l = 0; l < p->d_v; l++) {
    double want = 0, bound = 0;
    for (int64_t j = 0; j < keys; j++) want += weight[j] / sum * v[j * p->d_v + l];
    for (int64_t j = 0; j < keys; j++)
      bound += error[j] * (fabs(v[j * p->d_v + l]) + fabs(want)) / (fabs(sum) - off);
    outcome_worsen(&c->worst, (outcome){fabs(o[l] - want), bound, NULL});
  }
  c->rows++;
}

/* The query heads of a kv head, some rows of each. */
static void judge_group(heads_case *c, int64_t b, int64_t g) {
  const attn_problem *p = &c->small.problem;
  int64_t columns = c->small.view.features->columns, n = p->n_kv, group = p->heads / p->kv_heads;
  const double *k = c->k + (b * p->kv_heads + g) * n * p->d_qk,
               *v = c->v + (b * p->kv_heads + g) * n * p->d_v;
  for (int64_t j = 0; j < n; j++)
    if (!features_of(c, g, ATTN_KEY, k + j * p->d_qk, c->key + j * columns, c->key_error + j * columns,
                     &c->key_scale[j]))
      return;
  for (int64_t h = b * p->heads + g * group; h < b * p->heads + (g + 1) * group; h++)
    for (int64_t r = 0; r < ROWS && r < n; r++) {
      int64_t i = n - 1 - r * n / ROWS;
      judge_row(c, g, c->q + (h * n + i) * p->d_qk, v, i, c->o + (h * n + i) * p->d_v);
    }
}

/* Draws of kv heads: to the bit the same, or not. */
static bool heads_alike(const heads_case *c) {
  size_t bytes = (size_t)(c->law.m * c->law.d) * sizeof(double);
  for (int64_t g = 1; g < c->drawn; g++)
    if (memcmp(c->w[0].w, c->w[g].w, bytes)) return false;
  return true;
}

/* p of the largest |cos| between vectors of different heads; 0 if two heads have the same draw. */
static attn_status apart_p_value(const heads_case *c, double *p_value, double *largest) {
  int64_t m = c->law.m, d = c->law.d;
  double *all = malloc((size_t)(c->drawn * m * d) * sizeof *all);
  if (!all) return attn_fail(ATTN_ENOMEM, "no memory for the draws of heads");
  for (int64_t g = 0; g < c->drawn; g++) memcpy(all + g * m * d, c->w[g].w, (size_t)(m * d) * sizeof *all);
  *largest = 0;
  *p_value = directions_p_value(all, c->drawn * m, d, m, pair_work, largest);
  free(all);
  bool signs = d == 1 && c->law.constant; /* two heads of a few signs may be alike by chance */
  for (int64_t g = 1; g < c->drawn && !signs; g++)
    for (int64_t h = 0; h < g; h++)
      if (!memcmp(c->w[g].w, c->w[h].w, (size_t)(m * d) * sizeof *all)) *p_value = 0;
  return ATTN_OK;
}

static attn_status heads_judge(const heads_case *c, result_bound *bound) {
  attn_draws law = c->small.view.features->law.heads;
  bool alike = heads_alike(c);
  double p_value = 1, largest = 1;
  if (c->rows == 0)
    return bound_uncertifiable(
        bound, "no row of finite values whose normaliser and features stand clear of their rounding");
  outcome_to_verdict(&c->worst, bound);
  if (bound->verdict != VERDICT_PASS) {
    bound_say(bound, "an output is not that of its kv head's draw");
  } else if (c->drawn > 1 && law == ATTN_DRAWS_SHARED && !alike) {
    bound_hard(bound, 1, 0);
    bound_say(bound, "kv heads have different draws, shared ones are declared");
  } else if (c->drawn > 1 && (law == ATTN_DRAWS_APART || !alike)) {
    attn_status status = apart_p_value(c, &p_value, &largest);
    if (status) return status;
    bound_prob(bound, bound->measured, bound->value, p_value);
    bound_say(bound, "vectors of different kv heads: |cos| up to %.6g", largest);
  }
  return ATTN_OK;
}

static attn_status heads_evaluate(const evidence *e, result_bound *bound) {
  heads_case c = {.rows = 0};
  feature_law law;
  const char *why = feature_law_of(e->view->features, e->problem->d_qk, &law);
  if (!why && law.kind == ATTN_FEATURES_OTHER) why = "random vectors cannot be read off these features";
  if (why) return bound_not_applicable(bound, why);
  attn_status status = case_make(e, &c);
  for (int64_t g = 0; g < c.small.problem.kv_heads && g < HEADS && !status; g++) {
    c.small.kv_head = g;
    c.w[g] = (draws){.m = law.m, .d = law.d};
    status = draws_read(&c.small, &law, &c.w[g]);
    c.drawn++;
  }
  for (int64_t b = 0; b < c.small.problem.batch && !status; b++)
    for (int64_t g = 0; g < c.drawn; g++) judge_group(&c, b, g);
  if (!status) status = heads_judge(&c, bound);
  if (status == ATTN_EUNSUPPORTED) status = bound_uncertifiable(bound, attn_last_error());
  for (int64_t g = 0; g < c.drawn; g++) free(c.w[g].w);
  attn_plan_destroy(c.small.plan);
  return status;
}

const check check_fav10 = {
    .name = "FAV-10",
    .of = &of_random_features,
    .kind = KIND_HARD,
    .statement = "kv heads draw together or apart as declared, and every query head has its kv head's draw",
    .source =
        "definition of the features and of grouped heads; directions of independent vectors are uniform",
    .formula =
        "HARD: |o - sum_j W_j v_j / sum_j W_j| <= rounding, W_j = sum_r (f_r(q) + eps)(e^(c_j - M) f_r(k_j) "
        "+ eps), features by definition (FAV-9) of the vectors that the map shows for the kv head of the "
        "query head; shared draws are the same bits. PROB: vectors of kv heads that draw apart have |cos| "
        "> c with probability P(Beta(1/2, (d-1)/2) > c^2), at the largest, times the pairs; 0 for heads of "
        "one draw. Draws of which the law says nothing are either.",
    .assumes =
        "Vectors can be read off the feature map. In fp64, with all heads, on the first 24 tokens of up to 2 "
        "batch entries of the run; up to 8 kv heads, 4 rows of each query head.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 0.7, 16 features"),
    .evaluate = heads_evaluate,
};
