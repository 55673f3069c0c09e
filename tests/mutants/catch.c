/* catch.c - checks run as in a sweep: runs of one setting on several problems, and
 * Holm's correction over them. */
#include "tests/mutants/catch.h"

#include <gsl/gsl_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "data/data.h"
#include "experiments/checks/check.h"
#include "experiments/quality/evaluation_checks.h"
#include "experiments/quality/tasks/tasks.h"
#include "tests/support/properties.h"
#include "experiments/results/set.h"

static catch_answer unable(const char *catcher, const char *setting, const char *why) {
  fprintf(stderr, "%s on \"%s\": %s\n", catcher, setting, why);
  return CATCH_UNABLE;
}

/* -- bound checks -- */

typedef struct trial {
  case_shape shape;
  attn_dtype dtype;
  double std;               /* of queries and keys */
  double mean;              /* of values */
  const char *score, *mask; /* NULL: none */
} trial;

/* batch heads kv_heads n_q n_kv d_qk d_v causal padded. A setting that a problem does not admit sits it
 * out. */
static const trial trials[] = {
    {{2, 4, 2, 90, 90, 16, 9, false, false}, ATTN_F32, 1, 0, NULL, NULL},
    {{1, 4, 2, 90, 90, 16, 9, true, false}, ATTN_F32, 1, 0, NULL, NULL},
    {{3, 2, 1, 70, 70, 8, 8, false, true}, ATTN_F64, 1, 0, NULL, NULL},
    {{2, 2, 1, 70, 70, 8, 8, true, true}, ATTN_F64, 1, 0, NULL, NULL},
    {{1, 2, 1, 3, 2500, 16, 8, false, false}, ATTN_F32, 1, 0, NULL, NULL},
    {{1, 1, 1, 300, 300, 16, 8, true, false}, ATTN_F32, 1, 0, NULL, NULL},
    {{1, 2, 2, 64, 64, 8, 8, false, false}, ATTN_F64, 0.3, 0, NULL, NULL},
    {{1, 1, 1, 64, 64, 8, 4, true, false}, ATTN_F64, 0.3, 4, NULL, NULL},
    {{1, 2, 2, 64, 64, 8, 4, false, false}, ATTN_F64, 0.3, 4, NULL, NULL},
    /* several segments of the linear engine, rows sampled */
    {{1, 2, 1, 4200, 4200, 8, 4, true, false}, ATTN_F32, 0.7, 0, NULL, NULL},
    /* other targets */
    {{1, 4, 2, 90, 90, 16, 9, true, false}, ATTN_F32, 1, 0, "softcap=1,alibi,sink=1", "prefix:20"},
    {{1, 2, 1, 80, 90, 16, 9, false, false}, ATTN_F64, 1, 0, "leaky=0.2", "documents:0+20+55"},
    {{1, 2, 1, 90, 90, 16, 9, false, false}, ATTN_F64, 1, 0, "sink=2", "block_causal:16"},
    {{1, 2, 1, 90, 90, 16, 9, false, false}, ATTN_F64, 1, 0, NULL, "prefix:20"},
    {{2, 4, 2, 90, 90, 16, 9, true, false}, ATTN_F32, 1, 0, "alibi,sink=1", NULL},
};
enum { TRIALS = sizeof trials / sizeof *trials };

/* One cell of a sweep. False: it could not be filled. */
static bool judge(const check *c, attn_plan *plan, const inputs *in, result_bound *bound) {
  attn_view view;
  void *o = run_plain(plan, in);
  const int64_t *kv_len = in->padded ? in->kv_len : NULL;
  exact_rows *exact = NULL;
  struct block_cache *cache = block_cache_create();
  bool ready = o && cache && !attn_plan_inspect(plan, &view) &&
               !exact_rows_compute(&in->problem, in->q, in->k, in->v, kv_len, 7, &exact);
  if (ready) {
    evidence e = {.plan = plan,
                  .problem = attn_plan_problem(plan),
                  .view = &view,
                  .q = in->q,
                  .k = in->k,
                  .v = in->v,
                  .kv_len = kv_len,
                  .o = o,
                  .exact = exact,
                  .seed = 11,
                  .cache = cache};
    check_evaluate(c, &e, bound);
  }
  exact_rows_free(exact);
  block_cache_free(cache);
  free(o);
  return ready;
}

/* Long problems are for sums over segments of keys. */
static bool is_judged(const attn_plan *plan, const check *c) {
  enum { LONG = 4096 };
  attn_view view;
  return !attn_plan_inspect(plan, &view) && c->of->holds(&view) &&
         (attn_plan_problem(plan)->n_q < LONG || view.by_features);
}

static inputs inputs_of(const attn_problem *p, int t) {
  inputs in = inputs_make(p, trials[t].shape.padded, (uint64_t)t, trials[t].std);
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->kv_heads; h++)
      for (int64_t j = 0; j < p->n_kv; j++)
        for (int64_t l = 0; l < p->d_v; l++)
          inputs_set(&in, TENSOR_V, b, h, j, l, trials[t].mean + inputs_get(&in, TENSOR_V, b, h, j, l));
  return in;
}

/* As a sweep does to its reader: by a violation, or, of what nothing proves, by a warning. */
static bool reports(const result_bound *b) {
  return b->verdict == VERDICT_VIOLATED || (b->kind == KIND_MODEL && b->verdict == VERDICT_UNCERTIFIABLE);
}

static catch_answer ask_check(const check *c, const char *spec, int *problems) {
  static result_row rows[TRIALS];
  size_t admitted = 0, count = 0, reported = 0;
  for (int t = 0; t < TRIALS && (!*problems || count < (size_t)*problems); t++) {
    attn_problem problem = shape_problem(trials[t].shape, trials[t].dtype);
    attn_plan *plan;
    data_target *target = NULL;
    const char *score = trials[t].score, *mask = trials[t].mask;
    attn_status status = attn_problem_resolve(&problem);
    if (!status) status = data_target_make(score ? score : "", mask ? mask : "", &problem, &target);
    if (status) return unable(c->name, spec, attn_last_error());
    status = attn_plan_create(&plan, &problem, spec, &(attn_options){.threads = 2});
    if (status == ATTN_EUNSUPPORTED || status == ATTN_EINVAL) {
      data_target_free(target);
      continue;
    }
    if (status) return unable(c->name, spec, attn_last_error());
    admitted++;
    if (!is_judged(plan, c)) {
      /* A sink, say, takes from what the variant keeps otherwise; dyadic without causality is its term. */
      attn_plan_destroy(plan);
      data_target_free(target);
      continue;
    }
    inputs in = inputs_of(&problem, t);
    result_row_init(&rows[count]);
    result_bound bound;
    if (!judge(c, plan, &in, &bound) || result_row_add_bound(&rows[count], &bound))
      return unable(c->name, spec, attn_last_error());
    count++;
    inputs_free(&in);
    attn_plan_destroy(plan);
    data_target_free(target);
    if (c->kind != KIND_PROB && reports(&bound)) break; /* no number of runs makes it less */
  }
  if (!admitted) return unable(c->name, spec, "no problem admits this setting");
  if (count == 0) {
    fprintf(stderr, "%s does not speak of %s\n", c->name, spec);
    return CATCH_SILENT;
  }
  *problems = (int)count;
  if (results_holm(rows, count, RESULTS_ALPHA)) return unable(c->name, spec, attn_last_error());
  for (size_t r = 0; r < count; r++) {
    const result_bound *b = &rows[r].bounds[0];
    reported += reports(b);
    fprintf(stderr, "%s on %s, run %d: %s, measured %g, bound %g, p %g %s\n", c->name, spec, (int)r,
            check_verdict_names[b->verdict], b->measured, b->value, b->p_value, b->message);
    result_row_free(&rows[r]);
  }
  return reported ? CATCH_REPORTS : CATCH_SILENT;
}

/* -- checks of whole models: the bundled one -- */

static const result_bound *find_cell(const char *name, const result_bound *cells, int count) {
  for (int i = 0; i < count; i++)
    if (strcmp(cells[i].name, name) == 0) return &cells[i];
  return NULL;
}

static catch_answer ask_model(const char *name, const char *spec) {
  enum { WINDOWS = 8, LENGTH = 96 };
  const data_ids_request request = {.model = TEST_SOURCE_DIR "/data/bytelm",
                                    .text = TEST_SOURCE_DIR "/tests/fixtures/held.txt"};
  attn_spec *parsed = NULL;
  data_llama_swap swap = {.mix = 1};
  result_bound cells[1][QUALITY_CHECKS];
  data_llama *model = NULL;
  data_ids ids = {0};
  quality_windows windows = {0};
  quality_data data = {0};
  char *asked = NULL;
  attn_status status = attn_spec_parse(&parsed, spec);
  swap.spec = parsed;
  if (!status) status = data_llama_open(request.model, &model);
  if (!status) status = data_ids_read(&request, data_llama_get_config(model), &ids);
  if (!status) status = quality_windows_make(WINDOWS, LENGTH, &windows);
  if (!status)
    status = task_fill(
        strcmp(name, "EV-9") == 0 ? "sample:skip=0" : "text:skip=32",
        &(task_input){
            .text = ids.id, .length = ids.count, .vocab = 256, .bos = -1, .seed = 1, .model = model},
        &windows, &asked);
  if (!status) status = quality_evaluate(model, &windows, &swap, 1, true, &data);
  if (!status) status = quality_check(&(quality_checked){model, &windows, &swap, 1, &data}, true, cells);
  if (status) return unable(name, spec, attn_last_error());
  const result_bound *b = find_cell(name, cells[0], QUALITY_CHECKS);
  if (!b) b = find_cell(name, data.judged[0].at, data.judged[0].count);
  if (!b) return unable(name, spec, "the evaluation has no cell of this check");
  fprintf(stderr, "%s on %s: %s, measured %g, bound %g %s\n", name, spec, check_verdict_names[b->verdict],
          b->measured, b->value, b->message);
  return reports(b) ? CATCH_REPORTS : CATCH_SILENT;
}

/* -- properties -- */

void fail_test(void) {} /* the answer counts the failures */

static const property *find_property(const char *name) {
  const property *const tables[] = {properties_exact, properties_real};
  for (int t = 0; t < 2; t++)
    for (const property *p = tables[t]; p->name; p++)
      if (strcmp(p->name, name) == 0) return p;
  return NULL;
}

static catch_answer ask_property(const property *p, const char *variant_name) {
  const property only[2] = {*p, {.name = NULL}};
  const attn_variant *variant;
  int applied[PROPERTIES_MAX] = {0};
  if (attn_variant_find(variant_name, &variant)) return unable(p->name, variant_name, attn_last_error());
  property_suite_run(only, variant, NULL, false, applied);
  if (!applied[0]) return unable(p->name, variant_name, "the property does not apply to this variant");
  return failures_noted() ? CATCH_REPORTS : CATCH_SILENT;
}

/* -- tests: suite/name of the program test_suite -- */

static catch_answer ask_test(const char *test) {
  char command[512], line[512];
  int suite = (int)strcspn(test, "/"), tested = 0;
  snprintf(command, sizeof command, "'%s/tests/test_%.*s' --jobs 1 --filter '%s' 2>&1", TEST_BINARY_DIR,
           suite, test, test);
  FILE *output = popen(command, "r");
  if (!output) return unable(test, "", "popen failed");
  while (fgets(line, sizeof line, output)) {
    const char *found = strstr(line, "Tested: ");
    if (found) tested = atoi(found + strlen("Tested: "));
  }
  int status = pclose(output);
  if (!tested) return unable(test, "", "no such test ran");
  return status ? CATCH_REPORTS : CATCH_SILENT;
}

/* -- commands: cases/FILE, or cases/FILE:BEGINNING of its remark -- */

static catch_answer ask_cases(const char *cases) {
  const int file = (int)strcspn(cases, ":");
  const char *command =
      text_of("'%s/tests/cli/cases.py' '%s' '%s' '%s/tests/cli/%.*s.txt%s'", TEST_SOURCE_DIR, TEST_BINARY_DIR,
              TEST_SOURCE_DIR, TEST_SOURCE_DIR, file, cases, cases + file);
  const int status = system(command);
  if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) return unable(cases, "", "its commands did not run");
  return WEXITSTATUS(status) ? CATCH_REPORTS : CATCH_SILENT;
}

static bool is_of_model(const char *catcher) {
  return strncmp(catcher, "eval:", 5) == 0 || (!check_find(catcher) && quality_check_find(catcher));
}

bool catch_multiplies(const char *catcher) {
  return is_of_model(catcher) || strncmp(catcher, "theory_", 7) == 0;
}

catch_answer catch_ask(const char *catcher, const char *setting, int *problems) {
  gsl_set_error_handler_off();
  if (strncmp(catcher, "cases/", 6) == 0) return ask_cases(catcher);
  if (strchr(catcher, '/')) return ask_test(catcher);
  const check *c = check_find(catcher);
  if (c) return ask_check(c, setting, problems);
  if (is_of_model(catcher)) return ask_model(strncmp(catcher, "eval:", 5) ? catcher : catcher + 5, setting);
  const property *p = find_property(catcher);
  if (p) return ask_property(p, setting);
  return unable(catcher, setting, "there is no check and no property of this name");
}
