/* array.c - arrays and Q, K, V: allocation, conversion, and the search for elements that are not finite. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn_arithmetic.h"
#include "data/data.h"

int64_t data_array_count(const data_array *array) {
  int64_t count = 1;
  for (int i = 0; i < array->rank; i++) count *= array->shape[i];
  return count;
}

attn_status data_array_make(attn_dtype dtype, int rank, const int64_t *shape, data_array *out) {
  if (rank < 1 || rank > DATA_RANK_MAX)
    return attn_fail(ATTN_EINVAL, "an array has 1 to %d axes, not %d", DATA_RANK_MAX, rank);
  int64_t factors[DATA_RANK_MAX + 1] = {(int64_t)attn_dtype_size(dtype)};
  data_array made = {.dtype = dtype, .rank = rank};
  for (int i = 0; i < rank; i++) {
    if (shape[i] < 1)
      return attn_fail(ATTN_EINVAL, "axis %d of an array has length %lld", i, (long long)shape[i]);
    factors[i + 1] = made.shape[i] = shape[i];
  }
  size_t bytes;
  attn_status status = attn_size_product("bytes of an array", factors, (size_t)rank + 1, &bytes);
  if (status) return status;
  made.at = malloc(bytes);
  if (!made.at) return attn_fail(ATTN_ENOMEM, "no memory for an array of %zu bytes", bytes);
  *out = made;
  return ATTN_OK;
}

void data_array_free(data_array *array) {
  if (!array) return;
  free(array->at);
  *array = (data_array){0};
}

bool data_find_nonfinite(const data_array *array, const char *name, char place[DATA_PLACE]) {
  const int64_t row = array->shape[array->rank - 1], rows = data_array_count(array) / row;
  int64_t first = -1, count = 0;
  for (int64_t r = 0; r < rows; r++) {
    if (attn_all_finite(attn_at(array->at, r * row, array->dtype), 0, 1, row, array->dtype)) continue;
    for (int64_t i = r * row; i < (r + 1) * row; i++) {
      if (isfinite(attn_get(array->at, i, array->dtype))) continue;
      if (!count++) first = i;
    }
  }
  if (!count) return false;
  int64_t index[DATA_RANK_MAX], rest = first;
  for (int i = array->rank - 1; i >= 0; i--) {
    index[i] = rest % array->shape[i];
    rest /= array->shape[i];
  }
  const double x = attn_get(array->at, first, array->dtype);
  size_t used = (size_t)snprintf(place, DATA_PLACE, "%s", name);
  for (int i = 0; i < array->rank && used < DATA_PLACE; i++)
    used += (size_t)snprintf(place + used, DATA_PLACE - used, "%c%lld", i ? ',' : '[', (long long)index[i]);
  if (used < DATA_PLACE)
    used += (size_t)snprintf(place + used, DATA_PLACE - used, "] is %s",
                             isnan(x) ? "nan"
                             : x < 0  ? "-inf"
                                      : "inf");
  if (count > 1 && used < DATA_PLACE)
    snprintf(place + used, DATA_PLACE - used, ", the first of %lld that are not finite", (long long)count);
  return true;
}

attn_status data_check_finite(const data_array *array, const char *name) {
  char place[DATA_PLACE];
  if (!data_find_nonfinite(array, name, place)) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s; every element must be finite", place);
}

void data_qkv_free(data_qkv *x) {
  if (!x) return;
  free(x->q);
  free(x->k);
  free(x->v);
  for (int i = 0; i < ATTN_EXTRA_KINDS; i++) data_array_free(&x->extra[i]);
  free(x->description);
  *x = (data_qkv){0};
}

attn_problem data_qkv_problem(const data_qkv *x) {
  attn_problem problem = attn_problem_make(x->batch, x->heads, x->n_q, x->d_qk);
  problem.kv_heads = x->kv_heads;
  problem.n_kv = x->n_kv;
  problem.d_v = x->d_v;
  problem.dtype = x->dtype;
  return problem;
}

/* The three tensors of x as arrays that x still owns. */
static void views(const data_qkv *x, data_array view[3]) {
  view[0] = (data_array){x->dtype, 4, {x->batch, x->heads, x->n_q, x->d_qk}, x->q};
  view[1] = (data_array){x->dtype, 4, {x->batch, x->kv_heads, x->n_kv, x->d_qk}, x->k};
  view[2] = (data_array){x->dtype, 4, {x->batch, x->kv_heads, x->n_kv, x->d_v}, x->v};
}

static const char *const names[3] = {"q", "k", "v"};

bool data_qkv_find_nonfinite(const data_qkv *x, char place[DATA_PLACE]) {
  data_array view[3];
  views(x, view);
  for (int i = 0; i < 3; i++)
    if (view[i].at && data_find_nonfinite(&view[i], names[i], place)) return true;
  return false;
}

attn_status data_qkv_check_finite(const data_qkv *x) {
  char place[DATA_PLACE];
  if (!data_qkv_find_nonfinite(x, place)) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s; every element must be finite", place);
}

attn_status data_qkv_convert(data_qkv *x, attn_dtype dtype) {
  if (x->dtype == dtype) return ATTN_OK;
  data_array view[3], made[3] = {{0}};
  attn_status status = ATTN_OK;
  views(x, view);
  for (int i = 0; i < 3; i++) {
    if (!view[i].at) continue;
    status = data_array_make(dtype, 4, view[i].shape, &made[i]);
    if (status) goto out;
    attn_convert(view[i].at, view[i].dtype, data_array_count(&view[i]), dtype, made[i].at);
  }
  void **fields[3] = {&x->q, &x->k, &x->v};
  for (int i = 0; i < 3; i++) {
    free(*fields[i]);
    *fields[i] = made[i].at;
    made[i].at = NULL;
  }
  x->dtype = dtype;
out:
  for (int i = 0; i < 3; i++) data_array_free(&made[i]);
  return status;
}
