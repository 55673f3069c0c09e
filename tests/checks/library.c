/* library.c - attn_check: which calls it judges, that wrong outputs are found in every layout and type, and
 * what it refuses. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn_arithmetic.h"
#include "experiments/verification/attn_check.h"
#include "tests/support/basics/kept.h"

enum { BATCH = 2, HEADS = 4, KV_HEADS = 2, N_Q = 66, N = 70, D = 16, D_V = 12 };
enum { COUNT = BATCH * HEADS * N * D, ROOM = 8 * COUNT };

/* Tensors of any layout and type, and a plan for them. */
typedef struct call {
  attn_plan *plan;
  double q[ROOM], k[ROOM], v[ROOM], o[ROOM]; /* elements of the problem's type lie in them */
  int64_t kv_len[BATCH];
  attn_tensors t;
} call;

static void draw(void *at, int64_t count, attn_dtype type, uint64_t seed) {
  attn_rng rng;
  attn_rng_init(&rng, seed, 1, 0);
  for (int64_t i = 0; i < count; i++) attn_set(at, i, type, attn_rng_normal(&rng));
}

static attn_status call_run(call *c) {
  attn_tensors t = c->t;
  t.work = kept_memory(malloc(attn_plan_work_size(c->plan) + 1));
  return attn_plan_run(c->plan, &t);
}

static attn_problem shape(void) {
  attn_problem p = attn_problem_make(BATCH, HEADS, N, D);
  p.kv_heads = KV_HEADS;
  p.n_q = N_Q;
  p.d_v = D_V;
  return p;
}

/* strided: all tensors, or one after the other by some of their strides. */
enum { DENSE, ALL, ENTRIES_OF_Q, HEADS_OF_K, ROWS_OF_V, HEADS_OF_O, STRIDED };

static void release_call(void *of) {
  call *c = of;
  attn_plan_destroy(c->plan);
  free(c);
}

/* Kept. */
static call *call_make(const char *spec, attn_dtype dtype, int strided, bool padded) {
  call *c = keep_object(calloc(1, sizeof *c), release_call);
  attn_problem p = shape();
  p.dtype = dtype;
  const attn_stride wide = {.batch = N * HEADS * 20, .head = 20, .row = HEADS * 20};
  if (strided == ALL) p.q = p.k = p.v = p.o = wide;
  if (strided == ENTRIES_OF_Q) p.q = (attn_stride){HEADS * N_Q * D + 64, N_Q * D, D, .stored = 0};
  if (strided == HEADS_OF_K) p.k = (attn_stride){KV_HEADS * N * D, 0, D, .stored = 0};
  if (strided == ROWS_OF_V) p.v = wide;
  if (strided == HEADS_OF_O) p.o = (attn_stride){HEADS * N_Q * D_V, D_V, HEADS * D_V, .stored = 0};
  cr_assert_eq(attn_plan_create(&c->plan, &p, spec, NULL), ATTN_OK, "%s", attn_last_error());
  draw(c->q, 2 * COUNT, dtype, 1);
  draw(c->k, 2 * COUNT, dtype, 2);
  draw(c->v, 2 * COUNT, dtype, 3);
  c->kv_len[0] = N;
  c->kv_len[1] = 33;
  c->t = (attn_tensors){.q = c->q, .k = c->k, .v = c->v, .o = c->o, .kv_len = padded ? c->kv_len : NULL};
  cr_assert_eq(call_run(c), ATTN_OK, "%s", attn_last_error());
  return c;
}

static void release_checked(void *found) { attn_checked_free(found); }

/* Kept. */
static attn_checked *judged(const call *c, const attn_check_options *options) {
  attn_checked *found = NULL;
  cr_assert_eq(attn_check(c->plan, &c->t, options, &found), ATTN_OK, "%s", attn_last_error());
  cr_assert_not_null(found);
  return keep_object(found, release_checked);
}

static const attn_bound *bound_of(const attn_checked *c, const char *name) {
  for (size_t i = 0; i < c->count; i++)
    if (strcmp(c->bounds[i].name, name) == 0) return &c->bounds[i];
  return NULL;
}

/* The element of the last row of the last head, whose layout is the least like that of the first. */
static int64_t last_element(const call *c) {
  const attn_stride s = attn_plan_problem(c->plan)->o;
  return (BATCH - 1) * s.batch + (HEADS - 1) * s.head + (N_Q - 1) * s.row + 3;
}

Test(checks_library, right_outputs_pass_and_a_wrong_element_is_found) {
  for (int strided = 0; strided < STRIDED; strided++)
    for (int padded = 0; padded < 2; padded++) {
      const attn_dtype type = (strided + padded) % 2 ? ATTN_F64 : ATTN_F32;
      call *c = call_make("tiled", type, strided, padded);
      attn_checked *found = judged(c, NULL);
      const attn_bound *fp2 = bound_of(found, "FP-2");
      cr_expect_str_eq(found->verdict, "pass");
      cr_expect(found->error < 1e-5 && found->error_low == found->error_high);
      cr_expect_eq(found->rows, BATCH * HEADS * N_Q);
      cr_expect(!strcmp(fp2->verdict, "pass") && !strcmp(fp2->kind, "hard") && isnan(fp2->p_value));
      cr_expect(fp2->measured > 0 && fp2->measured <= fp2->value && fp2->value < 1e-3);
      cr_expect(strstr(fp2->statement, "online") && strstr(fp2->formula, "<=") && *fp2->source);
      const int64_t at = last_element(c);
      attn_set(c->o, at, type, attn_get(c->o, at, type) + 0.01);
      found = judged(c, NULL);
      cr_expect_str_eq(found->verdict, "violated", "%d %d %d", strided, padded, (int)type);
      fp2 = bound_of(found, "FP-2");
      cr_expect(fabs(fp2->measured - 0.01) < 1e-5 && fp2->value < 1e-3);
      cr_expect(found->error > 1e-5);
    }
}

Test(checks_library, sixteen_bits_are_those_of_fp32_rounded_once) {
  for (int type = ATTN_F16; type <= ATTN_BF16; type++)
    for (int strided = 0; strided < 2; strided++) {
      call *c = call_make("longformer:window=16", (attn_dtype)type, strided, false);
      attn_checked *found = judged(c, NULL);
      cr_expect_str_eq(found->verdict, "pass");
      cr_expect(found->error > 0.01, "a window leaves keys out: %g", found->error);
      const int64_t at = last_element(c);
      attn_set(c->o, at, (attn_dtype)type, attn_get(c->o, at, (attn_dtype)type) + 0.25);
      cr_expect_eq(attn_check(c->plan, &c->t, NULL, &found), ATTN_EFOREIGN);
      cr_expect_null(found);
    }
}

static void expect_judged(call *c, const attn_extra *extra, int64_t extras) {
  c->t.extra = extra;
  c->t.extras = extras;
  cr_assert_eq(call_run(c), ATTN_OK, "%s", attn_last_error());
  attn_checked *found = judged(c, NULL);
  cr_expect_str_eq(bound_of(found, "SUM-1")->verdict, "pass", "%s of %d columns: %s", extra->name,
                   (int)extra->columns, bound_of(found, "SUM-1")->message);
}

/* Of an entry or all, a head or all, an element of a row or all; and of what terms read. */
Test(checks_library, sums_read_the_tensors_of_a_call) {
  static double gates[2 * COUNT], numbers[BATCH * N * N];
  draw(gates, 2 * COUNT, ATTN_F64, 5);
  draw(numbers, BATCH * N * N, ATTN_F64, 6);
  call *c = call_make("0.5*tiled - gate*longformer:window=16 + gate*topk:k=3", ATTN_F32, true, true);
  for (int s = 0; s < 8; s++) {
    const attn_extra gate = {"gate", ATTN_F64,           gates, s & 1 ? BATCH : 1, s & 2 ? HEADS : 1,
                             N_Q,    s & 4 ? 2 * D_V : 2};
    expect_judged(c, &gate, 1);
  }
  attn_extra bad[] = {{"gate", ATTN_F64, gates, 1, 1, N_Q, 1},
                      {"gate", ATTN_F64, gates, 1, 1, N_Q, 3},
                      {"gate", ATTN_F64, gates, 1, 1, N_Q, 2}};
  for (size_t x = 0; x < sizeof bad / sizeof *bad; x++) {
    c->t.extra = &bad[x];
    if (bad[x].columns == 2) gates[7] = (double)INFINITY;
    cr_expect_eq(call_run(c), ATTN_EINVAL, "tensor %zu", x);
  }
  c = call_make("0.5*topk:k=3,by=index,index_heads=2,index_width=3 + gate*tiled", ATTN_F32, false, false);
  const attn_extra index[] = {{"index_q", ATTN_F64, numbers, 1, 2, N_Q, 3},
                              {"index_k", ATTN_F64, numbers + N, 1, 1, N, 3}};
  expect_judged(c, index, 2);
}

/* A window is no exact attention, a sample of rows has an interval, and properties come with the others. */
Test(checks_library, options_choose_rows_and_properties) {
  call *c = call_make("longformer:window=16", ATTN_F32, false, false);
  const attn_check_options sampled = {.seed = 3, .rows = 12}, properties = {.properties = true};
  const attn_checked *found = judged(c, &sampled), *again = judged(c, &sampled);
  cr_expect_eq(found->rows, 12 * BATCH * HEADS);
  cr_expect(found->error_low < found->error && found->error < found->error_high);
  cr_expect_eq(found->error, again->error);
  cr_expect_null(bound_of(found, "PROP-LEN"));
  found = judged(c, &properties);
  cr_expect_str_eq(bound_of(found, "PROP-LEN")->verdict, "pass");
  cr_expect_str_eq(bound_of(found, "PROP-LEN")->kind, "property");
}

Test(checks_library, calls_that_cannot_be_judged_are_refused) {
  call *c = call_make("tiled", ATTN_F32, false, true);
  attn_checked *found = NULL;
  const int64_t position[BATCH] = {0, 0};
  const attn_check_options negative = {.rows = -1};
  attn_tensors t = c->t;
  cr_expect_eq(attn_check(NULL, &t, NULL, &found), ATTN_EINVAL);
  cr_expect_eq(attn_check(c->plan, NULL, NULL, &found), ATTN_EINVAL);
  cr_expect_eq(attn_check(c->plan, &t, NULL, NULL), ATTN_EINVAL);
  cr_expect_eq(attn_check(c->plan, &t, &negative, &found), ATTN_EINVAL);
  for (int i = 0; i < 4; i++) {
    const void *given[] = {t.q, t.k, t.v, t.o};
    given[i] = NULL;
    const attn_tensors one = {.q = given[0], .k = given[1], .v = given[2], .o = (void *)given[3]};
    cr_expect_eq(attn_check(c->plan, &one, NULL, &found), ATTN_EINVAL);
    cr_expect_eq(attn_last_error()[12], "qkvo"[i], "%s", attn_last_error());
  }
  t.q_position = position;
  cr_expect_eq(attn_check(c->plan, &t, NULL, &found), ATTN_EUNSUPPORTED);
  t = c->t;
  t.k_position.at = position;
  cr_expect_eq(attn_check(c->plan, &t, NULL, &found), ATTN_EUNSUPPORTED);
  t = c->t;
  for (int wrong = 0; wrong < 2; wrong++) {
    c->kv_len[1] = wrong ? -1 : N + 1;
    cr_expect_eq(attn_check(c->plan, &t, NULL, &found), ATTN_EINVAL);
    cr_expect(strstr(attn_last_error(), wrong ? "kv_len[1] = -1, expected 0 ... 70" : "kv_len[1] = 71,"));
  }
  cr_expect_null(found);
  attn_checked_free(NULL);
}

/* Keys and values that are codes are judged as the numbers that these stand for. */
Test(checks_library, judges_calls_whose_keys_and_values_are_codes) {
  call *c = keep_object(calloc(1, sizeof *c), release_call);
  attn_problem p = attn_problem_make(BATCH, HEADS, N, D);
  double wide[D];
  p.k.stored = ATTN_Q8_0;
  p.v.stored = ATTN_INT4;
  cr_assert_eq(attn_plan_create(&c->plan, &p, "tiled", NULL), ATTN_OK, "%s", attn_last_error());
  draw(c->q, COUNT, ATTN_F32, 1);
  for (int64_t r = 0; r < BATCH * HEADS * N; r++)
    for (int side = 0; side < 2; side++) {
      const attn_dtype type = side ? p.v.stored : p.k.stored;
      draw(wide, D, ATTN_F64, (uint64_t)(2 * r + side));
      attn_convert(wide, ATTN_F64, D, type,
                   (char *)(side ? c->v : c->k) + (size_t)r * attn_row_bytes(D, type));
    }
  c->t = (attn_tensors){.q = c->q, .k = c->k, .v = c->v, .o = c->o};
  cr_assert_eq(call_run(c), ATTN_OK, "%s", attn_last_error());
  for (int wrong = 0; wrong < 2; wrong++) {
    if (wrong) attn_set(c->o, 777, ATTN_F32, attn_get(c->o, 777, ATTN_F32) + 0.01);
    attn_checked *found = judged(c, NULL);
    const attn_bound *fp2 = bound_of(found, "FP-2");
    cr_assert_not_null(fp2);
    cr_expect_str_eq(fp2->verdict, wrong ? "violated" : "pass");
  }
}

/* A number that f16 does not hold makes the output infinite: no bound speaks of it, and none is violated. */
Test(checks_library, judges_no_bound_of_numbers_that_a_store_cannot_hold) {
  static const char *const specs[] = {"store:k=f32,v=f16",      "store:k=q8_0,v=f32",
                                      "store:k=int4,v=int4",    "turbo:of=k",
                                      "topk:k=4 | turbo",       "qjl",
                                      "kivi:group=1,residual=2"};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    call *c = call_make(specs[i], ATTN_F32, false, false);
    attn_set(i == 0 ? c->v : c->k, 40, ATTN_F32, 1e7);
    cr_assert_eq(call_run(c), ATTN_OK, "%s", attn_last_error());
    attn_checked *found = judged(c, NULL);
    for (size_t b = 0; b < found->count; b++)
      cr_expect_str_neq(found->bounds[b].verdict, "violated", "%s: %s", specs[i], found->bounds[b].name);
    const attn_bound *output = bound_of(found, "QNT-0");
    cr_assert_not_null(output);
    cr_expect_str_neq(output->verdict, "pass", "%s", specs[i]);
  }
}
