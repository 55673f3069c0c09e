/* placement.c - see placement.h. Only LAYOUT_PLAIN is what the other properties run on. */
#include "experiments/properties/placement.h"

#include <stdlib.h>
#include <string.h>

const char *const layout_names[LAYOUTS] = {
    "[batch, heads, n, d]", "[batch, n, heads, d]", "K and V side by side in one buffer",
    "gaps behind rows, heads and batch entries", "room for more rows behind each head"};
static const int canary = 0x5a;

static attn_stride stride_of(layout_kind kind, int64_t heads, int64_t n, int64_t d, int64_t beside) {
  const int64_t row = d + beside + (kind == LAYOUT_SPACED ? 3 : 0),
                head = (n + (kind == LAYOUT_ROOMY ? 3 : 0)) * row + (kind == LAYOUT_SPACED ? 5 : 0);
  if (kind == LAYOUT_INTERLEAVED) return (attn_stride){n * heads * d, d, heads * d, 0};
  return (attn_stride){heads * head + (kind == LAYOUT_SPACED ? 7 : 0), head, row, 0};
}

/* Elements up to the end of the last row, `rows` being those of the last head. */
static int64_t extent(const attn_problem *p, attn_stride s, int64_t heads, int64_t rows, int64_t d) {
  const int64_t last = rows > 0 ? (rows - 1) * s.row + d : 0;
  return (p->batch - 1) * s.batch + (heads - 1) * s.head + last;
}

static attn_status block_open(guard *g, int64_t elements, attn_dtype t) {
  attn_status status =
      guard_open(g, (size_t)(elements ? elements : 1) * attn_dtype_size(t), attn_dtype_size(t));
  if (!status) memset(g->at, 0xff, g->bytes); /* NaN */
  return status;
}

static int64_t keys_of(const trial_inputs *in, int64_t batch) {
  return in->padded ? in->kv_len[batch] : in->problem.n_kv;
}

static void copy_rows(const trial_inputs *in, attn_side side, attn_stride s, unsigned char *to) {
  const attn_problem *p = &in->problem;
  const int64_t heads = side == ATTN_QUERY ? p->heads : p->kv_heads;
  const size_t size = attn_dtype_size(p->dtype),
               bytes = (size_t)(side == ATTN_VALUE ? p->d_v : p->d_qk) * size;
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t i = 0; i < (side == ATTN_QUERY ? p->n_q : keys_of(in, b)); i++)
        memcpy(to + (size_t)(b * s.batch + h * s.head + i * s.row) * size, trial_row(in, side, b, h, i),
               bytes);
}

attn_status layout_make(const trial_inputs *in, layout_kind kind, layout *out) {
  layout x = {.kind = kind, .problem = in->problem};
  attn_problem *p = &x.problem;
  const bool shared = kind == LAYOUT_SHARED;
  const int64_t last = keys_of(in, p->batch - 1);
  p->q = stride_of(kind, p->heads, p->n_q, p->d_qk, 0);
  p->k = stride_of(kind, p->kv_heads, p->n_kv, p->d_qk, shared ? p->d_v + 1 : 0);
  p->v = shared ? p->k : stride_of(kind, p->kv_heads, p->n_kv, p->d_v, 0);
  p->o = stride_of(kind, p->heads, p->n_q, p->d_v, 0);
  attn_status status = block_open(&x.q, extent(p, p->q, p->heads, p->n_q, p->d_qk), p->dtype);
  if (!status)
    status = block_open(&x.k, extent(p, p->k, p->kv_heads, last, p->d_qk + (shared ? p->d_v : 0)), p->dtype);
  if (!status && !shared) status = block_open(&x.v, extent(p, p->v, p->kv_heads, last, p->d_v), p->dtype);
  if (!status) status = block_open(&x.o, extent(p, p->o, p->heads, p->n_q, p->d_v), p->dtype);
  if (status) {
    layout_free(&x);
    return status;
  }
  x.v_at = shared ? x.k.at + (size_t)p->d_qk * attn_dtype_size(p->dtype) : x.v.at;
  copy_rows(in, ATTN_QUERY, p->q, x.q.at);
  copy_rows(in, ATTN_KEY, p->k, x.k.at);
  copy_rows(in, ATTN_VALUE, p->v, x.v_at);
  *out = x;
  return ATTN_OK;
}

void layout_free(layout *x) {
  guard_close(&x->q);
  guard_close(&x->k);
  guard_close(&x->v);
  guard_close(&x->o);
}

/* Every row of O by turns: NaN before the run; afterwards copied, and painted, so that what is not a row
 * shows. */
static void output_rows(const layout *x, char *to, bool before) {
  const attn_problem *p = &x->problem;
  const size_t size = attn_dtype_size(p->dtype), bytes = (size_t)p->d_v * size;
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t h = 0; h < p->heads; h++)
      for (int64_t i = 0; i < p->n_q; i++) {
        unsigned char *at = x->o.at + (size_t)(b * p->o.batch + h * p->o.head + i * p->o.row) * size;
        if (before) {
          memset(at, 0xff, bytes);
          continue;
        }
        memcpy(to + (size_t)((b * p->heads + h) * p->n_q + i) * bytes, at, bytes);
        memset(at, canary, bytes);
      }
}

void layout_blank(const layout *x) {
  memset(x->o.at, canary, x->o.bytes);
  output_rows(x, NULL, true);
}

bool layout_take(const layout *x, char *to) {
  bool gap = false;
  output_rows(x, to, false);
  for (size_t i = 0; i < x->o.bytes; i++) gap = gap || x->o.at[i] != canary;
  return gap;
}

attn_status layout_run(const trial *t, const trial_inputs *in, const layout *x, char **out,
                       guard_touch *touch, bool *gap) {
  const attn_problem *p = &x->problem;
  const guard *const blocks[] = {&x->q, &x->k, &x->v};
  attn_plan *plan = NULL;
  attn_status status = attn_plan_create_spec(&plan, p, t->spec, &t->options);
  if (status == ATTN_EINVAL) status = attn_fail(ATTN_EUNSUPPORTED, "%s", attn_last_error());
  if (status) return status;
  char *o = region_take(t->memory, p->batch * p->heads * p->n_q * p->d_v, attn_dtype_size(p->dtype)),
       *work = region_take(t->memory, 1, attn_plan_work_size(plan) + 1);
  if ((status = region_status(t->memory, "for the output of a trial"))) goto out;
  layout_blank(x);
  if ((status = guard_watch(blocks, x->v.at ? 3 : 2))) goto out;
  status = attn_plan_execute(plan, x->q.at, x->k.at, x->v_at, in->padded ? in->kv_len : NULL, x->o.at, work);
  *touch = guard_unwatch();
  if (status) goto out;
  *gap = layout_take(x, o);
  *out = o;
out:
  attn_plan_destroy(plan);
  return status;
}
