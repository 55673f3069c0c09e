/* extra_tensors.c - tensors of a call besides q, k and v: which there are, and their shapes. */
#include "core/internal.h"

#include <stdio.h>
#include <string.h>

const attn_extra_kind attn_extra_kinds[ATTN_EXTRA_KINDS] = {
    {"decay", false, ATTN_HEADS_OWN, ATTN_COLUMNS_QK},
    {"beta", false, ATTN_HEADS_OWN, ATTN_COLUMNS_ONE},
    {"erase", false, ATTN_HEADS_OWN, ATTN_COLUMNS_QK},
    {"write", false, ATTN_HEADS_OWN, ATTN_COLUMNS_V},
    {"previous", false, ATTN_HEADS_OWN, ATTN_COLUMNS_ONE},
    {"angle", false, ATTN_HEADS_OWN, ATTN_COLUMNS_PAIRS},
    {"index_q", true, ATTN_HEADS_ANY, ATTN_COLUMNS_ANY},
    {"index_k", false, ATTN_HEADS_ONE, ATTN_COLUMNS_ANY},
    {"index_w", true, ATTN_HEADS_ANY, ATTN_COLUMNS_ONE},
    {"gate", true, ATTN_HEADS_OWN, ATTN_COLUMNS_GATES},
};

int attn_extra_find(const char *name) {
  for (int i = 0; name && i < ATTN_EXTRA_KINDS; i++)
    if (!strcmp(name, attn_extra_kinds[i].name)) return i;
  return -1;
}

/* The names, "a, b, c". */
static const char *known_names(char *text, size_t bytes) {
  size_t used = 0;
  for (int i = 0; i < ATTN_EXTRA_KINDS && used < bytes; i++)
    used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? ", " : "", attn_extra_kinds[i].name);
  return text;
}

/* Columns besides 1; 0: any number. */
static int64_t columns_of(const attn_problem *p, attn_extra_columns columns) {
  switch (columns) {
  case ATTN_COLUMNS_QK:
    return p->d_qk;
  case ATTN_COLUMNS_V:
    return p->d_v;
  case ATTN_COLUMNS_PAIRS:
    return attn_max(1, p->d_qk / 2);
  default:
    return columns == ATTN_COLUMNS_ONE;
  }
}

attn_status attn_extra_check(const char *where, const attn_problem *p, const attn_extra *x) {
  const int which = x ? attn_extra_find(x->name) : -1;
  char names[128], heads[64] = "any", columns[32] = "any";
  if (!where || !p || !x) return attn_null("attn_extra_check", !where ? "where" : !p ? "problem" : "extra");
  if (which < 0)
    return attn_fail(ATTN_EINVAL, "%s: extra tensor '%s': known are %s", where, x->name ? x->name : "NULL",
                     known_names(names, sizeof names));
  const attn_extra_kind *kind = &attn_extra_kinds[which];
  const int64_t n = kind->of_queries ? p->n_q : p->n_kv, most = columns_of(p, kind->columns);
  if (!x->at) return attn_null(where, x->name);
  if ((int)x->dtype < 0 || (int)x->dtype >= ATTN_DTYPES)
    return attn_fail(ATTN_EINVAL, "%s: extra tensor %s of type %d", where, x->name, (int)x->dtype);
  const bool own = kind->heads == ATTN_HEADS_OWN && (x->heads == p->kv_heads || x->heads == p->heads),
             fits = own || (kind->heads == ATTN_HEADS_ANY ? x->heads > 0 : x->heads == 1);
  if ((x->batch == 1 || x->batch == p->batch) && fits && x->n == n &&
      (most ? x->columns == 1 || x->columns == most : x->columns > 0))
    return ATTN_OK;
  if (kind->heads == ATTN_HEADS_OWN)
    snprintf(heads, sizeof heads, "1, %lld or %lld", (long long)p->kv_heads, (long long)p->heads);
  else if (kind->heads == ATTN_HEADS_ONE)
    snprintf(heads, sizeof heads, "1");
  if (most) snprintf(columns, sizeof columns, most > 1 ? "1 or %lld" : "%lld", (long long)most);
  return attn_fail(ATTN_EINVAL,
                   "%s: extra tensor %s [%lld, %lld, %lld, %lld]: expected [1 or %lld, %s, %lld, %s]", where,
                   x->name, (long long)x->batch, (long long)x->heads, (long long)x->n, (long long)x->columns,
                   (long long)p->batch, heads, (long long)n, columns);
}

/* What an index reads: its heads, each of its width. */
static attn_status check_index(const attn_index *index, const attn_extra *x) {
  const bool queries = !strcmp(x->name, "index_q"), keys = !strcmp(x->name, "index_k"),
             weights = !strcmp(x->name, "index_w");
  if ((!queries && !weights) || x->heads == index->heads)
    if ((!queries && !keys) || x->columns == index->width) return ATTN_OK;
  return attn_fail(
      ATTN_EINVAL,
      "execute: extra tensor %s of %lld heads and %lld columns: the index has %lld heads of %lld", x->name,
      (long long)x->heads, (long long)x->columns, (long long)index->heads, (long long)index->width);
}

attn_status attn_extras_check(const attn_index *index, const attn_call *call) {
  attn_status status = call->extras && !call->extra ? attn_null("execute", "extra") : ATTN_OK;
  for (int64_t x = 0; !status && x < call->extras; x++) {
    status = attn_extra_check("execute", call->context->problem, &call->extra[x]);
    if (!status && index->heads) status = check_index(index, &call->extra[x]);
  }
  if (!status && index->heads && !attn_call_extra(call, "index_q") != !attn_call_extra(call, "index_k"))
    status = attn_fail(ATTN_EINVAL, "execute: extra tensors index_q and index_k come together");
  return status;
}

const attn_extra *attn_call_extra(const attn_call *call, const char *name) {
  for (int64_t x = 0; call && name && x < call->extras; x++)
    if (!strcmp(call->extra[x].name, name)) return &call->extra[x];
  return NULL;
}

const void *attn_extra_row(const attn_extra *x, int64_t batch, int64_t head, int64_t row) {
  if (!x) return NULL;
  const int64_t line = (x->batch == 1 ? 0 : batch) * x->heads + head;
  return attn_at(x->at, (line * x->n + row) * x->columns, x->dtype);
}

const void *attn_call_extra_row(const attn_call *call, const attn_extra *x, int64_t batch, int64_t head,
                                int64_t row) {
  return call && x ? attn_extra_row(x, batch, head / (call->context->problem->heads / x->heads), row) : NULL;
}
