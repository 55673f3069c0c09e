/* pooled_output.c - POOL-1: the output of a softmax over last keys and means of blocks (attn_pooling).
 *
 * Means lie in the hull of keys and of values, so that FP-3's bound holds for all terms, n keys and n / block
 * entries, with operands that are off by the rounding of a mean: u + gamma of its sum, in fp64. Parts joined
 * by log-sum-exps in fp64 move an exponent by 2^-50 (2 + |score| + ln n), and a join rounds four times. */
#include "experiments/checks/check_table.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/vector.h"
#include "experiments/reference/pooled_row.h"

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
  pooled_row(x, p, h->batch, h->head, c->row->i, h->keys, s->score, s->weight);
  const double apart = 0x1p-50 * (2 + size + log((double)p->n_kv + 1)) + 4 * own * (1 + size);
  for (int64_t l = 0; l < p->d_v; l++) {
    s->o[l] = 0;
    for (int64_t j = 0; j < h->keys; j++)
      if (s->weight[j] > 0) s->o[l] += s->weight[j] * h->v[j * p->d_v + l];
    const double most = fmax(fabs(h->low[l]), fabs(h->high[l]));
    s->bound[l] =
        (bound.spread + apart) * row_range(h, l) + (bound.growth + 5 * u + own) * most + bound.floor;
  }
  return outcome_rounded(s->given, s->o, s->bound, p->d_v, h->v_max);
}

static attn_status pooled_evaluate(const evidence *e, result_bound *bound) {
  return rows_check(e, 2 * row_cost(e), judge_row, bound);
}

const check check_pool1 = {
    .name = "POOL-1",
    .of = &of_pooled,
    .kind = KIND_HARD,
    .statement = "the output is one softmax over the last keys and the means of the blocks that lie behind",
    .source = "definition of the variant (attn_pooling); derived: FP-3, means lie in the hull",
    .formula =
        "o = sum over terms e^(s_e) v_e / (sum e^(s_e) + e^sink): the last `window` keys, and the mean key "
        "and value of each block that is complete and past. |o^_l - o_l| <= spread range_l + growth max "
        "|v_l|: "
        "FP-3's of twice the keys, operands off by u more, a join's 5 u and 2^-50 (2 + |s| + ln n).",
    .assumes = "What FP-3 assumes. Loose where scores are large: it counts the largest norms.",
    .cause = "an entry is seen before its last key, counts padding, or is left out; a sink counts twice",
    .nulls = CHECK_REJECTS_ALL("causal, Gaussian inputs of std 1, n = 96"),
    .evaluate = pooled_evaluate,
};
