/* spec_files.h - what runs are made from besides this program and their data: the plug-ins of their variants,
 * and the files that specs name. */
#ifndef EXPERIMENTS_GRID_SPEC_FILES_H
#define EXPERIMENTS_GRID_SPEC_FILES_H

#include "attn.h"

enum { SPEC_HEX = 65 }; /* SHA-256 as text; "": none, or not readable */

/* What has been read: many runs have the same files. */
typedef struct spec_files spec_files;

typedef struct spec_made {
  const char *plugin; /* path of the first plug-in; NULL: all variants are the library's */
  char plugin_sha256[SPEC_HEX], files_sha256[SPEC_HEX];
} spec_made;

/* Reads the plug-ins that are loaded: later their files may be others than what runs. ENOMEM */
attn_status spec_files_make(spec_files **);
void spec_files_free(spec_files *);

/* What a spec is made from: all variants of an expression, and of what names within it stand for. ENOMEM */
attn_status spec_files_find(spec_files *, const attn_spec *, spec_made *out);

/* SHA-256 of the files that a spec names. EFOREIGN, EINVAL: one cannot be read. */
attn_status spec_files_digest(const attn_spec *, char hex[SPEC_HEX]);

/* Adds a digest to what was made of others; "" adds nothing. */
void spec_digest_add(char hex[SPEC_HEX], const char *more);

#endif
