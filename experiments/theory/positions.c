/* positions.c - what attention knows of the order of its tokens.
 *
 * Softmax attention is a sum over a set: with the rows of Q, K and V in another order the rows of O are the
 * same, in that order. A causal mask, and anything that depends on positions, breaks it.
 *
 * Rotary positions (Su et al. 2021, arXiv:2104.09864): (R_i q).(R_j k) = q.(R_(j - i) k), and ALiBi (Press et
 * al. 2021, arXiv:2108.12409) adds -m |i - j|: equal contents have a score of the distance alone. Sinusoids
 * (Vaswani et al. 2017) that are shifted are rotated, P(i + t) = R_t P(i), but added to contents they leave
 * q.P(j) and P(i).k. */
#include "experiments/theory/theory.h"

#include <float.h>
#include <string.h>

#include "data/llama/rope.h"
#include "experiments/mathematics/vector.h"

enum { N = 64, D = 16, ALIBI_HEADS = 8 /* of which the first is taken */ };
typedef enum { NO_POSITIONS, CAUSAL, ALIBI, ROTARY, SINUSOIDS, LEARNED } positions;

typedef struct order_room {
  double q[N * D], k[N * D], v[N * D], q_of[N * D], k_of[N * D], v_of[N * D], o[N * D], moved[N * D];
  double alibi[ALIBI_HEADS * (2 * N - 1)], learned[N * D], unit[N * N], weights[N * N], lse[N];
  int from[N];
} order_room;

/* The problem with these positions; q and k [N, D] get those that are of rows. */
static attn_problem place(order_room *x, positions how, double *q, double *k) {
  attn_problem p = theory_problem(N, N, D, D, 1 / sqrt(D));
  double frequency[D / 2];
  p.causal = how == CAUSAL;
  if (how == ALIBI)
    p.score = (attn_score){.relative = x->alibi, .relative_heads = 1, .span = 2 * N - 1, .zero = N - 1};
  rope_frequencies(D, 10000, frequency);
  for (int i = 0; i < N; i++)
    for (int side = 0; side < 2; side++) {
      double *row = (side ? k : q) + (ptrdiff_t)i * D;
      if (how == ROTARY) rope_rotate(D, frequency, i, row);
      if (how == SINUSOIDS) rope_add_sinusoid(D, frequency, i, row);
      for (int l = 0; l < D && how == LEARNED; l++) row[l] += x->learned[i * D + l];
    }
  return p;
}

static void begin(theory_report *r, order_room *x) {
  theory_normals(r, N * D, 1, x->q);
  theory_normals(r, N * D, 1, x->k);
  theory_normals(r, N * D, 1, x->v);
  theory_normals(r, N * D, 1, x->learned);
  if (!r->status) r->status = attn_alibi(ALIBI_HEADS, N, x->alibi);
}

/* ---- the order of tokens ------------------------------------------------------------------------------- */

/* Output of the rows from[0], from[1], ... */
static void attend_to_rows(theory_report *r, order_room *x, positions how, double *o) {
  for (int i = 0; i < N; i++) {
    memcpy(x->q_of + (ptrdiff_t)i * D, x->q + (ptrdiff_t)x->from[i] * D, D * sizeof *x->q);
    memcpy(x->k_of + (ptrdiff_t)i * D, x->k + (ptrdiff_t)x->from[i] * D, D * sizeof *x->k);
    memcpy(x->v_of + (ptrdiff_t)i * D, x->v + (ptrdiff_t)x->from[i] * D, D * sizeof *x->v);
  }
  const attn_problem p = place(x, how, x->q_of, x->k_of);
  theory_attend(r, &p, "full", &(attn_tensors){.q = x->q_of, .k = x->k_of, .v = x->v_of, .o = o});
}

static void measure_order(theory_report *r, void *at) {
  static const char *const names[] = {"no positions", "causal mask", "ALiBi", "rotary positions"};
  order_room *x = at;
  begin(r, x);
  const double size = theory_score_size(N, N, D, 1 / sqrt(D), x->q, x->k),
               tolerance = theory_rounding(N, D, size, theory_largest(x->v, N * D));
  for (positions how = NO_POSITIONS; how <= ROTARY; how++) {
    for (int i = 0; i < N; i++) x->from[i] = i;
    attend_to_rows(r, x, how, x->o);
    for (int moved = 2; moved <= N; moved *= 2) {
      double distance = 0;
      for (int i = 0; i < moved; i++) x->from[i] = (i + 1) % moved;
      attend_to_rows(r, x, how, x->moved);
      for (int i = 0; i < N; i++)
        distance = theory_larger(
            distance, theory_distance(x->moved + (ptrdiff_t)i * D, x->o + (ptrdiff_t)x->from[i] * D, D));
      figure_exact(theory_point(r, names[how], moved), distance);
      if (moved == N)
        theory_vanishes(r, how != NO_POSITIONS, distance, tolerance,
                        "|f(P x) - P f(x)|, a cycle of all rows, %s", names[how]);
    }
  }
}

THEORY_DEFINE(
    order, .name = "order",
    .statement = "attention to tokens in another order gives the same outputs in that order",
    .assumption = "neither mask nor scores depend on positions",
    .otherwise = "a causal mask, ALiBi, rotary positions",
    .source =
        "Vaswani et al. 2017 (arXiv:1706.03762), section 3.5; Lee et al. 2019 (arXiv:1810.00825), section 3",
    .x = "rows moved", .y = "largest distance of outputs", .room = sizeof(order_room),
    .measure = measure_order);

/* ---- distances ----------------------------------------------------------------------------------------- */

/* Scores of one content at all positions, into x->weights: log weight + log sum. */
static void score_positions(theory_report *r, order_room *x, positions how) {
  for (int i = 0; i < N; i++) {
    memcpy(x->q_of + (ptrdiff_t)i * D, x->q, D * sizeof *x->q);
    memcpy(x->k_of + (ptrdiff_t)i * D, x->k, D * sizeof *x->k);
  }
  attn_problem p = place(x, how, x->q_of, x->k_of);
  p.d_v = N;
  for (int i = 0; i < N * N; i++) x->unit[i] = i % (N + 1) == 0;
  theory_attend(r, &p, "tiled",
                &(attn_tensors){.q = x->q_of, .k = x->k_of, .v = x->unit, .o = x->weights, .lse = x->lse});
  for (int i = 0; i < N * N; i++) x->weights[i] = log(x->weights[i]) + x->lse[i / N];
}

static double largest_norm(const double *rows) {
  double largest = 0;
  for (int i = 0; i < N; i++) largest = theory_larger(largest, vector_norm(rows + (ptrdiff_t)i * D, D));
  return largest;
}

static void measure_distance(theory_report *r, void *at) {
  static const char *const names[] = {[ALIBI] = "ALiBi",
                                      [ROTARY] = "rotary positions",
                                      [SINUSOIDS] = "sinusoids added",
                                      [LEARNED] = "learned positions added"};
  order_room *x = at;
  double spread, shifted = 0, frequency[D / 2];
  begin(r, x);
  for (positions how = ALIBI; how <= LEARNED; how++) {
    score_positions(r, x, how);
    spread = 0;
    for (int i = 1; i < N; i++)
      for (int j = 1; j < N; j++)
        spread = theory_larger(spread, fabs(x->weights[i * N + j] - x->weights[(i - 1) * N + j - 1]));
    /* With u = 2^-53: turns err by (N + 6) u of a pair, scores by (3 N + D + 20) u |q| |k| for it, and
     * weights and their sum by (D + 6) u of that and (N + 8) u each, as do their logarithms, of numbers up to
     * the largest score. */
    const double size = largest_norm(x->q_of) * largest_norm(x->k_of) / sqrt(D) +
                        theory_largest(x->weights, N * N),
                 tolerance = 1.01 * DBL_EPSILON * ((3 * N + 3 * D + 32) * size + 2 * N + 16);
    theory_vanishes(r, how > ROTARY, spread, tolerance, "spread of scores at one distance, %s", names[how]);
    for (int j = N - 1; j >= 0; j -= 7)
      figure_exact(theory_point(r, names[how], N - 1 - j), x->weights[(N - 1) * N + j]);
  }
  rope_frequencies(D, 10000, frequency);
  for (int i = 0; i < N; i++)
    for (int t = 0; t < N; t++) {
      double from[D] = {0}, by[D] = {0}, to[D] = {0}, turned[D];
      rope_add_sinusoid(D, frequency, i, from);
      rope_add_sinusoid(D, frequency, t, by);
      rope_add_sinusoid(D, frequency, i + t, to);
      for (int l = 0; l < D; l += 2) {
        turned[l] = from[l] * by[l + 1] + from[l + 1] * by[l];
        turned[l + 1] = from[l + 1] * by[l + 1] - from[l] * by[l];
      }
      shifted = theory_larger(shifted, theory_distance(turned, to, D));
    }
  /* Angles up to 2 N err by 2 N u on one side, by N u twice on the other; sines, products and sums by 8 u. */
  theory_vanishes(r, false, shifted, (4 * N + 8) * 0x1p-53, "|P(i + t) - R_t P(i)|, sinusoids");
}

THEORY_DEFINE(
    distance_alone, .name = "distance",
    .statement =
        "rotary positions and ALiBi give scores of the distance alone; a shift of sinusoids is a rotation",
    .assumption = "positions turn queries and keys, or are a bias of the distance",
    .otherwise = "positions that are added to contents, sinusoids or learned",
    .source = "Su et al. 2021, section 3.2.2; Press et al. 2021; Vaswani et al. 2017, section 3.5",
    .x = "distance", .y = "score", .room = sizeof(order_room), .measure = measure_distance);
