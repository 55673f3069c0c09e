/* claims_file.c - claims.h5: a row a figure. */
#include "experiments/claims/claim.h"

#include <stdlib.h>

#include "data/formats/hdf5_input.h"
#include "experiments/results/hdf5/flat_file.h"

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
    {.name = NULL},
};

#define TITLE "Published claims, rerun"

static bool is_claims(const char *path, const file_map *content) {
  return hdf5_input_is(path, content, "title", TITLE);
}

const output_kind kind_claims = {"a file of claims", is_claims};

attn_status claims_write(const char *path, const claim *const *claims, const claim_report *reports,
                         int count) {
  size_t total = 0, filled = 0;
  for (int i = 0; i < count; i++) total += (size_t)reports[i].count;
  figure_row *all = calloc(total + 1, sizeof *all);
  const void **rows = calloc(total + 1, sizeof *rows);
  attn_status status = ATTN_OK;
  if (!all || !rows) status = attn_fail(ATTN_ENOMEM, "no memory for %zu figures", total);
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
    }
  if (!status)
    status = flat_file_write(
        path, &kind_claims,
        &(flat_file){
            .title = TITLE, .dimension = "figure", .columns = columns, .rows = rows, .count = total});
  free(all);
  free(rows);
  return status;
}
