/* full - attention as the textbook writes it: S = scale Q K^T, P = softmax(S), O = P V, with the n x n matrix
 * in memory.
 *
 * Vaswani et al. 2017 (arXiv:1706.03762). Where the problem transforms or masks scores, the row of those that
 * the query sees is gathered, a sink as one more behind them, and its weights go back to their places.
 *
 * Cost n_q n_kv (d_qk + d_v) multiply-adds (half the pairs when
 * causal, in whole blocks of rows); memory batch heads n_q n_kv elements, which is what the other variants
 * avoid. In fp64 it is their oracle. Bound: rounding only (FP-1). */
#include "attn_variant.h"

#include <omp.h>
#include <string.h>

enum { ROWS = 96 }; /* of one task */

static const attn_param table[] = {{.name = NULL}};

static size_t matrix_bytes(const attn_problem *p) {
  return (size_t)(p->batch * p->heads * p->n_q * p->n_kv) * attn_dtype_size(p->dtype);
}

static attn_status applicable(const attn_context *c) {
  const attn_problem *p = c->problem;
  size_t ignored;
  int64_t factors[] = {p->batch, p->heads, p->n_q, p->n_kv, (int64_t)attn_dtype_size(p->dtype)};
  return attn_size_product("variant full: the matrix of scores", factors, 5, &ignored);
}

/* What a thread gathers a row in: scores and a sink, their keys, the runs of a graph. */
typedef struct gathered {
  void *x;
  int64_t *keys;
  attn_run *runs;
} gathered;

/* The workspace: S, then P in its place; K^T and V of every kv head as the products read them. */
typedef struct layout {
  char *s;
  attn_slices k, v, scratch, gathered; /* of each head; of each thread */
  /* Of each thread, where tensors are stored in another type: the keys or values of a head, or queries and
   * outputs. */
  attn_slices rows;
} layout;

static size_t rows_bytes(const attn_problem *p) {
  const bool keys = p->k.stored || p->v.stored, queries = p->q.stored || p->o.stored;
  const size_t wide = (size_t)(p->d_qk + p->d_v) * attn_dtype_size(p->dtype),
               of_keys = keys ? attn_size_times(wide, (size_t)p->n_kv) : 0,
               of_queries = queries ? ROWS * wide : 0;
  return of_keys > of_queries ? of_keys : of_queries;
}

static gathered gather_at(const attn_context *c, attn_carver *carver) {
  const attn_problem *p = c->problem;
  const attn_pattern *graph = p->mask.kind == ATTN_MASK_PATTERN ? p->mask.pattern : NULL;
  return (gathered){.x = attn_carve(carver, p->n_kv + 1, 1, attn_dtype_size(p->dtype)),
                    .keys = attn_carve(carver, p->n_kv, 1, sizeof(int64_t)),
                    .runs = attn_carve(carver, graph ? graph->max_runs : 1, 1, sizeof(attn_run))};
}

static layout lay_out(const attn_context *c, attn_carver *carver) {
  const attn_problem *p = c->problem;
  int64_t heads = p->batch * p->kv_heads;
  attn_carver row = attn_carver_count(c);
  if (!attn_problem_plain(p)) gather_at(c, &row);
  return (layout){.s = attn_carve(carver, 1, 1, matrix_bytes(p)),
                  .k = attn_carve_slices(carver, heads, attn_gemm_packed_bytes(c->kernels, p->d_qk, p->n_kv)),
                  .v = attn_carve_slices(carver, heads, attn_gemm_packed_bytes(c->kernels, p->n_kv, p->d_v)),
                  .scratch = attn_carve_slices(carver, c->threads, attn_gemm_scratch(c->kernels)),
                  .gathered = attn_carve_slices(carver, attn_problem_plain(p) ? 0 : c->threads, row.used),
                  .rows = attn_carve_slices(carver, c->threads, rows_bytes(p))};
}

static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  attn_carver counter = attn_carver_count(c);
  (void)parts;
  lay_out(c, &counter);
  *bytes = counter.used;
  return ATTN_OK;
}

static attn_cost cost(const attn_context *c) {
  attn_cost result = attn_softmax_cost(c, attn_visible_pairs(c->problem));
  result.bytes += 2 * (double)matrix_bytes(c->problem); /* S is written, P read */
  return result;
}

/* The keys up to the last that a row sees. */
static int64_t keys_of_row(const attn_problem *p, int64_t existing, int64_t i) {
  int64_t first, end;
  attn_visible_span(p, i, &first, &end);
  return end < existing ? end : existing;
}

/* K^T and V of one kv head. */
typedef struct head_view {
  attn_packed k, v;
  int64_t keys; /* that exist */
} head_view;

static head_view view_of(const attn_call *call, const layout *l, int64_t b, int64_t kv_head) {
  const attn_problem *p = call->context->problem;
  int64_t keys = attn_call_keys(call, b), i = b * p->kv_heads + kv_head;
  return (head_view){{attn_slice(l->k, i), p->d_qk, keys}, {attn_slice(l->v, i), keys, p->d_v}, keys};
}

static void pack(const attn_call *call, const layout *l) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
#pragma omp parallel for num_threads(c->threads) schedule(dynamic, 1)
  for (int64_t i = 0; i < 2 * p->batch * p->kv_heads; i++) {
    fenv_t outer;
    attn_float_enter(&outer);
    int64_t b = i / 2 / p->kv_heads, head = i / 2 % p->kv_heads;
    head_view h = view_of(call, l, b, head);
    const attn_stride stride = i % 2 ? p->v : p->k;
    attn_packed to = i % 2 ? h.v : h.k;
    const attn_matrix x =
        attn_load_rows(c->kernels, attn_stored(stride, p->dtype),
                       attn_rows(i % 2 ? call->v : call->k, stride, b, head, p->dtype), stride.row, h.keys,
                       i % 2 ? p->d_v : p->d_qk, attn_slice(l->rows, omp_get_thread_num()));
    attn_gemm_pack(c->kernels, to.k, to.n, i % 2 ? x : (attn_matrix){x.at, 1, x.row},
                   (void *)(uintptr_t)to.at);
    attn_float_leave(&outer);
  }
}

/* Rows of the output, or where they wait to be stored. */
typedef struct outputs {
  void *at;
  int64_t row;
} outputs;

/* O = P V for `rows` rows from i0; P is zero where a row sees no key. */
static void multiply(const attn_call *call, const attn_problem *p, const head_view *h, const void *v,
                     int64_t i0, int64_t rows, const void *weights, outputs o, void *scratch) {
  attn_dtype t = p->dtype;
  int64_t least = keys_of_row(p, h->keys, i0), most = keys_of_row(p, h->keys, i0 + rows - 1);
  /* A weight of zero must not multiply a NaN that its row does not see: such blocks go row by row. */
  bool whole = attn_all_finite(attn_row_behind(v, p->v, least, t), p->v.row, most - least, p->d_v,
                               attn_stored(p->v, t));
  for (int64_t r = 0; r < rows; r += whole ? rows : 1)
    attn_gemm_packed(call->context->kernels, whole ? rows : 1, p->d_v,
                     whole ? most : keys_of_row(p, h->keys, i0 + r),
                     (attn_matrix){attn_at(weights, r * p->n_kv, t), p->n_kv, 1}, h->v, false,
                     attn_at(o.at, r * o.row, t), o.row, scratch);
}

/* Row i from scores s to weights in their place, zeros elsewhere; o: NULL where the product P V is yet to
 * come, as it is unless a weight of zero might meet a value that is not finite. */
static void transformed_row(const attn_call *call, int64_t batch, int64_t head, int64_t i, const head_view *h,
                            const void *v, void *s, void *o, const gathered *room) {
  const attn_context *c = call->context;
  const attn_problem of_head = attn_call_problem(call, batch, head), *p = &of_head;
  const attn_dtype t = p->dtype;
  const int64_t count = attn_seen_keys(p, batch, head, i, h->keys, room->runs, room->keys);
  attn_score_row(call, batch, head, i, 0, keys_of_row(p, h->keys, i), s);
  for (int64_t j = 0; j < count; j++) attn_set(room->x, j, t, attn_get(s, room->keys[j], t));
  if (p->score.sink) attn_set(room->x, count, t, p->score.sink[head]);
  if (count) attn_softmax_row(c->kernels, count + (p->score.sink ? 1 : 0), room->x, 1);
  memset(s, 0, (size_t)p->n_kv * attn_dtype_size(t));
  for (int64_t j = 0; j < count; j++) attn_set(s, room->keys[j], t, attn_get(room->x, j, t));
  for (int64_t l = 0; o && l < p->d_v; l++) {
    double sum = 0;
    for (int64_t j = 0; j < count; j++)
      sum += attn_get(room->x, j, t) * attn_get(v, room->keys[j] * p->v.row + l, attn_stored(p->v, t));
    attn_set(o, l, t, sum);
  }
}

/* Rows i0 ... of a head from scores to outputs. */
static void transformed(const attn_call *call, int64_t batch, int64_t head, int64_t i0, int64_t rows,
                        const head_view *h, const void *v, void *s, outputs o, attn_carver room,
                        void *scratch) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const attn_dtype t = p->dtype;
  const gathered row = gather_at(c, &room);
  const bool whole = attn_all_finite(v, p->v.row, h->keys, p->d_v, attn_stored(p->v, t));
  for (int64_t r = 0; r < rows; r++)
    transformed_row(call, batch, head, i0 + r, h, v, attn_at(s, r * p->n_kv, t),
                    whole ? NULL : attn_at(o.at, r * o.row, t), &row);
  if (whole)
    attn_gemm_packed(c->kernels, rows, p->d_v, h->keys, (attn_matrix){s, p->n_kv, 1}, h->v, false, o.at,
                     o.row, scratch);
}

/* Rows i0 ... i0 + rows - 1 of a head: scores, weights, outputs. */
static void attend(const attn_call *call, const layout *l, int64_t b, int64_t head, int64_t i0,
                   int64_t rows) {
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  const attn_dtype t = p->dtype;
  const int64_t kv_head = head / (p->heads / p->kv_heads);
  const attn_problem of_head = attn_call_problem(call, b, head);
  const head_view h = view_of(call, l, b, kv_head);
  void *scratch = attn_slice(l->scratch, omp_get_thread_num()),
       *room = attn_slice(l->rows, omp_get_thread_num());
  void *s = attn_at(l->s, ((b * p->heads + head) * p->n_q + i0) * p->n_kv, t);
  const attn_matrix q =
      attn_load_rows(c->kernels, attn_stored(p->q, t), attn_row(call->q, p->q, b, head, i0, t), p->q.row,
                     rows, p->d_qk, room);
  attn_gemm_packed(c->kernels, rows, keys_of_row(&of_head, h.keys, i0 + rows - 1), p->d_qk, q, h.k, false, s,
                   p->n_kv, scratch);
  const void *v = attn_rows(call->v, p->v, b, kv_head, t);
  void *result = attn_row(call->o, p->o, b, head, i0, t);
  const outputs o =
      p->o.stored ? (outputs){attn_at(room, ROWS * p->d_qk, t), p->d_v} : (outputs){result, p->o.row};
  if (!attn_problem_plain(p)) {
    attn_carver gathers = attn_carver_at(call, attn_slice(l->gathered, omp_get_thread_num()));
    transformed(call, b, head, i0, rows, &h, v, s, o, gathers, scratch);
  } else {
    for (int64_t r = 0; r < rows; r++) {
      int64_t keys = keys_of_row(&of_head, h.keys, i0 + r);
      if (keys) attn_softmax_row(c->kernels, keys, attn_at(s, r * p->n_kv, t), p->scale);
      memset(attn_at(s, r * p->n_kv + keys, t), 0, (size_t)(p->n_kv - keys) * attn_dtype_size(t));
    }
    multiply(call, &of_head, &h, v, i0, rows, s, o, scratch);
  }
  for (int64_t r = 0; p->o.stored && r < rows; r++)
    attn_store_row(c->kernels, p->o.stored, p->d_v, attn_at(o.at, r * o.row, t),
                   attn_row_behind(result, p->o, r, t));
}

static attn_status execute(const void *state, const attn_call *call) {
  (void)state;
  const attn_context *c = call->context;
  const attn_problem *p = c->problem;
  attn_carver carver = attn_carver_at(call, call->work);
  layout l = lay_out(c, &carver);
  int64_t blocks = (p->n_q + ROWS - 1) / ROWS;
  pack(call, &l);
#pragma omp parallel for num_threads(c->threads) schedule(dynamic, 1)
  for (int64_t task = p->batch * p->heads * blocks - 1; task >= 0; task--) {
    fenv_t outer;
    attn_float_enter(&outer);
    int64_t i0 = task % blocks * ROWS, head = task / blocks % p->heads, b = task / blocks / p->heads;
    attend(call, &l, b, head, i0, p->n_q - i0 < ROWS ? p->n_q - i0 : ROWS);
    attn_float_leave(&outer);
  }
  return ATTN_OK;
}

static attn_status backward_size(const void *state, const attn_context *c, const attn_parts *parts,
                                 size_t *bytes) {
  const attn_normaliser softmax = attn_softmax_normaliser();
  (void)state, (void)parts;
  return attn_normaliser_back_size(&softmax, c, bytes);
}

static attn_status backward(const void *state, const attn_call *call, const attn_gradients *g) {
  const attn_normaliser softmax = attn_softmax_normaliser();
  (void)state;
  return attn_normaliser_backward(&softmax, call, g);
}

static const attn_method textbook = {.work_size = work_size,
                                     .execute = execute,
                                     .backward_size = backward_size,
                                     .backward = backward,
                                     .bias_gradients = true};

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  (void)b;
  out->method = &textbook;
  out->rounding = attn_softmax_row_rounding(c);
  return ATTN_OK;
}

ATTN_VARIANT(full, .summary = "textbook attention, materialises the n x n matrix",
             .formula = "o_i = sum_j p_ij v_j, p_ij = exp(s_ij) / sum_l exp(s_il), s_ij = scale q_i.k_j; "
                        "O(n^2 d) time, O(n^2) memory",
             .cite = "Vaswani et al. 2017, arXiv:1706.03762",
             .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_EXACT | ATTN_CAP_PERMUTATION | ATTN_CAP_POSITIONS,
             .params = table, .params_size = 0, .applicable = applicable, .describe = describe, .cost = cost)
