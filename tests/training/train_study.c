/* train_study.c - what is trained learns; its file is the same for any number of threads and after an
 * interruption; comparisons are Student's and Holm's. */
#include "data/support/file.h"
#include "experiments/training/train_file.h"
#include "experiments/training/train_results.h"
#include "experiments/training/train_study.h"

#include <criterion/criterion.h>
#include <gsl/gsl_cdf.h>
#include <hdf5_hl.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/files.h"

static train_study study_of(const char *const *tasks, int task_count, const char *const *specs,
                            int spec_count) {
  train_study s = {.settings = train_presets, .seeds = 2};
  for (int i = 0; i < task_count; i++) s.tasks[s.task_count++] = train_task_find(tasks[i]);
  for (int i = 0; i < spec_count; i++)
    cr_assert(train_study_add(&s, specs[i]) == ATTN_OK, "%s", attn_last_error());
  return s;
}

static void run(train_study *s) {
  cr_assert(train_study_open(s) == ATTN_OK, "%s", attn_last_error());
  for (int64_t t = 0; t < s->task_count; t++)
    cr_assert(train_study_run(s, t) == ATTN_OK, "%s", attn_last_error());
}

/* Exact attention learns to copy. Two layers whose windows are 8 wide see 14 letters back, not 16: except for
 * the two letters that are sinks an answer is a guess, within 6 standard errors of 3584 guesses at 1/16. */
Test(training_train_study, learns_what_it_sees) {
  train_study s =
      study_of((const char *const[]){"copy"}, 1, (const char *const[]){"streaming:sink=2,window=8"}, 1);
  s.seeds = 1;
  s.settings.steps = 240;
  run(&s);
  const double guessed = 1.0 / 16, sees = 2.0 / 16,
               most = sees + (1 - sees) * (guessed + 6 * sqrt(guessed * (1 - guessed) / 3584));
  const train_row *exact = train_study_row(&s, 0, 0, 0), *window = train_study_row(&s, 0, 1, 0);
  cr_expect(exact->trained.accuracy > 0.9, "%g", exact->trained.accuracy);
  cr_expect(exact->swapped.accuracy == exact->trained.accuracy && exact->swapped.loss == exact->trained.loss);
  cr_expect(window->trained.accuracy <= most && window->swapped.accuracy <= most, "%g, %g of %g",
            window->trained.accuracy, window->swapped.accuracy, most);
  cr_expect(window->swapped.loss > window->trained.loss,
            "a model that was trained exactly is sure of itself");
  train_study_free(&s);
}

/* A task whose sequences are told: one letter throughout, scored at one position, or at `also`, too, where
 * that is not 0. Nothing is learned at a rate of 0. */
typedef struct told {
  int32_t letter, scored, also;
} told;

static const told *script; /* of each step, where sequences are asked in this order */
static int64_t asked;

static void draw_told(const train_task *t, attn_rng *rng, int32_t *tokens, int32_t *targets) {
  const told *now = &script[asked++ / train_presets.batch];
  (void)rng;
  for (int64_t i = 0; i < t->n; i++) tokens[i] = now->letter;
  targets[now->scored] = 1;
  if (now->also) targets[now->also] = 1;
}

/* Of 70 steps the sixth of 32 spans has ceil(5 70 / 32) = 11, 12 and 13: four positions of each sequence are
 * scored in them, of which each counts once. */
Test(training_train_study, curves) {
  enum { ONE, TWO, OTHERS, STEPS = 70 };
  static const told scripts[] = {{2, 3, 0}, {2, 5, 0}, {0, 1, 0}};
  const train_task task = {.name = "told", .n = 8, .vocabulary = 3, .steps = STEPS, .draw = draw_told};
  train_settings settings = train_presets;
  settings.tests = 1;
  const small_shape shape = train_shape(&task, &settings);
  double *weights = malloc((size_t)small_weights_count(&shape) * sizeof *weights), curve[TRAIN_SPANS];
  told steps[STEPS];
  train_score of[3];
  attn_spec *spec;
  for (int i = 0; i < STEPS; i++) steps[i] = scripts[i < 11 || i > 13 ? OTHERS : ONE];
  steps[13].also = scripts[TWO].scored;
  cr_assert(weights && attn_spec_parse(&spec, TRAIN_EXACT) == ATTN_OK);
  script = steps, asked = 0;
  cr_assert(train_run(&task, &settings, spec, 0, weights, curve) == ATTN_OK, "%s", attn_last_error());
  for (int i = 0; i < 3; i++) {
    script = &scripts[i], asked = 0;
    cr_assert(train_test(&task, &settings, spec, 0, weights, &of[i]) == ATTN_OK);
  }
  for (int i = 0; i < TRAIN_SPANS; i++) {
    const double expected = i == 5 ? (3 * of[ONE].loss + of[TWO].loss) / 4 : of[OTHERS].loss;
    cr_expect(fabs(curve[i] - expected) <= 1e-12 * expected, "span %d: %.17g of %.17g", i, curve[i],
              expected);
  }
  cr_expect(fabs(of[ONE].loss - of[TWO].loss) > 1e-3 && fabs(of[ONE].loss - of[OTHERS].loss) > 1e-3);
  settings.steps = 5;
  cr_expect(train_spans(&task, &settings) == 5);
  attn_spec_destroy(spec), free(weights);
}

static const char *const tasks[] = {"copy", "parity"};
static const char *const specs[] = {"topk:k=2", "lsh:rounds=1,buckets=4"};

static char *file_of(const char *path, int threads) {
  train_study s = study_of(tasks, 2, specs, 2);
  s.settings.steps = 3;
  s.settings.tests = 1;
  s.path = path;
  omp_set_num_threads(threads);
  run(&s);
  train_study_free(&s);
  return fixture_text(path);
}

Test(training_train_study, same_bits) {
  const char *path = fixture_path("train_bits.jsonl");
  char *one = file_of(path, 1), *again = file_of(path, 1);
  cr_expect(strcmp(one, again) == 0, "a finished file is another");
  unlink(path);
  char *two = file_of(path, 2);
  cr_expect(strcmp(one, two) == 0, "two threads:\n%s\n%s", one, two);
}

/* The file as it is after each of its models. */
Test(training_train_study, resumes) {
  const char *path = fixture_path("train_resume.jsonl");
  char *whole = file_of(path, 1);
  for (char *end = strchr(whole, '\n'); end; end = strchr(end + 1, '\n')) {
    fixture_write(path, whole, (size_t)(end + 1 - whole));
    cr_expect(strcmp(whole, file_of(path, 2)) == 0);
  }
}

/* A variant draws by the seed of the model, unless it names one. */
Test(training_train_study, variants_that_draw) {
  static const char *const drawn[] = {"lsh:rounds=1,buckets=4", "lsh:rounds=1,buckets=4,seed=1"};
  char text[32];
  train_study s = study_of(tasks, 1, drawn, 2);
  s.settings.steps = 3;
  s.settings.tests = 1;
  run(&s);
  for (int seed = 0; seed < 2; seed++) {
    const double one = train_study_row(&s, 0, 1, seed)->trained.loss,
                 other = train_study_row(&s, 0, 2, seed)->trained.loss;
    cr_expect_eq(one == other, seed == 1, "seed %d: %.17g, %.17g", seed, one, other);
  }
  train_study steady = study_of(tasks, 1, drawn, 1);
  steady.settings = s.settings;
  steady.settings.decay = 0;
  run(&steady);
  cr_expect(train_study_row(&s, 0, 0, 0)->trained.loss != train_study_row(&steady, 0, 0, 0)->trained.loss,
            "weights do not decay");
  train_study_free(&steady);
  for (int k = 1; snprintf(text, sizeof text, "topk:k=%d", k) && !train_study_add(&s, text);) k++;
  cr_expect(s.spec_count == TRAIN_SPECS && strstr(attn_last_error(), "at most 63"), "%s", attn_last_error());
  train_study_free(&s);
}

static attn_status open_file(const char *path, const char *content, int64_t seeds) {
  train_study s = study_of(tasks, 2, specs, 2);
  if (content) fixture_write(path, content, strlen(content));
  s.settings.steps = 3;
  s.seeds = seeds;
  s.path = path;
  const attn_status status = train_study_open(&s);
  train_study_free(&s);
  return status;
}

Test(training_train_study, refuses_other_files) {
  static const char *const damages[][2] = {{"\"seed\":1", "\"seed\":2"},
                                           {"\"seed\":1", "\"seed\":-1"},
                                           {"{\"task\":\"parity\"", "{\"task\":\"party\""},
                                           {"\"variant\":\"topk", "\"variant\":\"top"},
                                           {"\"loss\":", "\"loss_\":"},
                                           {"\"accuracy\":", "\"accuracy_\":"},
                                           {"\"swapped_loss\":", "\"swapped\":"},
                                           {"\"swapped_accuracy\":", "\"swapped\":"},
                                           {"\"curve\":[", "\"curve\":[1,"},
                                           {"\"curve\":[", "\"curve\":[\"\","},
                                           {"]}\n", "]]\n"}};
  const char *path = fixture_path("train_other.jsonl");
  char *whole = file_of(path, 1);
  cr_expect(open_file(path, NULL, 2) == ATTN_OK);
  cr_expect(open_file(path, NULL, 3) == ATTN_EINVAL && strstr(attn_last_error(), "of other tasks"));
  cr_expect(open_file(path, "a text", 2) == ATTN_EINVAL &&
            strstr(attn_last_error(), "not a file of attnlab"));
  char *cut = strdup(whole);
  cut[strlen(cut) - 1] = '\0';
  cr_expect(open_file(path, cut, 2) == ATTN_EINVAL && strstr(attn_last_error(), "damaged"));
  for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
    const char *at = strstr(whole, damages[i][0]);
    cr_assert(at, "%s", damages[i][0]);
    char *damaged =
        text_format("%.*s%s%s", (int)(at - whole), whole, damages[i][1], at + strlen(damages[i][0]));
    cr_expect(open_file(path, damaged, 2) == ATTN_EINVAL && strstr(attn_last_error(), "damaged"), "%s",
              damages[i][1]);
    free(damaged);
  }
  free(cut);
  train_study s = study_of(tasks, 2, specs, 2);
  s.path = path;
  fixture_write(path, "", 0);
  cr_expect(train_study_open(&s) == ATTN_OK && train_file_write(&s) == ATTN_OK);
  fixture_write(path, whole, strlen(whole)); /* by another process */
  cr_expect(train_file_write(&s) == ATTN_EINVAL && strcmp(fixture_text(path), whole) == 0);
  train_study_free(&s);
}

/* Accuracies of 8 seeds: exact attention's, and two variants' below it by 0.1 + each times a deviation. */
static train_study compared(const train_row *rows, int variants) {
  train_study s = study_of(tasks, 1, specs, variants);
  s.seeds = 8;
  s.rows = malloc((size_t)(8 * s.spec_count) * sizeof *rows);
  memcpy(s.rows, rows, (size_t)(8 * s.spec_count) * sizeof *rows);
  return s;
}

Test(training_train_study, comparisons) {
  static const double apart[8] = {-3, -2, -1, 0, 0, 1, 2, 3};
  train_row rows[3 * 8];
  train_comparison c[3];
  /* p = 0.03 of both: below 0.05, not below 0.05 / 2 */
  const double error = sqrt(28.0 / 7 / 8), t = gsl_cdf_tdist_Qinv(0.015, 7);
  for (int i = 0; i < 8; i++) {
    rows[i] = (train_row){.trained = {1, 0.5 + 0.01 * i}, .swapped = {2, 0.25}};
    rows[8 + i] = rows[16 + i] = rows[i];
    rows[8 + i].trained.accuracy -= 0.01 * (t * error + apart[i]);
    rows[16 + i].trained.accuracy += 0.01 * (t * error + apart[i]);
  }
  train_study s = compared(rows, 2);
  cr_assert(train_compare(&s, 0, c) == ATTN_OK);
  cr_expect(fabs(c[1].p - 0.03) < 1e-9 && c[1].word == TRAIN_OPEN && c[2].word == TRAIN_OPEN, "%g", c[1].p);
  cr_expect(fabs(c[1].difference.at + 0.01 * t * error) < 1e-12 && c[1].difference.hi < 0);
  cr_expect(c[0].difference.at == 0 && isnan(c[0].p) && fabs(c[0].trained.accuracy - 0.535) < 1e-12 &&
            c[0].swapped.loss == 2 && c[0].swapped.accuracy == 0.25);
  train_study_free(&s);
  s = compared(rows, 1);
  cr_assert(train_compare(&s, 0, c) == ATTN_OK);
  cr_expect(c[1].word == TRAIN_WORSE, "alone it is at 0.03");
  train_study_free(&s);
  for (int i = 0; i < 8; i++) rows[8 + i] = rows[i];
  for (int i = 0; i < 8; i++) rows[16 + i].trained.accuracy = rows[i].trained.accuracy + 0.125;
  s = compared(rows, 2);
  cr_assert(train_compare(&s, 0, c) == ATTN_OK);
  cr_expect(c[1].p == 1 && c[1].word == TRAIN_OPEN && c[2].p < 1e-6 && c[2].word == TRAIN_BETTER);
  /* 16 letters may be the answer; a span ends with its steps. */
  double read[3 * 8], share[TRAIN_SPANS];
  cr_assert(train_results_write(&s, fixture_path("compared.h5"), NULL) == ATTN_OK, "%s", attn_last_error());
  const hid_t file = H5Fopen(fixture_path("compared.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
  cr_assert(H5LTread_dataset_double(file, "curves/share", share) >= 0);
  for (int i = 0; i < TRAIN_SPANS; i++) cr_expect_eq(share[i], (i + 1.0) / TRAIN_SPANS);
  static const char *const columns[][4] = {{"chance", "seed", "steps", "p_value"},
                                           {"loss", "accuracy", "swapped_loss", "swapped_accuracy"},
                                           {"difference", "difference_lo", "difference_hi", "chance"}};
  for (int k = 0; k < 12; k++) {
    cr_assert(H5LTread_dataset_double(file, columns[k / 4][k % 4], read) >= 0, "%s", columns[k / 4][k % 4]);
    for (int i = 0; i < 3 * 8; i++) {
      const train_score a = s.rows[i].trained, b = s.rows[i].swapped;
      const interval d = c[i / 8].difference;
      const double of[][4] = {{1.0 / 16, i % 8, (double)s.tasks[0]->steps, c[i / 8].p},
                              {a.loss, a.accuracy, b.loss, b.accuracy},
                              {d.at, d.lo, d.hi, 1.0 / 16}},
                   x = of[k / 4][k % 4];
      cr_expect(isnan(x) ? isnan(read[i]) : read[i] == x, "%s of %d", columns[k / 4][k % 4], i);
    }
  }
  H5Fclose(file);
  train_study_free(&s);
}
