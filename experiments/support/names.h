/* names.h - a sorted set of borrowed names: variants, bounds, or parameters of a set of rows. */
#ifndef EXPERIMENTS_SUPPORT_NAMES_H
#define EXPERIMENTS_SUPPORT_NAMES_H

#include "attn_variant.h"

typedef struct names {
  const char **items; /* owned array of borrowed strings, NULL-terminated unless count is 0 */
  size_t count;
} names;

/* Adds a name at its place in strcmp order unless it is there. ENOMEM. */
attn_status names_add(names *, const char *name);
/* Index of a name, or count. */
size_t names_find(const names *, const char *name);
void names_free(names *);

/* A copy that lives as long as the program: many rows share the few names of bounds and parameters that files
 * have. For one thread at a time; NULL: no memory. */
const char *names_keep(const char *name);

/* The parameter of this name, of a table or NULL; NULL: there is none. */
const attn_param *names_param(const attn_param *table, const char *name);

#endif
