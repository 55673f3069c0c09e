/* drawn_problem.c - see drawn_problem.h. */
#include "experiments/conformance/drawn_problem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/properties/placement.h"

enum { CHOICES = 16, SIZE_MOST = 1 << 17 };

/* A number, or one of the names of 0, 1 ... */
typedef struct field {
  const char *name;
  int64_t plain, min, max;
  const char *choices[CHOICES];
} field;

_Static_assert((int)SCORES < (int)CHOICES, "names end in NULL");
static const field fields[FIELDS] = {
    [FIELD_N_Q] = {"n_q", 1, 1, SIZE_MOST, {NULL}},
    [FIELD_N_KV] = {"n_kv", 1, 1, SIZE_MOST, {NULL}},
    [FIELD_D] = {"d", 1, 1, 4096, {NULL}},
    [FIELD_D_V] = {"d_v", 1, 1, 4096, {NULL}},
    [FIELD_BATCH] = {"batch", 1, 1, TRIAL_BATCH, {NULL}},
    [FIELD_HEADS] = {"heads", 1, 1, 256, {NULL}},
    [FIELD_KV_HEADS] = {"kv_heads", 1, 1, 256, {NULL}},
    [FIELD_DTYPE] = {"dtype", .choices = {"f32", "f64"}},
    [FIELD_CAUSAL] = {"causal", .choices = {"no", "yes"}},
    [FIELD_PADDING] = {"padding", .choices = {"none", "each", "last", "empty"}},
    [FIELD_SCORE] = {"score", .choices = {"none", "softcap", "leaky", "alibi", "relative", "bias", "hidden",
                                          "sink", "softcap_bias", "leaky_alibi_sink", "softcap_hidden",
                                          "softcap_alibi", "softcap_sink", "bias_sink", "hidden_relative"}},
    [FIELD_MASK] = {"mask", .choices = {"none", "prefix", "block_causal", "documents", "graph"}},
    [FIELD_SCALE] = {"scale", .choices = {"root", "zero", "negative", "large", "far"}},
    [FIELD_VALUES] = {"values", .choices = {"ordinary", "large", "small"}},
    [FIELD_LAYOUT] = {"layout", .choices = {"contiguous", "interleaved", "shared", "spaced", "roomy"}},
    [FIELD_LSE] = {"lse", .choices = {"no", "yes"}},
    [FIELD_WATCHED] = {"watched", .choices = {"no", "yes"}},
    [FIELD_LATER] = {"later", .choices = {"no", "yes"}},
    [FIELD_THREADS] = {"threads", 1, 1, 64, {NULL}},
    [FIELD_ISA] = {"isa", .choices = {NULL}},
    [FIELD_SEED] = {"seed", 1, 0, INT64_MAX / 2, {NULL}}};

/* The names of a field's values, or an empty list: it is a number. */
static const char *const *names_of(problem_field f) {
  return f == FIELD_ISA ? attn_isa_list() : fields[f].choices;
}

problem problem_plain(void) {
  problem p;
  for (int f = 0; f < FIELDS; f++) p.value[f] = fields[f].plain;
  return p;
}

static void value_print(const problem *p, problem_field f, char *out, size_t size) {
  const int64_t v = p->value[f];
  if (*names_of(f))
    snprintf(out, size, "%s", names_of(f)[v]);
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
  const char *const *names = names_of(f);
  char *end;
  for (int64_t v = 0; names[v]; v++)
    if (strlen(names[v]) == length && strncmp(names[v], text, length) == 0) {
      *out = v;
      return true;
    }
  if (*names) return false;
  *out = strtoll(text, &end, 10);
  return end == text + length && *out >= fields[f].min && *out <= fields[f].max;
}

attn_status problem_parse(const char *text, problem *out) {
  problem p = problem_plain();
  for (const char *at = text; *at;) {
    const size_t length = strcspn(at, ","), name = strcspn(at, "=,");
    int f = 0;
    while (f < FIELDS && (strlen(fields[f].name) != name || strncmp(fields[f].name, at, name) != 0)) f++;
    if (f == FIELDS || at[name] != '=' ||
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
  const int64_t heads = p->value[FIELD_HEADS], kv_heads = p->value[FIELD_KV_HEADS];
  if (heads % kv_heads == 0) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "case: kv_heads = %" PRId64 " does not divide heads = %" PRId64, kv_heads,
                   heads);
}
