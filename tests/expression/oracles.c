/* oracles.c - expressions that must be something simpler: a head of every key is exact attention, one without
 * keys is its tail, X + X is X, and exact attention by halves is exact; causal or not, with grouped heads,
 * padding, biases, caps and sinks, in fp32 and fp64, down to one key, and where queries see none. */
#include "tests/support/core.h"

static const struct { int64_t n_q, n_kv; } sizes[] = {{1, 1}, {150, 150}, {70, 150}, {150, 70}, {1, 150}};
enum { SIZES = sizeof sizes / sizeof *sizes, LONGEST = 150, HEADS = 4 };
typedef enum { PLAIN, ALIBI, DENSE, CAPPED, SINKS, SCORES } scores;

/* The arrays that scores point to. */
static double alibi[HEADS * (2 * LONGEST - 1)], bias[LONGEST * LONGEST];
static const double sinks[HEADS] = {-1, 0, 0.5, 2};

static attn_problem problem_of(int64_t n_q, int64_t n_kv, bool causal, attn_dtype t, scores with) {
  attn_problem p = attn_problem_make(2, HEADS, n_kv, 16);
  p.kv_heads = 2;
  p.n_q = n_q;
  p.d_v = 12;
  p.causal = causal;
  p.dtype = t;
  cr_assert_eq(attn_alibi(HEADS, LONGEST, alibi), ATTN_OK);
  for (int64_t i = 0; i < LONGEST * LONGEST; i++)
    bias[i] = i % 11 == 3 ? -(double)INFINITY : 0.01 * (double)(i % 97 - 48);
  if (with == ALIBI)
    p.score = (attn_score){
        .relative = alibi, .relative_heads = HEADS, .span = 2 * LONGEST - 1, .zero = LONGEST - 1};
  if (with == DENSE) p.score.dense = (attn_bias){.at = bias, .dtype = ATTN_F64, .row = LONGEST};
  if (with == CAPPED) p.score.softcap = 2;
  if (with == SINKS) p.score.sink = sinks;
  return p;
}

/* The length of the longest row of Q or K. */
static double longest(const inputs *in, tensor which, int64_t heads, int64_t rows) {
  double most = 0;
  for (int64_t x = 0; x < in->problem.batch * heads * rows; x++) {
    double square = 0;
    for (int64_t l = 0; l < in->problem.d_qk; l++)
      square += pow(inputs_get(in, which, x / rows / heads, x / rows % heads, x % rows, l), 2);
    most = fmax(most, sqrt(square));
  }
  return most;
}

/* Scores are off by (d + 8) u S in the exponent on either side, sums of n weights by n u, and so their
 * quotient. */
static double tolerance(const attn_problem *p, const inputs *in) {
  const double score =
      fabs(p->scale) * longest(in, TENSOR_Q, p->heads, p->n_q) * longest(in, TENSOR_K, p->kv_heads, p->n_kv) +
      2 * LONGEST; /* ALiBi adds up to n */
  return 2 * 2 * (((double)p->d_qk + 8) * score + (double)p->n_kv) * attn_numbers[p->dtype].unit *
         inputs_most(in, TENSOR_V);
}

static void compare(const attn_problem *p, bool padded, const char *a, const char *b, bool bits) {
  inputs in = inputs_make(p, padded, 5, 1);
  void *x = run_spec(a, NULL, &in), *y = run_spec(b, NULL, &in);
  if (x && y && bits) expect_same(p, x, y, "bitwise");
  const double most = tolerance(p, &in);
  for (size_t i = 0; x && y && !bits && i < output_count(p); i++) {
    const double off = attn_get(x, (int64_t)i, p->dtype) - attn_get(y, (int64_t)i, p->dtype);
    if (fabs(off) <= most) continue;
    note_failure("element %zu is off by %g, at most %g", i, off, most);
    break;
  }
  free(x), free(y);
  inputs_free(&in);
}

typedef enum { ANY, CAUSAL } causality;

/* On every problem that both take. */
static void expect_equal(const char *a, const char *b, causality needs, bool bits) {
  int compared = 0;
  for (int s = 0; s < SIZES; s++)
    for (int k = 0; k < 8; k++)
      for (int with = 0; with < SCORES; with++) {
        const bool causal = k & 1, padded = k & 4;
        if (needs == CAUSAL && !causal) continue;
        const attn_problem p =
            problem_of(sizes[s].n_q, sizes[s].n_kv, causal, k & 2 ? ATTN_F64 : ATTN_F32, (scores)with);
        attn_cost cost;
        if (attn_estimate(&p, a, NULL, NULL, &cost) != ATTN_OK) continue;
        note_context("%s against %s, %dx%d%s%s%s, scores %d", a, b, (int)p.n_q, (int)p.n_kv,
                     causal ? ", causal" : "", padded ? ", padded" : "", k & 2 ? ", fp64" : "", with);
        compare(&p, padded, a, b, bits);
        compared++;
      }
  note_context("%s against %s", a, b);
  EXPECT(compared >= 4 * (needs == CAUSAL ? 1 : 2)); /* as scores are */
}

Test(expression_oracles, a_head_of_every_key_is_exact) {
  expect_equal("tiled + sample:count=4", "tiled", ANY, true);
  expect_equal("topk:k=150 + lsh_tail:k=2,l=3", "tiled", ANY, true);
  expect_equal("streaming:window=150 + sample:count=4", "tiled", CAUSAL, false);
  expect_equal("longformer:window=400 + lsh_tail:k=2,l=3", "tiled", ANY, false);
  expect_equal("sample:count=150", "tiled", ANY, true);
  expect_equal("lsh_tail:k=0", "tiled", ANY, false);
  expect_equal("streaming:window=150 + linear", "streaming:window=150", CAUSAL, true);
  expect_equal("magicpig:window=150", "tiled", CAUSAL, false);
  expect_equal("vattention:window=150", "tiled", CAUSAL, false);
  expect_equal("hyper:block=256,sample=4", "tiled", ANY, true);
}

/* A pattern without keys. */
static int64_t no_runs(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)state, (void)head, (void)position, (void)runs;
  return 0;
}
static bool sees_nothing(const void *state, int64_t head, int64_t position, int64_t key) {
  (void)state, (void)head, (void)position, (void)key;
  return false;
}
static attn_status nothing_of(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b, (void)c;
  out->pattern = (attn_pattern){.row = no_runs, .max_runs = 1, .sees = sees_nothing};
  return ATTN_OK;
}
ATTN_VARIANT(nothing, TOY, .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_LSE, .describe = nothing_of, .cost = no_cost)

Test(expression_oracles, a_head_of_nothing_is_the_tail) {
  cr_assert_eq(attn_variant_register(&attn_variant_nothing), ATTN_OK, "%s", attn_last_error());
  expect_equal("nothing + sample:count=9", "sample:count=9", ANY, true);
  expect_equal("nothing + sample:guarantee=clt,eps=0.5,base=8", "sample:guarantee=clt,eps=0.5,base=8", ANY,
               true);
  expect_equal("nothing + lsh_tail:k=2,l=3", "lsh_tail:k=2,l=3", ANY, true);
  expect_equal("nothing + topk:k=5", "topk:k=5", ANY, true);
  expect_equal("nothing + tiled", "tiled", ANY, true);
  expect_equal("nothing + linear", "linear", ANY, false);
  expect_equal("nothing + performer:eps=0", "performer:eps=0", ANY, false);
  expect_equal("topk:k=5 + nothing", "topk:k=5", ANY, true);
  expect_equal("nothing + nothing", "nothing", ANY, true);
}

Test(expression_oracles, one_thing_twice_is_that_thing) {
  expect_equal("topk:k=5 + topk:k=5", "topk:k=5", ANY, true);
  expect_equal("lsh:rounds=2 + lsh:rounds=2", "lsh:rounds=2", ANY, true);
  expect_equal("streaming:sink=2,window=9 + streaming:sink=2,window=9", "streaming:sink=2,window=9", CAUSAL,
               false);
  expect_equal("longformer:window=8 + longformer:window=8", "longformer:window=8", ANY, false);
  expect_equal("tiled + tiled", "tiled", ANY, true);
  expect_equal("0.5*topk:k=5 + 0.5*topk:k=5", "topk:k=5", ANY, true);
  expect_equal("1*tiled + 0*topk:k=5", "tiled", ANY, true);
}

Test(expression_oracles, exact_attention_by_halves_is_exact) {
  expect_equal("dyadic(tiled,base=8)", "tiled", CAUSAL, false);
  expect_equal("dyadic(topk:k=150,base=16)", "tiled", CAUSAL, false);
  expect_equal("dyadic(tiled + sample,base=32)", "tiled", CAUSAL, false);
  expect_equal("dyadic(topk:k=5,base=1Ki)", "tiled", CAUSAL, true);
}

/* Adds to what was counted. */
static void add_cost(double to[3], double times, int64_t n, bool causal, const char *spec) {
  const attn_problem p = problem_of(n, n, causal, ATTN_F32, PLAIN);
  attn_cost cost = {0};
  note_context("%s", spec);
  EXPECT_STATUS(attn_estimate(&p, spec, NULL, NULL, &cost), ATTN_OK);
  to[0] += times * cost.mul_add, to[1] += times * cost.exp, to[2] += times * cost.bytes;
}

/* Those of all terms of a sum, all parts of halves, and all selections of a join, which read rows once. */
Test(expression_oracles, costs_are_those_of_what_is_computed) {
  static const char *const terms[] = {"tiled", "topk:k=5", "lsh:rounds=2"};
  for (int k = 0; k < 9; k++) {
    const char *a = terms[k / 3], *b = terms[k % 3];
    double sum[3] = {0}, halves[3] = {0}, join[3] = {0}, one[3] = {0}, other[3] = {0};
    add_cost(one, 1, 128, true, a), add_cost(other, 1, 128, true, b);
    add_cost(halves, 4, 32, true, "tiled"), add_cost(halves, 2, 32, false, a),
        add_cost(halves, 1, 64, false, a);
    add_cost(halves, -1, 128, true, text_of("dyadic(%s,base=32)", a));
    add_cost(sum, 1, 128, true, text_of("0.25*%s - 3*%s", a, b));
    add_cost(join, 1, 128, true, text_of("%s + %s", a, b));
    for (int i = 0; i < 3; i++) {
      const double all = k / 3 == 0 ? one[i] : k % 3 == 0 ? other[i] : one[i] + other[i];
      EXPECT(fabs(halves[i]) < 1e-3 && fabs(sum[i] - one[i] - other[i]) < 1e-3);
      EXPECT(fabs(join[i] - (i == 2 ? fmax(one[i], other[i]) : all)) < 1e-3);
    }
  }
}
