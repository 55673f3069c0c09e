/* sentences.h - sentences in a text, a question at its end, and the answer: how the tasks that look something
 * up are made. */
#ifndef EXPERIMENTS_QUALITY_TASKS_SENTENCES_H
#define EXPERIMENTS_QUALITY_TASKS_SENTENCES_H

#include "experiments/quality/tasks/tasks.h"

typedef struct sentence {
  int64_t *tokens, count;
  double place; /* share of the text before it, 0 to 1 */
} sentence;

/* EUNSUPPORTED: the model has no tokenizer. place is kept. */
attn_status sentence_encode(const task_input *, const char *text, sentence *out);

/* A window's tokens, which are text, with sentences [count] in their places, which sorts them, and sentences
 * [count] and [count + 1], the question and the answer that is scored, at its end. EINVAL: they are longer
 * than the window. */
attn_status sentences_compose(const task_input *, sentence *, int64_t count, int64_t window,
                              quality_windows *);
void sentences_free(sentence *, int64_t count);

#endif
