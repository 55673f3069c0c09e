/* sample.c - the variant sample: what it draws against the stated moments, beside keys that others own and
 * keys that a bias hides; how many keys eps and delta ask for, against the formulas in long double; and what
 * they promise. */
#include "tests/variants/samples.h"

enum { N = 40, D = 16 };

static inputs one_query(int64_t n, attn_dtype t) {
  attn_problem p = attn_problem_make(1, 1, n, D);
  p.n_q = 1;
  p.dtype = t;
  return inputs_make(&p, false, 7, 1);
}

static attn_run head_runs[] = {{3, 4, 1}, {11, 1, 1}, {30, 7, 1}};
static int64_t head_count[] = {3};
static const attn_picks head = {.max_runs = 3, .runs = head_runs, .counts = head_count};
static bool is_owned(int64_t j) { return (j >= 3 && j < 7) || j == 11 || (j >= 30 && j < 37); }

static double law[N * N], found[N][N];

/* Fresh draws by the seed, of one query that sees `end` keys: means of products within 5 standard
 * deviations. */
static void check_law(const char *of, bool owned, const inputs *in, const char *hidden) {
  enum { SEEDS = 4000 };
  const int64_t n = in->problem.n_kv;
  double weights[N];
  int64_t keys[N], count = 0;
  for (int64_t j = 0; j < n; j++)
    if (!(owned && is_owned(j)) && !(hidden && hidden[j])) keys[count++] = j;
  memset(found, 0, sizeof found);
  for (int seed = 0; seed < SEEDS; seed++) {
    const char *spec = text_of("sample:%s,seed=%d", of, seed);
    note_context("%s%s%s", spec, owned ? " beside a head" : "", hidden ? " with hidden keys" : "");
    sampler x = sampler_of(spec, in);
    const attn_selector *s = x.view.selector;
    const attn_query query = {.call = &x.call, .owned = owned ? &head : NULL};
    sample_weights(&x, 0, 0, 0, query.owned, weights);
    if (!seed) s->moments(s->state, &query, keys, count, law);
    for (int64_t a = 0; a < count; a++) {
      const double times = weights[keys[a]] / exp(s->log_weight(s->state, &query, keys[a]));
      if (!(fabs(times - round(times)) < 1e-9) || (times > 1.5 && !s->repeats))
        note_failure("key %d has the weight %g times", (int)keys[a], times);
      for (int64_t b = 0; b < count; b++) found[a][b] += weights[keys[a]] * weights[keys[b]] / SEEDS;
    }
    for (int64_t a = 0; a < count; a++) weights[keys[a]] = 0;
    for (int64_t j = 0; j < n; j++)
      if (weights[j] > 0) note_failure("key %d belongs to another term", (int)j);
    sampler_free(&x);
  }
  for (int64_t a = 0; a < count; a++)
    for (int64_t b = 0; b < count; b++) {
      const double want = law[a * count + b], most = law[a * count + a] * law[b * count + b];
      if (!(fabs(found[a][b] - want) <= 6 * sqrt(3 * most * want / SEEDS) + 1e-9))
        note_failure("keys %d, %d: %g, expected %g", (int)keys[a], (int)keys[b], found[a][b], want);
    }
}

Test(variants_sample, draws_follow_the_moments) {
  inputs in = one_query(N, ATTN_F64);
  for (int owned = 0; owned <= 1; owned++) {
    check_law("count=7", owned, &in, NULL);
    check_law("count=1", owned, &in, NULL);
    check_law("count=7,replacement=yes", owned, &in, NULL);
  }
  char hidden[N] = {0};
  double bias[N] = {0};
  for (int64_t j = 0; j < N; j += 3) hidden[j] = 1, bias[j] = -(double)INFINITY;
  in.problem.score.dense = (attn_bias){.at = bias, .dtype = ATTN_F64, .row = N};
  check_law("count=5", true, &in, hidden);
}

/* Each key as often, and N / b keys for each, however the rows of a block come. */
Test(variants_sample, all_that_there_are_are_taken_as_they_are) {
  inputs in = one_query(N, ATTN_F32);
  double weights[N];
  static const char *const specs[] = {"sample:count=28", "sample:count=40", "sample:guarantee=clt,base=28",
                                      "sample:guarantee=bernstein,base=28"};
  for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
    sampler x = sampler_of(specs[s], &in);
    note_context("%s", specs[s]);
    sample_weights(&x, 0, 0, 0, &head, weights);
    for (int64_t j = 0; j < N; j++)
      if (fabs(weights[j] - !is_owned(j)) > 0) note_failure("key %d has the weight %g", (int)j, weights[j]);
    sampler_free(&x);
  }
}

/* Queries before the first key, of attention that is not causal, have positions below 0. */
Test(variants_sample, heads_draw_for_themselves) {
  enum { KEYS = 6, QUERIES = 13 };
  attn_problem p = attn_problem_make(1, 2, KEYS, D);
  p.n_q = QUERIES;
  inputs in = inputs_make(&p, false, 7, 1);
  sampler x = sampler_of("sample:count=3", &in);
  double weights[2][KEYS];
  int alike[2] = {0};
  for (int64_t i = 0; i < QUERIES; i++) {
    for (int64_t h = 0; h < 2; h++) sample_weights(&x, 0, h, i, NULL, weights[h]);
    alike[i < QUERIES - KEYS] += !memcmp(weights[0], weights[1], sizeof weights[0]);
  }
  EXPECT(alike[0] < KEYS / 2 && alike[1] < (QUERIES - KEYS) / 2); /* each with probability 1 / 20 */
  sampler_free(&x);
}

Test(variants_sample, enough_keys_are_exact_attention) { expect_exact_bits("sample:count=90"); }

/* -- by eps and delta -- */

enum { MANY = 4096, BASE = 48 };
static attn_run last_runs[] = {{MANY - 256, 256, 1}};
static int64_t last_count[] = {1};
static const attn_picks last = {.max_runs = 1, .runs = last_runs, .counts = last_count};

/* Scores N(0, spread^2): d is 1 in effect. The 256 keys that are owned have the largest. */
static inputs log_normal(double spread) {
  inputs in = one_query(MANY, ATTN_F64);
  in.problem.scale = 1;
  double *s = kept_memory(malloc(MANY * sizeof *s));
  attn_rng rng = rng_of(9, 1, 1);
  for (int64_t j = 0; j < MANY; j++) s[j] = spread * attn_rng_normal(&rng);
  for (int64_t j = 1; j < MANY; j++)
    for (int64_t a = j; a > 0 && s[a - 1] > s[a]; a--) {
      const double swap = s[a];
      s[a] = s[a - 1];
      s[a - 1] = swap;
    }
  for (int64_t l = 0; l < D; l++) inputs_set(&in, TENSOR_Q, 0, 0, 0, l, l == 0);
  for (int64_t j = 0; j < MANY; j++)
    for (int64_t l = 0; l < D; l++) inputs_set(&in, TENSOR_K, 0, 0, j, l, l == 0 ? s[j] : 0);
  return in;
}

static long double mass(const inputs *in, int64_t first, int64_t end) {
  long double sum = 0;
  for (int64_t j = first; j < end; j++) sum += expl((long double)inputs_get(in, TENSOR_K, 0, 0, j, 0));
  return sum;
}

/* b by the formulas of the head of the variant's file. */
static long double budget_of(const inputs *in, bool bernstein, bool two, long double eps, long double delta,
                             int seed) {
  const int64_t n = MANY - 256;
  long double a[BASE], mean = 0, square = 0, cap = 0;
  attn_rng rng = rng_of((uint64_t)seed, 0x5a3ba5e, MANY - 1);
  for (int t = 0; t < BASE; t++) {
    a[t] = expl((long double)inputs_get(in, TENSOR_K, 0, 0, attn_rng_below(&rng, n), 0));
    mean += a[t] / BASE;
  }
  for (int t = 0; t < BASE; t++) square += (a[t] - mean) * (a[t] - mean);
  for (int64_t j = 0; j < n; j++) cap = fmaxl(cap, expl((long double)inputs_get(in, TENSOR_K, 0, 0, j, 0)));
  const long double spread = sqrtl(square / (BASE - 1)), owned = mass(in, n, MANY), log_a = logl(3 / delta),
                    log_b = logl(6 / delta);
  if (!bernstein) {
    const long double z = two ? 1.6448536269514722L : 1.2815515655446004L; /* delta = 0.1 */
    return powl(z * spread * n / (eps * (owned + n * mean)), 2);
  }
  const long double s = fminl(spread + cap * sqrtl(2 * log_a / (BASE - 1)), cap / 2),
                    low = fmaxl(0, mean - s * sqrtl(2 * log_a / BASE) - cap * log_a / (3 * BASE)),
                    off = eps * (owned + n * low) / n,
                    root = s * sqrtl(2 * log_b) + sqrtl(2 * log_b * s * s + 4 * off * cap * log_b / 3);
  return root * root / (4 * off * off);
}

typedef struct tally {
  int failed;
  double share;
} tally;

/* How often the estimate is off by more than eps. */
static tally try(const inputs *in, const char *how, bool bernstein, bool two, double eps, int draws) {
  static double weights[MANY];
  const long double owned = mass(in, MANY - 256, MANY), all = mass(in, 0, MANY);
  tally t = {0};
  for (int seed = 0; seed < draws; seed++) {
    const char *spec = text_of("sample:%s,base=%d,eps=%g,delta=0.1,seed=%d", how, BASE, eps, seed);
    note_context("%s", spec);
    sampler x = sampler_of(spec, in);
    sample_weights(&x, 0, 0, 0, &last, weights);
    long double sum = owned;
    double some = 0, count = 0;
    for (int64_t j = 0; j < MANY; j++) {
      sum += (long double)weights[j] * expl((long double)inputs_get(in, TENSOR_K, 0, 0, j, 0));
      count += weights[j] > 0;
      some = fmax(some, weights[j]);
    }
    const double want =
        fmin(MANY - 256, fmax(1, ceil((double)budget_of(in, bernstein, two, (long double)eps, 0.1L, seed))));
    if (!(fabs(count - want) < 1e-9) || !(fabs(some - (MANY - 256) / want) < 1e-9))
      note_failure("%g keys of weight %g, expected %g", count, some, want);
    t.failed += !(fabsl(sum - all) <= (long double)eps * all);
    t.share += count / (MANY - 256) / draws;
    sampler_free(&x);
  }
  return t;
}

/* With P(fail) = delta the frequency exceeds delta + 5 sqrt(delta (1 - delta) / draws) about never. */
Test(variants_sample, keys_are_as_many_as_eps_and_delta_ask_for) {
  enum { DRAWS = 1500 };
  inputs in = log_normal(1);
  const double off = 5 * sqrt(0.09 / DRAWS);
  const tally two = try(&in, "guarantee=clt", false, true, 0.05, DRAWS),
              one = try(&in, "guarantee=clt,quantile=one", false, false, 0.05, DRAWS);
  in = log_normal(4); /* the head has nearly all */
  const tally proven = try(&in, "guarantee=bernstein", true, true, 0.1, DRAWS / 5);
  if (getenv("ATTN_SHOW"))
    printf("clt two %g of draws at a share %g, one %g at %g, bernstein %g at %g\n",
           (double)two.failed / DRAWS, two.share, (double)one.failed / DRAWS, one.share,
           5.0 * proven.failed / DRAWS, proven.share);
  note_context("promises");
  /* One side of two is twice delta; that of both is near delta, as the first sample allows. */
  EXPECT((double)one.failed / DRAWS > 0.1 + off);
  EXPECT((double)two.failed / DRAWS < 0.1 + 2 * off);
  EXPECT(proven.failed == 0);
  EXPECT(two.share < 0.5 && two.share > one.share && proven.share < 0.9);
}

Test(variants_sample, a_promise_is_stated_as_what_it_is) {
  inputs in = one_query(N, ATTN_F32);
  static const struct {
    const char *spec;
    double delta;
    bool claimed;
  } cases[] = {{"sample", 0, false},
               {"sample:guarantee=clt", 0.1, true},
               {"sample:guarantee=bernstein,delta=0.05", 0.05, false},
               {"sample:guarantee=bernstein,max_share=0.5", 0, false}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    sampler x = sampler_of(cases[c].spec, &in);
    const attn_selector *s = x.view.selector;
    note_context("%s", cases[c].spec);
    EXPECT(fabs(s->delta - cases[c].delta) < 1e-15 && (s->epsilon > 0) == (s->delta > 0));
    EXPECT(s->claimed == cases[c].claimed);
    sampler_free(&x);
  }
}
