/* bound.c - how a finding becomes a verdict. */
#include "experiments/results/bound.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "experiments/support/names.h"

void bound_begin(result_bound *b, const char *name, check_kind kind) {
  *b = (result_bound){.name = name, .kind = kind, .verdict = VERDICT_NOT_APPLICABLE, .message = ""};
  b->value = b->measured = b->margin = b->p_value = (double)NAN;
}

bool bound_is_empty(const result_bound *b) {
  return b->verdict == VERDICT_NOT_APPLICABLE && isnan(b->value) && isnan(b->measured) && !*b->message;
}

/* printf gives a NaN a sign, and small letters. */
static void name_nan(char *text) {
  for (char *at = text; (at = strstr(at, "nan")) != NULL; at += 3) {
    char *first = at > text && at[-1] == '-' ? at - 1 : at;
    if ((first > text && !strchr(" (=[", first[-1])) || !strchr(" ,;:)]", at[3])) continue;
    memmove(first, at, strlen(at) + 1);
    memcpy(first, "NaN", 3);
    at = first;
  }
}

void bound_say(result_bound *b, const char *format, ...) {
  char text[1024], cut[192];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  name_nan(text);
  column_cut_text(cut, sizeof cut, text);
  const char *kept = names_keep(cut);
  b->message = kept ? kept : "";
}

static attn_status bound_set(result_bound *b, check_kind kind, check_verdict verdict, double measured,
                             double value) {
  b->kind = kind;
  b->verdict = verdict;
  b->measured = measured;
  b->value = value;
  b->margin = measured == 0 && value == 0 ? 0 : measured / value;
  return ATTN_OK;
}

static bool within(double measured, double value) { return measured <= value * (1 + 1e-6); }

static attn_status doubt_infinite(result_bound *b) {
  return isinf(b->value) ? bound_uncertifiable(b, "an infinite bound certifies nothing") : ATTN_OK;
}

attn_status bound_hard(result_bound *b, double measured, double value) {
  if (!within(measured, value)) return bound_set(b, KIND_HARD, VERDICT_VIOLATED, measured, value);
  bound_set(b, KIND_HARD, VERDICT_PASS, measured, value);
  return doubt_infinite(b);
}

attn_status bound_property(result_bound *b, double measured, double value) {
  bound_hard(b, measured, value);
  b->kind = KIND_PROPERTY;
  return ATTN_OK;
}

attn_status bound_prob(result_bound *b, double measured, double value, double p_value) {
  b->p_value = p_value;
  return bound_set(b, KIND_PROB, VERDICT_CONSISTENT, measured, value);
}

attn_status bound_report(result_bound *b, double measured, double value) {
  return bound_set(b, KIND_REPORT, VERDICT_NOT_APPLICABLE, measured, value);
}

attn_status bound_excuse(result_bound *b, check_verdict verdict, const char *why) {
  b->verdict = verdict;
  bound_say(b, "%s", why);
  return ATTN_OK;
}

attn_status bound_uncertifiable(result_bound *b, const char *why) {
  return bound_excuse(b, VERDICT_UNCERTIFIABLE, why);
}

attn_status bound_model(result_bound *b, double measured, double value) {
  bound_set(b, KIND_MODEL, VERDICT_CONSISTENT, measured, value);
  if (!within(measured, value)) return bound_uncertifiable(b, "warning: more than the model allows");
  return doubt_infinite(b);
}

attn_status bound_not_applicable(result_bound *b, const char *why) {
  return bound_excuse(b, VERDICT_NOT_APPLICABLE, why);
}

/* Whether a verdict of this kind counts among those that are proven, or among those of models. */
static bool counts(const result_bound *b, bool models) {
  switch (b->kind) {
  case KIND_HARD:
  case KIND_PROB:
    return !models;
  case KIND_MODEL:
    return models;
  case KIND_REPORT:
  case KIND_PROPERTY:
    break;
  }
  return !models && (b->verdict == VERDICT_ERROR || b->verdict == VERDICT_VIOLATED);
}

static bool outranks(check_verdict a, check_verdict b) {
  const int rank[VERDICTS] = {[VERDICT_PASS] = 1,      [VERDICT_CONSISTENT] = 2, [VERDICT_UNCERTIFIABLE] = 3,
                              [VERDICT_UNCHECKED] = 4, [VERDICT_ERROR] = 5,      [VERDICT_VIOLATED] = 6};
  return rank[a] > rank[b];
}

static check_verdict worst_of(const result_bound *bounds, int count, bool models, check_verdict none) {
  check_verdict worst = VERDICT_NOT_APPLICABLE;
  for (int i = 0; i < count; i++)
    if (counts(&bounds[i], models) && outranks(bounds[i].verdict, worst)) worst = bounds[i].verdict;
  return worst == VERDICT_NOT_APPLICABLE ? none : worst;
}

check_verdict bounds_worst(const result_bound *bounds, int count) {
  return worst_of(bounds, count, false, VERDICT_UNCHECKED);
}

void result_row_judge(result_row *row) {
  const bool unknown = row->rows_sampled > 0 && (isnan(row->err_max_abs) || row->rows_degenerate > 0);
  row->verdict = bounds_worst(row->bounds, row->bounds_count);
  for (int b = 0; row->properties && b < row->properties->count; b++)
    if (outranks(row->properties->cells[b].verdict, row->verdict) &&
        counts(&row->properties->cells[b], false))
      row->verdict = row->properties->cells[b].verdict;
  if (unknown && (row->verdict == VERDICT_PASS || row->verdict == VERDICT_CONSISTENT))
    row->verdict = VERDICT_UNCERTIFIABLE;
  row->model_verdict = worst_of(row->bounds, row->bounds_count, true, VERDICT_NOT_APPLICABLE);
}
