/* setting.c - comparing and naming variants with their parameters. */
#include "experiments/analysis/setting.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "attn_expression.h"
#include "attn_variant.h"
#include "data/support/file.h"
#include "experiments/support/names.h"

static size_t rank_of(const char *variant) {
  size_t i = 0;
  while (i < attn_variant_count() && strcmp(attn_variant_at(i)->name, variant) != 0) i++;
  return i;
}

bool setting_exact(const result_row *row) {
  const attn_problem some = attn_problem_make(1, 1, 64, 16);
  const attn_variant *v;
  attn_plan *plan = NULL;
  attn_view view;
  if (attn_variant_find(row->variant, &v) || !(v->caps & ATTN_CAP_EXACT)) return false;
  const char *spec = row->label ? row->label : row->variant;
  const bool known = !attn_plan_create(&plan, &some, spec, NULL) && !attn_plan_inspect(plan, &view);
  attn_plan_destroy(plan);
  return !known || view.caps & ATTN_CAP_EXACT;
}

/* The name of an expression is a spec of it. A variant that is not here may draw. */
static attn_status look_up(const result_row *row, setting *out) {
  attn_spec *spec = NULL;
  const attn_status status = attn_spec_parse(&spec, row->variant);
  out->exact = !status && setting_exact(row);
  out->drawn = status || spec->variant->seed;
  out->expression = !status && attn_spec_is_expression(spec);
  attn_spec_destroy(spec);
  return status == ATTN_ENOMEM ? status : ATTN_OK;
}

attn_status setting_make(const result_row *row, setting *out) {
  json_t *params = NULL;
  const attn_status status = result_row_params(row, &params);
  if (status) return status;
  if (!params && !(params = json_object()))
    return attn_fail(ATTN_ENOMEM, "out of memory for the settings of %s", row->variant);
  json_object_del(params, "seed"); /* which files of earlier versions hold */
  *out = (setting){.row = row, .params = params, .rank = rank_of(row->variant)};
  const attn_status looked = look_up(row, out);
  if (looked) json_decref(params);
  return looked;
}

void setting_free(setting *s) { json_decref(s->params); }

char *setting_title(const result_row *row, bool rest) {
  char *title = axes_title(row->axis, rest);
  for (text_axis_id t = 0; title && t < TEXT_AXES; t++) {
    if (!text_axis_in_grid(t) || !*result_text(row, t)) continue;
    char *longer = text_format("%s, %s %s", title, text_axes[t].name, result_text(row, t));
    free(title);
    title = longer;
  }
  return title;
}

int setting_group_compare(const result_row *a, const result_row *b, bool machine) {
  int order = strcmp(a->dataset, b->dataset);
  if (order) return order;
  for (axis_id i = 0; i < AXES; i++) {
    if (axes[i].shown == AXIS_NEVER || (i == AXIS_threads && !machine)) continue;
    /* As many keys as queries are alike for every number of queries. */
    const bool follows = axes[i].same_as < AXES;
    const int64_t x = follows && axis_default(i, a->axis) ? 0 : a->axis[i];
    const int64_t y = follows && axis_default(i, b->axis) ? 0 : b->axis[i];
    if (x != y) return (x < y) != axes[i].yes_no ? -1 : 1; /* causal attention first */
  }
  for (text_axis_id t = 0; !order && t < TEXT_AXES; t++)
    if (t != TEXT_AXIS_isa || machine) order = strcmp(result_text(a, t), result_text(b, t));
  return order;
}

/* As strcmp, and numbers in the texts by their values. */
static int compare_texts(const char *a, const char *b) {
  const char *x = a, *y = b;
  while (*x && *y) {
    if (isdigit((unsigned char)*x) && isdigit((unsigned char)*y)) {
      char *x_end, *y_end;
      const double p = strtod(x, &x_end), q = strtod(y, &y_end);
      if (p < q || p > q) return p < q ? -1 : 1;
      x = x_end;
      y = y_end;
    } else if (*x++ != *y++) {
      break;
    }
  }
  return strcmp(a, b);
}

/* The text of a parameter. A number of the JSON text is printed into `number`. */
static const char *text_of(const json_t *value, char *number, size_t size) {
  if (json_is_string(value)) return json_string_value(value);
  if (json_is_integer(value))
    snprintf(number, size, "%lld", (long long)json_integer_value(value));
  else
    snprintf(number, size, "%.17g", json_number_value(value));
  return number;
}

int setting_compare(const setting *a, const setting *b) {
  if (a->row->variant == b->row->variant && a->params == b->params) return 0;
  if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
  int order = compare_texts(a->row->variant, b->row->variant);
  if (order || json_equal(a->params, b->params)) return order;
  const char *name;
  json_t *value;
  json_object_foreach(a->params, name, value) {
    char first[64], second[64], *first_end, *second_end;
    const char *x_text = text_of(value, first, sizeof first);
    const char *y_text = text_of(json_object_get(b->params, name), second, sizeof second);
    const double p = strtod(x_text, &first_end), q = strtod(y_text, &second_end);
    if (!*first_end && !*second_end && (p < q || p > q)) return p < q ? -1 : 1;
    if ((order = strcmp(x_text, y_text))) return order;
  }
  return (json_object_size(a->params) > json_object_size(b->params)) -
         (json_object_size(a->params) < json_object_size(b->params));
}

bool setting_is_preset(const char *variant, const char *name, const json_t *value) {
  const size_t rank = rank_of(variant);
  const attn_param *p = rank < attn_variant_count() ? names_param(attn_variant_at(rank)->params, name) : NULL;
  if (!p) return false;
  char number[64], *end;
  const char *text = text_of(value, number, sizeof number), *preset = p->preset ? p->preset : "";
  if (strcmp(text, preset) == 0) return true;
  const double x = strtod(preset, &end);
  return end != preset && !*end && json_is_number(value) && json_number_value(value) == x;
}

const char *setting_label(const setting *s) {
  return *text_or_none(s->row->label) ? s->row->label : s->row->variant;
}
