/* target.c - scores and masks by their texts: what is computed of Q, K and V (attn_problem.score and mask). */
#define _POSIX_C_SOURCE 200809L
#include "data/data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "data/support/file.h"

/* ---- texts --------------------------------------------------------------------------------------------- */

typedef struct score_params {
  double softcap, leaky;
  int alibi;
  const char *bias, *sink;
} score_params;

static const char *const no_yes[] = {"no", "yes", NULL};
#define FIELD(member) offsetof(score_params, member)
static const attn_param score_table[] = {
    {"softcap", ATTN_REAL, FIELD(softcap), 0, 1e30, "0", NULL, "s becomes CAP tanh(s / CAP)"},
    {"leaky", ATTN_REAL, FIELD(leaky), 0, 1, "0", NULL, "s below 0 becomes SLOPE s"},
    {"alibi", ATTN_CHOICE, FIELD(alibi), 0, 1, "no", no_yes, "bias -slope(head) |distance|"},
    {"bias", ATTN_TEXT, FIELD(bias), 0, 0, "", NULL, "bias of each score, .npy"},
    {"sink", ATTN_TEXT, FIELD(sink), 0, 0, "", NULL, "logit of value 0: a number, or .npy [heads]"},
    {0}};

static bool is_none(const char *text) { return !*text || strcmp(text, "none") == 0; }

/* Runs' keys are made of words. */
static attn_status check_word(const char *what, const char *text) {
  if (!text[strcspn(text, " \t\n\r")]) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s '%s': blanks are not allowed", what, text);
}

/* The text with "alibi" in full. */
static char *spell_out(const char *text) {
  char *out = text_format("%s", ""), *longer;
  for (const char *at = text; out && *at;) {
    const int length = (int)strcspn(at, ",");
    const bool word = length == 5 && strncmp(at, "alibi", 5) == 0;
    longer = text_format("%s%s%.*s%s", out, *out ? "," : "", length, at, word ? "=yes" : "");
    free(out);
    out = longer;
    at += length + (at[length] == ',');
  }
  return out;
}

/* *params: NULL for none; else to be released by attn_params_free. *all: every parameter, in order. */
static attn_status read_score(const char *text, void **params, char **all) {
  *params = NULL;
  *all = NULL;
  if (is_none(text)) return ATTN_OK;
  char *full = NULL;
  attn_status status = check_word("score", text);
  if (!status && !(full = spell_out(text))) status = ATTN_ENOMEM;
  if (!status) status = attn_params_parse("score", score_table, sizeof(score_params), full, params, all);
  free(full);
  const score_params *p = *params;
  if (status) return status;
  if (p->softcap > 0 && p->leaky > 0)
    status = attn_fail(ATTN_EINVAL, "score '%s': softcap and leaky exclude each other", text);
  if (!status && !(p->leaky < 1))
    status = attn_fail(ATTN_EINVAL, "score '%s': leaky=%g, expected a number in (0, 1)", text, p->leaky);
  if (!status) return ATTN_OK;
  attn_params_free(score_table, *params);
  free(*all);
  *params = *all = NULL;
  return status;
}

/* "name=30" rather than "name=3e+01", where that is the same number. */
static void plain_number(const char *name, const char *value, char *out, size_t size) {
  const double x = strtod(value, NULL);
  const int length = snprintf(out, size, "%s=", name);
  snprintf(out + length, size - (size_t)length, "%.15g", x);
  const double again = strtod(out + length, NULL);
  if (again < x || again > x) *out = '\0';
}

attn_status data_score_parse(const char *text, char **canonical) {
  void *params;
  char *all, *next;
  attn_status status = read_score(text, &params, &all);
  if (status) return status;
  attn_params_free(score_table, params);
  char *out = text_format("%s", "");
  const attn_param *p = score_table;
  for (char *item = all; out && item; item = next, p++) {
    if ((next = strchr(item, ','))) *next++ = '\0';
    const char *value = item + strlen(p->name) + 1;
    if (strcmp(value, p->preset) == 0) continue;
    char number[64] = "";
    if (p->type == ATTN_REAL) plain_number(p->name, value, number, sizeof number);
    char *longer = text_format("%s%s%s", out, *out ? "," : "",
                               p->type == ATTN_CHOICE ? p->name
                               : *number              ? number
                                                      : item);
    free(out);
    out = longer;
  }
  free(all);
  if (!out) return attn_fail(ATTN_ENOMEM, "no memory for a score");
  *canonical = out;
  return ATTN_OK;
}

typedef union mask_params {
  int64_t size;
  attn_int_list at;
} mask_params;

static const struct mask_form {
  const char *name;
  attn_mask_kind kind;
  attn_param table[2];
} mask_forms[] = {
    {"prefix", ATTN_MASK_PREFIX, {{"size", ATTN_INT, 0, 0, 0x1p40, "0", NULL, "leading keys"}, {0}}},
    {"block_causal",
     ATTN_MASK_BLOCK_CAUSAL,
     {{"size", ATTN_INT, 0, 1, 0x1p40, "1", NULL, "keys of a block"}, {0}}},
    {"documents",
     ATTN_MASK_DOCUMENTS,
     {{"at", ATTN_INT_LIST, 0, 0, 0x1p40, "0", NULL, "where they begin"}, {0}}},
};
enum { MASK_FORMS = sizeof mask_forms / sizeof *mask_forms };

/* *form: NULL for none. *text: what follows the name, in canonical form. */
static attn_status read_mask(const char *text, const struct mask_form **form, void **params, char **rest) {
  const size_t length = strcspn(text, ":");
  *form = NULL;
  *params = NULL;
  if (is_none(text)) return ATTN_OK;
  for (size_t i = 0; i < MASK_FORMS; i++)
    if (strlen(mask_forms[i].name) == length && strncmp(text, mask_forms[i].name, length) == 0)
      *form = &mask_forms[i];
  if (!*form || !text[length])
    return attn_fail(ATTN_EINVAL,
                     "mask '%s': expected none, prefix:SIZE, block_causal:SIZE, documents:SIZE or "
                     "documents:0+30+64 (where each begins)",
                     text);
  const attn_param *table = (*form)->table;
  char owner[64], *given = text_format("%s=%s", table->name, text + length + 1);
  attn_status status = given ? check_word("mask", text) : ATTN_ENOMEM;
  snprintf(owner, sizeof owner, "mask %s", (*form)->name);
  if (!status) status = attn_params_parse(owner, table, sizeof(mask_params), given, params, rest);
  free(given);
  if (status || table->type != ATTN_INT_LIST) return status;
  const attn_int_list *at = &((const mask_params *)*params)->at;
  if (at->count == 1 || (at->count > 1 && at->items[0] == 0)) return ATTN_OK;
  status =
      attn_fail(ATTN_EINVAL, "mask '%s': expected the documents' beginnings from 0 on, or one size", text);
  attn_params_free(table, *params);
  free(*rest);
  return status;
}

attn_status data_mask_parse(const char *text, char **canonical) {
  const struct mask_form *form;
  void *params;
  char *rest = NULL;
  attn_status status = read_mask(text, &form, &params, &rest);
  if (status) return status;
  char *out = form ? text_format("%s:%s", form->name, strchr(rest, '=') + 1) : text_format("%s", "");
  if (form) attn_params_free(form->table, params);
  free(rest);
  if (!out) return attn_fail(ATTN_ENOMEM, "no memory for a mask");
  *canonical = out;
  return ATTN_OK;
}

/* ---- arrays -------------------------------------------------------------------------------------------- */

struct data_target {
  double *relative, *sink;
  int64_t *offsets;
  data_array bias;
};

void data_target_free(data_target *t) {
  if (!t) return;
  free(t->relative);
  free(t->sink);
  free(t->offsets);
  data_array_free(&t->bias);
  free(t);
}

static attn_status no_memory(void) { return attn_fail(ATTN_ENOMEM, "no memory for a bias or a mask"); }

static attn_status make_alibi(attn_problem *p, data_target *t) {
  const int64_t n = p->n_q > p->n_kv ? p->n_q : p->n_kv;
  size_t bytes;
  attn_status status =
      attn_size_product("ALiBi", (int64_t[]){p->heads, 2 * n - 1, (int64_t)sizeof(double)}, 3, &bytes);
  if (status) return status;
  if (!(t->relative = malloc(bytes))) return no_memory();
  p->score.relative = t->relative;
  p->score.relative_heads = p->heads;
  p->score.span = 2 * n - 1;
  p->score.zero = n - 1;
  return attn_alibi(p->heads, n, t->relative);
}

static attn_status make_sink(const char *text, attn_problem *p, data_target *t) {
  data_array file = {.rank = 0};
  char *end;
  const double number = strtod(text, &end);
  const bool is_file = end == text || *end;
  if (!is_file && !isfinite(number))
    return attn_fail(ATTN_EINVAL, "score: sink=%s, expected a finite number or a file", text);
  attn_status status = is_file ? data_npy_read(text, &file) : ATTN_OK;
  if (status) return status;
  if (is_file && (file.rank != 1 || file.shape[0] != p->heads)) {
    status = attn_fail(ATTN_EINVAL, "%s: expected a number for each of the %lld heads, shape [%lld]", text,
                       (long long)p->heads, (long long)p->heads);
  } else if (!(t->sink = malloc((size_t)p->heads * sizeof *t->sink))) {
    status = no_memory();
  }
  for (int64_t h = 0; !status && h < p->heads; h++) {
    t->sink[h] = is_file ? attn_get(file.at, h, file.dtype) : number;
    if (!isfinite(t->sink[h]))
      status = attn_fail(ATTN_EINVAL, "%s: [%lld] is not finite", text, (long long)h);
  }
  data_array_free(&file);
  p->score.sink = t->sink;
  return status;
}

static attn_status read_bias(const char *path, attn_problem *p, data_target *t) {
  attn_status status = data_npy_read(path, &t->bias);
  if (status) return status;
  const data_array *b = &t->bias;
  const int64_t wanted[] = {p->batch, p->heads, p->n_q, p->n_kv};
  int64_t shape[4] = {1, 1, 0, 0};
  bool fits = b->rank >= 2;
  for (int i = 0; i < b->rank; i++) shape[4 - b->rank + i] = b->shape[i];
  for (int i = 0; i < 4; i++) fits = fits && (shape[i] == wanted[i] || (i < 2 && shape[i] == 1));
  if (!fits)
    return attn_fail(
        ATTN_EINVAL,
        "%s: shape [%lld,%lld,%lld,%lld], expected [n_q,n_kv] = [%lld,%lld], with heads = %lld or 1 "
        "and batch = %lld or 1 before them",
        path, (long long)shape[0], (long long)shape[1], (long long)shape[2], (long long)shape[3],
        (long long)p->n_q, (long long)p->n_kv, (long long)p->heads, (long long)p->batch);
  p->score.dense = (attn_bias){.at = b->at,
                               .dtype = b->dtype,
                               .batch = shape[0] > 1 ? shape[1] * p->n_q * p->n_kv : 0,
                               .head = shape[1] > 1 ? p->n_q * p->n_kv : 0,
                               .row = p->n_kv};
  const int64_t rows = shape[0] * shape[1] * p->n_q;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < p->n_kv; j++) {
      const double value = attn_get(b->at, r * p->n_kv + j, b->dtype);
      if (!(value < (double)INFINITY))
        return attn_fail(ATTN_EINVAL, "%s: [%lld,%lld,%lld,%lld] is %g, expected finite or -inf", path,
                         (long long)(r / p->n_q / shape[1]), (long long)(r / p->n_q % shape[1]),
                         (long long)(r % p->n_q), (long long)j, value);
    }
  return ATTN_OK;
}

/* Documents that begin where the list says, or all of one size. */
static attn_status make_documents(const char *text, const attn_int_list *at, attn_problem *p,
                                  data_target *t) {
  const int64_t size = at->count == 1 ? at->items[0] : 0, last = at->items[at->count - 1];
  const int64_t count = size > 0 ? (p->n_kv - 1) / size + 1 : at->count;
  if (size == 0 && last >= p->n_kv)
    return attn_fail(ATTN_EINVAL, "mask '%s': a document begins at %lld, and there are %lld keys", text,
                     (long long)last, (long long)p->n_kv);
  if (!(t->offsets = malloc((size_t)(count + 1) * sizeof *t->offsets))) return no_memory();
  for (int64_t d = 0; d < count; d++) t->offsets[d] = size > 0 ? d * size : at->items[d];
  t->offsets[count] = p->n_kv;
  p->mask.offsets = t->offsets;
  p->mask.count = count;
  return ATTN_OK;
}

static attn_status make_mask(const char *text, attn_problem *p, data_target *t) {
  const struct mask_form *form;
  void *params;
  char *rest = NULL;
  attn_status status = read_mask(text, &form, &params, &rest);
  if (status || !form) return status;
  p->mask.kind = form->kind;
  if (form->kind == ATTN_MASK_DOCUMENTS)
    status = make_documents(text, &((const mask_params *)params)->at, p, t);
  else
    p->mask.size = ((const mask_params *)params)->size;
  attn_params_free(form->table, params);
  free(rest);
  return status;
}

attn_status data_target_make(const char *score, const char *mask, attn_problem *problem, data_target **out) {
  attn_problem p = *problem;
  data_target *t = calloc(1, sizeof *t);
  void *params = NULL;
  char *all = NULL;
  attn_status status = t ? read_score(score, &params, &all) : no_memory();
  if (!status && params) {
    const score_params *s = params;
    p.score.softcap = s->softcap;
    p.score.leaky = s->leaky;
    if (s->alibi) status = make_alibi(&p, t);
    if (!status && *s->bias) status = read_bias(s->bias, &p, t);
    if (!status && *s->sink) status = make_sink(s->sink, &p, t);
  }
  attn_params_free(score_table, params);
  free(all);
  if (!status) status = make_mask(mask, &p, t);
  if (status) {
    data_target_free(t);
    return status;
  }
  *problem = p;
  *out = t;
  return ATTN_OK;
}

attn_status data_target_digest(const char *score, char hex[65]) {
  void *params;
  char *all, *end;
  attn_status status = read_score(score, &params, &all);
  *hex = '\0';
  if (status || !params) return status;
  score_params files = {.bias = ((score_params *)params)->bias, .sink = ((score_params *)params)->sink};
  (void)strtod(files.sink, &end);
  if (end != files.sink && !*end) files.sink = "";
  status = data_files_digest(score_table, &files, hex);
  attn_params_free(score_table, params);
  free(all);
  return status;
}
