/* recurrent_growth.c - REC-3: the state of a recurrence does not grow but by what is written. A key
 * multiplies it by (I - k (b . k)^T) diag(a), of norm at most N max a, N = max(1, |1 - b |k|^2|) of a number
 * b: 1 iff 0 <= b |k|^2 <= 2; turning it keeps its norm. Then
 *   |o_il| <= |c q_i| sum_j (product of max a behind j) |k_j| |w_jl v_jl|,
 * |w_j| + |e_j+1| for |w_j| of a key that enters once more,
 * and rounding adds at most a share of (C + 1) g to each of these magnitudes, those of a chunk of C keys
 * being C + 1 times the state's at most (recurrent_output.c). */
#include "experiments/checks/check_table.h"
#include "experiments/checks/recurrences/gates.h"
#include "experiments/evidence/rows.h"
#include "experiments/mathematics/vector.h"

#include <math.h>
#include <stdlib.h>

/* Decays that round to 1 do not make a state grow. */
static const double grows = 1 + 0x1p-40;

static outcome judge_keys(const row_case *c, double *k, double *a, double *betas) {
  const attn_problem *p = c->e->problem;
  const attn_recurrence *x = c->e->view->recurrence;
  const attn_number *type = &attn_numbers[p->dtype];
  row_space *s = c->space;
  const int64_t last = recurrent_last(x, attn_problem_position(p, c->row->i), c->head->keys);
  const double q = fabs(recurrent_query_scale(p, x, s->q)) * vector_norm(s->q, p->d_qk),
               slack = (x->turns ? 16 : 8) * (double)((x->chunk + 1) * (p->d_qk + 5 * x->chunk + 21)) *
                       type->unit;
  const double lost = 4 * (double)(p->d_qk + x->chunk) * type->normal; /* by underflow, of a key */
  double left = 1, written = 0, again = 0, longest = 0;
  outcome worst = OUTCOME_NONE;
  if (!c->head->finite) return (outcome){.why = row_reason(ROW_INFINITE)};
  if (!(slack < 1)) return (outcome){.why = row_reason(ROW_CHAIN)};
  for (int64_t l = 0; l < p->d_v; l++) s->bound[l] = 0;
  for (int64_t j = last; j >= 0 && left > 0; j--) {
    recurrent_key key;
    if (!recurrent_key_make(c->e, c->head, j, k, a, betas, &key))
      return (outcome){.why = "the law states a decay above 1"};
    if (key.norm * key.most > grows)
      return (outcome){
          .why = "a key multiplies the state by more than 1, and it may grow: b |k|^2 is not in 0 ... 2, "
                 "or b is a vector"};
    for (int64_t l = 0; l < p->d_v; l++) {
      const double w = betas[recurrent_vectors(x) ? p->d_qk + l : 0];
      s->bound[l] += left * key.size * (fabs(w) + again) * fabs(c->head->v[j * p->d_v + l]);
    }
    again = x->carries ? fabs(betas[1]) : 0;
    longest = fmax(longest, key.size);
    written += left;
    left *= key.most;
  }
  for (int64_t l = 0; l < p->d_v; l++)
    if (!(fmax(q, 1) * fmax(longest, s->bound[l]) < type->largest / 4))
      return (outcome){.why = row_reason(ROW_OVERFLOW)};
  for (int64_t l = 0; l < p->d_v; l++)
    outcome_worsen(&worst, (outcome){fabs(s->given[l]),
                                     q * s->bound[l] * (1 + slack) + lost * (1 + q) * (1 + written), NULL});
  return worst;
}

static outcome judge_row(const row_case *c) {
  const int64_t d = c->e->problem->d_qk;
  double *room = malloc((size_t)(2 * d + recurrent_betas(c->e->view->recurrence)) * sizeof *room);
  const outcome found =
      room ? judge_keys(c, room, room + d, room + 2 * d) : (outcome){.why = "no memory for a key"};
  free(room);
  return found;
}

static attn_status judge(const evidence *e, result_bound *bound) {
  if (!e->view->recurrence->law) return stated_demand(e, bound);
  return rows_check(e, row_cost(e), judge_row, bound);
}

const check check_rec3 = {
    .name = "REC-3",
    .of = &of_recurrences,
    .kind = KIND_HARD,
    .statement = "a state does not grow but by what is written to it",
    .source = "the norm of I - b k k^T is 1 iff 0 <= b |k|^2 <= 2; derived",
    .formula =
        "|o^_il| <= |c q_i| sum_j (product of max a behind j) |k_j| |w_jl v_jl| (1 + 8 (C + 1) (d + 5 C + "
        "21) u), and what underflow may lose; |w_j| + |e_j+1| of keys that enter once more, 16 for 8 where "
        "the "
        "state is turned.",
    .cause =
        "a decay is not applied or inverted, keys are not divided by their length, what the state says of a "
        "key is added, or a state is that of another sequence",
    .assumes =
        "Finite inputs, decays of at most 1, and keys that make no state grow: 0 <= b |k|^2 <= 2 under the "
        "delta rule. Where they may, it is uncertifiable: divide keys by their length (key_norm), or beta "
        "by its square.",
    .nulls = CHECK_BLIND("a bound on growth: what is small passes"),
    .evaluate = judge,
};
