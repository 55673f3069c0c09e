/* graph - the user's own mask: documents, a prefix, blocks in order, a neighbourhood of pixels, a tree, or
 * any graph from a file. Query i sees key j iff
 *
 *   documents      no document begins between them: one at each of `offsets`, or every `size` positions
 *   prefix         j < size or j <= i
 *   block_causal   floor(j / size) <= floor(i / size)
 *   natten         on a canvas of `width` columns, j lies in the kernel x kernel window round i, whose centre
 *                  is moved so that it stays inside (Hassani et al. 2023, arXiv:2204.07143)
 *   tree           j = i, or j is an ancestor of i; the file lists parents, -1 for a root
 *   file           the file has the edge (i, j): a mask, a list of edges, or compressed sparse rows, for all
 *                  heads or for each; block > 1: the file's rows and columns are blocks of that size, the
 *                  last may be shorter
 *
 * Queries are named by their position, rows of a file by their number. Under the causal mask they see j <= i
 * of these alone; a query without keys gives zeros. Velickovic et al. 2018 (arXiv:1710.10903) attend to the
 * neighbours of a graph. Cost: the pairs, counted. Bounds: SP-1, SP-2, SP-3, SP-5. */
#include "attn_variant.h"

#include <stdlib.h>

enum { COUNTED = 1 << 22 }; /* queries up to which pairs are counted */

typedef enum { DOCUMENTS, PREFIX, BLOCK_CAUSAL, NATTEN, TREE, FILE_GRAPH } kind;

typedef struct params {
  int kind, symmetric, self;
  const char *file;
  int64_t block, size, width, kernel;
  attn_int_list offsets;
} params;

static const char *const kinds[] = {"documents", "prefix", "block_causal", "natten", "tree", "file", NULL};
static const char *const answers[] = {"no", "yes", NULL};

static const attn_param table[] = {
    {"kind", ATTN_CHOICE, offsetof(params, kind), 0, 5, "documents", kinds, "which keys a query sees"},
    {"size", ATTN_INT, offsetof(params, size), 1, 1 << 30, "256", NULL, "of a document, the prefix, a block"},
    {"offsets", ATTN_INT_LIST, offsetof(params, offsets), 0, 1e15, "", NULL,
     "where documents begin, 100+250; none: every size positions"},
    {"width", ATTN_INT, offsetof(params, width), 1, 1 << 20, "16", NULL, "columns of the canvas"},
    {"kernel", ATTN_INT, offsetof(params, kernel), 1, 1 << 20, "7", NULL,
     "width and height of the window, odd"},
    {"file", ATTN_TEXT, offsetof(params, file), 0, 0, "", NULL,
     "npy, HDF5 or safetensors, for kind=file or tree"},
    {"block", ATTN_INT, offsetof(params, block), 1, 1 << 20, "1", NULL,
     "keys of a row or column of the file"},
    {"symmetric", ATTN_CHOICE, offsetof(params, symmetric), 0, 1, "no", answers,
     "edges of the file hold both ways"},
    {"self", ATTN_CHOICE, offsetof(params, self), 0, 1, "no", answers, "rows of the file see themselves"},
    {.name = NULL},
};

typedef struct state {
  const params *p;
  int64_t n;
  attn_graph graph; /* file, tree */
  int64_t hidden;   /* positions before the first row of the file */
} state;

static bool from_file(const params *p) { return p->kind == TREE || p->kind == FILE_GRAPH; }

static attn_status applicable(const attn_context *c) {
  const params *p = c->params;
  const attn_problem *x = c->problem;
  if (from_file(p) != (*p->file != 0))
    return attn_fail(ATTN_EINVAL,
                     "variant graph: file requires kind=file or kind=tree, and they require file");
  if (p->kind != FILE_GRAPH && (p->symmetric || p->self || p->block > 1))
    return attn_fail(ATTN_EINVAL, "variant graph: symmetric, self and block require kind=file");
  if (p->offsets.count && p->kind != DOCUMENTS)
    return attn_fail(ATTN_EINVAL, "variant graph: offsets requires kind=documents");
  if (p->kind == NATTEN && p->kernel % 2 == 0)
    return attn_fail(ATTN_EINVAL, "variant graph: kernel=%lld, expected an odd number", (long long)p->kernel);
  if (p->offsets.count && p->offsets.items[p->offsets.count - 1] >= x->n_kv)
    return attn_fail(ATTN_EINVAL, "variant graph: offsets=...%lld, expected below n_kv = %lld",
                     (long long)p->offsets.items[p->offsets.count - 1], (long long)x->n_kv);
  if (p->kind != FILE_GRAPH && x->n_q > x->n_kv)
    return attn_fail(ATTN_EUNSUPPORTED, "variant graph: n_q > n_kv leaves queries without a position");
  if (p->kind == NATTEN && x->n_kv % p->width)
    return attn_fail(ATTN_EINVAL,
                     "variant graph: natten needs a width that divides n_kv = %lld, which %lld does not",
                     (long long)x->n_kv, (long long)p->width);
  return ATTN_OK;
}

/* -- rows -- */

/* The document of a position: first ... end - 1. Returns its number. */
static int64_t document(const params *p, int64_t n, int64_t position, int64_t *first, int64_t *end) {
  int64_t k = 0;
  if (!p->offsets.count) {
    *first = position / p->size * p->size;
    *end = attn_min(*first + p->size, n);
    return position / p->size;
  }
  while (k < p->offsets.count && p->offsets.items[k] <= position) k++;
  *first = k ? p->offsets.items[k - 1] : 0;
  *end = k < p->offsets.count ? p->offsets.items[k] : n;
  return k;
}

/* Where a window of `count` around x begins on a line of `length`. */
static int64_t begin(int64_t x, int64_t count, int64_t length) {
  int64_t first = x - count / 2;
  return first < 0 ? 0 : attn_min(first, length - count);
}

static int64_t natten(const state *s, int64_t position, attn_run *runs) {
  int64_t width = s->p->width, height = s->n / width, across = attn_min(s->p->kernel, width);
  int64_t down = attn_min(s->p->kernel, height), left = begin(position % width, across, width);
  int64_t top = begin(position / width, down, height);
  for (int64_t r = 0; r < down; r++) runs[r] = (attn_run){(top + r) * width + left, across, 1};
  return down;
}

/* The row of a position in the file, which has none for those before it. */
static int64_t row_of(const state *s, int64_t position) {
  return position < s->hidden ? -1 : (position - s->hidden) / s->p->block;
}

static int64_t row(const void *opaque, int64_t head, int64_t position, attn_run *runs) {
  const state *s = opaque;
  int64_t first = 0, end = position + 1;
  switch ((kind)s->p->kind) {
  case NATTEN:
    return natten(s, position, runs);
  case TREE:
    return attn_graph_ancestors(&s->graph, position, runs);
  case FILE_GRAPH:
    return attn_graph_row(&s->graph, head, row_of(s, position), s->p->block, s->n, runs);
  case DOCUMENTS:
    document(s->p, s->n, position, &first, &end);
    break;
  case PREFIX:
    end = attn_min(end > s->p->size ? end : s->p->size, s->n);
    break;
  case BLOCK_CAUSAL:
    end = attn_min(attn_ceil_div(end, s->p->size) * s->p->size, s->n);
    break;
  }
  runs[0] = (attn_run){first, end - first, 1};
  return 1;
}

/* -- the law: SP-0 holds it against row, of which it is independent -- */

static bool near(int64_t i, int64_t j, int64_t kernel, int64_t length) {
  int64_t half = kernel / 2, centre = i < half ? half : i > length - 1 - half ? length - 1 - half : i;
  return kernel > length || llabs(centre - j) <= half;
}

static bool sees(const void *opaque, int64_t head, int64_t position, int64_t key) {
  const state *s = opaque;
  const params *p = s->p;
  int64_t low = attn_min(position, key), high = position + key - low;
  switch ((kind)p->kind) {
  case DOCUMENTS:
    for (int64_t k = 0; k < p->offsets.count; k++)
      if (low < p->offsets.items[k] && p->offsets.items[k] <= high) return false;
    return p->offsets.count || low / p->size == high / p->size;
  case PREFIX:
    return key < p->size || key <= position;
  case BLOCK_CAUSAL:
    return key / p->size <= position / p->size;
  case NATTEN:
    return near(position % p->width, key % p->width, p->kernel, p->width) &&
           near(position / p->width, key / p->width, p->kernel, s->n / p->width);
  case TREE:
    while (position > key) position = attn_graph_parent(&s->graph, position);
    return position == key;
  case FILE_GRAPH:
    break;
  }
  return attn_graph_sees(&s->graph, head, row_of(s, position), key / p->block);
}

/* -- the plan -- */

/* Rows that see the same share a tile where they fill it. */
static int64_t group(const void *opaque, int64_t position) {
  const params *p = ((const state *)opaque)->p;
  int64_t n = ((const state *)opaque)->n, first, end;
  if (p->kind == DOCUMENTS && (p->offsets.count ? n / (p->offsets.count + 1) : p->size) >= ATTN_TILE)
    return document(p, n, position, &first, &end);
  return p->kind == BLOCK_CAUSAL && p->size >= ATTN_TILE ? position / p->size : 0;
}

static attn_status load(const attn_context *c, state *s) {
  const params *p = c->params;
  const attn_problem *x = c->problem;
  *s = (state){.p = p, .n = x->n_kv};
  if (!from_file(p)) return ATTN_OK;
  attn_graph_request wanted = {.heads = p->kind == TREE ? 1 : x->heads,
                               .rows = attn_ceil_div(p->kind == TREE ? x->n_kv : x->n_q, p->block),
                               .columns = attn_ceil_div(x->n_kv, p->block),
                               .symmetric = p->symmetric,
                               .self = p->self};
  attn_status status = attn_graph_read(p->file, &wanted, &s->graph);
  if (!status && p->kind == TREE) status = attn_graph_forest(p->file, &s->graph);
  if (status) attn_graph_free(&s->graph);
  if (s->graph.rows != s->graph.columns) s->hidden = attn_problem_position(x, 0);
  return status;
}

/* s NULL: before the file is read, with as many runs as a row may have, of one head or of each. */
static attn_pattern pattern_of(const attn_context *c, const state *s) {
  const params *p = c->params;
  const attn_problem *x = c->problem;
  int64_t runs = p->kind == NATTEN ? p->kernel
                 : from_file(p)    ? attn_ceil_div(attn_ceil_div(x->n_kv, p->block), 2)
                                   : 1;
  int64_t most = 1, rows = s && p->kind == FILE_GRAPH ? s->graph.heads * s->graph.rows : 0;
  for (int64_t i = 0; i < rows; i++) most = -attn_min(-most, s->graph.starts[i] - s->graph.starts[i + 1]);
  return (attn_pattern){.state = s,
                        .row = row,
                        .max_runs = rows ? most : runs,
                        .group = group,
                        .per_head = rows && s->graph.heads > 1,
                        .per_head_later = !s,
                        .sees = sees,
                        .grain = rows && s->graph.rows == s->graph.columns ? p->block : 0};
}

static const attn_exemption shifted[] = {
    {ATTN_EXEMPT_PREFIX, "kind=natten: windows near the lower edge depend on where the canvas ends"},
    {.reason = NULL}};

static attn_status describe(attn_builder *b, const attn_context *c, attn_parts *out) {
  state *s = b ? attn_builder_alloc(b, 1, sizeof *s) : NULL;
  if (b && !s) return ATTN_ENOMEM;
  attn_status status = b ? load(c, s) : ATTN_OK;
  if (!status && s && from_file(s->p)) status = attn_graph_keep(b, &s->graph);
  if (status) return status;
  out->pattern = pattern_of(c, s);
  if (((const params *)c->params)->kind == NATTEN) out->exempt = shifted;
  return ATTN_OK;
}

/* Counted, from the file too; of what no plan could hold, all pairs. */
static attn_cost cost(const attn_context *c) {
  const attn_problem *x = c->problem;
  state s = {.p = c->params};
  double pairs = -1;
  if (x->n_q <= COUNTED && !load(c, &s)) {
    attn_pattern shape = pattern_of(c, &s);
    pairs = attn_pattern_pairs(&shape, x);
  }
  attn_graph_free(&s.graph);
  return attn_softmax_cost(c, pairs >= 0 ? pairs : attn_visible_pairs(x));
}

ATTN_VARIANT(graph, .summary = "a mask or graph: documents, prefix, blocks, natten, tree, a file",
             .formula = "keys of the query's document, before the end of the prefix, in earlier blocks, in "
                        "the kernel's window, among its ancestors, or along the file's edges; O(pairs d)",
             .cite = "Velickovic et al. 2018, arXiv:1710.10903",
             .caps = ATTN_CAP_SOFTMAX | ATTN_CAP_LSE | ATTN_CAP_POSITIONS, .params = table,
             .params_size = sizeof(params), .applicable = applicable, .describe = describe, .cost = cost)
