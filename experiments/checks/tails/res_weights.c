/* res_weights.c - RES-1 and RES-2: weights of a head of exact keys and of features for the others, one key at
 * a time.
 *
 * Values that are 1 in one component for one key, and 0 else, make outputs of weights. What they should be
 * follows from the scores and from the map's own features: A_j of the head's keys, A^_j of the others, over
 * the sum of both. The engine has sums of A^ over all keys, less those of the head: how much of them is left
 * says how far rounding may take a row. Zeros, the mean of V and random keys are no such weights. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/probe.h"
#include "experiments/evidence/rows.h"
#include "experiments/reference/exact_residual.h"
#include "experiments/reference/visible.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 6, BLOCK = 96 };
static const uint64_t purpose_keys = 0x726573; /* "res" */

/* Row by row, in units of e^top of each. */
typedef struct weights {
  const probe *p;
  const attn_feature_map *map;
  int64_t count, rows[ROWS];
  double *exact, *kernel, *size; /* [ROWS][n_kv] A_j, A^_j, sum of its magnitudes */
  double *score, *length;        /* [ROWS][n_kv] scale sum |q_l k_jl|; bound of A^_j's size by norms */
  bool *head;                    /* [ROWS][n_kv] */
  int64_t seen[ROWS];
  double unit;
} weights;

static attn_status weights_room(region *memory, weights *w) {
  const int64_t n = ROWS * w->p->problem.n_kv;
  w->exact = region_zeros(memory, 5 * n, sizeof *w->exact);
  w->head = region_zeros(memory, n, sizeof *w->head);
  if (region_status(memory, "for the weights of a probe")) return ATTN_ENOMEM;
  w->kernel = w->exact + n;
  w->size = w->kernel + n;
  w->score = w->size + n;
  w->length = w->score + n;
  return ATTN_OK;
}

/* Maps rows of the probe into f [rows, columns] and scale, widened. */
static void map_rows(const weights *w, attn_side side, int64_t first, int64_t rows, void *raw, double *f,
                     double *scale) {
  const attn_problem *x = &w->p->problem;
  const int64_t row = attn_padded(w->map->columns, x->dtype),
                position = side == ATTN_QUERY ? attn_problem_position(x, first) : first;
  w->map->map(w->map->state, attn_plan_context(w->p->plan),
              &(attn_feature_rows){w->p->kv_head, side,
                                   attn_at(side == ATTN_QUERY ? w->p->q : w->p->k, first * x->d_qk, x->dtype),
                                   x->d_qk, position, rows},
              raw, row, scale);
  for (int64_t i = 0; i < rows; i++)
    row_widen(raw, x->dtype, i * row, w->map->columns, f + i * w->map->columns);
}

/* Of the picked rows, and of a block of keys. */
typedef struct features {
  double *query, *key, query_scale[ROWS], *key_scale;
  void *raw;
} features;

/* Products with keys first ..., scores in place of A_j, and by which exponent a product is multiplied. */
static void add_keys(weights *w, const features *f, int64_t first, int64_t rows, double *exponent) {
  const attn_problem *x = &w->p->problem;
  const int64_t m = w->map->columns;
  for (int64_t r = 0; r < w->count; r++) {
    const double *q = f->query + r * m;
    double q_norm = 0;
    for (int64_t c = 0; c < m; c++) q_norm += q[c] * q[c];
    for (int64_t j = first; j < first + rows && j < w->seen[r]; j++) {
      const double *k = f->key + (j - first) * m, *a = w->p->head.k + j * x->d_qk;
      const int64_t at = r * x->n_kv + j;
      double score = 0, norm = 0;
      for (int64_t c = 0; c < m; c++) {
        w->kernel[at] += q[c] * k[c];
        w->size[at] += fabs(q[c] * k[c]);
        norm += k[c] * k[c];
      }
      w->length[at] = sqrt(q_norm * norm);
      for (int64_t l = 0; l < x->d_qk; l++) {
        const double t = x->scale * attn_get(w->p->q, w->rows[r] * x->d_qk + l, x->dtype) * a[l];
        score += t;
        w->score[at] += fabs(t);
      }
      w->exact[at] = score;
      exponent[at] = f->query_scale[r] + f->key_scale[j - first] + log(residual_gain(w->map));
    }
  }
}

static void settle_row(weights *w, int64_t r, const double *exponent) {
  const int64_t at = r * w->p->problem.n_kv, end = at + w->seen[r];
  double top = -(double)INFINITY;
  for (int64_t j = at; j < end; j++)
    top = fmax(top, fmax(exponent[j], w->head[j] ? w->exact[j] : exponent[j]));
  for (int64_t j = at; j < end; j++) {
    const double factor = exp(exponent[j] - top);
    w->kernel[j] *= factor;
    w->size[j] *= factor;
    w->length[j] *= factor;
    w->exact[j] = w->head[j] ? exp(w->exact[j] - top) : 0;
  }
}

static attn_status weights_fill(region *memory, weights *w) {
  const attn_problem *x = &w->p->problem;
  const attn_residual *of = w->p->view.residual;
  const int64_t m = w->map->columns;
  const size_t row = (size_t)attn_padded(m, x->dtype) * attn_dtype_size(x->dtype);
  features f = {.query = region_take(memory, ROWS * m, sizeof *f.query),
                .key = region_take(memory, BLOCK * m, sizeof *f.key),
                .key_scale = region_zeros(memory, BLOCK, sizeof *f.key_scale),
                .raw = aligned_alloc(64, BLOCK * ((row + 63) / 64 * 64))};
  double *exponent = region_zeros(memory, ROWS * x->n_kv, sizeof *exponent);
  attn_run *runs = region_take(memory, residual_runs(of), sizeof *runs);
  attn_status status = f.raw ? region_status(memory, "for the features of a probe")
                             : attn_fail(ATTN_ENOMEM, "no memory for the features of a probe");
  const residual_run run = {w->p->plan, of, w->p->q, w->p->k, w->p->v, w->p->e.kv_len};
  for (int64_t r = 0; r < w->count && !status; r++) {
    w->seen[r] = visible_keys(x, w->rows[r], w->p->head.keys);
    map_rows(w, ATTN_QUERY, w->rows[r], 1, f.raw, f.query + r * m, &f.query_scale[r]);
    status = residual_mark(&run, &(sample_row){0, w->p->own_head, w->rows[r]}, runs, w->head + r * x->n_kv);
  }
  for (int64_t j = 0; j < w->p->head.keys && !status; j += BLOCK) {
    const int64_t rows = w->p->head.keys - j < BLOCK ? w->p->head.keys - j : BLOCK;
    map_rows(w, ATTN_KEY, j, rows, f.raw, f.key, f.key_scale);
    add_keys(w, &f, j, rows, exponent);
  }
  for (int64_t r = 0; r < w->count && !status; r++) settle_row(w, r, exponent);
  free(f.raw);
  return status;
}

static attn_status weights_make(const evidence *e, weights *w) {
  probe *p;
  *w = (weights){.p = NULL};
  attn_status status = probe_get(e, &p);
  if (status) return status;
  w->p = p;
  w->map = p->view.residual->features;
  w->unit = attn_numbers[p->problem.dtype].unit;
  w->count = probe_pick(p, ROWS, w->rows);
  status = weights_room(e->memory, w);
  return status ? status : weights_fill(e->memory, w);
}

/* -- what a row should be, and how far it may be off -- */

typedef struct sums {
  double all, taken, exact, rest; /* sum of magnitudes, of the head's; sum_H A; sum of A^ over the others */
  double whole, off;              /* the denominator; how far it may be off */
  double score, chain;            /* relative errors: of A, and of a sum */
  bool joined;                    /* has the head a key? */
  bool lost, below;               /* rounding may have made it; it is below 0 for certain */
} sums;

static sums sums_of(const weights *w, int64_t r) {
  const attn_problem *x = &w->p->problem;
  const int64_t at = r * x->n_kv, end = at + w->seen[r], n = x->n_kv;
  const double tiny = attn_numbers[x->dtype].normal * (double)(w->map->columns + 2);
  sums s = {.chain = gamma_of((n < 4096 ? n : 4096) + n / 64 + w->map->columns + 256, w->unit)};
  double largest = 0, lengths = 0;
  for (int64_t j = at; j < end; j++) {
    s.all += w->size[j];
    lengths += w->length[j];
    if (w->head[j]) {
      s.joined = true;
      s.taken += w->size[j];
      s.exact += w->exact[j];
      largest = fmax(largest, w->score[j]);
    } else {
      s.rest += w->kernel[j];
    }
  }
  s.score = w->unit * ((double)(x->d_qk + 8) * (largest + 1) + 16) + s.chain;
  s.whole = s.exact + s.rest;
  s.off = s.score * s.exact + s.chain * (s.exact + s.all + s.taken) + (double)n * tiny;
  /* The engine bounds magnitudes that may be of either sign by norms. */
  const double room = s.off + s.chain * 2 * (w->map->law.kind == ATTN_FEATURES_POSITIVE ? 0 : lengths);
  s.lost = !(s.whole > 3 * room) || !isfinite(s.whole);
  s.below = s.joined && s.whole < -3 * room; /* else the row is the features' own, of either sign */
  return s;
}

/* `count` keys of row r, half of them of the head; -1 where there are no more. The first is the one of the
 * others that has the largest weight. */
static void pick_keys(const weights *w, int64_t r, int64_t count, int64_t *keys) {
  const int64_t at = r * w->p->problem.n_kv;
  int64_t best = -1, next = 1;
  attn_rng rng;
  attn_rng_init(&rng, w->p->e.seed, purpose_keys, (uint64_t)r);
  for (int64_t l = 0; l < count; l++) keys[l] = -1;
  for (int64_t j = 0; j < w->seen[r]; j++)
    if (!w->head[at + j] && (best < 0 || w->kernel[at + j] > w->kernel[at + best])) best = j;
  keys[0] = best;
  for (int half = 0; half < 2; half++) {
    const int64_t end = half ? count : (count + 2) / 2;
    int64_t left = 0;
    for (int64_t j = 0; j < w->seen[r]; j++) left += w->head[at + j] == !half && j != best;
    /* Each of those that are left with the same chance. */
    for (int64_t j = 0; j < w->seen[r] && next < end; j++) {
      if (w->head[at + j] != !half || j == best) continue;
      if (attn_rng_below(&rng, left--) < end - next) keys[next++] = j;
    }
  }
}

static const char cancelled[] =
    "the features of the head's keys are all but what the sums have: rounding is what is left";

/* Some keys of a row, and their weights by the algorithm. */
typedef struct told {
  int64_t row, count;
  const int64_t *keys;
  const double *o;
} told;

/* RES-1 of a row. */
static outcome judge_weights(const weights *w, const sums *s, const told *t) {
  outcome worst = OUTCOME_NONE;
  if (s->lost) return (outcome){.why = cancelled};
  for (int64_t l = 0; l < t->count; l++) {
    if (t->keys[l] < 0) continue;
    const int64_t at = t->row * w->p->problem.n_kv + t->keys[l];
    const bool head = w->head[at];
    const double weight = head ? w->exact[at] : w->kernel[at],
                 off = head ? (s->score + s->chain) * weight + 2 * s->chain * w->size[at]
                            : s->chain * w->size[at],
                 bound = (off + fabs(weight / s->whole) * s->off + s->off * w->unit) / (s->whole - s->off);
    outcome_worsen(&worst, (outcome){.measured = fabs(t->o[l] - weight / s->whole), .value = bound});
  }
  return worst;
}

/* RES-2 of a row: the sum of the others, as the weight of one of them tells it, if that is far from
 * underflow. */
static outcome judge_rest(const weights *w, const sums *s, const told *t) {
  const int64_t at = t->row * w->p->problem.n_kv + t->keys[0];
  const double least = sqrt(attn_numbers[w->p->problem.dtype].normal);
  if (t->keys[0] < 0) return (outcome)OUTCOME_NONE;
  if (s->below) return (outcome){.measured = isnan(t->o[0]) ? 0 : 1, .value = 0.5};
  if (s->lost) return (outcome){.why = cancelled};
  if (!(w->kernel[at] > least * s->whole))
    return (outcome){.why = "the keys that the head has not weigh nothing"};
  return (outcome){.measured = fabs(w->kernel[at] / t->o[0] - s->exact - s->rest),
                   .value = 2 * s->off + 2 * s->chain * w->size[at] / w->kernel[at] * s->whole};
}

typedef outcome (*row_judge)(const weights *, const sums *, const told *);

/* Several rows share an execution, each with some components of V. */
static attn_status judge_rows(region *memory, const weights *w, row_judge judge, outcome *worst,
                              double *share) {
  const attn_problem *x = &w->p->problem;
  const int64_t d = x->d_v, each = d < 4 ? d : d / w->count < 4 ? 4 : d / w->count, rows = d / each;
  double *v = region_take(memory, x->n_kv * d, sizeof *v), *o = region_take(memory, x->n_q * d, sizeof *o);
  int64_t *keys = region_take(memory, d, sizeof *keys);
  attn_status status = region_status(memory, "for values of a probe");
  for (int64_t first = 0; first < w->count && !status; first += rows) {
    const int64_t end = first + rows < w->count ? first + rows : w->count;
    memset(v, 0, (size_t)(x->n_kv * d) * sizeof *v);
    for (int64_t r = first; r < end; r++) {
      pick_keys(w, r, each, keys + (r - first) * each);
      for (int64_t l = (r - first) * each; l < (r - first + 1) * each; l++)
        if (keys[l] >= 0) v[keys[l] * d + l] = 1;
    }
    status = probe_execute(w->p, w->p->head.k, v, o);
    for (int64_t r = first; r < end && !status; r++) {
      const sums s = sums_of(w, r);
      const told t = {r, each, keys + (r - first) * each, o + w->rows[r] * d + (r - first) * each};
      if (!w->seen[r]) continue;
      outcome_worsen(worst, judge(w, &s, &t));
      if (s.rest > 0) *share = fmax(*share, s.all / s.rest);
    }
  }
  return status;
}

static attn_status evaluate(const evidence *e, row_judge judge, result_bound *bound, double *share) {
  weights w;
  outcome worst = OUTCOME_NONE;
  attn_status status = weights_make(e, &w);
  if (!status) status = judge_rows(e->memory, &w, judge, &worst, share);
  return status ? status : outcome_to_verdict(&worst, bound);
}

static attn_status weights_evaluate(const evidence *e, result_bound *bound) {
  double share = 0;
  return evaluate(e, judge_weights, bound, &share);
}

static attn_status rest_evaluate(const evidence *e, result_bound *bound) {
  double share = 0;
  attn_status status = evaluate(e, judge_rest, bound, &share);
  if (!status && bound->verdict == VERDICT_PASS && share > 0)
    bound_say(bound, "the features of all keys add up to %.4g times those of the keys that the head has not",
              share);
  return status;
}

const check check_res1 = {
    .name = "RES-1",
    .of = &of_residuals,
    .kind = KIND_HARD,
    .statement = "the weight of a key of the head follows from its score, of any other key from its "
                 "features, both over one sum",
    .source = "derived from the sum of Chen et al. 2021, ScatterBrain (arXiv:2110.15343)",
    .formula = "V = 1 in one component for one key: |o^ - w_j| <= (err_j + w_j err_D) / (D - err_D) with D = "
               "sum_H A_j + sum_R A^_j, w_j = A_j / D on the head H, A^_j / D on the rest R, A_j = "
               "exp(score), A^_j = phi(q).phi(k_j) over the number of vectors; err_D = e A + gamma (A + sum "
               "A^ + sum_H A^), err_j = (e + gamma) A_j + 2 gamma A^_j on H, gamma A^_j on R; gamma of as "
               "many roundings as the sums have, e of a score's. Up to 6 rows of a probe.",
    .assumes = "D is not lost: D > 3 err_D. Such rows are NaN.",
    .cause = "the features of the head's keys are left in the sums, or taken out twice, of another draw, or "
             "in units of another maximum; the two sides have different scales",
    .nulls = CHECK_REJECTS_ALL("window 8 of 96 keys, 64 features, Gaussian inputs of std 0.5"),
    .evaluate = weights_evaluate,
};

const check check_res2 = {
    .name = "RES-2",
    .of = &of_residuals,
    .kind = KIND_HARD,
    .statement = "what is left of the features' sum is that of the keys which the head has not, to within "
                 "rounding, and no number where it is below 0",
    .source = "derived: rounding of sums (Higham 2002, ch. 3 and 4)",
    .formula =
        "|(A^_j / o^_j - sum_H A) - sum_R A^| <= 2 err_D + 2 gamma D, j the key of the rest of the largest "
        "A^_j, o^_j its weight, the others as in RES-1; NaN where the head has a key and sum_H A + sum_R A^ "
        "< -3 err_D. Passing cells say sum A^ / sum_R A^, by which rounding is enlarged.",
    .assumes = "As RES-1.",
    .cause =
        "a denominator that is negative or lost is clamped; the sums are not of the keys that the query sees",
    .nulls = CHECK_REJECTS_ALL("window 8 of 96 keys, 64 features, Gaussian inputs of std 0.5"),
    .evaluate = rest_evaluate,
};
