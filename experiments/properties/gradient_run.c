/* gradient_run.c - see gradient_run.h. */
#include "experiments/properties/gradient_run.h"

#include "attn_expression.h"
#include "attn_gradients.h"

#include <math.h>
#include <string.h>

static const uint64_t purpose_upstream = 0x757073747265616d; /* "upstream" */

static int64_t rows_of(const attn_problem *p) { return p->batch * p->heads * p->n_q; }
static int64_t keys_of(const attn_problem *p) { return p->batch * p->kv_heads * p->n_kv; }

int64_t gradient_run_count(const attn_extra *x) { return x->batch * x->heads * x->n * x->columns; }

static int64_t columns_of(const gradient_run *g, attn_extra_columns columns) {
  const attn_problem *p = &g->in->problem;
  return columns == ATTN_COLUMNS_ONE     ? 1
         : columns == ATTN_COLUMNS_QK    ? p->d_qk
         : columns == ATTN_COLUMNS_V     ? p->d_v
         : columns == ATTN_COLUMNS_PAIRS ? p->d_qk / 2
                                         : 0;
}

/* Logarithms that stay below 0 along any direction, or numbers of 0 ... 1. */
static void add_gates(region *memory, gradient_run *g, attn_extra x, bool logarithms, attn_rng *rng) {
  const int64_t count = gradient_run_count(&x), at = g->extras++;
  double **const rooms[] = {&g->own[at], &g->moved[at], &g->dextra[at]};
  for (int r = 0; r < 3; r++) *rooms[r] = region_take(memory, count, sizeof(double));
  for (int64_t i = 0; g->own[at] && i < count; i++)
    g->own[at][i] = (logarithms ? -1.25 : 0) + attn_rng_uniform(rng);
  x.at = g->own[at];
  g->extra[at] = x;
}

static void draw_gates_of_recurrence(region *memory, gradient_run *g, attn_rng *rng) {
  const attn_problem *p = &g->in->problem;
  for (int kind = 0; kind < ATTN_EXTRA_KINDS; kind++) {
    const attn_extra_kind *k = &attn_extra_kinds[kind];
    const bool decay = !strcmp(k->name, "decay");
    const int64_t heads[] = {p->heads, p->kv_heads, 1};
    const attn_extra x = {.name = k->name,
                          .dtype = ATTN_F64,
                          .batch = kind % 2 ? 1 : p->batch,
                          .heads = heads[kind % 3],
                          .n = p->n_kv,
                          .columns = decay && !g->view.recurrence->columns ? 1 : columns_of(g, k->columns)};
    if (!k->of_queries && k->heads == ATTN_HEADS_OWN && x.columns) add_gates(memory, g, x, decay, rng);
  }
}

/* Of each element of the outputs of a sum's terms, the same for the heads of a group. */
static void draw_gates_of_sum(region *memory, gradient_run *g, attn_rng *rng) {
  const attn_problem *p = &g->in->problem;
  const attn_expression *e = g->view.expression;
  attn_extra x = {.name = "gate", .dtype = ATTN_F64, .batch = p->batch, .heads = p->kv_heads, .n = p->n_q};
  for (int64_t t = 0; t < e->count; t++) x.columns += e->terms[t]->given ? p->d_v : 0;
  if (e->kind == ATTN_EXPRESSION_SUM && x.columns) add_gates(memory, g, x, false, rng);
}

static attn_status draw_gates(region *memory, gradient_run *g) {
  const attn_problem *p = &g->in->problem;
  attn_rng rng;
  attn_rng_init(&rng, 1, purpose_upstream, 1);
  if (g->view.recurrence) draw_gates_of_recurrence(memory, g, &rng);
  if (g->view.normaliser && g->view.normaliser->gates) /* forget's */
    add_gates(memory, g, (attn_extra){"decay", ATTN_F64, NULL, 1, p->kv_heads, p->n_kv, 1}, true, &rng);
  if (g->view.expression) draw_gates_of_sum(memory, g, &rng);
  return region_status(memory, "for the gates of a trial");
}

attn_status gradient_run_make(region *memory, const attn_plan *plan, const trial_inputs *in,
                              gradient_run *out) {
  const attn_problem *p = &in->problem;
  const size_t size = attn_dtype_size(p->dtype), o_size = attn_dtype_size(attn_stored(p->o, p->dtype));
  size_t backward = 0;
  gradient_run g = {.plan = plan, .in = in};
  attn_status status = attn_plan_inspect(plan, &g.view);
  if (!status) status = attn_plan_backward_size(plan, &backward);
  if (status) return status;
  const size_t forward = attn_plan_work_size(plan);
  g.o = region_take(memory, rows_of(p) * p->d_v, o_size);
  g.d_o = region_take(memory, rows_of(p) * p->d_v, size);
  g.work = region_take(memory, 1, (forward > backward ? forward : backward) + 1);
  g.dq = region_take(memory, rows_of(p) * p->d_qk, size);
  g.dk = region_take(memory, keys_of(p) * p->d_qk, size);
  g.dv = region_take(memory, keys_of(p) * p->d_v, size);
  if (g.view.caps & ATTN_CAP_LSE) {
    g.lse = region_take(memory, rows_of(p), sizeof *g.lse);
    g.dlse = region_take(memory, rows_of(p), sizeof *g.dlse);
  }
  if ((status = region_status(memory, "for the gradients of a trial"))) return status;
  if ((status = draw_gates(memory, &g))) return status;
  attn_rng rng;
  attn_rng_init(&rng, 1, purpose_upstream, 0);
  for (int64_t i = 0; i < rows_of(p) * p->d_v; i++) attn_set(g.d_o, i, p->dtype, attn_rng_normal(&rng));
  for (int64_t i = 0; g.dlse && i < rows_of(p); i++) g.dlse[i] = attn_rng_normal(&rng);
  *out = g;
  return ATTN_OK;
}

attn_status gradient_run_ask_biases(region *memory, gradient_run *g) {
  const attn_problem *p = attn_plan_problem(g->plan);
  const attn_score *s = &p->score;
  const int64_t counts[RUN_BIASES] = {p->heads, s->relative_heads * s->span,
                                      (s->dense.batch ? p->batch : 1) * (s->dense.head ? p->heads : 1) *
                                          p->n_q * p->n_kv};
  const double *own[RUN_BIASES] = {s->sink, s->relative, s->dense.at};
  for (int b = 0; b < RUN_BIASES; b++)
    if (own[b])
      g->biases[b] = (run_biases){counts[b], own[b], region_take(memory, counts[b], sizeof(double)),
                                  region_take(memory, counts[b], sizeof(double))};
  return region_status(memory, "for the biases of a trial");
}

static attn_tensors tensors_of(const gradient_run *g, const trial_inputs *in) {
  return (attn_tensors){.q = in->q,
                        .k = in->k,
                        .v = in->v,
                        .kv_len = in->padded ? in->kv_len : NULL,
                        .o = g->o,
                        .lse = g->lse,
                        .work = g->work,
                        .extra = g->extra,
                        .extras = g->extras};
}

attn_status gradient_run_forward(gradient_run *g, const trial_inputs *in, double *loss, double *size) {
  const attn_problem *p = &in->problem;
  const attn_tensors x = tensors_of(g, in);
  const attn_status status = attn_plan_run(g->plan, &x);
  *loss = *size = 0;
  for (int64_t i = 0; !status && i < rows_of(p) * p->d_v; i++) {
    const double term = attn_get(g->d_o, i, p->dtype) * attn_get(g->o, i, attn_stored(p->o, p->dtype));
    *loss += term;
    *size += fabs(term);
  }
  for (int64_t i = 0; !status && g->lse && i < rows_of(p); i++) {
    if (isinf(g->lse[i])) continue; /* no key is seen, whatever the inputs are */
    *loss += g->dlse[i] * g->lse[i];
    *size += fabs(g->dlse[i] * g->lse[i]);
  }
  return status;
}

attn_status gradient_run_backward(gradient_run *g) {
  const attn_problem *p = &g->in->problem;
  const size_t size = attn_dtype_size(p->dtype);
  const attn_tensors x = tensors_of(g, g->in);
  memset(g->dq, 0xff, (size_t)(rows_of(p) * p->d_qk) * size);
  memset(g->dk, 0xff, (size_t)(keys_of(p) * p->d_qk) * size);
  memset(g->dv, 0xff, (size_t)(keys_of(p) * p->d_v) * size);
  for (int64_t i = 0; i < g->extras; i++)
    memset(g->dextra[i], 0xff, (size_t)gradient_run_count(&g->extra[i]) * sizeof(double));
  for (int b = 0; b < RUN_BIASES; b++)
    if (g->biases[b].count) memset(g->biases[b].gradient, 0xff, (size_t)g->biases[b].count * sizeof(double));
  return attn_plan_backward(g->plan, &x,
                            &(attn_gradients){.d_o = g->d_o,
                                              .dlse = g->dlse,
                                              .dq = g->dq,
                                              .dk = g->dk,
                                              .dv = g->dv,
                                              .dsink = g->biases[RUN_SINK].gradient,
                                              .drelative = g->biases[RUN_RELATIVE].gradient,
                                              .ddense = g->biases[RUN_DENSE].gradient,
                                              .dextra = g->dextra});
}
