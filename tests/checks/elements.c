/* elements.c - variants of which one element is wrong, whichever it is. Of gradients differences of the loss
 * tell, and the definition does of those by queries, keys and values; of outputs that differ from execution
 * to execution every property that compares two of them; of an element that a row must not see those that
 * change it. */
#include "experiments/properties/gradient_run.h"
#include "tests/support/checks_shown.h"

#include <stdatomic.h>

typedef enum { DQ, DK, DV, DSINK, DRELATIVE, DDENSE, DGATE, TENSORS } tensor;
static const char *const names[] = {"dq", "dk", "dv", "dsink", "drelative", "ddense", "dextra"};

/* The wrong element, as a share of those behind the first; below 0: there is none. */
static tensor spoiled;
static double share;

static attn_status size_of(const void *inner, const attn_context *c, const attn_parts *parts, size_t *bytes) {
  (void)c;
  (void)parts;
  return attn_plan_backward_size(inner, bytes);
}

static attn_status backward(const void *inner, const attn_call *call, const attn_gradients *g) {
  const attn_problem *p = call->context->problem;
  const attn_score *s = &p->score;
  const int64_t q = p->batch * p->heads * p->n_q, k = p->batch * p->kv_heads * p->n_kv,
                biases = (s->dense.batch ? p->batch : 1) * (s->dense.head ? p->heads : 1),
                counts[] = {q * p->d_qk,
                            k * p->d_qk,
                            k * p->d_v,
                            p->heads,
                            s->relative_heads * s->span,
                            biases * p->n_q * p->n_kv,
                            call->extras ? gradient_run_count(call->extra) : 0};
  void *const at[] = {
      g->dq, g->dk, g->dv, g->dsink, g->drelative, g->ddense, g->dextra ? g->dextra[0] : NULL};
  const attn_status status = attn_call_backward(call, inner, call->o, call->lse, g, call->work);
  if (status || share < 0 || !at[spoiled]) return status;
  const int64_t i = (int64_t)(share * (double)(counts[spoiled] - 1));
  const attn_dtype type = spoiled < DSINK ? p->dtype : ATTN_F64;
  attn_set(at[spoiled], i, type, attn_get(at[spoiled], i, type) + 1);
  return status;
}

static DESCRIBE_METHOD(describe, NO_ROUNDING, .work_size = shown_work_size, .plan = shown_plan,
                       .execute = shown_execute, .inspect = shown_inspect, .backward_size = size_of,
                       .backward = backward, .bias_gradients = true);

static run_case *case_spoiled(const char *of, const char *name,
                              attn_status (*as)(attn_builder *, const attn_context *, attn_parts *)) {
  const attn_variant *known;
  if (attn_variant_find(name, &known)) variant_described(of, name, as);
  shown = (struct shown){of, NULL};
  share = -1;
  return case_gaussian(name, case_problem(2, 4, 2, 24, 6, 5, true, ATTN_F32), 1);
}

/* Elements of the tensors first ... last of `of` are looked at by the check. */
static void expect_seen(const char *of, const char *law, tensor first, tensor last) {
  run_case *c = case_spoiled(of, text_of("spoiled_%s", of), describe);
  for (spoiled = first; spoiled <= last; spoiled++)
    for (share = -0.5; share <= 1; share += 0.5) {
      const result_bound b = case_check(&c->e, law);
      cr_expect_eq(b.verdict, share < 0 ? VERDICT_PASS : VERDICT_VIOLATED, "%s of %s, %s at %g: %d, %s", law,
                   of, names[spoiled], share, (int)b.verdict, b.message);
    }
}

Test(checks_elements, of_gradients_are_looked_at) {
  expect_seen("tiled", "GRAD-FP", DQ, DV);
  expect_seen("tiled", "GRAD-FD", DQ, DDENSE);
  expect_seen("recurrent", "GRAD-FD", DGATE, DGATE);
}

static attn_status erratic_execute(const void *inner, const attn_call *call) {
  static atomic_int calls;
  const attn_problem *p = call->context->problem;
  const int64_t rows = p->batch * p->heads * p->n_q, i = (int64_t)(share * (double)(rows * p->d_v - 1)),
                row = i / p->d_v, l = i % p->d_v;
  const attn_dtype type = attn_stored(p->o, p->dtype);
  const attn_status status = shown_execute(inner, call);
  const double factor = 1 + 0.1 * atomic_fetch_add(&calls, 1);
  if (status || share < 0 || !rows) return status;
  void *o = attn_row(call->o, p->o, row / p->n_q / p->heads, row / p->n_q % p->heads, row % p->n_q, p->dtype);
  attn_set(o, l, type, attn_get(o, l, type) * factor);
  return status;
}

static DESCRIBE_METHOD(erratic, NO_ROUNDING, .work_size = shown_work_size, .plan = shown_plan,
                       .execute = erratic_execute, .inspect = shown_inspect);

Test(checks_elements, of_outputs_are_compared) {
  static const char *const laws[] = {"PROP-PREFIX",  "PROP-ROW",       "PROP-BATCH",  "PROP-LEN",
                                     "PROP-GQA",     "PROP-REPEAT",    "PROP-PAD",    "PROP-THREADS",
                                     "PROP-STRIDES", "PROP-HALF",      "PROP-BOUNDS", "PROP-LSE",
                                     "PROP-VALUES",  "PROP-REENTRANT", "PROP-EXTREME"};
  run_case *c = case_spoiled("tiled", "erratic", erratic);
  for (size_t l = 0; l < sizeof laws / sizeof *laws; l++)
    for (share = -0.125; share <= 1; share += 0.125) {
      const result_bound b = case_check(&c->e, laws[l]);
      cr_expect_eq(b.verdict, share < 0 ? VERDICT_PASS : VERDICT_VIOLATED, "%s, element at %g: %d, %s",
                   laws[l], share, (int)b.verdict, b.message);
    }
}

/* What a row must not depend on, of which an element is added to its output: of padding, of the next token or
 * the last one. */
typedef enum { PADDING, NEXT, LAST } leak;
static leak leaks;
static attn_side leaks_of;

static attn_status leaking_execute(const void *inner, const attn_call *call) {
  const attn_problem *p = call->context->problem;
  const attn_status status = shown_execute(inner, call);
  const void *const from[] = {call->q, call->k, call->v};
  const attn_stride at[] = {p->q, p->k, p->v};
  const int64_t d = leaks_of == ATTN_VALUE ? p->d_v : p->d_qk,
                heads = leaks_of == ATTN_QUERY ? p->heads : p->kv_heads;
  for (int64_t r = 0; !status && share >= 0 && r < p->batch * p->heads * p->n_q; r++) {
    const int64_t b = r / p->n_q / p->heads, h = r / p->n_q % p->heads, i = r % p->n_q,
                  keys = attn_call_keys(call, b), spare = p->n_kv - keys;
    const int64_t row = leaks == PADDING ? keys + (int64_t)(share * (double)(spare - 1))
                        : leaks == LAST  ? p->n_kv - 1
                                         : attn_call_position(call, b, i) + 1;
    if (row >= p->n_kv || (leaks == PADDING && spare == 0)) continue;
    const attn_dtype type = attn_stored(at[leaks_of], p->dtype), own = attn_stored(p->o, p->dtype);
    const double x = attn_get(attn_row(from[leaks_of], at[leaks_of], b, h * heads / p->heads, row, p->dtype),
                              (int64_t)(share * (double)(d - 1)), type);
    void *o = attn_row(call->o, p->o, b, h, i, p->dtype);
    attn_set(o, 0, own, attn_get(o, 0, own) + 0.125 * x);
  }
  return status;
}

static DESCRIBE_METHOD(leaking, NO_ROUNDING, .work_size = shown_work_size, .plan = shown_plan,
                       .execute = leaking_execute, .inspect = shown_inspect);

Test(checks_elements, of_what_is_hidden_are_changed) {
  static const struct {
    leak of;
    attn_side side;
    const char *law;
  } all[] = {{PADDING, ATTN_KEY, "PROP-PAD"},  {PADDING, ATTN_VALUE, "PROP-PAD"},
             {NEXT, ATTN_KEY, "PROP-CAUSAL"},  {NEXT, ATTN_VALUE, "PROP-CAUSAL"},
             {NEXT, ATTN_QUERY, "PROP-ROW"},   {LAST, ATTN_KEY, "PROP-CAUSAL"},
             {LAST, ATTN_VALUE, "PROP-CAUSAL"}};
  run_case *c = case_spoiled("tiled", "leaking", leaking);
  for (size_t x = 0; x < sizeof all / sizeof *all; x++)
    for (share = -0.5; share <= 1; share += 0.5) {
      leaks = all[x].of;
      leaks_of = all[x].side;
      const result_bound b = case_check(&c->e, all[x].law);
      cr_expect_eq(b.verdict, share < 0 ? VERDICT_PASS : VERDICT_VIOLATED, "%s, leak %zu at %g: %d, %s",
                   all[x].law, x, share, (int)b.verdict, b.message);
    }
}
