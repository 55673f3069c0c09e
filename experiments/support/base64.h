/* base64.h - bytes as text, RFC 4648 with padding. */
#ifndef EXPERIMENTS_SUPPORT_BASE64_H
#define EXPERIMENTS_SUPPORT_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* The text of `size` bytes (release with free); NULL: no memory. */
char *base64_encode(const void *bytes, size_t size);

/* Does the text, of `length` characters, encode exactly `size` bytes? Then they are written. */
bool base64_decode(const char *text, size_t length, void *bytes, size_t size);

#endif
