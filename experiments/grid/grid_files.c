/* grid_files.c - the files that runs are made from: plug-ins, and what specs name. */
#define _GNU_SOURCE /* dladdr */
#include "experiments/grid/grid_runs.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "data/support/file.h"
#include "experiments/evidence/null.h"
#include "experiments/support/spec.h"

/* What is known already: many runs have the same files. */
typedef struct known_file {
  char *name; /* of a variant, or the texts of a spec */
  const char *plugin;
  char hex[65];
} known_file;

typedef struct known_files {
  known_file *items;
  size_t count;
} known_files;

/* The entry of this name: a new one (*fresh) if there was none; NULL without memory. */
static known_file *look_up(known_files *known, const char *name, bool *fresh) {
  *fresh = false;
  for (size_t i = 0; i < known->count; i++)
    if (strcmp(known->items[i].name, name) == 0) return &known->items[i];
  known_file *items = realloc(known->items, (known->count + 1) * sizeof *items);
  if (items) known->items = items;
  char *copy = items ? strdup(name) : NULL;
  if (!copy) return NULL;
  *fresh = true;
  items[known->count] = (known_file){.name = copy};
  return &items[known->count++];
}

static void forget(known_files *known) {
  for (size_t i = 0; i < known->count; i++) free(known->items[i].name);
  free(known->items);
}

static const char *object_of(const attn_variant *v) {
  Dl_info about;
  return v && dladdr(v, &about) ? about.dli_fname : NULL;
}

static void digest_file(const char *path, char hex[65]) {
  file_map map;
  *hex = '\0';
  if (file_map_open(path, &map)) return;
  data_sha256((const char *)map.at, map.bytes, hex);
  file_map_close(&map);
}

static attn_status identify_plugin(known_files *known, const attn_variant *v, grid_run *run) {
  bool fresh;
  known_file *entry = look_up(known, v->name, &fresh);
  if (!entry) return attn_fail(ATTN_ENOMEM, "no memory for the files of %s", run->spec);
  const char *object = object_of(v), *library = object_of(attn_variant_at(0));
  if (fresh && object && library && strcmp(object, library) != 0) {
    entry->plugin = object;
    digest_file(object, entry->hex);
  }
  run->plugin = entry->plugin;
  memcpy(run->plugin_sha256, entry->hex, sizeof entry->hex);
  return ATTN_OK;
}

/* Of an expression, the first plug-in. */
typedef struct plugin_request {
  known_files *known;
  grid_run *run;
} plugin_request;

static attn_status identify_atom(void *context, const attn_spec *atom) {
  const plugin_request *x = context;
  return x->run->plugin && *x->run->plugin ? ATTN_OK : identify_plugin(x->known, atom->variant, x->run);
}

static attn_status identify_plugins(known_files *known, const attn_spec *spec, grid_run *run) {
  return spec_each(spec, identify_atom, &(plugin_request){known, run});
}

/* Adds the paths of a variant to a text, apart. */
static attn_status add_paths(void *context, const attn_spec *spec) {
  char **text = context;
  for (const attn_param *p = spec->variant->params; p && p->name; p++) {
    if (p->type != ATTN_TEXT) continue;
    const char *path = *(const char *const *)(const void *)((const char *)spec->params + p->offset);
    char *longer = *path ? text_format("%s%s\n", *text ? *text : "", path) : *text;
    if (*path && !longer) return ATTN_ENOMEM;
    if (longer != *text) free(*text);
    *text = longer;
  }
  return ATTN_OK;
}

/* Both digests in one, where there are two. */
static void add_digest(char hex[65], const char *more) {
  char both[129];
  const int length = snprintf(both, sizeof both, "%s%s", hex, more);
  if (*hex && *more)
    data_sha256(both, (size_t)length, hex);
  else if (*more)
    memcpy(hex, more, 65);
}

static attn_status digest_files(void *context, const attn_spec *spec) {
  char own[65] = "";
  const attn_status status = data_files_digest(spec->variant->params, spec->params, own);
  if (!status) add_digest(context, own);
  return status;
}

static attn_status identify_files(known_files *known, const attn_spec *spec, grid_run *run) {
  bool fresh = false;
  char *paths = NULL;
  attn_status status = spec_each(spec, add_paths, &paths);
  known_file *entry = paths ? look_up(known, paths, &fresh) : NULL;
  if (paths && !entry) status = attn_fail(ATTN_ENOMEM, "no memory for the files of %s", run->spec);
  free(paths);
  /* A file that cannot be read fails its runs, not the sweep. */
  if (entry && fresh && spec_each(spec, digest_files, entry->hex)) *entry->hex = '\0';
  if (entry) memcpy(run->files_sha256, entry->hex, sizeof entry->hex);
  return status;
}

/* The block's score or mask may name files, too. */
static void add_target(const grid_block *block, grid_run *run) {
  char hex[65] = "";
  add_digest(hex, block->target_sha256);
  add_digest(hex, run->files_sha256);
  memcpy(run->files_sha256, hex, sizeof hex);
}

attn_status grid_spec_digest(const char *text, char hex[65]) {
  attn_spec *spec = NULL;
  attn_status status = attn_spec_parse(&spec, text);
  *hex = '\0';
  if (!status) status = spec_each(spec, digest_files, hex);
  attn_spec_destroy(spec);
  return status;
}

attn_status grid_identify(grid *g) {
  known_files plugins = {.items = NULL}, files = {.items = NULL};
  attn_status status = ATTN_OK;
  for (size_t b = 0; b < g->count; b++)
    for (size_t r = 0; !status && r < g->blocks[b].count; r++) {
      grid_run *run = &g->blocks[b].runs[r];
      attn_spec *spec = NULL;
      if (null_find(run->variant)) {
        add_target(&g->blocks[b], run);
        continue;
      }
      status = attn_spec_parse(&spec, run->spec);
      if (!status) status = identify_plugins(&plugins, spec, run);
      if (!status) status = identify_files(&files, spec, run);
      add_target(&g->blocks[b], run);
      attn_spec_destroy(spec);
    }
  forget(&plugins);
  forget(&files);
  return status;
}
