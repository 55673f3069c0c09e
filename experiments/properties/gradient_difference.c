/* gradient_difference.c - GRAD-FD: the gradients against differences of the loss, in fp64.
 *
 * Along a random direction of Q, K, V, gates and biases at once: central differences d_h and d_(h/2), and (4
 * d_(h/2) - d_h) / 3, whose own error is far below |d_h - d_(h/2)|. It knows no formula of the variant. */
#include "experiments/properties/gradient_run.h"

#include "attn_expression.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { DIRECTIONS = 2 };
/* Features bend (max(x, 0), and elu in its second derivative), and so do weights that are 0 below a score,
 * anywhere: where the loss has a bend within a step, which extrapolation takes for a slope, a smaller one
 * shows what it does at x. Rounding shows, too. */
static const double steps[] = {0x1p-10, 0x1p-15, 0x1p-20, 0x1p-25};
enum { STEPS = sizeof steps / sizeof *steps };
static const uint64_t purpose_directions = 0x646972656374; /* "direct" */

/* What the trial has not: padding, and what a problem makes of scores. */
typedef struct setting {
  const char *name;
  bool documents, scores, leaky;
} setting;
static const setting settings[] = {{.name = ""},
                                   {"with documents: ", true, false, false},
                                   {"with a soft cap, a sink and biases: ", false, true, false},
                                   {"with leaky scores and biases: ", false, true, true}};
enum { SETTINGS = sizeof settings / sizeof *settings };

static const struct {
  attn_side side;
  size_t at;
} sides[] = {{ATTN_QUERY, offsetof(gradient_run, dq)},
             {ATTN_KEY, offsetof(gradient_run, dk)},
             {ATTN_VALUE, offsetof(gradient_run, dv)}};

static double *tensor_of(const trial_inputs *in, attn_side side, int64_t *count) {
  const attn_problem *p = &in->problem;
  *count = p->batch * (side == ATTN_QUERY ? p->heads * p->n_q : p->kv_heads * p->n_kv) *
           (side == ATTN_VALUE ? p->d_v : p->d_qk);
  return (double *)trial_row(in, side, 0, 0, 0);
}

/* y <- x + h u; adds <gradient, u>. */
static void move_numbers(attn_rng *rng, int64_t count, const double *x, const double *gradient, double h,
                         double *y, double *along) {
  for (int64_t i = 0; i < count; i++) {
    const double u = attn_rng_normal(rng);
    y[i] = x[i] + h * u;
    *along += gradient[i] * u;
  }
}

/* x + h u, u normal and the same for every h; and *along: <gradients, u>. */
static void move(gradient_run *g, uint64_t direction, double h, const trial_inputs *to, double *along) {
  attn_rng rng;
  attn_rng_init(&rng, 1, purpose_directions, direction);
  *along = 0;
  for (int s = 0; s < 3; s++) {
    int64_t count;
    const double *x = tensor_of(g->in, sides[s].side, &count);
    double *y = tensor_of(to, sides[s].side, &count);
    const double *gradient = *(double *const *)(const void *)((const char *)g + sides[s].at);
    move_numbers(&rng, count, x, gradient, h, y, along);
  }
  for (int64_t i = 0; i < g->extras; i++) {
    move_numbers(&rng, gradient_run_count(&g->extra[i]), g->own[i], g->dextra[i], h, g->moved[i], along);
    g->extra[i].at = g->moved[i];
  }
  for (int b = 0; b < RUN_BIASES; b++) {
    const run_biases *x = &g->biases[b];
    move_numbers(&rng, x->count, x->own, x->gradient, h, x->moved, along);
  }
}

/* The loss where `move` left its tensors and biases; of the latter a plan has copies. */
static attn_status moved_loss(gradient_run *g, const trial *t, const trial_inputs *room, double *loss,
                              double *size) {
  const attn_plan *own = g->plan;
  attn_problem p = *attn_plan_problem(own);
  attn_plan *moved = NULL;
  if (!p.score.sink && !p.score.relative && !p.score.dense.at)
    return gradient_run_forward(g, room, loss, size);
  if (g->biases[RUN_SINK].count) p.score.sink = g->biases[RUN_SINK].moved;
  if (g->biases[RUN_RELATIVE].count) p.score.relative = g->biases[RUN_RELATIVE].moved;
  if (g->biases[RUN_DENSE].count) p.score.dense.at = g->biases[RUN_DENSE].moved;
  attn_status status = attn_plan_create_spec(&moved, &p, t->spec, &t->options);
  if (!status) {
    g->plan = moved;
    status = gradient_run_forward(g, room, loss, size);
    g->plan = own;
  }
  attn_plan_destroy(moved);
  return status;
}

/* (L(x + h u) - L(x - h u)) / 2h; adds to *size the magnitudes that were summed, over 2h. */
static attn_status difference_of(gradient_run *g, const trial *t, uint64_t direction, double h,
                                 const trial_inputs *room, double *out, double *along, double *size) {
  double loss[2], sizes[2];
  for (int side = 0; side < 2; side++) {
    move(g, direction, side ? -h : h, room, along);
    const attn_status status = moved_loss(g, t, room, &loss[side], &sizes[side]);
    if (status) return status;
  }
  *out = (loss[0] - loss[1]) / (2 * h);
  *size += (sizes[0] + sizes[1]) / (2 * h);
  return ATTN_OK;
}

static attn_status judge_direction(gradient_run *g, const trial *t, const setting *of, uint64_t direction,
                                   const trial_inputs *room, double *worst, result_bound *bound) {
  double ratio = 0, expected = 0, along = 0;
  const int tried = g->view.by_features || g->view.normaliser ? STEPS : 1;
  for (int i = 0; i < tried && (!i || !(ratio <= 1)); i++) {
    double whole = 0, half = 0, size = 0;
    attn_status status = difference_of(g, t, direction, steps[i], room, &whole, &along, &size);
    if (!status) status = difference_of(g, t, direction, steps[i] / 2, room, &half, &along, &size);
    if (status) return status;
    expected = (4 * half - whole) / 3;
    ratio = fabs(along - expected) / (fabs(half - whole) + 0x1p-46 * size);
  }
  if (ratio <= *worst) return ATTN_OK;
  *worst = isnan(ratio) ? (double)INFINITY : ratio;
  if (*worst <= 1) return ATTN_OK;
  bound_property(bound, *worst, 1);
  bound_say(bound, "%sthe loss rises by %.9g along a direction, the gradients say %.9g", of->name, expected,
            along);
  return ATTN_OK;
}

static attn_status judge_plan(const trial *t, const attn_plan *plan, const trial_inputs *in,
                              const setting *of, double *worst, result_bound *bound) {
  gradient_run g;
  trial_inputs room;
  double loss, size;
  attn_status status = gradient_run_make(t->memory, plan, in, &g);
  if (!status) status = trial_inputs_copy(t->memory, in, &room);
  if (!status) status = gradient_run_forward(&g, in, &loss, &size);
  if (!status && !isfinite(loss))
    return bound_not_applicable(bound, "an output is not finite: there is no loss to differentiate");
  if (!status) status = gradient_run_ask_biases(t->memory, &g);
  if (!status) status = gradient_run_backward(&g);
  if (status == ATTN_EUNSUPPORTED) { /* by biases */
    memset(g.biases, 0, sizeof g.biases);
    status = gradient_run_backward(&g);
  }
  room.padded = in->padded;
  memcpy(room.kv_len, in->kv_len, sizeof room.kv_len);
  for (uint64_t d = 0; !status && d < DIRECTIONS && bound->verdict != VERDICT_VIOLATED; d++)
    status = judge_direction(&g, t, of, d, &room, worst, bound);
  return status;
}

/* Leaky scores bend at 0: queries of positive elements, and keys of one sign each, so that none is near. */
static void part_signs(const trial_inputs *in) {
  int64_t count;
  double *q = tensor_of(in, ATTN_QUERY, &count);
  for (int64_t i = 0; i < count; i++) q[i] = fabs(q[i]) + 0.25;
  double *k = tensor_of(in, ATTN_KEY, &count);
  for (int64_t i = 0; i < count; i++) k[i] = copysign(fabs(k[i]) + 0.25, i / in->problem.d_qk % 2 ? -1 : 1);
}

/* A bias of each pair, which hides some. */
static void draw_dense(int64_t n_kv, int64_t count, double *x) {
  for (int64_t i = 0; i < count; i++) x[i] = i % n_kv && i % 11 == 5 ? -(double)INFINITY : cos((double)i);
}

/* The trial's problem in fp64, as the setting says; *refused: the variant does not take it. */
static attn_status judge_setting(const trial *t, const setting *of, double *worst, result_bound *bound,
                                 bool *refused) {
  enum { HEADS = 64, SPAN = 33, DOCUMENTS = 4 };
  attn_problem p = t->in.problem;
  double sinks[HEADS], relative[HEADS * SPAN], *dense = NULL;
  attn_plan *plan = NULL;
  trial_inputs in;
  p.q = p.k = p.v = p.o = (attn_stride){0};
  p.dtype = ATTN_F64;
  const int64_t begins[DOCUMENTS + 1] = {0, p.n_kv / 3, p.n_kv / 3 + 1, p.n_kv - 9, p.n_kv};
  if (of->documents) p.mask = (attn_mask){.kind = ATTN_MASK_DOCUMENTS, .offsets = begins, .count = DOCUMENTS};
  if (of->scores) {
    for (int i = 0; i < HEADS * SPAN; i++) relative[i] = sin(i);
    for (int64_t h = 0; h < HEADS; h++) sinks[h] = 1 - (double)(h % 3);
    const int64_t pairs = p.n_q * p.n_kv, lines = of->leaky ? p.batch : p.heads;
    dense = region_take(t->memory, lines * pairs, sizeof *dense);
    if (!dense) return region_status(t->memory, "for a bias of the scores");
    draw_dense(p.n_kv, lines * pairs, dense);
    p.score = (attn_score){.relative = relative,
                           .relative_heads = of->leaky && p.heads <= HEADS ? p.heads : 1,
                           .span = SPAN,
                           .zero = SPAN / 3,
                           .dense = {dense, ATTN_F64, of->leaky ? pairs : 0, of->leaky ? 0 : pairs, p.n_kv}};
    if (of->leaky)
      p.score.leaky = 0.25;
    else
      p.score.softcap = 2;
    if (!of->leaky && p.heads <= HEADS) p.score.sink = sinks;
  }
  attn_status status = attn_plan_create_spec(&plan, &p, t->spec, &t->options);
  if (!status) status = attn_plan_backward_size(plan, &(size_t){0});
  *refused = status == ATTN_EUNSUPPORTED || status == ATTN_EINVAL;
  if (!status) status = trial_inputs_draw(t->memory, &p, 2, &in);
  if (!status) {
    if (of->leaky) part_signs(&in);
    in.padded = t->view.caps & ATTN_CAP_PADDING;
    for (int64_t b = 0; b < p.batch; b++) in.kv_len[b] = p.n_kv - 20 * (b % 2);
    status = judge_plan(t, plan, &in, of, worst, bound);
  }
  attn_plan_destroy(plan);
  return *refused ? ATTN_OK : status;
}

/* Why the gradients are not the slope of the loss. */
static attn_status note_constants(void *context, const attn_spec *atom) {
  const attn_variant *v = atom->variant;
  const char **why = context;
  if (v->caps & ATTN_CAP_STORE) *why = "what is stored is a step function of the row, and counts as the row";
  return ATTN_OK;
}

static attn_status difference_judge(const trial *t, result_bound *bound) {
  const char *why = NULL;
  double worst = -1; /* nothing was judged */
  if (t->view.caps & ATTN_CAP_DATA) why = "which keys are seen depends on Q and K, and the loss jumps there";
  (void)attn_spec_each(t->spec, true, note_constants, &why);
  if (why) return bound_not_applicable(bound, why);
  attn_status status = ATTN_OK;
  for (int s = 0; !status && s < SETTINGS && bound->verdict != VERDICT_VIOLATED; s++) {
    const uint32_t needs = settings[s].documents ? ATTN_CAP_MASK : settings[s].scores ? ATTN_CAP_SCORE : 0;
    if (needs & ~t->view.caps) continue;
    bool refused;
    status = judge_setting(t, &settings[s], &worst, bound, &refused);
    if (refused && !s) return bound_not_applicable(bound, attn_last_error());
  }
  if (!status && bound->verdict != VERDICT_VIOLATED && worst >= 0) bound_property(bound, worst, 1);
  return status;
}

PROPERTY(difference)
const check check_grad_fd = {
    .name = "GRAD-FD",
    .of = &of_gradients,
    .kind = KIND_PROPERTY,
    .statement = "along a direction of inputs, gates and biases the loss rises as its gradients say",
    .source = "the definition of a gradient; Richardson's extrapolation of central differences",
    .formula =
        "measured: |<dq, Uq> + <dk, Uk> + <dv, Uv> + <dg, Ug> + <db, Ub> - (4 d_(h/2) - d_h) / 3| in fp64, "
        "d_h = (L(x + h U) - L(x - h U)) / 2h, h = 2^-10, in units of |d_h - d_(h/2)| + 2^-46 sum |terms of "
        "L| / h; for normal upstream gradients and directions, with padding, documents, a soft cap, leaky "
        "scores, sinks and biases b of distances and of pairs where the variant takes them, and with gates g "
        "(its extra tensors) of a recurrence, a sum or a softmax, both shared by heads or batch entries in "
        "part. Of features and of weights by other functions than softmax, which may bend near x, one of h = "
        "2^-10, 2^-15, 2^-20 and 2^-25 must show it.",
    .assumes =
        "Declared: fp64, no store, and keys that do not depend on Q and K; of selections GRAD-FP judges.",
    .cause = "a term of the derivative is missing (the denominator's, the slope of a soft cap, what is read "
             "before it is written), or a factor is wrong in dq and dk alike, which identities do not see",
    .nulls = PROPERTY_BLIND,
    .evaluate = difference_evaluate,
};
