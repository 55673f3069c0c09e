/* claims_file.c - claims.h5: a row a figure. */
#include "experiments/claims/claim.h"

#include <stdlib.h>

#include "data/formats/hdf5_input.h"
#include "experiments/results/hdf5/variables.h"

typedef struct figure_row {
  const char *name, *statement, *source, *what, *interval;
  const char *verdict; /* = words */
  claim_figure figure;
  double seconds;
  char words[128];
} figure_row;

#define COLUMN(column, type_, field, units_, text) \
  { .name = column, .type = type_, .offset = offsetof(figure_row, field), .units = units_, .long_name = text }
#define TEXT(name, text) COLUMN(#name, COLUMN_TEXT, name, NULL, text)
#define NUMBER(name, text) COLUMN(#name, COLUMN_F64, figure.name, "1", text)

static const result_column columns[] = {
    COLUMN("claim", COLUMN_TEXT, name, NULL, "claim"),
    TEXT(statement, "what would have to hold"),
    TEXT(source, "who claims it"),
    TEXT(verdict, "how the claim came out"),
    TEXT(what, "what was measured"),
    NUMBER(value, "measured"),
    NUMBER(low, "lower end of the interval"),
    NUMBER(high, "upper end of the interval"),
    NUMBER(level, "level of the interval; NaN: nothing in the value is random"),
    TEXT(interval, "kind of interval"),
    NUMBER(said, "by the source"),
    COLUMN("seconds", COLUMN_F64, seconds, "s", "time of the whole claim"),
};

static bool write_columns(hid_t root, size_t count, const void *const *rows, const int64_t *numbers) {
  h5_dim axis = {.scale = -1, .length = count};
  bool good = h5_dimension_write(root,
                                 &(h5_variable){.name = "figure",
                                                .type = H5_I64,
                                                .data = numbers,
                                                .units = "1",
                                                .long_name = "number of the figure"},
                                 &axis);
  for (size_t i = 0; good && i < sizeof columns / sizeof *columns; i++)
    good = h5_column_write(root, &columns[i], rows, count, (const h5_dim *[]){&axis, NULL}, NULL);
  if (axis.scale >= 0) H5Dclose(axis.scale);
  return good;
}

#define TITLE "Published claims, rerun"

static bool is_claims(const char *path, const file_map *content) {
  return hdf5_input_is(path, content, "title", TITLE);
}

const output_kind kind_claims = {"a file of claims", is_claims};

static attn_status write_rows(const char *path, size_t count, const void *const *rows,
                              const int64_t *numbers) {
  void *image = NULL;
  size_t size = 0;
  const hid_t file = h5_file_create();
  if (file < 0) return ATTN_EFOREIGN;
  if (!h5_attribute_text(file, "title", TITLE) || !write_columns(file, count, rows, numbers)) {
    H5Fclose(file);
    return ATTN_EFOREIGN;
  }
  attn_status status = h5_file_image(file, &image, &size);
  if (!status) status = hdf5_output(path, &kind_claims, image, size);
  free(image);
  return status;
}

attn_status claims_write(const char *path, const claim *const *claims, const claim_report *reports,
                         int count) {
  size_t total = 0, filled = 0;
  for (int i = 0; i < count; i++) total += (size_t)reports[i].count;
  figure_row *all = calloc(total + 1, sizeof *all);
  const void **rows = calloc(total + 1, sizeof *rows);
  int64_t *numbers = calloc(total + 1, sizeof *numbers);
  attn_status status = ATTN_OK;
  if (!all || !rows || !numbers) status = attn_fail(ATTN_ENOMEM, "no memory for %zu figures", total);
  for (int i = 0; !status && i < count; i++)
    for (int k = 0; k < reports[i].count; k++, filled++) {
      all[filled] = (figure_row){.name = claims[i]->name,
                                 .statement = claims[i]->statement,
                                 .source = claims[i]->source,
                                 .what = reports[i].figures[k].what,
                                 .interval = reports[i].figures[k].interval,
                                 .figure = reports[i].figures[k],
                                 .seconds = reports[i].seconds};
      claim_verdict(&reports[i], all[filled].words, sizeof all[filled].words);
      all[filled].verdict = all[filled].words;
      rows[filled] = &all[filled];
      numbers[filled] = (int64_t)filled;
    }
  if (!status) status = write_rows(path, total, rows, numbers);
  free(all);
  free(rows);
  free(numbers);
  return status;
}
