/* recurrent.c - a state that is carried from key to key, against the recursion key by key in fp64: every
 * rule, chunks of any size, gates that the call gives, padding, heads that share keys, queries behind a
 * prompt, and decays that leave nothing. What is refused: recurrent_refused.c. */
#include "tests/support/core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 70, D = 6, D_V = 5, BATCH = 3, HEADS = 4 };
enum { VECTOR = 1, DELTA = 2, BETA = 4, GATED = 8, TURNED = 16 };

/* Gates that a call may be given, and of each rule those that it reads. */
static double decay[BATCH * HEADS * N * D], beta[BATCH * HEADS * N], erase[BATCH * HEADS * N * D],
    write[BATCH * HEADS * N * D_V], previous[BATCH * HEADS * N], angle[BATCH * HEADS * N * D / 2];

static const struct {
  const char *name;
  int of;
} rules[] = {{"ssd", BETA},
             {"gla", VECTOR},
             {"delta", BETA | DELTA},
             {"gated_delta", BETA | DELTA},
             {"kda", BETA | DELTA | VECTOR},
             {"gated_delta2", GATED | DELTA | VECTOR},
             {"mamba3", BETA | TURNED}};

/* What a recursion reads. */
typedef struct gates {
  int of;
  double (*of_head)(int64_t head); /* a of all keys; NULL: what the call is given */
  double (*length)(double square); /* what keys are divided by; NULL: their length under the delta rule */
  double (*query_length)(double square);
  int64_t document; /* keys of a document; 0: one document */
  bool before;      /* queries read the state before their key */
} gates;

static double log_decay(const gates *g, int64_t b, int64_t h, int64_t t, int64_t l) {
  const int64_t at = (b * HEADS + h) * N + t;
  return g->of_head ? log(g->of_head(h)) : decay[g->of & VECTOR ? at * D + l : at];
}

/* What the state, of sizes, meets of the key before, and R; sizes as large as any angle makes them. */
static void turn(const inputs *in, int64_t b, int64_t h, int64_t kv_head, int64_t t, double s[D][D_V],
                 double sizes[D][D_V]) {
  const int64_t key = (b * HEADS + h) * N + t;
  for (int64_t x = 0; x < D * D_V && t; x++) {
    const double enters = previous[key] * inputs_get(in, TENSOR_K, b, kv_head, t - 1, x / D_V) *
                          inputs_get(in, TENSOR_V, b, kv_head, t - 1, x % D_V);
    s[x / D_V][x % D_V] += enters;
    sizes[x / D_V][x % D_V] += fabs(enters);
  }
  for (int64_t l = 0; l < D / 2; l++)
    for (int64_t m = 0; m < D_V; m++) {
      const double one = s[l][m], two = s[l + D / 2][m], by = angle[key * D / 2 + l];
      s[l][m] = one * cos(by) - two * sin(by);
      s[l + D / 2][m] = one * sin(by) + two * cos(by);
      sizes[l][m] = sizes[l + D / 2][m] = fmax(sizes[l][m], sizes[l + D / 2][m]);
    }
}

static void read_state(const inputs *in, int64_t b, int64_t h, const gates *g, int64_t i, double unit,
                       double s[D][D_V], double sizes[D][D_V], const double *error, double *o, double *off) {
  const attn_problem *p = &in->problem;
  double length = 0;
  for (int64_t l = 0; l < D; l++) length += pow(inputs_get(in, TENSOR_Q, b, h, i, l), 2);
  const double by = p->scale / (g->query_length ? g->query_length(length) : 1);
  for (int64_t m = 0; m < D_V; m++) {
    double size = 0;
    o[i * D_V + m] = 0;
    for (int64_t l = 0; l < D; l++) {
      const double q = by * inputs_get(in, TENSOR_Q, b, h, i, l);
      o[i * D_V + m] += q * s[l][m];
      size += fabs(q) * sizes[l][m];
    }
    if (g->of & TURNED) size *= 4; /* of pairs, by their length */
    off[i * D_V + m] = unit * size + (g->of & DELTA ? fabs(by) * sqrt(length) * error[m] : 0);
  }
}

/* o [n_q, d_v] of a head, and by how much rounding may move it: what the sums of a chunk, of at most N keys,
 * round, and under the delta rule what is written, whose errors no later key makes larger. */
static void recur(const inputs *in, int64_t b, int64_t h, const gates *g, double *o, double *off) {
  const attn_problem *p = &in->problem;
  const int64_t kv_head = h / (p->heads / p->kv_heads), keys = inputs_keys(in, b);
  const double unit = (2 * D + (g->of & VECTOR ? 8 : 4) * N + 16 + 3 * (N + 1)) * attn_numbers[p->dtype].unit;
  double s[D][D_V] = {{0}}, sizes[D][D_V] = {{0}}, error[D_V] = {0}, k[D];
  for (int64_t t = 0; t < p->n_kv; t++) {
    const int64_t i = t - (p->n_kv - p->n_q);
    double norm = 0;
    for (int64_t x = 0; x < D * D_V && g->document && t % g->document == 0; x++)
      s[x / D_V][x % D_V] = sizes[x / D_V][x % D_V] = 0;
    if (g->before && i >= 0) read_state(in, b, h, g, i, unit, s, sizes, error, o, off);
    if (g->of & TURNED && t < keys) turn(in, b, h, kv_head, t, s, sizes);
    for (int64_t l = 0; l < D; l++) {
      k[l] = inputs_get(in, TENSOR_K, b, kv_head, t, l);
      norm += k[l] * k[l];
    }
    for (int64_t l = 0; l < D && g->of & DELTA; l++) k[l] /= g->length ? g->length(norm) : sqrt(norm);
    for (int64_t m = 0; m < D_V && t < keys; m++) {
      const int64_t key = (b * HEADS + h) * N + t;
      const double v = inputs_get(in, TENSOR_V, b, kv_head, t, m) * (g->of & BETA    ? beta[key]
                                                                     : g->of & GATED ? write[key * D_V + m]
                                                                                     : 1);
      double said = 0, size = fabs(v);
      for (int64_t l = 0; l < D; l++) {
        const double asks = k[l] * (g->of & GATED ? erase[key * D + l] : g->of & BETA ? beta[key] : 1);
        s[l][m] *= exp(log_decay(g, b, h, t, l));
        sizes[l][m] *= exp(log_decay(g, b, h, t, l));
        said += g->of & DELTA ? asks * s[l][m] : 0;
        size += g->of & DELTA ? fabs(asks) * sizes[l][m] : 0;
      }
      error[m] += unit * size * (g->of & DELTA ? 1 : sqrt(norm));
      for (int64_t l = 0; l < D; l++) {
        s[l][m] += k[l] * (v - said);
        sizes[l][m] += fabs(k[l]) * size;
      }
    }
    if (!g->before && i >= 0) read_state(in, b, h, g, i, unit, s, sizes, error, o, off);
  }
}

static void compare_output(const char *spec, const inputs *in, const void *o, const gates *g) {
  const attn_problem *p = &in->problem;
  double own[N * D_V], off[N * D_V];
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++) {
      recur(in, b, h, g, own, off);
      for (int64_t x = 0; x < p->n_q * D_V; x++) {
        const double got = output_get(p, o, b, h, x / D_V, x % D_V);
        if (!(fabs(got - own[x]) <= off[x]))
          note_failure("%s: batch %lld head %lld row %lld: %.9g, not %.9g", spec, (long long)b, (long long)h,
                       (long long)(x / D_V), got, own[x]);
      }
    }
}

static void compare(const char *spec, const inputs *in, double (*of_head)(int64_t head)) {
  attn_plan *plan = plan_kept(&in->problem, spec, NULL);
  void *o = kept_memory(run_plain(plan, in));
  compare_output(spec, in, o, &(gates){.of_head = of_head});
}

static double of_head(int64_t h) { return 1 - pow(2, (double)(-5 - h)); }
static double of_nothing(int64_t h) { return h < 0 ? 0 : exp(-40); }
static double of_all(int64_t h) { return h < 0 ? 0 : 1; }

Test(variants_recurrent, outputs_are_those_of_the_recursion) {
  for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++)
    for (int64_t n_q = 1; n_q <= N; n_q += n_q == 1 ? 32 : 37) {
      inputs in = inputs_shaped((case_shape){BATCH, HEADS, 2, n_q, N, D, D_V, true, true}, dtype, 7, 1);
      compare("recurrent:chunk=1", &in, of_head);
      compare("recurrent:chunk=16", &in, of_head);
      compare("recurrent", &in, of_head);
      compare("recurrent:decay=constant,gamma=1,chunk=32", &in, of_all);
      compare("recurrent:decay=constant,gamma=4.248354255291589e-18,chunk=32", &in, of_nothing);
    }
}

/* Gates of every size: most keep, some keep nothing, some e^-40. */
static void draw_gates(int of) {
  attn_rng r = rng_of(3, 5, (uint64_t)of);
  for (int64_t i = 0; i < BATCH * HEADS * N * D; i++) {
    const double u = attn_rng_uniform(&r);
    decay[i] = u < 0.02 ? -(double)INFINITY : u < 0.05 ? -40 : log(u) / 8;
  }
  for (int64_t i = 0; i < BATCH * HEADS * N; i++) beta[i] = 2 * attn_rng_uniform(&r);
  for (int64_t i = 0; i < BATCH * HEADS * N; i++) previous[i] = attn_rng_uniform(&r);
  for (int64_t i = 0; i < BATCH * HEADS * N * D / 2; i++) angle[i] = 20 * attn_rng_uniform(&r) - 10;
  for (int64_t i = 0; i < BATCH * HEADS * N * D; i++) erase[i] = attn_rng_uniform(&r);
  for (int64_t i = 0; i < BATCH * HEADS * N * D_V; i++) write[i] = 2 * attn_rng_uniform(&r);
}

static size_t output_bytes(const attn_problem *p) {
  return (size_t)(p->batch * p->heads * p->n_q * p->d_v) * attn_dtype_size(p->dtype);
}

static attn_status run_gated(const attn_plan *plan, const inputs *in, const attn_extra *extra, int64_t extras,
                             void *o) {
  attn_tensors x = tensors_of(in);
  x.o = o;
  x.extra = extra;
  x.extras = extras;
  return run_tensors(plan, x);
}

Test(variants_recurrent, gates_are_those_of_the_call) {
  static const int chunks[] = {0, 1, 5, 32, 200};
  for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++)
      for (int64_t n_q = 1; n_q <= N; n_q += n_q == 1 ? 32 : 37) {
        const attn_dtype dtype = c % 2 ? ATTN_F64 : ATTN_F32;
        const bool vector = rules[r].of & VECTOR, before = (r + c + (size_t)n_q) % 3 == 0;
        inputs in = inputs_shaped((case_shape){BATCH, HEADS, 2, n_q, N, D, D_V, true, true}, dtype, 7, 1);
        draw_gates((int)r);
        /* delta keeps all: decay=extra gives it the gates of gated_delta */
        const char *spec = text_of("recurrent:rule=%s,decay=extra,read=%s,chunk=%d", rules[r].name,
                                   before ? "before" : "after", chunks[c]);
        attn_plan *plan = plan_kept(&in.problem, spec, NULL);
        char *o = kept_memory(malloc(output_bytes(&in.problem)));
        const attn_extra extra[] = {{"beta", ATTN_F64, beta, BATCH, HEADS, N, 1},
                                    {"erase", ATTN_F64, erase, BATCH, HEADS, N, D},
                                    {"write", ATTN_F64, write, BATCH, HEADS, N, D_V},
                                    {"previous", ATTN_F64, previous, BATCH, HEADS, N, 1},
                                    {"angle", ATTN_F64, angle, BATCH, HEADS, N, D / 2},
                                    {"decay", ATTN_F64, decay, BATCH, HEADS, N, vector ? D : 1}};
        cr_assert_eq(run_gated(plan, &in, extra, 6, o), ATTN_OK, "%s", attn_last_error());
        compare_output(
            spec, &in, o,
            &(gates){.of = rules[r].of, .before = before, .query_length = rules[r].of & DELTA ? sqrt : NULL});
        inputs_free(&in);
      }
}

static double rsqrt_length(double square) { return sqrt(square + 0.25); }
static double max_length(double square) { return fmax(sqrt(square), 0.25); }
static double rms_length(double square) { return sqrt(square / D + 0.25); }

/* One after another: the ways in which projects divide keys by their length, and documents. */
Test(variants_recurrent, keys_and_documents_are_as_they_are_said) {
  static const struct {
    const char *norm;
    double (*length)(double square);
  } norms[] = {{"l2", NULL}, {"rsqrt", rsqrt_length}, {"max", max_length}, {"rms", rms_length}};
  const int64_t offsets[] = {0, 25, 50, N};
  for (size_t c = 0; c < sizeof norms / sizeof *norms; c++)
    for (int documents = 0; documents < 2; documents++)
      for (int vector = 0; vector < 2; vector++) {
        attn_problem p = shape_problem((case_shape){BATCH, HEADS, 2, N, N, D, D_V, true, true}, ATTN_F64);
        if (documents) p.mask = (attn_mask){.kind = ATTN_MASK_DOCUMENTS, .offsets = offsets, .count = 3};
        inputs in = inputs_make(&p, true, 7, 1);
        draw_gates(1);
        for (int64_t i = 0; i < BATCH * HEADS * N; i++) beta[i] /= 2 * D; /* rms: |k|^2 <= D */
        const char *spec = text_of(
            "recurrent:rule=%s,key_norm=%s,query_norm=%s,norm_eps=0.25,read=%s,chunk=16",
            vector ? "kda" : "gated_delta", norms[c].norm, norms[c].norm, vector ? "before" : "after");
        attn_plan *plan = plan_kept(&p, spec, NULL);
        char *o = kept_memory(malloc(output_bytes(&p)));
        const attn_extra extra[] = {{"beta", ATTN_F64, beta, BATCH, HEADS, N, 1},
                                    {"decay", ATTN_F64, decay, BATCH, HEADS, N, vector ? D : 1}};
        cr_assert_eq(run_gated(plan, &in, extra, 2, o), ATTN_OK, "%s", attn_last_error());
        compare_output(spec, &in, o,
                       &(gates){.of = BETA | DELTA | (vector ? VECTOR : 0),
                                .length = norms[c].length,
                                .query_length = norms[c].length ? norms[c].length : sqrt,
                                .before = vector,
                                .document = documents ? 25 : 0});
      }
}

/* Nor does what is no number: rows of other documents stay as they are. */
Test(variants_recurrent, documents_do_not_reach_others) {
  static const char *const specs[] = {"recurrent", "recurrent:rule=kda", "recurrent:rule=mamba3,chunk=16"};
  const int64_t offsets[] = {0, 25, N};
  double o[2][N * D_V];
  for (int i = 0; i < 6; i++) {
    inputs in = inputs_shaped((case_shape){1, 1, 1, N, N, D, D_V, true, false}, ATTN_F64, 7, 1);
    in.problem.mask = (attn_mask){.kind = ATTN_MASK_DOCUMENTS, .offsets = offsets, .count = 2};
    if (i % 2) ((double *)in.k)[3 * D] = ((double *)in.v)[4 * D_V] = (double)NAN;
    cr_assert(!run_tensors(plan_kept(&in.problem, specs[i / 2], NULL),
                           (attn_tensors){.q = in.q, .k = in.k, .v = in.v, .o = o[i % 2]}));
    if (i % 2) cr_assert_arr_eq(o[0] + 25 * D_V, o[1] + 25 * D_V, sizeof o[0] - sizeof(double[25 * D_V]));
  }
}

/* Behind its last chunk a state has numbers of its type alone, and where that is wide many that 16 bits do
 * not hold. */
Test(variants_recurrent, a_state_in_16_bits_is_what_they_hold) {
  static const struct {
    const char *name;
    attn_dtype type;
  } kept[] = {{"own", ATTN_F32}, {"bf16", ATTN_BF16}, {"f16", ATTN_F16}};
  inputs in = inputs_shaped((case_shape){1, 1, 1, N, N, D, D_V, true, false}, ATTN_F32, 7, 1);
  float state[D * D_V], o[N * D_V];
  for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
    uint16_t held;
    int64_t exact[2] = {0};
    const char *spec = text_of("recurrent:rule=delta,chunk=7,state=%s", kept[k].name);
    attn_plan *plan = plan_kept(&in.problem, spec, NULL);
    cr_assert_eq(
        run_tensors(plan, (attn_tensors){.q = in.q, .k = in.k, .v = in.v, .o = o, .state_after = state}),
        ATTN_OK);
    for (int64_t i = 0; i < D * D_V; i++)
      for (int type = 0; type < 2; type++) {
        double back;
        attn_convert(&state[i], ATTN_F32, 1, type ? ATTN_F16 : ATTN_BF16, &held);
        attn_convert(&held, type ? ATTN_F16 : ATTN_BF16, 1, ATTN_F64, &back);
        exact[type] += !(back < (double)state[i] || back > (double)state[i]);
      }
    for (int type = 0; type < 2; type++)
      if (kept[k].type == (type ? ATTN_F16 : ATTN_BF16))
        cr_expect_eq(exact[type], D * D_V, "%s", spec);
      else if (kept[k].type != ATTN_BF16) /* whose numbers f16 holds, too */
        cr_expect_gt(D * D_V / 2, exact[type], "%s", spec);
  }
}

Test(variants_recurrent, gates_that_are_wrong_are_refused) {
  inputs in = inputs_shaped((case_shape){BATCH, HEADS, 2, N, N, D, D_V, true, false}, ATTN_F32, 7, 1);
  char *o = kept_memory(malloc(output_bytes(&in.problem)));
  attn_plan *plan = plan_kept(&in.problem, "recurrent:rule=ssd", NULL);
  draw_gates(0);
  const attn_extra good = {"decay", ATTN_F64, decay, BATCH, HEADS, N, 1};
  attn_extra bad[8];
  for (size_t i = 0; i < 8; i++) bad[i] = good;
  bad[0].name = "decays";
  bad[1].at = NULL;
  bad[2].heads = 3;
  bad[3].n = N - 1;
  bad[4].columns = D; /* ssd keeps one number */
  bad[5].dtype = (attn_dtype)99;
  bad[6].batch = 2;
  bad[7].name = NULL;
  for (size_t i = 0; i < 8; i++) EXPECT_STATUS(run_gated(plan, &in, &bad[i], 1, o), ATTN_EINVAL);
  EXPECT_STATUS(run_gated(plan, &in, NULL, 1, o), ATTN_EINVAL);
  cr_expect_eq(run_gated(plan, &in, &good, 1, o), ATTN_OK);
  decay[N + 3] = 0.25;
  EXPECT_STATUS(run_gated(plan, &in, &good, 1, o), ATTN_EINVAL);
  cr_expect(strstr(attn_last_error(), "decay[0, 1, 3, 0] = 0.25"), "%s", attn_last_error());
  decay[N + 3] = (double)NAN;
  EXPECT_STATUS(run_gated(plan, &in, &good, 1, o), ATTN_EINVAL);
}

/* Parts of a sequence, from the state that the part before it left, in place; a part of one key is a step. */
Test(variants_recurrent, parts_hand_their_state_on) {
  static const int64_t ends[] = {1, 2, 19, 20, 53, 69, N};
  for (int c = 0; c < 4; c++) {
    const attn_dtype dtype = c % 2 ? ATTN_F64 : ATTN_F32;
    const char *spec = c < 2 ? "recurrent:chunk=16" : "recurrent:chunk=16,read=before";
    const size_t size = attn_dtype_size(dtype);
    const attn_problem p = shape_problem((case_shape){1, 4, 2, N, N, D, D_V, true, false}, dtype);
    inputs in = inputs_make(&p, false, 7, 1);
    char *whole = kept_memory(malloc((size_t)(p.heads * N * D_V) * size)),
         *state = kept_memory(calloc((size_t)(p.heads * D * D_V), size));
    double own[N * D_V], off[N * D_V];
    cr_assert(whole && state);
    for (int64_t e = 0, from = 0; e < (int64_t)(sizeof ends / sizeof *ends); from = ends[e++]) {
      attn_problem part = attn_problem_make(1, p.heads, ends[e] - from, D);
      part.kv_heads = p.kv_heads;
      part.d_v = D_V;
      part.causal = true;
      part.dtype = dtype;
      part.q = (attn_stride){p.heads * N * D, N * D, D, 0};
      part.k = (attn_stride){p.kv_heads * N * D, N * D, D, 0};
      part.v = (attn_stride){p.kv_heads * N * D_V, N * D_V, D_V, 0};
      part.o = (attn_stride){p.heads * N * D_V, N * D_V, D_V, 0};
      attn_plan *plan = plan_kept(&part, spec, NULL);
      cr_expect_eq(attn_plan_state_size(plan), (size_t)(p.heads * D * D_V) * size);
      const attn_tensors x = {.q = in.q + (size_t)(from * D) * size,
                              .k = in.k + (size_t)(from * D) * size,
                              .v = in.v + (size_t)(from * D_V) * size,
                              .o = whole + (size_t)(from * D_V) * size,
                              .state = from ? state : NULL,
                              .state_after = state};
      cr_assert_eq(run_tensors(plan, x), ATTN_OK, "%s", attn_last_error());
    }
    for (int64_t h = 0; h < p.heads; h++) {
      recur(&in, 0, h, &(gates){.of_head = of_head, .before = c > 1}, own, off);
      for (int64_t i = 0; i < N * D_V; i++) {
        const double got = attn_get(whole, h * N * D_V + i, dtype);
        if (!(fabs(got - own[i]) <= off[i]))
          note_failure("%s: head %d row %d: %.9g, not %.9g", spec, (int)h, (int)(i / D_V), got, own[i]);
      }
    }
  }
}

/* A decay of 0 forgets: what is left is the query's own key. */
Test(variants_recurrent, what_is_forgotten_leaves_numbers) {
  inputs in = inputs_shaped((case_shape){1, 1, 1, N, N, D, D_V, true, false}, ATTN_F32, 7, 1);
  compare("recurrent:decay=constant,gamma=0,chunk=8", &in, of_nothing);
}
