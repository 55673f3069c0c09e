/* refused.c - checks whose allocations are refused, and of variants that fail: without memory, and without an
 * output, there is no verdict. */
#include "tests/checks/check_records.h"
#include "tests/support/checks_shown.h"
#include "tests/support/refuse.h"

#include <gsl/gsl_errno.h>
#include <stdatomic.h>

enum { PLACES = 6 };

/* Executes as the variant that it stands in for, except one execution. */
static atomic_long executions;
static long failing = -1;

static attn_status failing_execute(const void *inner, const attn_call *call) {
  if (atomic_fetch_add(&executions, 1) == failing) return attn_fail(ATTN_EFOREIGN, "an execution failed");
  return shown_execute(inner, call);
}

static DESCRIBE_METHOD(failing_describe, NO_ROUNDING, .work_size = shown_work_size, .plan = shown_plan,
                       .execute = failing_execute, .inspect = shown_inspect);

static void change_nothing(attn_view *view) { (void)view; }

/* calls: its allocations. */
static result_bound judged(const check *c, const evidence *of, long at, long *calls) {
  evidence e = *of;
  result_bound b;
  e.cache = block_cache_create();
  refuse_from(at, false);
  check_evaluate(c, &e, &b);
  *calls = refuse_calls();
  refuse_from(-1, false);
  block_cache_free(e.cache);
  return b;
}

/* CACHE-1 and CACHE-2 call it a fault of a cache that an execution failed. */
static void expect_no_verdict(const result_bound *b, const result_bound *usual, const char *what, long at,
                              long of) {
  const bool said = b->verdict == VERDICT_ERROR || b->verdict == VERDICT_UNCERTIFIABLE,
             blamed = b->verdict == VERDICT_VIOLATED && strstr(b->message, "an execution failed"),
             same =
                 b->verdict == usual->verdict && memcmp(&b->measured, &usual->measured, sizeof(double)) == 0;
  cr_expect((said && *b->message) || blamed || same, "%s, %s %ld of %ld: verdict %d, %g instead of %g, %s",
            b->name, what, at, of, (int)b->verdict, b->measured, usual->measured, b->message);
}

static run_case *run_record(const record *x, const char *variant) {
  run_case *c = make_input(x);
  case_run(c, text_of("%s%s%s", variant, *x->parameters ? ":" : "", x->parameters), NULL);
  return c;
}

static void try_refusals(const record *x) {
  run_case *c = run_record(x, x->variant);
  const check *of = check_find(x->check);
  long calls, used;
  const result_bound usual = judged(of, &c->e, -1, &calls);
  const long places = calls < PLACES ? calls : PLACES;
  for (long k = 0; k < places; k++) {
    const result_bound b = judged(of, &c->e, k * calls / places, &used);
    expect_no_verdict(&b, &usual, "allocation", k * calls / places, calls);
  }
  case_free(c);
}

static void try_failures(const record *x) {
  long used;
  const char *name = text_of("failing_%s", x->variant);
  shown = (struct shown){x->variant, change_nothing};
  const attn_variant *known;
  if (attn_variant_find(name, &known)) variant_described(x->variant, strdup(name), failing_describe);
  failing = -1;
  run_case *c = run_record(x, name);
  const check *of = check_find(x->check);
  atomic_store(&executions, 0);
  const result_bound usual = judged(of, &c->e, -1, &used);
  const long calls = atomic_load(&executions), places = calls < PLACES ? calls : PLACES;
  for (long k = 0; k < places; k++) {
    atomic_store(&executions, 0);
    failing = k * calls / places;
    const result_bound b = judged(of, &c->e, -1, &used);
    expect_no_verdict(&b, &usual, "execution", failing, calls);
  }
  failing = -1;
  case_free(c);
}

Test(checks_refused, no_verdict_without_memory, .timeout = 300) {
  gsl_set_error_handler_off(); /* as the program does */
  cr_assert_eq(attn_variant_register(&attn_variant_planted_sample), ATTN_OK);
  for (size_t r = 0; r < sizeof records / sizeof *records; r++) try_refusals(&records[r]);
}

Test(checks_refused, no_verdict_without_an_output, .timeout = 300) {
  cr_assert_eq(attn_variant_register(&attn_variant_planted_sample), ATTN_OK);
  for (size_t r = 0; r < sizeof records / sizeof *records; r++)
    if (!strchr(records[r].variant, '(')) try_failures(&records[r]);
}
