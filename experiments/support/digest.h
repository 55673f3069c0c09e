/* digest.h - 64 bits that tell whether two pieces of memory are alike, as fast as memory is read. Not for
 * adversaries (data/support/sha256.h is). */
#ifndef EXPERIMENTS_SUPPORT_DIGEST_H
#define EXPERIMENTS_SUPPORT_DIGEST_H

#include <stddef.h>
#include <stdint.h>

uint64_t digest_of(const void *at, size_t bytes);

#endif
