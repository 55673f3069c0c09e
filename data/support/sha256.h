/* sha256.h - SHA-256 of data in parts; data_sha256 is for whole ones. */
#ifndef DATA_SUPPORT_SHA256_H
#define DATA_SUPPORT_SHA256_H

#include <nettle/sha2.h>
#include <stddef.h>

typedef struct sha256_ctx sha256;

void sha256_begin(sha256 *);
void sha256_add(sha256 *, const void *at, size_t bytes);
void sha256_end(sha256 *, char hex[65]);

#endif
