/* gradient_definition.c - GRAD-FP: the gradients of a softmax over the keys that a query sees, by the
 * definition in fp64, and how far rounding may take them.
 *
 * With weights p, dp_j = d_o.v_j, D = d_o.o - dlse and ds_j = p_j (dp_j - D): dq = c sum ds_j k_j, dk_j = c
 * sum_i ds_ij q_i, dv_j = sum_i p_ij d_o_i. A weight is recomputed from a score and lse, as p e^eta, |eta|
 * at most h for the errors of both together,
 *   h_j = h'_j + L + 2 u (|s_j - lse| + h'_j + L) + u (|lse| + L),
 * h'_j that of FP-1 and L that of PROP-LSE. dp_j is off by a_j = gamma_(d_v + 1) sum |d_o_l v_jl|, D by delta
 * = sum |d_o_l| b_l + u (|D| + sum |d_o_l| b_l), b_l FP-1's bound of o. Then ds_j is off by at most
 *   E_j = p_j [(e^h (1 + u)^2 - 1) |dp_j - D| + e^h (1 + u)^2 (a_j + delta)],
 * and a sum of N terms, in any order, by gamma_(N + 4) of their magnitudes besides. Errors of lse are common
 * to a row and do not cancel: the weights no longer add up to 1. */
#include "experiments/properties/gradient_run.h"

#include "experiments/checks/variant_kind.h"
#include "experiments/evidence/stored_copies.h"
#include "experiments/evidence/support_row.h"
#include "experiments/reference/seen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What rows of a gradient should be, and how far off they may be: [rows, d]. */
typedef struct expected {
  double *at, *room;
  int64_t count;
} expected;

typedef struct definition_walk {
  const gradient_run *g;
  const attn_view *view; /* of what attends to the keys: of a store that of its reader */
  head_data head;
  row_space space;
  seen_keys seen;
  expected q, k, v; /* of a row; of the keys of a kv head */
  double *d_o;      /* of the row */
  double worst;
  const char *why; /* a row has no bound; NULL: all have */
} definition_walk;

static void expected_make(region *memory, int64_t rows, int64_t d, expected *out) {
  *out = (expected){region_zeros(memory, rows * d, sizeof(double)),
                    region_zeros(memory, rows * d, sizeof(double)), rows * d};
}

static void expected_clear(expected *x) {
  memset(x->at, 0, (size_t)x->count * sizeof *x->at);
  memset(x->room, 0, (size_t)x->count * sizeof *x->room);
}

/* Adds weight x[0 ... d - 1], which may be off by `room` |x|. */
static void add(expected *to, int64_t row, int64_t d, double weight, double room, const double *x) {
  for (int64_t l = 0; l < d; l++) {
    to->at[row * d + l] += weight * x[l];
    to->room[row * d + l] += room * fabs(x[l]);
  }
}

/* Compares rows of d elements of a gradient, the first of which is row `line` of the tensor. */
static void compare(definition_walk *w, const char *name, const char *got, int64_t line, int64_t d,
                    const expected *of, result_bound *bound) {
  for (int64_t i = 0; i < of->count; i++) {
    const double value = attn_get(got, line * d + i, w->g->in->problem.dtype), off = fabs(value - of->at[i]),
                 ratio = off == 0 ? 0 : off / of->room[i];
    if (ratio <= w->worst) continue;
    w->worst = isnan(ratio) ? (double)INFINITY : ratio;
    if (w->worst <= 1) continue;
    bound_property(bound, w->worst, 1);
    bound_say(bound, "%s, row %lld of all, component %lld is %.7g, by the definition %.7g", name,
              (long long)(line + i / d), (long long)(i % d), value, of->at[i]);
  }
}

/* The errors of a row's lse and D; its weights and their errors are in the space. */
typedef struct row_errors {
  double lse, lse_error, d, d_error;
} row_errors;

/* What key `a` of the row's support adds to the gradients. */
static void add_key(definition_walk *w, int64_t a, const row_errors *row) {
  const attn_problem *p = &w->g->in->problem;
  const row_space *s = &w->space;
  const int64_t j = s->index[a];
  const double *k = w->head.k + j * p->d_qk, *v = w->head.v + j * p->d_v, weight = s->weight[a],
               u = attn_numbers[p->dtype].unit, tiny = attn_numbers[p->dtype].normal, c = p->scale,
               keys = gamma_of(s->count + 4, u), rows = gamma_of(p->n_q * (p->heads / p->kv_heads) + 4, u);
  double dp = 0, size = 0;
  for (int64_t l = 0; l < p->d_v; l++) {
    dp += w->d_o[l] * v[l];
    size += fabs(w->d_o[l] * v[l]);
  }
  const double h = s->slack[a] + row->lse_error,
               error = h + 2 * u * (fabs(s->score[a] - row->lse) + h) + u * (fabs(row->lse) + row->lse_error),
               grown = exp(error) * (1 + u) * (1 + u), ds = weight * (dp - row->d),
               off = weight * ((grown - 1) * fabs(dp - row->d) +
                               grown * (gamma_of(p->d_v + 1, u) * size + row->d_error)) +
                     tiny * (fabs(dp - row->d) + 1);
  add(&w->q, 0, p->d_qk, c * ds, fabs(c) * (off + keys * (fabs(ds) + off)), k);
  add(&w->k, j, p->d_qk, c * ds, fabs(c) * (off + rows * (fabs(ds) + off)), s->q);
  add(&w->v, j, p->d_v, weight, weight * (grown - 1 + rows * grown) + tiny, w->d_o);
}

static row_verdict judge_row(definition_walk *w, const sample_row *row, result_bound *bound) {
  const gradient_run *g = w->g;
  const attn_problem *p = &g->in->problem;
  const double u = attn_numbers[p->dtype].unit;
  const int64_t line = (row->batch * p->heads + row->head) * p->n_q + row->i;
  row_space *s = &w->space;
  row_extremes scores;
  row_errors e = {.d = g->dlse ? -g->dlse[line] : 0};
  row_widen(g->in->q, attn_stored(p->q, p->dtype), line * p->d_qk, p->d_qk, s->q);
  row_widen(g->d_o, p->dtype, line * p->d_v, p->d_v, w->d_o);
  row_see(&w->head, &w->seen, row->i, s);
  expected_clear(&w->q);
  row_verdict verdict = row_attend(&w->head, NULL, s, &scores);
  if (verdict == ROW_OK) verdict = row_bound(&w->head, &w->view->rounding, false, NULL, s);
  if (verdict == ROW_OK)
    verdict = row_log_sum(&w->head, &w->view->rounding, &scores, s, &e.lse, &e.lse_error);
  if (verdict != ROW_OK) return verdict;
  double size = fabs(e.d);
  for (int64_t l = 0; l < p->d_v; l++) {
    e.d += w->d_o[l] * s->o[l];
    e.d_error += fabs(w->d_o[l]) * s->bound[l];
    size += fabs(w->d_o[l] * s->o[l]);
  }
  e.d_error += u * (fabs(e.d) + e.d_error) + gamma_of(p->d_v + 4, 0x1p-53) * size;
  for (int64_t a = 0; a < s->count; a++) add_key(w, a, &e);
  compare(w, "dq", g->dq, line, p->d_qk, &w->q, bound);
  return ROW_OK;
}

/* The query heads of a kv head. */
static attn_status judge_line(definition_walk *w, const evidence *e, int64_t line, result_bound *bound) {
  const attn_problem *p = e->problem;
  const int64_t group = p->heads / p->kv_heads, batch = line / p->kv_heads, kv_head = line % p->kv_heads;
  expected_clear(&w->k);
  expected_clear(&w->v);
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
    attn_status status = head_data_load(e, batch, head, &w->head);
    for (int64_t i = 0; !status && i < p->n_q && !w->why; i++) {
      const row_verdict verdict = judge_row(w, &(sample_row){batch, head, i}, bound);
      if (verdict != ROW_OK) w->why = row_reason(verdict);
    }
    head_data_free(&w->head);
    w->head = (head_data){.batch = -1};
    if (status || w->why) return status;
  }
  compare(w, "dk", w->g->dk, line * p->n_kv, p->d_qk, &w->k, bound);
  compare(w, "dv", w->g->dv, line * p->n_kv, p->d_v, &w->v, bound);
  return ATTN_OK;
}

/* Against the definition at these tensors. */
static attn_status judge_at(const trial *t, const gradient_run *g, const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const int64_t count = p->batch * p->heads * p->n_q;
  definition_walk w = {.g = g, .view = e->view, .head = {.batch = -1}};
  sample_row *rows = region_take(t->memory, count, sizeof *rows);
  w.d_o = region_take(t->memory, p->d_v, sizeof *w.d_o);
  expected_make(t->memory, 1, p->d_qk, &w.q);
  expected_make(t->memory, p->n_kv, p->d_qk, &w.k);
  expected_make(t->memory, p->n_kv, p->d_v, &w.v);
  attn_status status = region_status(t->memory, "for the gradients of a head");
  for (int64_t r = 0; !status && r < count; r++)
    rows[r] = (sample_row){r / p->n_q / p->heads, r / p->n_q % p->heads, r % p->n_q};
  if (!status) status = row_space_make(p, e->view->pattern, &w.space);
  if (status) return status;
  status = seen_make(&(seen_run){e->plan, e->view, evidence_tensors(e)}, rows, NULL, count, &w.seen);
  for (int64_t line = 0; !status && !w.why && line < p->batch * p->kv_heads; line++)
    status = judge_line(&w, e, line, bound);
  if (!status && bound->verdict != VERDICT_VIOLATED) {
    if (w.why)
      bound_uncertifiable(bound, w.why);
    else
      bound_property(bound, w.worst, 1);
  }
  if (!status || w.seen.problem) seen_free(&w.seen);
  row_space_free(&w.space);
  return status;
}

/* Gradients of a store are those of its reader at keys and values as they are stored. */
static attn_status judge_stored(const trial *t, const gradient_run *g, evidence *e, result_bound *bound) {
  attn_plan *reader = NULL;
  attn_view view;
  stored_copies copies;
  attn_status status = stored_copies_make(e->problem, e->view->store, e->k, e->v, e->kv_len, &copies);
  if (!status) status = stored_reader_plan(e->plan, &reader);
  if (!status) status = attn_plan_inspect(reader, &view);
  if (!status) {
    *e = (evidence){reader, attn_plan_problem(reader), &view, e->q, copies.k, copies.v, .kv_len = e->kv_len};
    status =
        of_softmax_gradients.holds(&view) && view.rounding.unit > 0
            ? judge_at(t, g, e, bound)
            : bound_not_applicable(bound, "what reads the store is no softmax that describes its rounding");
  }
  attn_plan_destroy(reader);
  stored_copies_free(&copies);
  return status;
}

static attn_status gradient_judge(const trial *t, result_bound *bound) {
  gradient_run g;
  double loss, size;
  attn_status status = gradient_run_make(t->memory, t->plan, &t->in, &g);
  if (!status && !g.view.store && !(g.view.rounding.unit > 0))
    return bound_not_applicable(bound, "the variant describes no rounding");
  if (!status) status = gradient_run_forward(&g, &t->in, &loss, &size);
  if (!status) status = gradient_run_backward(&g);
  if (status) return status;
  evidence e = {.plan = t->plan,
                .problem = &t->in.problem,
                .view = &g.view,
                .q = t->in.q,
                .k = t->in.k,
                .v = t->in.v,
                .kv_len = t->in.padded ? t->in.kv_len : NULL};
  return g.view.store ? judge_stored(t, &g, &e, bound) : judge_at(t, &g, &e, bound);
}

PROPERTY(gradient)
const check check_grad_fp = {
    .name = "GRAD-FP",
    .of = &of_softmax_gradients,
    .kind = KIND_PROPERTY,
    .statement = "the gradients by queries, keys and values are those of softmax over the keys that each "
                 "query sees, up to rounding",
    .source = "Dao et al. 2022 (arXiv:2205.14135), appendix B; the bound is derived at the head of "
              "properties/gradient_definition.c",
    .formula = "measured: |dq^ - dq|, |dk^ - dk|, |dv^ - dv| of every element of the trial, for normal "
               "upstream gradients by the output and the log-sum-exp, in units of |c| sum_j [E_j + "
               "gamma_(n+4) (|ds_j| + E_j)] |k_jl|, the same with q_i over the queries of all heads that "
               "share a key, and sum_i p_ij [(e^h_ij - 1) + gamma e^h_ij] |d_o_il|; E_j, how far rounding "
               "takes ds_j, from FP-1's h_j, the errors of lse and of d_o.o, and the roundings of d_o.v_j.",
    .assumes = "Selections are those of the forward pass, and held fixed: keys that are not picked have "
               "no gradient.",
    .cause =
        "D = d_o.o is left out or of another row, lse is of base 2, the scale is missing or "
        "counted twice, heads that share a key overwrite each other's dk and dv, dlse is ignored, or the "
        "mask of the backward pass is not that of the forward pass",
    .nulls = PROPERTY_BLIND,
    .evaluate = gradient_evaluate,
};
