/* fp_exact.c - FP-1 ... FP-5: rounding is the only error of an exact algorithm.
 *
 * For a variant with a pattern the exact row is softmax over the pattern's keys: its rounding is judged apart
 * from what the pattern leaves out. Zeros, the mean of V and random keys are rejected on any input where a
 * row's exact output differs from theirs by more than rounding; on all-equal values the last two are exact,
 * and not told apart. */
#include "experiments/checks/check_table.h"

#include "experiments/evidence/rows.h"

static outcome judge_row(const evidence *e, const row_facts *f, const double *given) {
  if (f->bounded != ROW_OK) return (outcome){.why = row_reason(f->bounded)};
  return outcome_rounded(given, f->o, f->bound, e->problem->d_v, f->size);
}

static outcome judge_prior(const evidence *e, const row_facts *f, const double *given) {
  row_verdict verdict = f->known != ROW_OK ? f->known : f->reference;
  if (verdict != ROW_OK) return (outcome){.why = row_reason(verdict)};
  return outcome_rounded(given, f->exact, f->prior, e->problem->d_v, f->size);
}

static bool described(const evidence *e, result_bound *bound) {
  if (e->view->rounding.unit > 0) return true;
  bound_not_applicable(bound, "the variant describes no rounding");
  return false;
}

static attn_status row_evaluate(const evidence *e, result_bound *bound) {
  if (!described(e, bound)) return ATTN_OK;
  if (e->view->rounding.operand > 0)
    return bound_not_applicable(bound, "the operands are rounded to a shorter format: FP-4 judges that");
  return facts_check(e, judge_row, bound);
}

static attn_status short_evaluate(const evidence *e, result_bound *bound) {
  if (!described(e, bound)) return ATTN_OK;
  return facts_check(e, judge_row, bound);
}

static attn_status prior_evaluate(const evidence *e, result_bound *bound) {
  if (!described(e, bound)) return ATTN_OK;
  if (e->view->pattern || e->view->selector)
    return bound_not_applicable(bound,
                                "a pattern or a selection leaves keys out: the error is not rounding alone");
  return facts_check(e, judge_prior, bound);
}

static outcome judge_model(const evidence *e, const row_facts *f, const double *given) {
  if (f->modelled != ROW_OK) return (outcome){.why = row_reason(f->modelled)};
  return outcome_components(given, f->o, f->model, e->problem->d_v);
}

static attn_status model_evaluate(const evidence *e, result_bound *bound) {
  if (!described(e, bound)) return ATTN_OK;
  double lambda = row_lambda(e);
  if (!((double)row_chain(&e->view->rounding) > lambda * lambda))
    return bound_not_applicable(bound,
                                "chains of at most lambda^2 roundings: the model gains nothing over FP-1");
  attn_status status = facts_check(e, judge_model, bound);
  if (!status && (bound->verdict == VERDICT_PASS || bound->verdict == VERDICT_VIOLATED))
    bound_model(bound, bound->measured, bound->value);
  return status;
}

#define ROW_FORMULA                                                                          \
  "With p exact weights, s_j scores, m their maximum, c the scale, u the unit roundoff, "    \
  "gamma_k = k u / (1 - k u), D_s, D_N, D_Z the chains of a score, of numerator and "        \
  "denominator, R_j the rescales after key j: |o^_l - o_l| <= [sum_j p_j (e^h_j - 1) |v_jl " \
  "- o_l| + G sum_j p_j e^h_j |v_jl|] / sum_j p_j e^-h_j + underflow, G = gamma_(D_N + D_Z " \
  "+ kappa_d), h_j = e_j + kappa_s u (1+u) (m - s_j + e_j + max e) - (1 + R_j) ln(1 - "      \
  "exp_error), e_j = gamma_(D_s+3) |c| sum_l |q_l k_jl|."
#define DESCRIBED                                                                           \
  "The descriptor (attn_rounding) states the true chains of roundings; inputs are finite, " \
  "no score and no weighted sum can overflow, no chain is as long as 1/u. Else "            \
  "uncertifiable; vacuous, too, where a bound that holds is above 1 % of the largest value."
#define GAUSSIAN "Gaussian inputs of std 1, n = 96"

const check check_fp1 = {
    .name = "FP-1",
    .of = &of_whole_softmax,
    .kind = KIND_HARD,
    .statement = "every component differs from exact fp64 attention by at most its running rounding bound",
    .source = "derived: sharp perturbation identity of softmax with Higham 2002, Lemma 3.1",
    .formula = ROW_FORMULA,
    .assumes = DESCRIBED " For a variant with a pattern or a selector, exact means softmax over its keys.",
    .nulls = CHECK_REJECTS_ALL(GAUSSIAN),
    .evaluate = row_evaluate,
};

const check check_fp2 = {
    .name = "FP-2",
    .of = &of_online_softmax,
    .kind = KIND_HARD,
    .statement =
        "as FP-1 for the online softmax: chains of B + 2T instead of n, rescales as errors of the weights",
    .source = "derived: the subtractions of the running maximum telescope; Higham 2002, Lemma 3.1",
    .formula =
        ROW_FORMULA " Online: D_N = D_Z = B + 2T for T steps of B keys, R_j the steps after that of key j.",
    .assumes = DESCRIBED " For a variant with a pattern or a selector, exact means softmax over its keys.",
    .nulls = CHECK_REJECTS_ALL(GAUSSIAN),
    .evaluate = row_evaluate,
};

const check check_fp3 = {
    .name = "FP-3",
    .of = &of_exact,
    .kind = KIND_HARD,
    .statement =
        "every component differs from exact attention by at most tanh(H/2) osc V + G max|V|, known a priori",
    .source =
        "derived: total variation of two softmaxes whose scores differ by at most H is at most tanh(H/2)",
    .formula = "|o^_l - o_l| <= tanh(H/2) (max_j v_jl - min_j v_jl) + G max_j |v_jl| + underflow, H = e "
               "+ kappa_s u (1+u) (2 |c| |q| K + 2 e) - (1 + R) ln(1 - exp_error), e = gamma_(D_s+3) |c| "
               "|q| K, K = max_j |k_j|, G as in FP-1.",
    .assumes = DESCRIBED " Every key is kept (no pattern).",
    .nulls = CHECK_REJECTS_ALL(GAUSSIAN),
    .evaluate = prior_evaluate,
};

const check check_fp4 = {
    .name = "FP-4",
    .of = &of_short_operands,
    .kind = KIND_HARD,
    .statement =
        "as FP-2 with Q, K, V and the weights rounded to bf16, against exact attention on the unrounded ones",
    .source =
        "derived: rounded operands enlarge every product, rounded weights the error of their logarithms",
    .formula = "FP-2 where operands are x (1 + delta), |delta| <= r, and weights are rounded by w before "
               "both sums: 1 + gamma becomes (1 + r)^2 (1 + gamma) in e_j, 1 + G becomes (1 + r)(1 + G), "
               "and h_j grows by -ln(1 - w). r = w = 2^-8 for bf16.",
    .assumes = DESCRIBED " Operands are rounded to a shorter format than the tensors'.",
    .nulls = CHECK_REJECTS_ALL("Gaussian inputs of std 0.5, n = 96"),
    .evaluate = short_evaluate,
};

const check check_fp5 = {
    .name = "FP-5",
    .of = &of_softmax,
    .kind = KIND_MODEL,
    .statement = "as FP-1 and FP-2 with chains that grow as the square root of their length",
    .source = "Higham and Mary 2019, SIAM J. Sci. Comput. 41, Thm 2.4; Hoeffding on independent roundings of "
              "mean 0",
    .formula = "FP-1 with gamma_k replaced by min(gamma_k, e^(lambda sqrt(k) u + k u^2/(1-u)) - 1), lambda "
               "= sqrt(2 ln(2 N/alpha))/(1-u), N = rows x keys x (d_v + 1) chains of roundings, alpha = "
               "1e-6.",
    .assumes = DESCRIBED
    " Roundings are independent with mean 0, which sums of one sign can break: exceeding the bound "
    "is a warning (uncertifiable), never a violation. Only for chains longer than lambda^2.",
    .nulls = CHECK_REJECTS_ALL(GAUSSIAN " (a warning)"),
    .evaluate = model_evaluate,
};
