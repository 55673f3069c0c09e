/* write.c - claims.h5: a row a figure. */
#include "experiments/claims/claim.h"

#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "experiments/results/hdf5_variables.h"

typedef struct columns {
  const char **name, **statement, **source, **what;
  double *value, *low, *high, *said, *seconds;
  int8_t *reproduced;
  int64_t *row;
} columns;

static bool write_columns(hid_t root, hsize_t rows, const columns *c) {
  h5_dim axis = {.scale = -1, .length = rows};
  const h5_variable first = {
      .name = "figure", .type = H5_I64, .data = c->row, .units = "1", .long_name = "number of the figure"};
  if (!h5_dimension_write(root, &first, &axis)) return false;
  const h5_variable all[] = {
      {.name = "claim", .type = H5_TEXT, .data = c->name, .long_name = "claim"},
      {.name = "statement", .type = H5_TEXT, .data = c->statement, .long_name = "what would have to hold"},
      {.name = "source", .type = H5_TEXT, .data = c->source, .long_name = "who claims it"},
      {.name = "reproduced",
       .type = H5_I8,
       .data = c->reproduced,
       .units = "1",
       .boolean = true,
       .long_name = "whether it held"},
      {.name = "what", .type = H5_TEXT, .data = c->what, .long_name = "what was measured"},
      {.name = "value",
       .type = H5_F64,
       .data = c->value,
       .units = "1",
       .long_name = "measured, a mean over seeds if it has an interval"},
      {.name = "low",
       .type = H5_F64,
       .data = c->low,
       .units = "1",
       .long_name = "lower end of the 95 % interval"},
      {.name = "high",
       .type = H5_F64,
       .data = c->high,
       .units = "1",
       .long_name = "upper end of the 95 % interval"},
      {.name = "said", .type = H5_F64, .data = c->said, .units = "1", .long_name = "by the source"},
      {.name = "seconds",
       .type = H5_F64,
       .data = c->seconds,
       .units = "s",
       .long_name = "time of the whole claim"}};
  bool fine = true;
  for (size_t i = 0; i < sizeof all / sizeof *all && fine; i++) {
    h5_variable v = all[i];
    v.dims[0] = &axis;
    fine = h5_variable_write(root, &v);
  }
  H5Dclose(axis.scale);
  return fine;
}

static void fill(columns *c, const claim *const *claims, const claim_report *reports, int count) {
  int64_t row = 0;
  for (int i = 0; i < count; i++)
    for (int k = 0; k < reports[i].count; k++, row++) {
      const claim_figure *f = &reports[i].figures[k];
      c->name[row] = claims[i]->name;
      c->statement[row] = claims[i]->statement;
      c->source[row] = claims[i]->source;
      c->what[row] = f->what;
      c->value[row] = f->value;
      c->low[row] = f->low;
      c->high[row] = f->high;
      c->said[row] = f->said;
      c->seconds[row] = reports[i].seconds;
      c->reproduced[row] = reports[i].reproduced;
      c->row[row] = row;
    }
}

attn_status claims_write(const char *path, const claim *const *claims, const claim_report *reports,
                         int count) {
  size_t rows = 0, size = 0;
  for (int i = 0; i < count; i++) rows += (size_t)reports[i].count;
  char *block = calloc(rows + 1, 11 * 8);
  if (!block) return attn_fail(ATTN_ENOMEM, "no memory for %zu figures", rows);
#define COLUMN(type, i) (type)(void *)(block + (i)*8 * rows)
  columns c = {COLUMN(const char **, 0), COLUMN(const char **, 1), COLUMN(const char **, 2),
               COLUMN(const char **, 3), COLUMN(double *, 4),      COLUMN(double *, 5),
               COLUMN(double *, 6),      COLUMN(double *, 7),      COLUMN(double *, 8),
               COLUMN(int8_t *, 9),      COLUMN(int64_t *, 10)};
#undef COLUMN
  fill(&c, claims, reports, count);
  void *image = NULL;
  hid_t file = h5_file_create();
  attn_status status = file < 0 ? ATTN_EFOREIGN : ATTN_OK;
  if (!status &&
      (!h5_attribute_text(file, "title", "Published claims, rerun") || !write_columns(file, rows, &c))) {
    H5Fclose(file);
    status = ATTN_EFOREIGN;
  } else if (!status) {
    status = h5_file_image(file, &image, &size);
  }
  const file_part part = {image, size};
  if (!status) status = file_write(path, &part, 1);
  free(image);
  free(block);
  return status;
}
