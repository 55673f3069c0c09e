/* target.c - scores and masks as texts: what is computed of Q, K and V (attn_problem.score and mask). */
#include "data/sources/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "data/support/file.h"

/* ---- scores -------------------------------------------------------------------------------------------- */

static const char *const no_yes[] = {"no", "yes", NULL};
#define FIELD(member) offsetof(target_score_params, member)
static const attn_param score_table[] = {
    {"softcap", ATTN_REAL, FIELD(softcap), 0, 1e30, "0", NULL, "s becomes CAP tanh(s / CAP)"},
    {"leaky", ATTN_REAL, FIELD(leaky), 0, 1, "0", NULL, "s below 0 becomes SLOPE s"},
    {"alibi", ATTN_CHOICE, FIELD(alibi), 0, 1, "no", no_yes, "bias -slope(head) |distance|"},
    {"t5", ATTN_TEXT, FIELD(t5), 0, 0, "", NULL,
     "bias of the bucket of the distance: a step, or .npy [32,heads]"},
    {"bias", ATTN_TEXT, FIELD(bias), 0, 0, "", NULL, "bias of each score, .npy"},
    {"sink", ATTN_TEXT, FIELD(sink), 0, 0, "", NULL, "logit of value 0: a number, or .npy [heads]"},
    {0}};
#undef FIELD

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

void target_score_free(target_score_params *params) { attn_params_free(score_table, params); }

/* *all: every parameter, in order, or NULL where that is not wanted. */
static attn_status read_score(const char *text, target_score_params **out, char **all) {
  void *params = NULL;
  char *canonical = NULL;
  *out = NULL;
  if (all) *all = NULL;
  if (is_none(text)) return ATTN_OK;
  char *full = NULL;
  attn_status status = check_word("score", text);
  if (!status && !(full = spell_out(text))) status = ATTN_ENOMEM;
  if (!status)
    status = attn_params_parse("score", score_table, sizeof(target_score_params), full, &params, &canonical);
  free(full);
  target_score_params *p = params;
  if (!status && p->softcap > 0 && p->leaky > 0)
    status = attn_fail(ATTN_EINVAL, "score '%s': give softcap or leaky, not both", text);
  if (!status && !(p->leaky < 1))
    status = attn_fail(ATTN_EINVAL, "score '%s': leaky=%g, expected a number in (0, 1)", text, p->leaky);
  if (!status && p->alibi && *p->t5)
    status = attn_fail(ATTN_EINVAL, "score '%s': give alibi or t5, not both", text);
  if (status) {
    target_score_free(p);
    free(canonical);
    return status;
  }
  *out = p;
  if (all)
    *all = canonical;
  else
    free(canonical);
  return ATTN_OK;
}

attn_status target_score_read(const char *text, target_score_params **out) {
  return read_score(text, out, NULL);
}

bool target_number(const char *text, double *number) {
  char *end;
  *number = strtod(text, &end);
  return end != text && !*end;
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
  target_score_params *params;
  char *all, *next;
  attn_status status = read_score(text, &params, &all);
  if (status) return status;
  target_score_free(params);
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

/* ---- masks --------------------------------------------------------------------------------------------- */

#define FIELD(member) offsetof(target_mask_params, member)
static const struct mask_form {
  const char *name; /* before the colon; NULL: the text is the parameter */
  attn_mask_kind kind;
  attn_param table[2];
} mask_forms[] = {
    {"prefix",
     ATTN_MASK_PREFIX,
     {{"size", ATTN_INT, FIELD(size), 0, 0x1p40, "0", NULL, "leading keys"}, {0}}},
    {"block_causal",
     ATTN_MASK_BLOCK_CAUSAL,
     {{"size", ATTN_INT, FIELD(size), 1, 0x1p40, "1", NULL, "keys of a block"}, {0}}},
    {"documents",
     ATTN_MASK_DOCUMENTS,
     {{"at", ATTN_INT_LIST, FIELD(at), 0, 0x1p40, "0", NULL, "where they begin"}, {0}}},
    {NULL, ATTN_MASK_PATTERN, {{"file", ATTN_TEXT, FIELD(file), 0, 0, "", NULL, "a mask or graph"}, {0}}},
};
#undef FIELD
enum { MASK_FORMS = sizeof mask_forms / sizeof *mask_forms };

/* NULL: no form is meant. A file is told from a slip by its extension or folder. */
static const struct mask_form *find_form(const char *text) {
  const size_t length = strcspn(text, ":");
  const struct mask_form *form = mask_forms;
  while (form->name && (strlen(form->name) != length || strncmp(text, form->name, length) != 0)) form++;
  return (form->name ? text[length] == ':' : strpbrk(text, "./") != NULL) ? form : NULL;
}

static const struct mask_form *form_of(attn_mask_kind kind) {
  const struct mask_form *form = mask_forms;
  while (form->kind != kind) form++;
  return form;
}

void target_mask_free(target_mask_params *params) {
  if (params) attn_params_free(form_of(params->kind)->table, params);
}

static attn_status check_documents(const char *text, const attn_int_list *at) {
  if (at->count == 1 || (at->count > 1 && at->items[0] == 0)) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "mask '%s': expected the documents' beginnings from 0 on, or one size", text);
}

/* *rest: what follows the name, in canonical form, or NULL where that is not wanted. */
static attn_status read_mask(const char *text, target_mask_params **out, char **rest) {
  *out = NULL;
  if (rest) *rest = NULL;
  if (is_none(text)) return ATTN_OK;
  const struct mask_form *form = find_form(text);
  if (!form)
    return attn_fail(ATTN_EINVAL,
                     "mask '%s': expected none, prefix:SIZE, block_causal:SIZE, documents:SIZE, "
                     "documents:0+30+64 (where each begins), or a file (.npy, .h5, .safetensors)",
                     text);
  const size_t skipped = form->name ? strlen(form->name) + 1 : 0;
  char owner[64], *canonical = NULL, *given = text_format("%s=%s", form->table->name, text + skipped);
  void *params = NULL;
  attn_status status = given ? check_word("mask", text) : ATTN_ENOMEM;
  snprintf(owner, sizeof owner, "mask %s", form->name ? form->name : "from a file");
  if (!status)
    status = attn_params_parse(owner, form->table, sizeof(target_mask_params), given, &params, &canonical);
  free(given);
  target_mask_params *p = params;
  if (!status) p->kind = form->kind;
  if (!status && form->kind == ATTN_MASK_DOCUMENTS) status = check_documents(text, &p->at);
  if (status) {
    target_mask_free(p);
    free(canonical);
    return status;
  }
  *out = p;
  if (rest)
    *rest = canonical;
  else
    free(canonical);
  return ATTN_OK;
}

attn_status target_mask_read(const char *text, target_mask_params **out) {
  return read_mask(text, out, NULL);
}

attn_status data_mask_parse(const char *text, char **canonical) {
  target_mask_params *params;
  char *rest;
  attn_status status = read_mask(text, &params, &rest);
  if (status) return status;
  const char *name = params ? form_of(params->kind)->name : NULL,
             *value = params ? strchr(rest, '=') + 1 : "";
  char *out = text_format("%s%s%s", name ? name : "", name ? ":" : "", value);
  target_mask_free(params);
  free(rest);
  if (!out) return attn_fail(ATTN_ENOMEM, "no memory for a mask");
  *canonical = out;
  return ATTN_OK;
}

/* ---- files --------------------------------------------------------------------------------------------- */

typedef struct file_names {
  const char *bias, *sink, *t5, *mask;
} file_names;

static const char *unless_number(const char *text) {
  double number;
  return target_number(text, &number) ? "" : text;
}

attn_status data_target_digest(const char *score, const char *mask, char hex[65]) {
  static const attn_param table[] = {{"bias", ATTN_TEXT, offsetof(file_names, bias), 0, 0, "", NULL, ""},
                                     {"sink", ATTN_TEXT, offsetof(file_names, sink), 0, 0, "", NULL, ""},
                                     {"t5", ATTN_TEXT, offsetof(file_names, t5), 0, 0, "", NULL, ""},
                                     {"mask", ATTN_TEXT, offsetof(file_names, mask), 0, 0, "", NULL, ""},
                                     {0}};
  target_score_params *s = NULL;
  target_mask_params *m = NULL;
  file_names files = {"", "", "", ""};
  attn_status status = target_score_read(score, &s);
  if (!status) status = target_mask_read(mask, &m);
  if (s) files = (file_names){s->bias, unless_number(s->sink), unless_number(s->t5), ""};
  if (m && m->kind == ATTN_MASK_PATTERN) files.mask = m->file;
  *hex = '\0';
  if (!status) status = data_files_digest(table, &files, hex);
  target_score_free(s);
  target_mask_free(m);
  return status;
}
