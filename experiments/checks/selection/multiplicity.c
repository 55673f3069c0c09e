/* multiplicity.c - LN-1: a variant that counts keys several times, and draws nothing, attends exactly to the
 * keys of its law as often as the law counts them: FP-1 and FP-2 of scores s_j + ln m_j, by nothing that was
 * selected. */
#include "experiments/checks/check_table.h"
#include "experiments/evidence/rows.h"

static outcome judge_row(const row_case *c) {
  const evidence *e = c->e;
  const attn_selector *x = e->view->selector;
  const attn_call call = evidence_call(e);
  const attn_query query = evidence_query(&call, c->row);
  row_space *s = c->space;
  int64_t count = 0;
  row_support(c->head, NULL, c->row->i, s);
  for (int64_t a = 0; a < s->count; a++) {
    const int64_t key = s->index[a];
    s->inside[key] = x->always(x->state, &query, key);
    if (!s->inside[key]) continue;
    s->index[count] = key;
    s->log_weight[count++] = x->log_weight(x->state, &query, key);
  }
  s->count = count;
  if (!count) return (outcome)OUTCOME_NONE;
  const row_verdict verdict = row_bound(c->head, &e->view->rounding, false, NULL, s);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  return outcome_rounded(s->given, s->o, s->bound, e->problem->d_v, c->head->v_max);
}

static attn_status judge(const evidence *e, result_bound *bound) {
  return rows_check(e, row_cost(e), judge_row, bound);
}

const check check_ln1 = {
    .name = "LN-1",
    .of = &of_multiplicities,
    .kind = KIND_HARD,
    .statement = "the output is one softmax over the keys of the law, each as often as the law counts it",
    .source = "Ding et al. 2023, arXiv:2307.02486, equations 8 to 10; derived: FP-1 and FP-2",
    .formula =
        "softmaxes over sets of keys S_b, joined by their denominators, are softmax over s_j + ln m_j, "
        "m_j the number of S_b with key j. With o the exact softmax of c q_i . k_j + ln m_j over the "
        "keys of m_j > 0: |o^_l - o_l| is at most FP-1's bound of these scores, FP-2's where there are "
        "steps.",
    .assumes = "What FP-1 assumes, and that the selector states its keys (attn_selector.always) and their "
               "logarithms (log_weight).",
    .cause = "branches are joined by equal weights, a branch lacks a key, or its dilation begins elsewhere",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 1"),
    .evaluate = judge,
};
