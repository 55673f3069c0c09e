/* weigh.c - the loops of weigh.h for any machine, and the choice among them. */
#include "experiments/reference/weigh.h"

#define NAME weigh_plain
#include "experiments/reference/weigh.inc"

#ifdef __x86_64__
weigh weigh_avx2, weigh_avx512;
#endif

weigh *weigh_of(const char *isa) {
#ifdef __x86_64__
  if (strcmp(isa, "avx2") == 0) return weigh_avx2;
  if (strncmp(isa, "avx512", 6) == 0 || strcmp(isa, "amx") == 0) return weigh_avx512;
#endif
  (void)isa;
  return weigh_plain;
}
