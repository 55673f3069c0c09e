/* train_tasks.c - see train_tasks.h. Sources: selective copying and induction, Gu and Dao 2023
 * (arXiv:2312.00752); associative recall of several keys, Arora et al. 2023 (arXiv:2312.04927); ListOps,
 * Nangia and Bowman 2018 (arXiv:1804.06028), here in sequences of 32. */
#include "experiments/training/train_tasks.h"

#include <stdlib.h>
#include <string.h>

enum {
  LETTERS = 16,
  SEPARATOR = LETTERS,
  BLANK,
  KEPT = 8,
  PAIRS = 4,
  KEYS = 8,
  PERIOD_LEAST = 4,
  PERIOD_MOST = 12
};

static void draw_letters(attn_rng *rng, int64_t count, int32_t *out) {
  for (int64_t i = 0; i < count; i++) out[i] = (int32_t)attn_rng_below(rng, LETTERS);
}

/* The first `count` of a random order of 0 ... all - 1, which is in `out`. */
static void draw_distinct(attn_rng *rng, int64_t all, int64_t count, int32_t *out) {
  for (int64_t i = 0; i < all; i++) out[i] = (int32_t)i;
  for (int64_t i = 0; i < count; i++) {
    const int64_t at = i + attn_rng_below(rng, all - i);
    const int32_t taken = out[at];
    out[at] = out[i];
    out[i] = taken;
  }
}

/* A separator at `first`, then the answers, each of which is to be given one position before it stands. */
static void put_answers(int64_t first, int64_t n, const int32_t *answers, int32_t *tokens, int32_t *targets) {
  tokens[first] = SEPARATOR;
  for (int64_t i = first; i < n; i++) {
    targets[i] = answers[i - first];
    if (i + 1 < n) tokens[i + 1] = answers[i - first];
  }
}

static void draw_copy(const train_task *t, attn_rng *rng, int32_t *tokens, int32_t *targets) {
  draw_letters(rng, t->n / 2, tokens);
  put_answers(t->n / 2, t->n, tokens, tokens, targets);
}

static int by_value(const void *a, const void *b) { return *(const int32_t *)a - *(const int32_t *)b; }

static void draw_sort(const train_task *t, attn_rng *rng, int32_t *tokens, int32_t *targets) {
  int32_t sorted[64];
  draw_letters(rng, t->n / 2, tokens);
  memcpy(sorted, tokens, (size_t)(t->n / 2) * sizeof *sorted);
  qsort(sorted, (size_t)(t->n / 2), sizeof *sorted, by_value);
  put_answers(t->n / 2, t->n, sorted, tokens, targets);
}

static void draw_selective_copy(const train_task *t, attn_rng *rng, int32_t *tokens, int32_t *targets) {
  const int64_t first = t->n - KEPT;
  int32_t letters[KEPT], places[64];
  draw_letters(rng, KEPT, letters);
  draw_distinct(rng, first, KEPT, places);
  qsort(places, KEPT, sizeof *places, by_value);
  for (int64_t i = 0; i < first; i++) tokens[i] = BLANK;
  for (int64_t i = 0; i < KEPT; i++) tokens[places[i]] = letters[i];
  put_answers(first, t->n, letters, tokens, targets);
}

static void draw_mqar(const train_task *t, attn_rng *rng, int32_t *tokens, int32_t *targets) {
  int32_t keys[KEYS], values[PAIRS];
  draw_distinct(rng, KEYS, PAIRS, keys);
  for (int64_t i = 0; i < PAIRS; i++) values[i] = (int32_t)(KEYS + attn_rng_below(rng, KEYS));
  for (int64_t i = 0; i < t->n / 2; i++) {
    const int64_t pair = i < PAIRS ? i : attn_rng_below(rng, PAIRS);
    tokens[2 * i] = keys[pair];
    tokens[2 * i + 1] = values[pair];
    if (i >= PAIRS) targets[2 * i] = values[pair];
  }
}

static void draw_induction(const train_task *t, attn_rng *rng, int32_t *tokens, int32_t *targets) {
  int32_t period[64];
  const int64_t length = PERIOD_LEAST + attn_rng_below(rng, PERIOD_MOST - PERIOD_LEAST + 1);
  draw_distinct(rng, t->vocabulary, length, period);
  for (int64_t i = 0; i < t->n; i++) {
    tokens[i] = period[i % length];
    if (i >= length) targets[i] = period[(i + 1) % length];
  }
}

static void draw_parity(const train_task *t, attn_rng *rng, int32_t *tokens, int32_t *targets) {
  int32_t odd = 0;
  for (int64_t i = 0; i < t->n; i++) {
    tokens[i] = (int32_t)attn_rng_below(rng, 2);
    odd ^= tokens[i];
    if (i >= t->n / 2) targets[i] = odd;
  }
}

static void draw_needle(const train_task *t, attn_rng *rng, int32_t *tokens, int32_t *targets) {
  draw_letters(rng, t->n, tokens);
  const int64_t at = attn_rng_below(rng, t->n - 2);
  tokens[at] = tokens[t->n - 1] = SEPARATOR;
  targets[t->n - 1] = tokens[at + 1];
}

/* -- listops -- */

enum { OPERANDS = 4, DEPTH = 3 };

typedef struct listops {
  attn_rng *rng;
  int32_t *tokens;
  int64_t used, room;
  bool full;
} listops;

static void listops_put(listops *l, int32_t token) {
  if (l->used < l->room)
    l->tokens[l->used++] = token;
  else
    l->full = true;
}

static int32_t listops_apply(int32_t operator, int32_t * x, int count) {
  int32_t sum = 0;
  qsort(x, (size_t)count, sizeof *x, by_value);
  for (int i = 0; i < count; i++) sum += x[i];
  switch (operator) {
  case LISTOPS_MIN:
    return x[0];
  case LISTOPS_MAX:
    return x[count - 1];
  case LISTOPS_MEDIAN:
    return (x[(count - 1) / 2] + x[count / 2]) / 2;
  default:
    return sum % 10;
  }
}

/* Writes an expression; returns its value. */
static int32_t listops_draw(listops *l, int depth) {
  if (depth && (depth == DEPTH || attn_rng_uniform(l->rng) > 0.3)) {
    const int32_t digit = (int32_t)attn_rng_below(l->rng, 10);
    listops_put(l, digit);
    return digit;
  }
  const int32_t operator=(int32_t)(LISTOPS_MIN + attn_rng_below(l->rng, 4));
  const int count = 2 + (int)attn_rng_below(l->rng, OPERANDS - 1);
  int32_t x[OPERANDS];
  listops_put(l, operator);
  for (int i = 0; i < count; i++) x[i] = listops_draw(l, depth + 1);
  listops_put(l, LISTOPS_END);
  return listops_apply(operator, x, count);
}

static void draw_listops(const train_task *t, attn_rng *rng, int32_t *tokens, int32_t *targets) {
  int32_t drawn[64];
  listops l = {.rng = rng, .tokens = drawn, .room = t->n - 1, .full = true};
  while (l.full) {
    l.used = 0;
    l.full = false;
    targets[t->n - 1] = listops_draw(&l, 0);
  }
  for (int64_t i = 0; i < t->n - 1 - l.used; i++) tokens[i] = LISTOPS_PAD;
  memcpy(tokens + t->n - 1 - l.used, drawn, (size_t)l.used * sizeof *drawn);
  tokens[t->n - 1] = LISTOPS_EQUALS;
}

const train_task train_tasks[TRAIN_TASKS] = {
    {"copy", "16 letters, and then the same ones again", 32, LETTERS + 1, LETTERS, 0.01, 300, draw_copy},
    {"selective_copy", "8 letters among blanks, and then the letters alone", 48, LETTERS + 2, LETTERS, 0.01,
     1000, draw_selective_copy},
    {"mqar", "4 pairs of a key and a value, and then keys that ask for their values", 32, 2 * KEYS, KEYS,
     0.003, 600, draw_mqar},
    {"induction", "4 to 12 different letters, over and over: what came after this one?", 32, LETTERS, LETTERS,
     0.003, 1000, draw_induction},
    {"sort", "16 letters, and then the same ones in order", 32, LETTERS + 1, LETTERS, 0.01, 300, draw_sort},
    {"parity", "is the number of ones so far odd?", 32, 2, 2, 0.003, 1000, draw_parity},
    {"needle", "a letter behind a mark, for which the same mark asks at the end", 32, LETTERS + 1, LETTERS,
     0.003, 1000, draw_needle},
    {"listops", "the value of nested minima, maxima, medians and sums modulo 10", 32, LISTOPS_EQUALS + 1, 10,
     0.003, 1000, draw_listops},
};

const train_task *train_task_find(const char *name) {
  for (int i = 0; i < TRAIN_TASKS; i++)
    if (strcmp(train_tasks[i].name, name) == 0) return &train_tasks[i];
  return NULL;
}
