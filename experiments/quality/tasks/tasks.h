/* tasks.h - what a model is asked, by spec: text to predict, or a task whose answer stands at each window's
 * end.
 *
 *   text:skip=S                    the text's own tokens, from position S on
 *   copy:length=L,alphabet=A       L random tokens (of A of the vocabulary), text, the same tokens again: all
 *                                  but the first of these are the answer. With gap=0 no text lies between
 *
 *   recall:pairs=P,values=V,queries=Q,digits=D,depth=Z
 *                                  V sentences "The number of WORD is DIGITS." of each of P words in text,
 *                                  and a question for the first Q words; the first of these sentences is at
 *                                  the share Z of the text, or anywhere (-1). All their DIGITS are the answer
 *
 *   track:chains=C,hops=H          C chains of H + 1 assignments "VAR NAME = NAME."; the names of one are the
 *                                  answer
 *
 *   frequent:alpha=A,words=W       W coded words, the k-th k^-A as frequent; the three most frequent are the
 *                                  answer
 *
 *   sample:temperature=T           text that the exact model itself goes on with
 *
 * With aware=no a cache (quality_request.caches) is cut before the question of recall, track or frequent: its
 * policy cannot see what will be asked. By default it has seen the question (SnapKV's own setting).
 *
 * No token of an answer is generated: greedy decoding gives an answer exactly iff each of its tokens is the
 * most likely after the true ones before it, so that one pass says whether it would. */
#ifndef EXPERIMENTS_QUALITY_TASKS_TASKS_H
#define EXPERIMENTS_QUALITY_TASKS_TASKS_H

#include "data/data.h"
#include "experiments/quality/tasks/windows.h"

typedef struct task_input {
  const int64_t *text; /* tokens: of the task, or what fills it */
  int64_t length, vocab;
  int64_t bos; /* -1: none */
  uint64_t seed;
  const data_tokenizer *tokenizer; /* NULL: tokens are bytes */
  const data_llama *model;         /* what sample draws from; NULL: see whether it could */
  const char *task;                /* set by task_fill: its name, for messages */
} task_input;

/* A task: its parameters, and the function that fills the windows. */
typedef struct task {
  const char *name;
  const attn_param *table;
  size_t size;
  attn_status (*fill)(const void *params, const task_input *, quality_windows *);
  bool answers; /* as quality_windows has it */
} task;

extern const task task_recall, task_sample, task_track, task_frequent;

/* Fills the windows. sample asks a child process: this one must have one thread. *canonical: the spec with
 * all its parameters, to be freed. EINVAL names the parameter. */
attn_status task_fill(const char *spec, const task_input *, quality_windows *, char **canonical);

#endif
