/* bench_gates.c - the gates that a recurrence is measured with, since its draws take longer than the rule. */
#include "experiments/bench/benchmark.h"

#include "attn_variant.h"

#include <stdlib.h>

/* A gate of every head and key, uniform between `least` and 0, or in 0 ... 1. */
static bool gate_make(const attn_problem *p, const char *name, int64_t columns, double least,
                      bench_gates *to) {
  const int64_t count = p->heads * p->n_kv * columns;
  float *x = malloc((size_t)count * sizeof *x);
  attn_rng r;
  attn_rng_init(&r, 1, (uint64_t)to->count, 0);
  for (int64_t i = 0; x && i < count; i++)
    x[i] = (float)(least < 0 ? least * attn_rng_uniform(&r) : attn_rng_uniform(&r));
  if (x) to->of[to->count++] = (attn_extra){name, ATTN_F32, x, 1, p->heads, p->n_kv, columns};
  return x;
}

bool bench_gates_make(const attn_plan *plan, bench_gates *to) {
  const attn_problem *p = attn_plan_problem(plan);
  attn_view view;
  if (attn_plan_inspect(plan, &view) || !view.recurrence) return true;
  const attn_recurrence *x = view.recurrence;
  bool good = gate_make(p, "decay", x->columns ? p->d_qk : 1, -1.0 / 8, to);
  if (x->betas == 1) good = good && gate_make(p, "beta", 1, 0, to);
  if (x->carries) good = good && gate_make(p, "beta", 1, 0, to) && gate_make(p, "previous", 1, 0, to);
  if (x->turns) good = good && gate_make(p, "angle", x->turns, 0, to);
  if (x->betas > 1 && !x->carries)
    good = good && gate_make(p, "erase", p->d_qk, 0, to) && gate_make(p, "write", p->d_v, 0, to);
  return good;
}

void bench_gates_free(bench_gates *x) {
  for (int64_t i = 0; i < x->count; i++) free((void *)(uintptr_t)x->of[i].at);
}
