/* shrink.c - see shrink.h. */
#include "experiments/conformance/shrink.h"

/* What is changed together: heads keep their divisor, and lengths their difference where a variant wants them
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
enum { MOVES = sizeof moves / sizeof *moves, WAYS = 5 };

static int64_t smaller(int64_t x, int way) {
  const int64_t to[WAYS] = {1, x / 2, x - x / 4, x - x / 16, x - 1};
  return to[way];
}

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

static bool make_smaller(const shrinking *s, problem *p) {
  bool any = false;
  for (int m = 0; m < MOVES; m++)
    for (int way = 0; way < WAYS && s->more(s->context);) {
      problem candidate = *p;
      bool changed = false;
      for (int f = 0; f < moves[m].count; f++) {
        int64_t *v = &candidate.value[moves[m].field[f]];
        const int64_t to = smaller(*v, way);
        changed = changed || (to >= 1 && to < *v);
        if (to >= 1) *v = to;
      }
      const bool less = changed && accept(s, p, &candidate);
      any = any || less;
      way = less ? 0 : way + 1;
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
