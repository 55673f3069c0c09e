/* spec_files.c - digests of plug-ins and of what specs name (spec_files.h). */
#define _GNU_SOURCE /* dladdr */
#include "experiments/grid/spec_files.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "data/support/file.h"
#include "attn_expression.h"
#include "experiments/functions/function.h"

typedef struct known_file {
  char *name; /* the path of a plug-in, or the paths in a spec, a line each */
  char hex[SPEC_HEX];
  bool taken; /* by the spec at hand */
} known_file;

typedef struct known_files {
  known_file *items;
  size_t count;
} known_files;

struct spec_files {
  known_files plugins, named;
};

static attn_status no_memory(void) { return attn_fail(ATTN_ENOMEM, "no memory for the files of a spec"); }

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

void spec_digest_add(char hex[SPEC_HEX], const char *more) {
  char both[2 * SPEC_HEX];
  const int length = snprintf(both, sizeof both, "%s%s", hex, more);
  if (*hex && *more)
    data_sha256(both, (size_t)length, hex);
  else if (*more)
    memcpy(hex, more, SPEC_HEX);
}

/* -- plug-ins -- */

/* The path of its object, or the operand of a function. */
static const char *object_of(const attn_variant *v, const char **digest) {
  Dl_info about;
  const char *operand = v ? function_operand(v, digest) : NULL;
  if (operand) return operand;
  return v && dladdr(v, &about) ? about.dli_fname : NULL;
}

static void digest_file(const char *path, char hex[SPEC_HEX]) {
  file_map map;
  *hex = '\0';
  if (file_map_open(path, &map)) return;
  data_sha256((const char *)map.at, map.bytes, hex);
  file_map_close(&map);
}

/* *out: NULL of a variant of the library. */
static attn_status find_plugin(spec_files *s, const attn_variant *v, known_file **out) {
  bool fresh;
  const char *digest = NULL, *object = object_of(v, &digest),
             *library = object_of(attn_variant_at(0), &(const char *){NULL});
  *out = NULL;
  if (!object || !library || strcmp(object, library) == 0) return ATTN_OK;
  if (!(*out = look_up(&s->plugins, object, &fresh))) return no_memory();
  if (fresh && digest)
    snprintf((*out)->hex, sizeof(*out)->hex, "%s", digest);
  else if (fresh)
    digest_file(object, (*out)->hex);
  return ATTN_OK;
}

attn_status spec_files_make(spec_files **out) {
  known_file *unused;
  spec_files *s = calloc(1, sizeof *s);
  attn_status status = s ? ATTN_OK : no_memory();
  for (size_t i = 0; !status && attn_variant_at(i); i++) status = find_plugin(s, attn_variant_at(i), &unused);
  if (status)
    spec_files_free(s);
  else
    *out = s;
  return status;
}

void spec_files_free(spec_files *s) {
  if (!s) return;
  forget(&s->plugins);
  forget(&s->named);
  free(s);
}

typedef struct finding {
  spec_files *known;
  spec_made *out;
  char *paths; /* of all variants, a line each; NULL: none */
} finding;

static attn_status take_plugin(finding *f, const attn_variant *v) {
  known_file *plugin;
  attn_status status = find_plugin(f->known, v, &plugin);
  if (status || !plugin || plugin->taken) return status;
  plugin->taken = true;
  if (!f->out->plugin) f->out->plugin = object_of(v, &(const char *){NULL});
  spec_digest_add(f->out->plugin_sha256, plugin->hex);
  return ATTN_OK;
}

/* -- files that specs name -- */

static attn_status take_paths(finding *f, const attn_spec *spec) {
  for (const attn_param *p = spec->variant->params; p && p->name; p++) {
    if (p->type != ATTN_TEXT) continue;
    const char *path = *(const char *const *)(const void *)((const char *)spec->params + p->offset);
    if (!*path) continue;
    char *longer = text_format("%s%s\n", f->paths ? f->paths : "", path);
    if (!longer) return ATTN_ENOMEM;
    free(f->paths);
    f->paths = longer;
  }
  return ATTN_OK;
}

static attn_status take(void *context, const attn_spec *spec) {
  const attn_status status = take_plugin(context, spec->variant);
  return status ? status : take_paths(context, spec);
}

static attn_status digest_files(void *context, const attn_spec *spec) {
  char own[SPEC_HEX] = "";
  const attn_status status = data_files_digest(spec->variant->params, spec->params, own);
  if (!status) spec_digest_add(context, own);
  return status;
}

attn_status spec_files_find(spec_files *s, const attn_spec *spec, spec_made *out) {
  bool fresh = false;
  finding f = {.known = s, .out = out};
  *out = (spec_made){.plugin = NULL};
  for (size_t i = 0; i < s->plugins.count; i++) s->plugins.items[i].taken = false;
  attn_status status = attn_spec_each(spec, true, take, &f);
  known_file *named = !status && f.paths ? look_up(&s->named, f.paths, &fresh) : NULL;
  if (!status && f.paths && !named) status = no_memory();
  /* A file that cannot be read fails its runs, not all of them. */
  if (named && fresh && attn_spec_each(spec, true, digest_files, named->hex)) *named->hex = '\0';
  if (named) memcpy(out->files_sha256, named->hex, sizeof named->hex);
  free(f.paths);
  return status;
}

attn_status spec_files_digest(const attn_spec *spec, char hex[SPEC_HEX]) {
  *hex = '\0';
  return attn_spec_each(spec, true, digest_files, hex);
}
