/* view.c - what the page shows of one run, and how it looks at plots, in headless Chromium: the panel, zoom,
 * the break of the axis, short names of datasets, the commands, and the address that keeps it all. */

#include <math.h>
#include <time.h>

#include "experiments/report/page.h"
#include "experiments/report/repeat_command.h"
#include "tests/support/browser.h"
#include "tests/support/results_fixture.h"

TestSuite(report_view, .init = browser_start, .fini = browser_stop, .timeout = 300);

static void open_set(const result_set *set, const report_limits *limits, const char *hash) {
  cr_assert_eq(report_write(fixture_path("report.html"), set, "view.h5", limits), ATTN_OK, "%s",
               attn_last_error());
  json_decref(browser_call("Page.navigate", json_pack("{s:s}", "url", "about:blank")));
  browser_open(fixture_path(text_of("report.html#%s", hash)), 1200, 900);
}

/* Of own tensors in two files of one name, and one of another; every second seed of some setting violates a
 * bound. */
static result_set rows_made(void) {
  static const char *const datasets[] = {"npy:q=/a/my.npz:q,k=/a/my.npz:k,v=/a/my.npz:v,layout=bnhd",
                                         "npy:q=/b/my.npz:q,k=/b/my.npz:k,v=/b/my.npz:v"};
  result_set set = kept_set(fixture_set(120));
  for (size_t i = 0; i < set.count; i++) {
    result_row *row = &set.rows[i];
    row->dataset = datasets[i / 30 % 2];
    if (strcmp(row->variant, "full") == 0)
      row->err_rel_fro = row->err_rel_fro_lo = row->err_rel_fro_hi = 3e-7;
  }
  return set;
}

#define PANEL "byId('one')"

Test(report_view, a_run_is_shown_in_full) {
  result_set set = rows_made();
  result_bound *b = &set.rows[2].bounds[0]; /* longformer, the first seed, n = 512, causal no */
  b->verdict = set.rows[2].verdict = VERDICT_VIOLATED;
  b->measured = 2, b->value = 1, b->margin = 2, b->message = "row 7 <b>";
  open_set(&set, NULL, "causal=not+causal&n=512");
  browser_expect(PANEL ".open", "false");
  browser_value("(state.words = 'violated', state.all = 'yes', showRunView(), drawRuns(), "
                "byId('run-rows').scrollIntoView())");
  browser_click("#run-rows tr td:last-child");
  browser_expect(PANEL ".open + ' ' + byId('one-title').textContent",
                 "true longformer:window=256,global_at=16");
  browser_expect("[...byId('one').querySelectorAll('table')].map(t => "
                 "t.getAttribute('aria-label').split(':')[0]).join()",
                 "Parameters,Checks,What was measured");
  browser_expect("[...byId('one').querySelectorAll('table')[1].rows[1].cells].map(c => "
                 "c.textContent).slice(1, 7).join() + /row 7 <b>/.test(byId('one').textContent)",
                 "FP-1,violated,2,1,2,-true");
  char *run = repeat_run(&set.rows[2]), *apply = repeat_apply(&set.rows[2]);
  browser_expect("[...byId('one').querySelectorAll('pre')].map(p => p.textContent).join(' | ')",
                 text_of("%s | %s", run, apply));
  cr_expect(strstr(apply, " --q /a/my.npz:q --k /a/my.npz:k --v /a/my.npz:v --layout bnhd "), "%s", apply);
  free(run), free(apply);
  browser_expect("/Doubts.*violated/.test(byId('one').textContent) && /Relative error of a "
                 "row/.test(byId('one').textContent)",
                 "true");
  browser_expect("/[&]run=\\d+/.test(location.hash)", "true");
  /* Every number of runs is of some run: the violated one is what the bounds of its cell say. */
  browser_expect("group().lines.flatMap(l => l.cells).flatMap(boundsOf).filter(b => b[6]).map(b => "
                 "b.slice(0, 7).join(' ') + ' ' + (String(b[7]) === state.run)).join()",
                 "FP-1 hard violated 1 2 2 1 true");
  browser_key("Escape", 27);
  /* The page hears of it a little later. */
  const struct timespec pause = {0, 20000000};
  for (int i = 0; i < 500 && *browser_value("state.run"); i++) nanosleep(&pause, NULL);
  browser_expect(PANEL ".open + ' ' + new URLSearchParams(location.hash.slice(1)).get('run') + state.run",
                 "false null");
  browser_expect("document.querySelectorAll('#one b').length > 1", "false");
}

Test(report_view, a_run_is_opened_by_key_by_mark_and_by_address) {
  result_set set = rows_made();
  open_set(&set, NULL, "causal=not+causal&n=1024");
  browser_value("document.querySelector('#front-table button.open').focus()");
  browser_key("Enter", 13);
  browser_expect(PANEL ".open && runs.n[state.run]", "1024");
  browser_click("#one .close");
  browser_expect(PANEL ".open", "false");
  browser_value("(drawAll(), byId('front-time-plot').firstChild.focus())");
  browser_key("ArrowRight", 39);
  browser_key("Enter", 13);
  browser_expect(PANEL
                 ".open && runs.n[state.run] === 1024 && byId('one-title').textContent.startsWith("
                 "plots.get('front-time-plot').marks.reduce((a, b) => (b.px < a.px ? b : a)).point.label)",
                 "true");
  const char *title = browser_value("byId('one-title').textContent + location.hash");
  open_set(&set, NULL, browser_value("location.hash.slice(1)"));
  browser_expect("byId('one-title').textContent + location.hash", title);
  browser_value("byId('one').close()");
  browser_value(
      "(m => { const p = plots.get('time-plot'), b = p.picture.getBoundingClientRect(), at = {clientX: "
      "b.left + m.px, "
      "clientY: b.top + m.py, bubbles: true}; p.picture.dispatchEvent(new PointerEvent('pointerdown', at)); "
      "p.picture.dispatchEvent(new PointerEvent('pointerup', at)); })((drawAll(), "
      "plots.get('time-plot').marks[0]))");
  browser_expect(PANEL ".open", "true");
  open_set(&set, NULL, "run=99999999");
  browser_expect(PANEL ".open + ' ' + state.run", "false ");
}

#define ZOOMED \
  "(p => `${p.marks.length} ${byId('error-plot').querySelector('.whole').hidden}`)(plots.get('error-plot'))"

Test(report_view, plots_are_zoomed_by_rectangle_key_and_button) {
  result_set set = rows_made();
  open_set(&set, NULL, "causal=not+causal&n=512");
  browser_value("drawAll()");
  const char *whole = browser_value(ZOOMED);
  /* The upper right quarter, which begins above the break. */
  browser_value(
      "(({frame: f, picture}) => { const b = picture.getBoundingClientRect(), s = b.width / "
      "picture.viewBox.baseVal.width, at = (x, y) => ({clientX: b.left + s * x, clientY: b.top + s * y, "
      "bubbles: "
      "true}); picture.dispatchEvent(new PointerEvent('pointerdown', at((f.left + f.right) / 2, f.top + "
      "1))); dispatchEvent(new PointerEvent('pointermove', at(f.right + 50, f.top + 99))); dispatchEvent(new "
      "PointerEvent('pointerup', at(f.right + 50, (f.top + f.bottom) / 2))); })(plots.get('error-plot'))");
  const char *part = browser_value(ZOOMED);
  cr_expect(atoi(part) > 0 && atoi(part) < atoi(whole) && strstr(part, "false"), "%s of %s", part, whole);
  browser_expect(PANEL ".open", "false");
  browser_expect(
      "(({x, y, marks, picture}) => marks.every(m => x.has(m.point.x) && y.has(m.point.y)) + ' ' + "
      "/clip-path=\"url\\(#error-plot-clip\\)\"/.test(textOfSvg(picture)) + ' ' + "
      "/rounding/.test(textOfSvg(picture)))(plots.get('error-plot'))",
      "true true false");
  open_set(&set, NULL, browser_value("location.hash.slice(1)"));
  browser_expect("(drawAll(), " ZOOMED ")", part);
  browser_value("byId('error-plot').firstChild.focus()");
  browser_key("0", 48);
  browser_expect(ZOOMED, whole);
  browser_expect(
      "/zoom/.test(location.hash) + ' ' + (document.activeElement === byId('error-plot').firstChild)",
      "false true");
  browser_key("+", 187);
  browser_expect("byId('error-plot').querySelector('.whole').hidden", "false");
  browser_click("#error-plot .whole");
  browser_expect(ZOOMED, whole);
  open_set(&set, NULL, "zoom=error-plot+1+0+x+2&zoom=%3Cimg%3E");
  browser_expect("zooms.size + ' ' + document.querySelectorAll('img').length", "0 0");
}

/* What is exact lies below a break, at a tick that says so, and not at a number. */
Test(report_view, rounding_is_no_number) {
  result_set set = rows_made();
  open_set(&set, NULL, "causal=not+causal&n=512");
#define TICKS(id)                                                       \
  "(texts => texts.filter(t => t === 'rounding').length)([...byId('" id \
  "').querySelectorAll('text')].map(t => t.textContent))"
  browser_expect("(drawAll(), " TICKS("error-plot") " + ' ' + " TICKS("front-time-plot") " + ' ' + " TICKS(
                     "time-plot") ")",
                 "1 1 0");
  browser_expect("(({marks, y}) => marks.filter(m => /^full/.test(m.point.label || m.set.label)).every(m => "
                 "m.point.y === y.edge && m.py === y.at(y.edge)))(plots.get('error-plot'))",
                 "true");
}

Test(report_view, datasets_have_short_names_and_the_head_has_the_only_one) {
  result_set set = rows_made();
  open_set(&set, NULL, "");
  browser_expect("[...new Set(data.groups.map(g => g.dataset))].sort().join()", "a/my.npz,b/my.npz");
  browser_expect("[...byId('run-rows').rows].every(row => /^[ab].my.npz$/.test(row.cells[0].textContent))",
                 "true");
  browser_expect("byId('run-head').cells[0].textContent + ' ' + "
                 "byId('run-rows').rows[0].cells[0].title.startsWith('npy:q=/')",
                 "dataset true");
  for (size_t i = 0; i < set.count; i++) {
    set.rows[i].dataset = "npy:q=/a/my.npz:q,k=/a/my.npz:k,v=/a/my.npz:v,layout=bnhd";
  }
  open_set(&set, NULL, "");
  browser_expect("byId('run-head').cells[0].textContent + ' ' + byId('data-of').textContent + ' ' + "
                 "byId('data-of').title",
                 "mask my.npz npy:q=/a/my.npz:q,k=/a/my.npz:k,v=/a/my.npz:v,layout=bnhd");
}

Test(report_view, limits_may_be_given_and_a_view_has_a_link) {
  result_set set = rows_made();
  const report_limits limits = {.error = 0.05, .time = (double)NAN, .memory = 3 * 0x1p20};
  open_set(&set, &limits, "");
  browser_expect(
      "byId('limit-error').value + ' ' + byId('limit-time').value + ' ' + byId('limit-memory').value",
      "5  3");
  browser_expect("/error at most 5.%, memory at most 3.MiB/.test(byId('answer').textContent)", "true");
  open_set(&set, &limits, "error=20");
  browser_expect("byId('limit-error').value", "20");
  browser_expect(
      "(navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); }, "
      "byId('copy-link').click(), window.copied === location.href)",
      "true");
}

/* An exponent whose interval is unknown or wider than 0.5 is not shown, as in the tables of `attnlab
 * check'. */
Test(report_view, exponents_that_are_not_known_are_withheld) {
  result_set set = rows_made();
  open_set(&set, NULL, "");
  browser_expect(
      "[[1.5, 1.4, 1.6, 3], [1.5, 'NaN', 'NaN', 2], [1.5, 1, 1.6, 4], [1.5, 1.5, 1.5, 1]].map(exponent)"
      ".join(' | ')",
      "n^1.50 [1.40, 1.60] | - | - | only one length");
  browser_expect("/NaN/.test(byId('growth-table').textContent)", "false");
}

/* A sweep of which nothing ran: the page says so, and where the reason is; its plots have no break without an
 * error. */
Test(report_view, nothing_that_ran_is_said) {
  result_set set = rows_made();
  for (size_t i = 0; i < set.count; i++) {
    set.rows[i].status = RUN_UNSUPPORTED;
    set.rows[i].err_rel_fro = set.rows[i].time_median = (double)NAN;
  }
  open_set(&set, NULL, "");
  browser_expect("byId('answer').textContent", "No run at n = 8192 has a result: why.");
  browser_click("#answer a");
  browser_expect("document.activeElement.id", "failed");
  browser_expect(
      "(drawAll(), /rounding/.test(byId('front-time-plot').textContent + byId('error-plot').textContent))",
      "false");
  browser_value("document.getElementById('no-methods').click()");
  browser_expect("byId('answer').textContent", "No variant is chosen.");
}
