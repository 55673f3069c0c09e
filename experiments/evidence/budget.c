/* budget.c - required sizes of variants: random features (FAV-4), projected rows (LIN-1, LIN-3), kept keys
 * (SP-2). */
#include "experiments/evidence/budget.h"

#include "experiments/evidence/cache.h"
#include "experiments/evidence/moments.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/spectrum.h"
#include "experiments/mathematics/vector.h"
#include "experiments/reference/visible.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CURVE_ROWS = 32, RANK_ROWS = 256, KEPT_ROWS = 256 };

static int64_t budget_rows(const exact_rows *x) {
  int64_t have = 0;
  while (have < x->count && x->rows[have].batch == 0 && x->rows[have].head == 0) have++;
  return have;
}

/* -- of the input alone: mass of the heaviest and of the nearest keys, singular values -- */

static attn_status curves_make(const evidence *e, budget_curves *out) {
  const exact_rows *x = e->exact;
  int64_t n = e->problem->n_kv, have = budget_rows(x), rows = have < CURVE_ROWS ? have : CURVE_ROWS;
  int64_t ranks = have < RANK_ROWS ? have : RANK_ROWS;
  const double *chosen[RANK_ROWS];
  double *sorted = malloc((size_t)n * sizeof *sorted);
  budget_curves c = {.heaviest = calloc((size_t)n, sizeof *c.heaviest),
                     .nearest = calloc((size_t)n, sizeof *c.nearest),
                     .squares = calloc(RANK_ROWS, sizeof *c.squares),
                     .ranks = e->problem->causal ? 0 : ranks};
  attn_status status = sorted && c.heaviest && c.nearest && c.squares
                           ? ATTN_OK
                           : attn_fail(ATTN_ENOMEM, "no memory for the masses of keys");
  for (int64_t r = 0; r < rows && !status; r++) {
    int64_t at = (2 * r + 1) * have / (2 * rows), position = x->rows[at].i + n - e->problem->n_q;
    memcpy(sorted, x->p + at * n, (size_t)n * sizeof *sorted);
    vector_descend(sorted, n);
    for (int64_t j = 0; j < n; j++) {
      c.heaviest[j] += sorted[j] / (double)rows;
      int64_t far = llabs(j - position);
      c.nearest[far < n ? far : n - 1] += x->p[at * n + j] / (double)rows;
    }
  }
  for (int64_t j = 1; j < n && !status; j++) {
    c.heaviest[j] += c.heaviest[j - 1];
    c.nearest[j] += c.nearest[j - 1];
  }
  for (int64_t r = 0; r < c.ranks; r++) chosen[r] = x->p + r * have / ranks * n;
  if (!status && c.ranks > 0) status = spectrum_squares(chosen, c.ranks, n, c.squares);
  if (status == ATTN_ENUMERIC) {
    c.ranks = 0;
    status = ATTN_OK;
  }
  free(sorted);
  if (!status)
    *out = c;
  else
    budget_curves_free(&c);
  return status;
}

void budget_curves_free(budget_curves *c) {
  free(c->heaviest);
  free(c->nearest);
  free(c->squares);
  *c = (budget_curves){.heaviest = NULL};
}

/* The first place where a rising curve of mass reaches the share, from 1; NaN if it never does. */
static double reach(const double *curve, int64_t n, double share) {
  for (int64_t j = 0; j < n; j++)
    if (curve[j] >= share * (1 - 1e-12)) return (double)(j + 1);
  return (double)NAN;
}

/* The least rank whose tail of squares is within error^2 of all. */
static double least_rank(const budget_curves *c, double error) {
  double total = 0, tail = 0;
  for (int64_t r = 0; r < c->ranks; r++) total += c->squares[r];
  if (!(total > 0)) return (double)NAN;
  int64_t k = c->ranks;
  while (k > 0 && tail + c->squares[k - 1] <= error * error * total) tail += c->squares[--k];
  return (double)k;
}

/* -- by kind of variant -- */

static attn_status features_budget(const evidence *e, double error, budget *out) {
  feature_law law;
  probe *p;
  const moment_entry *x;
  out->used = (double)e->view->features->columns;
  if (feature_law_of(e->view->features, e->problem->d_qk, &law)) return ATTN_OK;
  out->used = (double)law.m;
  if (!feature_law_is_favor(&law) || law.constant || e->view->features->eps > 0) return ATTN_OK;
  attn_status status = probe_get(e, &p);
  if (!status && p->head.finite) {
    status = row_moments(e, p, &law, row_moments_work, &x);
    if (status == ATTN_EUNSUPPORTED) return ATTN_OK;
    if (status) return status;
    double spread = 0, size = 0, collapse = 0;
    for (int64_t r = 0; r < x->count; r++) {
      collapse = fmax(collapse, x->rows[r].rho - 1);
      spread += fmax(x->rows[r].spread, 0);
      size += x->rows[r].square;
    }
    /* v^2 / m is the error while the normaliser is not off by as much as itself. */
    if (collapse <= out->used) out->predicted = sqrt(spread / size / out->used);
    out->needed = ceil(fmax(fmax(1, collapse), spread / size / (error * error)));
  }
  return status;
}

static attn_status projection_budget(const evidence *e, double error, budget *out) {
  probe *p;
  sketch s;
  out->used = (double)e->view->projection->slots;
  if (sketch_missing(e->view->projection)) return ATTN_OK;
  attn_status status = probe_get(e, &p);
  if (status || !p->head.finite) return status;
  if ((status = sketch_of_run(e, p, &s))) return status;
  out->predicted = sqrt(sketch_mean(&s, out->used) / s.product_norm);
  double low = 0, high = 1, goal = error * error * s.product_norm; /* the mean falls with k */
  while (sketch_mean(&s, high) > goal && high < 0x1p60) {
    low = high;
    high *= 2;
  }
  while (high - low > 1 && high < 0x1p60) {
    double k = floor((low + high) / 2);
    if (sketch_mean(&s, k) > goal)
      low = k;
    else
      high = k;
  }
  /* Separate projections leave |AB|^2 whatever k is. */
  out->needed = high < 0x1p60 ? high : (double)INFINITY;
  sketch_free(&s);
  return ATTN_OK;
}

/* Keys a row keeps, and the exact error of leaving out the others (SP-1). */
static attn_status pattern_budget(const evidence *e, double error, budget *out) {
  const exact_rows *x = e->exact;
  const attn_problem *p = e->problem;
  int64_t have = budget_rows(x), rows = have < CURVE_ROWS ? have : CURVE_ROWS, n = p->n_kv;
  double kept = 0, left = 0, off = 0, size = 0, *o = malloc((size_t)p->d_v * sizeof *o);
  attn_run *runs = malloc((size_t)visible_most_runs(e->view->pattern, p) * sizeof *runs);
  bool *inside = malloc((size_t)n);
  head_data head;
  attn_status status = o && runs && inside ? head_data_borrow(e, 0, 0, &head)
                                           : attn_fail(ATTN_ENOMEM, "no memory for the kept keys of a row");
  for (int64_t r = 0; r < rows && !status; r++) {
    int64_t at = (2 * r + 1) * have / (2 * rows), i = x->rows[at].i;
    const double *weights = x->p + at * n, *exact = x->o + at * p->d_v;
    double mass = 0;
    kept += (double)visible_mark(e->view->pattern, p, 0, 0, i, head.keys, runs, inside) / (double)rows;
    memset(o, 0, (size_t)p->d_v * sizeof *o);
    for (int64_t j = 0; j < head.keys; j++) {
      if (!inside[j]) continue;
      mass += weights[j];
      for (int64_t l = 0; l < p->d_v; l++) o[l] += weights[j] * head.v[j * p->d_v + l];
    }
    left += (1 - mass) / (double)rows;
    for (int64_t l = 0; l < p->d_v; l++) {
      double gap = (mass > 0 ? o[l] / mass : 0) - exact[l];
      off += gap * gap;
      size += exact[l] * exact[l];
    }
  }
  if (!status) {
    double half = reach(e->cache->curves.nearest, n, 1 - error) - 1;
    out->used = kept;
    out->tail = left;
    out->needed = p->causal ? half + 1 : fmin(2 * half + 1, (double)n);
    out->best = reach(e->cache->curves.heaviest, n, 1 - error);
    out->predicted = sqrt(off / size);
    head_data_return(e, &head);
  }
  free(o);
  free(runs);
  free(inside);
  return status;
}

attn_status budget_find(const evidence *e, double error, budget *out) {
  budget found = {(double)NAN, (double)NAN, (double)NAN, (double)NAN, (double)NAN};
  attn_status status = ATTN_OK;
  if (!e->cache->curves.heaviest) status = curves_make(e, &e->cache->curves);
  if (status) return status;
  if (e->problem->score.sink) {
    /* Shares of a mass that is not 1. */
  } else if (e->view->pattern) {
    status = pattern_budget(e, error, &found);
  } else if (e->view->features || e->view->projection) {
    found.best = least_rank(&e->cache->curves, error);
    status = e->view->features ? features_budget(e, error, &found) : projection_budget(e, error, &found);
  } else if (e->view->caps & ATTN_CAP_EXACT) {
    found.predicted = 0;
  }
  if (!status) *out = found;
  return status;
}

/* -- what is kept, on rows that do not hang on the variant -- */

typedef struct kept_walk {
  seen_keys seen;
  kept_keys *rows; /* [judged] of one row each; read_share: a number of keys */
  double *there;   /* [judged] keys with a weight */
} kept_walk;

static void kept_visit(void *context, int64_t r, const row_case *c) {
  const kept_walk *w = context;
  row_space *s = c->space;
  double kept = 0, best = 0, left = 0, drawn = 0, others = 0, read = 0;
  row_see(c->head, &w->seen, c->row->i, s);
  memcpy(s->slack, c->p, (size_t)c->keys * sizeof *s->slack);
  if (s->count < c->keys) vector_descend(s->slack, c->keys);
  for (int64_t a = 0; a < s->count; a++) {
    kept += c->p[s->index[a]];
    read += c->p[s->index[a]] > 0;
    best += s->slack[a];
    if (s->log_weight[a] == 0) continue;
    drawn++;
    others += exp(s->log_weight[a]);
  }
  for (int64_t j = 0; j < c->keys; j++) {
    left += s->inside[j] ? 0 : c->p[j];
    w->there[r] += c->p[j] > 0;
  }
  const double mass = c->keys ? 1 - left : 0;
  w->rows[r] = (kept_keys){.keys_mean = (double)s->count,
                           .keys_max = (double)s->count,
                           .mass_mean = mass,
                           .mass_least = mass,
                           .regret_mean = fmax(0, best - kept),
                           .read_share = read,
                           .drawn_share = drawn > 0 ? drawn / others : 1};
}

attn_status budget_kept(const evidence *e, kept_keys *out) {
  const exact_rows *x = e->exact;
  const int64_t rows = x->count < KEPT_ROWS ? x->count : KEPT_ROWS;
  kept_walk w = {.rows = calloc((size_t)x->judged + 1, sizeof *w.rows),
                 .there = calloc((size_t)x->judged + 1, sizeof *w.there)};
  bool *take = calloc((size_t)x->judged + 1, sizeof *take);
  attn_status status =
      w.rows && w.there && take ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for what rows keep");
  for (int64_t k = 0; k < rows && !status; k++) take[(2 * k + 1) * x->count / (2 * rows)] = true;
  if (!status)
    status = seen_make(&(seen_run){e->plan, e->view, evidence_tensors(e)}, x->rows, take, x->judged, &w.seen);
  if (!status) status = rows_walk(e, take, &(rows_visitor){.context = &w, .visit = kept_visit});
  kept_keys sum = {.mass_least = 1};
  double count = 0, there = 0;
  for (int64_t r = 0; r < x->count && !status; r++) {
    if (!take[r] || !isfinite(w.rows[r].mass_mean)) continue;
    count++;
    sum.keys_mean += w.rows[r].keys_mean;
    sum.keys_max = fmax(sum.keys_max, w.rows[r].keys_max);
    sum.mass_mean += w.rows[r].mass_mean;
    sum.mass_least = fmin(sum.mass_least, w.rows[r].mass_least);
    sum.regret_mean += w.rows[r].regret_mean;
    sum.drawn_share += w.rows[r].drawn_share;
    sum.read_share += w.rows[r].read_share;
    there += w.there[r];
  }
  *out = (kept_keys){.keys_mean = sum.keys_mean / count,
                     .keys_max = count > 0 ? sum.keys_max : (double)NAN,
                     .mass_mean = sum.mass_mean / count,
                     .mass_least = count > 0 ? sum.mass_least : (double)NAN,
                     .regret_mean = sum.regret_mean / count,
                     .read_share = sum.read_share / there,
                     .drawn_share = sum.drawn_share / count};
  seen_free(&w.seen);
  free(w.rows);
  free(w.there);
  free(take);
  return status;
}

static attn_status kept_columns(const evidence *e, result_row *row) {
  kept_keys kept;
  if (!e->view->pattern && !e->view->selector) return ATTN_OK;
  const attn_status status = budget_kept(e, &kept);
  row->keys_mean = kept.keys_mean;
  row->keys_max = kept.keys_max;
  row->kept_mass_mean = kept.mass_mean;
  row->regret_mean = kept.regret_mean;
  if (e->view->selector && e->view->selector->weighted) row->drawn_share = kept.drawn_share;
  return status;
}

attn_status evidence_budget(const evidence *e, result_row *row) {
  budget tenth, hundredth;
  attn_status status = budget_find(e, 0.1, &tenth);
  if (!status) status = budget_find(e, 0.01, &hundredth);
  if (status) return status;
  row->tail_mass = tenth.tail;
  row->budget_used = tenth.used;
  row->need_10pct = tenth.needed;
  row->need_1pct = hundredth.needed;
  row->best_10pct = tenth.best;
  row->best_1pct = hundredth.best;
  row->err_predicted = tenth.predicted;
  return kept_columns(e, row);
}
