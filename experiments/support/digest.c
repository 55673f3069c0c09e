/* digest.c - four chains of multiplications, after the words of 64 bits in turn. */
#include "experiments/support/digest.h"

#include <string.h>

static const uint64_t FACTOR = UINT64_C(0x9e3779b97f4a7c15);

static uint64_t mix(uint64_t state, uint64_t word) {
  const uint64_t product = (state ^ word) * FACTOR;
  return product ^ product >> 29;
}

uint64_t digest_of(const void *at, size_t bytes) {
  enum { LANES = 4 };
  uint64_t lane[LANES] = {1, 2, 3, 4}, word[LANES], sum = bytes;
  const unsigned char *from = at;
  for (size_t done = 0; done < bytes; done += sizeof word) {
    const size_t left = bytes - done;
    if (left < sizeof word) memset(word, 0, sizeof word);
    memcpy(word, from + done, left < sizeof word ? left : sizeof word);
    for (int l = 0; l < LANES; l++) lane[l] = mix(lane[l], word[l]);
  }
  for (int l = 0; l < LANES; l++) sum = mix(sum, lane[l]);
  return sum;
}
