/* lin_output.c - LIN-6: the output is softmax(c q (E K)^T) (F V) of the projections that the variant itself
 * describes.
 *
 * E and F are read off in fp64 by projecting the identity (lin_matrix.h), once where keys and values, or kv
 * heads, are said to share them. On a problem of the check's own (two batch entries, two kv heads of two
 * query heads each, an entry of fewer keys, more slices than the engine has tasks for) every head's and
 * side's projection of random rows must be E
 * x, as one slab and in pieces, and an execution in fp64 must be the reference on E K and F V. Then so must
 * the sampled rows of one head of the run, in its own dtype.
 *
 * A computed slot is off by at most gamma_(n+65) |E_s| |K_l| in component l (any order of n products and
 * sums, and the rounding of E's entries; Cauchy and Schwarz, which also covers the normwise errors of fast
 * transforms): scores by at most c sum_l |q_l| times that, which counts as a relative error of the weights
 * (attn_rounding.weight) in FP-1 on the slots, and values by their own part. Weights of mixed sign make this
 * bound a multiple of sqrt(n). */
#include "experiments/checks/check_table.h"

#include "experiments/checks/lin_matrix.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  BATCH = 2,
  KV_HEADS = 2,
  HEADS = 4,
  ROWS = 16,
  OWN_ROWS = 3,
  OWN_WIDTH = 4,
  OWN_KEYS = 300,
  PURPOSE = 0x116
};
static const int64_t entries_max = INT64_C(1) << 26; /* of a matrix */
static const int64_t work_max = INT64_C(1) << 26;    /* multiply-adds of reading one of the run's */

/* -- the projection is linear, and the same in pieces -- */

static outcome linear_judge(const projector *p, const projected_pair *m, int64_t head, attn_side side,
                            const double *x, int64_t d, double *room) {
  int64_t slots = p->view.projection->slots, used = 0;
  double *want = room, *have = room + slots * d, *error = room + 2 * slots * d;
  outcome worst = {0, 0, NULL};
  for (int pieces = 0; pieces < 2; pieces++) {
    if (projector_apply(p, head, side, x, m->keys, d, pieces, have, &used))
      return (outcome){.why = attn_last_error()};
    if (used != m->used) return (outcome){(double)used, 0, NULL};
    if (!pieces) {
      projected_product(m, side == ATTN_KEY ? m->e : m->f, x, d, want);
      projected_errors(x, m->keys, d, side == ATTN_KEY ? m->e_norm : m->f_norm, 0x1p-53, error);
    }
    for (int64_t s = 0; s < used; s++)
      outcome_worsen(&worst, outcome_components(have + s * d, want + s * d, error, d));
  }
  return worst;
}

/* -- the output -- */

/* One row; s->q and s->given are set. */
static outcome row_judge(const projected_slots *x, double unit, row_space *s) {
  const attn_problem *p = &x->problem;
  int64_t chain = 3 * p->n_kv + 8; /* any number of online steps */
  double off = 0, shift;
  for (int64_t l = 0; l < p->d_qk; l++) off += fabs(s->q[l]) * x->key_error[l];
  shift = fabs(p->scale) * off;
  attn_rounding rounding = {.unit = unit,
                            .score = p->d_qk,
                            .value = chain,
                            .sum = chain,
                            .block = 1,
                            .exp_error = 4 * unit,
                            .kappa_s = 1,
                            .kappa_d = 1,
                            .weight = -expm1(-shift)};
  if (!(shift < 30)) return (outcome){.why = "rounding may change every weight by any factor"};
  row_support(&x->head, NULL, 0, s);
  row_verdict verdict = row_bound(&x->head, &rounding, false, NULL, s);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  for (int64_t l = 0; l < p->d_v; l++) s->bound[l] += 2 * x->value_error[l];
  return outcome_components(s->given, s->o, s->bound, p->d_v);
}

/* -- the check's own problem -- */

typedef struct own_run {
  projector p;
  int64_t keys[BATCH];
  double *q, *k, *v, *o;
  void *work;
} own_run;

static attn_status own_plan(const evidence *e, own_run *r) {
  const attn_projection *of = e->view->projection;
  const attn_problem *run = e->problem;
  /* As many slices as the engine has tasks for one of these heads, and a part of another. */
  int64_t n = of->slice ? 8 * of->slice + of->slice / 2 + 5 : OWN_KEYS;
  if (n < of->slots + of->slots / 4) n = of->slots + of->slots / 4;
  if (n > entries_max / 4 / of->slots) n = run->n_kv;
  attn_problem x = *run;
  x.batch = BATCH;
  x.heads = HEADS;
  x.kv_heads = KV_HEADS;
  x.n_q = OWN_ROWS;
  x.n_kv = n;
  if (of->slice && x.d_qk > OWN_WIDTH) x.d_qk = OWN_WIDTH;
  if (of->slice && x.d_v > OWN_WIDTH) x.d_v = OWN_WIDTH;
  attn_status status = projector_make(e, NULL, &x, &r->p);
  if ((status != ATTN_EINVAL && status != ATTN_EUNSUPPORTED) || n == run->n_kv) return status;
  projector_free(&r->p); /* of this one length, such as a matrix from a file */
  x.n_kv = run->n_kv;
  return projector_make(e, NULL, &x, &r->p);
}

static double *normals(region *memory, attn_rng *rng, int64_t count, double size) {
  double *x = region_take(memory, count, sizeof *x);
  for (int64_t i = 0; x && i < count; i++) x[i] = size * attn_rng_normal(rng);
  return x;
}

/* Inputs whose slots are of size 1, so that the weights differ and no slot has them all. */
static attn_status own_execute(const evidence *e, double e_norm, double f_norm, own_run *r) {
  const attn_problem *x = &r->p.problem;
  attn_rng rng;
  attn_rng_init(&rng, e->seed, PURPOSE, 0);
  r->q = normals(e->memory, &rng, x->batch * x->heads * x->n_q * x->d_qk, 1.5);
  r->k = normals(e->memory, &rng, x->batch * x->kv_heads * x->n_kv * x->d_qk,
                 e_norm > 0 && e_norm < 1e100 ? 1 / e_norm : 1);
  r->v = normals(e->memory, &rng, x->batch * x->kv_heads * x->n_kv * x->d_v,
                 f_norm > 0 && f_norm < 1e100 ? 1 / f_norm : 1);
  r->o = region_take(e->memory, x->batch * x->heads * x->n_q * x->d_v, sizeof *r->o);
  r->work = region_take(e->memory, 1, attn_plan_work_size(r->p.plan) + 1);
  if (region_status(e->memory, "to run a projection")) return ATTN_ENOMEM;
  memset(r->o, 0xff, (size_t)(x->batch * x->heads * x->n_q * x->d_v) * sizeof *r->o);
  for (int b = 0; b < BATCH; b++)
    r->keys[b] = b && e->view->caps & ATTN_CAP_PADDING ? x->n_kv - x->n_kv / 7 : x->n_kv;
  bool padding = e->view->caps & ATTN_CAP_PADDING;
  return attn_plan_execute(r->p.plan, r->q, r->k, r->v, padding ? r->keys : NULL, r->o, r->work);
}

static outcome own_rows(const own_run *r, const projected_pair *m, int64_t b, int64_t kv_head) {
  const attn_problem *x = &r->p.problem;
  int64_t line = b * KV_HEADS + kv_head;
  outcome worst = {0, 0, NULL};
  projected_slots s;
  row_space space;
  if (projected_slots_make(x, m, r->k + line * x->n_kv * x->d_qk, r->v + line * x->n_kv * x->d_v, 0x1p-53,
                           &s))
    return (outcome){.why = attn_last_error()};
  if (row_space_make(&s.problem, NULL, &space)) {
    projected_slots_free(&s);
    return (outcome){.why = attn_last_error()};
  }
  for (int64_t h = 0; h < HEADS / KV_HEADS; h++)
    for (int64_t i = 0; i < OWN_ROWS; i++) {
      int64_t row =
          (b * HEADS + kv_head * (HEADS / KV_HEADS) + h) * x->n_q + i * (x->n_q - 1) / (OWN_ROWS - 1);
      memcpy(space.q, r->q + row * x->d_qk, (size_t)x->d_qk * sizeof *space.q);
      memcpy(space.given, r->o + row * x->d_v, (size_t)x->d_v * sizeof *space.given);
      outcome_worsen(&worst, row_judge(&s, 0x1p-53, &space));
    }
  row_space_free(&space);
  projected_slots_free(&s);
  return worst;
}

static attn_status own_judge(const evidence *e, outcome *worst) {
  own_run r = {0};
  projected_pair m = {0};
  double *room = NULL;
  attn_status status = own_plan(e, &r);
  const attn_projection *of = r.p.view.projection;
  const attn_problem *x = &r.p.problem;
  if (!status && of->slots > entries_max / x->n_kv) {
    *worst = (outcome){.why = "more than 2^26 entries of a projection"};
    goto out;
  }
  for (int64_t h = 0; h < KV_HEADS && !status; h++)
    for (int b = 0; b < BATCH && !status; b++) {
      bool again = !m.e || (b == 0 && of->per_head) || (!of->slice && m.columns != (b ? r.keys[b] : x->n_kv));
      if (again) {
        projected_pair_free(&m);
        status = projected_pair_read(&r.p, h, b ? r.keys[b] : x->n_kv, &m);
      }
      if (!status && !r.o) {
        int64_t d = x->d_qk > x->d_v ? x->d_qk : x->d_v;
        status = own_execute(e, m.e_norm, m.f_norm, &r);
        room = region_take(e->memory, (2 * of->slots + 1) * d, sizeof *room);
        if (!status) status = region_status(e->memory, "for the slots of a projection");
      }
      if (status) break;
      int64_t line = b * KV_HEADS + h;
      m.keys = r.keys[b];
      for (attn_side side = ATTN_KEY; b == 0 && side <= ATTN_VALUE; side++) {
        int64_t d = side == ATTN_KEY ? x->d_qk : x->d_v;
        const double *rows = (side == ATTN_KEY ? r.k : r.v) + line * x->n_kv * d;
        outcome_worsen(worst, linear_judge(&r.p, &m, h, side, rows, d, room));
      }
      outcome_worsen(worst, own_rows(&r, &m, b, h));
    }
out:
  projected_pair_free(&m);
  projector_free(&r.p);
  return status;
}

/* -- the run -- */

static attn_status run_judge(const evidence *e, outcome *worst) {
  const attn_projection *of = e->view->projection;
  const exact_rows *exact = e->exact;
  const attn_problem *run = e->problem;
  attn_rng rng;
  attn_rng_init(&rng, e->seed, PURPOSE, 1);
  const sample_row at = exact->rows[attn_rng_below(&rng, exact->count)];
  int64_t group = run->heads / run->kv_heads, kv_head = at.head / group;
  int64_t keys = e->kv_len ? e->kv_len[at.batch] : run->n_kv,
          most = of->slice ? of->slots * of->slice : 32 * keys;
  if (keys == 0 || most > work_max / keys || of->slots > entries_max / keys) return ATTN_OK;
  double unit = attn_numbers[run->dtype].unit;
  attn_problem x = *run;
  x.batch = x.n_q = 1;
  x.heads = x.kv_heads; /* the draws of each */
  projector p;
  projected_pair m = {0};
  head_data head = {0};
  projected_slots s = {0};
  row_space space = {0};
  attn_status status = projector_make(e, NULL, &x, &p);
  if (!status) status = projected_pair_read(&p, kv_head, keys, &m);
  if (!status) status = head_data_load(e, at.batch, at.head, &head);
  if (!status) status = projected_slots_make(&p.problem, &m, head.k, head.v, unit, &s);
  if (!status) status = row_space_make(&s.problem, NULL, &space);
  /* Transforms have sums of all keys on their way, twice as large at most. */
  const double most_sum = 2 * (double)keys * fmax(1, fmax(m.e_norm, m.f_norm)) * fmax(head.k_max, head.v_max);
  const bool fits = most_sum < attn_numbers[run->dtype].largest;
  for (int64_t r = 0, judged = 0; r < exact->count && judged < ROWS && fits && !status; r++) {
    const sample_row *row = &exact->rows[r];
    if (row->batch != at.batch || row->head / group != kv_head) continue;
    row_widen(e->q, run->dtype, row_offset(run, row, run->d_qk), run->d_qk, space.q);
    row_widen(e->o, run->dtype, row_offset(run, row, run->d_v), run->d_v, space.given);
    outcome found = row_judge(&s, unit, &space);
    if (!found.why)
      outcome_worsen(worst, found); /* where rounding may take all, the own problem has judged */
    judged++;
  }
  row_space_free(&space);
  projected_slots_free(&s);
  head_data_free(&head);
  projected_pair_free(&m);
  projector_free(&p);
  return status;
}

static attn_status output_evaluate(const evidence *e, result_bound *bound) {
  outcome worst = {0, 0, NULL};
  attn_status status = own_judge(e, &worst);
  if (!status && !worst.why) status = run_judge(e, &worst);
  return status ? status : outcome_to_verdict(&worst, bound);
}

const check check_lin6 = {
    .name = "LIN-6",
    .of = &of_projections,
    .kind = KIND_HARD,
    .statement = "the output is softmax over the projected keys of the projected values, by the projections "
                 "that the variant describes",
    .source = "derived: FP-1 on the slots, with the rounding of the projection",
    .formula =
        "o = softmax(c q (E K)^T) (F V), E and F read off in fp64 by projecting the identity, once where "
        "heads or sides are said to share them: to within FP-1 on the slots, whose components are off by at "
        "most gamma_(n+65) |E_s| |K_l|. On a problem of the check's own in fp64, whose every projection of "
        "random rows must be E x as one slab and in pieces; and on sampled rows of a head of the run.",
    .assumes = "Any projection, whatever its law; at most 2^26 entries. The run itself is compared where "
               "reading its matrices costs no more than 2^26 multiply-adds and no sum of its keys or values "
               "may overflow.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1, 96 keys, 16 slots"),
    .evaluate = output_evaluate,
};
