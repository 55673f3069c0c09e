/* ring.c - attnlab ring without MPI: the model of communication against computation. tests/ring/ has the ring
 * itself, cases/ring.txt the table. */
#include <criterion/criterion.h>
#include <math.h>

#include "experiments/ring/ring_model.h"

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * fabs(b); }

/* 4 ranks with 250 rows each, 8 heads on 2 key heads, d 16, f32. */
static attn_problem by_hand(void) {
  attn_problem p = attn_problem_make(1, 8, 1000, 16);
  p.kv_heads = 2;
  return p;
}
static const ring_machine machine = {.rate = 32e9, .link = 64e6, .latency = 1e-3};

Test(cli_ring, a_link_that_is_too_slow) {
  const attn_problem p = by_hand();
  const ring_model m = ring_model_of(&p, 4, &machine);
  cr_expect(near(m.compute, 1e-3), "%g", m.compute); /* 2 * 250^2 * 8 * 32 / 32e9 */
  cr_expect(near(m.sent, 64000), "%g", m.sent);      /* 250 * 2 * 32 * 4 */
  cr_expect(near(m.send, 2e-3), "%g", m.send);       /* 1e-3 + 64000 / 64e6 */
  cr_expect(near(m.time, 7e-3), "%g", m.time);       /* 3 * 2e-3 + 1e-3 */
  cr_expect(near(m.efficiency, 4.0 / 7), "%g", m.efficiency);
  /* q, k, v, o 320000; two blocks 128000; sums 8 * 250 * 18 * 8; a part 4 * 250 * (16 * 4 + 8) */
  cr_expect(near(m.memory, 320000 + 128000 + 288000 + 72000), "%g", m.memory);
}

/* Rows that the ranks do not divide: a block has room for two of the longest chunks, 126. */
Test(cli_ring, causal_and_uneven) {
  attn_problem p = by_hand();
  p.causal = true;
  p.n_q = p.n_kv = 1002;
  const ring_machine fast = {.rate = 32e9, .link = 64e9, .latency = 0};
  const ring_model m = ring_model_of(&p, 4, &fast);
  cr_expect(near(m.compute, 250.5 * 250.5 * 8 * 32 / 32e9), "%g", m.compute);
  cr_expect(near(m.sent, 252 * 2 * 32 * 4), "%g", m.sent);
  cr_expect(near(m.time, 4 * m.compute) && near(m.efficiency, 1), "%g, %g", m.time, m.efficiency);
  const ring_model one = ring_model_of(&p, 1, &machine);
  cr_expect(near(one.time, 16 * m.compute) && near(one.efficiency, 1), "%g, %g", one.time, one.efficiency);
}

/* From there on, and not before, computing takes as long as sending. */
Test(cli_ring, where_the_link_is_hidden) {
  attn_problem p = by_hand();
  ring_machine prompt = machine;
  prompt.latency = 0;
  cr_expect(near(ring_model_of(&p, 4, &prompt).hidden, 250));
  p.causal = true;
  cr_expect(near(ring_model_of(&p, 4, &prompt).hidden, 500));
  const int64_t ranks = 3;
  const double hidden = ring_model_of(&p, ranks, &machine).hidden;
  for (int more = 0; more < 2; more++) {
    p.n_q = p.n_kv = 2 * ranks * ((int64_t)(hidden / 2) + more);
    const ring_model m = ring_model_of(&p, ranks, &machine);
    cr_expect((m.compute >= m.send) == (more == 1), "%g, %g", m.compute, m.send);
  }
}
