/* params.c - one table of parameters drives parsing, printing, ranges and messages. */
#define _POSIX_C_SOURCE 200809L
#include "core/decimal.h"
#include "core/internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *field(const attn_param *p, void *params) { return (char *)params + p->offset; }
static const void *field_const(const attn_param *p, const void *params) {
  return (const char *)params + p->offset;
}

static attn_status range_error(const char *owner, const attn_param *p, const char *text) {
  return attn_fail(ATTN_EINVAL, "%s: parameter %s=%s is out of range, expected %.17g ... %.17g", owner,
                   p->name, text, p->min, p->max);
}

bool attn_int_parse(const char *text, int64_t *out) {
  static const struct {
    const char *suffix;
    int shift;
  } units[] = {{"", 0},   {"k", 10},  {"K", 10}, {"Ki", 10}, {"m", 20},
               {"M", 20}, {"Mi", 20}, {"g", 30}, {"G", 30},  {"Gi", 30}};
  char *end;
  if (!text || !out || !*text || !strchr("-0123456789", *text)) return false;
  errno = 0;
  const long long value = strtoll(text, &end, 10);
  if (end == text || errno == ERANGE) return false;
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    const int shift = units[i].shift;
    if (strcmp(end, units[i].suffix) != 0) continue;
    if (value > INT64_MAX >> shift || value < -(INT64_MAX >> shift)) return false;
    *out = value * (1LL << shift);
    return true;
  }
  return false;
}

int attn_choice_find(const char *const *choices, const char *text) {
  if (!choices || !text) return -1;
  for (int i = 0; choices[i]; i++)
    if (!strcmp(choices[i], text)) return i;
  if (!strcmp(text, "true")) return attn_choice_find(choices, "yes");
  return strcmp(text, "false") != 0 ? -1 : attn_choice_find(choices, "no");
}

static attn_status parse_int(const char *owner, const attn_param *p, const char *text, int64_t *out) {
  int64_t value = 0;
  if (!attn_int_parse(text, &value))
    return attn_fail(ATTN_EINVAL, "%s: parameter %s=%s, expected an integer, such as 16384, 16k or 16Ki",
                     owner, p->name, text);
  if ((double)value < p->min || (double)value > p->max) return range_error(owner, p, text);
  *out = value;
  return ATTN_OK;
}

static attn_status parse_real(const char *owner, const attn_param *p, const char *text, double *out) {
  char *end;
  double value = strtod(text, &end);
  if (end == text || strspn(text, "-+.0123456789eE") != strlen(text) || *text == '+' || *end ||
      !isfinite(value))
    return attn_fail(ATTN_EINVAL, "%s: parameter %s=%s, expected a number", owner, p->name, text);
  const bool vanished = value == 0 && strcspn(text, "123456789eE") < strcspn(text, "eE");
  if (!(value >= p->min && value <= p->max) || vanished) return range_error(owner, p, text);
  *out = value;
  return ATTN_OK;
}

static attn_status parse_choice(const char *owner, const attn_param *p, const char *text, int *out) {
  char known[200] = "";
  attn_nearest near = {.name = text};
  const int found = attn_choice_find(p->choices, text);
  if (found >= 0) {
    *out = found;
    return ATTN_OK;
  }
  for (int i = 0; p->choices[i]; i++) {
    size_t used = strlen(known);
    snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", p->choices[i]);
    attn_nearest_try(&near, p->choices[i]);
  }
  return attn_fail(ATTN_EINVAL, "%s: parameter %s=%s%s, expected one of %s", owner, p->name, text,
                   attn_nearest_hint(&near), known);
}

static attn_status parse_list(const char *owner, const attn_param *p, char *text, attn_int_list *out) {
  int64_t count = 0, *items = NULL;
  attn_status status = ATTN_OK;
  if (*text) {
    int64_t capacity = 1;
    for (const char *c = text; *c; c++) capacity += *c == '+';
    items = calloc((size_t)capacity, sizeof *items);
    if (!items) return attn_fail(ATTN_ENOMEM, "%s: no memory for parameter %s", owner, p->name);
    for (char *item = text, *next; item; item = next) {
      if ((next = strchr(item, '+'))) *next++ = 0;
      if ((status = parse_int(owner, p, item, &items[count]))) goto out;
      if (count && items[count] <= items[count - 1]) {
        status = attn_fail(ATTN_EINVAL, "%s: parameter %s must be ascending and distinct at %s", owner,
                           p->name, item);
        goto out;
      }
      count++;
    }
  }
  free((void *)(uintptr_t)out->items);
  *out = (attn_int_list){count, items};
  items = NULL;
out:
  free(items);
  return status;
}

static attn_status parse_text(const char *owner, const attn_param *p, const char *text, char **out) {
  char *copy = strdup(text);
  if (!copy) return attn_fail(ATTN_ENOMEM, "%s: no memory for parameter %s", owner, p->name);
  free(*out);
  *out = copy;
  return ATTN_OK;
}

static attn_status parse_value(const char *owner, const attn_param *p, const char *value, void *params) {
  char *text = strdup(value);
  if (!text) return attn_fail(ATTN_ENOMEM, "%s: no memory for parameter %s", owner, p->name);
  attn_status status = ATTN_EINVAL;
  void *f = field(p, params);
  switch (p->type) {
  case ATTN_INT:
    status = parse_int(owner, p, text, f);
    break;
  case ATTN_REAL:
    status = parse_real(owner, p, text, f);
    break;
  case ATTN_CHOICE:
    status = parse_choice(owner, p, text, f);
    break;
  case ATTN_TEXT:
    status = parse_text(owner, p, text, f);
    break;
  case ATTN_INT_LIST:
    status = parse_list(owner, p, text, f);
    break;
  }
  free(text);
  return status;
}

static attn_status unknown_parameter(const char *owner, const attn_param *table, const char *name) {
  char known[256] = "none";
  attn_nearest near = {.name = name};
  for (int i = 0; table[i].name; i++) {
    size_t used = i ? strlen(known) : 0;
    snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", table[i].name);
    attn_nearest_try(&near, table[i].name);
  }
  return attn_fail(ATTN_ENOTFOUND, "%s: unknown parameter '%s'%s, known: %s", owner, name,
                   attn_nearest_hint(&near), known);
}

/* given: of each row of the table, whether it was assigned before. */
static attn_status parse_assignment(const char *owner, const attn_param *table, char *item, bool *given,
                                    void *params) {
  char *value = strchr(item, '=');
  if (!value || value == item) return attn_fail(ATTN_EINVAL, "%s: '%s' is not name=value", owner, item);
  *value++ = 0;
  int row = 0;
  while (table[row].name && strcmp(table[row].name, item)) row++;
  if (!table[row].name) return unknown_parameter(owner, table, item);
  if (given[row]) return attn_fail(ATTN_EINVAL, "%s: parameter %s is given twice", owner, item);
  given[row] = true;
  return parse_value(owner, &table[row], value, params);
}

static attn_status parse_assignments(const char *owner, const attn_param *table, char *text, bool *given,
                                     void *params) {
  attn_status status = ATTN_OK;
  for (char *item = *text ? text : NULL, *next; item && !status; item = next) {
    if ((next = strchr(item, ','))) *next++ = 0;
    status = parse_assignment(owner, table, item, given, params);
  }
  return status;
}

static const char least_of[] = "min(";

/* The row that "min(8,NAME)" names; NULL: the preset is no such thing. */
static const attn_param *limit_of(const attn_param *table, const attn_param *p) {
  const char *name = strchr(p->preset, ',');
  if (p->type != ATTN_INT || strncmp(p->preset, least_of, strlen(least_of)) != 0 || !name) return NULL;
  const size_t length = strcspn(++name, ")");
  while (table->name && (strlen(table->name) != length || strncmp(table->name, name, length) != 0)) table++;
  return table->name && table->type == ATTN_INT ? table : NULL;
}

/* What it is without the other parameter. */
static attn_status parse_preset(const char *owner, const attn_param *table, const attn_param *p,
                                void *params) {
  char text[32];
  if (!limit_of(table, p)) return parse_value(owner, p, p->preset, params);
  const char *value = p->preset + strlen(least_of);
  snprintf(text, sizeof text, "%.*s", (int)strcspn(value, ","), value);
  return parse_value(owner, p, text, params);
}

/* Presets that follow other parameters, once these are known. */
static void follow(const attn_param *table, const bool *given, void *params) {
  for (int i = 0; table[i].name; i++) {
    const attn_param *limit = given[i] ? NULL : limit_of(table, &table[i]);
    int64_t *value = field(&table[i], params);
    if (limit) *value = attn_min(*value, *(const int64_t *)field_const(limit, params));
  }
}

static attn_status print_all(const attn_param *table, const void *params, char **out) {
  char *text = NULL;
  size_t size;
  FILE *stream = open_memstream(&text, &size);
  if (!stream) return attn_fail(ATTN_ENOMEM, "parameters: no memory for their text");
  for (int i = 0; table[i].name; i++) {
    fprintf(stream, "%s%s=", i ? "," : "", table[i].name);
    if (table[i].type == ATTN_TEXT) {
      fputs(*(char *const *)field_const(&table[i], params), stream);
    } else if (table[i].type == ATTN_INT_LIST) {
      const attn_int_list *list = field_const(&table[i], params);
      for (int64_t j = 0; j < list->count; j++)
        fprintf(stream, "%s%lld", j ? "+" : "", (long long)list->items[j]);
    } else {
      char value[64];
      attn_param_print(&table[i], params, value, sizeof value);
      fputs(value, stream);
    }
  }
  if (!attn_stream_text(stream, &text)) return attn_fail(ATTN_ENOMEM, "parameters: no memory for their text");
  *out = text;
  return ATTN_OK;
}

static attn_status parse_params(const char *owner, const attn_param *table, size_t size, const char *text,
                                void **params, char **canonical) {
  if (!owner) return attn_null("parameters", "owner");
  if (!table) return attn_null(owner, "table");
  if (!params) return attn_null(owner, "params");
  if (!canonical) return attn_null(owner, "canonical");
  char *printed = NULL, *copy = strdup(text ? text : "");
  size_t rows = 0;
  while (table[rows].name) rows++;
  bool *given = calloc(rows + 1, sizeof *given);
  void *block = calloc(1, size ? size : 1);
  attn_status status =
      copy && given && block ? ATTN_OK : attn_fail(ATTN_ENOMEM, "%s: no memory for parameters", owner);
  for (size_t i = 0; !status && i < rows; i++) status = parse_preset(owner, table, &table[i], block);
  if (!status) status = parse_assignments(owner, table, copy, given, block);
  if (status) goto out;
  follow(table, given, block);
  if ((status = print_all(table, block, &printed))) goto out;
  *params = block;
  *canonical = printed;
  block = NULL;
out:
  free(copy);
  free(given);
  attn_params_free(table, block);
  return status;
}

attn_status attn_params_parse(const char *owner, const attn_param *table, size_t size, const char *text,
                              void **params, char **canonical) {
  const attn_locale outer = attn_locale_enter();
  const attn_status status = parse_params(owner, table, size, text, params, canonical);
  attn_locale_leave(outer);
  return status;
}

void attn_params_free(const attn_param *table, void *params) {
  if (!table || !params) return;
  for (int i = 0; table[i].name; i++) {
    if (table[i].type == ATTN_TEXT) free(*(char **)field(&table[i], params));
    if (table[i].type == ATTN_INT_LIST)
      free((void *)(uintptr_t)((attn_int_list *)field(&table[i], params))->items);
  }
  free(params);
}

void attn_param_print(const attn_param *p, const void *params, char *buffer, size_t size) {
  if (!p || !params || !buffer || !size) return;
  const void *f = field_const(p, params);
  const attn_locale outer = attn_locale_enter();
  switch (p->type) {
  case ATTN_INT:
    snprintf(buffer, size, "%lld", (long long)*(const int64_t *)f);
    break;
  case ATTN_REAL:
    attn_shortest_print(*(const double *)f, buffer, size);
    break;
  case ATTN_CHOICE:
    snprintf(buffer, size, "%s", p->choices[*(const int *)f]);
    break;
  case ATTN_TEXT:
    snprintf(buffer, size, "%s", *(char *const *)f);
    break;
  case ATTN_INT_LIST: {
    const attn_int_list *list = f;
    size_t used = 0;
    *buffer = 0;
    for (int64_t i = 0; i < list->count && used < size; i++)
      used += (size_t)snprintf(buffer + used, size - used, "%s%lld", i ? "+" : "", (long long)list->items[i]);
    break;
  }
  }
  attn_locale_leave(outer);
}

double attn_param_number(const attn_param *p, const void *params) {
  if (!p || !params) return (double)NAN;
  const void *f = field_const(p, params);
  switch (p->type) {
  case ATTN_INT:
    return (double)*(const int64_t *)f;
  case ATTN_REAL:
    return *(const double *)f;
  case ATTN_CHOICE:
    return *(const int *)f;
  case ATTN_INT_LIST:
    return (double)((const attn_int_list *)f)->count;
  case ATTN_TEXT:
    break;
  }
  return (double)NAN;
}
