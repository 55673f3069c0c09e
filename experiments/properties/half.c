/* half.c - PROP-HALF: tensors that are stored in 16 bits are read and written as they are.
 *
 * Kernels compute in fp32 on the numbers that are stored: a run is that of fp32 tensors of the same numbers,
 * each output rounded once to its type. */
#include "experiments/properties/property.h"

#include <math.h>
#include <stdlib.h>

/* What sums in fp32 in another order may be apart, in units of the values: 128 units roundoff. */
static const double other_order = 0x1p-17;

/* The numbers of tensors stored in 16 bits, in fp32. */
static void widen(const trial_inputs *stored, const trial_inputs *wide) {
  const attn_problem *p = &stored->problem;
  const char *from[] = {stored->q, stored->k, stored->v};
  char *to[] = {wide->q, wide->k, wide->v};
  const attn_dtype types[] = {p->q.stored, p->k.stored, p->v.stored};
  const int64_t counts[] = {p->batch * p->heads * p->n_q * p->d_qk,
                            p->batch * p->kv_heads * p->n_kv * p->d_qk,
                            p->batch * p->kv_heads * p->n_kv * p->d_v};
  for (int s = 0; s < 3; s++)
    for (int64_t i = 0; i < counts[s]; i++) attn_set(to[s], i, ATTN_F32, attn_get(from[s], i, types[s]));
}

/* Both outputs on the same numbers: the one as it is stored, the other in fp32. */
static attn_status run_both(const trial *t, attn_dtype type, trial_inputs *stored, trial_inputs *wide,
                            char **o, char **o_wide) {
  attn_problem p = t->in.problem;
  p.dtype = type;
  attn_status status = trial_inputs_draw(t->memory, &p, 1, stored);
  p.dtype = ATTN_F32;
  if (!status) status = trial_inputs_draw(t->memory, &p, 1, wide);
  if (!status) widen(stored, wide);
  if (!status) status = trial_run(t, wide, 1, POISON_NAN, o_wide);
  return status ? status : trial_run(t, stored, 1, POISON_NAN, o);
}

/* The largest distance from the output in fp32, as a part of what one rounding allows. */
static void compare(const trial *t, const attn_problem *p, const char *o, const char *o_wide,
                    difference *worst) {
  const attn_dtype type = p->o.stored;
  const double unit = attn_numbers[type].unit, least = attn_numbers[type].subnormal,
               order = sqrt(3) * (other_order + 16 * t->view.rounding.operand + 4 * t->view.rounding.weight);
  for (int64_t x = 0; x < p->batch * p->heads * p->n_q * p->d_v; x++) {
    const double got = attn_get(o, x, type), wide = attn_get(o_wide, x, ATTN_F32),
                 rounded = attn_rounded(wide, type),
                 allowed = unit * (1 + 2 * unit) * fabs(wide) + least + order * fmax(1, fabs(wide));
    if (got == rounded || (isnan(got) && isnan(wide))) continue;
    const double part = isnan(got) || isnan(wide) ? (double)INFINITY : fabs(got - wide) / allowed;
    worst->count += part > 1;
    if (part <= worst->largest) continue;
    const int64_t row = x / p->d_v, line = row / p->n_q;
    worst->largest = part;
    worst->batch = line / p->heads;
    worst->head = line % p->heads;
    worst->row = row % p->n_q;
    worst->component = x % p->d_v;
    worst->expected = rounded;
    worst->got = got;
  }
}

static attn_status judge_type(const trial *t, attn_dtype type, result_bound *bound) {
  trial_inputs stored = {.padded = false}, wide = {.padded = false};
  char *o = NULL, *o_wide = NULL;
  attn_status status = run_both(t, type, &stored, &wide, &o, &o_wide);
  if (!status) {
    difference worst = {.in = &stored};
    compare(t, &stored.problem, o, o_wide, &worst);
    status = difference_settle(&worst, 1, attn_numbers[type].name, bound);
  }
  return status;
}

static attn_status half_judge(const trial *t, result_bound *bound) {
  static const attn_dtype types[] = {ATTN_F16, ATTN_BF16};
  for (int i = 0; i < 2; i++) {
    const attn_status status = judge_type(t, types[i], bound);
    if (status == ATTN_EUNSUPPORTED) return bound_not_applicable(bound, attn_last_error());
    if (status || bound->verdict == VERDICT_VIOLATED) return status;
  }
  return ATTN_OK;
}

PROPERTY(half)
const check check_prop_half = {
    .name = "PROP-HALF",
    .of = &of_halves,
    .kind = KIND_PROPERTY,
    .statement = "tensors stored in f16 and bf16 give the run in fp32 on the same numbers, rounded once",
    .source = "the interface: tensors are read and written as they are stored (attn.h, attn_stride.stored)",
    .formula =
        "|o16 - o32| / (u (1 + 2 u) |o32| + least + sqrt(3) 2^-17 max(1, |o32|)) <= 1, o32 of fp32 "
        "tensors that hold the numbers of the 16-bit ones, u and least the unit roundoff and the least "
        "subnormal of the type; for f16, then bf16. 2^-17 is for sums in another order; what the "
        "variant declares to round its operands and weights by is added.",
    .assumes = "Declared: tensors stored in 16 bits (ATTN_CAP_HALF, a part of ATTN_CAP_SOFTMAX and "
               "ATTN_CAP_LINEAR).",
    .cause = "tensors are read as float whatever attn_stored says, the wrong 16-bit type is read or written, "
             "or outputs are cut off instead of rounded: leave ATTN_CAP_HALF out, or use attn_load_row and "
             "attn_store_row",
    .nulls = PROPERTY_BLIND,
    .evaluate = half_evaluate,
};
