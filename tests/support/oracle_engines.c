/* oracle_engines.c - the whole output of a plan from the plan's view (attn_view), in long
 * double.
 *
 * Pattern or nothing: the softmax over the keys of the pattern. Feature map: the quadratic form
 *   o_i = sum_j w_ij v_j / sum_j w_ij,  w_ij = exp(scale_q + scale_k) sum_r f_r(q_i) f_r(k_j)
 * on the plan's own features, times e^b of the distance where the view has a bias. Projection: the softmax
 * over the plan's own slots. Draws are thereby the same; what is tested is everything the engine does with
 * them. */
#include "tests/support/oracle.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/oracle_parts.h"

/* 64-byte aligned, as the engines call it. */
static void *scratch_block(size_t bytes) {
  void *block = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (!block) abort();
  return block;
}

static void softmax_output(const inputs *in, const attn_view *view, oracle *out) {
  const attn_problem *p = &in->problem;
  attn_rounding rounding = view->rounding.unit > 0 ? view->rounding : sequential_rounding(p);
  int64_t *keys = calloc_or_abort((size_t)p->n_kv, sizeof *keys);
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++)
      for (int64_t i = 0; i < p->n_q; i++) {
        int64_t count = oracle_keys(in, view->pattern, b, h, i, keys);
        size_t at = output_index(p, b, h, i, 0);
        oracle_row(in, &rounding, NULL, b, h, i, keys, count, !view->pattern, out->o + at, out->bound + at);
      }
  free(keys);
}

/* -- engine 2 -- */

typedef struct features {
  void *f;
  double *scale;
} features;

static features map_rows(const attn_plan *plan, const attn_feature_map *map, const inputs *in, tensor which,
                         int64_t batch, int64_t head, int64_t kv_head, int64_t rows) {
  const attn_problem *p = &in->problem;
  const attn_context *context = attn_plan_context(plan);
  size_t size = attn_dtype_size(p->dtype);
  features x = {scratch_block((size_t)(rows * map->columns) * size),
                scratch_block((size_t)rows * sizeof(double))};
  attn_stride s = which == TENSOR_Q ? p->q : p->k;
  if (rows)
    map->map(map->state, context,
             &(attn_feature_rows){kv_head, which == TENSOR_Q ? ATTN_QUERY : ATTN_KEY,
                                  head_rows(in, which, batch, head), s.row,
                                  which == TENSOR_Q ? p->n_kv - p->n_q : 0, rows},
             x.f, map->columns, x.scale);
  return x;
}

/* What TOEP says transforms in fp64 are off by, over norms of features: by their length and the factors of
 * all distances. */
static double transform_error(const attn_toeplitz *x, const attn_problem *p, int64_t head) {
  const double u = ldexp(1, -53), f = 10 * u * log2((double)x->length);
  double one = 0, squares = 0;
  for (int64_t distance = 1 - p->n_kv - p->n_q; distance < p->n_kv; distance++) {
    const double t = exp(x->law(x->state, head, distance));
    one += t;
    squares += t * t;
  }
  return 1.1 * (double)x->transforms * ((2 * f + 4 * u) * one + (f + 4 * u) * sqrt(squares));
}

/* Any order of summation: chains of columns and count terms, a rescale per key at most. x: NULL, or the bias
 * of the distance. */
static void linear_row(const inputs *in, const attn_feature_map *map, const attn_toeplitz *x,
                       const features *fq, const features *fk, int64_t batch, int64_t head, int64_t i,
                       int64_t count, double *o, double *bound) {
  const attn_problem *p = &in->problem;
  attn_dtype t = p->dtype;
  double u = t == ATTN_F64 ? ldexp(1, -53) : ldexp(1, -24), den_error = 0;
  long double top = -(long double)INFINITY, den = 0;
  long double *w = calloc_or_abort((size_t)count, sizeof *w);
  double *error = calloc_or_abort((size_t)count, sizeof *error);
  for (int64_t j = 0; j < count; j++) top = fmaxl(top, (long double)fk->scale[j]);
  double g = oracle_gamma((double)(map->columns + count) + 8, u), mixed = x ? transform_error(x, p, head) : 0;
  for (int64_t j = 0; j < count; j++) {
    long double drop = (long double)fk->scale[j] - top, stabiliser = expl(drop), sum = 0, absolute = 0;
    double q_square = 0, k_square = 0;
    const long double factor =
        x ? expl((long double)x->law(x->state, head, attn_problem_position(p, i) - j)) : 1;
    for (int64_t r = 0; r < map->columns; r++) {
      long double a = (long double)element_at(t, fq->f, i * map->columns + r) + (long double)map->eps;
      long double c =
          (long double)element_at(t, fk->f, j * map->columns + r) * stabiliser + (long double)map->eps;
      sum += factor * a * c;
      absolute += factor * fabsl(a * c);
      q_square += (double)(a * a);
      k_square += (double)(c * c);
    }
    w[j] = sum;
    double log_error = 3 * u * (double)-drop + (1 + (double)count) * 8 * u;
    error[j] = (double)absolute * (expm1(log_error) + g * exp(log_error)) + mixed * sqrt(q_square * k_square);
    den += sum;
    den_error += error[j];
  }
  for (int64_t l = 0; l < p->d_v; l++) {
    long double num = 0;
    double num_error = 0;
    int64_t kv_head = head / (p->heads / p->kv_heads);
    for (int64_t j = 0; j < count; j++) {
      double v = inputs_get(in, TENSOR_V, batch, kv_head, j, l);
      num += w[j] * (long double)v;
      num_error += error[j] * fabs(v);
    }
    if (map->unnormalised) den = 1, den_error = 0;
    o[l] = (double)(num / den);
    double room = (double)fabsl(den) - den_error;
    bound[l] = room > 0 ? (num_error + fabs(o[l]) * den_error) / room + 4 * u * fabs(o[l]) : (double)INFINITY;
  }
  free(w);
  free(error);
}

static void linear_output(const attn_plan *plan, const inputs *in, const attn_feature_map *map,
                          const attn_toeplitz *x, oracle *out) {
  const attn_problem *p = &in->problem;
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++) {
      int64_t kv_head = h / (p->heads / p->kv_heads), existing = inputs_keys(in, b);
      features fk = map_rows(plan, map, in, TENSOR_K, b, kv_head, kv_head, existing);
      features fq = map_rows(plan, map, in, TENSOR_Q, b, h, kv_head, p->n_q);
      for (int64_t i = 0; i < p->n_q; i++) {
        int64_t count = existing, position = i + p->n_kv - p->n_q;
        if (p->causal && position + 1 < count) count = position + 1;
        size_t at = output_index(p, b, h, i, 0);
        if (count > 0) linear_row(in, map, x, &fq, &fk, b, h, i, count, out->o + at, out->bound + at);
      }
      free(fk.f);
      free(fk.scale);
      free(fq.f);
      free(fq.scale);
    }
}

/* -- engine 3 -- */

static int64_t project(const attn_plan *plan, const attn_projection *projection, tensor which, int64_t head,
                       const void *x, int64_t stride, int64_t rows, void *y) {
  const attn_context *context = attn_plan_context(plan);
  int64_t d = which == TENSOR_K ? context->problem->d_qk : context->problem->d_v;
  void *scratch = scratch_block(projection->scratch);
  attn_slab slab = {.head = head,
                    .side = which == TENSOR_K ? ATTN_KEY : ATTN_VALUE,
                    .x = x,
                    .x_row = stride,
                    .rows = rows,
                    .d = d,
                    .y = y,
                    .y_row = d};
  int64_t used = projection->project(projection->state, context, &slab, scratch);
  free(scratch);
  return used;
}

/* Slots of a head, and (errors) what rounding may have done to them: gamma_{n + 16} max_j |E_sj| sum_j
 * |x_jl|. The matrix E is what the projection makes of the identity, d columns at a time; n + 16 roundings
 * cover any order of summation, and the log n stages of a fast transform, whose intermediate sums are no
 * larger. */
static void *project_rows(const attn_plan *plan, const attn_projection *projection, const inputs *in,
                          tensor which, int64_t batch, int64_t head, int64_t *used, double *errors) {
  const attn_problem *p = &in->problem;
  attn_dtype t = p->dtype;
  int64_t d = which == TENSOR_K ? p->d_qk : p->d_v, stride = which == TENSOR_K ? p->k.row : p->v.row;
  int64_t rows = inputs_keys(in, batch);
  size_t size = attn_dtype_size(t), bytes = (size_t)(projection->slots * d) * size;
  const void *x = head_rows(in, which, batch, head);
  void *y = scratch_block(bytes);
  *used = project(plan, projection, which, head, x, stride, rows, y);
  if (!errors) return y;
  double *total = calloc_or_abort((size_t)d, sizeof *total),
         *top = calloc_or_abort((size_t)*used, sizeof *top);
  for (int64_t j = 0; j < rows * d; j++) total[j % d] += fabs(element_at(t, x, j / d * stride + j % d));
  unsigned char *identity = calloc_or_abort((size_t)(rows * d), size), *column = scratch_block(bytes);
  for (int64_t first = 0; first < rows; first += d) {
    memset(identity, 0, (size_t)(rows * d) * size);
    for (int64_t c = 0; c < d && first + c < rows; c++) attn_set(identity, (first + c) * d + c, t, 1);
    project(plan, projection, which, head, identity, d, rows, column);
    for (int64_t at = 0; at < *used * d; at++)
      top[at / d] = fmax(top[at / d], fabs(element_at(t, column, at)));
  }
  double g = oracle_gamma((double)rows + 16, t == ATTN_F64 ? 0x1p-53 : 0x1p-24);
  for (int64_t at = 0; at < *used * d; at++) errors[at] = g * top[at / d] * total[at % d];
  free(total);
  free(top);
  free(identity);
  free(column);
  return y;
}

static void compression_head(const attn_plan *plan, const inputs *in, const attn_view *view, bool of_run,
                             int64_t batch, int64_t head, oracle *out) {
  const attn_problem *p = &in->problem;
  int64_t kv_head = head / (p->heads / p->kv_heads), slots = 0, value_slots = 0,
          most = view->projection->slots;
  double *ek = calloc_or_abort((size_t)(most * p->d_qk), sizeof *ek);
  double *ev = calloc_or_abort((size_t)(most * p->d_v), sizeof *ev);
  slot_errors errors = {ek, ev};
  unsigned char *k =
      project_rows(plan, view->projection, in, TENSOR_K, batch, kv_head, &slots, of_run ? ek : NULL);
  unsigned char *v =
      project_rows(plan, view->projection, in, TENSOR_V, batch, kv_head, &value_slots, of_run ? ev : NULL);
  if (slots != value_slots) note_failure("%d key slots but %d value slots", (int)slots, (int)value_slots);
  inputs small = {.problem = *p, .k = k, .v = v};
  small.problem.batch = small.problem.heads = small.problem.kv_heads = 1;
  small.problem.n_kv = slots;
  small.problem.k = (attn_stride){0, 0, p->d_qk, 0};
  small.problem.v = (attn_stride){0, 0, p->d_v, 0};
  small.q = (unsigned char *)(uintptr_t)head_rows(in, TENSOR_Q, batch, head);
  attn_rounding rounding = view->rounding.unit > 0 ? view->rounding : sequential_rounding(&small.problem);
  int64_t *keys = calloc_or_abort((size_t)slots, sizeof *keys);
  for (int64_t j = 0; j < slots; j++) keys[j] = j;
  for (int64_t i = 0; i < p->n_q; i++) {
    size_t at = output_index(p, batch, head, i, 0);
    oracle_row(&small, &rounding, &errors, 0, 0, i, keys, slots, true, out->o + at, out->bound + at);
  }
  free(keys);
  free(k);
  free(v);
  free(ek);
  free(ev);
}

static oracle output_of(const attn_plan *plan, const inputs *in, bool of_run) {
  const attn_problem *p = &in->problem;
  attn_view view;
  if (attn_plan_inspect(plan, &view)) {
    note_failure("inspect of \"%s\": %s", attn_plan_spec(plan), attn_last_error());
    return (oracle){0};
  }
  oracle out = {calloc_or_abort(output_count(p), sizeof(double)),
                calloc_or_abort(output_count(p), sizeof(double))};
  if (view.features || view.toeplitz)
    linear_output(plan, in, view.features ? view.features : view.toeplitz->features, view.toeplitz, &out);
  else if (view.projection) {
    for (int64_t b = 0; b < p->batch; b++)
      for (int64_t h = 0; h < p->heads; h++)
        if (inputs_keys(in, b) > 0) compression_head(plan, in, &view, of_run, b, h, &out);
  } else {
    softmax_output(in, &view, &out);
    if (view.relocation || (!view.pattern && !(view.caps & ATTN_CAP_EXACT))) {
      free(out.o);
      out.o = NULL;
    }
    /* What stands between factors of low rank amplifies rounding: to half of the digits, as PROP-LEN
     * judges. */
    for (size_t at = 0; view.low_rank && at < output_count(p); at++)
      out.bound[at] *= p->dtype == ATTN_F64 ? 0x1p26 : 0x1p12;
  }
  return out;
}

oracle oracle_of(const attn_plan *plan, const inputs *in) { return output_of(plan, in, false); }
oracle oracle_of_run(const attn_plan *plan, const inputs *in) { return output_of(plan, in, true); }

void *run_within(const attn_plan *plan, const inputs *in, const char *what) {
  void *o = run_plain(plan, in);
  oracle exact = oracle_of(plan, in);
  expect_within(&in->problem, o, &exact, what);
  oracle_free(&exact);
  return o;
}

void expect_spec_within(const char *spec, const attn_options *options, const inputs *in, const char *what) {
  attn_plan *plan = plan_or_note(&in->problem, spec, options);
  if (plan) free(run_within(plan, in, what));
  attn_plan_destroy(plan);
}
