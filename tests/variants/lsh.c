/* lsh.c - the variant lsh against its definition: buckets in long double from the streams that its head
 * names, and the law of collisions of a round with two, four and more buckets. */
#include "tests/variants/picks.h"

enum { BATCH = 2, HEADS = 4, N_Q = 75, N_KV = 90, D = 16, MOST = 8 };

static const long double margin = 1e-3L;

/* The bucket of a vector in a round; -1: rounding decides. */
static int bucket_of(const long double *x, int64_t d, uint64_t seed, int64_t round, int64_t buckets) {
  long double best = -(long double)INFINITY, second = best;
  int at = -1;
  for (int64_t column = 0; column < buckets / 2; column++) {
    long double y = 0;
    attn_rng rng;
    attn_rng_init(&rng, seed, 0x15b, (uint64_t)(round << 32 | column));
    for (int64_t l = 0; l < d; l++) y += x[l] * (long double)(float)attn_rng_normal(&rng);
    for (int sign = 0; sign < 2; sign++, y = -y) {
      if (y > best) {
        second = best;
        best = y;
        at = (int)column + (sign ? (int)buckets / 2 : 0);
      } else
        second = fmaxl(second, y);
    }
  }
  return best - second > margin ? at : -1;
}

static void check_buckets(int64_t rounds, int64_t buckets, int64_t window, attn_dtype t, bool causal) {
  attn_problem p = shape_problem((case_shape){BATCH, HEADS, 2, N_Q, N_KV, D, 7, causal, true}, t);
  inputs in = inputs_make(&p, true, 23, 1);
  char spec[96];
  snprintf(spec, sizeof spec, "lsh:rounds=%d,buckets=%d,window=%d,seed=5", (int)rounds, (int)buckets,
           (int)window);
  note_context("%s%s %s", spec, causal ? " causal" : "", t == ATTN_F64 ? "f64" : "f32");
  picks x = picks_of(spec, &in);
  int64_t keys[N_KV], wrong = 0, decided = 0, kept = 0;
  static int of_q[MOST][N_Q], of_k[MOST][N_KV];
  for (int64_t b = 0; b < BATCH; b++)
    for (int64_t h = 0; h < HEADS; h++) {
      for (int64_t r = 0; r < rounds; r++) {
        long double y[D];
        for (int64_t i = 0; i < N_Q; i++) {
          for (int64_t l = 0; l < D; l++) y[l] = (long double)inputs_get(&in, TENSOR_Q, b, h, i, l);
          of_q[r][i] = bucket_of(y, D, 5, r, buckets);
        }
        for (int64_t j = 0; j < N_KV; j++) {
          for (int64_t l = 0; l < D; l++) y[l] = (long double)inputs_get(&in, TENSOR_K, b, h / 2, j, l);
          of_k[r][j] = bucket_of(y, D, 5, r, buckets);
        }
      }
      for (int64_t i = 0; i < N_Q; i++) {
        const int64_t count = oracle_keys(&in, NULL, b, h, i, keys);
        for (int64_t a = 0; a < count; a++) {
          bool met = a >= count - window, unsure = false;
          for (int64_t r = 0; r < rounds; r++) {
            met |= of_q[r][i] >= 0 && of_q[r][i] == of_k[r][keys[a]];
            unsure |= of_q[r][i] < 0 || of_k[r][keys[a]] < 0;
          }
          if (unsure && !met) continue;
          decided++;
          kept += met;
          wrong += picks_has(&x, (b * HEADS + h) * N_Q + i, keys[a]) != met;
        }
      }
    }
  if (wrong) note_failure("%d of %d keys", (int)wrong, (int)decided);
  if (decided < HEADS * N_Q * 8 || kept < decided / 50 || kept > decided * 49 / 50)
    note_failure("%d keys of %d say little", (int)kept, (int)decided);
  picks_free(&x);
  inputs_free(&in);
}

Test(variants_lsh, keys_of_a_querys_buckets_are_kept) {
  for (attn_dtype t = ATTN_F32; t <= ATTN_F64; t++)
    for (int causal = 0; causal <= 1; causal++) {
      check_buckets(1, 2, 0, t, causal);
      check_buckets(2, 16, 1, t, causal);
      check_buckets(8, 64, 3, t, causal);
    }
}

/* P of a round with b = 2 r buckets, by summing the density of (X, Y) over a grid on the positive
 * quadrant. */
static double collision_law(double rho, int r) {
  enum { GRID = 200 };
  const double step = 5.0 / GRID;
  static double inner[GRID + 1]
                     [GRID + 1]; /* P(|X'| < x, |Y'| < y) by cells, of which 4 quadrants make two kinds */
  double sum = 0;
  for (int i = 0; i < GRID; i++)
    for (int j = 0; j < GRID; j++) {
      const double x = (i + 0.5) * step, y = (j + 0.5) * step, s = 1 - rho * rho,
                   same = exp(-(x * x - 2 * rho * x * y + y * y) / (2 * s)),
                   other = exp(-(x * x + 2 * rho * x * y + y * y) / (2 * s)),
                   cell = step * step / (2 * acos(-1) * sqrt(s));
      inner[i + 1][j + 1] = inner[i][j + 1] + inner[i + 1][j] - inner[i][j] + 2 * cell * (same + other);
      const double middle = (inner[i][j] + inner[i + 1][j] + inner[i][j + 1] + inner[i + 1][j + 1]) / 4;
      sum += 2 * r * cell * same * pow(middle, r - 1);
    }
  return sum;
}

/* One key at a given angle, fresh rotations by the seed: frequencies within 5 standard deviations. */
static void check_law(double angle, int buckets) {
  enum { SEEDS = 40, ROUNDS = 64 };
  attn_problem p = attn_problem_make(1, 1, 1, D);
  inputs in = inputs_make(&p, false, 3, 1);
  for (int64_t l = 0; l < D; l++) {
    inputs_set(&in, TENSOR_Q, 0, 0, 0, l, l == 0 ? 2 : 0);
    inputs_set(&in, TENSOR_K, 0, 0, 0, l, l == 0 ? cos(angle) : l == 1 ? sin(angle) : 0);
  }
  const double one = collision_law(cos(angle), buckets / 2);
  for (int rounds = 1; rounds <= 2; rounds++) {
    int met = 0, all = 0;
    for (int seed = 0; seed < SEEDS * ROUNDS / rounds; seed++, all++) {
      char spec[96];
      snprintf(spec, sizeof spec, "lsh:rounds=%d,buckets=%d,window=0,seed=%d", rounds, buckets, seed);
      picks x = picks_of(spec, &in);
      met += picks_has(&x, 0, 0);
      picks_free(&x);
    }
    const double want = rounds == 1 ? one : 1 - (1 - one) * (1 - one), got = (double)met / all;
    note_context("angle %g, %d buckets, %d rounds", angle, buckets, rounds);
    if (!(fabs(got - want) <= 5 * sqrt(want * (1 - want) / all) + 1e-3))
      note_failure("%g, expected %g", got, want);
  }
  inputs_free(&in);
}

Test(variants_lsh, collisions_follow_the_law) {
  const double pi = acos(-1);
  EXPECT(fabs(collision_law(0.5, 1) - 2.0 / 3) < 1e-3);
  EXPECT(fabs(collision_law(0.5, 2) - 4.0 / 9) < 2e-3);
  check_law(pi / 3, 2);
  check_law(pi / 3, 4);
  check_law(pi / 6, 16);
  check_law(pi / 2, 8);
}

Test(variants_lsh, odd_buckets_are_refused) {
  attn_problem p = attn_problem_make(1, 1, 4, 4);
  attn_plan *plan = NULL;
  EXPECT_STATUS(attn_plan_create(&plan, &p, "lsh:buckets=7", NULL), ATTN_EINVAL);
  EXPECT_STATUS(attn_plan_create(&plan, &p, "lsh:rounds=0", NULL), ATTN_EINVAL);
}

/* A query opposite to its only key shares no bucket with it. */
Test(variants_lsh, without_a_window_rows_may_be_empty) {
  attn_problem p = attn_problem_make(1, 1, 1, D);
  inputs in = inputs_make(&p, false, 3, 1);
  for (int64_t l = 0; l < D; l++) {
    inputs_set(&in, TENSOR_Q, 0, 0, 0, l, 1);
    inputs_set(&in, TENSOR_K, 0, 0, 0, l, -1);
  }
  for (int window = 0; window < 2; window++) {
    picks x = picks_of(window ? "lsh:rounds=2" : "lsh:rounds=2,window=0", &in);
    const uint32_t sum_to_one = ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX;
    EXPECT(picks_has(&x, 0, 0) == (window > 0));
    EXPECT((x.view.caps & sum_to_one) == (window ? sum_to_one : 0));
    picks_free(&x);
  }
  inputs_free(&in);
}
