/* output.h - the one writer of files. A file appears whole or not at all; it replaces nothing but a file of
 * its own kind, and never an input. */
#ifndef DATA_SUPPORT_OUTPUT_H
#define DATA_SUPPORT_OUTPUT_H

#include "data/support/file.h"

typedef struct output_kind {
  const char *name; /* with its article: "an .npy file" */
  /* Whether an existing file, which is not empty, is one. */
  bool (*is)(const char *path, const file_map *content);
} output_kind;

typedef struct file_part {
  const void *at;
  size_t bytes;
} file_part;

/* Whether output_write would write there, before the work is done that makes the output: EINVAL if the path
 * is one of the inputs (under any name; a NULL entry is no input), or if it exists and is not a file of the
 * kind, an empty file, a FIFO or a character device. */
attn_status output_check(const char *path, const output_kind *kind, const char *const *inputs, size_t count);

/* The same against the files that a block of parameters names: those of type ATTN_TEXT. */
attn_status output_check_params(const char *path, const output_kind *kind, const attn_param *table,
                                const void *params);

/* Whether two outputs would be one file, by whatever names. */
attn_status output_same(const char *a, const char *b, bool *same);

/* Writes the parts one after another to a temporary file beside `path`, syncs it and renames it to `path`. A
 * symbolic link stays, and what it points to is replaced; a file that was there hands down its mode and
 * owner. FIFOs and character devices are written to in place. Refuses what output_check refuses. */
attn_status output_write(const char *path, const output_kind *kind, const file_part *parts, size_t count);

/* Removes the temporary files for `path` that dead processes left. */
void output_clean(const char *path);

#endif
