/* longformer - a sliding window of keys, dilated if wanted, and a few global tokens.
 *
 * Query i sees key j iff |i - j| <= (w/2) D and D divides i - j, or i or j is global; causal: j <= i as well,
 * so that it sees itself and the w/2 such keys before it. Global attention is symmetric and uses the same
 * projections.
 *
 * Beltagy, Peters, Cohan 2020 (arXiv:2004.05150). Cost n (w + 1 + g) pairs, linear in n. Bounds: SP-1, SP-2,
 * SP-3. Deviations: one set of Q, K, V for local and global attention (the paper trains a second); with n_q <
 * n_kv the queries are the last n_q positions. */
#include "attn_variant.h"

#include <stdlib.h>

typedef struct params {
  int64_t window, dilation, global;
  attn_int_list global_at;
} params;

static const attn_param table[] = {
    {"window", ATTN_INT, offsetof(params, window), 2, 1 << 30, "256", NULL,
     "total width, even: half on each side; causal: the half before"},
    {"dilation", ATTN_INT, offsetof(params, dilation), 1, 1 << 20, "1", NULL,
     "distance between keys of the window"},
    {"global", ATTN_INT, offsetof(params, global), 0, 1 << 20, "0", NULL, "number of leading global tokens"},
    {"global_at", ATTN_INT_LIST, offsetof(params, global_at), 0, 1e15, "", NULL,
     "global tokens by position, 3+17+40"},
    {.name = NULL},
};

typedef struct state {
  const params *params;
  int64_t n;
} state;

static attn_status applicable(const attn_context *c) {
  const params *p = c->params;
  const attn_problem *x = c->problem;
  if (p->window % 2)
    return attn_fail(ATTN_EINVAL, "variant longformer: window=%lld, expected an even number",
                     (long long)p->window);
  if (p->global && p->global_at.count)
    return attn_fail(ATTN_EINVAL, "variant longformer: give global or global_at, not both");
  if (p->global_at.count && p->global_at.items[p->global_at.count - 1] >= x->n_kv)
    return attn_fail(ATTN_EINVAL, "variant longformer: global_at=%lld, expected below n_kv = %lld",
                     (long long)p->global_at.items[p->global_at.count - 1], (long long)x->n_kv);
  if (x->n_q > x->n_kv)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "variant longformer: n_q > n_kv leaves queries without a position in the window");
  return ATTN_OK;
}

static int64_t global_count(const params *p) { return p->global + p->global_at.count; }

static bool is_global(const params *p, int64_t position) {
  if (position < p->global) return true;
  int64_t low = 0, high = p->global_at.count;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (p->global_at.items[middle] < position)
      low = middle + 1;
    else
      high = middle;
  }
  return low < p->global_at.count && p->global_at.items[low] == position;
}

static int64_t row(const void *opaque, int64_t head, int64_t position, attn_run *runs) {
  const state *s = opaque;
  const params *p = s->params;
  (void)head;
  if (is_global(p, position)) {
    runs[0] = (attn_run){0, s->n, 1};
    return 1;
  }
  int64_t step = p->dilation, half = p->window / 2;
  /* Such keys that exist on each side; a division only near the ends. */
  int64_t left = position, right = s->n - 1 - position, reach = half * step;
  int64_t before = left < reach ? left / step : half, after = right < reach ? right / step : half;
  attn_run window = {position - before * step, before + after + 1, step};
  int64_t last = window.first + (window.count - 1) * step, count = 0;

  /* Leading tokens: a block, from which the window is cut (a dilated window keeps what lies beyond). */
  int64_t leading = p->global < s->n ? p->global : s->n;
  if (leading) {
    runs[count++] = (attn_run){0, leading, 1};
    if (window.first < leading) {
      int64_t inside = (leading - window.first + step - 1) / step;
      window.first += inside * step;
      window.count -= inside;
    }
  }
  /* Listed tokens that the window does not hold already, in ascending order around it. */
  bool placed = window.count < 1;
  for (int64_t g = 0; g < p->global_at.count; g++) {
    int64_t key = p->global_at.items[g];
    if (key >= window.first && key <= last && (key - window.first) % step == 0) continue;
    if (!placed && key > window.first) {
      runs[count++] = window;
      placed = true;
    }
    runs[count++] = (attn_run){key, 1, 1};
  }
  if (!placed) runs[count++] = window;
  return count;
}

/* The law: SP-0 holds it against row, of which it is independent. */
static bool sees(const void *opaque, int64_t head, int64_t position, int64_t key) {
  const params *p = ((const state *)opaque)->params;
  int64_t distance = llabs(position - key);
  (void)head;
  if (distance % p->dilation == 0 && distance / p->dilation <= p->window / 2) return true;
  bool global = position < p->global || key < p->global;
  for (int64_t g = 0; g < p->global_at.count && !global; g++)
    global = p->global_at.items[g] == position || p->global_at.items[g] == key;
  return global;
}

/* Global rows see everything: apart from the others. Rows of one residue class share a dilated window. */
static int64_t group(const void *opaque, int64_t position) {
  const params *p = ((const state *)opaque)->params;
  return is_global(p, position) ? -1 : position % p->dilation;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *p = c->params;
  const state s = {.params = p, .n = c->problem->n_kv};
  out->pattern = (attn_pattern){.row = row,
                                .max_runs = 2 + p->global_at.count,
                                .group = group,
                                .max_pieces = 2 + p->global_at.count + (p->dilation > 1 ? p->window : 0),
                                .sees = sees,
                                .reach = global_count(p) ? 0 : p->window / 2 * p->dilation};
  return attn_builder_keep(b, &s, sizeof s, &out->pattern.state);
}

/* Means over the rows of one head, each pair counted once, with s = w/2 keys of a side that reach r = s D:
 *
 *   side    s (1 - (r + D) / 2n), fewer near the ends;  (n - 1) / 2D if r >= n
 *   window  1 + 2 side
 *   row     window + g (1 - window / n), at most n
 *   pairs   (n_q - g) row + g n
 *
 * Causal: one side, and half of g and of n. */
static attn_cost cost(const attn_context *c) {
  const params *p = c->params;
  const attn_problem *x = c->problem;
  double n = (double)x->n_kv, queries = (double)x->n_q, global = (double)global_count(p);
  double dilation = (double)p->dilation, half = (double)(p->window / 2), reach = half * dilation;
  double side = reach < n ? half * (1 - (reach + dilation) / (2 * n)) : (n - 1) / (2 * dilation);
  double window = 1 + side * (x->causal ? 1 : 2), all = x->causal ? n / 2 : n;
  double row = window + (x->causal ? global / 2 : global) * (1 - window / n);
  double whole = global < queries ? global : queries;
  return attn_softmax_cost(c, (queries - whole) * (row < all ? row : all) + whole * all);
}

/* The window that holds `keys` keys, the query's own included. */
static int64_t window_of(const attn_context *c, int64_t keys) {
  int64_t window = c->problem->causal ? 2 * (keys - 1) : keys / 2 * 2;
  return window > 2 ? window : 2;
}

ATTN_VARIANT(longformer, .summary = "sliding window, dilation, global tokens",
             .formula = "keys |i - j| <= (w/2) D, D = `dilation` dividing i - j (causal: the query's own and "
                        "the w/2 such before it), and global ones; O(n (w + g) d). Causal, window=256 has "
                        "129 keys, as many as streaming's window=129",
             .cite = "Beltagy et al. 2020, arXiv:2004.05150",
             .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_LSE | ATTN_CAP_POSITIONS, .params = table,
             .params_size = sizeof(params), .budget = {"window", window_of}, .applicable = applicable,
             .describe = describe, .cost = cost)
