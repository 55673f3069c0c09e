/* hdf5_write.h - writing HDF5 files whole. Internal to data/. */
#ifndef DATA_FORMATS_HDF5_WRITE_H
#define DATA_FORMATS_HDF5_WRITE_H

#include <hdf5.h>

#include "data/support/output.h"

/* An attribute to be written: a text, a real number or an integer. */
typedef struct hdf5_attribute {
  const char *name;
  const char *text; /* or NULL: a number */
  bool real;
  int64_t integer;
  double number;
} hdf5_attribute;

/* False: HDF5 failed. stored and memory: the types in the file and of what is at `at`. */
bool hdf5_write_attribute(hid_t file, const hdf5_attribute *);
bool hdf5_write_dataset(hid_t file, const char *name, int rank, const hsize_t *dims, hid_t stored,
                        hid_t memory, const void *at);

/* Writes what fill puts into the file, which appears whole, with its digest. */
attn_status hdf5_write(const char *path, const output_kind *kind,
                       bool (*fill)(hid_t file, const void *context), const void *context);

#endif
