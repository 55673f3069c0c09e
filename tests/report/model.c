/* model.c - the page of an evaluation in headless Chromium: marks in every plot, menus that follow each
 * other, doubts. */

#include "experiments/quality/depth_maps.h"
#include "experiments/quality/evaluation_page.h"
#include "experiments/results/row.h"
#include "tests/support/browser.h"
#include "tests/support/quality_sets.h"
#include "tests/support/results_fixture.h"

TestSuite(report_model, .init = browser_start, .fini = browser_stop, .timeout = 120);

typedef struct asked {
  const char *spec, *task, *layers;
  int64_t n;
  double density, kl;
} asked;

static void set_text(quality_record *r, const char *name, const char *text) {
  const result_column *c = quality_columns;
  while (strcmp(c->name, name) != 0) c++;
  fixture_must(result_column_set_text(r, c, text));
}

static void set_series(quality_record *r) {
  r->windows = 8;
  r->layer_count = 2;
  for (int s = 0; s < QUALITY_SERIES; s++) {
    const quality_series *series = &quality_series_list[s];
    const int64_t count = series->by == BY_WINDOW ? 8 : series->by == BY_BIN ? QUALITY_BINS : 2;
    double *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) values[i] = 0.5 + 0.01 * (double)i;
    memcpy((char *)r + series->offset, &values, sizeof values);
  }
}

static void add(quality_set *set, const asked *a, int status) {
  quality_record r;
  fixture_must(quality_record_init(&r));
  set_text(&r, "model", "models/<b>small</b>");
  set_text(&r, "spec", a->spec);
  char *variant = strndup(a->spec, strcspn(a->spec, ":"));
  set_text(&r, "variant", variant);
  free(variant);
  set_text(&r, "task", a->task);
  set_text(&r, "layers", a->layers);
  set_text(&r, "heads", "all");
  set_text(&r, "phase", "both");
  r.n = a->n;
  r.mix = 1;
  r.status = status;
  if (status == RUN_OK) {
    set_series(&r);
    r.density = a->density;
    r.kv_bits = 32 * a->density;
    r.kl = a->kl, r.kl_lo = a->kl / 2, r.kl_hi = 2 * a->kl;
    r.attention_error = sqrt(a->kl);
    r.attention_time = a->density;
    r.nll_exact = 3, r.nll_uniform = 8, r.nll_unigram = 6;
    /* perplexity falls although the distribution is another */
    r.dnll = -0.1, r.dnll_lo = -0.2, r.dnll_hi = a->kl > 0.5 ? -0.05 : 0.1;
    r.doubt = a->kl > 0.5;
    r.additivity = 0.75;
    r.checks[EV_1].verdict = VERDICT_PASS;
    r.checks[EV_2].verdict = a->kl > 0.5 ? VERDICT_VIOLATED : VERDICT_PASS;
    r.right = 0.25, r.right_exact = 0.5;
    r.score = a->density, r.score_exact = 0.75;
    r.lost = 5, r.won = 0, r.score_p = 0.0625, r.score_p_holm = 0.125;
  } else {
    set_text(&r, "message", "</script><img src=x onerror=alert(1)>");
  }
  set_text(&r, "key", text_of("%zu", set->count));
  fixture_must(quality_set_add(set, &r));
}

/* A question at two depths and two lengths, three of the four; others at one depth, and anywhere. */
static quality_set deep_set(void) {
  static const asked runs[] = {{"topk:k=8", "recall:pairs=1,depth=0,aware=yes", "all", 128, 0.25, 0.1},
                               {"topk:k=8", "recall:pairs=1,depth=1,aware=yes", "all", 128, 0.5, 0.1},
                               {"topk:k=8", "recall:pairs=1,depth=1,aware=yes", "all", 64, 1, 0.1},
                               {"full", "recall:pairs=1,depth=0,aware=yes", "all", 128, 0.125, 0.1},
                               {"topk:k=8", "recall:pairs=1,depth=0.5,aware=yes", "0", 128, 0.5, 0.1},
                               {"topk:k=8", "recall:pairs=2,depth=0.5,aware=yes", "all", 128, 0.5, 0.1},
                               {"topk:k=8", "recall:pairs=1,depth=-1,aware=yes", "all", 128, 0.5, 0.1}};
  quality_set set = {0};
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) add(&set, &runs[i], RUN_OK);
  return kept_set(set);
}

static void open_set(const quality_set *set, const char *title, int width) {
  const char *path = fixture_path("model.html");
  cr_assert_eq(quality_write_page(path, set, title), ATTN_OK, "%s", attn_last_error());
  browser_open(path, width, 900);
}

Test(report_model, answers_by_depth_and_length) {
  const quality_set set = deep_set();
  open_set(&set, "deep", 1200);
  browser_expect("[...document.querySelectorAll('#depth-maps table')].map(t => [...t.querySelectorAll('tbody "
                 "tr')].map(r => [...r.cells].map(c => c.textContent).join()).join(' ')).join('|')",
                 "0 %,-,75 % 100 %,75 %,75 %|0 %,-,25 % 100 %,100 %,50 %|0 %,12.5 %");
  browser_expect(
      "new Set([...document.querySelectorAll('#depth-maps tbody td')].filter(c => c.textContent !== "
      "'-').map(c => getComputedStyle(c).backgroundColor + c.textContent)).size",
      "5");
  browser_expect(
      "/^0.063 \\(0.13\\)$/.test(document.querySelectorAll('#quality-table tbody td')[15].textContent)",
      "true");
}

/* The same as text: no map of one depth, or of none. */
Test(report_model, depths_are_a_table) {
  static const char wanted[] = "variant        n  0 %  100 %\n"
                               "exact model   64    -     75\n"
                               "exact model  128   75     75\n"
                               "topk:k=8      64    -    100\n"
                               "topk:k=8     128   25     50\n";
  char text[4096] = "";
  quality_set set = deep_set();
  FILE *out = fmemopen(text, sizeof text, "w");
  cr_assert_eq(quality_print_depths(out, &set, TABLE_TEXT), ATTN_OK, "%s", attn_last_error());
  fclose(out);
  const char *found = strstr(text, wanted);
  cr_expect(found && !strstr(found, "recall"), "one table, not %s", text);
}

/* Runs that differ in anything but depth, length and setting share no map. */
Test(report_model, maps_are_of_one_question) {
  static const char *const texts[] = {"layers",      "heads",         "phase", "model_sha256",
                                      "data_sha256", "config_sha256", "task"};
  enum { NAMES = sizeof texts / sizeof *texts };
  for (int which = 0; which < NAMES + 5; which++) {
    quality_set set = {0};
    char text[4096] = "";
    add(&set, &(asked){"topk:k=8", "recall:depth=0,aware=yes", "all", 128, 0.5, 0.1}, RUN_OK);
    add(&set, &(asked){"topk:k=8", "recall:depth=1,aware=yes", "all", 128, 0.5, 0.1}, RUN_OK);
    quality_record *r = &set.records[1];
    if (which < NAMES) set_text(r, texts[which], which < NAMES - 1 ? "x" : "recall:depth=1,aware=no");
    r->mix += which == NAMES;
    r->windows += which == NAMES + 1;
    r->seed += which == NAMES + 2;
    r->bos += which == NAMES + 3;
    FILE *out = fmemopen(text, sizeof text, "w");
    cr_assert_eq(quality_print_depths(out, &set, TABLE_TEXT), ATTN_OK, "%s", attn_last_error());
    fclose(out);
    cr_expect_eq(*text != '\0', which == NAMES + 4, "%d: %s", which, text);
    result_set_free(&set);
  }
}

static void open_page(int width) {
  static const asked runs[] = {
      {"topk:k=8,window=0", "text:skip=8", "all", 128, 0.1, 0.01},
      {"topk:k=32,window=0", "text:skip=8", "all", 128, 0.4, 0.001},
      {"streaming:sink=0,window=8", "text:skip=8", "all", 128, 0.1, 0.9},
      {"streaming:sink=0,window=8", "text:skip=8", "0", 128, 0.1, 0.09},
      {"streaming:sink=0,window=8", "text:skip=8", "1", 128, 0.1, 0.05},
      {"topk:k=8,window=0", "text:skip=8", "all", 256, 0.05, 0.02},
      {"topk:k=8,window=0", "copy:length=64", "all", 256, 0.05, 0.03},
      {"full", "text:skip=8", "all", 128, 1, 1e-12},
  };
  quality_set set = {0};
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) add(&set, &runs[i], RUN_OK);
  add(&set, &runs[0], RUN_OK);
  set.records[set.count - 1].seed = 1; /* another question */
  set.records[0].kl_lo = -0.01;        /* its bar reaches the edge */
  add(&set, &(asked){"linformer:k=4", "text:skip=8", "all", 128, 0, 0}, RUN_UNSUPPORTED);
  add(&set, &(asked){"linformer:k=4", "text:skip=8", "all", 256, 0, 0}, RUN_UNSUPPORTED);
  open_set(&set, "a <b> & c", width);
  result_set_free(&set);
}

Test(report_model, every_plot_has_marks) {
  open_page(1200);
  browser_expect("document.querySelectorAll('.plot svg').length", "9");
  browser_expect(BROWSER_BARE_PLOTS, "");
  browser_expect("document.querySelectorAll('#quality-table tbody tr').length", "4");
  browser_expect("[...document.querySelectorAll('#reads-plot g[stroke-opacity] > path')].map(p => "
                 "p.getAttribute('d')).join('').split('V').length - 1",
                 "3");
  browser_expect("plots.get('reads-plot').sets.map(set => set.group).join()", "topk,streaming:sink=0,full");
  browser_expect("document.querySelectorAll('#layers-table details tbody tr').length", "2");
  browser_expect("/0.75/.test(byId('layers-table').lastChild.textContent)", "true");
  browser_expect("document.querySelectorAll('img').length", "0");
  browser_expect("document.title", "attnlab: a <b> & c");
}

Test(report_model, menus_follow_each_other) {
  open_page(1200);
  browser_click("input[name=choice-n][value=\"256\"]");
  browser_expect("state.n + ' ' + document.querySelectorAll('#quality-table tbody tr').length", "256 1");
  browser_click("input[name=choice-task][value=\"copy:length=64\"]");
  browser_expect("state.n + ' ' + document.querySelectorAll('#quality-table tbody tr').length", "256 1");
  browser_click("input[name=choice-task][value=\"text:skip=8\"]");
  browser_click("input[name=choice-n][value=\"128\"]");
  browser_click("input[name=choice-where][value=\"layers 1\"]");
  browser_expect("document.querySelector('#quality-table tbody th').textContent",
                 "streaming:sink=0,window=8");
}

/* The address keeps the menus; CSV and rows are as on the page of a sweep. */
Test(report_model, choices_stand_in_the_address) {
  open_page(1200);
  browser_click("input[name=choice-where][value=\"layers 1\"]");
  browser_expect("new URLSearchParams(location.hash.slice(1)).get('where')", "layers 1");
  const char *hash = browser_value("location.hash");
  browser_click("input[name=choice-where][value=everywhere]");
  browser_expect("state.where", "everywhere");
  browser_expect(text_of("(location.hash = '%s', dispatchEvent(new Event('hashchange')), state.where)", hash),
                 "layers 1");
  browser_expect("document.querySelectorAll('table').length === document.querySelectorAll('.csv').length",
                 "true");
}

Test(report_model, doubts_are_said) {
  open_page(1200);
  browser_expect(
      "[...document.querySelectorAll('#summary .caption')].map(c => c.textContent.slice(0, 22)).join('|')",
      "Checks that do not hol|Perplexity says better|Runs that did not end ");
  browser_expect("[...document.querySelectorAll('#summary table')[0].querySelectorAll('tbody td')].map(c => "
                 "c.textContent).includes('EV-2')",
                 "true");
  browser_expect("document.querySelectorAll('#summary table')[1].querySelectorAll('tbody tr').length", "1");
  browser_expect("/copies 50 % of the tokens/.test(byId('summary').textContent)", "true");
}

Test(report_model, narrow_and_on_paper) {
  open_page(400);
  browser_expect("document.documentElement.scrollWidth <= 400", "true");
  browser_expect("(dispatchEvent(new Event('beforeprint')), waiting.size)", "0");
  browser_expect("[...document.querySelectorAll('details:not(.every-column)')].every(d => d.open)", "true");
  browser_expect("(dispatchEvent(new Event('afterprint')), drawAll(), "
                 "[...document.querySelectorAll('details')].some(d => d.open))",
                 "false");
  json_decref(browser_call("Page.printToPDF", NULL));
  browser_expect_quiet();
}

Test(report_model, a_file_without_runs) {
  open_set(&(quality_set){0}, "none", 800);
  browser_expect("/no runs/.test(byId('filters').textContent)", "true");
}
