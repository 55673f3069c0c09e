/* problem.c - shapes, strides and masks: defaults, validity, and the addresses they imply. */
#include "core/internal.h"

#include <math.h>

attn_problem attn_problem_make(int64_t batch, int64_t heads, int64_t n, int64_t d) {
  return (attn_problem){.batch = batch,
                        .heads = heads,
                        .kv_heads = heads,
                        .n_q = n,
                        .n_kv = n,
                        .d_qk = d,
                        .d_v = d,
                        .dtype = ATTN_F32,
                        .scale = 1 / sqrt((double)d)};
}

attn_status attn_size_product(const char *what, const int64_t *factors, size_t count, size_t *out) {
  size_t product = 1;
  if (!what) return attn_null("size", "what");
  if (!factors && count) return attn_null(what, "factors");
  if (!out) return attn_null(what, "result");
  for (size_t i = 0; i < count; i++) {
    if (factors[i] < 0)
      return attn_fail(ATTN_EINVAL, "%s: negative factor %lld", what, (long long)factors[i]);
    size_t f = (size_t)factors[i];
    if (f && product > PTRDIFF_MAX / f) return attn_fail(ATTN_EINVAL, "%s: size overflows", what);
    product *= f;
  }
  *out = product;
  return ATTN_OK;
}

attn_status attn_strides_fit(const char *name, int64_t extents[3][2]) {
  size_t elements = 0, bytes = 0;
  for (int i = 0; i < 3; i++) {
    const int64_t factors[] = {extents[i][0], extents[i][1], 8};
    attn_status status = attn_size_product(name, factors, 3, &bytes);
    if (status) return status;
    elements += bytes / 8;
  }
  return elements <= PTRDIFF_MAX / 8 ? ATTN_OK : attn_fail(ATTN_EINVAL, "%s: strides overflow", name);
}

static attn_status check_tensor(const char *name, const attn_problem *p, int64_t heads, int64_t n, int64_t d,
                                attn_stride *s) {
  size_t ignored;
  const attn_dtype stored = attn_stored(*s, p->dtype);
  const int64_t row = attn_row_elements(d, stored), unit = attn_row_elements(1, stored);
  int64_t all[] = {p->batch, heads, n, row, (int64_t)attn_dtype_size(p->dtype)};
  attn_status status = attn_size_product(name, all, 5, &ignored);
  if (status) return status;
  if (!s->batch && !s->head && !s->row) {
    *s = (attn_stride){heads * n * row, n * row, row, s->stored};
    return ATTN_OK;
  }
  if (s->batch < 0 || s->head < 0 || s->row < 0) return attn_fail(ATTN_EINVAL, "%s: negative stride", name);
  if (s->batch % unit || s->head % unit || s->row % unit)
    return attn_fail(ATTN_EINVAL, "%s: strides of %s are multiples of %lld elements", name,
                     attn_numbers[stored].name, (long long)unit);
  return attn_strides_fit(name, (int64_t[3][2]){{p->batch, s->batch}, {heads, s->head}, {n, s->row}});
}

/* Rows of the output must not overlap: each axis, by ascending stride, must step over all that is inside
 * it. */
static attn_status check_output(const attn_problem *p) {
  int64_t axis[3][2] = {{p->o.row, p->n_q}, {p->o.head, p->heads}, {p->o.batch, p->batch}};
  for (int i = 0; i < 3; i++)
    for (int j = i + 1; j < 3; j++)
      if (axis[j][0] < axis[i][0]) {
        int64_t swap[2] = {axis[i][0], axis[i][1]};
        axis[i][0] = axis[j][0], axis[i][1] = axis[j][1];
        axis[j][0] = swap[0], axis[j][1] = swap[1];
      }
  int64_t inside = p->d_v;
  for (int i = 0; i < 3; i++) {
    if (axis[i][1] == 1) continue;
    if (axis[i][0] < inside) return attn_fail(ATTN_EINVAL, "o: strides make rows of the output overlap");
    inside = axis[i][0] * axis[i][1];
  }
  return ATTN_OK;
}

attn_status attn_gradient_stride(const attn_problem *p, attn_stride *s) {
  if (attn_stored(*s, p->dtype) != p->dtype)
    return attn_fail(ATTN_EINVAL, "d_o: stored in another type than %s", attn_numbers[p->dtype].name);
  s->stored = 0;
  return check_tensor("d_o", p, p->heads, p->n_q, p->d_v, s);
}

/* How tensors are stored, and the arithmetic that follows. */
static attn_status resolve_types(attn_problem *p) {
  struct {
    const char *name;
    attn_stride *of;
    bool codes;
  } tensors[] = {{"q", &p->q, false}, {"k", &p->k, true}, {"v", &p->v, true}, {"o", &p->o, false}};
  const attn_dtype given = p->dtype;
  if ((unsigned)given >= ATTN_DTYPES) return attn_fail(ATTN_EINVAL, "problem: unknown dtype %d", (int)given);
  p->dtype = attn_numbers[given].arithmetic;
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    attn_stride *s = tensors[i].of;
    if ((unsigned)s->stored >= (unsigned)(tensors[i].codes ? ATTN_STORES : ATTN_DTYPES))
      return attn_fail(ATTN_EINVAL, "problem: %s.stored: unknown dtype %d", tensors[i].name, (int)s->stored);
    if (!s->stored) s->stored = given;
    if (attn_numbers[s->stored].arithmetic != p->dtype)
      return attn_fail(ATTN_EINVAL, "problem: %s is stored in %s, which cannot be used with dtype %s",
                       tensors[i].name, attn_numbers[s->stored].name, attn_numbers[p->dtype].name);
    if (s->stored == p->dtype) s->stored = 0;
  }
  return ATTN_OK;
}

attn_status attn_problem_resolve(attn_problem *problem) {
  if (!problem) return attn_null("problem", "problem");
  attn_problem p = *problem;
  struct {
    const char *name;
    int64_t value;
  } sizes[] = {{"batch", p.batch}, {"heads", p.heads}, {"kv_heads", p.kv_heads},
               {"n_q", p.n_q},     {"n_kv", p.n_kv},   {"d_qk", p.d_qk},
               {"d_v", p.d_v}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i].value < 1)
      return attn_fail(ATTN_EINVAL, "problem: %s = %lld, expected at least 1", sizes[i].name,
                       (long long)sizes[i].value);
  if (p.heads % p.kv_heads)
    return attn_fail(ATTN_EINVAL, "problem: kv_heads = %lld does not divide heads = %lld",
                     (long long)p.kv_heads, (long long)p.heads);
  attn_status status = resolve_types(&p);
  const double most = status ? 0 : ATTN_SCORE_MOST * attn_numbers[p.dtype].largest;
  if (!status && !(fabs(p.scale) <= most))
    return attn_fail(ATTN_EINVAL, "problem: scale = %g, expected a number from -%g to %g", p.scale, most,
                     most);
  if (!status) status = attn_score_check(&p);
  if (status || (status = attn_mask_check(&p))) return status;
  if ((status = check_tensor("q", &p, p.heads, p.n_q, p.d_qk, &p.q))) return status;
  if ((status = check_tensor("k", &p, p.kv_heads, p.n_kv, p.d_qk, &p.k))) return status;
  if ((status = check_tensor("v", &p, p.kv_heads, p.n_kv, p.d_v, &p.v))) return status;
  if ((status = check_tensor("o", &p, p.heads, p.n_q, p.d_v, &p.o))) return status;
  if ((status = check_output(&p))) return status;
  *problem = p;
  return ATTN_OK;
}

const void *attn_rows(const void *base, attn_stride s, int64_t batch, int64_t head, attn_dtype dtype) {
  if (!base) return NULL;
  return attn_at(base, batch * s.batch + head * s.head, attn_stored(s, dtype));
}

attn_problem attn_problem_unrounded(const attn_problem *p) {
  attn_problem own = *p;
  if (p->o.stored) own.o = (attn_stride){p->heads * p->n_q * p->d_v, p->n_q * p->d_v, p->d_v, 0};
  return own;
}

void attn_store_outputs(const attn_call *call, const void *o) {
  const attn_problem *p = call->context->problem;
#pragma omp parallel for num_threads(call->context->threads) schedule(static)
  for (int64_t x = 0; x < p->batch * p->heads * p->n_q; x++) {
    const int64_t line = x / p->n_q;
    fenv_t outer;
    attn_float_enter(&outer);
    attn_store_row(call->context->kernels, attn_stored(p->o, p->dtype), p->d_v,
                   attn_at(o, x * p->d_v, p->dtype),
                   attn_row(call->o, p->o, line / p->heads, line % p->heads, x % p->n_q, p->dtype));
    attn_float_leave(&outer);
  }
}

double attn_problem_bytes(const attn_problem *p) {
  if (!p) return (double)NAN;
  const double q = (double)(p->batch * p->heads * p->n_q), kv = (double)(p->batch * p->kv_heads * p->n_kv);
  const attn_stride *s[] = {&p->q, &p->k, &p->v, &p->o};
  const double rows[] = {q, kv, kv, q};
  const int64_t d[] = {p->d_qk, p->d_qk, p->d_v, p->d_v};
  double bytes = 0;
  for (int i = 0; i < 4; i++) bytes += rows[i] * (double)attn_row_bytes(d[i], attn_stored(*s[i], p->dtype));
  return bytes;
}

int64_t attn_call_keys(const attn_call *call, int64_t batch) {
  if (!call) return 0;
  return call->kv_len ? call->kv_len[batch] : call->context->problem->n_kv;
}

attn_problem attn_call_problem(const attn_call *call, int64_t batch, int64_t head) {
  if (!call) return (attn_problem){0};
  attn_problem p = *call->context->problem;
  const attn_key_positions *k = &call->k_position;
  p.positions.shift = attn_call_position(call, batch, 0) - attn_problem_position(&p, 0);
  if (k->at) {
    p.positions.key = k->at + batch * k->batch + head / (p.heads / p.kv_heads) * k->head;
    p.positions.keys = attn_call_keys(call, batch);
  }
  return p;
}

bool attn_all_finite(const void *x, int64_t row_stride, int64_t rows, int64_t d, attn_dtype t) {
  bool finite = true;
  for (int64_t i = 0; x && i < rows && finite; i++)
    finite = attn_numbers[t].finite(attn_at(x, i * row_stride, t), d);
  return finite;
}
