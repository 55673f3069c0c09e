/* value_texts.c - integers, reals and ranges from text. */
#include "experiments/grid/value_texts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_tools.h"

void value_ints_free(value_ints *list) {
  free(list->items);
  *list = (value_ints){0};
}

void value_texts_free(value_texts *list) {
  for (size_t i = 0; i < list->count; i++) free(list->items[i]);
  free(list->items);
  *list = (value_texts){0};
}

attn_status value_ints_add(value_ints *list, int64_t value) {
  int64_t *items = realloc(list->items, (list->count + 1) * sizeof *items);
  if (!items) return attn_fail(ATTN_ENOMEM, "no memory for a list of %zu integers", list->count + 1);
  list->items = items;
  items[list->count++] = value;
  return ATTN_OK;
}

attn_status value_texts_add(value_texts *list, const char *text) {
  char *copy = strdup(text);
  char **items = realloc(list->items, (list->count + 1) * sizeof *items);
  if (items) list->items = items;
  if (!items || !copy) {
    free(copy);
    return attn_fail(ATTN_ENOMEM, "no memory for a list of %zu texts", list->count + 1);
  }
  items[list->count++] = copy;
  return ATTN_OK;
}

bool value_real(const char *text, double *value) {
  char *end;
  const double number = strtod(text, &end);
  if (end == text || *end || *text == ' ' || !isfinite(number)) return false;
  *value = number;
  return true;
}

/* A range cut at its colons. */
typedef struct range {
  char text[128];
  const char *start, *end, *step; /* step: NULL for 1 */
  bool geometric;
} range;

static bool split_range(const char *text, range *r) {
  if (strlen(text) >= sizeof r->text) return false;
  strcpy(r->text, text);
  r->start = r->text;
  char *end = strchr(r->text, ':');
  if (!end) return false;
  *end++ = '\0';
  r->end = end;
  char *step = strchr(end, ':');
  if (step) *step++ = '\0';
  r->geometric = step && *step == 'x';
  r->step = r->geometric ? step + 1 : step;
  return true;
}

static attn_status range_error(const tree_node *node, const char *what) {
  return tree_fail(node,
                   "%s: '%s' is not a range, expected start:end, start:end:step or start:end:xfactor with "
                   "start <= end and at most %d values",
                   what, node->text, VALUES_MAX);
}

static attn_status too_many(const tree_node *node, const char *what) {
  return tree_fail(node, "%s: more than %d values in all", what, VALUES_MAX);
}

static attn_status expand_ints(const tree_node *node, const char *what, const range *r, value_ints *out) {
  int64_t start, end, step = 1;
  if (!attn_int_parse(r->start, &start) || !attn_int_parse(r->end, &end) ||
      (r->step && !attn_int_parse(r->step, &step)))
    return range_error(node, what);
  if (start > end || step < (r->geometric ? 2 : 1) || (r->geometric && start < 1))
    return range_error(node, what);
  attn_status status = ATTN_OK;
  int64_t value = start;
  for (size_t count = 0; !status; count++) {
    if (count == VALUES_MAX) return range_error(node, what);
    if (out->count == VALUES_MAX) return too_many(node, what);
    status = value_ints_add(out, value);
    if (r->geometric ? value > end / step : (uint64_t)end - (uint64_t)value < (uint64_t)step) break;
    value = r->geometric ? value * step : value + step;
  }
  return status;
}

static attn_status expand_reals(const tree_node *node, const char *what, const range *r, value_texts *out) {
  double start, end, step = 1;
  if (!value_real(r->start, &start) || !value_real(r->end, &end) || (r->step && !value_real(r->step, &step)))
    return range_error(node, what);
  if (start > end || !(step > (r->geometric ? 1 : 0)) || (r->geometric && start <= 0))
    return range_error(node, what);
  const double steps = r->geometric ? log(end / start) / log(step) : (end - start) / step;
  /* The end counts as met within the rounding of the quotient. */
  const double count = floor(steps * (1 + 1e-12) + 1e-12) + 1;
  if (!(count <= VALUES_MAX)) return range_error(node, what);
  if ((size_t)count > VALUES_MAX - out->count) return too_many(node, what);
  attn_status status = ATTN_OK;
  for (int i = 0; !status && i < (int)count; i++) {
    char text[32];
    snprintf(text, sizeof text, "%.15g", r->geometric ? start * pow(step, i) : start + i * step);
    status = value_texts_add(out, text);
  }
  return status;
}

/* The texts of a node, which is one or a list of them. */
static attn_status count_texts(const tree_node *node, const char *what, size_t *count) {
  if (node->kind == TREE_TEXT) {
    *count = 1;
    return ATTN_OK;
  }
  if (node->kind != TREE_LIST || node->count == 0)
    return tree_fail(node, "%s: expected a value or a list of values", what);
  for (size_t i = 0; i < node->count; i++)
    if (node->items[i]->kind != TREE_TEXT)
      return tree_fail(node->items[i], "%s: expected a single value", what);
  *count = node->count;
  return ATTN_OK;
}

static const tree_node *text_at(const tree_node *node, size_t i) {
  return node->kind == TREE_TEXT ? node : node->items[i];
}

static attn_status read_ints(const tree_node *node, const char *what, value_ints *out) {
  range r;
  int64_t value;
  if (split_range(node->text, &r)) return expand_ints(node, what, &r, out);
  if (out->count == VALUES_MAX) return too_many(node, what);
  if (attn_int_parse(node->text, &value)) return value_ints_add(out, value);
  return tree_fail(node, "%s: '%s' is not an integer (such as 16384, 16k or 16Ki) or a range", what,
                   node->text);
}

attn_status values_read_ints(const tree_node *node, const char *what, int64_t min, int64_t max,
                             value_ints *out) {
  size_t count = 0;
  attn_status status = count_texts(node, what, &count);
  for (size_t i = 0; !status && i < count; i++) {
    const tree_node *text = text_at(node, i);
    size_t next = out->count;
    status = read_ints(text, what, out);
    for (; !status && next < out->count; next++)
      if (out->items[next] < min || out->items[next] > max)
        status = tree_fail(text, "%s: %" PRId64 " is out of range, expected %" PRId64 " to %" PRId64, what,
                           out->items[next], min, max);
  }
  return status;
}

static attn_status read_choice(const tree_node *node, const char *what, const char *const *choices,
                               int64_t max, value_ints *out) {
  char known[128] = "";
  const int found = attn_choice_find(choices, node->text);
  int64_t value, count = 0;
  if (found >= 0) return value_ints_add(out, found);
  for (; choices[count]; count++) {
    const size_t used = strlen(known);
    snprintf(known + used, sizeof known - used, "%s%s", count ? ", " : "", choices[count]);
  }
  if (max && attn_int_parse(node->text, &value) && value >= count && value <= max)
    return value_ints_add(out, value);
  if (max)
    return tree_fail(node, "%s: '%s', expected %s, or an integer from %" PRId64 " to %" PRId64, what,
                     node->text, known, count, max);
  return tree_fail(node, "%s: '%s', expected one of %s", what, node->text, known);
}

attn_status values_read_choices(const tree_node *node, const char *what, const char *const *choices,
                                int64_t max, value_ints *out) {
  size_t count = 0;
  attn_status status = count_texts(node, what, &count);
  for (size_t i = 0; !status && i < count; i++)
    status = read_choice(text_at(node, i), what, choices, max, out);
  return status;
}

static attn_status read_param(const tree_node *node, const attn_param *param, value_texts *out) {
  range r;
  if (strchr(node->text, ','))
    return tree_fail(node, "%s: '%s' has a comma, which separates parameters", param->name, node->text);
  const bool is_range = split_range(node->text, &r);
  if (out->count >= VALUES_MAX) return too_many(node, param->name);
  if (is_range && param->type == ATTN_REAL) return expand_reals(node, param->name, &r, out);
  if (!is_range || param->type != ATTN_INT) return value_texts_add(out, node->text);
  value_ints numbers = {0};
  attn_status status = expand_ints(node, param->name, &r, &numbers);
  if (!status && numbers.count > VALUES_MAX - out->count) status = too_many(node, param->name);
  for (size_t i = 0; !status && i < numbers.count; i++) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, numbers.items[i]);
    status = value_texts_add(out, text);
  }
  value_ints_free(&numbers);
  return status;
}

attn_status values_read_param(const tree_node *node, const attn_param *param, value_texts *out) {
  size_t count = 0;
  attn_status status = count_texts(node, param->name, &count);
  for (size_t i = 0; !status && i < count; i++) status = read_param(text_at(node, i), param, out);
  return status;
}

attn_status values_read_int(const tree_node *node, const char *what, int64_t min, int64_t max, int64_t *out) {
  int64_t value;
  if (node->kind != TREE_TEXT || !attn_int_parse(node->text, &value) || value < min || value > max)
    return tree_fail(node, "%s: expected an integer from %" PRId64 " to %" PRId64, what, min, max);
  *out = value;
  return ATTN_OK;
}

attn_status values_read_real(const tree_node *node, const char *what, double min, double max, double *out) {
  double value;
  if (node->kind != TREE_TEXT || !value_real(node->text, &value) || value < min || value > max)
    return tree_fail(node, "%s: expected a number from %g to %g", what, min, max);
  *out = value;
  return ATTN_OK;
}
