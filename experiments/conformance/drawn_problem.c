/* drawn_problem.c - see drawn_problem.h. */
#include "experiments/conformance/drawn_problem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/properties/placement.h"

enum { CHOICES = 16, SIZE_MOST = 1 << 17 };

typedef struct field {
  const char *name;
  int64_t plain, min, max;
  const char *choices[CHOICES]; /* names of values from min on; none: a number */
} field;

#define ANSWER \
  0, 0, 1, { "no", "yes" }
static const field fields[FIELDS] = {
    [FIELD_N_Q] = {"n_q", 1, 1, SIZE_MOST, {NULL}},
    [FIELD_N_KV] = {"n_kv", 1, 1, SIZE_MOST, {NULL}},
    [FIELD_D] = {"d", 1, 1, 4096, {NULL}},
    [FIELD_D_V] = {"d_v", 1, 1, 4096, {NULL}},
    [FIELD_BATCH] = {"batch", 1, 1, TRIAL_BATCH, {NULL}},
    [FIELD_HEADS] = {"heads", 1, 1, 256, {NULL}},
    [FIELD_KV_HEADS] = {"kv_heads", 1, 1, 256, {NULL}},
    [FIELD_DTYPE] = {"dtype", 0, 0, 1, {"f32", "f64"}},
    [FIELD_CAUSAL] = {"causal", ANSWER},
    [FIELD_PADDING] = {"padding", 0, 0, PADDINGS - 1, {"none", "each", "last", "empty"}},
    [FIELD_SCORE] = {"score",
                     0,
                     0,
                     SCORES - 1,
                     {"none", "softcap", "leaky", "alibi", "relative", "bias", "hidden", "sink",
                      "softcap_bias", "leaky_alibi_sink", "softcap_hidden", "softcap_alibi", "softcap_sink",
                      "bias_sink", "hidden_relative"}},
    [FIELD_MASK] =
        {"mask", 0, 0, ATTN_MASK_PATTERN, {"none", "prefix", "block_causal", "documents", "graph"}},
    [FIELD_SCALE] = {"scale", 0, 0, SCALES - 1, {"root", "zero", "negative", "large", "far"}},
    [FIELD_VALUES] = {"values", 0, 0, VALUES - 1, {"ordinary", "large", "small"}},
    [FIELD_LAYOUT] =
        {"layout", 0, 0, LAYOUTS - 1, {"contiguous", "interleaved", "shared", "spaced", "roomy"}},
    [FIELD_LSE] = {"lse", ANSWER},
    [FIELD_WATCHED] = {"watched", ANSWER},
    [FIELD_LATER] = {"later", ANSWER},
    [FIELD_THREADS] = {"threads", 1, 1, 64, {NULL}},
    [FIELD_ISA] = {"isa", 0, 0, 0, {NULL}},
    [FIELD_SEED] = {"seed", 1, 0, INT64_MAX, {NULL}}};

problem problem_plain(void) {
  problem p;
  for (int f = 0; f < FIELDS; f++) p.value[f] = fields[f].plain;
  return p;
}

static void value_print(const problem *p, problem_field f, char *out, size_t size) {
  const int64_t v = p->value[f];
  if (f == FIELD_ISA)
    snprintf(out, size, "%s", attn_isa_list()[v]);
  else if (fields[f].choices[0])
    snprintf(out, size, "%s", fields[f].choices[v]);
  else
    snprintf(out, size, "%" PRId64, v);
}

static void append(char *out, const char *between, const char *text) {
  const size_t used = strlen(out);
  snprintf(out + used, PROBLEM_TEXT - used, "%s%s", used ? between : "", text);
}

static bool is_said(const problem *p, int f) { return f <= FIELD_D_V || p->value[f] != fields[f].plain; }

void problem_print(const problem *p, char out[PROBLEM_TEXT]) {
  *out = 0;
  for (int f = 0; f < FIELDS; f++) {
    char value[32], item[64];
    if (!is_said(p, f)) continue;
    value_print(p, (problem_field)f, value, sizeof value);
    snprintf(item, sizeof item, "%s=%s", fields[f].name, value);
    append(out, ",", item);
  }
}

void problem_words(const problem *p, char out[PROBLEM_TEXT]) {
  static const char *const answers[FIELDS] = {[FIELD_CAUSAL] = "causal",
                                              [FIELD_LSE] = "with its log-sum-exp",
                                              [FIELD_WATCHED] = "watched (attn_plan_verify)",
                                              [FIELD_LATER] = "in a later call of the plan"};
  *out = 0;
  for (int f = 0; f < FIELD_SEED; f++) {
    char value[32], item[64];
    if (!is_said(p, f)) continue;
    value_print(p, (problem_field)f, value, sizeof value);
    if (answers[f])
      snprintf(item, sizeof item, "%s", answers[f]);
    else if (f <= FIELD_KV_HEADS || f == FIELD_THREADS)
      snprintf(item, sizeof item, "%s = %s", fields[f].name, value);
    else if (f == FIELD_DTYPE || f == FIELD_ISA)
      snprintf(item, sizeof item, "%s", value);
    else
      snprintf(item, sizeof item, "%s: %s", fields[f].name, value);
    append(out, ", ", item);
  }
}

static bool parse_value(problem_field f, const char *text, size_t length, int64_t *out) {
  const char *const *names = f == FIELD_ISA ? attn_isa_list() : fields[f].choices;
  const int64_t count = f == FIELD_ISA ? INT64_MAX : fields[f].choices[0] ? fields[f].max + 1 : 0;
  char *end;
  for (int64_t v = 0; v < count && names[v]; v++)
    if (strlen(names[v]) == length && strncmp(names[v], text, length) == 0) {
      *out = v;
      return true;
    }
  if (count) return false;
  *out = strtoll(text, &end, 10);
  return end == text + length && *out >= fields[f].min && *out <= fields[f].max;
}

attn_status problem_parse(const char *text, problem *out) {
  problem p = problem_plain();
  for (const char *at = text; *at;) {
    const size_t length = strcspn(at, ","), name = strcspn(at, "=,");
    int f = 0;
    while (f < FIELDS && (strlen(fields[f].name) != name || strncmp(fields[f].name, at, name) != 0)) f++;
    if (f == FIELDS || name >= length ||
        !parse_value((problem_field)f, at + name + 1, length - name - 1, &p.value[f]))
      return attn_fail(ATTN_EINVAL,
                       "case '%.*s': expected a member of a problem, such as n_kv=3 or causal=yes",
                       (int)(length < 80 ? length : 80), at);
    at += length + (at[length] == ',');
  }
  const attn_status status = problem_check(&p);
  if (!status) *out = p;
  return status;
}

attn_status problem_check(const problem *p) {
  const int64_t *v = p->value;
  for (int f = 0; f < FIELDS; f++)
    if (f != FIELD_ISA && (v[f] < fields[f].min || v[f] > fields[f].max))
      return attn_fail(ATTN_EINVAL, "case: %s = %" PRId64 ", expected %" PRId64 " ... %" PRId64,
                       fields[f].name, v[f], fields[f].min, fields[f].max);
  if (v[FIELD_HEADS] % v[FIELD_KV_HEADS])
    return attn_fail(ATTN_EINVAL, "case: kv_heads = %" PRId64 " does not divide heads = %" PRId64,
                     v[FIELD_KV_HEADS], v[FIELD_HEADS]);
  return ATTN_OK;
}
