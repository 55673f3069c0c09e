/* bench.c - ratios of a benchmark, on a machine whose rate wanders: of meters that are made up; and what each
 * kind of meter asks for and counts. */
#include <criterion/criterion.h>
#include <math.h>

#include "attn_variant.h"
#include "experiments/bench/benchmark.h"
#include "experiments/instruments/guard.h"
#include "tests/support/basics/rng.h"

/* The rate of the machine when the limit is measured for the k-th time; between two times their mean. */
static int64_t probes;
static double rate(int64_t k) { return 1 + (double)(7 * k % 5) / 5; }

static attn_status measure_limit(bench_meter *meter, double span, double *seconds) {
  (void)meter, (void)span;
  *seconds = 1 / rate(probes++);
  return ATTN_OK;
}

static attn_status measure_work(bench_meter *meter, double span, double *seconds) {
  (void)span;
  *seconds = *(const double *)meter->state / ((rate(probes - 1) + rate(probes)) / 2);
  return ATTN_OK;
}

static bench_meter *meter_of(bench *b, bench_set *set, double work, double flops, double bytes,
                             double tokens) {
  static double works[16];
  bench_meter *meter = bench_meter_add(b, "meter");
  works[b->meter_count] = work;
  meter->measure = measure_work;
  meter->state = &works[b->meter_count];
  meter->flops = flops;
  meter->bytes = bytes;
  meter->tokens = tokens;
  return bench_put(b, set, meter);
}

/* Whatever the rate, a time is counted in the limit's, and every round has the same ratio. */
Test(runner_bench, ratios_do_not_follow_the_clock) {
  for (int by_bytes = 0; by_bytes < 2; by_bytes++) {
    bench b = {.options = {.threads = 1, .rounds = 4, .quick = true}};
    bench_meter *limit = bench_meter_add(&b, "limit");
    limit->measure = measure_limit;
    limit->threads = 1;
    limit->bytes = by_bytes;
    bench_set *set = bench_set_add(&b, limit);
    bench_meter *x = meter_of(&b, set, 2, 6, 10, 4), *y = meter_of(&b, set, 16, 8, 0, 2),
                *z = meter_of(&b, set, 4, 0, 3, 0);
    bench_row_add(&b, ROW_OVER_LIMIT, x, NULL, TARGET_NONE, "over the limit");
    bench_row_add(&b, ROW_FLOPS_RATIO, x, y, TARGET_NONE, "flops");
    bench_row_add(&b, ROW_TIME_RATIO, x, y, TARGET_NONE, "time");
    bench_row_add(&b, ROW_TIME_RATIO, x, y, TARGET_NONE, "time of both")->c = z;
    bench_row_add(&b, ROW_TOKEN_RATIO, x, y, TARGET_NONE, "time a token");
    const double wanted[] = {by_bytes ? 5 : 3, 6, 2. / 16, 2. / (16 + 4), (2. / 4) / (16. / 2)};
    cr_assert_eq(bench_measure(&b), ATTN_OK, "%s", attn_last_error());
    for (int r = 0; r < 5; r++)
      cr_expect(fabs(b.rows[r].ratio - wanted[r]) + fabs(b.rows[r].low - wanted[r]) +
                        fabs(b.rows[r].high - wanted[r]) <=
                    1e-12,
                "%s: %g in %g ... %g, not %g", b.rows[r].what, b.rows[r].ratio, b.rows[r].low, b.rows[r].high,
                wanted[r]);
    bench_free(&b);
  }
}

enum { BATCH = 2, HEADS = 4, KV_HEADS = 2, N_Q = 50, N = 70, D = 6, D_V = 5, COUNT = 3 };
enum { EVEN = 64, LONG = 201 }; /* its square fills no cache line */

static double number(const void *x, int64_t i) { return attn_get(x, i, ATTN_F32); }

/* The first coefficient of a column is its sum, of the DCT-II twice that. */
static void expect_sums(const bench *b, int64_t n, double factor) {
  for (int64_t m = 0; m < COUNT; m++)
    for (int64_t c = 0; c < D; c++) {
      double sum = 0, most = 0;
      for (int64_t i = 0; i < n; i++) {
        const double x = factor * number(b->in, (m * n + i) * D + c);
        sum += x, most += fabs(x);
      }
      cr_expect(fabs(number(b->scratch, m * n * D + c) - sum) <= 1e-5 * most, "%d, %d", (int)m, (int)c);
    }
}

/* Column 1 of (Q K^T) V. */
static void expect_products(const bench *b) {
  for (int64_t i = 0; i < LONG; i++) {
    double sum = 0, most = 0;
    for (int64_t j = 0; j < LONG * D; j++) {
      const double x = number(b->in, i * D + j % D) * number(b->in, LONG * D + j) *
                       number(b->in, (2 * LONG + j / D) * D + 1);
      sum += x, most += fabs(x);
    }
    cr_expect(fabs(number(b->out, i * D + 1) - sum) <= 1e-5 * most, "row %d", (int)i);
  }
}

/* An output of a plan is verified in two rows of the first head and of the last; one in fp64, whole. */
static void expect_wrong_refused(bench_meter *m) {
  double *o = m->owner->scratch, seconds;
  for (int i = 0; m->owner->outputs && i < 4; i++) {
    const int64_t head = i < 2 ? 0 : BATCH * HEADS - 1, row = i % 2 ? N_Q - 1 : N_Q / 2;
    float *x = (float *)m->owner->out + (head * N_Q + row) * D_V + i, right = *x;
    *x += 1;
    cr_expect_eq(m->verify(m), ATTN_ENUMERIC, "%s: %d", m->name, i);
    *x = right;
  }
  if (m->owner->outputs) return;
  for (int i = 0; i < BATCH * HEADS * N * D; i++) o[i] += 1e-6;
  cr_expect(m->verify(m) == ATTN_ENUMERIC && !m->measure(m, 1e-6, &seconds));
}

/* Alone, in no more memory than it asks for, it computes what it names; and counts that. */
Test(runner_bench, a_meter_keeps_to_what_it_asks_for) {
  enum { KINDS = 12 };
  bench of[KINDS];
  for (int k = 0; k < KINDS; k++) of[k] = (bench){.options = {.threads = 2, .isa = attn_isa_list()[0]}};
  attn_problem p = attn_problem_make(BATCH, HEADS, N, D), step = attn_problem_make(BATCH, HEADS, 1, D),
               cache = attn_problem_make(1, HEADS, N + 1, D), plain = p, codes;
  step.causal = cache.causal = true;
  plain.kv_heads = KV_HEADS, plain.n_q = N_Q, plain.d_v = D_V;
  codes = plain, codes.k.stored = ATTN_INT8, codes.v.stored = ATTN_F16;
  const double products = 2. * BATCH * HEADS * N_Q * N, keys = BATCH * KV_HEADS * N,
               dense = 4. * LONG * LONG * D,
               bytes_of_codes = (double)(attn_row_bytes(D, ATTN_INT8) + 2 * D_V);
  const struct {
    bench_meter *meter;
    double counted[5]; /* flops, bytes and tokens, NaN: any; n and d */
    double sums;       /* of a transform: its first coefficients over the sums of columns */
  } kinds[KINDS] = {
      {bench_plan(&of[0], "tiled", &plain, NULL, 0),
       {products * (D + D_V), keys * 4 * (D + D_V), BATCH * N_Q, N, D},
       0},
      {bench_plan(&of[1], "tiled", &codes, NULL, 0),
       {products * (D + D_V), keys * bytes_of_codes, BATCH * N_Q, N, D},
       0},
      {bench_step(&of[2], "recurrent:rule=gated_delta", &step), {(double)NAN, (double)NAN, BATCH, 1, D}, 0},
      {bench_backward(&of[3], "full", &plain, 0), {products * (3 * D + 2 * D_V), 0, 0, N, D}, 0},
      {bench_arrival(&of[4], "tiled", &cache, N), {0, 0, 1, N, D}, 0},
      {bench_census(&of[5], &p), {4. * BATCH * HEADS * N * N * D, 0, 0, N, D}, 0},
      {bench_dct(&of[6], N, D, COUNT), {0, 4 * N * D * COUNT, 0, N, D}, 2},
      {bench_wht(&of[7], EVEN, D, COUNT), {0, 4 * EVEN * D * COUNT, 0, EVEN, D}, 1},
      {bench_convolutions(&of[8], N, COUNT), {0, 0, 0, N}, 0},
      {bench_bandwidth(&of[9], 0), {0, 1, 0}, 0},
      {bench_gemm(&of[10], LONG, D), {dense, 0, 0, LONG, D}, 0},
      {bench_openblas(&of[11], LONG, D), {dense, 0, 0, LONG, D}, 0}};
  for (int k = 0; k < KINDS; k++) {
    bench *b = &of[k];
    bench_meter *m = kinds[k].meter;
    if (!m && k == KINDS - 1) break; /* OpenBLAS is not installed */
    cr_assert(m && !b->status, "%d: %s", k, attn_last_error());
    const double counted[] = {m->flops, m->bytes, m->tokens, (double)m->n, (double)m->d};
    const size_t bytes[] = {b->inputs * sizeof(float), b->outputs * sizeof(float), b->work};
    void **const at[] = {&b->in, &b->out, &b->scratch};
    guard room[3] = {{0}};
    for (int i = 0; i < 5; i++)
      cr_expect(!(counted[i] < kinds[k].counted[i] || counted[i] > kinds[k].counted[i]), "%d, %d: %g, not %g",
                k, i, counted[i], kinds[k].counted[i]);
    for (int i = 0; i < 3; i++) {
      cr_assert_eq(guard_open(&room[i], bytes[i] + !bytes[i], 64), ATTN_OK);
      *at[i] = room[i].at;
    }
    attn_rng r = rng_of(1, 1, 0);
    attn_rng_normals(&r, attn_min((int64_t)b->inputs, 10000), ATTN_F32, b->in, 0, 1);
    double seconds = 0;
    if (m->clear) m->clear(m);
    attn_status status = m->measure(m, 1e-6, &seconds);
    if (!status && m->verify) expect_wrong_refused(m), status = m->verify(m);
    if (!status) status = m->measure(m, 1e-6, &seconds);
    cr_expect(!status && seconds > 0, "%s: %s", m->name, attn_last_error());
    if (kinds[k].sums > 0) expect_sums(b, m->n, kinds[k].sums);
    if (m->n == LONG) expect_products(b);
    for (int i = 0; i < 3; i++) {
      cr_expect_eq(guard_check(&room[i]), GUARD_INTACT, "%s: beside %d", m->name, i);
      *at[i] = NULL;
      guard_close(&room[i]);
    }
    bench_free(b);
  }
}
