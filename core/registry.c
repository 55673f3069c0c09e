/* registry.c - the variants by name: those of variants/variants.def, then plug-ins; and the program's matrix
 * reader. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "core/internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define VARIANT(name) extern const attn_variant attn_variant_##name;
#include "variants/variants.def"
#undef VARIANT

enum { CAPACITY = 256 };

static const attn_variant *variants[CAPACITY] = {
#define VARIANT(name) &attn_variant_##name,
#include "variants/variants.def"
#undef VARIANT
};

size_t attn_variant_count(void) {
  size_t n = 0;
  while (n < CAPACITY && variants[n]) n++;
  return n;
}

const attn_variant *attn_variant_at(size_t index) { return index < CAPACITY ? variants[index] : NULL; }

static const attn_variant *find(const char *name, size_t length) {
  for (size_t i = 0; i < CAPACITY && variants[i]; i++)
    if (strlen(variants[i]->name) == length && !memcmp(variants[i]->name, name, length)) return variants[i];
  return NULL;
}

attn_status attn_variant_not_found(const char *name, size_t length) {
  char known[256] = "";
  attn_nearest near = {.name = name, .length = length};
  for (size_t i = 0; i < CAPACITY && variants[i]; i++) {
    size_t used = strlen(known);
    snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", variants[i]->name);
    attn_nearest_try(&near, variants[i]->name);
  }
  return attn_fail(ATTN_ENOTFOUND, "unknown variant '%.*s'%s, known: %s", (int)(length > 64 ? 64 : length),
                   name, attn_nearest_hint(&near), known);
}

bool attn_variant_find_part(const char *name, size_t length, const attn_variant **out) {
  const attn_variant *v = find(name, length);
  if (v) *out = v;
  return v;
}

attn_status attn_variant_find(const char *name, const attn_variant **out) {
  if (!name) return attn_null("find", "name");
  if (!out) return attn_null("find", "variant");
  return attn_variant_find_part(name, strlen(name), out) ? ATTN_OK
                                                         : attn_variant_not_found(name, strlen(name));
}

attn_status attn_variant_register(const attn_variant *v) {
  attn_status status = attn_variant_check(v);
  if (status) return status;
  const attn_variant *known = find(v->name, strlen(v->name));
  if (known == v) return ATTN_OK; /* a plug-in that is loaded already */
  if (known) return attn_fail(ATTN_EEXIST, "variant %s is registered already", v->name);
  size_t n = attn_variant_count();
  if (n + 1 >= CAPACITY) return attn_fail(ATTN_ENOMEM, "variant %s: the registry is full", v->name);
  variants[n] = v;
  return ATTN_OK;
}

/* An older interface had functions that this one does not have. */
static attn_status refuse_object(const char *why) {
  if (!strstr(why, "undefined symbol: attn_")) return attn_fail(ATTN_ENOTFOUND, "plug-in: %s", why);
  return attn_fail(ATTN_EABI, "plug-in: %s: built for another interface; " ATTN_ABI_CHANGE, why);
}

attn_status attn_plugin_load(const char *path) {
  if (!path) return attn_null("plug-in", "path");
  struct stat about;
  const bool here = stat(path, &about) == 0;
  /* A FIFO would keep the loader waiting. */
  if (here && !S_ISREG(about.st_mode)) return attn_fail(ATTN_EINVAL, "%s: not a regular file", path);
  /* The loader searches its directories, and no other, for a name without a slash. */
  const bool bare = here && !strchr(path, '/');
  char *local = bare ? realpath(path, NULL) : NULL;
  if (bare && !local) return attn_fail(ATTN_EFOREIGN, "plug-in %s: %s", path, strerror(errno));
  void *handle = dlopen(local ? local : path, RTLD_NOW | RTLD_LOCAL);
  free(local);
  if (!handle) return refuse_object(dlerror());
  const attn_variant *(*entry)(void) = NULL;
  *(void **)&entry = dlsym(handle, "attn_plugin");
  const attn_variant *v = entry ? entry() : NULL;
  attn_status status =
      v ? attn_variant_register(v) : attn_fail(ATTN_EABI, "no attn_plugin() that gives a variant");
  if (status) {
    char why[400];
    snprintf(why, sizeof why, "%s", attn_last_error());
    dlclose(handle);
    return attn_fail(status, "plug-in %s: %s", path, why);
  }
  return ATTN_OK; /* the object stays loaded as long as the process */
}

attn_status attn_plugin_load_path(const char *colon_separated) {
  if (!colon_separated || !*colon_separated) return ATTN_OK;
  char *copy = strdup(colon_separated);
  if (!copy) return attn_fail(ATTN_ENOMEM, "plug-in path");
  attn_status status = ATTN_OK;
  for (char *item = copy, *next; item && !status; item = next) {
    if ((next = strchr(item, ':'))) *next++ = 0;
    if (*item) status = attn_plugin_load(item);
  }
  free(copy);
  return status;
}

static attn_matrix_reader reader;

void attn_matrix_reader_set(attn_matrix_reader r) { reader = r; }

attn_status attn_matrix_read(const char *path, int64_t *rows, int64_t *columns, double **values) {
  if (!path) return attn_null("matrix", "path");
  if (!rows) return attn_null("matrix", "rows");
  if (!columns) return attn_null("matrix", "columns");
  if (!values) return attn_null("matrix", "values");
  if (!reader) return attn_fail(ATTN_EUNSUPPORTED, "%s: this program has no reader for matrices", path);
  return reader(path, rows, columns, values);
}
