/* normaliser_engine.c - attention whose weights are another function of the scores than softmax: o_i = sum_j
 * w_ij v_j, a block of rows at a time.
 *
 * Scores are a product in the type of the tensors; a row of them is widened, what gates add to it is summed
 * from the query's key backwards, so that the sum next to the query is small, its weights are made in fp64
 * and rounded once, and a block of them meets the values in a product. Cost n_q n_kv (d_qk + d_v); memory
 * O(n) a row of the block. */
#include "core/engines/normaliser/normaliser.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { ROWS = ATTN_TILE };
static const double least_gate = -1e30;

/* Of a call: K^T and V of each kv head as products read them, the rows of V
 * before the first that is not finite, and gates of heads; and of
 * each thread, scratch of products, a head's rows as they are converted, and the room of a block. */
typedef struct layout {
  attn_slices k, v, scratch, rows, blocks;
  int64_t *finite;
  double *gates; /* [batch, heads, n_kv] */
} layout;

/* What a thread computes a block in. */
typedef struct block_room {
  char *s, *q, *o; /* [ROWS, n_kv], [ROWS, d_qk], [ROWS, d_v] */
  double *x, *room;
  int64_t *keys;
  attn_run *runs;
} block_room;

/* Rows first ... of a head. */
typedef struct block {
  const attn_call *call;
  const attn_normaliser *by;
  attn_problem p; /* with positions as the call says */
  int64_t batch, head, kv_head, first, rows, keys;
} block;

static block_room room_at(const attn_context *c, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const size_t size = attn_dtype_size(p->dtype);
  const attn_pattern *graph = p->mask.kind == ATTN_MASK_PATTERN ? p->mask.pattern : NULL;
  return (block_room){.s = attn_carve(carver, ROWS, p->n_kv, size),
                      .q = attn_carve(carver, ROWS, p->d_qk, size),
                      .o = attn_carve(carver, ROWS, p->d_v, size),
                      .x = attn_carve(carver, p->n_kv, 1, sizeof(double)),
                      .room = attn_carve(carver, p->n_kv + 1, 1, sizeof(double)),
                      .keys = attn_carve(carver, p->n_kv, 1, sizeof(int64_t)),
                      .runs = attn_carve(carver, graph ? graph->max_runs : 1, 1, sizeof(attn_run))};
}

static layout lay_out(const attn_context *c, const attn_normaliser *by, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const int64_t heads = p->batch * p->kv_heads, wide = attn_max(p->d_qk, p->d_v);
  const size_t bytes = p->k.stored || p->v.stored ? attn_dtype_size(p->dtype) : 0;
  attn_carver one = attn_carver_count(c);
  room_at(c, &one);
  return (layout){
      .k = attn_carve_slices(carver, heads, attn_gemm_packed_bytes(c->kernels, p->d_qk, p->n_kv)),
      .v = attn_carve_slices(carver, heads, attn_gemm_packed_bytes(c->kernels, p->n_kv, p->d_v)),
      .scratch = attn_carve_slices(carver, c->threads, attn_gemm_scratch(c->kernels)),
      .rows = attn_carve_slices(carver, c->threads,
                                attn_size_times(attn_size_times(bytes, (size_t)wide), (size_t)p->n_kv)),
      .blocks = attn_carve_slices(carver, c->threads, one.used),
      .finite = attn_carve(carver, heads, 1, sizeof(int64_t)),
      .gates = attn_carve(carver, by->gates ? p->batch * p->heads : 0, p->n_kv, sizeof(double))};
}

/* Of what no row of this engine is made. */
static attn_status refuse(const attn_context *c, const attn_normaliser *by) {
  const attn_problem *p = c->problem;
  if (p->score.sink)
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: no sink is added to its sums", c->variant->name);
  if (by->gates && !p->causal)
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: gates are of causal attention", c->variant->name);
  return by->columns <= p->d_qk - by->first
             ? ATTN_OK
             : attn_fail(ATTN_EINVAL, "variant %s: normaliser.columns = %lld from %lld, and d_qk = %lld",
                         c->variant->name, (long long)by->columns, (long long)by->first, (long long)p->d_qk);
}

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  attn_carver counter = attn_carver_count(c);
  lay_out(c, &parts->normaliser, &counter);
  *bytes = counter.used;
  return refuse(c, &parts->normaliser);
}

/* The state is the normaliser. */
static attn_status plan(attn_builder *b, const attn_parts *p, void **state) {
  *state = (void *)(uintptr_t)&p->normaliser;
  return refuse(&b->context, &p->normaliser);
}

static bool accepts(const attn_parts *p) { return attn_parts_kinds(p) == ATTN_PART_NORMALISER; }

int64_t normaliser_depth(const attn_problem *p, const attn_normaliser *by) {
  return by->columns ? by->columns : p->d_qk;
}

/* K^T or V of a kv head. */
static attn_packed packed_of(const attn_call *call, const attn_normaliser *by, const layout *l, bool values,
                             int64_t line) {
  const attn_problem *p = call->context->problem;
  const int64_t keys = attn_call_keys(call, line / p->kv_heads);
  return values ? (attn_packed){attn_slice(l->v, line), keys, p->d_v}
                : (attn_packed){attn_slice(l->k, line), normaliser_depth(p, by), keys};
}

static void pack(const attn_call *call, const attn_normaliser *by, const layout *l, int64_t task) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const int64_t line = task / 2, batch = line / p->kv_heads, keys = attn_call_keys(call, batch);
  const bool values = task % 2;
  const attn_stride stride = values ? p->v : p->k;
  const attn_dtype type = attn_stored(stride, p->dtype);
  const attn_packed to = packed_of(call, by, l, values, line);
  const void *from = attn_rows(values ? call->v : call->k, stride, batch, line % p->kv_heads, p->dtype);
  const attn_matrix x = attn_load_rows(c->kernels, type, from, stride.row, keys, values ? p->d_v : p->d_qk,
                                       attn_slice(l->rows, omp_get_thread_num()));
  const void *first = attn_at(x.at, by->columns ? by->first : 0, p->dtype);
  attn_gemm_pack(c->kernels, to.k, to.n, values ? x : (attn_matrix){first, 1, x.row},
                 (void *)(uintptr_t)to.at);
  if (!values) return;
  l->finite[line] = keys;
  if (attn_all_finite(from, stride.row, keys, p->d_v, type)) return;
  for (int64_t j = keys - 1; j >= 0; j--)
    if (!attn_all_finite(attn_row_behind(from, stride, j, p->dtype), stride.row, 1, p->d_v, type))
      l->finite[line] = j;
}

void normaliser_add_gates(const attn_problem *p, int64_t i, int64_t exist, const double *gates, int64_t count,
                          const int64_t *keys, double *x) {
  double sum = 0;
  int64_t at = attn_min(attn_problem_position(p, i), exist - 1);
  for (int64_t j = count - 1; j >= 0; j--) {
    for (; at > keys[j]; at--) sum += gates[at];
    x[j] += sum;
  }
}

/* The scores of one row, and what it is given beside them, as weights of all keys. */
static void weigh(const block *b, int64_t r, const double *gates, const block_room *room) {
  const attn_dtype t = b->p.dtype;
  const int64_t i = b->first + r,
                count = attn_seen_keys(&b->p, b->batch, b->head, i, b->keys, room->runs, room->keys),
                first = count ? room->keys[0] : 0, end = count ? room->keys[count - 1] + 1 : 0;
  void *s = attn_at(room->s, r * b->p.n_kv, t);
  const bool whole = end - first == count;
  attn_score_row(b->call, b->batch, b->head, i, first, end - first, attn_at(s, first, t));
  if (whole) attn_numbers[t].load(attn_at(s, first, t), count, room->x);
  for (int64_t j = 0; j < count && !whole; j++) room->x[j] = attn_get(s, room->keys[j], t);
  if (gates) normaliser_add_gates(&b->p, i, b->keys, gates, count, room->keys, room->x);
  if (count) b->by->normalise(b->by->state, b->call->context, count, room->x, room->room);
  memset(s, 0, (size_t)b->p.n_kv * attn_dtype_size(t));
  if (whole) attn_numbers[t].store(room->x, count, attn_at(s, first, t));
  for (int64_t j = 0; j < count && !whole; j++) attn_set(s, room->keys[j], t, room->x[j]);
}

/* Sums over keys. Values from `finite` on may be no numbers: a weight of 0 must not meet them, and rows that
 * see keys behind it are summed key by key. Other rows have the same bits either way. */
static void sum_values(const block *b, const layout *l, int64_t end, int64_t finite, attn_packed v,
                       const block_room *room) {
  const attn_problem *p = &b->p;
  const attn_dtype t = p->dtype, type = attn_stored(p->v, t);
  const void *values = attn_rows(b->call->v, p->v, b->batch, b->kv_head, t);
  attn_gemm_packed(b->call->context->kernels, b->rows, p->d_v, attn_min(end, finite),
                   (attn_matrix){room->s, p->n_kv, 1}, v, false, room->o, p->d_v,
                   attn_slice(l->scratch, omp_get_thread_num()));
  for (int64_t r = 0; r < b->rows && finite < end; r++) {
    const int64_t count = attn_seen_keys(p, b->batch, b->head, b->first + r, b->keys, room->runs, room->keys);
    if (!count || room->keys[count - 1] < finite) continue;
    for (int64_t c = 0; c < p->d_v; c++) {
      double sum = 0;
      for (int64_t j = 0; j < count; j++) {
        const double w = attn_get(room->s, r * p->n_kv + room->keys[j], t);
        if (w != 0) sum += w * attn_get(values, room->keys[j] * p->v.row + c, type);
      }
      attn_set(room->o, r * p->d_v + c, t, sum);
    }
  }
}

/* The columns of the queries that are multiplied, times the gain. */
static attn_matrix queries_of(const block *b, const block_room *room) {
  const attn_kernels *kernels = b->call->context->kernels;
  const attn_problem *p = &b->p;
  const attn_normaliser *by = b->by;
  const attn_dtype t = p->dtype;
  const attn_matrix q = attn_load_rows(kernels, attn_stored(p->q, t),
                                       attn_row(b->call->q, p->q, b->batch, b->head, b->first, t), p->q.row,
                                       b->rows, p->d_qk, room->q);
  for (int64_t r = 0; r < b->rows && by->columns; r++)
    attn_scale_row(kernels, by->columns, by->gain, attn_at(q.at, r * q.row + by->first, t),
                   attn_at(room->q, r * p->d_qk + by->first, t));
  return by->columns ? (attn_matrix){attn_at(room->q, by->first, t), p->d_qk, 1} : q;
}

static void attend(const block *b, const layout *l, const block_room *room) {
  const attn_context *c = b->call->context;
  const attn_problem *p = &b->p;
  const attn_dtype t = p->dtype;
  const int64_t line = b->batch * p->kv_heads + b->kv_head;
  const attn_packed k = packed_of(b->call, b->by, l, false, line),
                    v = packed_of(b->call, b->by, l, true, line);
  const double *gates = b->by->gates ? l->gates + (b->batch * p->heads + b->head) * p->n_kv : NULL;
  const attn_matrix q = queries_of(b, room);
  void *scratch = attn_slice(l->scratch, omp_get_thread_num());
  int64_t end = 0; /* of the keys that the block sees */
  for (int64_t r = 0; r < b->rows; r++) {
    int64_t first, last;
    attn_visible_span(p, b->first + r, &first, &last);
    end = attn_max(end, attn_min(last, b->keys));
  }
  attn_gemm_packed(c->kernels, b->rows, end, k.k, q, k, false, room->s, p->n_kv, scratch);
  for (int64_t r = 0; r < b->rows; r++) weigh(b, r, gates, room);
  sum_values(b, l, end, l->finite[line], v, room);
  void *o = attn_row(b->call->o, p->o, b->batch, b->head, b->first, t);
  for (int64_t r = 0; r < b->rows; r++)
    attn_store_row(c->kernels, attn_stored(p->o, t), p->d_v, attn_at(room->o, r * p->d_v, t),
                   attn_row_behind(o, p->o, r, t));
}

attn_status normaliser_fill_gates(const attn_normaliser *by, const attn_call *call, double *gates) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  int64_t bad = p->batch * p->heads * p->n_kv;
  if (call->k_position.at)
    return attn_fail(ATTN_EUNSUPPORTED, "variant %s: k_position is not supported: gates are of every key",
                     c->variant->name);
#pragma omp parallel for num_threads(c->threads) schedule(dynamic, 1) reduction(min : bad)
  for (int64_t h = 0; h < p->batch * p->heads; h++) {
    const int64_t keys = attn_call_keys(call, h / p->heads);
    fenv_t outer;
    attn_float_enter(&outer);
    by->gates(by->state, call, h / p->heads, h % p->heads, 0, keys, gates + h * p->n_kv);
    for (int64_t j = 0; j < keys; j++) {
      const double g = gates[h * p->n_kv + j];
      if (!(g >= least_gate && g <= 0)) bad = attn_min(bad, h * p->n_kv + j);
    }
    attn_float_leave(&outer);
  }
  if (bad == p->batch * p->heads * p->n_kv) return ATTN_OK;
  const int64_t h = bad / p->n_kv;
  return attn_fail(ATTN_EINVAL,
                   "variant %s: the gate of [%lld, %lld, %lld] is %g, expected a number in %g ... 0",
                   c->variant->name, (long long)(h / p->heads), (long long)(h % p->heads),
                   (long long)(bad % p->n_kv), gates[bad], least_gate);
}

static attn_status execute(const void *state, const attn_call *call) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const attn_normaliser *by = state;
  const int64_t heads = p->batch * p->heads, blocks = attn_ceil_div(p->n_q, ROWS);
  attn_carver carver = attn_carver_at(call, call->work);
  const layout l = lay_out(c, by, &carver);
  if (by->gates) {
    const attn_status status = normaliser_fill_gates(by, call, l.gates);
    if (status) return status;
  }
#pragma omp parallel num_threads(c->threads)
  {
    fenv_t outer;
    attn_float_enter(&outer);
    attn_carver own = attn_carver_at(call, attn_slice(l.blocks, omp_get_thread_num()));
    const block_room room = room_at(c, &own);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = 0; task < 2 * p->batch * p->kv_heads; task++) pack(call, by, &l, task);
#pragma omp for schedule(dynamic, 1)
    for (int64_t task = heads * blocks - 1; task >= 0; task--) {
      const int64_t h = task / blocks, first = task % blocks * ROWS;
      attend(&(block){call, by, attn_call_problem(call, h / p->heads, h % p->heads), h / p->heads,
                      h % p->heads, h % p->heads / (p->heads / p->kv_heads), first,
                      attn_min(ROWS, p->n_q - first), attn_call_keys(call, h / p->heads)},
             &l, &room);
    }
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}

static void inspect(const void *state, const attn_context *c, attn_view *view) {
  (void)state;
  const bool wide = c->problem->dtype == ATTN_F64;
  view->rounding = attn_softmax_row_rounding(c);
  view->rounding.score += view->normaliser->columns ? 1 : 0;
  view->rounding.sum = wide ? 4 * c->problem->n_kv + 64 : 4;
  view->rounding.exp_error = 16 * 0x1p-53;
  view->rounding.weight = wide ? 0 : view->rounding.unit;
}

static attn_status backward_size(const void *state, const attn_context *c, const attn_parts *parts,
                                 size_t *bytes) {
  (void)state;
  return attn_normaliser_back_size(&parts->normaliser, c, bytes);
}

static attn_status backward(const void *state, const attn_call *call, const attn_gradients *g) {
  return attn_normaliser_backward(state, call, g);
}

const attn_engine attn_engine_normaliser = {"normaliser",
                                            accepts,
                                            {.work_size = work_size,
                                             .plan = plan,
                                             .execute = execute,
                                             .inspect = inspect,
                                             .backward_size = backward_size,
                                             .backward = backward,
                                             .bias_gradients = true}};

static void softmax(const void *state, const attn_context *c, int64_t n, double *x, double *room) {
  double sum = 0;
  (void)state, (void)room;
  attn_exp_rows(attn_kernels_f64(c->kernels), 1, n, x, n, NULL);
  for (int64_t j = 0; j < n; j++) sum += x[j];
  for (int64_t j = 0; j < n; j++) x[j] /= sum;
}

static void softmax_back(const void *state, int64_t n, const double *w, double *ds) {
  const double mean = attn_inner(w, ds, n);
  (void)state;
  for (int64_t j = 0; j < n; j++) ds[j] = w[j] * (ds[j] - mean);
}

static double softmax_weight(const void *state, int64_t n, double x) {
  (void)state, (void)n;
  return exp(x);
}

attn_normaliser attn_softmax_normaliser(void) {
  return (attn_normaliser){
      .normalise = softmax, .differentiate = softmax_back, .weight = softmax_weight, .sums = true};
}
