/* sha256.c - SHA-256 (FIPS 180-4) by nettle, which uses the processor's instructions for it. */
#include "data/support/sha256.h"

#include <stdio.h>

#include "data/data.h"

void sha256_begin(sha256 *h) { sha256_init(h); }

void sha256_add(sha256 *h, const void *at, size_t bytes) { sha256_update(h, bytes, at); }

void sha256_end(sha256 *h, char hex[65]) {
  uint8_t digest[SHA256_DIGEST_SIZE];
  sha256_digest(h, sizeof digest, digest);
  for (size_t i = 0; i < sizeof digest; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

void data_sha256(const void *at, size_t bytes, char hex[65]) {
  sha256 h;
  sha256_begin(&h);
  sha256_add(&h, at, bytes);
  sha256_end(&h, hex);
}
