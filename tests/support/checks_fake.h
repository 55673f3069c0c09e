/* checks_fake.h - a variant whose algorithm and view the test decides: deliberately wrong ones, and the null
 * approximations as algorithms. */
#ifndef TESTS_SUPPORT_CHECKS_FAKE_H
#define TESTS_SUPPORT_CHECKS_FAKE_H

#include "tests/support/checks_case.h"
#include "tests/support/method.h"

enum { FAKE_CAPS_ALL = 0xff & ~ATTN_CAP_EXACT };

/* What the fake does; set before a plan is made. */
typedef struct fake_behaviour {
  /* o_i = gain * sum_j w_ij v_j / sum_j w_ij, w = weight(i, j, score), keys of weight 0 never touched. NULL:
   * zeros. */
  double (*weight)(int64_t i, int64_t j, double score);
  double gain;
  void (*execute)(const attn_call *); /* instead of the above, if not NULL */
  attn_view view;
} fake_behaviour;

static fake_behaviour fake;

/* Names that no variant of the library has: checks find them by the view alone. */
typedef struct fake_params {
  int64_t w, r;
} fake_params;

static const attn_param fake_table[] = {
    {"w", ATTN_INT, offsetof(fake_params, w), 0, 1 << 20, "0", NULL, "random vectors"},
    {"r", ATTN_INT, offsetof(fake_params, r), 0, 1e15, "0", NULL, "seeds them"},
    {.name = NULL},
};

static double fake_element(const attn_problem *p, const void *at, int64_t i) {
  return attn_get(at, i, p->dtype);
}

static void fake_row(const attn_call *c, int64_t line, int64_t i, double *sums) {
  const attn_problem *p = c->context->problem;
  int64_t group = p->heads / p->kv_heads, kv = line / p->heads * p->kv_heads + line % p->heads / group;
  int64_t keys = attn_call_keys(c, line / p->heads), limit = p->causal ? i + p->n_kv - p->n_q + 1 : p->n_kv;
  double total = 0;
  memset(sums, 0, (size_t)p->d_v * sizeof *sums);
  for (int64_t j = 0; j < limit && j < keys && fake.weight; j++) {
    if (fake.weight(i + p->n_kv - p->n_q, j, 0) == 0) continue;
    double score = 0;
    for (int64_t l = 0; l < p->d_qk; l++)
      score += fake_element(p, c->q, (line * p->n_q + i) * p->d_qk + l) *
               fake_element(p, c->k, (kv * p->n_kv + j) * p->d_qk + l);
    double w = fake.weight(i + p->n_kv - p->n_q, j, p->scale * score);
    total += w;
    for (int64_t l = 0; l < p->d_v; l++)
      sums[l] += w * fake_element(p, c->v, (kv * p->n_kv + j) * p->d_v + l);
  }
  for (int64_t l = 0; l < p->d_v; l++) sums[l] = total != 0 ? fake.gain * sums[l] / total : 0;
}

static attn_status fake_execute(const void *state, const attn_call *c) {
  (void)state;
  const attn_problem *p = c->context->problem;
  if (fake.execute) {
    fake.execute(c);
    return ATTN_OK;
  }
  double *sums = malloc((size_t)p->d_v * sizeof *sums);
  for (int64_t row = 0; row < p->batch * p->heads * p->n_q; row++) {
    fake_row(c, row / p->n_q, row % p->n_q, sums);
    for (int64_t l = 0; l < p->d_v; l++) attn_set(c->o, row * p->d_v + l, p->dtype, sums[l]);
  }
  free(sums);
  return ATTN_OK;
}

static attn_cost fake_cost(const attn_context *c) {
  (void)c;
  return (attn_cost){0};
}

static void fake_inspect(const void *state, const attn_context *c, attn_view *view) {
  (void)state;
  (void)c;
  *view = fake.view;
}

static DESCRIBE_METHOD(fake_describe, NO_ROUNDING, .execute = fake_execute, .inspect = fake_inspect);

static const attn_variant fake_variant = {.abi = ATTN_ABI,
                                          .size = sizeof(attn_variant),
                                          .name = "fake",
                                          .summary = "whatever a test wants",
                                          .cite = "-",
                                          .caps = FAKE_CAPS_ALL,
                                          .params = fake_table,
                                          .params_size = sizeof(fake_params),
                                          .describe = fake_describe,
                                          .cost = fake_cost};

/* A rounding descriptor that covers the fake's plain sums over up to 2^12 keys. */
static const attn_rounding fake_rounding = {.unit = 0x1p-24,
                                            .score = 64,
                                            .value = 1 << 12,
                                            .sum = 1 << 12,
                                            .exp_error = 0x1p-22,
                                            .kappa_s = 1,
                                            .kappa_d = 1};

static inline void fake_reset(double (*weight)(int64_t, int64_t, double)) {
  attn_variant_register(&fake_variant);
  fake = (fake_behaviour){
      .weight = weight,
      .gain = 1,
      .view = {.caps = FAKE_CAPS_ALL, .seed = "r", .budget = {.parameter = "w"}, .rounding = fake_rounding}};
}

static inline double weight_exact(int64_t i, int64_t j, double score) {
  (void)i;
  (void)j;
  return exp(score);
}

static inline double weight_equal(int64_t i, int64_t j, double score) {
  (void)i;
  (void)j;
  (void)score;
  return 1;
}

/* About one key in four, chosen by position. */
static inline double weight_random(int64_t i, int64_t j, double score) {
  attn_rng rng = rng_of(77, (uint64_t)i, (uint64_t)j);
  return j == 0 || attn_rng_below(&rng, 4) == 0 ? exp(score) : 0;
}

/* Four keys on each side, of 96 in all: of the weights, to a parameter. */
static int64_t used_half = 4;

static inline double weight_window(int64_t i, int64_t j, double score) {
  return llabs(i - j) <= used_half ? exp(score) : 0;
}

static inline int64_t window_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  (void)state, (void)head;
  const int64_t first = position > 4 ? position - 4 : 0, end = position + 5 < 96 ? position + 5 : 96;
  runs[0] = (attn_run){first, end - first, 1};
  return 1;
}

#endif
