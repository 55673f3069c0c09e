/* entropy.c - the system's random numbers, or those of the clock where it has none. */
#define _DEFAULT_SOURCE /* getentropy */
#include "experiments/support/entropy.h"

#include <time.h>
#include <unistd.h>

#include "experiments/support/digest.h"

uint64_t entropy_bits(void) {
  uint64_t bits;
  struct timespec now;
  if (getentropy(&bits, sizeof bits) == 0) return bits;
  clock_gettime(CLOCK_REALTIME, &now);
  return digest_of(&now, sizeof now);
}

int64_t entropy_below(int64_t bound) { return (int64_t)(entropy_bits() % (uint64_t)bound); }
