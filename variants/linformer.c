/* linformer - keys and values projected along the sequence to k rows: o = softmax(scale Q (E K)^T) F V.
 *
 *   gaussian    entries N(0, 1/k)
 *   rademacher  entries +-1/sqrt(k)
 *   srht        sqrt(N/k) S H D, H the orthonormal Walsh-Hadamard matrix of order N, the power of two from n_kv up
 *   dct         sqrt(n/k) S C D, C the orthonormal DCT-II;  S: k rows without replacement, D: random signs
 *   pool        means over k nearly equal blocks
 *   file        a matrix [k, n_kv] read from projection_file
 *
 * share=kv: F = E, which keeps the sketch E^T F unbiased; none: drawn apart. Padding never enters: the columns of absent
 * keys are left out (pool divides the keys that exist).
 *
 * Wang et al. 2020 (arXiv:2006.04768). Cost k n (d_qk + d_v) for each of projection and attention. Bounds: LIN-1, LIN-3,
 * LIN-5 (pool). Deviations: fixed draws in place of learned projections; causal is refused. */
#include "attn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum { GAUSSIAN, RADEMACHER, SRHT, DCT, POOL, FILE_MATRIX } kind;
typedef enum { KV, NONE } share;
typedef enum { YES, NO } answer;

typedef struct params {
  int64_t k, seed;
  int projection, share, share_heads;
  const char *projection_file;
} params;

static const char *const kinds[] = {"gaussian", "rademacher", "srht", "dct", "pool", "file", NULL};
static const char *const shares[] = {"kv", "none", NULL};
static const char *const answers[] = {"yes", "no", NULL};

static const attn_param table[] = {
    {"k", ATTN_INT, offsetof(params, k), 1, 1 << 24, "256", NULL, "projected length"},
    {"projection", ATTN_CHOICE, offsetof(params, projection), 0, 5, "gaussian", kinds,
     "how E and F are made"},
    {"projection_file", ATTN_TEXT, offsetof(params, projection_file), 0, 0, "", NULL,
     "npy [k, n_kv] for projection=file"},
    {"share", ATTN_CHOICE, offsetof(params, share), 0, 1, "kv", shares, "kv: F = E; none: separate draws"},
    {"share_heads", ATTN_CHOICE, offsetof(params, share_heads), 0, 1, "yes", answers,
     "one draw for all heads"},
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "of the draws"},
    {.name = NULL},
};

typedef struct state {
  attn_projection map;
  attn_compression *engine;
  params p;
  int64_t n, order; /* n_kv; rows of the transform */
  void *matrix;     /* gaussian, rademacher, file: [draws][n][k], transposed */
  double *signs;    /* srht, dct: [draws][n] */
  int64_t *sampled; /* srht, dct: [draws][k], in the order drawn: slots of E and F must not pair up */
  attn_dct *dct[2]; /* of d_qk and d_v columns */
} state;

static int64_t order_of(const params *p, int64_t n) {
  int64_t order = 1;
  if (p->projection != SRHT) return n;
  while (order < n) order *= 2;
  return order;
}

static attn_status applicable(const attn_context *c) {
  const params *p = c->params;
  if (c->problem->causal)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant linformer: causal attention is impossible, a projected key mixes all "
                     "positions and so the future");
  if (p->k > c->problem->n_kv)
    return attn_fail(ATTN_EINVAL, "variant linformer: k=%lld is above n_kv = %lld", (long long)p->k,
                     (long long)c->problem->n_kv);
  if ((p->projection == FILE_MATRIX) != (*p->projection_file != 0))
    return attn_fail(ATTN_EINVAL, "variant linformer: projection=file and projection_file go together");
  return ATTN_OK;
}

static int64_t draw_index(const state *s, int64_t head, attn_side side) {
  int64_t sides = s->p.share == KV ? 1 : 2;
  return (s->p.share_heads == YES ? 0 : head) * sides + (sides == 2 && side == ATTN_VALUE);
}

/* -- drawing -- */

enum { PURPOSE_MATRIX = 0x11f0, PURPOSE_SIGNS, PURPOSE_ROWS };

/* Column j has its own stream: a shorter sequence has the same leading columns. Rounded to fp32 in either
 * dtype. */
static void draw_matrix(const state *s, int64_t draw, attn_dtype t) {
  double scale = 1 / sqrt((double)s->p.k);
  for (int64_t j = 0; j < s->n; j++) {
    attn_rng rng;
    attn_rng_init(&rng, (uint64_t)s->p.seed, PURPOSE_MATRIX + ((uint64_t)draw << 32), (uint64_t)j);
    for (int64_t i = 0; i < s->p.k; i++) {
      double x = s->p.projection == GAUSSIAN ? attn_rng_normal(&rng) : attn_rng_bits(&rng) >> 63 ? 1 : -1;
      attn_set(s->matrix, (draw * s->n + j) * s->p.k + i, t, (double)(float)(x * scale));
    }
  }
}

/* Signs, and k of the transform's rows by a partial shuffle. scratch: order integers. */
static void draw_transform(const state *s, int64_t draw, int64_t *scratch) {
  attn_rng rng;
  attn_rng_init(&rng, (uint64_t)s->p.seed, PURPOSE_SIGNS, (uint64_t)draw);
  for (int64_t j = 0; j < s->n; j++) s->signs[draw * s->n + j] = attn_rng_bits(&rng) >> 63 ? 1 : -1;
  attn_rng_init(&rng, (uint64_t)s->p.seed, PURPOSE_ROWS, (uint64_t)draw);
  for (int64_t i = 0; i < s->order; i++) scratch[i] = i;
  int64_t *rows = s->sampled + draw * s->p.k;
  for (int64_t i = 0; i < s->p.k; i++) {
    int64_t pick = i + attn_rng_below(&rng, s->order - i);
    rows[i] = scratch[pick];
    scratch[pick] = scratch[i];
  }
}

static attn_status read_matrix(state *s, attn_dtype t) {
  int64_t rows, columns;
  double *values = NULL;
  attn_status status = attn_matrix_read(s->p.projection_file, &rows, &columns, &values);
  if (status) return status;
  if (rows != s->p.k || columns != s->n)
    status = attn_fail(
        ATTN_EINVAL, "variant linformer: %s is [%lld, %lld], expected [k, n_kv] = [%lld, %lld]",
        s->p.projection_file, (long long)rows, (long long)columns, (long long)s->p.k, (long long)s->n);
  for (int64_t i = 0; !status && i < rows; i++)
    for (int64_t j = 0; j < columns; j++) attn_set(s->matrix, j * rows + i, t, values[i * columns + j]);
  free(values);
  return status;
}

/* -- projecting -- */

static void by_matrix(const state *s, const attn_context *c, int64_t draw, attn_matrix x, int64_t rows,
                      int64_t d, void *y, void *scratch) {
  void *e = attn_at(s->matrix, draw * s->n * s->p.k, c->problem->dtype);
  attn_gemm(c->kernels, s->p.k, d, rows, (attn_matrix){e, 1, s->p.k}, x, false, y, d, scratch);
}

static void by_transform(const state *s, const attn_context *c, int64_t draw, attn_side side, attn_matrix x,
                         int64_t rows, int64_t d, void *y, void *buffer) {
  attn_dtype t = c->problem->dtype;
  const double *sign = s->signs + draw * s->n;
  for (int64_t j = 0; j < rows; j++)
    for (int64_t l = 0; l < d; l++)
      attn_set(buffer, j * d + l, t, sign[j] * attn_get(x.at, j * x.row + l, t));
  memset(attn_at(buffer, rows * d, t), 0, (size_t)((s->order - rows) * d) * attn_dtype_size(t));
  const attn_dct *dct = s->dct[side == ATTN_VALUE];
  if (s->p.projection == DCT)
    attn_dct_execute(dct, buffer);
  else
    attn_wht(s->order, d, buffer, t);
  for (int64_t i = 0; i < s->p.k; i++) {
    int64_t row = s->sampled[draw * s->p.k + i];
    double scale = s->p.projection == DCT ? attn_dct_scale(dct, row) * sqrt((double)s->n / (double)s->p.k)
                                          : 1 / sqrt((double)s->p.k);
    for (int64_t l = 0; l < d; l++) attn_set(y, i * d + l, t, scale * attn_get(buffer, row * d + l, t));
  }
}

static int64_t by_pool(const state *s, const attn_context *c, attn_matrix x, int64_t rows, int64_t d, void *y,
                       char *scratch) {
  attn_dtype t = c->problem->dtype;
  int64_t slots = rows < s->p.k ? rows : s->p.k;
  for (int64_t i = 0; i < slots; i++) {
    int64_t first = i * rows / slots, count = (i + 1) * rows / slots - first;
    /* One weight, repeated by zero strides. */
    attn_set(scratch, 0, t, 1 / (double)count);
    attn_gemm(c->kernels, 1, d, count, (attn_matrix){scratch, 0, 0},
              (attn_matrix){attn_at(x.at, first * x.row, t), x.row, 1}, false, attn_at(y, i * d, t), d,
              scratch + 64);
  }
  return slots;
}

static int64_t project(const void *opaque, const attn_context *c, int64_t head, attn_side side, const void *x,
                       int64_t stride, int64_t rows, int64_t d, void *y, void *scratch) {
  const state *s = opaque;
  attn_matrix in = {x, stride, 1};
  int64_t draw = draw_index(s, head, side);
  switch ((kind)s->p.projection) {
  case GAUSSIAN:
  case RADEMACHER:
  case FILE_MATRIX:
    by_matrix(s, c, s->p.projection == FILE_MATRIX ? 0 : draw, in, rows, d, y, scratch);
    break;
  case SRHT:
  case DCT:
    by_transform(s, c, draw, side, in, rows, d, y, scratch);
    break;
  case POOL:
    return by_pool(s, c, in, rows, d, y, scratch);
  }
  return s->p.k;
}

static size_t transform_bytes(const params *p, const attn_context *c, int64_t d) {
  size_t elements = attn_size_times((size_t)order_of(p, c->problem->n_kv), (size_t)d);
  return attn_size_times(elements, attn_dtype_size(c->problem->dtype));
}

static size_t project_scratch(const void *opaque, const attn_context *c, int64_t d) {
  const params *p = c->params;
  (void)opaque;
  if (p->projection == SRHT || p->projection == DCT) return transform_bytes(p, c, d);
  return 64 + attn_gemm_scratch(c->kernels);
}

/* -- the variant -- */

static attn_projection describe(const state *s, const params *p) {
  return (attn_projection){.state = s, .slots = p->k, .project = project, .scratch = project_scratch};
}

static size_t work_size(const attn_context *c) {
  attn_projection shape = describe(NULL, c->params);
  return attn_compression_work_size(c, &shape);
}

static attn_cost cost(const attn_context *c) {
  const params *p = c->params;
  double n = (double)c->problem->n_kv, order = (double)order_of(p, c->problem->n_kv);
  double dense = (double)p->k * n,
         fast = order * log2(order) / 2; /* an addition counts as half a multiply-add */
  bool transform = p->projection == SRHT || p->projection == DCT;
  return attn_compression_cost(c, p->k, p->projection == POOL ? n : transform ? fast : dense);
}

static void release(void *opaque) {
  state *s = opaque;
  attn_dct_destroy(s->dct[0]);
  attn_dct_destroy(s->dct[1]);
}

static attn_status make_draws(attn_builder *b, state *s) {
  const attn_problem *x = attn_builder_context(b)->problem;
  bool transform = s->p.projection == SRHT || s->p.projection == DCT, file = s->p.projection == FILE_MATRIX;
  int64_t draws = (s->p.share_heads == YES ? 1 : x->kv_heads) * (s->p.share == KV ? 1 : 2);
  if (s->p.projection == POOL) return ATTN_OK;
  if (!transform) {
    size_t ignored;
    int64_t factors[] = {draws, s->n, s->p.k, 8};
    attn_status status = attn_size_product("variant linformer: the projections", factors, 4, &ignored);
    if (status) return status;
    s->matrix = attn_builder_alloc(b, (file ? 1 : draws) * s->n * s->p.k, attn_dtype_size(x->dtype));
    if (!s->matrix) return ATTN_ENOMEM;
    if (file) return read_matrix(s, x->dtype);
    for (int64_t i = 0; i < draws; i++) draw_matrix(s, i, x->dtype);
    return ATTN_OK;
  }
  s->signs = attn_builder_alloc(b, draws * s->n, sizeof *s->signs);
  s->sampled = attn_builder_alloc(b, draws * s->p.k, sizeof *s->sampled);
  int64_t *scratch = attn_builder_alloc(b, s->order, sizeof *scratch);
  if (!s->signs || !s->sampled || !scratch) return ATTN_ENOMEM;
  for (int64_t i = 0; i < draws; i++) draw_transform(s, i, scratch);
  if (s->p.projection != DCT) return ATTN_OK;
  attn_status status = attn_dct_create(&s->dct[0], s->n, x->d_qk, x->dtype);
  return status ? status : attn_dct_create(&s->dct[1], s->n, x->d_v, x->dtype);
}

static attn_status plan(attn_builder *b, void **out) {
  const attn_context *c = attn_builder_context(b);
  state *s = attn_builder_alloc(b, 1, sizeof *s);
  if (!s) return ATTN_ENOMEM;
  *s = (state){.p = *(const params *)c->params, .n = c->problem->n_kv};
  s->order = order_of(&s->p, s->n);
  s->map = describe(s, &s->p);
  attn_status status = make_draws(b, s);
  if (!status) status = attn_compression_plan(b, &s->map, &s->engine);
  if (status)
    release(s);
  else
    *out = s;
  return status;
}

static attn_status execute(const void *s, const attn_call *call) {
  return attn_compression_execute(((const state *)s)->engine, call);
}

static void inspect(const void *opaque, const attn_context *c, attn_view *view) {
  const state *s = opaque;
  (void)c;
  view->projection = &s->map;
  if (s->p.projection == POOL) view->caps |= ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX | ATTN_CAP_SHIFT;
  if (s->p.projection == POOL || s->p.projection == FILE_MATRIX) view->caps &= ~(uint32_t)ATTN_CAP_RANDOM;
}

static const char *const checks[] = {"LIN-1",     "LIN-3",     "LIN-5",      "FP-6",
                                     "PROP-ONES", "PROP-HULL", "PROP-SHIFT", NULL};

ATTN_VARIANT(linformer) = {
    .abi = ATTN_ABI,
    .size = sizeof(attn_variant),
    .name = "linformer",
    .summary = "keys and values projected to k rows",
    .cite = "Wang et al. 2020, arXiv:2006.04768",
    .caps = ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_RANDOM,
    .params = table,
    .params_size = sizeof(params),
    .applicable = applicable,
    .work_size = work_size,
    .cost = cost,
    .plan = plan,
    .execute = execute,
    .release = release,
    .inspect = inspect,
    .checks = checks,
};
