/* zip.h - members of a zip archive, stored or deflated, that somebody else may have made. */
#ifndef DATA_SUPPORT_ZIP_H
#define DATA_SUPPORT_ZIP_H

#include "data/support/file.h"

typedef struct zip_member {
  const char *name; /* not ended by a NUL */
  size_t length;    /* of the name */
  const uint8_t *at;
  size_t packed, bytes; /* in the archive, and of the content */
  uint32_t crc;
  bool deflated;
} zip_member;

/* The list of members of a mapped archive, which must outlive it. */
typedef struct zip {
  const char *path; /* for messages */
  const file_map *map;
  const uint8_t *at, *end; /* of the list */
  uint64_t left;           /* members that have not been listed */
} zip;

bool zip_is(const file_map *);
attn_status zip_open(const char *path, const file_map *, zip *);
/* The next member: false in *more at the end. EINVAL: the list is damaged. */
attn_status zip_next(zip *, zip_member *, bool *more);
/* The member of this name. EINVAL, with the names that there are. */
attn_status zip_find(zip, const char *name, zip_member *);
/* Whether deflate and this machine's memory can have the size that it declares. EINVAL. */
attn_status zip_check(const zip *, const zip_member *);
/* The first `bytes` bytes of its content. EINVAL: it does not inflate to them. */
attn_status zip_read(const zip *, const zip_member *, void *to, size_t bytes);
/* Compares the checksum of the whole content. EINVAL. */
attn_status zip_verify(const zip *, const zip_member *, const uint8_t *content);

#endif
