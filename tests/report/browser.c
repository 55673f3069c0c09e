/* browser.c - the report in headless Chromium, from file:// and without a network: no errors, marks in
 * every plot, filters by click and by key, dark and light, one run, sixty and twenty thousand. */

#include "tests/support/browser.h"
#include "experiments/report/page.h"
#include "tests/support/results_fixture.h"

TestSuite(report_browser, .init = browser_start, .fini = browser_stop, .timeout = 300);

static void open_report(int64_t count, int width) {
  result_set set = kept_set(fixture_set(count));
  const char *path = fixture_path("report.html");
  if (count > 10) { /* one bound that does not hold, and a text that looks like markup */
    set.rows[1].bounds[0].verdict = set.rows[1].verdict = VERDICT_VIOLATED;
    set.rows[1].bounds[0].measured = 2;
    free(set.rows[6].message);
    set.rows[6].message = strdup("</script><!--<script><img src=x onerror=alert(1)>");
  }
  for (int64_t i = 0; i < count && count > 10000; i++) { /* 225 datasets, 450 groups */
    set.rows[i].dataset = names_keep(text_of("gaussian:std_q=%d", (int)(i / 30 % 225)));
  }
  cr_assert_eq(report_write(path, &set, "a <b> & c", NULL), ATTN_OK, "%s", attn_last_error());
  browser_open(path, width, 900);
}

Test(report_browser, every_plot_has_marks_and_a_table) {
  open_report(120, 1200);
  browser_expect("document.querySelectorAll('.plot svg').length", "9");
  browser_expect("(drawAll(), document.querySelectorAll('#maps canvas').length)",
                 "10"); /* three variants, and the legend */
  browser_expect(BROWSER_BARE_PLOTS, "");
  browser_expect("[...document.querySelectorAll('main h2')].map(h => h.parentElement.id).join()",
                 "fits,fronts,error,mass,position,time,speedup,growth,bounds,maps,runs,doubts,estimates");
  browser_expect("[...document.querySelectorAll('section')].filter(s => s.querySelector('.plot') && "
                 "s.querySelectorAll('td').length < 6).length",
                 "0");
  browser_expect("/Actual over estimate/.test(byId('estimates').textContent)", "true");
  browser_expect("document.title", "attnlab: a <b> & c");
  browser_expect("document.querySelectorAll('img').length", "0");
  browser_expect("document.querySelector('.bad').textContent", "Violated checks: 1.");
  browser_expect("/onerror/.test(byId('doubts').textContent)", "true");
  /* What the policy is for: a script that is not the page's own does not run. */
  cr_expect_str_eq(
      browser_value(
          "(() => { const s = document.createElement('script'); s.textContent = 'window.foreign = 1';"
          " document.body.append(s); return typeof window.foreign; })()"),
      "undefined");
  cr_expect_eq(browser_errors(), 1, "the refusal is an error, and errors are heard");
}

/* A page of two files: both are in every plot, unless one is chosen by File. */
Test(report_browser, files_share_plots) {
  result_set set = kept_set(fixture_set(60));
  const char *paths[] = {fixture_path("first.h5"), fixture_path("second.h5")},
             *page = fixture_path("both.html");
  cr_assert_eq(results_write(paths[0], &set), ATTN_OK);
  for (size_t i = 0; i < set.count; i++) set.rows[i].err_rel_fro *= 2;
  cr_assert_eq(results_write(paths[1], &set), ATTN_OK);
  set = join_results(paths, 2);
  other_time h100 = {.texts = {"performer:features=256", "H100", "paper"}, .seconds = 1e-6};
  memset(h100.axis, -1, sizeof h100.axis);
  const report_limits limits = {(double)NAN, (double)NAN, (double)NAN, {&h100, 1}};
  cr_assert_eq(report_write(page, &set, "two", &limits), ATTN_OK);
  cr_expect_null(h100.unmatched);
  browser_open(page, 1200, 900);
  browser_expect("visibleLines().slice(-2).map(label).join()",
                 "performer:features=256 (first),performer:features=256 (second)");
  browser_expect("drawAll(), new Set(plots.get('front-time-plot').sets.flatMap(set => set.points.map(point =>"
                 " /[(](first|second)[)]$/.exec(point.label)?.[1]).filter(Boolean))).size",
                 "2");
  browser_expect(
      "plots.get('front-time-plot').sets.filter(set => set.group === 'H100' && set.shape).map(set =>"
      " set.points[0].label).join()",
      "performer:features=256 (first),performer:features=256 (second)");
  browser_click("input[name=choice-file][value=\"second\"]");
  browser_expect("visibleLines().every(line => fileOf(line) === 'second')", "true");
  browser_expect("new URLSearchParams(location.hash.slice(1)).get('file')", "second");
  browser_expect("drawAll(), /, second, |^second, /.test(aboutGroup(true)) + ' ' + "
                 "document.querySelectorAll('.plot svg').length",
                 "true 9");
  browser_expect("document.querySelector('#run-head').cells[0].textContent + ' ' + "
                 "document.querySelector('#run-rows').rows[0].cells[0].textContent",
                 "file second");
}

/* The mean colour of a canvas in its middle row, as red, green, blue. */
#define COLOUR                                                                                              \
  "(id => { const c = byId(id), p = c.getContext('2d').getImageData(0, c.height >> 1, c.width, 1).data, s " \
  "= [0, 0, 0];"                                                                                            \
  " for (let i = 0; i < p.length; i++) if (i % 4 < 3) s[i % 4] += 4 * p[i] / p.length; return s; })"

/* The fixture's maps are about the diagonal, at n = 512 alone, and its variants' are wider. */
Test(report_browser, maps_follow_the_filters) {
  open_report(120, 1200);
  browser_click("input[name=choice-causal][value=\"not causal\"]");
  browser_expect("drawAll(), byId('no-maps').hidden", "true");
  browser_expect("byId('maps-which').textContent.startsWith('n = 512, the nearest to 8192 with maps.')",
                 "true");
  browser_expect("document.querySelectorAll('#maps-table tbody tr').length", "4");
  browser_expect("document.querySelector('#maps-table td:nth-child(5)').textContent", "0 %");
  browser_expect("(p => p.rows + ' ' + p.columns)(data.maps.pictures[0])", "128 128");
  browser_expect("Number(byId('map-0-exact').dataset.marks) > Number(byId('map-0-approx').dataset.marks)",
                 "true");
  /* More on the wide sides is blue, less on the diagonal orange: so is the difference's middle row in sum,
   * and its corner. */
  browser_expect("(([r, g, b]) => b > r)(" COLOUR "('map-0-approx'))", "true");
  browser_expect("(p => p[0] > p[2])(byId('map-0-approx').getContext('2d').getImageData(1, 1, 1, 1).data)",
                 "true");
  browser_value("byId('methods').open = true, document.querySelector('input[name=method]').focus()");
  browser_key(" ", 32);
  browser_expect("(drawAll(), document.querySelectorAll('#maps canvas').length)", "7");
  browser_click("#no-methods");
  browser_expect("drawAll(), byId('no-maps').hidden + ' ' + byId('some-maps').hidden", "false true");
  browser_expect("document.querySelectorAll('#maps-figures canvas').length", "0");
  browser_click("#all-methods");
  browser_expect("(drawAll(), document.querySelectorAll('#maps canvas').length)", "10");
  browser_click("input[name=choice-n][value=\"512\"]");
  browser_expect("drawAll(), byId('maps-which').textContent", "n = 512.");
}

/* Points of a method are joined, the oracle is the one without regret, and what errs as zeros do is crossed
 * out, in the plots as in the tables. */
Test(report_browser, curves_name_the_oracle_and_cross_out_what_zeros_beat) {
  result_set set = kept_set(fixture_set(60));
  const char *path = fixture_path("report.html");
  for (size_t i = 0; i < set.count; i++)
    if (strcmp(set.rows[i].variant, "performer") == 0)
      set.rows[i].err_rel_fro = set.rows[i].err_rel_fro_lo = 1.25;
  cr_assert_eq(report_write(path, &set, "curves", NULL), ATTN_OK, "%s", attn_last_error());
  browser_open(path, 1200, 900);
  browser_expect("(drawAll(), ['front-keys-plot', 'front-time-plot', 'mass-plot'].map(id => "
                 "byId(id).dataset.crosses).join())",
                 "1,1,1");
  browser_expect("plots.get('front-keys-plot').sets.filter(set => /oracle/.test(set.label)).map(set "
                 "=> set.group).join()",
                 "tiled:block_q=64");
  browser_expect(
      "[...document.querySelectorAll('#error-table tbody tr')].filter(row => /zeros/.test(row.textContent))"
      ".map(row => row.firstChild.textContent).join()",
      "performer:features=256");
  browser_expect("[...document.querySelectorAll('#mass-table tbody th')].map(th => th.textContent).filter("
                 "text => /oracle/.test(text)).join()",
                 "tiled:block_q=64 (oracle)");
  browser_expect("/performer/.test(byId('front-table').textContent)", "false");
  browser_expect("group().lines.some(line => line.cells.some(cell => cell.no_better && cell.front.some("
                 "one => one)))",
                 "false");
}

Test(report_browser, filters_work_by_click_and_by_key) {
  open_report(120, 1200);
  browser_expect("group().causal", "causal");
  browser_click("input[name=choice-causal][value=\"not causal\"]");
  browser_expect("group().causal", "not causal");
  browser_expect(BROWSER_BARE_PLOTS, "");
  browser_key("ArrowLeft", 37); /* the clicked one has the focus */
  browser_expect("group().causal", "causal");

  const int before = atoi(browser_value("(drawAll(), byId('error-plot').dataset.marks)"));
  browser_value("byId('methods').open = true, document.querySelector('input[name=method]').focus()");
  browser_key(" ", 32);
  cr_expect_lt(atoi(browser_value("(drawAll(), byId('error-plot').dataset.marks)")), before);
  browser_key(" ", 32);
  cr_expect_eq(atoi(browser_value("(drawAll(), byId('error-plot').dataset.marks)")), before);

  browser_value("document.querySelector('input[name=choice-n]').focus()");
  browser_key(" ", 32);
  browser_expect("state.n", "512");

  browser_value("document.querySelectorAll('#run-head button')[3].focus()");
  browser_key("Enter", 13);
  browser_key("Enter", 13);
  browser_expect("document.querySelectorAll('#run-head th')[3].getAttribute('aria-sort')", "descending");
  browser_expect("document.querySelector('#run-rows tr').children[3].textContent", "8192");
  browser_click("#run-all");
  browser_expect("byId('run-count').textContent", "Runs 1 to 100 of 120");
  browser_click("#run-on");
  browser_expect("byId('run-count').textContent", "Runs 101 to 120 of 120");
  browser_click("#error-table summary");
  browser_expect("document.querySelector('#error-table details').open", "true");
  browser_value("byId('limit-time').focus()");
  browser_key("0", 48);
  browser_expect("byId('answer').textContent.startsWith('Nothing that was run')", "true");
}

/* Contrast of text and page as in WCAG 2. */
#define CONTRAST                                                                                           \
  "(() => { const l = c => { const [r, g, b] = c.match(/[0-9.]+/g).map(v => v / 255)"                      \
  ".map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + "  \
  "0.0722 * b; };"                                                                                         \
  " const s = getComputedStyle(document.body), a = l(s.color), b = l(s.backgroundColor);"                  \
  " return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) > 7 ? (a > b ? 'dark' : 'light') : 'faint'; " \
  "})()"

Test(report_browser, dark_and_light_and_narrow) {
  static const char *const schemes[] = {"light", "dark"};
  for (int i = 0; i < 2; i++) {
    json_decref(
        browser_call("Emulation.setEmulatedMedia", json_pack("{s:[{s:s, s:s}]}", "features", "name",
                                                             "prefers-color-scheme", "value", schemes[i])));
    open_report(60, 400);
    browser_expect(CONTRAST, schemes[i]);
    browser_expect(BROWSER_BARE_PLOTS, "");
    browser_expect("document.documentElement.scrollWidth <= 400", "true");
  }
  json_decref(browser_call("Page.printToPDF", NULL));
  browser_expect_quiet();
}

/* On paper, drawn for a wide window: nothing is wider than the page, and no plot than its place. */
Test(report_browser, what_is_printed_is_whole) {
  open_report(60, 1200);
  browser_expect("(dispatchEvent(new Event('beforeprint')), waiting.size)", "0");
  json_decref(browser_call("Emulation.setEmulatedMedia", json_pack("{s:s}", "media", "print")));
  json_decref(browser_call(
      "Emulation.setDeviceMetricsOverride",
      json_pack("{s:i, s:i, s:i, s:b}", "width", 720, "height", 1000, "deviceScaleFactor", 1, "mobile", 0)));
  browser_expect("document.documentElement.scrollWidth <= 720", "true");
  browser_expect("document.querySelectorAll('svg [stroke=undefined], svg [fill=undefined]').length", "0");
  browser_expect(
      "[...document.querySelectorAll('#run-head button, #limits select')].every(e => e.offsetHeight > 0)",
      "true");
  browser_expect(
      "[...document.querySelectorAll('.plot svg, canvas, table')].filter(e => { const a = "
      "e.getBoundingClientRect(), "
      "b = e.parentElement.getBoundingClientRect(); return a.right > b.right + 1 || a.bottom > b.bottom + "
      "1 || a.right > 720; }).map(e => e.id || e.textContent.slice(0, 40)).join()",
      "");
}

/* A plot that has not been drawn yet is, before the page is printed, and in the colours of paper. */
Test(report_browser, all_plots_are_printed_and_on_white) {
  json_decref(browser_call("Emulation.setEmulatedMedia", json_pack("{s:[{s:s, s:s}]}", "features", "name",
                                                                   "prefers-color-scheme", "value", "dark")));
  open_report(60, 1200);
#define AXES                                                                           \
  "[...plots.values()].map(p => p.picture.querySelector('text').getAttribute('fill'))" \
  ".filter((x, i, all) => all.indexOf(x) === i)"
  browser_expect("(refresh(), waiting.size)", "10");
  browser_expect(AXES " + ''", "#ebebe9");
  browser_expect("(dispatchEvent(new Event('beforeprint')), waiting.size + ' ' + " AXES ")", "0 #000");
  browser_expect("[...document.querySelectorAll('details:not(#methods)')].every(d => d.open)", "true");
  browser_expect("byId('map-legend').getContext('2d').getImageData(127, 0, 1, 1).data.join()",
                 "255,255,255,255");
  browser_expect("(dispatchEvent(new Event('afterprint')), drawAll(), " AXES " + '')", "#ebebe9");
  browser_expect("[...document.querySelectorAll('details')].some(d => d.open)", "false");
  browser_expect(BROWSER_BARE_PLOTS, "");
}

Test(report_browser, few_and_many_runs) {
  static const int64_t counts[] = {0, 1, 60, 20000};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    open_report(counts[i], 1200);
    browser_expect("data.totals.runs", text_of("%lld", (long long)counts[i]));
    if (counts[i] > 1) browser_expect(BROWSER_BARE_PLOTS, "");
    if (counts[i] == 1) {
      browser_expect("byId('time-plot').dataset.marks", "1");
      browser_expect(BROWSER_BARE_PLOTS, "speedup-plot"); /* of exact attention over itself there is none */
    }
    browser_expect("byId('runs-body').querySelectorAll('tr').length < 102", "true");
  }
  /* Too many datasets for a row of buttons. */
  browser_expect("data.groups.length", "450");
  browser_value("document.querySelector('select[name=choice-dataset]').focus()");
  browser_key("ArrowDown", 40);
  browser_expect("group().dataset + ' ' + document.activeElement.name", "gaussian:std_q=1 choice-dataset");
  browser_expect(BROWSER_BARE_PLOTS, "");
}
