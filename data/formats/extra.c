/* extra.c - tensors besides q, k and v: their axes found, and cut to the positions that are kept. */
#include <string.h>

#include "data/formats/npy.h"
#include "data/formats/qkv.h"

/* The shape as [batch, heads, n, columns]; false: it may be read in no way, or in two. */
static bool widen(const data_array *a, int which, int64_t n, int64_t shape[4]) {
  const attn_extra_kind *kind = &attn_extra_kinds[which];
  const int64_t *s = a->shape;
  const bool lines = kind->heads != ATTN_HEADS_ONE, any = kind->columns == ATTN_COLUMNS_ANY,
             columns = kind->heads == ATTN_HEADS_OWN ? a->rank == 3 && s[1] >= n : any;
  if (a->rank == 4)
    memcpy(shape, s, 4 * sizeof *s);
  else if (a->rank == 2 && !(lines && any))
    memcpy(shape, lines ? (int64_t[]){1, s[0], s[1], 1} : (int64_t[]){1, 1, s[0], s[1]}, 4 * sizeof *s);
  else if (a->rank == 3 && (kind->heads != ATTN_HEADS_OWN || (s[1] >= n) != (s[2] >= n)))
    memcpy(shape,
           !lines    ? (int64_t[]){s[0], 1, s[1], s[2]}
           : columns ? (int64_t[]){1, s[0], s[1], s[2]}
                     : (int64_t[]){s[0], s[1], s[2], 1},
           4 * sizeof *s);
  else
    return false;
  return shape[2] >= n;
}

/* n positions of every line from `first' on, in place. */
static void cut(data_array *a, int64_t first, int64_t n) {
  const int64_t *s = a->shape;
  const size_t row = (size_t)s[3] * attn_dtype_size(a->dtype), keep = (size_t)n * row;
  for (int64_t line = 0; line < s[0] * s[1]; line++)
    memmove((char *)a->at + (size_t)line * keep, (char *)a->at + (size_t)(line * s[2] + first) * row, keep);
  a->shape[2] = n;
}

static int64_t rows_of(const data_qkv *x, int which) {
  return attn_extra_kinds[which].of_queries ? x->n_q : x->n_kv;
}

static attn_extra extra_of(const data_array *a, int which) {
  return (attn_extra){
      attn_extra_kinds[which].name, a->dtype, a->at, a->shape[0], a->shape[1], a->shape[2], a->shape[3]};
}

attn_status qkv_put_extra(const char *where, int which, data_array *a, data_qkv *x) {
  const attn_problem p = {.batch = x->batch,
                          .heads = x->heads,
                          .kv_heads = x->kv_heads,
                          .n_q = x->n_q,
                          .n_kv = x->n_kv,
                          .d_qk = x->d_qk,
                          .d_v = x->d_v};
  int64_t shape[4];
  char text[96];
  if (!widen(a, which, rows_of(x, which), shape)) {
    array_print_shape(a, text);
    return attn_fail(ATTN_EINVAL,
                     "%s: %s %s: expected %s, a batch axis before them, of at least %lld positions", where,
                     attn_extra_kinds[which].name, text,
                     attn_extra_kinds[which].heads == ATTN_HEADS_ONE       ? "[n,columns]"
                     : attn_extra_kinds[which].columns == ATTN_COLUMNS_ANY ? "[heads,n,columns]"
                                                                           : "[heads,n] or [heads,n,columns]",
                     (long long)rows_of(x, which));
  }
  a->rank = 4;
  memcpy(a->shape, shape, sizeof shape);
  cut(a, 0, rows_of(x, which));
  const attn_extra made = extra_of(a, which);
  const attn_status status = attn_extra_check(where, &p, &made);
  if (status) return status;
  data_array_free(&x->extra[which]);
  x->extra[which] = *a;
  *a = (data_array){.rank = 0};
  return ATTN_OK;
}

void qkv_cut_extras(data_qkv *x, int64_t first) {
  for (int i = 0; i < ATTN_EXTRA_KINDS; i++)
    if (x->extra[i].rank) cut(&x->extra[i], attn_extra_kinds[i].of_queries ? first : 0, rows_of(x, i));
}

attn_status qkv_read_extras(const data_reading *how, data_qkv *x) {
  attn_status status = ATTN_OK;
  for (int i = 0; !status && i < ATTN_EXTRA_KINDS; i++) {
    data_array a = {.rank = 0};
    if (!how->extra[i]) continue;
    status = data_npy_read(how->extra[i], &a);
    if (!status) status = qkv_put_extra(how->extra[i], i, &a, x);
    data_array_free(&a);
  }
  return status;
}

int64_t data_qkv_extras(const data_qkv *x, attn_extra out[ATTN_EXTRA_KINDS]) {
  int64_t count = 0;
  for (int i = 0; i < ATTN_EXTRA_KINDS; i++)
    if (x->extra[i].rank) out[count++] = extra_of(&x->extra[i], i);
  return count;
}
