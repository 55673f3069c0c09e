/* evaluation_checks.c - what the checks of an evaluation say, and those that follow from its data
 * (evaluation_checks.h). */
#include "experiments/quality/evaluation_checks.h"

#include <math.h>
#include <string.h>

static bool never(const attn_view *v) {
  (void)v;
  return false;
}
static const variant_kind of_models = {"in a model whose attention they replace", never};

#define BLIND CHECK_BLIND("it judges the model around the attention; null_mean_v is a run of its own")
#define SYMBOLS                                                                           \
  "z are the exact model's logits, z' those with its attention replaced, p and p' their " \
  "softmaxes, D = z' - z, R = max D - min D, y the token that follows, dNLL = log p_y - log p'_y. "

const check quality_checks[QUALITY_CHECKS] = {
    [EV_1] = {.name = "EV-1",
              .of = &of_models,
              .kind = KIND_HARD,
              .statement = "the divergence from the exact model is at most psi of the range of the change",
              .source = "attnlab: a cumulant is at most that of the law on two points (Hoeffding 1963)",
              .formula =
                  SYMBOLS "KL(p, p') <= psi(R) = log((e^R - 1) / R) - 1 + R / (e^R - 1) at every scored "
                          "position, and what rounding may add (experiments/mathematics/divergence.h).",
              .cause = "p or p' is not normalised, or they have changed places",
              .assumes = "Logits are finite.",
              .nulls = BLIND},
    [EV_2] =
        {.name = "EV-2",
         .of = &of_models,
         .kind = KIND_HARD,
         .statement =
             "the change of a token's log-likelihood is at most the range of the change, and its definition",
         .source = "attnlab: log E_p e^D lies between min D and max D",
         .formula = SYMBOLS "|dNLL| <= R at every scored position; at every sixteenth log E_p e^D - D_y is "
                            "also the difference of two log-likelihoods.",
         .cause = "the token that follows is another for the two models",
         .assumes = "Logits are finite.",
         .nulls = BLIND},
    [EV_3] = {.name = "EV-3",
              .of = &of_models,
              .kind = KIND_HARD,
              .statement = "the most likely token stays where its margin is above the range of the change",
              .source = "attnlab: no difference of two logits changes by more than R",
              .formula = SYMBOLS
              "Where argmax z' is not argmax z, the margin of z, its largest logit less the next, "
              "is at most R.",
              .cause = "the two models' most likely tokens are taken of different positions",
              .assumes = "Logits are finite.",
              .nulls = BLIND},
    [EV_4] = {.name = "EV-4",
              .of = &of_models,
              .kind = KIND_HARD,
              .statement =
                  "replacing layers one after another changes the logits by parts that add up to the whole",
              .source = "attnlab: a telescoping sum",
              .formula = SYMBOLS "With z_l the logits when the first l of the replaced layers are: "
                                 "sum_l (z_l - z_l-1) = z' - z up to the roundings of the sum, and "
                                 "sum_l range(z_l - z_l-1) >= R.",
              .cause = "a layer is left out, or replaced twice",
              .assumes = "The first run of those evaluated together, on a short window.",
              .nulls = BLIND},
    [EV_5] =
        {.name = "EV-5",
         .of = &of_models,
         .kind = KIND_MODEL,
         .statement = "exact attention summed in another order changes the model by what its rounding may",
         .source = "attnlab: KL is a quadratic form of small changes; FP-2",
         .formula =
             "On a short window KL(p, p') <= s e^2, means over its positions. e: relative error of the "
             "replaced attention over all layers that rounding may make, FP-2's (or FP-1's) bound of the "
             "replacement plus the bound of a textbook form for the exact stream; s = KL / e^2 of the dial, "
             "exact + 2^-6 (mean of the values - exact) in the same heads.",
         .cause = "the replacement is not exact attention in some layer, or its rounding is far above its "
                  "declaration",
         .assumes = "The replacement is one variant that equals exact attention up to rounding. The model "
                    "answers in proportion, by s in any direction up to what rounding stays below its bound: "
                    "exceeding is a warning (uncertifiable), never a violation.",
         .nulls = BLIND},
    [EV_6] =
        {.name = "EV-6",
         .of = &of_models,
         .kind = KIND_HARD,
         .statement = "a layer's state moves by at most the norm of Wo times the change of its attention",
         .source = "attnlab: the definition of a matrix norm",
         .formula =
             "With a = mix, e_i the variant's output for row i less the exact one's, over the replaced "
             "heads, x_i and y_i the states after the first replaced layer's attention with mix a and "
             "-a: |x_i - y_i| <= 2 |a| |Wo| |e_i| + rounding. |Wo| <= (tr (Wo^T Wo)^32)^(1/64), needs no "
             "eigenvalues; rounding: of two products of width K = heads d with the Frobenius norm, "
             "gamma_(K+8) |Wo|_F (|o| + |o'|), and of the sums.",
         .cause = "a head's output is put in another's place, or a head that was not named is replaced",
         .assumes = "A layer is replaced. e is computed a second time, from the plan.",
         .nulls = BLIND},
    [EV_7] = {.name = "EV-7",
              .of = &of_models,
              .kind = KIND_HARD,
              .statement = "logits before a token stay bitwise the same when it and later tokens change",
              .source = "the definition of a causal model",
              .formula = "The logits of both models at positions before t, with other tokens from t on.",
              .cause = "a mask that is off by one, or a selection that looks ahead",
              .assumes = "Where it does not hold: the variant declares no exemption (ATTN_EXEMPT_ROWS, "
                         "ATTN_EXEMPT_LOOKAHEAD, ATTN_EXEMPT_CAUSAL).",
              .nulls = BLIND},
    [EV_8] = {.name = "EV-8",
              .of = &of_models,
              .kind = KIND_HARD,
              .statement = "with mix 0, or no head, a replacement is the exact model, bitwise",
              .source = "the definition of a replacement",
              .formula =
                  "o = o_exact + 0 (o_variant - o_exact), and the empty set of heads: the logits' bits.",
              .cause = "heads that were not named are replaced",
              .assumes = "Nothing.",
              .nulls = BLIND},
    [EV_9] =
        {.name = "EV-9",
         .of = &of_models,
         .kind = KIND_PROB,
         .statement = "on text drawn from the exact model the likelihood falls by the divergence on average",
         .source =
             "attnlab: E_p dNLL = KL(p, p'), position by position given the tokens before (Freedman 1975)",
         .formula =
             SYMBOLS "S = sum of dNLL - KL over all scored positions is a martingale whose step has the "
                     "variance Var_p(D) and is at most b = max R. With V = sum of Var_p(D), |S| <= 8 b / 3 + "
                     "sqrt(64 b^2 / 9 + 16 V), four standard errors where b is small; p = 2 exp(-S^2 / "
                     "(2 V + 2 b |S| / 3)), Freedman's, is 2 e^-8 there.",
         .cause = "the text is not drawn from this model's distribution, or the scored tokens are others",
         .assumes = "The task sample at temperature 1.",
         .nulls = BLIND},
    [EV_10] =
        {.name = "EV-10",
         .of = &of_models,
         .kind = KIND_HARD,
         .statement = "what greedy decoding writes is right, token by token, in one pass over it",
         .source = "attnlab: greedy decoding is exact iff each token is the most likely after the true ones",
         .formula =
             "Three tokens that greedy decoding adds to each of up to 8 beginnings of windows, a pass for "
             "each, scored as an answer: tokens that are not right.",
         .cause = "a token is compared with the logits of another position",
         .assumes =
             "The first run of those evaluated together; phase both; where it does not hold, no exemption "
             "(ATTN_EXEMPT_PREFIX, ATTN_EXEMPT_ROWS, ATTN_EXEMPT_LOOKAHEAD).",
         .nulls = BLIND},
};

const check *quality_check_at(size_t place) {
  size_t count = 0;
  while (checks_all[count]) count++;
  if (place < count) return checks_all[place];
  return place - count < QUALITY_CHECKS ? &quality_checks[place - count] : NULL;
}

const check *quality_check_find(const char *name) {
  const check *c;
  for (size_t i = 0; (c = quality_check_at(i)) && strcmp(c->name, name) != 0;) i++;
  return c;
}

void quality_checks_begin(result_bound cells[QUALITY_CHECKS]) {
  for (int i = 0; i < QUALITY_CHECKS; i++) {
    bound_begin(&cells[i], quality_checks[i].name, quality_checks[i].kind);
    cells[i].p_repeat = (double)NAN;
  }
}

/* Parts and expressions have exemptions that only a plan knows. */
static const char *exempt_part(const attn_problem *p, const attn_spec *spec, uint32_t properties) {
  static _Thread_local char reason[160];
  const char *why = NULL;
  attn_plan *plan = NULL;
  attn_view view;
  attn_status status = attn_plan_create_spec(&plan, p, spec, NULL);
  if (!status) status = attn_plan_inspect(plan, &view);
  why = status ? attn_last_error() : attn_exempt(view.exempt, properties);
  if (why) snprintf(reason, sizeof reason, "%s", why);
  attn_plan_destroy(plan);
  return why ? reason : NULL;
}

const char *quality_exempt(const data_llama *m, int64_t n, const data_llama_swap *swap, uint32_t properties) {
  const data_llama_config *c = data_llama_get_config(m);
  const char *why = NULL;
  attn_problem p = attn_problem_make(1, c->heads, n, c->head_dim);
  p.kv_heads = c->kv_heads;
  p.causal = true;
  for (; !why && swap; swap = swap->next) why = exempt_part(&p, swap->spec, properties);
  return why;
}

static bool is_finite(const quality_data *d, int64_t swap) {
  for (int64_t w = 0; w < d->windows; w++)
    for (int64_t i = 0; i < d->scored[w]; i++)
      if (isnan(d->points[(swap * d->windows + w) * d->positions + i].kl)) return false;
  return true;
}

static void judge_theorems(const quality_data *d, int64_t swap, result_bound *cells) {
  static const int of[THEOREMS] = {[THEOREM_KL] = EV_1, [THEOREM_DNLL] = EV_2, [THEOREM_TOP] = EV_3};
  const bool finite = is_finite(d, swap);
  for (int t = 0; t < THEOREMS; t++) {
    const quality_extreme *e = &d->extreme[swap][t];
    bound_hard(&cells[of[t]], e->measured, e->limit);
    if (!finite && cells[of[t]].verdict == VERDICT_PASS)
      bound_uncertifiable(&cells[of[t]], "logits of some positions are not finite");
  }
}

static void judge_drawn(const quality_checked *c, int64_t swap, result_bound *cell) {
  const quality_data *d = c->data;
  double sum = 0, variance = 0, most = 0;
  if (!c->windows->drawn) {
    bound_not_applicable(cell, "the text was not drawn from the model");
    return;
  }
  for (int64_t w = 0; w < d->windows; w++)
    for (int64_t i = 0; i < d->scored[w]; i++) {
      const quality_point *p = &d->points[(swap * d->windows + w) * d->positions + i];
      sum += (double)p->dnll - (double)p->kl;
      variance += (double)p->variance;
      most = fmax(most, (double)p->range);
    }
  if (isnan(sum)) {
    bound_uncertifiable(cell, "logits of some positions are not finite");
    return;
  }
  const double size = fabs(sum), limit = 8 * most / 3 + sqrt(64 * most * most / 9 + 16 * variance);
  const double p = size > 0 ? fmin(1, 2 * exp(-size * size / (2 * (variance + most * size / 3)))) : 1;
  bound_prob(cell, size, limit, p);
  if (!(size <= limit)) cell->verdict = VERDICT_VIOLATED;
}

attn_status quality_check(const quality_checked *c, bool whole, result_bound (*cells)[QUALITY_CHECKS]) {
  for (int64_t s = 0; s < c->count; s++) {
    quality_checks_begin(cells[s]);
    judge_theorems(c->data, s, cells[s]);
    judge_drawn(c, s, &cells[s][EV_9]);
    for (int i = 0; i < QUALITY_CHECKS; i++)
      if ((i == EV_4 || i == EV_10) && (!whole || s > 0))
        bound_not_applicable(&cells[s][i], "asked of the first run");
  }
  attn_status status = c->count > 0 ? quality_probe(c, whole, cells) : ATTN_OK;
  for (int64_t s = 0; !status && s < c->count; s++) status = quality_floor(c, &c->swaps[s], &cells[s][EV_5]);
  if (!status && whole && c->count > 0) status = quality_greedy(c, &cells[0][EV_10]);
  return status;
}
