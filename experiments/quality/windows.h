/* windows.h - what a model is evaluated on: windows of tokens that do not overlap. */
#ifndef EXPERIMENTS_QUALITY_WINDOWS_H
#define EXPERIMENTS_QUALITY_WINDOWS_H

#include "attn.h"

/* Logits at position i are about token i + 1: positions scored ... n - 2 count. */
typedef struct quality_windows {
  int64_t *tokens; /* [count, n] */
  int64_t count, n, scored;
} quality_windows;

/* Windows from seeded places of a text, in its order and n - 1 apart at least, each after the token bos (-1: none, n
 * tokens each). EINVAL: the text is shorter than the windows together, or nothing is scored. */
attn_status quality_windows_of_text(const int64_t *text, int64_t length, const quality_windows *shape,
                                    int64_t bos, uint64_t seed, quality_windows *out);
void quality_windows_free(quality_windows *);

#endif
