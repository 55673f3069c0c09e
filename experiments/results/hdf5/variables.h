/* variables.h - HDF5 variables that netCDF-4 readers understand: dimension scales on every axis,
 * creation order, no enums, no fixed-length string data. Internal to the results file.
 *
 * Every function returns false on failure, with the variable's name recorded by attn_fail (EFOREIGN or
 * ENOMEM). */
#ifndef EXPERIMENTS_RESULTS_HDF5_VARIABLES_H
#define EXPERIMENTS_RESULTS_HDF5_VARIABLES_H

#include <hdf5.h>

#include "experiments/results/column.h"

typedef enum { H5_F64, H5_F32, H5_I64, H5_I32, H5_I8, H5_TEXT } h5_type;

/* A dimension: its scale (the coordinate variable) and length. */
typedef struct h5_dim {
  hid_t scale;
  hsize_t length;
  bool unlimited;
} h5_dim;

typedef struct h5_variable {
  const char *name;
  /* Of the data in memory: double, float, int64_t, int32_t, int8_t, const char * (never NULL). */
  h5_type type;
  const h5_dim *dims[3]; /* NULL beyond the last */
  const void *data;
  const char *units, *long_name;
  const char *const *flags; /* H5_I8 and H5_I32: meanings of 0, 1, ..., NULL-terminated; or NULL */
  bool boolean;             /* H5_I8: gets the attribute dtype = "bool" */
  const char *coordinates;  /* or NULL */
} h5_variable;

/* A new file in memory (core driver), without times, in creation order; hid < 0 on failure. */
hid_t h5_file_create(void);
/* Closes the file; its bytes (to be freed), or EFOREIGN. */
attn_status h5_file_image(hid_t file, void **image, size_t *size);
hid_t h5_group_create(hid_t parent, const char *name);

bool h5_variable_write(hid_t group, const h5_variable *);

/* A coordinate variable of length dim->length, becoming the dimension's scale (to be closed: H5Dclose). */
bool h5_dimension_write(hid_t group, const h5_variable *, h5_dim *dim);

/* A column of `count` records, along dims; coordinates are those of a measure. */
bool h5_column_write(hid_t group, const result_column *, const void *const *records, size_t count,
                     const h5_dim *const dims[2], const char *coordinates);

bool h5_attribute_text(hid_t object, const char *name, const char *text);
bool h5_attribute_int(hid_t object, const char *name, int32_t value);

#endif
