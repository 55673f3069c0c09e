/* file.h - reading whole files by mapping, and texts. */
#ifndef DATA_SUPPORT_FILE_H
#define DATA_SUPPORT_FILE_H

#include "attn.h"

typedef struct file_map {
  const uint8_t *at;
  size_t bytes;
} file_map;

/* Opens a regular file for reading, and tells its size; anything else (a FIFO, a device, a directory) is
 * EINVAL, without waiting. EFOREIGN with the system's reason. */
attn_status file_open(const char *path, int *fd, size_t *bytes);

/* Whether it is a regular file, or a link to one. */
bool file_is_regular(const char *path);

/* Maps a regular, non-empty file for reading. EFOREIGN with the system's reason, EINVAL if it is empty or not
 * regular. */
attn_status file_map_open(const char *path, file_map *out);
void file_map_close(file_map *);

/* Whether the bytes begin with a text. */
bool file_begins(const file_map *, const char *text);

/* What a file seems to be, from its first bytes: "the journal of a sweep". */
const char *file_describe(const file_map *);

/* Writes all bytes to a descriptor, however many calls of write(2) that takes; false: errno says why. */
bool file_write_all(int fd, const void *at, size_t bytes);

/* "directory/name", to be freed; NULL (recorded) without memory. */
char *file_join(const char *directory, const char *name);

/* sprintf into a new string; NULL (recorded) without memory. */
char *text_format(const char *format, ...);

/* "" for NULL. */
static inline const char *text_or_none(const char *text) { return text ? text : ""; }

#endif
