/* floating.c - the rounding bounds: they hold on correct outputs, also on hostile inputs, and reject wrong
 * ones. */
#include "tests/support/checks_fake.h"

#include "experiments/evidence/rounding/declared.h"
#include "experiments/evidence/support_row.h"

static const char *const specs[] = {"full", "tiled", "tiled:block_k=16", "tiled:block_q=3,block_k=1",
                                    "tiled:path=split"};

static bool has_dtype(const char *spec, attn_dtype type) {
  return type == ATTN_F32 || !strstr(spec, "split");
}

static const char *first_bound(const char *spec) { return strncmp(spec, "full", 4) == 0 ? "FP-1" : "FP-2"; }

static void expect_exact(run_case *c, const char *spec, check_verdict want, const char *what) {
  expect_verdict(&c->e, first_bound(spec), want, what);
  expect_verdict(&c->e, "FP-3", want, what);
}

static attn_problem small(attn_dtype type, bool causal) {
  attn_problem p = case_problem(2, 4, 2, 65, 24, 17, causal, type);
  p.n_kv = 129;
  return p;
}

Test(checks_floating, correct_outputs_pass) {
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int causal = 0; causal < 2; causal++)
      for (int type = 0; type < 2; type++)
        for (double std = 0.01; std < 100 && has_dtype(specs[s], type ? ATTN_F64 : ATTN_F32); std *= 10) {
          run_case *c = case_gaussian(specs[s], small(type ? ATTN_F64 : ATTN_F32, causal), std);
          expect_exact(c, specs[s], VERDICT_PASS, specs[s]);
          case_free(c);
        }
}

Test(checks_floating, padding_and_rows_without_keys) {
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
    attn_problem p = small(ATTN_F32, true);
    p.n_kv = 40; /* the first queries see no key */
    run_case *c = case_make(p, 1, 3);
    c->kv_len[0] = 31;
    c->kv_len[1] = 0;
    case_run(c, specs[s], c->kv_len);
    expect_exact(c, specs[s], VERDICT_PASS, "padding");
    case_set(c, c->o, case_count_o(&p) - 1, 1e-30); /* of a row that sees no key */
    result_bound b = case_check(&c->e, first_bound(specs[s]));
    cr_expect_eq(b.verdict, VERDICT_VIOLATED);
  }
}

/* Scores in the thousands, near ties, huge and tiny values, one enormous key. */
static void make_hostile(run_case *c, int kind) {
  attn_problem *p = &c->problem;
  for (int64_t i = 0; i < case_count_k(p); i++) {
    int64_t j = i / p->d_qk % p->n_kv;
    double x = case_get(c, c->k, i);
    if (kind == 0) x *= 300;
    if (kind == 1) x = case_get(c, c->k, i % p->d_qk) * (1 + 1e-7 * (double)(j % 5));
    if (kind == 2 && j == p->n_kv / 2) x *= 1e4;
    if (kind == 3) x *= 1e-22;
    if (kind == 4) x = fabs(x) * (1 + (double)j); /* a new maximum in every block */
    case_set(c, c->k, i, x);
  }
  for (int64_t i = 0; i < case_count_q(p) && kind == 4; i++) case_set(c, c->q, i, fabs(case_get(c, c->q, i)));
  for (int64_t i = 0; i < case_count_q(p) && kind == 3; i++)
    case_set(c, c->q, i, 1e-22 * case_get(c, c->q, i));
  for (int64_t i = 0; i < case_count_v(p); i++) {
    double x = case_get(c, c->v, i);
    case_set(c, c->v, i, kind == 1 ? 1e30 * x : kind == 2 ? x + 1000 : kind == 3 ? 1e-40 * x : x);
  }
}

Test(checks_floating, hostile_inputs_stay_inside) {
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
    for (int kind = 0; kind < 5; kind++)
      for (int causal = 0; causal < 2; causal++) {
        attn_problem p = attn_problem_make(1, 1, 2048, 64);
        p.causal = causal;
        p.n_q = 24;
        run_case *c = case_make(p, 1, 9);
        make_hostile(c, kind);
        case_run(c, specs[s], NULL);
        const char *what = text_of("%s kind %d causal %d", specs[s], kind, causal);
        expect_holds(&c->e, first_bound(specs[s]), what);
        expect_holds(&c->e, "FP-3", what);
        case_free(c);
      }
}

Test(checks_floating, one_wrong_component_fails) {
  for (size_t s = 0; s < 2; s++) {
    run_case *c = case_gaussian(specs[s], small(ATTN_F32, false), 1);
    int64_t at = case_count_o(&c->problem) * 3 / 7;
    double right = case_get(c, c->o, at);
    result_bound b = case_check(&c->e, first_bound(specs[s]));
    cr_assert_eq(b.verdict, VERDICT_PASS);
    cr_expect_lt(b.value, case_check(&c->e, "FP-3").value); /* it is the sharper of the two */
    case_set(c, c->o, at, right + 1e-3);
    expect_exact(c, specs[s], VERDICT_VIOLATED, "one component");
    case_set(c, c->o, at, (double)NAN);
    expect_exact(c, specs[s], VERDICT_VIOLATED, "a NaN");
  }
}

Test(checks_floating, overflow_and_infinity_are_uncertifiable) {
  run_case *c = case_make(small(ATTN_F32, false), 1e19, 1);
  case_run(c, "tiled", NULL);
  expect_exact(c, "tiled", VERDICT_UNCERTIFIABLE, "overflow");
  cr_expect_str_eq(case_check(&c->e, "FP-2").message, row_reason(ROW_OVERFLOW));
  c = case_make(small(ATTN_F32, false), 1, 1);
  case_set(c, c->v, 5, (double)INFINITY);
  case_run(c, "tiled", NULL);
  expect_exact(c, "tiled", VERDICT_UNCERTIFIABLE, "infinite");
}

/* Of two keys, and of a sink of value 0: what each member of the descriptor adds to the bounds, to first
 * order. */
Test(checks_floating, every_member_of_the_rounding_counts) {
  const double u = 0x1p-28, once = 0x1p-22, lambda = sqrt(2 * log(8e6)), k[] = {1, -2, 0.5}, v[] = {1, -3, 0};
  for (int i = 0; i < 20; i++) {
    const int member = i / 2, sink = i % 2;
    const attn_rounding own = {.unit = u,
                               .score = 50 * (member == 1),
                               .value = member == 9 ? 5 : 50 * (member == 2),
                               .sum = 50 * (member == 3),
                               .block = member == 9,
                               .exp_error = once * (member == 6 || member == 9),
                               .kappa_s = 50 * (member == 4),
                               .kappa_d = 50 * (member == 5),
                               .operand = once * (member == 7),
                               .weight = once * (member == 8)},
                        *r = &own;
    const int count = 2 + sink, steps = r->block ? 2 : 1;
    double bound[2] = {0}, p[3], o = 0, sum = 0, far = 0, off = u * (double)r->sum, found[2] = {0};
    for (int j = 0; j < count; j++) sum += exp(k[j]);
    for (int j = 0; j < count; j++) o += (p[j] = exp(k[j]) / sum) * v[j];
    for (int model = 1; model >= 0; model--) {
      const double score = (double)r->score + 3, sums = (double)(r->value + r->sum) + r->kappa_d,
                   chain = u * (model ? fmin(score, lambda * sqrt(score)) : score) + 2 * r->operand,
                   growth = u * (model ? fmin(sums, lambda * sqrt(sums)) : sums) + r->operand;
      for (int j = 0; j < count; j++) {
        const double h = (j < 2 ? chain : 2 * u) * fabs(k[j]) + r->kappa_s * u * (1 - k[j]) +
                         (j == 1 ? 1 : steps) * r->exp_error + r->weight;
        off += model ? 0 : p[j] * (h + (j == 1) * (steps - 1) * r->exp_error); /* in no order */
        bound[model] += p[j] * (h * fabs(v[j] - o) + growth * fabs(v[j]));
      }
      far = 2 * (2 * chain + 15 * sink * u + (4 + sink) * r->kappa_s * u + steps * r->exp_error + r->weight) +
            3 * growth;
    }
    fake_reset(weight_exact);
    fake.view.rounding = *r;
    fake.view.caps |= ATTN_CAP_EXACT;
    attn_problem problem = case_problem(1, 1, 1, 2, 1, 1, false, ATTN_F64);
    problem.n_q = 1;
    run_case *c = case_make(problem, 1, 1);
    case_set(c, c->q, 0, 1);
    for (int j = 0; j < 2; j++) case_set(c, c->k, j, k[j]), case_set(c, c->v, j, v[j]);
    case_run(c, "fake", NULL);
    problem = *c->e.problem;
    if (sink) problem.score.sink = &k[2];
    c->e.problem = &problem;
    const char *names[] = {r->operand > 0 ? "FP-4" : r->block ? "FP-2" : "FP-1", "FP-5", "FP-3"};
    const double want[] = {bound[0], bound[1], far};
    for (int n = 0; n < 3; n++) {
      const result_bound b = case_check(&c->e, names[n]);
      const bool none = n == 1 && (double)row_chain(r) <= lambda * lambda;
      cr_expect(none ? b.verdict == VERDICT_NOT_APPLICABLE : fabs(b.value / want[n] - 1) < 1e-5,
                "%s of member %d, sink %d: %g, not %g", names[n], member, sink, b.value, want[n]);
    }
    head_data head;
    row_space s;
    row_extremes most;
    cr_assert(!head_data_load(&c->e, 0, 0, &head) && !row_space_make(&problem, NULL, &s));
    row_support(&head, NULL, 0, &s);
    s.q[0] = 1;
    cr_assert(!row_attend(&head, NULL, &s, &most) && !row_log_sum(&head, r, &most, &s, &found[0], &found[1]));
    cr_expect(fabs(found[0] - log(sum)) < 1e-12 && fabs(found[1] / off - 1) < 1e-5,
              "log-sum %g, %g, not %g, %g", found[0], found[1], log(sum), off);
    row_space_free(&s);
    head_data_free(&head);
  }
}

/* -- FP-5 -- */

Test(checks_floating, the_model_holds_and_is_sharper) {
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
    attn_problem p = attn_problem_make(1, 1, 16, 32);
    p.n_kv = 3000;
    run_case *c = case_make(p, 1, 100);
    for (int64_t i = 0; i < case_count_v(&p); i++) case_set(c, c->v, i, 1 + fabs(case_get(c, c->v, i)));
    case_run(c, specs[s], NULL);
    result_bound model = case_check(&c->e, "FP-5"), sure = case_check(&c->e, first_bound(specs[s]));
    cr_expect(model.verdict == VERDICT_CONSISTENT && model.kind == KIND_MODEL, "%s: %g of %g, %s", specs[s],
              model.measured, model.value, model.message);
    cr_expect_lt(model.value, 0.9 * sure.value, "%s", specs[s]);
  }
}

/* Errors between the two bounds: a warning, where FP-1 passes. NaN is a warning as well. */
Test(checks_floating, the_model_warns_and_never_fails) {
  fake_reset(weight_exact);
  fake.gain = 1 + 2e-4;
  run_case *c = case_gaussian("fake", attn_problem_make(1, 1, 400, 16), 1);
  expect_verdict(&c->e, "FP-1", VERDICT_PASS, "gain");
  expect_verdict(&c->e, "FP-5", VERDICT_UNCERTIFIABLE, "gain");
  cr_expect(strncmp(case_check(&c->e, "FP-5").message, "warning", 7) == 0);
  case_set(c, c->o, 0, (double)NAN);
  expect_verdict(&c->e, "FP-5", VERDICT_UNCERTIFIABLE, "NaN");
}

/* Of one key REC-1 allows as many roundings as its rule has, and certifies nothing that may overflow. */
Test(checks_floating, one_key_of_a_recurrence) {
  static const char *const rules[] = {"recurrent:chunk=16", "recurrent:rule=gla,chunk=16",
                                      "recurrent:rule=ssd,chunk=16", "recurrent:rule=delta,chunk=16",
                                      "recurrent:normaliser=rows,chunk=16"};
  static const double roundings[] = {29, 29 + 64 + 96, 29 + 3, 2 * (29 + 9), 2 * 29 + 4};
  for (int64_t t = 0; t < 7; t++) {
    run_case *c = case_make(case_problem(1, 1, 1, 1, 1, 1, true, ATTN_F32), 1, 100);
    case_set(c, c->q, 0, 1), case_set(c, c->k, 0, 1);
    case_set(c, c->v, 0, t > 4 ? 0x1p125 : 0x1p124);
    case_run(c, rules[t % 5], NULL);
    const result_bound b = case_check(&c->e, "REC-1");
    const double allowed = roundings[t % 5] * 0x1p-24 * fabs(case_get(c, c->o, 0));
    cr_expect(t > 4 ? b.verdict == VERDICT_UNCERTIFIABLE : fabs(b.value / allowed - 1) < 0.01,
              "%s: %g, not %g", rules[t % 5], b.value, allowed);
  }
}

Test(checks_floating, what_is_declared_beyond_the_textbook_is_named) {
  static const char *const names[] = {"",        "score",   "value", "sum",     "unit",   "exp_error",
                                      "kappa_s", "kappa_d", "map",   "operand", "weight", "underflow"};
  const attn_problem p = case_problem(1, 1, 1, 40, 8, 5, false, ATTN_F32);
  for (size_t m = 0; m < sizeof names / sizeof *names; m++) {
    fake_reset(weight_exact);
    attn_rounding *r = &fake.view.rounding;
    *r = rounding_textbook(&p);
    int64_t *const chains[] = {&r->score, &r->value, &r->sum};
    double *const numbers[] = {&r->unit, &r->exp_error, &r->kappa_s, &r->kappa_d,
                               &r->map,  &r->operand,   &r->weight,  &r->underflow};
    if (m > 3) *numbers[m - 4] += 0x1p-22 + *numbers[m - 4] / 4;
    if (m && m <= 3) ++*chains[m - 1];
    const result_bound b = case_judge("fake", p, 1, "FP-0");
    const char *text = text_of("declares more rounding than the textbook's f32: %s = ", names[m]);
    cr_expect(m ? strstr(b.message, text) && !strchr(b.message, ',') : b.verdict == VERDICT_NOT_APPLICABLE,
              "%s: %s", names[m], b.message);
  }
}
