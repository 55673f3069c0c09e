/* settled_properties.c - see settled_properties.h. */
#include "experiments/runner/settled_properties.h"

#include <stdlib.h>
#include <string.h>

#include "data/support/json_text.h"

static attn_status no_memory(void) { return attn_fail(ATTN_ENOMEM, "no memory for the properties of a run"); }

static const result_properties *find(const properties_found *f, const char *setting) {
  for (size_t i = 0; i < f->count; i++)
    if (strcmp(f->settings[i].setting, setting) == 0) return f->settings[i].properties;
  return NULL;
}

void properties_found_free(properties_found *f) {
  for (size_t i = 0; i < f->count; i++) free(f->settings[i].setting);
  free(f->settings);
  *f = (properties_found){.count = 0};
}

attn_status properties_keep(properties_found *f, const result_row *row) {
  if (!row->properties) return ATTN_OK;
  char *setting = result_row_setting(row);
  if (setting && find(f, setting)) {
    free(setting);
    return ATTN_OK;
  }
  found_properties *more = setting ? realloc(f->settings, (f->count + 1) * sizeof *more) : NULL;
  if (!more) {
    free(setting);
    return no_memory();
  }
  f->settings = more;
  more[f->count++] = (found_properties){setting, row->properties};
  return ATTN_OK;
}

attn_status properties_give(const properties_found *f, result_row *row, bool *known) {
  char *setting = result_row_setting(row);
  if (!setting) return no_memory();
  row->properties = find(f, setting);
  free(setting);
  *known = row->properties;
  if (*known) result_row_judge(row);
  return ATTN_OK;
}

json_t *properties_found_json(const properties_found *f) {
  json_t *out = json_object();
  bool ok = out;
  for (size_t i = 0; i < f->count; i++) {
    bool violated = false;
    const result_properties *p = f->settings[i].properties;
    for (int b = 0; b < p->count; b++) violated = violated || p->cells[b].verdict == VERDICT_VIOLATED;
    json_put(out, f->settings[i].setting, json_boolean(violated), &ok);
  }
  if (!ok) no_memory();
  return json_whole(out, ok);
}

attn_status properties_settled(const json_t *settled, const result_row *row, bool *known, bool *violated) {
  char *setting = result_row_setting(row);
  if (!setting) return no_memory();
  const json_t *found = json_object_get(settled, setting);
  free(setting);
  *known = found;
  *violated = json_is_true(found);
  return ATTN_OK;
}
