/* train_results.c - see train_results.h. */
#include "experiments/training/train_results.h"

#include <math.h>
#include <stdlib.h>

#include "data/formats/hdf5_input.h"
#include "experiments/report/page.h"
#include "experiments/results/hdf5/flat_file.h"
#include "experiments/support/label.h"

#define TITLE "Models trained with a variant"
#define SCHEMA "attnlab-training"

typedef struct model_row {
  const char *task, *about, *label, *variant, *spec, *word, *later;
  int64_t seed, steps;
  double chance, p;
  interval difference;
  train_row scores;
} model_row;

static model_row row_of(const train_study *s, int64_t task, int64_t spec, int64_t seed, const char *label,
                        const train_comparison *c) {
  const train_task *t = s->tasks[task];
  model_row row = {.task = t->name,
                   .about = t->about,
                   .label = label,
                   .variant = s->specs[spec]->variant->name,
                   .spec = s->specs[spec]->text,
                   .word = spec ? train_words[c->word] : "exact",
                   .later = s->later[spec] ? s->later[spec] : "",
                   .seed = seed,
                   .steps = train_steps(t, &s->settings),
                   .chance = 1 / (double)t->answers,
                   .p = c->p,
                   .difference = c->difference,
                   .scores = *train_study_row(s, task, spec, seed)};
  for (int64_t i = train_spans(t, &s->settings); i < TRAIN_SPANS; i++) row.scores.curve[i] = (double)NAN;
  return row;
}

#define COLUMN(column, type_, field, units_, text) \
  { .name = column, .type = type_, .offset = offsetof(model_row, field), .units = units_, .long_name = text }
#define TEXT(name, text) COLUMN(#name, COLUMN_TEXT, name, NULL, text)
#define NUMBER(name, field, text) COLUMN(name, COLUMN_F64, field, "1", text)

static const result_column columns[] = {
    TEXT(task, "what the model was taught, by its name"),
    TEXT(about, "what the task is"),
    TEXT(label, "variant with the parameters that are not left at their defaults"),
    TEXT(variant, "its attention"),
    TEXT(spec, "variant with all its parameters"),
    COLUMN("seed", COLUMN_I64, seed, "1", "of weights, data and draws"),
    COLUMN("steps", COLUMN_I64, steps, "1", "of the training"),
    NUMBER("chance", chance, "accuracy of a guess"),
    NUMBER("loss", scores.trained.loss, "trained and tested with the variant: nats a scored position"),
    NUMBER("accuracy", scores.trained.accuracy,
           "trained and tested with the variant: share of scored positions that are right"),
    NUMBER("swapped_loss", scores.swapped.loss,
           "trained with exact attention, tested with the variant: nats a scored position"),
    NUMBER("swapped_accuracy", scores.swapped.accuracy,
           "trained with exact attention, tested with the variant: share that is right"),
    NUMBER("difference", difference.at, "mean over the seeds of the accuracy less exact attention's"),
    NUMBER("difference_lo", difference.lo, "lower end of its 95 % interval (Student's, paired)"),
    NUMBER("difference_hi", difference.hi, "upper end of its 95 % interval (Student's, paired)"),
    NUMBER("p_value", p, "of a difference of 0; NaN: fewer than eight seeds, or exact attention"),
    TEXT(word, "worse or better at 5 % after Holm's correction over the variants of the task, else open"),
    TEXT(later, "why an answer may depend on later tokens; empty: it does not"),
    {.name = NULL},
};

static bool is_results(const char *path, const file_map *content) {
  return hdf5_input_is(path, content, "schema", SCHEMA);
}

const output_kind kind_training_results = {"results of attnlab train", is_results};

/* Rows in the order of tasks, specs and seeds. */
static attn_status fill_rows(const train_study *s, char *const *labels, model_row *rows,
                             const void **places) {
  train_comparison c[TRAIN_SPECS];
  attn_status status = ATTN_OK;
  int64_t i = 0;
  for (int64_t t = 0; !status && t < s->task_count; t++) {
    status = train_compare(s, t, c);
    for (int64_t v = 0; !status && v < s->spec_count; v++)
      for (int64_t seed = 0; seed < s->seeds; seed++, i++) {
        rows[i] = row_of(s, t, v, seed, labels[v], &c[v]);
        places[i] = &rows[i];
      }
  }
  return status;
}

attn_status train_results_write(const train_study *s, const char *file, const char *page) {
  const size_t count = (size_t)(s->task_count * s->spec_count * s->seeds);
  model_row *rows = calloc(count, sizeof *rows);
  const void **places = calloc(count, sizeof *places);
  char *labels[TRAIN_SPECS] = {NULL};
  double share[TRAIN_SPANS];
  int64_t spans = 0;
  flat_file table = {.title = TITLE,
                     .schema = SCHEMA,
                     .dimension = "run",
                     .columns = columns,
                     .rows = places,
                     .count = count,
                     .series = {.group = "curves",
                                .dimension = "share",
                                .about = "of the steps, at the end of a span",
                                .at = share,
                                .name = "loss",
                                .long_name = "of the span's batches, before they were learned from: nats a "
                                             "scored position",
                                .offset = offsetof(model_row, scores.curve)}};
  attn_status status = rows && places ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for %zu models", count);
  for (int64_t v = 0; !status && v < s->spec_count; v++) status = label_make(s->specs[v], true, &labels[v]);
  if (!status) status = fill_rows(s, labels, rows, places);
  for (int64_t t = 0; t < s->task_count; t++) spans = attn_max(spans, train_spans(s->tasks[t], &s->settings));
  for (int64_t i = 0; i < spans; i++) share[i] = (double)(i + 1) / (double)spans;
  table.series.length = (size_t)spans;
  if (!status && file) status = flat_file_write(file, &kind_training_results, &table);
  if (!status && page) status = report_write_page(page, REPORT_TRAINING, flat_file_put, &table, TITLE);
  for (int64_t v = 0; v < s->spec_count; v++) free(labels[v]);
  free(rows);
  free(places);
  return status;
}
