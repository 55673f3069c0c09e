/* mutant.c - which fault is switched on: the one that the environment's ATTN_MUTANT names, or none. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool attn_mutant(int index);

#define MUTANT(name, catcher, subject, what) name,
static const char *const names[] = {
#include "mutants.inc"
};
enum { MUTANTS = sizeof names / sizeof *names, UNKNOWN = -1 };

static int find(const char *name) {
  if (!name || !*name) return 0;
  for (int i = 0; i < MUTANTS; i++)
    if (strcmp(name, names[i]) == 0) return i + 1;
  fprintf(stderr, "ATTN_MUTANT=%s: there is no such mutant\n", name);
  abort();
}

/* index: from 1, in the order of mutants.cmake. */
bool attn_mutant(int index) {
  static atomic_int chosen = UNKNOWN;
  int now = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (now == UNKNOWN) {
    now = find(getenv("ATTN_MUTANT"));
    atomic_store_explicit(&chosen, now, memory_order_relaxed);
  }
  return now == index;
}
