/* answer.c - what the report answers, keeps in its address and saves, in headless Chromium, held against the
 * rows. */

#include <sys/stat.h>
#include <time.h>

#include "experiments/report/page.h"
#include "tests/support/browser.h"
#include "tests/support/files.h"
#include "tests/support/results_fixture.h"

TestSuite(report_answer, .init = browser_start, .fini = browser_stop, .timeout = 300);

/* Sixty runs of one seed, whose errors, times and memory have orders of their own. */
static result_set rows_made(void) {
  result_set set = kept_set(fixture_set(60));
  for (int64_t i = 0; i < (int64_t)set.count; i++) {
    result_row *row = &set.rows[i];
    if (row->status) continue;
    row->err_rel_fro = row->err_rel_fro_lo = row->err_rel_fro_hi = 0.01 * (double)(1 + i * 7 % 23);
    row->err_rel_fro_cert_lo = row->err_rel_fro_cert_hi = row->err_rel_fro;
    row->time_median = row->time_ci_lo = row->time_ci_hi = 1e-3 * (double)(1 + i * 5 % 19);
    row->peak_alloc = 1048576 * (double)(1 + i * 3 % 17);
  }
  return set;
}

static void open_rows(const result_set *set) {
  const char *path = fixture_path("report.html");
  cr_assert_eq(report_write(path, set, "a <b>.h5", NULL), ATTN_OK, "%s", attn_last_error());
  browser_open(path, 1200, 900);
}

static void set_limit(const char *name, const char *value) {
  const char *set =
      text_of("(f => { f.value = '%s'; f.dispatchEvent(new Event(f.tagName == 'SELECT' ? 'change' : 'input', "
              "{bubbles: true})); return f.value; })(byId('limit-%s'))",
              value, name);
  browser_expect(set, value);
}

/* ---- the answer ---------------------------------------------------------------------------------------- */

typedef struct asked {
  const char *error, *time, *memory, *order; /* percent, milliseconds, MiB; "": no limit */
} asked;

static bool within(double value, const char *limit, double unit) {
  return !*limit || value <= strtod(limit, NULL) * unit;
}

/* The variant of the row that the page has to name: the least of the order, then of the other. "": none. */
static const char *reference(const result_set *set, const asked *a, const char *dataset, int64_t causal,
                             int64_t n) {
  const result_row *best = NULL;
  for (size_t i = 0; i < set->count; i++) {
    const result_row *row = &set->rows[i];
    const bool exact = strcmp(row->variant, "full") == 0 || strcmp(row->variant, "tiled") == 0;
    if (strcmp(row->dataset, dataset) != 0 || row->causal != causal || row->n != n || row->status) continue;
    if (row->verdict == VERDICT_VIOLATED || row->verdict == VERDICT_UNCHECKED ||
        row->verdict == VERDICT_NOT_APPLICABLE || row->err_rel_fro >= 1)
      continue;
    if (!within(exact ? 0 : row->err_rel_fro, a->error, 0.01) || !within(row->time_median, a->time, 1e-3) ||
        !within(row->peak_alloc, a->memory, 1048576))
      continue;
    const bool by_memory = strcmp(a->order, "memory") == 0;
    if (!best || (by_memory ? row->peak_alloc < best->peak_alloc : row->time_median < best->time_median))
      best = row;
  }
  return best ? best->variant : "";
}

#define ANSWER "(byId('answer').querySelector('.sentence code')?.textContent || '').split(/[ :]/)[0]"

Test(report_answer, names_what_the_rows_say) {
  static const asked cases[] = {{"10", "", "", "time"},  {"", "", "", "time"},   {"0", "", "", "time"},
                                {"3", "", "", "memory"}, {"5", "6", "", "time"}, {"20", "12", "4", "memory"},
                                {"4", "2", "1", "time"}, {"15", "", "9", "time"}};
  static const int64_t lengths[] = {512, 1024, 2048, 4096, 8192};
  result_set set = rows_made();
  /* The fastest ones of some cells must not be offered. */
  for (size_t i = 0; i < set.count; i++) {
    if (i % 5 == 1) set.rows[i].verdict = VERDICT_UNCHECKED;
    if (i % 9 == 4) set.rows[i].verdict = set.rows[i].bounds ? VERDICT_VIOLATED : set.rows[i].verdict;
    if (i % 13 == 3 && !set.rows[i].status) set.rows[i].err_rel_fro = 1;
  }
  open_rows(&set);
  browser_expect("byId('limit-error').value + byId('limit-time').value + byId('limit-memory').value", "10");
  int named = 0, none = 0;
  for (int causal = 0; causal < 2; causal++)
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
      const char *choose =
          text_of("(chooseGroup('causal', '%s'), state.n = %lld, refresh(), group().dataset)",
                  causal ? "causal" : "not causal", (long long)lengths[l]);
      browser_expect(choose, "captured");
      for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_limit("error", cases[i].error);
        set_limit("time", cases[i].time);
        set_limit("memory", cases[i].memory);
        set_limit("order", cases[i].order);
        const char *expected = reference(&set, &cases[i], "captured", causal, lengths[l]);
        browser_expect(ANSWER, expected);
        *(*expected ? &named : &none) += 1;
      }
    }
  cr_expect(named > 20 && none > 2, "%d answers and %d without", named, none);
}

/* A variant that draws nothing, a sample of its rows, one that draws, and one that is exact. */
Test(report_answer, says_how_sure_it_is) {
  result_set set = rows_made();
  for (size_t i = 0; i < set.count; i++)
    set.rows[i].time_median = strcmp(set.rows[i].variant, "longformer") ? 2 : 1;
  for (size_t i = 0; i < set.count; i++)
    if (set.rows[i].n == 2048 && !set.rows[i].status)
      set.rows[i].err_rel_fro = 0.02, set.rows[i].err_rel_fro_hi = 0.03,
      set.rows[i].err_rel_fro_cert_hi = 0.09;
  open_rows(&set);
  browser_value("(chooseGroup('causal', 'not causal'), state.n = 512, state.error = '50', refresh())");
#define SURE "document.querySelector('.sentence .sure').textContent"
  browser_expect(ANSWER " + ' ' + " SURE, "longformer certain");
  browser_value("(state.n = 2048, refresh())");
  browser_expect(ANSWER " + ' ' + " SURE, "longformer certified");
  browser_value("(state.error = '5', refresh())");
  browser_expect(SURE, "estimated");
  browser_value(
      "(state.hidden.add(methods.find(m => m.startsWith('longformer'))), state.error = '50', refresh())");
  browser_expect("[...document.querySelectorAll('#answer tbody tr')].map(row => "
                 "row.cells[0].textContent.split(/[ :]/)[0] + ' ' + "
                 "row.lastChild.textContent.split(' ')[0]).sort().join()",
                 "full certain,linformer estimated");
  browser_expect("/longformer/.test(byId('answer').textContent)", "false");
  browser_expect("/Not considered.*longformer/.test(byId('not-offered').textContent)", "true");
}

/* ---- bounds -------------------------------------------------------------------------------------------- */

Test(report_answer, only_violated_bounds_are_red) {
  result_set set = rows_made();
  result_bound *b = fixture_add_bound(&set.rows[1], "LIN-3", KIND_REPORT, VERDICT_CONSISTENT, (double)NAN);
  b->measured = 5, b->value = 1, b->margin = 5;
  b = fixture_add_bound(&set.rows[1], "FAV-1", KIND_PROB, VERDICT_CONSISTENT, 0.2);
  b->measured = 3, b->value = 1, b->margin = 3;
  open_rows(&set);
#define SETS                                                                                                 \
  "(drawAll(), plots.get('bounds-plot').sets.map(s => s.label + ' ' + s.points.length + ' ' + (s.color === " \
  "alarm() ? 'red' : '') + s.points.every(p => p.hollow)).join())"
  browser_value("(chooseGroup('causal', 'causal'), refresh())");
  browser_expect(SETS, "hard 18 false,probabilistic 1 false,report (cannot fail) 1 true,y = x 2 false");
  set.rows[1].bounds[0].verdict = set.rows[1].verdict = VERDICT_VIOLATED;
  set.rows[1].bounds[0].measured = 2;
  set.rows[1].bounds[2].verdict = VERDICT_VIOLATED;
  set.rows[1].bounds[2].measured = (double)NAN;
  open_rows(&set);
  browser_value("(chooseGroup('causal', 'causal'), refresh())");
  browser_expect("(drawAll(), plots.get('bounds-plot').sets.filter(s => s.color === alarm()).map(s => "
                 "s.label + s.points.length).join())",
                 "violated2");
}

/* ---- the address --------------------------------------------------------------------------------------- */

#define STATE                                                                                                \
  "JSON.stringify([group().dataset, group().causal, state.n, [...state.hidden], byId('limit-error').value, " \
  "byId('limit-memory').value, byId('limit-order').value, runView.column, runView.down, "                    \
  "byId('run-search').value, byId('run-all').checked, document.querySelector('#answer').textContent, "       \
  "byId('run-count').textContent])"

static void open_address(const char *hash) {
  json_decref(browser_call("Page.navigate", json_pack("{s:s}", "url", "about:blank")));
  browser_open(fixture_path(text_of("report.html#%s", hash)), 1200, 900);
}

Test(report_answer, the_address_keeps_what_was_chosen) {
  result_set set = rows_made();
  open_rows(&set);
  const char *first = browser_value(STATE);
  browser_click("input[name=choice-causal][value=\"not causal\"]");
  browser_click("input[name=choice-n][value=\"2048\"]");
  browser_value("byId('methods').open = true");
  browser_click("input[name=method]");
  set_limit("error", "22");
  set_limit("memory", "16");
  set_limit("order", "memory");
  browser_click("#run-head th:nth-child(6) button");
  browser_click("#run-head th:nth-child(6) button");
  browser_value("(f => { f.value = 'l <i>'; f.dispatchEvent(new Event('input')); })(byId('run-search'))");
  browser_click("#run-all");
  browser_click("nav a[href=\"#time\"]");
  browser_expect("document.activeElement.id + ' ' + (byId('time').getBoundingClientRect().top < 300)",
                 "time true");
  const char *chosen = browser_value(STATE), *hash = browser_value("location.hash.slice(1)");
  cr_expect_str_neq(first, chosen);
  open_address("");
  browser_expect(STATE, first);
  open_address(hash);
  browser_expect(STATE, chosen);
  browser_expect("location.hash.slice(1)", hash);
  browser_expect("document.activeElement.id", "time");
  /* In an open page, too; and what makes no sense is passed over. */
  browser_value("location.hash = 'n=0'");
  browser_expect("new Promise(r => setTimeout(r, 50)) && ''", "");
  browser_expect(STATE, first);
  open_address("n=x&causal=%3Cimg%3E&hide=%3Cb%3E&error=-1&order=%3Ci%3E&sort=-%27&at=%3Cp%3E&words=%22");
  browser_expect("group().causal + ' ' + state.n + ' ' + document.querySelectorAll('img').length",
                 "causal 8192 0");
}

/* ---- tables and files ---------------------------------------------------------------------------------- */

Test(report_answer, every_table_is_its_csv_and_repeats_nothing) {
  result_set set = rows_made();
  free(set.rows[6].message);
  set.rows[6].message = strdup("a \"quoted\", and\na broken line");
  open_rows(&set);
  browser_value("document.querySelectorAll('details').forEach(d => { d.open = true; }), window.saved = [], "
                "window.save = (name, type, text) => saved.push(text)");
  browser_expect("document.querySelectorAll('table').length === document.querySelectorAll('.csv').length",
                 "true");
  /* Of each button, the fields of its file against the cells of its table. */
  browser_expect(
      "(parse => [...document.querySelectorAll('.csv')].filter(button => { button.click(); const table = "
      "button.parentElement.querySelector('table') || byId('run-rows').parentElement; return JSON.stringify("
      "parse(saved.pop())) !== JSON.stringify([...table.rows].map(row => [...row.cells].map(cell => "
      "cell.textContent.trim()))); }).length)"
      "(text => { const rows = []; let row = [], at = 0; while (at < text.length) { let field; if (text[at] "
      "=== '\"') { const end = /(?:[^\"]|\"\")*/y; end.lastIndex = at + 1; field = end.exec(text)[0]; at = "
      "end.lastIndex + 1; field = field.replaceAll('\"\"', '\"'); } else { const end = /[^,\\r]*/y; "
      "end.lastIndex = at; field = end.exec(text)[0]; at = end.lastIndex; } row.push(field.trim()); if "
      "(text[at] === ',') at++; else { rows.push(row); row = []; at += 2; } } return rows; })",
      "0");
  browser_expect("[...document.querySelectorAll('tbody tr')].filter(row => [...row.cells].every(cell => "
                 "cell.className.includes('same'))).length",
                 "0");
  browser_expect("[...document.querySelectorAll('tbody tr + tr')].filter(row => row.cells[0].textContent === "
                 "row.previousSibling.cells[0].textContent && /text|wide/.test(row.cells[0].className) && "
                 "!/same/.test(row.cells[0].className)).length",
                 "0");
  browser_expect("document.querySelectorAll('.same').length > 9", "true");
}

/* A file that the browser has saved, waited for: it has its name before it has all that belongs to it. */
static const char *saved(const char *name) {
  const struct timespec pause = {.tv_nsec = 20000000};
  const char *path = fixture_path(name);
  struct stat now = {0};
  off_t before = 0;
  for (int i = 0, same = 0; i < 500 && same < 5; i++, nanosleep(&pause, NULL)) {
    same = stat(path, &now) == 0 && now.st_size > 0 && now.st_size == before ? same + 1 : 0;
    before = now.st_size;
  }
  return fixture_text(path);
}

Test(report_answer, plots_and_tables_are_saved) {
  result_set set = rows_made();
  for (size_t i = 0; i < set.count; i++)
    if (strcmp(set.rows[i].variant, "performer") == 0) {
      set.rows[i].label = "</svg><img src=x>";
    }
  open_rows(&set);
  json_decref(browser_call("Browser.setDownloadBehavior",
                           json_pack("{s:s, s:s}", "behavior", "allow", "downloadPath", fixture_directory)));
  browser_value("drawAll()");
  browser_click("#front-time-plot .tools button");
  const char *text = saved("a_b_-front-time-plot.svg");
  cr_expect(strncmp(text, "<svg", 4) == 0 && strstr(text, "</svg>") && strstr(text, "&lt;/svg&gt;&lt;img"));
  cr_expect(!strstr(text, "<img") && !strstr(text, "var(") && !strstr(text, "class="));
  browser_click("#error-plot .tools button:nth-child(2)");
  text = saved("a_b_-error-plot.png");
  cr_expect_eq(memcmp(text, "\x89PNG", 4), 0);
  browser_click("#front-table .csv");
  text = saved("a_b_-the-fronts.csv");
  cr_expect_eq(strncmp(text, "setting,error,time", 18), 0, "%s", text);
  browser_click("#maps-figures .tools button");
  text = saved(text_of("a_b_-%s.svg",
                       browser_value("document.querySelector('.maps canvas').id.replace('-exact', '')")));
  cr_expect(strncmp(text, "<svg", 4) == 0 && strstr(text, "href=\"data:image/png;base64,"), "%.300s", text);
  browser_expect("document.querySelectorAll('img').length", "0");
}

/* ---- marks --------------------------------------------------------------------------------------------- */

Test(report_answer, marks_lead_to_their_doubt_and_plots_can_be_walked) {
  result_set set = rows_made();
  for (size_t i = 0; i < set.count; i++)
    if (!set.rows[i].status) set.rows[i].drift_ratio = 1.5;
  open_rows(&set);
  browser_click("#answer a.mark[href=\"#doubt-drift\"]");
  browser_expect("document.activeElement.id + ' ' + document.activeElement.cells[1].textContent",
                 "doubt-drift 52");
  browser_expect("location.hash.endsWith('at=doubt-drift')", "true");
  browser_value("(drawAll(), byId('time-plot').firstChild.focus())");
  browser_key("ArrowRight", 39);
  browser_expect("byId('time-plot').querySelector('.tip').hidden", "false");
  browser_expect("/n = 512, .*doubts: .*drift/.test(byId('time-plot').querySelector('.tip').textContent)",
                 "true");
  browser_expect("(m => { const b = byId('time-plot').firstChild.getBoundingClientRect(), at = {clientX: "
                 "b.left + m.px + 2, clientY: b.top + m.py - 2}; byId('time-plot').dispatchEvent(new "
                 "PointerEvent('pointermove', at)); return "
                 "byId('time-plot').querySelector('.tip').textContent.includes(m.point.note); "
                 "})(plots.get('time-plot').marks.at(-1))",
                 "true");
  browser_key("Escape", 27);
  browser_expect("byId('time-plot').querySelector('.tip').hidden", "true");
}
