/* train_tasks.c - every task is solved from its tokens alone, up to the position that is asked; nothing else
 * is scored. */
#include "experiments/training/train_tasks.h"
#include "tests/support/basics/rng.h"

#include <criterion/criterion.h>
#include <string.h>

enum { SEQUENCES = 500, MOST = 64, MARK = 16 };

static int64_t place_of(const int32_t *tokens, int32_t token) {
  int64_t i = 0;
  while (tokens[i] != token) i++;
  return i;
}

/* Each: the answer at position i, from tokens 0 ... i; -1 if there is none. */
static int32_t solve_copy(const int32_t *tokens, int64_t i) { return i < 16 ? -1 : tokens[i - 16]; }

static int32_t solve_selective_copy(const int32_t *tokens, int64_t i) {
  if (i < 40) return -1;
  int64_t wanted = i - 40;
  for (int64_t j = 0;; j++)
    if (tokens[j] < 16 && wanted-- == 0) return tokens[j];
}

static int32_t solve_mqar(const int32_t *tokens, int64_t i) {
  return i < 8 || i % 2 ? -1 : tokens[place_of(tokens, tokens[i]) + 1];
}

static int32_t solve_induction(const int32_t *tokens, int64_t i) {
  int64_t j = i - 1;
  while (j >= 0 && tokens[j] != tokens[i]) j--;
  return j < 0 ? -1 : tokens[j + 1];
}

static int32_t solve_sort(const int32_t *tokens, int64_t i) {
  int64_t wanted = i - 16;
  if (i < 16) return -1;
  for (int32_t letter = 0;; letter++)
    for (int j = 0; j < 16; j++)
      if (tokens[j] == letter && wanted-- == 0) return letter;
}

static int32_t solve_parity(const int32_t *tokens, int64_t i) {
  int32_t ones = 0;
  for (int64_t j = 0; j <= i; j++) ones += tokens[j];
  return i < 16 ? -1 : ones % 2;
}

static int32_t solve_needle(const int32_t *tokens, int64_t i) {
  return i < 31 ? -1 : tokens[place_of(tokens, MARK) + 1];
}

/* The value of the expression at *at, which is passed over. Medians by counting. */
static int32_t evaluate(const int32_t *tokens, int64_t *at) {
  const int32_t token = tokens[(*at)++];
  int32_t count = 0, sum = 0, least = 9, most = 0, of_value[10] = {0};
  if (token < 10) return token;
  while (tokens[*at] != LISTOPS_END) {
    const int32_t x = evaluate(tokens, at);
    least = x < least ? x : least;
    most = x > most ? x : most;
    sum += x;
    of_value[x]++;
    count++;
  }
  (*at)++;
  cr_assert(count >= 2);
  if (token == LISTOPS_MIN) return least;
  if (token == LISTOPS_MAX) return most;
  if (token == LISTOPS_SUM) return sum % 10;
  cr_assert(token == LISTOPS_MEDIAN);
  int32_t low = 0, high = 0;
  for (int32_t v = 9, below = count; v >= 0; v--) {
    below -= of_value[v];
    if (below <= (count - 1) / 2 && (count - 1) / 2 < below + of_value[v]) low = v;
    if (below <= count / 2 && count / 2 < below + of_value[v]) high = v;
  }
  return (low + high) / 2;
}

static int32_t solve_listops(const int32_t *tokens, int64_t i) {
  int64_t at = 0;
  if (i < 31) return -1;
  while (tokens[at] == LISTOPS_PAD) at++;
  const int32_t value = evaluate(tokens, &at);
  cr_assert(at == 31 && tokens[31] == LISTOPS_EQUALS);
  return value;
}

/* What is drawn besides letters: the pair that is asked for last, the period, the place of the mark, the
 * number of operands and how deep they are nested. */
static int64_t form_of(const train_task *t, const int32_t *tokens) {
  int64_t form = 0, at = 0, depth = 0, deepest = 0;
  if (strcmp(t->name, "mqar") == 0) return place_of(tokens, tokens[30]) / 2;
  if (strcmp(t->name, "needle") == 0) return place_of(tokens, MARK);
  if (strcmp(t->name, "induction") == 0)
    while (solve_induction(tokens, form) < 0) form++;
  if (strcmp(t->name, "listops") != 0) return form;
  while (tokens[at++] == LISTOPS_PAD) continue;
  for (; tokens[at] != LISTOPS_END; form++) evaluate(tokens, &at);
  for (at = 0; at < t->n; at++) {
    depth += (tokens[at] >= LISTOPS_MIN && tokens[at] < LISTOPS_END) - (tokens[at] == LISTOPS_END);
    deepest = depth > deepest ? depth : deepest;
  }
  return form + 8 * deepest;
}

static const struct {
  int32_t (*solve)(const int32_t *, int64_t);
  int64_t forms;
} solvers[TRAIN_TASKS] = {{solve_copy, 1},      {solve_selective_copy, 1}, {solve_mqar, 4},
                          {solve_induction, 9}, {solve_sort, 1},           {solve_parity, 1},
                          {solve_needle, 30},   {solve_listops, 9}};

Test(training_train_tasks, solved) {
  for (int k = 0; k < TRAIN_TASKS; k++) {
    const train_task *t = &train_tasks[k];
    int answers[MOST] = {0}, forms[MOST] = {0}, uses[MOST] = {0};
    attn_rng rng = rng_of(7, 0, 0);
    for (int s = 0; s < SEQUENCES; s++) {
      int32_t tokens[MOST], targets[MOST];
      for (int i = 0; i < MOST; i++) targets[i] = -1;
      t->draw(t, &rng, tokens, targets);
      for (int64_t i = 0; i < t->n; i++) {
        cr_assert(tokens[i] >= 0 && tokens[i] < t->vocabulary, "%s: token %d", t->name, (int)tokens[i]);
        uses[tokens[i]]++;
        const int32_t answer = solvers[k].solve(tokens, i);
        cr_expect(targets[i] == answer, "%s: %d at %d, not %d", t->name, (int)targets[i], (int)i,
                  (int)answer);
        if (answer >= 0) answers[answer]++;
      }
      forms[form_of(t, tokens)]++;
    }
    int64_t met[3] = {0};
    for (int i = 0; i < MOST; i++) met[0] += answers[i] > 0, met[1] += forms[i] > 0, met[2] += uses[i] > 0;
    cr_expect(met[0] == t->answers && met[1] == solvers[k].forms && met[2] == t->vocabulary,
              "%s: %d different answers, %d forms, %d tokens", t->name, (int)met[0], (int)met[1],
              (int)met[2]);
    cr_expect(train_task_find(t->name) == t);
  }
  cr_expect(!train_task_find("copying"));
}
