/* toeplitz_engine.c - the engine of features with a bias of the distance (attn_toeplitz; Luo et al. 2021,
 * arXiv:2106.12566; Choromanski et al. 2022, arXiv:2107.07999):
 *
 *   sum_j e^b(p - j) phi(q).phi(k_j) v_jl = sum_c phi_c(q) (t * x_cl)_p,   x_cl = phi_c(k) v_l,  t = e^b
 *
 * one convolution along positions for each feature c and column l of V, and for v = 1, the denominator.
 *
 * A convolution of a whole causal sequence would let later keys into a row, by rounding, and their NaNs
 * whole. Instead the keys 2 m s ... 2 m s + s - 1 meet the queries at the next s positions, for s = block, 2
 * block, 4 block, ..., and keys of a query's own block meet it by products: every pair meets once, no
 * transform has a key that comes after one of its queries, and a row does not depend on what follows it.
 *
 * Features are of the problem's type, all else is in fp64, whatever that is: rounding of a transform is
 * relative to all its keys, and a row of small weights would lose the digits that fp32 does not have. */
#include "core/engines/linear/linear_engine.h"
#include "core/engines/toeplitz/convolution.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { LEVELS = 40, LINE = 8 /* doubles in 64 bytes */ };

/* Keys k ... k + span - 1 with queries at positions k + offset ... k + offset + span' - 1. */
typedef struct level {
  int64_t span, length;
  attn_convolution *by;
} level;

typedef struct toeplitz {
  attn_toeplitz part; /* of the view */
  int64_t levels;
  level level[LEVELS];
} toeplitz;

typedef struct shape {
  const attn_context *c;
  const attn_problem *p;
  const attn_feature_map *map;
  const attn_kernels *wide; /* of fp64 */
  const toeplitz *x;
  int64_t width;        /* columns of V, and the denominator's */
  int64_t q_row, k_row; /* of rows by position */
  int64_t block;        /* the part's, or fewer keys */
} shape;

/* One thread's workspace. */
typedef struct room {
  void *loaded, *mapped, *out; /* [CHUNK] rows of a tensor, of features; a row of outputs */
  double *scale;               /* [CHUNK] */
  double *queries, *keys;      /* [columns] rows of queries, of keys: features, eps included */
  double *values;              /* [width] rows of keys, the last of ones */
  double *sums;                /* [width] rows of queries */
  double *q_norm, *k_norm;     /* of features */
  double *lost;                /* [n_q] what rounding may have made of a denominator */
  double *weights, *near;      /* [block] rows of block; [block] factors of distances 0 ... block - 1 */
  double *x, *spectrum, *of_t; /* of a transform */
} room;

typedef struct line {
  const attn_call *call;
  int64_t batch, head, kv_head, keys, shift; /* query i stands at i + shift */
} line;

static int64_t by_line(int64_t n) { return attn_padded(n, ATTN_F64) + LINE; }

/* The levels of a problem, without their transforms. */
static toeplitz levels_of(const attn_problem *p, const attn_toeplitz *part) {
  toeplitz x = {.part = *part};
  if (p->causal)
    for (int64_t s = part->block; s < p->n_kv && x.levels < LEVELS; s *= 2)
      x.level[x.levels++] = (level){.span = s, .length = attn_convolution_length(2 * s - 1)};
  else
    x.level[x.levels++] = (level){.span = p->n_kv, .length = attn_convolution_length(p->n_q + p->n_kv - 1)};
  x.part.transforms = x.levels;
  x.part.length = x.levels ? x.level[x.levels - 1].length : 1;
  return x;
}

static shape shape_of(const attn_context *c, const attn_feature_map *map, const toeplitz *x) {
  const attn_problem *p = c->problem;
  return (shape){.c = c,
                 .p = p,
                 .map = map,
                 .wide = attn_kernels_f64(c->kernels),
                 .x = x,
                 .width = p->d_v + (map->unnormalised ? 0 : 1),
                 .q_row = by_line(p->n_q),
                 .k_row = by_line(p->n_kv),
                 .block = attn_min(x->part.block, p->n_kv)};
}

static room carve(const shape *s, attn_carver *carver) {
  const attn_problem *p = s->p;
  const size_t e = attn_dtype_size(p->dtype), wide = sizeof(double);
  const int64_t block = p->causal ? s->block : 0, pairs = s->x->part.length / 2 + 1;
  return (room){.loaded = attn_carve(carver, CHUNK, attn_max(p->d_qk, p->d_v), e),
                .mapped = attn_carve(carver, CHUNK, attn_padded(s->map->columns, p->dtype), e),
                .out = attn_carve(carver, 1, p->d_v, e),
                .scale = attn_carve(carver, CHUNK, 1, wide),
                .queries = attn_carve(carver, s->map->columns, s->q_row, wide),
                .keys = attn_carve(carver, s->map->columns, s->k_row, wide),
                .values = attn_carve(carver, s->width, s->k_row, wide),
                .sums = attn_carve(carver, s->width, s->q_row, wide),
                .q_norm = attn_carve(carver, p->n_q, 1, wide),
                .k_norm = attn_carve(carver, p->n_kv, 1, wide),
                .lost = attn_carve(carver, p->n_q, 1, wide),
                .weights = attn_carve(carver, block, by_line(block), wide),
                .near = attn_carve(carver, block, 1, wide),
                .x = attn_carve(carver, s->x->part.length, 1, wide),
                .spectrum = attn_carve(carver, pairs, 2, wide),
                .of_t = attn_carve(carver, pairs, 2, wide)};
}

/* Features of the rows of a head, by position, and their norms. */
static void map_rows(const shape *s, room *r, const line *x, attn_side side, int64_t count, double *to,
                     int64_t to_row, double *norms) {
  const attn_problem *p = s->p;
  const bool query = side == ATTN_QUERY;
  const attn_stride at = query ? p->q : p->k;
  const int64_t f_row = attn_padded(s->map->columns, p->dtype);
  for (int64_t i = 0; i < count; i += CHUNK) {
    const int64_t rows = attn_min(CHUNK, count - i);
    const attn_matrix m = attn_load_rows(
        s->c->kernels, attn_stored(at, p->dtype),
        attn_row(query ? x->call->q : x->call->k, at, x->batch, query ? x->head : x->kv_head, i, p->dtype),
        at.row, rows, p->d_qk, r->loaded);
    s->map->map(s->map->state, s->c,
                &(attn_feature_rows){x->kv_head, side, m.at, m.row, (query ? x->shift : 0) + i, rows},
                r->mapped, f_row, query ? NULL : r->scale);
    for (int64_t l = 0; l < rows; l++) {
      double square = 0;
      for (int64_t c = 0; c < s->map->columns; c++) {
        const double f = attn_get(r->mapped, l * f_row + c, p->dtype) + s->map->eps;
        to[c * to_row + i + l] = f;
        square += f * f;
      }
      norms[i + l] = sqrt(square);
    }
  }
}

static void load_values(const shape *s, room *r, const line *x) {
  const attn_problem *p = s->p;
  const attn_dtype stored = attn_stored(p->v, p->dtype);
  for (int64_t j = 0; j < x->keys; j++) {
    const void *v = attn_row(x->call->v, p->v, x->batch, x->kv_head, j, p->dtype);
    for (int64_t l = 0; l < p->d_v; l++) r->values[l * s->k_row + j] = attn_get(v, l, stored);
    if (s->width > p->d_v) r->values[p->d_v * s->k_row + j] = 1;
  }
}

/* e^b of a distance. */
static double factor_of(const shape *s, const line *x, int64_t distance) {
  const attn_score *b = &s->x->part.bias;
  const int64_t at = attn_max(0, attn_min(distance + b->zero, b->span - 1));
  return exp(b->relative[(b->relative_heads > 1 ? x->head : 0) * b->span + at]);
}

/* Keys first ... first + keys - 1 with queries i ... i + count - 1, of which the first stands `behind` the
 * position first + offset. */
typedef struct tile {
  int64_t first, keys, i, count, behind;
} tile;

/* The spectrum of a level for the first `keys` keys of its blocks: entry m, modulo its length, is the factor
 * of distance m + offset, over the length. Returns what norms of features are multiplied with where rounding
 * of their convolutions is bounded, of_two for |x|_2, of_one for |x|_1: |y^ - y| <= 1.1 (2 f |t|_1 |x|_2 + f
 * |t|_2 |x|_1), f = u (10 log2 N + 4), as TOEP derives it. */
static void take_level(const shape *s, room *r, const line *x, const level *v, int64_t offset, int64_t keys,
                       int64_t queries, double *of_two, double *of_one) {
  const double n = (double)v->length, f = 1.1 * 0x1p-53 * (10 * log2(n) + 4);
  double sum = 0, squares = 0;
  memset(r->x, 0, (size_t)v->length * sizeof *r->x);
  for (int64_t m = 1 - keys; m < queries; m++) {
    const double t = factor_of(s, x, m + offset);
    sum += t;
    squares += t * t;
    r->x[m < 0 ? m + v->length : m] = t / n;
  }
  attn_convolution_transform(v->by, r->x, r->of_t);
  *of_two = 2 * f * sum;
  *of_one = f * sqrt(squares);
}

static void take_tile(const shape *s, room *r, const level *v, const tile *t, double of_two, double of_one) {
  double one = 0, two = 0;
  for (int64_t j = t->first; j < t->first + t->keys; j++) {
    one += r->k_norm[j];
    two += r->k_norm[j] * r->k_norm[j];
  }
  for (int64_t i = t->i; i < t->i + t->count; i++)
    r->lost[i] += r->q_norm[i] * (of_two * sqrt(two) + of_one * one);
  for (int64_t c = 0; c < s->map->columns; c++) {
    const double *f = r->keys + c * s->k_row + t->first, *q = r->queries + c * s->q_row + t->i;
    for (int64_t l = 0; l < s->width; l++) {
      const double *value = r->values + l * s->k_row + t->first, *y = r->x + t->behind;
      double *sum = r->sums + l * s->q_row + t->i;
      for (int64_t j = 0; j < t->keys; j++) r->x[j] = f[j] * value[j];
      memset(r->x + t->keys, 0, (size_t)(v->length - t->keys) * sizeof *r->x);
      attn_convolve(v->by, r->of_t, r->spectrum, r->x);
      for (int64_t i = 0; i < t->count; i++) sum[i] += q[i] * y[i];
    }
  }
}

/* Queries i ... i + count - 1, at positions from ..., with the keys first ... first + keys - 1 of their block
 * that do not come later. */
static void take_block(const shape *s, room *r, const line *x, int64_t first, int64_t keys, int64_t i,
                       int64_t count) {
  const int64_t row = by_line(s->block), from = i + x->shift;
  const bool finite = attn_all_finite(r->values + first, s->k_row, s->width, keys, ATTN_F64);
  attn_product(s->wide, keys, count, s->map->columns, (attn_matrix){r->keys + first, 1, s->k_row},
               r->queries + i, s->q_row, false, r->weights, row);
  for (int64_t j = 0; j < keys; j++)
    for (int64_t l = 0; l < count; l++) {
      const int64_t distance = from + l - (first + j);
      double *w = &r->weights[j * row + l];
      *w = distance < 0 ? 0 : *w * r->near[distance];
    }
  /* A weight of zero must not multiply a NaN that its row does not see. */
  for (int64_t l = 0; l < count; l += finite ? count : 1) {
    const int64_t seen = finite ? keys : attn_max(0, attn_min(keys, from + l - first + 1));
    attn_product(s->wide, s->width, finite ? count : 1, seen, (attn_matrix){r->values + first, s->k_row, 1},
                 r->weights + l, row, true, r->sums + i + l, s->q_row);
  }
}

/* Queries at positions first ... first + span - 1, as rows of the call. */
static tile queries_at(const shape *s, const line *x, int64_t first, int64_t span) {
  const int64_t from = attn_max(first, x->shift), end = attn_min(first + span, x->shift + s->p->n_q);
  return (tile){.i = from - x->shift, .count = attn_max(0, end - from), .behind = from - first};
}

static void take_causal(const shape *s, room *r, const line *x) {
  const int64_t block = s->block, end = x->shift + s->p->n_q;
  double of_two, of_one;
  for (int64_t distance = 0; distance < block; distance++) r->near[distance] = factor_of(s, x, distance);
  for (int64_t at = 0; at < attn_min(end, x->keys); at += block) {
    const tile t = queries_at(s, x, at, block);
    if (t.count) take_block(s, r, x, at, attn_min(block, x->keys - at), t.i, t.count);
  }
  for (int64_t g = 0; g < s->x->levels; g++) {
    const level *v = &s->x->level[g];
    take_level(s, r, x, v, v->span, v->span, v->span, &of_two, &of_one);
    for (int64_t at = 0; at < x->keys; at += 2 * v->span) {
      tile t = queries_at(s, x, at + v->span, v->span);
      t.first = at;
      t.keys = attn_min(v->span, x->keys - at);
      if (t.count) take_tile(s, r, v, &t, of_two, of_one);
    }
  }
}

static void take_all(const shape *s, room *r, const line *x) {
  const level *v = &s->x->level[0];
  double of_two, of_one;
  take_level(s, r, x, v, x->shift, x->keys, s->p->n_q, &of_two, &of_one);
  take_tile(s, r, v, &(tile){0, x->keys, 0, s->p->n_q, 0}, of_two, of_one);
}

static void store_row(const shape *s, room *r, const line *x, int64_t i, bool blind) {
  const attn_problem *p = s->p;
  double sum = 1;
  if (s->width > p->d_v) {
    sum = r->sums[p->d_v * s->q_row + i];
    if (!(fabs(sum) > r->lost[i])) sum = (double)NAN;
  }
  for (int64_t l = 0; l < p->d_v; l++)
    attn_set(r->out, l, p->dtype, blind ? 0 : r->sums[l * s->q_row + i] / sum);
  attn_store_row(s->c->kernels, attn_stored(p->o, p->dtype), p->d_v, r->out,
                 attn_row(x->call->o, p->o, x->batch, x->head, i, p->dtype));
}

static void run_head(const shape *s, room *r, const line *x) {
  const attn_problem *p = s->p;
  memset(r->sums, 0, (size_t)(s->width * s->q_row) * sizeof *r->sums);
  memset(r->lost, 0, (size_t)p->n_q * sizeof *r->lost);
  map_rows(s, r, x, ATTN_QUERY, p->n_q, r->queries, s->q_row, r->q_norm);
  map_rows(s, r, x, ATTN_KEY, x->keys, r->keys, s->k_row, r->k_norm);
  load_values(s, r, x);
  if (x->keys && p->causal) take_causal(s, r, x);
  if (x->keys && !p->causal) take_all(s, r, x);
  for (int64_t i = 0; i < p->n_q; i++) store_row(s, r, x, i, !x->keys || (p->causal && i + x->shift < 0));
}

static bool accepts(const attn_parts *p) {
  return attn_parts_kinds(p) == (ATTN_PART_FEATURES | ATTN_PART_TOEPLITZ);
}

static size_t room_bytes(const shape *s) {
  attn_carver one = attn_carver_count(s->c);
  carve(s, &one);
  return one.used;
}

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  const toeplitz x = levels_of(c->problem, &parts->toeplitz);
  const shape s = shape_of(c, &parts->features, &x);
  *bytes = attn_size_times(room_bytes(&s), (size_t)c->threads);
  return ATTN_OK;
}

static attn_status plan(attn_builder *b, const attn_parts *parts, void **state) {
  const attn_toeplitz *part = &parts->toeplitz;
  const char *name = b->context.variant->name;
  if (part->block < LINE || part->block % LINE || part->block > INT32_MAX)
    return attn_fail(ATTN_EINVAL, "variant %s: toeplitz.block = %lld, expected a multiple of %d", name,
                     (long long)part->block, LINE);
  if (!part->bias.relative || !part->law)
    return attn_fail(ATTN_EINVAL, "variant %s: toeplitz.%s is NULL", name,
                     part->law ? "bias.relative" : "law");
  toeplitz *x = attn_builder_alloc(b, 1, sizeof *x);
  if (!x) return ATTN_ENOMEM;
  *x = levels_of(b->context.problem, part);
  x->part.features = &parts->features;
  *state = x;
  attn_status status = ATTN_OK;
  for (int64_t g = 0; g < x->levels && !status; g++) {
    status = attn_convolution_create(x->level[g].length, &x->level[g].by);
    if (!status) status = attn_builder_own(b, x->level[g].by, attn_convolution_destroy);
  }
  return status;
}

static attn_status execute(const void *state, const attn_call *call) {
  const attn_status status = linear_check(call);
  if (status) return status;
  const toeplitz *x = state;
  const shape s = shape_of(call->context, x->part.features, x);
  const attn_problem *p = s.p;
  const size_t bytes = room_bytes(&s);
#pragma omp parallel num_threads(s.c->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
    char *own = (char *)call->work + (size_t)omp_get_thread_num() * bytes;
    memset(own, 0, bytes); /* padding is multiplied, and anything but numbers may be slow */
    attn_carver carver = attn_carver_at(call, own);
    room r = carve(&s, &carver);
#pragma omp for schedule(dynamic, 1)
    for (int64_t h = 0; h < p->batch * p->heads; h++) {
      const int64_t batch = h / p->heads, head = h % p->heads;
      const line own_line = {.call = call,
                             .batch = batch,
                             .head = head,
                             .kv_head = head / (p->heads / p->kv_heads),
                             .keys = attn_call_keys(call, batch),
                             .shift = attn_call_position(call, batch, 0)};
      run_head(&s, &r, &own_line);
    }
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}

static void inspect(const void *state, const attn_context *c, attn_view *view) {
  const toeplitz *x = state;
  (void)c;
  view->features = NULL;
  view->toeplitz = &x->part;
}

const attn_engine attn_engine_toeplitz = {
    "toeplitz",
    accepts,
    {.work_size = work_size,
     .plan = plan,
     .execute = execute,
     .inspect = inspect,
     .no_gradient = "the derivative of sums by transforms of all keys is not written"}};

attn_cost attn_toeplitz_cost(const attn_context *c) {
  attn_parts parts;
  if (!c || attn_describe(NULL, c, &parts)) return (attn_cost){0};
  const attn_problem *p = c->problem;
  const toeplitz x = levels_of(p, &parts.toeplitz);
  const shape s = shape_of(c, &parts.features, &x);
  const double heads = (double)(p->batch * p->heads), rows = (double)(p->n_q + p->n_kv),
               columns = (double)s.map->columns, width = (double)s.width,
               own = p->causal ? (double)p->n_q * (double)x.part.block : 0;
  attn_cost cost = {.mul_add = rows * s.map->mul_add + own * (columns + width),
                    .exp = rows * s.map->exp + own / 2};
  for (int64_t g = 0; g < x.levels; g++) {
    const double n = (double)x.level[g].length, span = (double)x.level[g].span,
                 tiles = p->causal ? ceil(((double)p->n_kv - span) / (2 * span)) : 1;
    /* Two transforms of 5/4 n log2 n, the products before, between and after them. */
    cost.mul_add += tiles * columns * width * (2.5 * n * log2(n) + 3 * n);
    cost.exp += n;
  }
  cost.mul_add *= heads;
  cost.exp *= heads;
  cost.bytes = attn_problem_bytes(p);
  return cost;
}
