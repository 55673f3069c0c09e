/* shrink.c - see shrink.h. */
#include "experiments/conformance/shrink.h"

/* What is made less together, by the same number: lengths keep their difference where a variant wants them
 * alike. */
static const struct {
  int count;
  problem_field field[2];
} moves[] = {{2, {FIELD_HEADS, FIELD_KV_HEADS}},
             {1, {FIELD_BATCH}},
             {2, {FIELD_D, FIELD_D_V}},
             {1, {FIELD_D}},
             {1, {FIELD_D_V}},
             {2, {FIELD_N_Q, FIELD_N_KV}},
             {1, {FIELD_N_Q}},
             {1, {FIELD_N_KV}},
             {1, {FIELD_HEADS}},
             {1, {FIELD_KV_HEADS}}};
enum { MOVES = sizeof moves / sizeof *moves, LARGEST = 1 << 24 };

static bool accept(const shrinking *s, problem *p, const problem *candidate) {
  if (problem_check(candidate) || !s->fails(s->context, candidate)) return false;
  *p = *candidate;
  return true;
}

static bool make_plain(const shrinking *s, problem *p) {
  const problem plain = problem_plain();
  bool any = false;
  for (int f = FIELD_DTYPE; f < FIELD_SEED && s->more(s->context); f++) {
    problem candidate = *p;
    if (p->value[f] == plain.value[f]) continue;
    candidate.value[f] = plain.value[f];
    any = accept(s, p, &candidate) || any;
  }
  return any;
}

/* By powers of two, so that multiples of them are found, and by each number below 8, as often as it
 * succeeds. */
static bool make_smaller(const shrinking *s, problem *p) {
  bool any = false;
  for (int m = 0; m < MOVES; m++)
    for (int64_t by = LARGEST; by && s->more(s->context);) {
      problem candidate = *p;
      int64_t most = 0;
      for (int f = 0; f < moves[m].count; f++) {
        int64_t *v = &candidate.value[moves[m].field[f]];
        if (*v > most) most = *v;
        *v = *v > by ? *v - by : 1;
      }
      const bool less = (by == LARGEST || by < most) && most > 1 && accept(s, p, &candidate);
      any = any || less;
      if (!less) by = by > 8 ? by / 2 : by - 1;
    }
  return any;
}

void problem_shrink(const shrinking *s, problem *p) {
  bool any = true;
  while (any && s->more(s->context)) {
    any = make_plain(s, p);
    any = make_smaller(s, p) || any;
  }
}
