/* found.c - see found.h. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/properties/found.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"

/* To be freed; NULL without memory. */
static char *setting_of(const attn_spec *spec, const result_row *row) {
  const char *seed = spec ? spec->variant->seed : NULL;
  attn_spec *seedless = NULL;
  char *out = NULL;
  size_t size = 0;
  if (seed && attn_spec_with_seed(spec, seed, 0, &seedless)) return NULL;
  if (seedless) spec = seedless;
  FILE *file = open_memstream(&out, &size);
  if (file) {
    fprintf(file, "%s %s", row->isa, spec ? spec->text : row->variant);
    for (axis_id a = 0; a < AXES; a++)
      if (a == AXIS_d || a == AXIS_d_v || a == AXIS_dtype || a == AXIS_causal)
        fprintf(file, " %s=%lld", axes[a].name, (long long)row->axis[a]);
    if (fclose(file)) {
      free(out);
      out = NULL;
    }
  }
  attn_spec_destroy(seedless);
  return out;
}

static attn_status no_memory(void) { return attn_fail(ATTN_ENOMEM, "no memory for the properties of a run"); }

static const found_cells *find(const properties_found *f, const char *setting) {
  for (size_t i = 0; i < f->count; i++)
    if (strcmp(f->settings[i].setting, setting) == 0) return &f->settings[i];
  return NULL;
}

void properties_found_free(properties_found *f) {
  for (size_t i = 0; i < f->count; i++) {
    free(f->settings[i].setting);
    free(f->settings[i].cells);
  }
  free(f->settings);
  *f = (properties_found){.count = 0};
}

static int properties_of(const result_row *row, result_bound *out) {
  int count = 0;
  for (int b = 0; b < row->bounds_count; b++)
    if (row->bounds[b].kind == KIND_PROPERTY) {
      if (out) out[count] = row->bounds[b];
      count++;
    }
  return count;
}

attn_status properties_keep(properties_found *f, const attn_spec *spec, const result_row *row) {
  const int count = properties_of(row, NULL);
  if (!count) return ATTN_OK;
  char *setting = setting_of(spec, row);
  result_bound *cells = calloc((size_t)count, sizeof *cells);
  attn_status status = setting && cells ? ATTN_OK : no_memory();
  if (status || find(f, setting)) goto out;
  found_cells *more = realloc(f->settings, (f->count + 1) * sizeof *more);
  if (!more) {
    status = no_memory();
    goto out;
  }
  f->settings = more;
  properties_of(row, cells);
  more[f->count++] = (found_cells){setting, cells, count};
  return ATTN_OK;
out:
  free(setting);
  free(cells);
  return status;
}

attn_status properties_give(const properties_found *f, const attn_spec *spec, result_row *row, bool *known) {
  char *setting = setting_of(spec, row);
  if (!setting) return no_memory();
  const found_cells *found = find(f, setting);
  attn_status status = ATTN_OK;
  free(setting);
  *known = found;
  for (int b = 0; found && !status && b < found->count; b++)
    status = result_row_add_bound(row, &found->cells[b]);
  if (found && !status) row->verdict = bounds_worst(row->bounds, row->bounds_count);
  return status;
}

json_t *properties_found_json(const properties_found *f) {
  json_t *out = json_object();
  for (size_t i = 0; out && i < f->count; i++) {
    bool violated = false;
    for (int b = 0; b < f->settings[i].count; b++)
      violated = violated || f->settings[i].cells[b].verdict == VERDICT_VIOLATED;
    if (json_object_set_new(out, f->settings[i].setting, json_boolean(violated)) == 0) continue;
    json_decref(out);
    out = NULL;
  }
  if (!out) no_memory();
  return out;
}

attn_status properties_settled(const json_t *settled, const attn_spec *spec, const result_row *row,
                               bool *known, bool *violated) {
  char *setting = setting_of(spec, row);
  if (!setting) return no_memory();
  const json_t *found = json_object_get(settled, setting);
  free(setting);
  *known = found;
  *violated = json_is_true(found);
  return ATTN_OK;
}
