/* windows.h - what a model is evaluated on: windows of tokens that do not overlap. */
#ifndef EXPERIMENTS_QUALITY_TASKS_WINDOWS_H
#define EXPERIMENTS_QUALITY_TASKS_WINDOWS_H

#include "attn.h"

/* Logits at position i are about token i + 1: those at first[w] ... n - 2 of window w are scored. */
typedef struct quality_windows {
  int64_t *tokens; /* [count, n] */
  int64_t *first;  /* [count] */
  int64_t count, n;
  int64_t
      question; /* where caches give up keys, before any window's question; 0: at the first scored position */
  bool drawn;   /* every scored token was drawn from the exact model's distribution */
  bool answers; /* a window's scored tokens are one answer, which is right or wrong */
} quality_windows;

/* ENOMEM; EINVAL: no window, or fewer than two positions. */
attn_status quality_windows_make(int64_t count, int64_t n, quality_windows *out);
void quality_windows_free(quality_windows *);
/* The position before which a cache holds all keys: the least that fits any window. */
int64_t quality_windows_prompt(const quality_windows *);

/* The windows' tokens from seeded places of a text, in its order, that do not overlap, each after the token
 * bos (-1: none). The first `skip` positions are not scored. EINVAL: the text is shorter than the windows
 * together, or nothing is scored. */
attn_status quality_windows_fill(quality_windows *, const int64_t *text, int64_t length, int64_t bos,
                                 int64_t skip, uint64_t seed);

#endif
