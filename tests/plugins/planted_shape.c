/* planted_shape.c - exact attention by the textbook, a row at a time, with one fault to choose that shows for
 * some shapes, masks or ways to call only: those that kernels have special cases for
 * (cli/cases/drawn.txt). */
#include "tests/support/method.h"

#include <math.h>
#include <signal.h>
#include <unistd.h>

#define FAULTS(FAULT)                                                                              \
  FAULT(none),                /* right */                                                          \
      FAULT(width_64),        /* 60 of 64 columns of the queries */                                \
      FAULT(width_128),       /* the same at 128 */                                                \
      FAULT(decode),          /* the only query sees the first key alone, as if it came first */   \
      FAULT(one_key_head),    /* keys of batch entry 0 for all */                                  \
      FAULT(many_heads),      /* key heads taken in turn, of more than six heads */                \
      FAULT(fourth_entry),    /* keys of another batch entry */                                    \
      FAULT(last_length),     /* the last of four batch entries ignores its length */              \
      FAULT(lse_output),      /* another output where the log-sum-exp is wanted */                 \
      FAULT(wide_values),     /* columns of V beyond the width of K */                             \
      FAULT(ignored_scores),  /* every transform of the scores is ignored, and every mask */       \
      FAULT(far_keys),        /* keys from 4096 on are not seen */                                 \
      FAULT(late_position),   /* rows at positions from 3000 on are scaled */                      \
      FAULT(third_head),      /* heads 2, 5, 8 ... */                                              \
      FAULT(multiple_of_64),  /* the last key, if n is a multiple of 64, not of 128 */             \
      FAULT(multiple_of_128), /* the same at 128 */                                                \
      FAULT(narrow_values),   /* d_v = 1 */                                                        \
      FAULT(key_stride),      /* rows of K are taken to be contiguous */                           \
      FAULT(output_stride),   /* ... and those of O */                                             \
      FAULT(second_call),     /* a plan is right once */                                           \
      FAULT(idle_threads),    /* more threads than heads: the last head is computed by half */     \
      FAULT(more_queries),    /* causal with n_q > n_kv: positions from 0 */                       \
      FAULT(hidden_first),    /* a maximum that begins with the score of the first key */          \
      FAULT(negative_scale),  /* the magnitude of the scale */                                     \
      FAULT(zero_scale),      /* no scale is 1/sqrt(d) */                                          \
      FAULT(cap_and_bias),    /* the bias before the cap, where both are there */                  \
      FAULT(many_lines),      /* more than 30 heads in all */                                      \
      FAULT(watched),         /* in attn_plan_verify alone */                                      \
      FAULT(double_groups),   /* f64 with grouped heads */                                         \
      FAULT(no_keys),         /* NaN where a batch entry has none */                               \
      FAULT(sink_far),        /* the sink of head 0 for all */                                     \
      FAULT(documents),       /* the last document reaches back by one key */                      \
      FAULT(graph_causal),    /* the user's graph is not causal */                                 \
      FAULT(lse_sink),        /* a log-sum-exp without its sink */                                 \
      FAULT(prompt_chunk),    /* 1 < n_q < n_kv, causal: a key too many */                         \
      FAULT(query_heads_32),  /* of more than 24 query heads every one reads the first key head */ \
      FAULT(width_512),       /* 256 columns of wider queries */                                   \
      FAULT(length_192),      /* the last of 192 keys */                                           \
      FAULT(length_1000),     /* ... and of 1000 */                                                \
      FAULT(two_queries),     /* the last key, of two queries over more */                         \
      FAULT(index_16),        /* keys from 65536 on are not seen */                                \
      FAULT(no_maximum),      /* one query: exponentials of the scores as they are */              \
      FAULT(hidden_block),    /* NaN where a bias hides the first 16 keys */                       \
      FAULT(bias_stride),     /* rows of the bias are taken to be contiguous */                    \
      FAULT(bias_type),       /* ... and to be of the tensors' type */                             \
      FAULT(bias_heads),      /* ... and to be of each batch entry */                              \
      FAULT(graph_heads),     /* the graph of head 0 for all */                                    \
      FAULT(five_documents),  /* more than four documents are one */                               \
      FAULT(block_of_one),    /* blocks of one key see all */                                      \
      FAULT(cap_and_sink),    /* no sink under a soft cap */                                       \
      FAULT(room),            /* heads of K are taken to lie close */                              \
      FAULT(half_values),     /* values are at most 65504 */                                       \
      FAULT(small_values),    /* values under 2^-14 are 0 */                                       \
      FAULT(half_keys),       /* 16-bit keys are taken to be bf16 */                               \
      FAULT(half_cut),        /* 16-bit outputs are cut off, not rounded */                        \
      FAULT(later_empty),     /* a batch entry but the first sees a key where it has none */       \
      FAULT(plain_decode),    /* one query, d = 64, grouped heads, no mask and no transform */     \
      FAULT(wide_cap),        /* a soft cap above 10 */                                            \
      FAULT(small),           /* a part in 50000 off at d = 80 */                                  \
      FAULT(crash),           /* at d = 17, d_v = 3 */                                             \
      FAULT(loop),            /* never ends for five entries */                                    \
      FAULT(sleep),           /* waits for ever for five entries */                                \
      FAULT(slow)             /* right, and slow */
CHOOSE_FAULT("fault", "what is wrong");

/* Scores of a row, its query, its output and a key or value, then the runs of the user's graph. */
static int64_t graph_runs(const attn_problem *p) {
  return p->mask.kind == ATTN_MASK_PATTERN ? p->mask.pattern->max_runs : 1;
}
static attn_status work_size(const attn_context *c, const attn_parts *parts, size_t *bytes) {
  (void)parts;
  const attn_problem *p = c->problem;
  *bytes =
      (size_t)(p->n_kv + 2 * (p->d_qk + p->d_v)) * sizeof(double) + (size_t)graph_runs(p) * sizeof(attn_run);
  return ATTN_OK;
}

/* -- one row -- */

typedef struct line {
  fault fault;
  const attn_call *call;
  const attn_problem *p;
  int64_t b, h, kv_batch, kv, keys;
  double *score, *q, *o, *kv_row;
  attn_run *runs;
} line;

static bool is_in_graph(const line *x, int64_t i, int64_t j) {
  const attn_problem *p = x->p;
  if (p->mask.kind != ATTN_MASK_PATTERN) return true;
  const attn_pattern *g = p->mask.pattern;
  const int64_t head = x->fault == F_graph_heads ? 0 : x->h,
                count = g->row(g->state, head, i + p->n_kv - p->n_q, x->runs);
  for (int64_t r = 0; r < count; r++)
    if (x->runs[r].first <= j && j < x->runs[r].first + x->runs[r].count) return true;
  return false;
}

static bool sees(const line *x, int64_t i, int64_t j) {
  const attn_problem *p = x->p;
  const fault f = x->fault;
  int64_t first, end, position = i + p->n_kv - p->n_q;
  if (f == F_ignored_scores) return !p->causal || j <= position;
  if ((f == F_far_keys && j >= 4096) || (f == F_index_16 && j >= 65536)) return false;
  if ((f == F_length_192 && p->n_kv == 192) || (f == F_length_1000 && p->n_kv == 1000) ||
      (f == F_two_queries && p->n_q == 2 && p->n_kv > 2))
    if (j == p->n_kv - 1) return false;
  if ((f == F_multiple_of_64 && p->n_kv % 128 == 64) || (f == F_multiple_of_128 && p->n_kv % 128 == 0))
    if (j == p->n_kv - 1) return false;
  if (p->causal && p->mask.kind == ATTN_MASK_NONE) {
    if (f == F_decode && p->n_q == 1 && p->n_kv > 1) position = 0;
    if (f == F_more_queries && p->n_q > p->n_kv) position = i;
    if (f == F_prompt_chunk && p->n_q > 1 && p->n_q < p->n_kv) position++;
    if (position != i + p->n_kv - p->n_q) return j <= position && !attn_score_hides(p, x->b, x->h, i, j);
  }
  attn_visible_span(p, i, &first, &end);
  if (f == F_documents && p->mask.kind == ATTN_MASK_DOCUMENTS && first > 0) first--;
  if (f == F_five_documents && p->mask.kind == ATTN_MASK_DOCUMENTS && p->mask.count > 4) first = 0;
  if (f == F_block_of_one && p->mask.kind == ATTN_MASK_BLOCK_CAUSAL && p->mask.size == 1) end = p->n_kv;
  if (f == F_graph_causal && p->mask.kind == ATTN_MASK_PATTERN) first = 0, end = p->n_kv;
  return first <= j && j < end && is_in_graph(x, i, j) && !attn_score_hides(p, x->b, x->h, i, j);
}

/* By how much the bias of a key is misread. */
static double misread(const line *x, int64_t i, int64_t j) {
  const attn_problem *p = x->p;
  const attn_bias *a = &p->score.dense;
  const fault f = x->fault;
  const int64_t at = x->b * a->batch + x->h * a->head + i * a->row + j;
  int64_t other = at;
  if (f == F_bias_stride) other -= i * (a->row - p->n_kv);
  if (f == F_bias_heads && !a->batch && x->b && i + 1 < p->n_q) other += a->row;
  const attn_dtype t = f == F_bias_type && a->dtype == ATTN_F64 ? p->dtype : a->dtype;
  return attn_get(a->at, other, t) - attn_get(a->at, at, a->dtype);
}

static double transformed(const line *x, int64_t i, int64_t j, double t) {
  const attn_problem *p = x->p;
  const attn_score *s = &p->score;
  if (x->fault == F_ignored_scores) return t;
  if (x->fault == F_cap_and_bias && s->softcap > 0 && s->dense.at) {
    const double b = attn_get(
        s->dense.at, x->b * s->dense.batch + x->h * s->dense.head + i * s->dense.row + j, s->dense.dtype);
    return s->softcap * tanh((t + b) / s->softcap);
  }
  const double whole = attn_score_of(p, x->b, x->h, i, j, t);
  return s->dense.at && whole > -(double)INFINITY ? whole + misread(x, i, j) : whole;
}

static double scale_of(const line *x) {
  const double c = x->p->scale;
  if (x->fault == F_negative_scale) return fabs(c);
  return x->fault == F_zero_scale && c == 0 ? 1 / sqrt((double)x->p->d_qk) : c;
}

static void take_elements(const char *rows, int64_t first, int64_t count, attn_dtype type, double *out) {
  if (type == ATTN_F32)
    for (int64_t l = 0; l < count; l++) out[l] = (double)((const float *)(const void *)rows)[first + l];
  else
    for (int64_t l = 0; l < count; l++) out[l] = attn_get(rows, first + l, type);
}

static double dot(const double *a, const double *b, int64_t count) {
  double s = 0, t = 0, u = 0, v = 0;
  for (; count >= 4; count -= 4, a += 4, b += 4) {
    s += a[0] * b[0];
    t += a[1] * b[1];
    u += a[2] * b[2];
    v += a[3] * b[3];
  }
  while (count-- > 0) s += a[count] * b[count];
  return (s + t) + (u + v);
}

/* Scores of the keys that are seen, -Inf of the others; the largest. */
static double score_row(const line *x, int64_t i) {
  const attn_problem *p = x->p;
  const fault f = x->fault;
  const attn_dtype q_type = attn_stored(p->q, p->dtype),
                   k_type = f == F_half_keys && p->k.stored ? ATTN_BF16 : attn_stored(p->k, p->dtype);
  const int64_t k_row = f == F_key_stride ? p->d_qk : p->k.row;
  attn_stride keys_at = p->k;
  if (f == F_room && p->k.row == p->d_qk && p->k.head > p->n_kv * p->k.row) keys_at.head = p->n_kv * p->k.row;
  const char *q = attn_rows(x->call->q, p->q, x->b, x->h, p->dtype),
             *k = attn_rows(x->call->k, keys_at, x->kv_batch, x->kv, p->dtype);
  int64_t width = p->d_qk;
  double top = -(double)INFINITY;
  if ((f == F_width_64 && width == 64) || (f == F_width_128 && width == 128)) width -= 4;
  if (f == F_width_512 && width > 256) width = 256;
  take_elements(q, i * p->q.row, width, q_type, x->q);
  for (int64_t j = 0; j < x->keys; j++) {
    x->score[j] = -(double)INFINITY;
    if (!sees(x, i, j)) continue;
    take_elements(k, j * k_row, width, k_type, x->kv_row);
    x->score[j] = transformed(x, i, j, scale_of(x) * dot(x->q, x->kv_row, width));
    top = fmax(top, x->score[j]);
  }
  if (f == F_no_maximum && p->n_q == 1 && top > -(double)INFINITY) top = 0;
  for (int64_t j = 0; f == F_hidden_block && p->score.dense.at && j < x->keys; j++) {
    if (!isinf(x->score[j])) break;
    if (j == 15) top = (double)NAN;
  }
  if (f == F_hidden_first && x->keys && x->p->score.dense.at && isinf(x->score[0])) top = x->score[0];
  return top;
}

static const double *sink_of(const line *x) {
  const fault f = x->fault;
  const bool ignored = f == F_ignored_scores || (f == F_cap_and_sink && x->p->score.softcap > 0);
  const double *sink = ignored ? NULL : x->p->score.sink;
  return sink ? sink + (f == F_sink_far ? 0 : x->h) : NULL;
}

/* What the output is multiplied by: 1 where there is no fault. */
static double gain_of(const line *x, int64_t i, bool again) {
  const attn_problem *p = x->p;
  const int64_t position = i + p->n_kv - p->n_q;
  switch (x->fault) {
  case F_lse_output:
    return x->call->lse ? 1.5 : 1;
  case F_late_position:
    return position >= 3000 ? 1.01 : 1;
  case F_third_head:
    return x->h % 3 == 2 ? 1.01 : 1;
  case F_narrow_values:
    return p->d_v == 1 ? 1.01 : 1;
  case F_second_call:
    return again ? 1.01 : 1;
  case F_idle_threads:
    return x->call->context->threads > p->heads && x->h == p->heads - 1 ? 0.5 : 1;
  case F_many_lines:
    return p->batch * p->heads > 30 && x->b * p->heads + x->h >= 30 ? 1.01 : 1;
  case F_watched:
    return x->call->guards ? 1.01 : 1;
  case F_double_groups:
    return p->dtype == ATTN_F64 && p->heads > p->kv_heads ? 1.01 : 1;
  case F_plain_decode:
    return p->n_q == 1 && p->d_qk == 64 && p->kv_heads < p->heads && attn_problem_plain(p) ? 1.01 : 1;
  case F_wide_cap:
    return p->score.softcap > 10 ? 1.01 : 1;
  case F_small:
    return p->d_qk == 80 ? 1 + 2e-5 : 1;
  default:
    return 1;
  }
}

static void spoil_value(const line *x, double *v) {
  for (int64_t l = 0; l < x->p->d_v; l++)
    v[l] = x->fault == F_half_values ? fmax(fmin(v[l], 65504), -65504) : fabs(v[l]) < 0x1p-14 ? 0 : v[l];
}

/* x->o: the sum of the values by the weights in x->score. */
static void sum_values(const line *x) {
  const attn_problem *p = x->p;
  const attn_dtype type = attn_stored(p->v, p->dtype);
  const char *v = attn_rows(x->call->v, p->v, x->kv_batch, x->kv, p->dtype);
  const bool spoilt = x->fault == F_half_values || x->fault == F_small_values;
  double *o = x->o, *row = x->kv_row;
  for (int64_t l = 0; l < p->d_v; l++) o[l] = 0;
  for (int64_t j = 0; j < x->keys; j++) {
    const double w = x->score[j];
    if (!(w > 0)) continue;
    take_elements(v, j * p->v.row, p->d_v, type, row);
    if (spoilt) spoil_value(x, row);
    for (int64_t l = 0; l < p->d_v; l++) o[l] += w * row[l];
  }
}

static void row(const line *x, int64_t i, bool again) {
  const attn_problem *p = x->p;
  const attn_dtype o_type = attn_stored(p->o, p->dtype);
  const double *sink = sink_of(x);
  const int64_t o_row = x->fault == F_output_stride ? p->d_v : p->o.row;
  char *o = (char *)(uintptr_t)attn_at(attn_rows(x->call->o, p->o, x->b, x->h, p->dtype), i * o_row, o_type);
  double top = score_row(x, i), sum = 0;
  const bool any = x->keys && top > -(double)INFINITY;
  if (any && sink) top = fmax(top, *sink);
  for (int64_t j = 0; j < x->keys; j++)
    sum += x->score[j] = any && !isinf(x->score[j]) ? exp(x->score[j] - top) : 0;
  const double seen = sum;
  if (any && sink) sum += exp(*sink - top);
  sum_values(x);
  for (int64_t l = 0; l < p->d_v; l++) {
    double acc = x->o[l];
    acc = any || x->fault == F_no_keys || x->fault == F_hidden_first ? acc / sum * gain_of(x, i, again) : 0;
    if (x->fault == F_wide_values && l >= p->d_qk) acc *= 1.5;
    attn_set(o, l, o_type, acc);
    if (x->fault == F_half_cut && p->o.stored && fabs(attn_get(o, l, o_type)) > fabs(acc))
      ((uint16_t *)(void *)o)[l]--;
  }
  if (x->call->lse)
    x->call->lse[(x->b * p->heads + x->h) * p->n_q + i] = any ? top + log(x->fault == F_lse_sink ? seen : sum)
                                                          : sink ? *sink
                                                                 : -(double)INFINITY;
}

/* -- all -- */

static void break_down(fault f, const attn_problem *p) {
  static volatile int turns;
  if (f == F_crash && p->d_qk == 17 && p->d_v == 3) raise(SIGSEGV);
  while (f == F_loop && p->batch == 5) turns = 1 - turns;
  while (f == F_sleep && p->batch == 5) pause();
  for (int i = 0; f == F_slow && i < 100000000; i++) turns = 1 - turns;
}

static attn_status execute(const void *state, const attn_call *call) {
  const attn_problem *p = call->context->problem;
  const fault f = fault_of(call->context);
  const bool again = count_execution(state) > 1;
  break_down(f, p);
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++) {
      double *score = call->work, *q = score + p->n_kv, *o = q + p->d_qk, *kv_row = o + p->d_v;
      attn_run *runs = (attn_run *)(void *)(kv_row + p->d_qk + p->d_v);
      line x = {f,     call, p, b,      h,   b, h / (p->heads / p->kv_heads), attn_call_keys(call, b),
                score, q,    o, kv_row, runs};
      if (f == F_many_heads && p->heads > 6) x.kv = h % p->kv_heads;
      if (f == F_query_heads_32 && p->heads > 24) x.kv = 0;
      if (f == F_later_empty && b > 0 && !x.keys) x.keys = 1;
      if (f == F_one_key_head && p->kv_heads == 1 && p->heads > 1) x.kv_batch = 0;
      if (f == F_fourth_entry && p->batch > 3) x.kv_batch = b % 3;
      if (f == F_last_length && p->batch > 3 && b == p->batch - 1) x.keys = p->n_kv;
      for (int64_t i = 0; i < p->n_q; i++) row(&x, i, again);
    }
  return ATTN_OK;
}

static DESCRIBE_METHOD(describe, attn_softmax_row_rounding(c), .work_size = work_size, .plan = plan_to_count,
                       .execute = execute);

ATTN_VARIANT(planted_shape, .summary = "exact attention, with a fault of some shapes to choose",
             .cite = "none", .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_EXACT | ATTN_CAP_PERMUTATION | ATTN_CAP_LSE,
             .params = table, .params_size = sizeof(params), .describe = describe, .cost = exact_cost)
