/* source.h - reading variables of an untrusted file: sizes and types are checked before memory is
 * allocated. Internal to the results file. Failures name the file and the variable; EINVAL for content,
 * ENOTFOUND if a variable is absent. */
#ifndef EXPERIMENTS_RESULTS_HDF5_SOURCE_H
#define EXPERIMENTS_RESULTS_HDF5_SOURCE_H

#include "experiments/results/hdf5/variables.h"

typedef struct h5_source {
  hid_t group;
  const char *path, *name; /* of the file and the group, for messages */
  /* If rows is set, what is read of a variable whose first dimension is `of` long are `rows` of it, from
   * `first` on. */
  size_t first, rows, of;
} h5_source;

/* Goes on to the next rows of `of`, as many as are stored together; false: there are none. */
bool h5_next_rows(h5_source *, size_t of);

bool h5_has(const h5_source *, const char *variable);
bool h5_is_text(const h5_source *, const char *variable); /* false if it cannot be read */

/* Lengths of a variable of `rank` dimensions, 1 to 3. */
attn_status h5_lengths(const h5_source *, const char *variable, int rank, size_t *lengths);

/* A variable of exactly these lengths in a new array (release with free; texts, which are never NULL, with
 * h5_texts_free). Numbers of any type in the file are converted. */
attn_status h5_read_f64(const h5_source *, const char *variable, int rank, const size_t *lengths,
                        double **out);
attn_status h5_read_f32(const h5_source *, const char *variable, int rank, const size_t *lengths,
                        float **out);
attn_status h5_read_i64(const h5_source *, const char *variable, int rank, const size_t *lengths,
                        int64_t **out);
attn_status h5_read_i32(const h5_source *, const char *variable, int rank, const size_t *lengths,
                        int32_t **out);
attn_status h5_read_texts(const h5_source *, const char *variable, int rank, const size_t *lengths,
                          char ***out);
void h5_texts_free(char **texts, size_t count);

/* A column of records, `stride` bytes apart, if the file has it. */
attn_status h5_column_read(const h5_source *, const result_column *, int rank, const size_t *lengths,
                           void *records, size_t stride);

/* A fixed-length string attribute, cut to size - 1 bytes. */
attn_status h5_read_attribute_text(const h5_source *, const char *attribute, char *out, size_t size);
attn_status h5_read_attribute_int(const h5_source *, const char *attribute, int64_t *out);

/* Names of the group's members in order (release with h5_texts_free). */
attn_status h5_members(const h5_source *, char ***names, size_t *count);

#endif
