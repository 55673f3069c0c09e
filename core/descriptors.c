/* descriptors.c - checks what a variant states about itself. Members that are missing, tables that do not
 * parse and numbers out of range are refused before an engine, a check or a program follows them. */
#include "core/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t sizes[] = {[ATTN_INT] = sizeof(int64_t),
                               [ATTN_REAL] = sizeof(double),
                               [ATTN_CHOICE] = sizeof(int),
                               [ATTN_TEXT] = sizeof(char *),
                               [ATTN_INT_LIST] = sizeof(attn_int_list)};

static const attn_param *parameter(const attn_variant *v, const char *name) {
  const attn_param *row = v->params;
  while (row->name && strcmp(row->name, name) != 0) row++;
  return row->name ? row : NULL;
}

/* A name has no character that means something in a spec. */
static const char *param_wrong(const attn_variant *v, const attn_param *p) {
  const char *characters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  if (!*p->name || p->name[strspn(p->name, characters)]) return "a name is letters, digits and _";
  if (parameter(v, p->name) != p) return "the name is taken";
  if ((size_t)p->type >= sizeof sizes / sizeof *sizes) return "no such type";
  if (!p->preset || !p->help) return "preset and help must not be NULL";
  if (p->type == ATTN_CHOICE && !p->choices) return "a choice needs choices";
  if (v->params_size < sizes[p->type] || p->offset > v->params_size - sizes[p->type])
    return "its field ends beyond params_size";
  return NULL;
}

static attn_status check_params(const attn_variant *v) {
  void *params = NULL;
  char *canonical = NULL;
  for (const attn_param *p = v->params; p->name; p++) {
    const char *wrong = param_wrong(v, p);
    if (wrong) return attn_fail(ATTN_EINVAL, "variant %s: parameter '%s': %s", v->name, p->name, wrong);
  }
  char owner[128];
  snprintf(owner, sizeof owner, "variant %s", v->name);
  attn_status status = attn_params_parse(owner, v->params, v->params_size, "", &params, &canonical);
  if (status) return status;
  attn_params_free(v->params, params);
  free(canonical);
  return ATTN_OK;
}

static attn_status check_law(const attn_variant *v, const char *seed, const attn_budget *budget) {
  const char *named[] = {seed, budget->parameter};
  for (size_t i = 0; i < sizeof named / sizeof *named; i++)
    if (named[i] && !parameter(v, named[i]))
      return attn_fail(ATTN_EINVAL, "variant %s: its law names '%s', which is no parameter", v->name,
                       named[i]);
  return ATTN_OK;
}

attn_status attn_variant_check(const attn_variant *v) {
  if (v->abi != ATTN_ABI || v->size != sizeof *v)
    return attn_fail(ATTN_EABI, "variant built for interface %u (%u bytes), this library has %u (%zu bytes)",
                     (unsigned)v->abi, (unsigned)v->size, ATTN_ABI, sizeof *v);
  if (!v->name || !*v->name || strspn(v->name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(v->name))
    return attn_fail(ATTN_EINVAL, "a variant's name is lower-case letters, digits and _");
  if (!v->summary || !v->cite || !v->params || !v->work_size || !v->cost || !v->plan || !v->execute ||
      (v->plan == attn_softmax_pattern_plan && !v->pattern))
    return attn_fail(ATTN_EINVAL, "variant %s: a required member is NULL", v->name);
  attn_status status = check_params(v);
  return status ? status : check_law(v, v->seed, &v->budget);
}

attn_status attn_pattern_check(const attn_pattern *p) {
  if (!p->row) return attn_fail(ATTN_EINVAL, "pattern: row is NULL");
  if (p->max_runs < 1 || p->max_runs > INT32_MAX)
    return attn_fail(ATTN_EINVAL, "pattern: max_runs = %lld, expected 1 ... 2^31 - 1",
                     (long long)p->max_runs);
  if (p->reach < 0 || p->grain < 0 || p->drawn < 0)
    return attn_fail(ATTN_EINVAL, "pattern: reach = %lld, grain = %lld, drawn = %lld, expected none below 0",
                     (long long)p->reach, (long long)p->grain, (long long)p->drawn);
  if (!p->grain && (p->global || p->candidate))
    return attn_fail(ATTN_EINVAL, "pattern: global and candidate speak of blocks, but grain = 0");
  return ATTN_OK;
}

attn_status attn_feature_map_check(const attn_feature_map *m) {
  if (!m->map) return attn_fail(ATTN_EINVAL, "feature map: map is NULL");
  if (m->columns < 1) return attn_fail(ATTN_EINVAL, "feature map: columns = %lld", (long long)m->columns);
  if (!(m->eps >= 0)) return attn_fail(ATTN_EINVAL, "feature map: eps = %g", m->eps);
  if ((unsigned)m->law.kind > ATTN_FEATURES_OTHER)
    return attn_fail(ATTN_EINVAL, "feature map: no such kind of features: %d", (int)m->law.kind);
  return ATTN_OK;
}

attn_status attn_projection_check(const attn_projection *p) {
  if (!p->project) return attn_fail(ATTN_EINVAL, "projection: project is NULL");
  if (p->slots < 1 || p->slice < 0 || p->columns < 0)
    return attn_fail(ATTN_EINVAL, "projection: slots = %lld, slice = %lld, columns = %lld",
                     (long long)p->slots, (long long)p->slice, (long long)p->columns);
  if ((unsigned)p->law > ATTN_PROJECTION_AVERAGES)
    return attn_fail(ATTN_EINVAL, "projection: no such law: %d", (int)p->law);
  return ATTN_OK;
}

attn_status attn_view_check(const attn_variant *v, const attn_view *view) {
  attn_status status = check_law(v, view->seed, &view->budget);
  if (!status && view->pattern) status = attn_pattern_check(view->pattern);
  if (!status && view->features) status = attn_feature_map_check(view->features);
  if (!status && view->projection) status = attn_projection_check(view->projection);
  return status;
}
