/* ring_judge.c - bounds on the distance of two outputs from exact attention, and from each other. */
#include "experiments/ring/ring_judge.h"

#include <math.h>
#include <stdlib.h>

#include "experiments/checks/check.h"
#include "experiments/evidence/rows.h"

static double largest_norm(const void *x, int64_t rows, int64_t d, attn_dtype type) {
  double most = 0;
  for (int64_t r = 0; r < rows; r++) {
    double sum = 0;
    for (int64_t i = r * d; i < (r + 1) * d; i++) {
      double value = attn_get(x, i, type);
      sum += value * value;
    }
    most = fmax(most, sum);
  }
  return sqrt(most);
}

double ring_lse_bound(const attn_problem *p, const void *q, const void *k) {
  return fabs(p->scale) * largest_norm(q, p->batch * p->heads * p->n_q, p->d_qk, p->dtype) *
             largest_norm(k, p->batch * p->kv_heads * p->n_kv, p->d_qk, p->dtype) +
         log((double)p->n_kv);
}

/* The evidence, and what judge_apart needs besides. The evidence comes first. */
typedef struct pair {
  evidence e;
  const void *other;
  const attn_rounding *rounding;
} pair;

static outcome judge_apart(const row_case *c) {
  const pair *both = (const pair *)c->e;
  const attn_problem *p = c->e->problem;
  row_space *s = c->space;
  row_support(c->head, NULL, c->row->i, s);
  row_verdict verdict = row_bound(c->head, both->rounding, true, NULL, s);
  for (int64_t l = 0; l < p->d_v; l++) s->kept[l] = s->bound[l];
  if (verdict == ROW_OK) verdict = row_bound(c->head, &c->e->view->rounding, true, NULL, s);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  for (int64_t l = 0; l < p->d_v; l++) s->bound[l] += s->kept[l];
  row_widen(both->other, p->dtype, row_offset(p, c->row, p->d_v), p->d_v, s->kept);
  return outcome_components(s->given, s->kept, s->bound, p->d_v);
}

attn_status ring_judge(const evidence *e, const void *other, const attn_rounding *other_rounding,
                       result_bound *exact, result_bound *apart) {
  pair both = {*e, other, other_rounding};
  attn_status status = check_find(e->view->rounding.operand > 0 ? "FP-4" : "FP-2")->evaluate(&both.e, exact);
  return status ? status : rows_check(&both.e, row_cost(&both.e), judge_apart, apart);
}
