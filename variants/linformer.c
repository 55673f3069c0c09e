/* linformer - keys and values projected along the sequence to k rows: o = softmax(scale Q (E K)^T) F V.
 *
 *   gaussian    entries N(0, 1/k)
 *   rademacher  entries +-1/sqrt(k)
 *   srht        sqrt(N/k) S H D, H the orthonormal Walsh-Hadamard matrix of order N, the power of two from
 *               n_kv up
 *   dct         sqrt(n/k) S C D, C the orthonormal DCT-II;  S: k rows without replacement, D: random signs
 *   pool        means over k nearly equal blocks
 *   file        a matrix [k, n_kv] read from projection_file
 *
 * share=kv: F = E, which keeps the sketch E^T F unbiased; none: drawn apart. Padding never enters: the
 * columns of absent keys are left out (pool divides the keys that exist).
 *
 * Wang et al. 2020 (arXiv:2006.04768). Cost k n (d_qk + d_v) for each of projection and attention. Bounds:
 * LIN-1, LIN-3, LIN-5 (pool). Deviations: fixed draws in place of learned projections; causal is refused. */
#include "attn_variant.h"

#include <math.h>
#include <stdlib.h>

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
    {"seed", ATTN_INT, offsetof(params, seed), 0, 1e15, "0", NULL, "seed of the draws"},
    {.name = NULL},
};

typedef struct state {
  params p;
  int64_t n, order; /* n_kv; rows of the transform */
  void *matrix;     /* gaussian, rademacher, file; see entry() */
  double *signs;    /* srht, dct: [draws][n] */
  int64_t *sampled; /* srht, dct: [draws][k], in the order drawn: slots of E and F must not pair up */
  attn_transform *transform;
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
  if (s->p.projection == FILE_MATRIX) return 0;
  return (s->p.share_heads == YES ? 0 : head) * sides + (sides == 2 && side == ATTN_VALUE);
}

/* -- drawing -- */

/* Keys of a block of E: long runs of a row, and the block stays in cache for keys and values. */
enum { SLICE = 256 };

/* Element (i, j) of a draw: slices of [k][SLICE], read in the order they lie in memory. */
static int64_t entry(const state *s, int64_t draw, int64_t i, int64_t j) {
  int64_t slices = (s->n + SLICE - 1) / SLICE;
  return ((draw * slices + j / SLICE) * s->p.k + i) * SLICE + j % SLICE;
}

enum { PURPOSE_MATRIX = 0x11f0, PURPOSE_SIGNS, PURPOSE_ROWS };

/* Column j has its own stream: a shorter sequence has the same leading columns, and threads do not matter.
 * Rounded to fp32 in either dtype. */
static void draw_matrix(const state *s, int64_t draw, attn_dtype t, int threads) {
  double scale = 1 / sqrt((double)s->p.k);
#pragma omp parallel num_threads(threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
#pragma omp for schedule(static, SLICE)
    for (int64_t j = 0; j < s->n; j++) {
      attn_rng rng;
      attn_rng_init(&rng, (uint64_t)s->p.seed, PURPOSE_MATRIX + ((uint64_t)draw << 32), (uint64_t)j);
      for (int64_t i = 0; i < s->p.k; i++) {
        double x = s->p.projection == GAUSSIAN ? attn_rng_normal(&rng) : attn_rng_bits(&rng) >> 63 ? 1 : -1;
        attn_set(s->matrix, entry(s, draw, i, j), t, (double)(float)(x * scale));
      }
    }
    attn_float_leave(&outer);
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
    for (int64_t j = 0; j < columns; j++) attn_set(s->matrix, entry(s, 0, i, j), t, values[i * columns + j]);
  free(values);
  return status;
}

/* -- projecting -- */

static void by_matrix(const state *s, const attn_context *c, int64_t draw, const attn_slab *x,
                      void *scratch) {
  attn_dtype t = c->problem->dtype;
  for (int64_t at = 0; at < x->rows; at += SLICE) {
    int64_t keys = x->rows - at < SLICE ? x->rows - at : SLICE;
    attn_gemm(c->kernels, s->p.k, x->d, keys,
              (attn_matrix){attn_at(s->matrix, entry(s, draw, 0, x->first + at), t), SLICE, 1},
              (attn_matrix){attn_at(x->x, at * x->x_row, t), x->x_row, 1}, x->accumulate || at, x->y,
              x->y_row, scratch);
  }
}

static attn_transform_job job_of(const state *s, int64_t draw, const attn_slab *x) {
  return (attn_transform_job){.x = x->x,
                              .x_row = x->x_row,
                              .x_rows = x->rows,
                              .columns = x->d,
                              .sign = s->signs + draw * s->n,
                              .rows = s->sampled + draw * s->p.k,
                              .count = s->p.k,
                              .gain = sqrt((double)s->order / (double)s->p.k),
                              .y = x->y,
                              .y_row = x->y_row};
}

enum { POOL_COLUMNS = 32 }; /* of one task */

static int64_t by_pool(const state *s, const attn_context *c, const attn_slab *x, char *scratch) {
  attn_dtype t = c->problem->dtype;
  int64_t slots = x->rows < s->p.k ? x->rows : s->p.k;
  for (int64_t i = 0; i < slots; i++) {
    int64_t first = i * x->rows / slots, count = (i + 1) * x->rows / slots - first;
    /* One weight, repeated by zero strides. */
    attn_set(scratch, 0, t, 1 / (double)count);
    attn_gemm(c->kernels, 1, x->d, count, (attn_matrix){scratch, 0, 0},
              (attn_matrix){attn_at(x->x, first * x->x_row, t), x->x_row, 1}, false,
              attn_at(x->y, i * x->y_row, t), x->y_row, scratch + 64);
  }
  return slots;
}

static int64_t project(const void *opaque, const attn_context *c, const attn_slab *x, void *scratch) {
  const state *s = opaque;
  const int64_t draw = draw_index(s, x->head, x->side);
  attn_transform_job job;
  switch ((kind)s->p.projection) {
  case GAUSSIAN:
  case RADEMACHER:
  case FILE_MATRIX:
    by_matrix(s, c, draw, x, scratch);
    break;
  case SRHT:
  case DCT:
    job = job_of(s, draw, x);
    attn_transform_rows(s->transform, c->kernels, &job, scratch);
    break;
  case POOL:
    return by_pool(s, c, x, scratch);
  }
  return s->p.k;
}

static void transpose(const void *opaque, const attn_context *c, const attn_slab *x, void *scratch) {
  const state *s = opaque;
  const attn_dtype t = c->problem->dtype;
  const int64_t slots = s->p.projection == POOL ? attn_min(x->rows, s->p.k) : s->p.k,
                draw = draw_index(s, x->head, x->side);
  attn_transform_job job;
  switch ((kind)s->p.projection) {
  case GAUSSIAN:
  case RADEMACHER:
  case FILE_MATRIX:
    for (int64_t at = 0; at < x->rows; at += SLICE)
      attn_gemm(c->kernels, attn_min(x->rows - at, SLICE), x->d, slots,
                (attn_matrix){attn_at(s->matrix, entry(s, draw, 0, x->first + at), t), 1, SLICE},
                (attn_matrix){x->x, x->x_row, 1}, false, attn_at(x->y, at * x->y_row, t), x->y_row, scratch);
    break;
  case SRHT:
  case DCT:
    job = job_of(s, draw, x);
    attn_transform_transposed(s->transform, c->kernels, &job, scratch);
    break;
  case POOL:
    for (int64_t i = 0; i < slots; i++) {
      const int64_t first = i * x->rows / slots, end = (i + 1) * x->rows / slots;
      for (int64_t j = first; j < end; j++)
        attn_scale_row(c->kernels, x->d, 1 / (double)(end - first), attn_at(x->x, i * x->x_row, t),
                       attn_at(x->y, j * x->y_row, t));
    }
  }
}

static bool transforms(const params *p) { return p->projection == SRHT || p->projection == DCT; }

static attn_transform_kind transform_kind(const params *p) {
  return p->projection == DCT ? ATTN_DCT : ATTN_WALSH;
}

static size_t project_scratch(const attn_context *c) {
  const params *p = c->params;
  if (transforms(p))
    return attn_transform_scratch(transform_kind(p), order_of(p, c->problem->n_kv), p->k, c->problem->dtype);
  return 64 + attn_gemm_scratch(c->kernels);
}

/* -- the variant -- */

static bool drawless(const params *p) { return p->projection == POOL || p->projection == FILE_MATRIX; }

static attn_cost cost(const attn_context *c) {
  const params *p = c->params;
  double n = (double)c->problem->n_kv, order = (double)order_of(p, c->problem->n_kv);
  double dense = (double)p->k * n,
         fast = order * log2(order) / 2; /* an addition counts as half a multiply-add */
  return attn_compression_cost(c, p->k, p->projection == POOL ? n : transforms(p) ? fast : dense);
}

static int64_t rows_of(const attn_context *c, int64_t needed) {
  return needed <= c->problem->n_kv ? needed : 0;
}

static void release(void *transform) { attn_transform_destroy(transform); }

static attn_status make_draws(attn_builder *b, state *s) {
  const attn_context *c = attn_builder_context(b);
  const attn_problem *x = c->problem;
  bool file = s->p.projection == FILE_MATRIX;
  int64_t draws = (s->p.share_heads == YES ? 1 : x->kv_heads) * (s->p.share == KV ? 1 : 2);
  if (s->p.projection == POOL) return ATTN_OK;
  if (!transforms(&s->p)) {
    size_t ignored;
    int64_t slices = (s->n + SLICE - 1) / SLICE, factors[] = {draws, slices, SLICE, s->p.k, 8};
    attn_status status = attn_size_product("variant linformer: the projections", factors, 5, &ignored);
    if (status) return status;
    s->matrix =
        attn_builder_alloc(b, (file ? 1 : draws) * slices * SLICE * s->p.k, attn_dtype_size(x->dtype));
    if (!s->matrix) return ATTN_ENOMEM;
    if (file) return read_matrix(s, x->dtype);
    for (int64_t i = 0; i < draws; i++) draw_matrix(s, i, x->dtype, c->threads);
    return ATTN_OK;
  }
  s->signs = attn_builder_alloc(b, draws * s->n, sizeof *s->signs);
  s->sampled = attn_builder_alloc(b, draws * s->p.k, sizeof *s->sampled);
  int64_t *scratch = attn_builder_alloc(b, s->order, sizeof *scratch);
  if (!s->signs || !s->sampled || !scratch) return ATTN_ENOMEM;
  for (int64_t i = 0; i < draws; i++) draw_transform(s, i, scratch);
  attn_status status = attn_transform_create(&s->transform, transform_kind(&s->p), s->order, x->dtype);
  return status ? status : attn_builder_own(b, s->transform, release);
}

static const attn_exemption own_draws[] = {
    {ATTN_EXEMPT_GROUPS, "share_heads=no: each kv head has its own draws"}, {.reason = NULL}};

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  static const attn_projection_law laws[] = {ATTN_PROJECTION_GAUSSIAN, ATTN_PROJECTION_RADEMACHER,
                                             ATTN_PROJECTION_SRHT,     ATTN_PROJECTION_DCT,
                                             ATTN_PROJECTION_AVERAGES, ATTN_PROJECTION_UNKNOWN};
  const params *p = c->params;
  const bool divisible = !transforms(p) && p->projection != POOL;
  state *s = b ? attn_builder_alloc(b, 1, sizeof *s) : NULL;
  if (b && !s) return ATTN_ENOMEM;
  if (s) *s = (state){.p = *p, .n = c->problem->n_kv, .order = order_of(p, c->problem->n_kv)};
  out->projection = (attn_projection){.state = s,
                                      .slots = p->k,
                                      .slice = divisible ? SLICE : 0,
                                      .columns = divisible       ? 0
                                                 : transforms(p) ? ATTN_TRANSFORM_COLUMNS
                                                                 : POOL_COLUMNS,
                                      .project = project,
                                      .transpose = transpose,
                                      .scratch = project_scratch(c),
                                      .law = laws[p->projection],
                                      .shared = p->share == KV || drawless(p),
                                      .per_head = p->share_heads == NO && !drawless(p)};
  if (p->share_heads != YES) out->exempt = own_draws;
  if (p->projection == POOL) out->caps |= ATTN_CAP_STOCHASTIC | ATTN_CAP_CONVEX | ATTN_CAP_SHIFT;
  if (drawless(p)) out->seed = NULL;
  return s ? make_draws(b, s) : ATTN_OK;
}

ATTN_VARIANT(linformer, .summary = "keys and values projected to k rows",
             .formula = "softmax(scale Q (E K)^T) F V, E and F projections of the n keys to k rows; O(n k d)",
             .cite = "Wang et al. 2020, arXiv:2006.04768",
             .caps = ATTN_CAP_CROSS | ATTN_CAP_PADDING | ATTN_CAP_HALF, .params = table,
             .params_size = sizeof(params), .seed = "seed", .budget = {"k", rows_of},
             .applicable = applicable, .describe = describe, .cost = cost)
