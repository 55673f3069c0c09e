/* column.c - reading and writing one field of a record. */
#include "experiments/results/column.h"

#include "experiments/support/names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const void *field(const void *record, const result_column *c) {
  return (const char *)record + c->offset;
}

const char *result_column_text(const void *record, const result_column *c) {
  if (c->axis) return c->flags[result_column_int(record, c)];
  const char *text = *(char *const *)field(record, c);
  return text ? text : "";
}

double result_column_f64(const void *record, const result_column *c) {
  return *(const double *)field(record, c);
}

static bool is_wide(const result_column *c) {
  return c->axis || (c->type != COLUMN_FLAG && c->type != COLUMN_BOOL);
}

int64_t result_column_int(const void *record, const result_column *c) {
  return is_wide(c) ? *(const int64_t *)field(record, c) : *(const int *)field(record, c);
}

void result_column_set_f64(void *record, const result_column *c, double value) {
  *(double *)(void *)((char *)record + c->offset) = value;
}

void result_column_set_int(void *record, const result_column *c, int64_t value) {
  void *at = (char *)record + c->offset;
  if (is_wide(c))
    *(int64_t *)at = value;
  else
    *(int *)at = (int)value;
}

/* The position of a text among a column's flags; false if it is none of them. */
static bool find_flag(const result_column *c, const char *text, int64_t *value) {
  for (int64_t i = 0; c->flags[i]; i++)
    if (strcmp(c->flags[i], text) == 0) {
      *value = i;
      return true;
    }
  return false;
}

bool result_column_allows(const result_column *c, double x, char expected[COLUMN_RANGE]) {
  if ((c->least == 0 && c->most == 0) || isnan(x) || (x >= c->least && x <= c->most)) return true;
  snprintf(expected, COLUMN_RANGE, isinf(c->most) ? "a number from %.16g on" : "a number from %.16g to %.16g",
           c->least, c->most);
  return false;
}

void column_cut_text(char *out, size_t size, const char *text) {
  size_t length = strlen(text);
  if (length >= size)
    for (length = size - 1; length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80;) length--;
  memcpy(out, text, length);
  out[length] = '\0';
}

attn_status result_column_set_text(void *record, const result_column *c, const char *text) {
  char *at = (char *)record + c->offset;
  int64_t flag;
  if (c->flags) {
    if (!find_flag(c, text, &flag)) return ATTN_EINVAL;
    result_column_set_int(record, c, flag);
  } else if (c->kept) {
    const char *kept = names_keep(text);
    if (!kept) return attn_fail(ATTN_ENOMEM, "out of memory for a text of %zu bytes", strlen(text));
    *(const char **)(void *)at = kept;
  } else {
    char *copy = strdup(text);
    if (!copy) return attn_fail(ATTN_ENOMEM, "out of memory for a text of %zu bytes", strlen(text));
    free(*(char **)(void *)at);
    *(char **)(void *)at = copy;
  }
  return ATTN_OK;
}
