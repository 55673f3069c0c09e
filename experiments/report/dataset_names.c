/* dataset_names.c - "my.npz" for "npy:q=/data/my.npz:q,k=/data/my.npz:k,v=/data/my.npz:v,layout=bnhd".
 * Datasets that are generated are called what they are. */
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "experiments/report/page_parts.h"
#include "experiments/report/repeat_command.h"

enum { COMPONENTS_MAX = 4 };

/* The last `components` of the path of its first file; beyond COMPONENTS_MAX, the spec. */
static char *short_name(const char *spec, int components) {
  const char *path = strchr(spec, '=');
  bool files;
  if (repeat_reads_files(spec, &files)) return NULL;
  if (components > COMPONENTS_MAX || !path || !files) return strdup(spec);
  const size_t length = strcspn(++path, ",");
  char *file = strndup(path, length), *archive = file ? strstr(file, ".npz:") : NULL;
  if (!file) return NULL;
  if (archive) archive[strlen(".npz")] = '\0';
  char *start = file + strlen(file);
  for (int seen = 0; start > file && (start[-1] != '/' || ++seen < components);) start--;
  char *name = strdup(start);
  free(file);
  return name;
}

static bool is_shared(const dataset_names *d, size_t i) {
  for (size_t j = 0; j < d->specs.count; j++)
    if (j != i && strcmp(d->shorts[i], d->shorts[j]) == 0) return true;
  return false;
}

/* Gives those whose name is that of another a longer one; *again: there were some. */
static attn_status lengthen(dataset_names *d, int components, bool *again) {
  bool *shared = calloc(d->specs.count + 1, sizeof *shared);
  attn_status status = shared ? ATTN_OK : ATTN_ENOMEM;
  for (size_t i = 0; i < d->specs.count && !status; i++) shared[i] = is_shared(d, i);
  for (size_t i = 0; i < d->specs.count && !status; i++) {
    if (!shared[i]) continue;
    char *longer = short_name(d->specs.items[i], components);
    *again = true;
    if (!longer) status = ATTN_ENOMEM;
    if (!longer) break;
    free(d->shorts[i]);
    d->shorts[i] = longer;
  }
  free(shared);
  return status;
}

attn_status dataset_names_make(const results_model *m, dataset_names *out) {
  dataset_names d = {0};
  attn_status status = ATTN_OK;
  for (size_t g = 0; g < m->groups_count && !status; g++)
    status = names_add(&d.specs, m->rows[m->groups[g].lines[0].cells[0].first]->dataset);
  if (!status && !(d.shorts = calloc(d.specs.count + 1, sizeof *d.shorts))) status = ATTN_ENOMEM;
  for (size_t i = 0; i < d.specs.count && !status; i++)
    if (!(d.shorts[i] = short_name(d.specs.items[i], 1))) status = ATTN_ENOMEM;
  bool again = true;
  for (int components = 2; again && !status && components <= COMPONENTS_MAX + 1; components++) {
    again = false;
    status = lengthen(&d, components, &again);
  }
  if (status) {
    dataset_names_free(&d);
    return attn_fail(ATTN_ENOMEM, "out of memory for the datasets of a report");
  }
  *out = d;
  return ATTN_OK;
}

const char *dataset_names_of(const dataset_names *d, const char *spec) {
  return d->shorts[names_find(&d->specs, spec)];
}

void dataset_names_free(dataset_names *d) {
  for (size_t i = 0; d->shorts && i < d->specs.count; i++) free(d->shorts[i]);
  free(d->shorts);
  names_free(&d->specs);
  *d = (dataset_names){0};
}
