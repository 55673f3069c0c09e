/* refused.c - checks whose allocations are refused: without memory there is no verdict. */
#include "tests/checks/check_records.h"
#include "tests/support/refuse.h"

#include <gsl/gsl_errno.h>

enum { PLACES = 8 };

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

static void try_refusals(const record *x) {
  char spec[200];
  snprintf(spec, sizeof spec, "%s%s%s", x->variant, *x->parameters ? ":" : "", x->parameters);
  run_case *c = make_input(x);
  case_run(c, spec, NULL);
  const check *of = check_find(x->check);
  long calls, used;
  const result_bound usual = judged(of, &c->e, -1, &calls);
  const long places = calls < PLACES ? calls : PLACES;
  for (long k = 0; k < places; k++) {
    const result_bound b = judged(of, &c->e, k * calls / places, &used);
    cr_expect(
        ((b.verdict == VERDICT_ERROR || b.verdict == VERDICT_UNCERTIFIABLE) && *b.message) ||
            (b.verdict == usual.verdict && memcmp(&b.measured, &usual.measured, sizeof b.measured) == 0),
        "%s, allocation %ld of %ld: verdict %d, %g instead of %g, %s", x->check, k * calls / places, calls,
        (int)b.verdict, b.measured, usual.measured, b.message);
  }
  case_free(c);
}

Test(checks_refused, no_verdict_without_memory, .timeout = 300) {
  gsl_set_error_handler_off(); /* as the program does */
  cr_assert_eq(attn_variant_register(&attn_variant_planted_sample), ATTN_OK);
  for (size_t r = 0; r < sizeof records / sizeof *records; r++) try_refusals(&records[r]);
}
