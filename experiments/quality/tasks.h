/* tasks.h - what a model is asked, by spec: text to predict, or a task whose answer stands at each window's end.
 *
 *   text:skip=S                    the text's own tokens, from position S on
 *   copy:length=L,alphabet=A       L random tokens (of A of the vocabulary), text, the same tokens again: all but the
 *                                  first of these are the answer. With gap=0 no text lies between
 *
 * No token is generated: greedy decoding gives an answer exactly iff each of its tokens is the likeliest after the true
 * ones before it, so that one pass says whether it would. */
#ifndef EXPERIMENTS_QUALITY_TASKS_H
#define EXPERIMENTS_QUALITY_TASKS_H

#include "experiments/quality/windows.h"

typedef struct task_input {
  const int64_t *text; /* tokens: of the task, or what fills it */
  int64_t length, vocab;
  int64_t bos; /* -1: none */
  uint64_t seed;
} task_input;

/* Fills the windows. *canonical: the spec with all its parameters, to be freed. EINVAL names the parameter. */
attn_status task_fill(const char *spec, const task_input *, quality_windows *, char **canonical);

#endif
