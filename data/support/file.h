/* file.h - whole files: read by mapping, written atomically. */
#ifndef DATA_SUPPORT_FILE_H
#define DATA_SUPPORT_FILE_H

#include "attn.h"

typedef struct file_map {
  const uint8_t *at;
  size_t bytes;
} file_map;

/* Maps a regular, non-empty file for reading. EFOREIGN with the system's reason, EINVAL if it is empty or not
 * regular. */
attn_status file_map_open(const char *path, file_map *out);
void file_map_close(file_map *);

typedef struct file_part {
  const void *at;
  size_t bytes;
} file_part;

/* Writes the parts one after another to a temporary file beside `path`, syncs it and renames it to `path`. */
attn_status file_write(const char *path, const file_part *parts, size_t count);

/* Writes all bytes to a descriptor, however many calls of write(2) that takes; false: errno says why. */
bool file_write_all(int fd, const void *at, size_t bytes);

/* "directory/name", to be freed; NULL (recorded) without memory. */
char *file_join(const char *directory, const char *name);

/* sprintf into a new string; NULL (recorded) without memory. */
char *text_format(const char *format, ...);

#endif
