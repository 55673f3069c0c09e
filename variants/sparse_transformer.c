/* sparse_transformer - every l-th key, and the neighbourhood between: the factorised patterns of images and
 * text.
 *
 *   strided   i sees j iff i - j <= l, or l divides i - j
 *   fixed     i sees j iff j lies in the block of l positions that i lies in, or is one of the last `summary`
 *             positions of j's block
 *
 * and j <= i in either. Child, Gray, Radford, Sutskever 2019 (arXiv:1904.10509), section 4.2 and 4.3. Cost
 * n (l + n / l) pairs, n (l / 2 + summary n / 2l) if fixed: n sqrt(n) for l near sqrt(n). Bounds: SP-1, SP-2,
 * SP-3. Deviation: every head sees the union of the two sets, the paper's merged head, rather than one of
 * them in turn. */
#include "attn_variant.h"

typedef enum { STRIDED, FIXED } mode;

typedef struct params {
  int mode;
  int64_t stride, summary;
} params;

static const char *const modes[] = {"strided", "fixed", NULL};

static const attn_param table[] = {
    {"mode", ATTN_CHOICE, offsetof(params, mode), 0, 1, "strided", modes, "which keys lie far away"},
    {"stride", ATTN_INT, offsetof(params, stride), 1, 1 << 30, "128", NULL, "l, near the square root of n"},
    {"summary", ATTN_INT, offsetof(params, summary), 1, 1 << 16, "min(8,stride)", NULL,
     "positions at the end of a block that later ones see, for mode=fixed"},
    {.name = NULL},
};

static attn_status applicable(const attn_context *c) {
  const params *p = c->params;
  if (p->mode == FIXED && p->summary > p->stride)
    return attn_fail(ATTN_EINVAL, "variant sparse_transformer: summary=%lld, expected at most stride = %lld",
                     (long long)p->summary, (long long)p->stride);
  if (!c->problem->causal)
    return attn_fail(
        ATTN_EUNSUPPORTED,
        "variant sparse_transformer: only causal attention, the paper defines no keys after the query");
  return ATTN_OK;
}

/* Every l-th key before the window, of the query's own residue class. */
static int64_t strided(int64_t l, int64_t position, attn_run *runs) {
  int64_t count = 0, far = position / l - 1, first = position > l ? position - l : 0;
  if (far > 0) runs[count++] = (attn_run){position % l, far, l};
  runs[count++] = (attn_run){first, position - first + 1, 1};
  return count;
}

/* Of the earlier blocks a run for each summary position. Where they are whole blocks, all keys. */
static int64_t fixed(int64_t l, int64_t summary, int64_t position, attn_run *runs) {
  int64_t earlier = summary < l ? position / l : 0, first = summary < l ? earlier * l : 0, count = 0;
  for (int64_t r = l - summary; earlier && r < l; r++) runs[count++] = (attn_run){r, earlier, l};
  runs[count++] = (attn_run){first, position - first + 1, 1};
  return count;
}

/* Queries before the first key have a negative position, and see nothing. */
static int64_t row(const void *opaque, int64_t head, int64_t position, attn_run *runs) {
  const params *p = opaque;
  (void)head;
  if (position < 0) return 0;
  return p->mode == FIXED ? fixed(p->stride, p->summary, position, runs) : strided(p->stride, position, runs);
}

/* The law: SP-0 holds it against row, of which it is independent. */
static bool sees(const void *opaque, int64_t head, int64_t position, int64_t key) {
  const params *p = opaque;
  int64_t l = p->stride;
  (void)head;
  if (key > position) return false;
  if (p->mode == STRIDED) return position - key <= l || (position - key) % l == 0;
  return key / l == position / l || key % l >= l - p->summary;
}

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  const params *p = c->params;
  (void)b;
  out->pattern = (attn_pattern){.state = p,
                                .row = row,
                                .max_runs = p->mode == FIXED ? p->summary + 1 : 2,
                                .max_pieces = c->problem->n_kv / p->stride + 2,
                                .sees = sees};
  return ATTN_OK;
}

/* sum over t < end of floor(t / l) */
static double whole_blocks(int64_t end, int64_t l) {
  double blocks = (double)(end / l), rest = (double)(end % l);
  return (double)l * blocks * (blocks - 1) / 2 + blocks * rest;
}

static double sum_to(int64_t last) { return (double)last * ((double)last + 1) / 2; }

/* Pairs of the positions before `end`; of position t they are
 *   strided   min(t, l) + 1 + max(floor(t / l) - 1, 0)
 *   fixed     t mod l + 1 + summary floor(t / l) */
static double pairs_before(const params *p, int64_t end) {
  int64_t l = p->stride;
  if (end < 1) return 0;
  if (p->mode == FIXED)
    return (double)(end / l) * sum_to(l) + sum_to(end % l) + (double)p->summary * whole_blocks(end, l);
  if (end <= l) return sum_to(end);
  double beyond = (double)(end - l);
  return sum_to(l) + beyond * ((double)l + 1) + whole_blocks(end, l) - beyond;
}

static attn_cost cost(const attn_context *c) {
  const attn_problem *x = c->problem;
  return attn_softmax_cost(c, pairs_before(c->params, x->n_kv) -
                                  pairs_before(c->params, attn_problem_position(x, 0)));
}

/* The window and the query's own key. Fixed blocks have no window. */
static int64_t stride_of(const attn_context *c, int64_t keys) {
  const params *p = c->params;
  return p->mode == FIXED ? 0 : keys > 2 ? keys - 1 : 1;
}

ATTN_VARIANT(sparse_transformer, .summary = "every l-th key and the neighbourhood between",
             .formula = "strided: keys i - j <= l or l dividing i - j; fixed: the query's block of l keys "
                        "and the last `summary` keys of every block; j <= i; O(n (l + n/l) d)",
             .cite = "Child et al. 2019, arXiv:1904.10509",
             .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_LSE | ATTN_CAP_POSITIONS, .params = table,
             .params_size = sizeof(params), .budget = {"stride", stride_of}, .applicable = applicable,
             .describe = describe, .cost = cost)
