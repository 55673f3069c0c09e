/* function_law.c - see function_law.h. A law of positions, of each head or of all, as bits that are asked for
 * once; row and sees read the same bits, since a function is held to what it says by its outputs. */
#include "experiments/functions/function_law.h"

#include <string.h>

typedef struct law {
  int64_t n, heads;    /* heads: 1, or those of the queries */
  const uint8_t *seen; /* [heads, n, n] */
} law;

static const uint8_t *keys_of(const law *x, int64_t head, int64_t position) {
  return position < 0 ? NULL : x->seen + ((x->heads > 1 ? head : 0) * x->n + position) * x->n;
}

static bool sees(const void *opaque, int64_t head, int64_t position, int64_t key) {
  const uint8_t *seen = keys_of(opaque, head, position);
  return seen && seen[key];
}

static int64_t runs_of(const uint8_t *seen, int64_t n, attn_run *runs) {
  int64_t count = 0;
  for (int64_t j = 0; seen && j < n; j++) {
    if (!seen[j]) continue;
    const int64_t first = j;
    while (j < n && seen[j]) j++;
    if (runs) runs[count] = (attn_run){first, j - first, 1};
    count++;
  }
  return count;
}

static int64_t row(const void *opaque, int64_t head, int64_t position, attn_run *runs) {
  const law *x = opaque;
  return runs_of(keys_of(x, head, position), x->n, runs);
}

attn_status function_law_plan(attn_builder *b, function_program *f, attn_pattern *out) {
  const attn_problem *p = attn_builder_context(b)->problem;
  const bool per_head = f->takes & TAKES_SEES_HEADS && p->heads > 1;
  const int64_t heads = per_head ? p->heads : 1;
  law *x = attn_builder_alloc(b, 1, sizeof *x);
  const size_t each = attn_size_times((size_t)p->n_kv, (size_t)p->n_kv);
  uint8_t *seen = x && each <= INT64_MAX ? attn_builder_alloc(b, heads, each) : NULL;
  if (!seen) return ATTN_ENOMEM;
  attn_status status = ATTN_OK;
  for (int64_t h = 0; !status && h < heads; h++)
    status = function_program_sees(f, p->n_kv, h, seen + (size_t)h * each);
  if (status) return status;
  int64_t most = 1;
  for (int64_t i = 0; i < heads * p->n_kv; i++)
    most = attn_max(most, runs_of(seen + (size_t)i * (size_t)p->n_kv, p->n_kv, NULL));
  *x = (law){p->n_kv, heads, seen};
  *out = (attn_pattern){.state = x, .row = row, .max_runs = most, .per_head = per_head, .sees = sees};
  return ATTN_OK;
}
