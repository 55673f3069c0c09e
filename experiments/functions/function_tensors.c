/* function_tensors.c - see function_tensors.h. */
#include "experiments/functions/function_tensors.h"

#include <math.h>
#include <string.h>

enum { ALIGNMENT = 64 };
static const double garbage = 100, enormous = 1e12; /* in place of numbers from `enormous` on */

static size_t behind(size_t *end, int64_t count, size_t size) {
  const size_t at = *end;
  *end = attn_size_sum(at, (attn_size_times((size_t)count, size) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  return at;
}

function_places function_places_of(const attn_problem *p) {
  const size_t size = attn_dtype_size(p->dtype);
  const int64_t queries = p->batch * p->heads * p->n_q, keys = p->batch * p->kv_heads * p->n_kv;
  function_places x = {.end = FUNCTION_HEADER};
  x.q = behind(&x.end, queries * p->d_qk, size);
  x.k = behind(&x.end, keys * p->d_qk, size);
  x.v = behind(&x.end, keys * p->d_v, size);
  x.o = behind(&x.end, queries * p->d_v, size);
  x.kv_len = behind(&x.end, p->batch, sizeof(int64_t));
  return x;
}

double function_usual_scale(const attn_problem *p) { return 1 / sqrt((double)p->d_qk); }

bool function_scale_is_usual(const attn_problem *p) {
  return fabs(p->scale - function_usual_scale(p)) <= 1e-12 * function_usual_scale(p);
}

static void put_row(void *to, const void *from, int64_t d, double gain, attn_dtype type) {
  for (int64_t l = 0; l < d; l++) {
    const double x = from ? gain * attn_get(from, l, type) : garbage;
    attn_set(to, l, type, fabs(x) < enormous ? x : garbage);
  }
}

static void put(const attn_call *call, const void *base, attn_stride at, int64_t heads, int64_t n, int64_t d,
                double gain, bool keys, char *to) {
  const attn_problem *p = call->context->problem;
  for (int64_t row = 0; row < p->batch * heads * n; row++) {
    const int64_t b = row / n / heads, i = row % n;
    const bool exists = !keys || i < attn_call_keys(call, b);
    put_row(attn_at(to, row * d, p->dtype),
            exists ? attn_row(base, at, b, row / n % heads, i, p->dtype) : NULL, d, gain, p->dtype);
  }
}

void function_operands_write(const attn_call *call, const function_places *x, bool scaled, char *memory) {
  const attn_problem *p = call->context->problem;
  put(call, call->q, p->q, p->heads, p->n_q, p->d_qk, scaled ? 1 : p->scale / function_usual_scale(p), false,
      memory + x->q);
  put(call, call->k, p->k, p->kv_heads, p->n_kv, p->d_qk, 1, true, memory + x->k);
  put(call, call->v, p->v, p->kv_heads, p->n_kv, p->d_v, 1, true, memory + x->v);
  for (int64_t b = 0; b < p->batch; b++) {
    const int64_t keys = attn_call_keys(call, b);
    memcpy(memory + x->kv_len + (size_t)b * sizeof keys, &keys, sizeof keys);
  }
}

void function_output_read(const attn_call *call, const char *o) {
  const attn_problem *p = call->context->problem;
  for (int64_t row = 0; row < p->batch * p->heads * p->n_q; row++)
    memcpy(attn_row(call->o, p->o, row / p->n_q / p->heads, row / p->n_q % p->heads, row % p->n_q, p->dtype),
           attn_at((char *)(uintptr_t)o, row * p->d_v, p->dtype), attn_row_bytes(p->d_v, p->dtype));
}
