/* training.c - the page of attnlab train in headless Chromium: of each task the curves with their ranges, its
 * table, and which answers may depend on later tokens. */
#include <math.h>
#include <string.h>

#include "experiments/training/train_config.h"
#include "experiments/training/train_results.h"
#include "tests/support/browser.h"
#include "tests/support/results_fixture.h"

TestSuite(report_training, .init = browser_start, .fini = browser_stop, .timeout = 120);

/* The page of a study of three variants, of which the second's accuracy is 0.5 below exact attention's, and
 * the last's loss is no number in the end. */
static void open_page(int64_t seeds, int width) {
  train_study s = {.settings = train_presets, .seeds = seeds};
  const char *path = fixture_path("training.html");
  cr_assert(!train_study_add_task(&s, "copy") && !train_study_add_task(&s, "parity"));
  cr_assert(!train_study_add(&s, "topk:k=2") && !train_study_add(&s, "vslash:vertical=1"));
  s.settings.steps = 4;
  cr_assert(!train_study_open(&s), "%s", attn_last_error());
  for (int64_t t = 0; t < 2; t++)
    for (int64_t v = 0; v < 3; v++)
      for (int64_t i = 0; i < seeds; i++) {
        train_row *row = train_study_row(&s, t, v, i);
        *row = (train_row){.trained = {0.25, v == 1 ? 0.375 : 0.875}, .swapped = {0.5, 0.625}};
        for (int c = 0; c < 4; c++) row->curve[c] = (double)(c + 1) * exp2((double)i);
      }
  train_study_row(&s, 1, 2, 0)->curve[3] = (double)NAN;
  cr_assert(!train_results_write(&s, NULL, path), "%s", attn_last_error());
  train_study_free(&s);
  browser_open(path, width, 900);
}

#define CELLS(task, row)                                                                          \
  "[...document.querySelectorAll('#" task " tbody tr')[" row "].children].map(c => c.textContent" \
  ").join('|')"

Test(report_training, curves_and_tables) {
  open_page(8, 1200);
  browser_expect("(drawAll(), document.querySelectorAll('.plot svg').length)", "2");
  browser_expect(BROWSER_BARE_PLOTS, "");
  browser_expect("plots.get('copy-plot').sets.map(s => s.label + s.points.length).join()",
                 "tiled (exact)4,topk:k=24,vslash:vertical=14");
  browser_expect("JSON.stringify(plots.get('copy-plot').sets[1].points.map(p => [p.x, p.y, p.lo, p.hi])[1])",
                 "[2,24,2,256]"); /* the median of 2, 4, ..., 256 */
  browser_expect("new Set(plots.get('copy-plot').sets.map(s => s.color)).size", "3");
  browser_expect("ticksOf({linear: true, min: 0, max: 606}, 12).join()", "0,100,200,300,400,500,600");
  browser_expect(CELLS("copy", "0"), "tiled|0.875|0.25||||exact|0.625|0.5");
  browser_expect(CELLS("copy", "1"), "topk:k=2|0.375|0.25|-0.500|-0.500 ... -0.500|0|worse|0.625|0.5");
  browser_expect(CELLS("parity", "2"), "vslash:vertical=1|0.875|0.25|0.000|0.000 ... 0.000|1|open|0.625|0.5");
  browser_expect("[...document.querySelectorAll('.later')].map(p => p.textContent.slice(0, 61)).join()",
                 "vslash:vertical=1: answers may depend on later tokens, and so");
}

Test(report_training, one_seed_and_narrow) {
  open_page(1, 400);
  browser_expect("document.documentElement.scrollWidth <= 400", "true");
  browser_expect("(drawAll(), plots.get('parity-plot').sets[2].points.length)", "3");
  browser_expect(CELLS("copy", "1"), "topk:k=2|0.375|0.25|-0.500||-|open|0.625|0.5");
  browser_expect("/1 seed\\)/.test(byId('headline').textContent)", "true");
}
