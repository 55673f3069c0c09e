/* theory.c - the page of attnlab theory in headless Chromium: a plot with marks and a table for each
 * statement, and no text that the page would take for markup. */
#include "experiments/theory/theory.h"
#include "tests/support/browser.h"
#include "tests/support/results_fixture.h"

TestSuite(report_theory, .init = browser_start, .fini = browser_stop, .timeout = 120);

static void measure(theory_report *r, void *room) {
  (void)room;
  figure_exact(theory_promise(r, false, THEORY_EQUAL, 1, 0, "</script><img src=x>"), 1);
  figure_exact(theory_promise(r, true, THEORY_AT_MOST, 1, 0, "another"), 0);
  for (int i = 1; i < 4; i++) figure_exact(theory_point(r, "a curve", i), i);
  for (int i = 1; i < 4; i++) figure_exact(theory_point(r, "promised", i), i);
}

Test(report_theory, plots_and_tables) {
  static const theory good = {"good", "a < b", "c", "d", "e", "x", "y", 1, measure};
  static theory_report report;
  const theory *const all[] = {&good};
  const char *path = fixture_path("theory.html");
  cr_assert_eq(theory_run(&good, 0, &report), ATTN_OK);
  cr_assert_eq(theory_write(NULL, path, all, &report, 1), ATTN_OK, "%s", attn_last_error());
  browser_open(path, 1200, 900);
  browser_expect("document.querySelectorAll('.plot svg').length", "1");
  browser_expect(BROWSER_BARE_PLOTS, "");
  browser_expect("plots.get('good-plot').sets.map(set => set.points.length + set.label).join()",
                 "3a curve,3promised");
  browser_expect("document.querySelectorAll('main tbody tr').length", "2");
  browser_expect("document.querySelectorAll('img').length", "0");
  browser_expect("document.querySelector('.sentence').textContent", "a < b: does not hold.");
  browser_expect("byId('headline').textContent.slice(0, 25)", "0 of 1 statements hold. E");
}
