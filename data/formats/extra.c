/* extra.c - tensors besides q, k and v: their axes found, and cut to the positions that are kept. */
#include <string.h>

#include "data/formats/npy.h"
#include "data/formats/qkv.h"

const char *const data_extra_names[] = {"decay", "beta", "erase", "write", NULL};

/* The shape as [batch, heads, n, columns]; false: it may be read in no way, or in two. */
static bool widen(const data_array *a, int64_t n, int64_t shape[4]) {
  const int64_t *s = a->shape;
  if (a->rank == 4)
    memcpy(shape, s, 4 * sizeof *s);
  else if (a->rank == 2)
    memcpy(shape, (int64_t[]){1, s[0], s[1], 1}, 4 * sizeof *s);
  else if (a->rank == 3 && (s[1] >= n) != (s[2] >= n))
    memcpy(shape, s[2] >= n ? (int64_t[]){s[0], s[1], s[2], 1} : (int64_t[]){1, s[0], s[1], s[2]},
           4 * sizeof *s);
  else
    return false;
  return shape[2] >= n;
}

/* The first n positions of every line, in place. */
static void cut(data_array *a, int64_t n) {
  const int64_t *s = a->shape;
  const size_t row = (size_t)s[3] * attn_dtype_size(a->dtype), keep = (size_t)n * row;
  for (int64_t line = 1; line < s[0] * s[1]; line++)
    memmove((char *)a->at + (size_t)line * keep, (char *)a->at + (size_t)(line * s[2]) * row, keep);
  a->shape[2] = n;
}

attn_status qkv_put_extra(const char *where, int which, data_array *a, data_qkv *x) {
  const int64_t columns = which == 1 ? 1 : which == 3 ? x->d_v : x->d_qk;
  int64_t shape[4];
  char text[96];
  if (!widen(a, x->n_kv, shape) || (shape[0] != 1 && shape[0] != x->batch) ||
      (shape[1] != 1 && shape[1] != x->kv_heads && shape[1] != x->heads) ||
      (shape[3] != 1 && shape[3] != columns)) {
    array_print_shape(a, text);
    return attn_fail(
        ATTN_EINVAL,
        "%s: %s %s: expected [heads,n] or [heads,n,columns], a batch axis before them, of %lld or "
        "%lld heads or 1, at least %lld positions and 1 or %lld columns",
        where, data_extra_names[which], text, (long long)x->heads, (long long)x->kv_heads, (long long)x->n_kv,
        (long long)columns);
  }
  a->rank = 4;
  memcpy(a->shape, shape, sizeof shape);
  cut(a, x->n_kv);
  data_array_free(&x->extra[which]);
  x->extra[which] = *a;
  *a = (data_array){.rank = 0};
  return ATTN_OK;
}

void qkv_cut_extras(data_qkv *x) {
  for (int i = 0; i < DATA_EXTRAS; i++)
    if (x->extra[i].rank) cut(&x->extra[i], x->n_kv);
}

attn_status qkv_read_extras(const data_reading *how, data_qkv *x) {
  attn_status status = ATTN_OK;
  for (int i = 0; !status && i < DATA_EXTRAS; i++) {
    data_array a = {.rank = 0};
    if (!how->extra[i]) continue;
    status = data_npy_read(how->extra[i], &a);
    if (!status) status = qkv_put_extra(how->extra[i], i, &a, x);
    data_array_free(&a);
  }
  return status;
}

int64_t data_qkv_extras(const data_qkv *x, attn_extra out[DATA_EXTRAS]) {
  int64_t count = 0;
  for (int i = 0; i < DATA_EXTRAS; i++) {
    const data_array *a = &x->extra[i];
    if (a->rank)
      out[count++] = (attn_extra){data_extra_names[i], a->dtype,    a->at,      a->shape[0],
                                  a->shape[1],         a->shape[2], a->shape[3]};
  }
  return count;
}
