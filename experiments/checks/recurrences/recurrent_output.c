/* recurrent_output.c - REC-1: the output of a variant that carries a state is that of its definition, a sum
 * over the keys that a query sees, each decayed by what comes after it. */
#include "experiments/checks/check_table.h"
#include "experiments/evidence/rows.h"

#include <math.h>
#include <stdlib.h>

/* Sums over the keys of a row, by component of the values: the output, and of magnitudes, with their
 * roundings (bound), plainly (left) and of what underflow may lose (kept). */
static void add_key(const row_case *c, int64_t j, double decay, double growth) {
  const attn_problem *p = c->e->problem;
  const double *k = c->head->k + j * p->d_qk, *v = c->head->v + j * p->d_v, scale = fabs(p->scale);
  row_space *s = c->space;
  double product = 0, size = 0, reach = 0;
  for (int64_t l = 0; l < p->d_qk; l++) {
    product += s->q[l] * k[l];
    size += scale * fabs(s->q[l] * k[l]);
    reach += scale * fabs(s->q[l]);
  }
  for (int64_t l = 0; l < p->d_v; l++) {
    const double value = fabs(v[l]);
    s->o[l] += p->scale * decay * product * v[l];
    s->bound[l] += growth * decay * size * value;
    s->left[l] += decay * size * value;
    s->kept[l] += ((double)(p->d_qk + 4) * scale + 4 * size + reach) * value + 3 * reach + 2;
  }
}

/* Roundings of the term of a key `apart` positions before: its product and the sums of its chunk, of the
 * state and of the query's chunk, and three for each chunk that the state has passed. */
static int64_t roundings(const attn_problem *p, int64_t chunk, int64_t apart) {
  return 2 * p->d_qk + 4 * chunk + 16 + 3 * (apart / chunk + 1);
}

static outcome judge_row(const row_case *c) {
  const attn_problem *p = c->e->problem;
  const attn_recurrence *x = c->e->view->recurrence;
  const attn_number *type = &attn_numbers[p->dtype];
  row_space *s = c->space;
  const int64_t position = attn_problem_position(p, c->row->i),
                last = (position < c->head->keys ? position : c->head->keys - 1);
  double decay = 1, logs = 0, most = 0;
  if (!c->head->finite) return (outcome){.why = row_reason(ROW_INFINITE)};
  for (int64_t l = 0; l < p->d_v; l++) s->o[l] = s->bound[l] = s->left[l] = s->kept[l] = 0;
  for (int64_t j = last; j >= 0; j--) {
    /* Products of exponentials in fp64, here as there. */
    const double exponents = 2 * 0x1p-53 * (logs + 3 * (double)(last - j + 1));
    add_key(c, j, decay, gamma_of(roundings(p, x->chunk, last - j), type->unit) + exponents);
    const double log_decay = x->law(x->state, attn_plan_context(c->e->plan), c->row->head, j);
    if (!(log_decay <= 0)) return (outcome){.why = "the law states a decay above 1"};
    decay *= exp(log_decay);
    if (!(decay > 0)) break;
    logs -= log_decay;
  }
  for (int64_t l = 0; l < p->d_v; l++) {
    s->bound[l] += s->kept[l] * type->subnormal;
    most = fmax(most, s->left[l]);
  }
  if (!(most < type->largest / 4)) return (outcome){.why = row_reason(ROW_OVERFLOW)};
  return outcome_rounded(s->given, s->o, s->bound, p->d_v, most);
}

static attn_status judge(const evidence *e, result_bound *bound) {
  if (!e->view->recurrence->law) return stated_demand(e, bound);
  return rows_check(e, row_cost(e), judge_row, bound);
}

const check check_rec1 = {
    .name = "REC-1",
    .of = &of_recurrences,
    .kind = KIND_HARD,
    .statement = "the output is the sum that the recurrence stands for, taken key by key",
    .source = "Sun et al. 2023, arXiv:2307.08621, equations 5 to 7; derived",
    .formula =
        "o_i = c sum_j<=i L_ij (q_i . k_j) v_j, L_ij = e^(ln a_j+1 + ... + ln a_i) by the law: |o^_il - "
        "o_il| <= sum_j L_ij |c| sum_m |q_im k_jm| |v_jl| (gamma(2 d + 4 C + 16 + 3 ((i - j) / C + 1)) + 2 "
        "u_64 (|ln L_ij| + 3 (i - j + 1))) and what underflow may lose, gamma(k) = k u / (1 - k u), C keys "
        "of a chunk.",
    .cause =
        "a decay is applied before or after its key, that of another head, where there is no key or from "
        "one sequence to the next, or the state is that of another chunk",
    .assumes = "Finite inputs, decays of at most 1, and sums within the range of the type.",
    .nulls = CHECK_REJECTS_ALL("causal, Gaussian inputs of std 1, retention"),
    .evaluate = judge,
};
