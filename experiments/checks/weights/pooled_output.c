/* pooled_output.c - POOL-1: the output of a softmax over last keys and means of blocks (attn_pooling).
 *
 * Means lie in the hull of keys and of values, so that FP-3's bound holds for all terms, n keys and n / block
 * entries, with operands that are off by the rounding of a mean: u + gamma of its sum, in fp64. Parts joined
 * by log-sum-exps in fp64 move an exponent by 2^-50 (2 + |score| + ln n), and a join rounds four times.
 *
 * Where a query sees the best entries by an index, scores that are closer than their roundings leave open
 * which: the output must be that of one of the choices. */
#include "experiments/checks/check_table.h"
#include "experiments/checks/selection/index_tensors.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/vector.h"
#include "experiments/reference/pooled_row.h"
#include "experiments/reference/transform.h"

#include <math.h>

enum { OPEN = 8 }; /* entries of which all choices are tried */

/* The first of the choices that the index leaves open of which the output is within space->bound, or the
 * nearest. */
static outcome judge_choices(const row_case *c) {
  const attn_problem *p = c->e->problem;
  const head_data *h = c->head;
  row_space *s = c->space;
  const attn_call call = evidence_call(c->e);
  const attn_query query = evidence_query(&call, c->row);
  pooled_choice choice = {.kept = s->inside, .open = s->index};
  outcome best = {.measured = (double)INFINITY};
  pooled_choose(c->e->view->pooling, &query, h->keys, s->size, s->slack, &choice);
  if (choice.opened > OPEN) return (outcome){.why = "rounding decides which of many entries are the best"};
  for (unsigned of = 0; of < 1u << choice.opened && !(best.measured <= best.value); of++) {
    int64_t taken = 0;
    for (int64_t a = 0; a < choice.opened; a++) taken += choice.kept[choice.open[a]] = of >> a & 1;
    if (taken != choice.due) continue;
    pooled_row(c->e->view->pooling, p, h->batch, h->head, c->row->i, h->keys, s->score, s->inside, s->weight);
    for (int64_t l = 0; l < p->d_v; l++) {
      s->o[l] = 0;
      for (int64_t j = 0; j < h->keys; j++)
        if (s->weight[j] > 0) s->o[l] += s->weight[j] * h->v[j * p->d_v + l];
    }
    const outcome own = outcome_rounded(s->given, s->o, s->bound, p->d_v, h->v_max);
    if (own.measured <= own.value || !(own.measured >= best.measured)) best = own;
  }
  return best;
}

static outcome judge_row(const row_case *c) {
  const attn_problem *p = c->e->problem;
  const attn_pooling *x = c->e->view->pooling;
  const head_data *h = c->head;
  row_space *s = c->space;
  attn_rounding rounding = c->e->view->rounding;
  prior bound;
  const double u = rounding.unit, bias = transform_most(p, h->batch, h->head, c->row->i),
               norm = vector_norm(s->q, p->d_qk), size = fabs(p->scale) * norm * h->k_max + bias,
               own = gamma_of(2 * p->n_kv + x->block + x->overlap + p->d_qk + 64, 0x1p-53);
  rounding.operand += u + gamma_of(x->block + x->overlap + 2, 0x1p-53);
  const row_verdict verdict = row_apriori_bound(h, &rounding, norm, bias, 2 * h->keys + 1, &bound);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  for (int64_t j = 0; j < h->keys; j++)
    s->score[j] = p->scale * vector_dot(s->q, h->k + j * p->d_qk, p->d_qk);
  const double apart = 0x1p-50 * (2 + size + log((double)p->n_kv + 1)) + 4 * own * (1 + size);
  for (int64_t l = 0; l < p->d_v; l++) {
    const double most = fmax(fabs(h->low[l]), fabs(h->high[l]));
    s->bound[l] =
        (bound.spread + apart) * row_range(h, l) + (bound.growth + 5 * u + own) * most + bound.floor;
  }
  return judge_choices(c);
}

static attn_status judge_rows(const evidence *e, result_bound *bound) {
  const attn_pooling *x = e->view->pooling;
  const double index = (double)(x->index.width * (e->problem->kv_heads + x->index.heads / x->block + 1));
  return rows_check(e, 2 * row_cost(e) + index * (double)e->problem->n_kv, judge_row, bound);
}

/* And by an index again with tensors that are drawn here. */
static attn_status pooled_evaluate(const evidence *e, result_bound *bound) {
  const attn_problem *p = e->problem;
  const attn_index *x = &e->view->pooling->index;
  attn_extra extra[INDEX_TENSORS];
  evidence drawn = *e;
  attn_status status = judge_rows(e, bound);
  if (status || bound->verdict != VERDICT_PASS || !x->heads || !index_tensors_fit(e, x)) return status;
  void *o = region_take(e->memory, p->batch * p->heads * p->n_q * p->d_v, attn_dtype_size(p->dtype)),
       *work = region_take(e->memory, 1, attn_plan_work_size(e->plan) + 1);
  status = index_tensors_draw(e, x, extra);
  drawn.extra = extra, drawn.extras = INDEX_TENSORS, drawn.o = o;
  attn_tensors in = evidence_tensors(&drawn);
  in.o = o, in.work = work;
  if (!status) status = attn_plan_run(e->plan, &in);
  return status ? status : judge_rows(&drawn, bound);
}

const check check_pool1 = {
    .name = "POOL-1",
    .of = &of_pooled,
    .kind = KIND_HARD,
    .statement = "the output is one softmax over the last keys and the means of the blocks that lie behind",
    .source = "definition of the variant (attn_pooling); derived: FP-3, means lie in the hull",
    .formula =
        "o = sum over terms e^(s_e) v_e / (sum e^(s_e) + e^sink): the last `window` keys, and the mean key "
        "and value of each block that is complete and past, or of these the `top` of largest index score, "
        "with the run's tensors of the index and with drawn ones. |o^_l - o_l| <= spread range_l + growth "
        "max |v_l|: FP-3's of twice the keys, operands off by u more, a join's 5 u and 2^-50 (2 + |s| + ln "
        "n).",
    .assumes = "What FP-3 assumes. Loose where scores are large: it counts the largest norms. Of at most 8 "
               "entries whose index scores rounding may order either way, one choice must give the output.",
    .cause = "an entry is seen before its last key, counts padding, or is left out; a sink counts twice; "
             "entries are ranked by other tensors than the index's",
    .nulls = CHECK_REJECTS_ALL("causal, Gaussian inputs of std 1, n = 96"),
    .evaluate = pooled_evaluate,
};
