/* hdf5_input.h - HDF5 files that somebody else may have made, or damaged: libhdf5 crashes on some of them. */
#ifndef DATA_FORMATS_HDF5_INPUT_H
#define DATA_FORMATS_HDF5_INPUT_H

#include <hdf5.h>

#include "data/support/output.h"

/* Opens a regular file for reading, after a walk over everything in it: external links, external and virtual
 * data, filters other than deflate, shuffle and fletcher32, and datasets that would take more than the
 * machine's memory, or together more than 1 GiB and a thousand times the file's size, are EINVAL. Prints
 * nothing. */
attn_status hdf5_input_open(const char *path, hid_t *out);

/* Calls read(path, context) in a child process: its crash, endless loop or excessive memory is EINVAL here; a
 * failure of read is returned. */
attn_status hdf5_try_in_child(const char *path, attn_status (*read)(const char *path, void *context),
                              void *context);

/* The same, except that a file which carries its digest (hdf5_output) is trusted and not tried. */
attn_status hdf5_input_try(const char *path, attn_status (*read)(const char *path, void *context),
                           void *context);

/* Opens an attribute of the root that holds one value; -1 if there is none. */
hid_t hdf5_open_scalar(hid_t file, const char *name);

/* Whether the root has this attribute with this text. */
bool hdf5_has_text(hid_t file, const char *attribute, const char *text);

/* Whether a file ends with the digest of the rest. */
bool hdf5_carries_digest(const file_map *content);

/* Whether the file is HDF5 and its root has this attribute, with this text if it is not NULL. */
bool hdf5_input_is(const char *path, const file_map *content, const char *attribute, const char *text);

/* output_write of a file's image and, behind it, its digest, which HDF5 takes no notice of. */
attn_status hdf5_output(const char *path, const output_kind *kind, const void *image, size_t bytes);

/* HDF5 prints its error stack by default; between these two it does not. */
typedef struct hdf5_quiet {
  H5E_auto2_t print;
  void *data;
} hdf5_quiet;

hdf5_quiet hdf5_quiet_begin(void);
void hdf5_quiet_end(hdf5_quiet);

#endif
