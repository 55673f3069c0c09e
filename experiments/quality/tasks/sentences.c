/* sentences.c - windows of text with sentences in it (sentences.h). */
#include "experiments/quality/tasks/sentences.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 256 };

attn_status sentence_encode(const task_input *in, const char *text, sentence *out) {
  const size_t bytes = strlen(text);
  if (in->tokenizer)
    return data_tokenizer_encode(in->tokenizer, "a task's sentence", text, bytes, &out->tokens, &out->count);
  if (in->vocab != BYTES)
    return attn_fail(ATTN_EUNSUPPORTED, "task %s: the model has no tokenizer to write its sentences with",
                     in->task);
  if (!(out->tokens = malloc(bytes * sizeof *out->tokens)))
    return attn_fail(ATTN_ENOMEM, "no memory for a sentence");
  for (size_t i = 0; i < bytes; i++) out->tokens[i] = (unsigned char)text[i];
  out->count = (int64_t)bytes;
  return ATTN_OK;
}

const char *const sentences_no_yes[] = {"no", "yes", NULL};

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void sentence_places(attn_rng *rng, int64_t count, double *place) {
  for (int64_t i = 0; i < count; i++) place[i] = attn_rng_uniform(rng);
  qsort(place, (size_t)count, sizeof *place, ascending);
}

static int by_place(const void *a, const void *b) {
  return ascending(&((const sentence *)a)->place, &((const sentence *)b)->place);
}

attn_status sentences_compose(const task_input *in, sentence *all, int64_t count, int aware, int64_t window,
                              quality_windows *w) {
  const int64_t begin = in->bos >= 0;
  int64_t *to = w->tokens + window * w->n + begin, *from = malloc((size_t)w->n * sizeof *from);
  int64_t room = w->n - begin, taken = 0;
  if (!from) return attn_fail(ATTN_ENOMEM, "no memory for a window");
  memcpy(from, to, (size_t)room * sizeof *from);
  for (int64_t i = 0; i < count + 2; i++) room -= all[i].count;
  if (room < 0) {
    free(from);
    return attn_fail(ATTN_EINVAL,
                     "task %s: sentences and question are %lld tokens longer than a window of %lld", in->task,
                     (long long)-room, (long long)w->n);
  }
  qsort(all, (size_t)count, sizeof *all, by_place);
  all[count].place = all[count + 1].place = 1;
  for (int64_t i = 0; i < count + 2; i++) {
    const int64_t until = (int64_t)(all[i].place * (double)room + 0.5);
    memcpy(to, from + taken, (size_t)(until - taken) * sizeof *to);
    to += until - taken;
    taken = until;
    memcpy(to, all[i].tokens, (size_t)all[i].count * sizeof *to);
    to += all[i].count;
  }
  w->first[window] = w->n - 1 - all[count + 1].count;
  const int64_t question = w->first[window] + 1 - all[count].count;
  if (!aware && (!w->question || question < w->question)) w->question = question;
  free(from);
  return ATTN_OK;
}

void sentences_free(sentence *all, int64_t count) {
  for (int64_t i = 0; i < count; i++) free(all[i].tokens);
}
