/* parameters.c - the columns p_<name> of a results file: parameters of variants, NaN or "" where a run has
 * none of the name. A column is of texts if any run has it as a text: numbers among them are in their
 * shortest form, and the column params says which they are. */
#include "experiments/results/hdf5/groups.h"
#include "experiments/results/param.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "experiments/support/json_reader.h"
#include "experiments/support/names.h"

/* ---- writing ------------------------------------------------------------------------------------------- */

/* The shortest decimal that reads back as the same number. */
static char *number_text(double x) {
  char text[32] = "";
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, x);
    if (!(strtod(text, NULL) < x || strtod(text, NULL) > x)) break;
  }
  return strdup(text);
}

static bool write_texts(hid_t root, const result_set *set, const char *name, h5_variable v) {
  const char **texts = calloc(set->count + 1, sizeof *texts);
  char **own = calloc(set->count + 1, sizeof *own);
  bool good = texts && own;
  for (size_t i = 0; good && i < set->count; i++) {
    const result_param *p = result_row_param(&set->rows[i], name);
    texts[i] = p && p->text ? p->text : "";
    if (p && !p->text && !isnan(p->value)) {
      texts[i] = own[i] = number_text(p->value);
      good = own[i] != NULL;
    }
  }
  v.type = H5_TEXT;
  v.data = texts;
  good = good && h5_variable_write(root, &v);
  for (size_t i = 0; own && i < set->count; i++) free(own[i]);
  free(own);
  free(texts);
  return good;
}

static bool write_numbers(hid_t root, const result_set *set, const char *name, h5_variable v) {
  double *numbers = calloc(set->count + 1, sizeof *numbers);
  for (size_t i = 0; numbers && i < set->count; i++) {
    const result_param *p = result_row_param(&set->rows[i], name);
    numbers[i] = p ? p->value : (double)NAN;
  }
  v.type = H5_F64;
  v.data = numbers;
  v.units = "1";
  const bool good = numbers && h5_variable_write(root, &v);
  free(numbers);
  return good;
}

attn_status results_write_parameters(hid_t root, const h5_dim *run, const result_set *set) {
  names parameters = {0};
  attn_status status = results_param_names(set, &parameters);
  for (size_t p = 0; !status && p < parameters.count; p++) {
    const char *name = parameters.items[p];
    char *column = text_format("p_%s", name), *about = results_param_about(set, name);
    const h5_variable v = {.name = column, .dims = {run}, .long_name = about};
    if (!column || !about)
      status = attn_fail(ATTN_ENOMEM, "out of memory for the parameter %s", name);
    else if (!(results_param_is_text(set, name) ? write_texts : write_numbers)(root, set, name, v))
      status = ATTN_EFOREIGN;
    free(column);
    free(about);
  }
  names_free(&parameters);
  return status;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* A text of a column is a number if it reads as one, until the column params says otherwise. */
static attn_status add_value(result_row *row, const char *name, const char *text) {
  json_reader r = json_reader_of(text, strlen(text));
  double number;
  const bool is_number = json_reader_peek(&r) == JSON_READ_NUMBER && json_reader_number(&r, &number, NULL) &&
                         json_reader_end(&r);
  json_reader_free(&r);
  return is_number ? result_row_add_param(row, name, number) : result_row_add_text(row, name, text);
}

static attn_status read_texts(const h5_source *s, const char *column, const char *name, result_set *set) {
  char **texts = NULL;
  attn_status status = h5_read_texts(s, column, 1, &set->count, &texts);
  for (size_t i = 0; !status && i < set->count; i++)
    if (*texts[i]) status = add_value(&set->rows[i], name, texts[i]);
  h5_texts_free(texts, texts ? set->count : 0);
  return status;
}

static attn_status read_numbers(const h5_source *s, const char *column, const char *name, result_set *set) {
  double *values = NULL;
  attn_status status = h5_read_f64(s, column, 1, &set->count, &values);
  for (size_t i = 0; !status && i < set->count; i++)
    if (!isnan(values[i])) status = result_row_add_param(&set->rows[i], name, values[i]);
  free(values);
  return status;
}

attn_status results_read_parameters(const h5_source *root, result_set *set) {
  char **members = NULL;
  size_t count = 0;
  bool texts = false;
  attn_status status = h5_members(root, &members, &count);
  for (size_t i = 0; !status && i < count; i++) {
    if (strncmp(members[i], "p_", 2) != 0) continue;
    const char *name = names_keep(members[i] + 2);
    const bool text = h5_is_text(root, members[i]);
    texts = texts || text;
    if (!name)
      status = attn_fail(ATTN_ENOMEM, "%s: out of memory for parameters", root->path);
    else
      status = (text ? read_texts : read_numbers)(root, members[i], name, set);
  }
  for (size_t i = 0; !status && texts && i < set->count; i++)
    status = result_row_settle_params(&set->rows[i]);
  h5_texts_free(members, count);
  return status;
}
