/* param.c - which parameters the rows of a set have, of which type, and what they are. */
#include "experiments/results/param.h"

#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "data/support/file.h"

const result_param *result_row_param(const result_row *row, const char *name) {
  for (int p = 0; p < row->p_count; p++)
    if (strcmp(row->p[p].name, name) == 0) return &row->p[p];
  return NULL;
}

attn_status results_param_names(const result_set *set, names *out) {
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < set->count; i++)
    for (int p = 0; !status && p < set->rows[i].p_count; p++) status = names_add(out, set->rows[i].p[p].name);
  return status;
}

bool results_param_is_text(const result_set *set, const char *name) {
  for (size_t i = 0; i < set->count; i++) {
    const result_param *p = result_row_param(&set->rows[i], name);
    if (p && p->text) return true;
  }
  return false;
}

/* A plug-in need not be there when its journals are merged, which is to give the same bytes: it has no part
 * in this. */
static attn_status library_variants(const result_set *set, names *out) {
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < set->count; i++)
    if (!set->rows[i].plugin || !*set->rows[i].plugin) status = names_add(out, set->rows[i].variant);
  return status;
}

static const attn_param *find_param(const char *variant, const char *name) {
  const attn_variant *found = NULL;
  return attn_variant_find(variant, &found) ? NULL : names_param(found->params, name);
}

/* about, which it frees, and behind it what this variant says. */
static char *append(char *about, const char *mark, const char *variant, const attn_param *p) {
  char *text = text_format("%s%s %s: %s", about, mark, variant, p->help ? p->help : "");
  for (const char *const *c = p->choices; text && c && *c; c++) {
    char *more = text_format("%s%s%s%s", text, c == p->choices ? " (" : ", ", *c, c[1] ? "" : ")");
    free(text);
    text = more;
  }
  free(about);
  return text;
}

char *results_param_about(const result_set *set, const char *name) {
  names variants = {0};
  const char *mark = ", of";
  char *about = library_variants(set, &variants) ? NULL : text_format("parameter %s", name);
  for (size_t i = 0; about && i < variants.count; i++) {
    const attn_param *p = find_param(variants.items[i], name);
    if (!p) continue;
    about = append(about, mark, variants.items[i], p);
    mark = "; of";
  }
  names_free(&variants);
  return about;
}
