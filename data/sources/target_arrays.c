/* target_arrays.c - the arrays that a problem's score and mask are made of: drawn up by formula, or from
 * files. */
#include "data/sources/target.h"

#include <math.h>
#include <stdlib.h>

#include "attn_variant.h"
#include "data/formats/graph_file.h"

/* T5's (arXiv:1910.10683): as many buckets of distances, the last from so far away on. */
enum { T5_BUCKETS = 32, T5_DISTANCE = 128 };

struct data_target {
  double *relative, *sink;
  int64_t *offsets;
  data_array bias;
  attn_graph graph;
  int64_t hidden; /* positions before the first row of the graph */
  attn_pattern pattern;
};

void data_target_free(data_target *t) {
  if (!t) return;
  free(t->relative);
  free(t->sink);
  free(t->offsets);
  data_array_free(&t->bias);
  attn_graph_free(&t->graph);
  free(t);
}

static attn_status no_memory(void) { return attn_fail(ATTN_ENOMEM, "no memory for a bias or a mask"); }

/* A table over the distances between all positions of queries and keys. */
static attn_status make_relative(const char *what, int64_t heads, attn_problem *p, data_target *t) {
  const int64_t n = p->n_q > p->n_kv ? p->n_q : p->n_kv;
  size_t bytes;
  attn_status status =
      attn_size_product(what, (int64_t[]){heads, 2 * n - 1, (int64_t)sizeof(double)}, 3, &bytes);
  if (status) return status;
  if (!(t->relative = malloc(bytes))) return no_memory();
  p->score.relative = t->relative;
  p->score.relative_heads = heads;
  p->score.span = 2 * n - 1;
  p->score.zero = n - 1;
  return ATTN_OK;
}

static attn_status make_alibi(attn_problem *p, data_target *t) {
  attn_status status = make_relative("ALiBi", p->heads, p, t);
  return status ? status : attn_alibi(p->heads, p->score.zero + 1, t->relative);
}

/* Fills the table with a number for each bucket: step times how far away it is, or, with heads in its
 * columns, values. */
static attn_status fill_buckets(double step, const double *values, attn_problem *p, data_target *t) {
  const attn_score *s = &p->score;
  const int64_t half = p->causal ? T5_BUCKETS : T5_BUCKETS / 2;
  attn_status status = ATTN_OK;
  for (int64_t at = 0; !status && at < s->span; at++) {
    int64_t bucket = 0;
    status = attn_t5_bucket(at - s->zero, !p->causal, T5_BUCKETS, T5_DISTANCE, &bucket);
    for (int64_t h = 0; h < s->relative_heads; h++)
      t->relative[h * s->span + at] =
          values ? values[bucket * s->relative_heads + h] : -step * (double)(bucket % half);
  }
  return status;
}

static attn_status read_t5(const char *path, attn_problem *p, data_target *t) {
  int64_t rows = 0, heads = 0;
  double *values = NULL;
  attn_status status = data_matrix_read(path, &rows, &heads, &values);
  if (!status && (rows != T5_BUCKETS || (heads != p->heads && heads != 1)))
    status = attn_fail(
        ATTN_EINVAL,
        "%s: [%lld,%lld], expected a number for each of %d buckets and each head, [%d,%lld] or "
        "[%d,1]",
        path, (long long)rows, (long long)heads, T5_BUCKETS, T5_BUCKETS, (long long)p->heads, T5_BUCKETS);
  for (int64_t i = 0; !status && i < rows * heads; i++)
    if (!isfinite(values[i]))
      status = attn_fail(ATTN_EINVAL, "%s: [%lld,%lld] is not finite", path, (long long)(i / heads),
                         (long long)(i % heads));
  if (!status) status = make_relative(path, heads, p, t);
  if (!status) status = fill_buckets(0, values, p, t);
  free(values);
  return status;
}

static attn_status make_t5(const char *text, attn_problem *p, data_target *t) {
  double step;
  if (!target_number(text, &step)) return read_t5(text, p, t);
  if (!isfinite(step))
    return attn_fail(ATTN_EINVAL, "score: t5=%s, expected a finite number or a file", text);
  attn_status status = make_relative("T5", 1, p, t);
  return status ? status : fill_buckets(step, NULL, p, t);
}

static attn_status make_sink(const char *text, attn_problem *p, data_target *t) {
  data_array file = {.rank = 0};
  double number;
  const bool is_file = !target_number(text, &number);
  if (!is_file && !isfinite(number))
    return attn_fail(ATTN_EINVAL, "score: sink=%s, expected a finite number or a file", text);
  attn_status status = is_file ? data_npy_read(text, &file) : ATTN_OK;
  if (status) return status;
  if (is_file && (file.rank != 1 || file.shape[0] != p->heads)) {
    status = attn_fail(ATTN_EINVAL, "%s: expected a number for each of the %lld heads, shape [%lld]", text,
                       (long long)p->heads, (long long)p->heads);
  } else if (!(t->sink = malloc((size_t)p->heads * sizeof *t->sink))) {
    status = no_memory();
  }
  for (int64_t h = 0; !status && h < p->heads; h++) {
    t->sink[h] = is_file ? attn_get(file.at, h, file.dtype) : number;
    if (!isfinite(t->sink[h]))
      status = attn_fail(ATTN_EINVAL, "%s: [%lld] is not finite", text, (long long)h);
  }
  data_array_free(&file);
  p->score.sink = t->sink;
  return status;
}

static attn_status read_bias(const char *path, attn_problem *p, data_target *t) {
  attn_status status = data_npy_read(path, &t->bias);
  if (status) return status;
  const data_array *b = &t->bias;
  const int64_t wanted[] = {p->batch, p->heads, p->n_q, p->n_kv};
  int64_t shape[4] = {1, 1, 0, 0};
  bool fits = b->rank >= 2;
  for (int i = 0; i < b->rank; i++) shape[4 - b->rank + i] = b->shape[i];
  for (int i = 0; i < 4; i++) fits = fits && (shape[i] == wanted[i] || (i < 2 && shape[i] == 1));
  if (!fits)
    return attn_fail(
        ATTN_EINVAL,
        "%s: shape [%lld,%lld,%lld,%lld], expected [n_q,n_kv] = [%lld,%lld], with heads = %lld or 1 "
        "and batch = %lld or 1 before them",
        path, (long long)shape[0], (long long)shape[1], (long long)shape[2], (long long)shape[3],
        (long long)p->n_q, (long long)p->n_kv, (long long)p->heads, (long long)p->batch);
  p->score.dense = (attn_bias){.at = b->at,
                               .dtype = b->dtype,
                               .batch = shape[0] > 1 ? shape[1] * p->n_q * p->n_kv : 0,
                               .head = shape[1] > 1 ? p->n_q * p->n_kv : 0,
                               .row = p->n_kv};
  const int64_t rows = shape[0] * shape[1] * p->n_q;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < p->n_kv; j++) {
      const double value = attn_get(b->at, r * p->n_kv + j, b->dtype);
      if (!(value < (double)INFINITY))
        return attn_fail(ATTN_EINVAL, "%s: [%lld,%lld,%lld,%lld] is %g, expected finite or -inf", path,
                         (long long)(r / p->n_q / shape[1]), (long long)(r / p->n_q % shape[1]),
                         (long long)(r % p->n_q), (long long)j, value);
    }
  return ATTN_OK;
}

/* Documents that begin where the list says, or all of one size. */
static attn_status make_documents(const char *text, const attn_int_list *at, attn_problem *p,
                                  data_target *t) {
  const int64_t size = at->count == 1 ? at->items[0] : 0, last = at->items[at->count - 1];
  const int64_t count = size > 0 ? (p->n_kv - 1) / size + 1 : at->count;
  if (size == 0 && last >= p->n_kv)
    return attn_fail(ATTN_EINVAL, "mask '%s': a document begins at %lld, and there are %lld keys", text,
                     (long long)last, (long long)p->n_kv);
  if (!(t->offsets = malloc((size_t)(count + 1) * sizeof *t->offsets))) return no_memory();
  for (int64_t d = 0; d < count; d++) t->offsets[d] = size > 0 ? d * size : at->items[d];
  t->offsets[count] = p->n_kv;
  p->mask.offsets = t->offsets;
  p->mask.count = count;
  return ATTN_OK;
}

static int64_t graph_row(const void *state, int64_t head, int64_t position, attn_run *runs) {
  const data_target *t = state;
  return attn_graph_row(&t->graph, head, position - t->hidden, 1, t->graph.columns, runs);
}

static bool graph_sees(const void *state, int64_t head, int64_t position, int64_t key) {
  const data_target *t = state;
  return attn_graph_sees(&t->graph, head, position - t->hidden, key);
}

/* Rows of a square file are positions, of another queries. */
static attn_status read_graph(const char *path, attn_problem *p, data_target *t) {
  const attn_graph_request want = {.heads = p->heads, .rows = p->n_q, .columns = p->n_kv};
  attn_status status = graph_read(path, false, &want, &t->graph);
  if (status) return status;
  const attn_graph *g = &t->graph;
  int64_t most = 1;
  for (int64_t r = 0; r < g->heads * g->rows; r++)
    if (g->starts[r + 1] - g->starts[r] > most) most = g->starts[r + 1] - g->starts[r];
  t->hidden = g->rows == g->columns ? 0 : attn_problem_position(p, 0);
  t->pattern = (attn_pattern){
      .state = t, .row = graph_row, .max_runs = most, .per_head = g->heads > 1, .sees = graph_sees};
  p->mask.pattern = &t->pattern;
  return ATTN_OK;
}

static attn_status make_mask(const char *text, attn_problem *p, data_target *t) {
  target_mask_params *m;
  attn_status status = target_mask_read(text, &m);
  if (status || !m) return status;
  p->mask.kind = m->kind;
  p->mask.size = m->size;
  if (m->kind == ATTN_MASK_DOCUMENTS) status = make_documents(text, &m->at, p, t);
  if (m->kind == ATTN_MASK_PATTERN) status = read_graph(m->file, p, t);
  target_mask_free(m);
  return status;
}

attn_status data_target_make(const char *score, const char *mask, attn_problem *problem, data_target **out) {
  attn_problem p = *problem;
  data_target *t = calloc(1, sizeof *t);
  target_score_params *s = NULL;
  attn_status status = t ? target_score_read(score, &s) : no_memory();
  if (!status && s) {
    p.score.softcap = s->softcap;
    p.score.leaky = s->leaky;
    if (s->alibi) status = make_alibi(&p, t);
    if (!status && *s->t5) status = make_t5(s->t5, &p, t);
    if (!status && *s->bias) status = read_bias(s->bias, &p, t);
    if (!status && *s->sink) status = make_sink(s->sink, &p, t);
  }
  target_score_free(s);
  if (!status) status = make_mask(mask, &p, t);
  if (status) {
    data_target_free(t);
    return status;
  }
  *problem = p;
  *out = t;
  return ATTN_OK;
}
