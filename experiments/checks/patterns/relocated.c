/* relocated.c - POS-1: a variant whose queries meet keys elsewhere than where they stand attends exactly to
 * what its law puts in their place (attn_relocation): FP-1 and FP-2 of these keys. */
#include "experiments/checks/check_table.h"
#include "experiments/evidence/rows.h"

#include <stdlib.h>
#include <string.h>

/* k: of the keys of the support what the row meets. */
static void meet_keys(const attn_relocation *x, const row_case *c, double *k) {
  const attn_problem *p = c->e->problem;
  for (int64_t a = 0; a < c->space->count; a++) {
    const int64_t j = c->space->index[a];
    memcpy(k + j * p->d_qk, c->head->k + j * p->d_qk, (size_t)p->d_qk * sizeof *k);
    x->meet(x->state, attn_problem_position(p, c->row->i), j, k + j * p->d_qk);
  }
}

static outcome judge_row(const row_case *c) {
  const attn_problem *p = c->e->problem;
  head_data own = *c->head;
  own.k = malloc((size_t)(p->n_kv * p->d_qk) * sizeof *own.k);
  if (!own.k) return (outcome){.why = "no memory for the keys that a row meets"};
  own.k_max *= 1 + 0x1p-40; /* they are turned in fp64 */
  row_support(&own, c->e->view->pattern, c->row->i, c->space);
  meet_keys(c->e->view->relocation, c, own.k);
  const row_verdict verdict = row_bound(&own, &c->e->view->rounding, false, NULL, c->space);
  free(own.k);
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  return outcome_rounded(c->space->given, c->space->o, c->space->bound, p->d_v, own.v_max);
}

static attn_status judge(const evidence *e, result_bound *bound) {
  return rows_check(e, row_cost(e), judge_row, bound);
}

const check check_pos1 = {
    .name = "POS-1",
    .of = &of_relocations,
    .kind = KIND_HARD,
    .statement = "the output is exact attention to the keys that the law says, each where the law puts it",
    .source = "Xiao et al. 2023, arXiv:2309.17453, section 3.2; derived: FP-1 and FP-2",
    .formula =
        "With k'_ij the key j as query i meets it, o exact softmax over c q_i . k'_ij of the keys that "
        "the law sees: |o^_l - o_l| is at most FP-1's bound of these keys, FP-2's where there are steps.",
    .cause = "keys given up are counted otherwise, angles of the other sign, or pairs of another layout",
    .assumes = "What FP-1 assumes.",
    .nulls = CHECK_REJECTS_ALL("causal, Gaussian inputs of std 1, n = 96"),
    .evaluate = judge,
};
