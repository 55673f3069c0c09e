/* finite.c - finite tensors give finite outputs, of every variant: matrices of low rank, rows that are nearly
 * or wholly the same, tiny and large norms, rows that see no key, sizes of one. */
#include "tests/support/core.h"

#include <math.h>

typedef enum { NORMAL, SAME, NEARLY, LOW_RANK, BF16, ZERO, TINY, LARGE, SPIKED, KINDS } kind;
static const char *const names[] = {"normal", "same", "nearly the same", "low rank", "bf16",
                                    "zero",   "tiny", "large",           "spiked"};

/* The value of a row and column; of a tensor all rows of a few are repeated, so that ranks are small. */
static double value_of(kind what, int64_t row, int64_t column, double own, double of_first) {
  int exponent;
  const double half = frexp(own, &exponent);
  switch (what) {
  case SAME:
    return of_first;
  case NEARLY:
    return of_first * (1 + own * 0x1p-22);
  case LOW_RANK:
    return of_first * (double)(row % 3 - 1);
  case BF16:
    return ldexp(nearbyint(ldexp(half, 8)), exponent - 8);
  case ZERO:
    return 0;
  case TINY:
    return own * 0x1p-60;
  case LARGE:
    return own * 8;
  case SPIKED:
    return column == row % 7 ? own * 16 : 0;
  default:
    return own;
  }
}

static void shape_values(inputs *in, kind what) {
  const attn_problem *p = &in->problem;
  for (tensor t = TENSOR_Q; t <= TENSOR_V; t++) {
    const int64_t heads = t == TENSOR_Q ? p->heads : p->kv_heads, rows = t == TENSOR_Q ? p->n_q : p->n_kv,
                  d = t == TENSOR_V ? p->d_v : p->d_qk;
    for (int64_t b = 0; b < p->batch; b++)
      for (int64_t h = 0; h < heads; h++)
        for (int64_t i = rows - 1; i >= 0; i--)
          for (int64_t l = 0; l < d; l++)
            inputs_set(in, t, b, h, i, l,
                       value_of(what, i, l, inputs_get(in, t, b, h, i, l), inputs_get(in, t, b, h, 0, l)));
  }
}

/* Sums of features that need not be positive divide by what may be 0. */
static bool may_divide_by_zero(const attn_problem *p, const char *spec) {
  attn_plan *plan = plan_or_note(p, spec, NULL);
  attn_view view = {0};
  if (plan) attn_plan_inspect(plan, &view);
  attn_plan_destroy(plan);
  return (view.features || view.toeplitz || view.residual || view.expression) &&
         !(view.caps & ATTN_CAP_CONVEX);
}

static void expect_finite(const inputs *in, const char *spec) {
  const attn_problem *p = &in->problem;
  void *o = run_spec(spec, NULL, in);
  for (size_t e = 0; o && e < output_count(p); e++)
    if (!isfinite(attn_get(o, (int64_t)e, p->dtype))) {
      note_failure("output %zu of %zu is %g", e, output_count(p), attn_get(o, (int64_t)e, p->dtype));
      break;
    }
  free(o);
}

/* What a problem may have besides: a sink far above the scores, biases that hide keys and rows, documents. */
enum { PLAIN, SINK, BIAS, DOCUMENTS, SIDES };

typedef struct side {
  attn_problem problem;
  double sinks[4], bias[70 * 70];
  int64_t documents[4];
} side;

static attn_problem problem_of(case_shape shape, attn_dtype dtype, int besides, side *s) {
  attn_problem p = shape_problem(shape, dtype);
  for (int h = 0; h < 4; h++) s->sinks[h] = h % 2 ? 400 : -3;
  for (int64_t e = 0; e < p.n_q * p.n_kv; e++)
    s->bias[e] = e / p.n_kv == 1 || e % 5 == 2 ? -(double)INFINITY : (double)(e % 11) / 4;
  if (besides == SINK || besides == BIAS) p.score.sink = s->sinks;
  if (besides == BIAS) p.score.dense = (attn_bias){s->bias, ATTN_F64, 0, 0, p.n_kv};
  if (besides == DOCUMENTS) {
    const int64_t ends[] = {0, p.n_kv / 3, p.n_kv - p.n_kv / 4, p.n_kv};
    memcpy(s->documents, ends, sizeof ends);
    p.mask = (attn_mask){.kind = ATTN_MASK_DOCUMENTS, .offsets = s->documents, .count = 3};
  }
  return p;
}

static const case_shape shapes[] = {
    {1, 1, 1, 1, 1, 1, 1, false, false},    {1, 2, 1, 2, 2, 1, 1, false, false},
    {1, 2, 2, 3, 3, 2, 3, true, false},     {1, 4, 2, 66, 66, 8, 5, true, false},
    {2, 2, 1, 40, 57, 16, 16, false, true},
};

static void try(case_shape shape, attn_dtype dtype, int besides) {
  static side room;
  const attn_problem p = problem_of(shape, dtype, besides, &room);
  for (size_t v = 0; v < attn_variant_count(); v++) {
    spec_list list = specs_for(attn_variant_at(v), &p, 12);
    for (int k = 0; k < list.count; k++)
      for (kind what = NORMAL; what < KINDS && !may_divide_by_zero(&p, list.text[k]); what++) {
        inputs in = inputs_make(&p, shape.padded, 31 + (uint64_t)k, 1);
        shape_values(&in, what);
        note_context("%s, %s, n = %d, %s, side %d", list.text[k], names[what], (int)p.n_q,
                     dtype == ATTN_F64 ? "f64" : "f32", besides);
        expect_finite(&in, list.text[k]);
        inputs_free(&in);
      }
    spec_list_free(&list);
  }
}

Test(core_finite, of_every_variant) {
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (int besides = PLAIN; besides < SIDES; besides++)
      try(shapes[s], (s + (size_t)besides) % 2 ? ATTN_F64 : ATTN_F32, besides);
}
