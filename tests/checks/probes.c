/* probes.c - what the rows and heads that checks look at would miss: faults of one head, of one batch entry,
 * of one row at an edge, of early causal rows; of one element of one run of a property. */
#include "tests/support/checks_fake.h"
#include "tests/support/checks_shown.h"

#include "experiments/evidence/cache.h"
#include "experiments/evidence/probe.h"
#include "experiments/evidence/rows.h"
#include "experiments/evidence/support_row.h"
#include "experiments/reference/visible.h"

#include <stdatomic.h>

static bool violated(const evidence *e, const char *name) {
  return case_check(e, name).verdict == VERDICT_VIOLATED;
}

/* Over shapes and seeds: in how many of them does a check see that all (batch, head) but the first are
 * zero? */
static int zero_heads_seen(const char *spec, const char *name, bool causal, int cases) {
  int seen = 0;
  for (int s = 0; s < cases; s++) {
    attn_problem p = case_problem(2, 4, 2, 70 + s, 8, 6, causal, ATTN_F32);
    run_case *c = case_gaussian(spec, p, 0.5);
    c->e.seed = (uint64_t)s;
    cr_expect_neq(case_check(&c->e, name).verdict, VERDICT_VIOLATED, "%s, %s", spec, name);
    for (int64_t i = p.n_q * p.d_v; i < case_count_o(&p); i++) case_set(c, c->o, i, 0);
    seen += violated(&c->e, name);
    case_free(c);
  }
  return seen;
}

Test(checks_probes, every_head_of_every_batch_entry_is_looked_at) {
  static const struct {
    const char *spec, *check;
    bool causal;
  } cases[] = {{"performer:features=16", "FP-6", false},
               {"performer:features=16", "FP-6", true},
               {"performer:features=16,share_heads=no", "FP-6", false},
               {"linformer:k=12,projection=pool", "FP-6", false},
               {"tiled", "PROP-SHIFT", false},
               {"longformer:window=8", "PROP-SHIFT", false},
               {"bigbird:block=4", "PROP-SHIFT", true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int seen = zero_heads_seen(cases[i].spec, cases[i].check, cases[i].causal, 8);
    cr_expect_geq(seen, 4, "%s, %s: %d of 8", cases[i].spec, cases[i].check, seen);
  }
}

/* Heads that draw for themselves are compared with their own draws. */
Test(checks_probes, a_head_keeps_its_draws) {
  static const char *const specs[] = {
      "performer:features=16,share_heads=no", "performer:features=16,share_heads=no,kernel=trig",
      "linformer:k=12,projection=pool,share_heads=no", "bigbird:block=4,random=2"};
  static const char *const names[] = {"FP-6", "PROP-ONES", "PROP-HULL", "PROP-PERM", "PROP-SHIFT"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
    for (int s = 0; s < 8; s++) {
      attn_problem p = case_problem(2, 4, 2, 70 + s, 8, 6, false, ATTN_F32);
      run_case *c = case_gaussian(specs[i], p, 0.5);
      c->e.seed = (uint64_t)s;
      for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        cr_expect_neq(case_check(&c->e, names[n]).verdict, VERDICT_VIOLATED, "%s: %s", specs[i], names[n]);
      case_free(c);
    }
}

/* The probe of a causal run reaches its early rows, and its rows are those of the run. */
Test(checks_probes, windows_lie_anywhere) {
  static const char *const specs[] = {"tiled", "longformer:window=16", "performer:features=8"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    bool early = false, late = false, tile = false;
    for (int s = 0; s < 16; s++) {
      attn_problem p = case_problem(1, 2, 1, 400, 8, 6, true, ATTN_F32);
      run_case *c = case_gaussian(specs[i], p, 0.5);
      c->e.seed = (uint64_t)s;
      probe *x;
      cr_assert_eq(probe_get(&c->e, &x), ATTN_OK);
      int64_t rows[16], count = probe_pick(x, 16, rows);
      for (int64_t r = 0; r < count; r++) {
        int64_t row = x->rows[rows[r]] % p.n_q;
        cr_expect_eq(x->rows[rows[r]] / p.n_q, x->run_head);
        early |= row == 0;
        late |= row >= p.n_q - 64;
        tile |= row % 64 == 63;
        cr_expect_eq(visible_keys(&x->problem, rows[r], x->problem.n_kv), row + 1);
      }
      case_free(c);
    }
    cr_expect(early && late && tile, "%s: %d %d %d", specs[i], early, late, tile);
  }
}

/* -- exact rows -- */

Test(checks_probes, exact_rows_are_those_of_the_textbook) {
  for (int kind = 0; kind < 8; kind++) {
    attn_problem p =
        case_problem(2, 4, 2, kind & 4 ? 1300 : 70, 9, 7, kind & 1, kind & 2 ? ATTN_F64 : ATTN_F32);
    p.n_kv += kind & 4 ? 100 : -20;
    run_case *c = case_make(p, 1, 3);
    exact_rows *x;
    int64_t kv_len[] = {p.n_kv - 5, 33};
    cr_assert_eq(exact_rows_compute(&p, c->q, c->k, c->v, kv_len, 5, &x), ATTN_OK);
    cr_expect_eq(x->complete, !(kind & 4));
    cr_expect_eq(x->judged > x->count, !x->complete);
    double *weights = kept_memory(malloc((size_t)p.n_kv * sizeof(double))),
           *scratch = kept_memory(malloc((size_t)p.n_kv * sizeof(double))), o[7];
    for (int64_t r = 0; r < x->judged; r++) {
      const sample_row *at = &x->rows[r];
      int64_t keys = attn_reference_row(&p, NULL, c->q, c->k, c->v, kv_len, at->batch, at->head, at->i,
                                        weights, o, scratch);
      cr_assert_eq(keys, x->keys[r]);
      for (int64_t j = 0; j < p.n_kv; j++) cr_assert_float_eq(weights[j], x->p[r * p.n_kv + j], 1e-14);
      for (int64_t l = 0; l < 7; l++) cr_assert_float_eq(o[l], x->o[r * 7 + l], 1e-13);
    }
    exact_rows_free(x);
  }
}

/* From a score of 1 half a unit in its last place is lost 1023 times: what that does to the output is within
 * the rounding that the reference states. */
Test(checks_probes, the_reference_rounds_as_it_says) {
  attn_problem p = case_problem(1, 1, 1, 2, 1024, 1, false, ATTN_F64);
  p.n_q = 1;
  p.scale = 1;
  run_case *c = case_make(p, 0, 1);
  for (int64_t l = 0; l < 1024; l++) case_set(c, c->q, l, 1);
  for (int64_t l = 0; l < 1024; l++) case_set(c, c->k, l, l ? 0x1p-53 : 1);
  case_set(c, c->k, 1024, 1);
  case_set(c, c->v, 0, 1);
  case_set(c, c->v, 1, -1);
  case_run(c, "full", NULL);
  const attn_rounding own = row_reference_rounding(&c->problem, 2);
  head_data h;
  prior x;
  cr_assert(!head_data_load(&c->e, 0, 0, &h) && row_apriori_bound(&h, &own, 32, 0, 2, &x) == ROW_OK);
  const double off = fabs(c->exact->o[0] - tanh(1023 * 0x1p-54)),
               most = x.spread * row_range(&h, 0) + x.growth;
  cr_expect(off > 500 * 0x1p-53 && off <= most, "%g of %g", off, most);
  head_data_free(&h);
}

/* One bad row beside an edge of an early tile, of a head that is not the first. */
Test(checks_probes, bad_rows_at_edges_are_seen) {
  attn_problem p = case_problem(1, 4, 2, 1500, 8, 6, true, ATTN_F32);
  run_case *c = case_gaussian("tiled:path=fma", p, 0.5);
  static const int64_t bad[] = {0, 63, 64, 1499};
  for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
    int seen = 0;
    int64_t at = (2 * p.n_q + bad[b]) * p.d_v + 3;
    double right = case_get(c, c->o, at);
    case_set(c, c->o, at, right + 0.1);
    for (uint64_t seed = 0; seed < 8; seed++) {
      exact_rows_free(c->exact);
      cr_assert_eq(exact_rows_compute(&p, c->q, c->k, c->v, NULL, seed, &c->exact), ATTN_OK);
      c->e.exact = c->exact;
      seen += violated(&c->e, "FP-2");
    }
    cr_expect_geq(seen, 2, "row %lld: %d of 8", (long long)bad[b], seen);
    case_set(c, c->o, at, right);
  }
}

/* -- supports -- */

/* A law that the pattern's own function does not keep: the oracle takes the law, and of what is drawn the
 * function's word among the candidates alone. */
static bool law_sees(const void *state, int64_t head, int64_t position, int64_t key) {
  (void)state, (void)head;
  return llabs(position - key) <= 2;
}
static bool law_candidate(const void *state, int64_t head, int64_t position, int64_t block) {
  (void)state, (void)head;
  return block * 4 + 3 < position - 2;
}
static int64_t law_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)state, (void)head, (void)position;
  runs[0] = (attn_run){0, 8, 1};
  runs[1] = (attn_run){30, 1000, 1};
  return 2;
}

Test(checks_probes, supports_follow_the_law) {
  const attn_pattern pattern = {
      .row = law_row, .max_runs = 2, .sees = law_sees, .grain = 4, .drawn = 2, .candidate = law_candidate};
  attn_problem p = case_problem(1, 1, 1, 40, 8, 8, true, ATTN_F32);
  attn_run runs[2];
  bool inside[40];
  cr_expect_eq(visible_mark(&pattern, &p, 0, 0, 20, 40, runs, inside), 8 + 3);
  for (int64_t j = 0; j < 40; j++)
    cr_expect_eq(inside[j], j < 8 || (j >= 18 && j <= 20), "%lld", (long long)j);
  cr_expect_eq(visible_mark(&pattern, &p, 0, 0, 20, 19, runs, inside), 8 + 1);
  p.causal = false;
  cr_expect_eq(visible_mark(&pattern, &p, 0, 0, 20, 40, runs, inside), 8 + 5);
  cr_expect_eq(visible_runs(&pattern, &p, 0, 20, 40, runs), 2);
  cr_expect_eq(runs[1].count, 10);
  const attn_pattern plain = {.row = law_row, .max_runs = 2};
  p.causal = true;
  cr_expect_eq(visible_mark(&plain, &p, 0, 0, 31, 40, runs, inside), 10);
}

/* -- a check that compared nothing -- */

static outcome judge_nothing(const evidence *e, const row_facts *f, const double *given) {
  (void)e, (void)f, (void)given;
  return (outcome)OUTCOME_NONE;
}

Test(checks_probes, nothing_compared_is_no_pass) {
  run_case *c = case_gaussian("tiled", case_problem(1, 1, 1, 20, 4, 4, false, ATTN_F32), 1);
  result_bound b;
  bound_begin(&b, "test", KIND_HARD);
  cr_assert_eq(facts_check(&c->e, judge_nothing, &b), ATTN_OK);
  cr_expect_eq(b.verdict, VERDICT_NOT_APPLICABLE);
  exact_rows none = *c->exact;
  none.count = none.judged = 0;
  c->e.exact = &none;
  cr_expect_eq(case_check(&c->e, "FP-2").verdict, VERDICT_NOT_APPLICABLE);
  cr_expect_eq(case_check(&c->e, "PROP-HULL").verdict, VERDICT_NOT_APPLICABLE);
  outcome worst = OUTCOME_NONE;
  outcome_worsen(&worst, (outcome){.measured = 0, .value = 0});
  outcome_worsen(&worst, (outcome)OUTCOME_NONE);
  outcome_to_verdict(&worst, &b);
  cr_expect_eq(b.verdict, VERDICT_PASS);
  outcome_worsen(&worst, (outcome){.measured = 1, .value = (double)INFINITY});
  outcome_worsen(&worst, (outcome){.measured = 1, .value = 2});
  outcome_to_verdict(&worst, &b);
  cr_expect(b.verdict == VERDICT_UNCERTIFIABLE && b.measured == 1, "an infinite bound: %s", b.message);
  outcome_worsen(&worst, (outcome){.measured = 3, .value = 2});
  outcome_to_verdict(&worst, &b);
  cr_expect_eq(b.verdict, VERDICT_VIOLATED);
}

/* -- properties: one wrong element -- */

static atomic_int calls;
static int wrong_call;
static double wrong_by = 10;
static bool wrong_sums, wrong_last,
    wrong_done;           /* the first element of a row, or the last of one of the last head */
static int64_t wrong_row; /* counted from the end where it is negative; -2 is of the last head */
static char wrong_place[2][40];

static attn_status wrong_execute(const void *plan, const attn_call *c) {
  const attn_problem *p = c->context->problem;
  const int64_t lines = p->batch * p->heads, i = wrong_row < 0 ? p->n_q + wrong_row : wrong_row,
                line = wrong_last || wrong_row == -2 ? lines - 1 : 0, l = wrong_last ? p->d_v - 1 : 0;
  const attn_status status = shown_execute(plan, c);
  double *sums = c->lse;
  if (status || atomic_fetch_add(&calls, 1) != wrong_call || (wrong_sums && !sums)) return status;
  char *o = (char *)(uintptr_t)attn_rows(c->o, p->o, line / p->heads, line % p->heads, p->dtype);
  const attn_dtype stored = attn_stored(p->o, p->dtype);
  if (wrong_sums)
    sums[line * p->n_q + i] = wrong_last ? (double)NAN : 10;
  else
    attn_set(o, i * p->o.row + l, stored,
             wrong_last ? (double)NAN : attn_get(o, i * p->o.row + l, stored) + wrong_by);
  snprintf(wrong_place[0], sizeof *wrong_place, "head %d, row %d", (int)(line % p->heads), (int)i);
  snprintf(wrong_place[1], sizeof *wrong_place, "component %d is", (int)l);
  wrong_done = true;
  return ATTN_OK;
}

static DESCRIBE_METHOD(wrong_describe, NO_ROUNDING, .work_size = shown_work_size, .plan = shown_plan,
                       .execute = wrong_execute, .inspect = shown_inspect);

/* Whichever run has it, from the first that a property compares to its last. */
Test(checks_probes, one_wrong_element_of_any_run_of_a_property_is_found) {
  static const struct {
    const char *name;
    int first, runs, numbers; /* numbers: that differ where the first is wrong, if they are counted */
    int64_t rows[2];          /* that are compared in every run */
    bool sums;
  } of[] = {{"PROP-REPEAT", 0, 6, 1, {0, -1}, 0},   {"PROP-THREADS", 0, 2, 1, {0, -1}, 0},
            {"PROP-PAD", 1, 4, 2, {0, -1}, 0},      {"PROP-CAUSAL", 0, 4, 3, {0, 0}, 0},
            {"PROP-ROW", 0, 3, 2, {10, 192}, 0},    {"PROP-PREFIX", 0, 7, 1, {0, 0}, 0},
            {"PROP-GQA", 0, 2, 1, {0, -1}, 0},      {"PROP-VALUES", 1, 2, 1, {0, -1}, 0},
            {"PROP-BOUNDS", 0, 4, 1, {0, -1}, 0},   {"PROP-HALF", 1, 5, 1, {0, -1}, 0},
            {"PROP-LEN", 0, 7, 0, {0, -1}, 0},      {"PROP-LONG", 1, 2, 0, {0, -1}, 0},
            {"PROP-EMPTY", 1, 4, 1, {-2, -1}, 0},   {"PROP-LSE", 0, 6, 0, {0, -1}, 0},
            {"PROP-LSE", 1, 6, 0, {0, -1}, 1},      {"SINK-1", 0, 2, 0, {0, -1}, 0},
            {"SINK-1", 1, 2, 0, {0, -1}, 1},        {"PROP-BATCH", 1, 10, 1, {0, -1}, 0},
            {"PROP-BATCH", 1, 10, 0, {0, -1}, 1},   {"PROP-STRIDES", 0, 5, 1, {0, -1}, 0},
            {"PROP-EXTREME", 1, 18, 0, {0, -1}, 0}, {"PROP-REENTRANT", 0, 7, 6, {0, -1}, 0}};
  variant_described("tiled", "wrong_tiled", wrong_describe);
  shown = (struct shown){"tiled", NULL};
  run_case *c = case_gaussian("wrong_tiled", case_problem(1, 1, 1, 20, 6, 5, true, ATTN_F32), 1);
  for (size_t t = 0; t < sizeof of / sizeof *of; t++)
    for (int turn = 0; turn < 2 * (of[t].runs - of[t].first + 1); turn++) {
      char counted[40] = "";
      calls = 0;
      wrong_call = of[t].first + turn / 2;
      wrong_sums = of[t].sums;
      wrong_last = turn % 2;
      wrong_done = false;
      wrong_row = of[t].rows[turn % 2];
      const result_bound b = case_check(&c->e, of[t].name);
      if (of[t].numbers)
        snprintf(counted, sizeof counted, ", %d numbers differ", turn < 2 ? of[t].numbers : 1);
      cr_expect(wrong_done
                    ? b.verdict == VERDICT_VIOLATED && strstr(b.message, counted) &&
                          (strstr(b.message, wrong_place[0]) || strstr(b.message, "sum-exp is another")) &&
                          (strstr(b.message, wrong_place[1]) || !of[t].numbers)
                    : b.verdict == VERDICT_PASS && calls == of[t].runs,
                "%s, run %d of %d: %s, not %s, %s%s", of[t].name, wrong_call, calls, b.message,
                wrong_place[0], wrong_place[1], counted);
    }
}

static attn_rounding declared; /* of operands and weights */
static void declare(attn_view *view) {
  view->rounding.operand = declared.operand;
  view->rounding.weight = declared.weight;
}

/* What operands and weights are said to be rounded by is allowed beside the rounding of outputs. */
Test(checks_probes, halves_may_be_off_by_what_is_declared) {
  static const attn_rounding of[] = {
      {.weight = 0x1p-8}, {.operand = 0x1p-8}, {.operand = 0x1p-8, .weight = 0x1p-8}};
  variant_described("tiled", "wrong_tiled", wrong_describe);
  shown = (struct shown){"tiled", declare};
  wrong_by = 0.15;
  wrong_call = 1;
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    declared = of[i];
    run_case *c = case_gaussian("wrong_tiled", case_problem(1, 1, 1, 20, 6, 5, true, ATTN_F32), 1);
    calls = 0;
    expect_verdict(&c->e, "PROP-HALF", i == 2 ? VERDICT_PASS : VERDICT_VIOLATED, "declared");
  }
}
