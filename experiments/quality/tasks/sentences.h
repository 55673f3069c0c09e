/* sentences.h - sentences in a text, a question at its end, and the answer: how the tasks that look something
 * up are made. */
#ifndef EXPERIMENTS_QUALITY_TASKS_SENTENCES_H
#define EXPERIMENTS_QUALITY_TASKS_SENTENCES_H

#include "attn_variant.h"
#include "experiments/quality/tasks/tasks.h"

typedef struct sentence {
  int64_t *tokens, count;
  double place; /* share of the text before it, 0 to 1 */
} sentence;

/* EUNSUPPORTED: the model has no tokenizer. place is kept. */
attn_status sentence_encode(const task_input *, const char *text, sentence *out);

/* count places, uniform and ascending. */
void sentence_places(attn_rng *, int64_t count, double *place);

/* A parameter of these tasks: does the policy of a cache see the question before it gives up keys? */
extern const char *const sentences_no_yes[];
#define SENTENCES_AWARE(params)                                                    \
  {                                                                                \
    "aware", ATTN_CHOICE, offsetof(params, aware), 0, 1, "yes", sentences_no_yes,  \
        "no: caches (--cache) give up keys before the question, not at the answer" \
  }

/* A window's tokens, which are text, with sentences [count] in their places, which sorts them, and sentences
 * [count] and [count + 1], the question and the answer that is scored, at its end. aware: 0 leaves the
 * question to caches that have given up keys. EINVAL: they are longer than the window. */
attn_status sentences_compose(const task_input *, sentence *, int64_t count, int aware, int64_t window,
                              quality_windows *);
void sentences_free(sentence *, int64_t count);

#endif
