/* declared.c - see declared.h. */
#include "experiments/evidence/rounding/declared.h"

attn_rounding rounding_textbook(const attn_problem *p) {
  const double unit = attn_numbers[p->dtype].unit;
  return (attn_rounding){.unit = unit,
                         .score = 4 * p->d_qk + 64,
                         .value = 4 * p->n_kv + 64,
                         .sum = 4 * p->n_kv + 64,
                         .exp_error = 8 * unit,
                         .kappa_s = 4,
                         .kappa_d = 4,
                         .map = p->score.softcap > 0 ? 16 * unit : 0,
                         .underflow = 8 * attn_numbers[p->dtype].normal};
}

double rounding_size(const attn_rounding *r) {
  const double chains = (double)r->score + (double)r->value + (double)r->sum + r->kappa_s + r->kappa_d;
  return chains * r->unit + r->exp_error + r->map + 3 * r->operand + r->weight;
}
