/* graph.c - what graph sees, key by key, against definitions; the settings at which it is another variant, or
 * several runs of one; its cost; what it refuses. Files are a function here. */
#include "tests/support/core.h"

typedef bool edge(int64_t head, int64_t i, int64_t j);

/* -- a reader -- */

static edge *drawn;      /* the graph that a file holds */
static int64_t heads_of; /* and its heads */
static bool flat;        /* it has a row for each query, not for each position */

static attn_status read_graph(const char *path, const attn_graph_request *want, attn_graph *out) {
  if (strcmp(path, "nowhere") == 0) return attn_fail(ATTN_EINVAL, "%s: no such graph", path);
  attn_graph g = {.heads = heads_of, .rows = flat ? want->rows : want->columns, .columns = want->columns};
  g.starts = calloc((size_t)(heads_of * g.rows + 1), sizeof *g.starts);
  g.spans = calloc((size_t)(heads_of * g.rows * g.columns), sizeof *g.spans);
  cr_assert(g.starts && g.spans);
  int64_t used = 0;
  for (int64_t r = 0; r < heads_of * g.rows; r++) {
    g.starts[r] = used;
    for (int64_t j = 0; j < g.columns; j++) {
      if (!drawn(r / g.rows, r % g.rows, j)) continue;
      if (used > g.starts[r] && g.spans[used - 1].end == j)
        g.spans[used - 1].end++;
      else
        g.spans[used++] = (attn_range){j, j + 1};
    }
  }
  g.starts[heads_of * g.rows] = used;
  *out = g;
  return ATTN_OK;
}

static void files_hold(edge *e, int64_t heads) {
  drawn = e;
  heads_of = heads;
  attn_graph_reader_set(read_graph);
}

/* -- definitions -- */

static int64_t size, width, kernel, n_all;

static bool documents(int64_t head, int64_t i, int64_t j) { return head >= 0 && i / size == j / size; }
static int64_t document_of(int64_t i) { return (i >= 3) + (i >= 20) + (i >= 21); }
static bool listed(int64_t head, int64_t i, int64_t j) {
  return head >= 0 && document_of(i) == document_of(j);
}
static bool prefix(int64_t head, int64_t i, int64_t j) { return head >= 0 && (j < size || j <= i); }
static bool in_order(int64_t head, int64_t i, int64_t j) { return head >= 0 && j / size <= i / size; }

/* The kernel x kernel pixels nearest to the pixel's own place that lie on the canvas, found by trying. */
static bool within(int64_t x, int64_t y, int64_t length) {
  int64_t first = x - kernel / 2;
  if (kernel >= length) return true;
  while (first < 0) first++;
  while (first + kernel > length) first--;
  return y >= first && y < first + kernel;
}
static bool natten(int64_t head, int64_t i, int64_t j) {
  return head >= 0 && within(i % width, j % width, width) && within(i / width, j / width, n_all / width);
}

static bool all(int64_t head, int64_t i, int64_t j) { return head >= 0 && i >= 0 && j >= 0; }
static bool scattered(int64_t head, int64_t i, int64_t j) {
  return i % 4 != 2 && (3 * i + 5 * j + head) % 7 < 2;
}
static bool placed(int64_t head, int64_t i, int64_t j) { return i >= 0 && scattered(head, i, j); }
static bool placed_blocks(int64_t head, int64_t i, int64_t j) {
  return i >= 0 && scattered(head, i / 10, j / 10);
}
static bool by_number(int64_t head, int64_t i, int64_t j) { return scattered(head, i - 30, j); }
static bool blocks(int64_t head, int64_t i, int64_t j) { return scattered(head, i / 10, j / 10); }

/* The parent in a tree: i - 1, or, of every fifth, further up. */
static int64_t above(int64_t i) { return i % 5 ? i - 1 : i / 2 - 1; }
static bool is_child(int64_t head, int64_t i, int64_t j) { return head == 0 && j == above(i) && j >= 0; }
static bool ancestors(int64_t head, int64_t i, int64_t j) {
  while (head >= 0 && i > j) i = above(i);
  return i == j;
}

static void check(const char *spec, edge *e, int64_t heads, int64_t n_q, int64_t n_kv, bool causal) {
  n_all = n_kv;
  seen_pattern s = open_pattern(spec, heads, n_q, n_kv, causal);
  unsigned char *marks = kept_memory(malloc((size_t)n_kv));
  cr_assert_not_null(marks);
  double pairs = 0;
  for (int64_t r = 0; r < heads * n_q; r++) {
    int64_t head = r / n_q, i = r % n_q, position = i + n_kv - n_q;
    mark_row(&s, head, i, marks);
    for (int64_t j = 0; j < n_kv; j++) {
      bool want = e(head, position, j), law = s.view.pattern->sees(s.view.pattern->state, head, position, j);
      pairs += want && (!causal || j <= position);
      if (want != law)
        note_failure("head %d, position %d, key %d: the law says otherwise", (int)head, (int)position,
                     (int)j);
      if ((want && (!causal || j <= position)) != (marks[j] != 0))
        note_failure("head %d, position %d, key %d: %s", (int)head, (int)position, (int)j,
                     marks[j] ? "seen" : "not seen");
    }
  }
  expect_pairs(&s, pairs);
}

static void check_all(const char *spec, edge *e, int64_t heads) {
  for (int causal = 0; causal < 2; causal++) {
    check(spec, e, heads, 41, 41, causal);
    check(spec, e, heads, 96, 96, causal);
    if (e != natten) check(spec, e, heads, 11, 41, causal);
  }
}

Test(variants_graph, kinds) {
  static const int64_t sizes[] = {1, 7, 40, 41, 64, 200};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    size = sizes[k];
    check_all(text_of("graph:size=%d", (int)size), documents, 1);
    check_all(text_of("graph:kind=prefix,size=%d", (int)size), prefix, 1);
    check_all(text_of("graph:kind=block_causal,size=%d", (int)size), in_order, 1);
  }
  check_all("graph:offsets=3+20+21", listed, 1);
}

Test(variants_graph, natten) {
  static const int64_t settings[][2] = {{8, 3}, {8, 5}, {12, 1}, {4, 7}, {96, 5}, {1, 3}, {16, 99}};
  for (size_t k = 0; k < sizeof settings / sizeof *settings; k++)
    for (int causal = 0; causal < 2; causal++) {
      width = settings[k][0];
      kernel = settings[k][1];
      const char *spec = text_of("graph:kind=natten,width=%d,kernel=%d", (int)width, (int)kernel);
      check(spec, natten, 1, 96, 96, causal);
      check(spec, natten, 1, 13, 96, causal);
    }
}

Test(variants_graph, files) {
  files_hold(scattered, 1);
  check_all("graph:kind=file,file=x", scattered, 1);
  files_hold(scattered, 3);
  check_all("graph:kind=file,file=x", scattered, 3);
  check_all("graph:kind=file,file=x,block=10", blocks, 3);
  check("graph:kind=file,file=x", placed, 3, 64, 41, false);
  check("graph:kind=file,file=x,block=10", placed_blocks, 3, 64, 41, true);
  files_hold(is_child, 1);
  check_all("graph:kind=tree,file=x", ancestors, 1);
  flat = true;
  files_hold(scattered, 3);
  check("graph:kind=file,file=x", by_number, 3, 11, 41, false);
}

/* -- what equals what, bitwise -- */

static inputs make_inputs(int64_t n, bool causal, attn_dtype dtype) {
  attn_problem p = shape_problem((case_shape){2, 4, 2, n, n, 9, 6, causal, true}, dtype);
  return inputs_make(&p, true, 31, 1);
}

static void expect_tiled(const char *spec) {
  for (int form = 0; form < 4; form++)
    for (const char *const *isa = isas_under_test(); *isa; isa++) {
      inputs in = make_inputs(131, form % 2, form / 2 ? ATTN_F64 : ATTN_F32);
      attn_options options = {.isa = *isa, .blocks = {ATTN_TILE, 32}};
      note_context("%s, %s", spec, *isa);
      expect_same_outputs(&in.problem, run_spec(spec, &options, &in), run_spec("tiled", &options, &in),
                          "not tiled");
      inputs_free(&in);
    }
}

Test(variants_graph, what_covers_everything_is_tiled) {
  files_hold(all, 1);
  expect_tiled("graph:kind=file,file=x");
  expect_tiled("graph:kind=file,file=x,block=50");
  files_hold(all, 4);
  expect_tiled("graph:kind=file,file=x");
  expect_tiled("graph:size=131");
  expect_tiled("graph:kind=prefix,size=131");
  expect_tiled("graph:kind=block_causal,size=131");
  expect_tiled("graph:kind=natten,width=131,kernel=131");
}

/* The rows of a document are those of a run of that document alone. */
static void expect_documents(const char *spec, const int64_t *begins, int count) {
  for (int form = 0; form < 4; form++) {
    attn_problem p =
        shape_problem((case_shape){2, 2, 1, 300, 300, 9, 6, form % 2, false}, form / 2 ? ATTN_F64 : ATTN_F32);
    inputs in = inputs_make(&p, false, 31, 1);
    attn_options options = {.blocks = {ATTN_TILE, 32}};
    note_context("%s", spec);
    void *whole = run_spec(spec, &options, &in);
    for (int d = 0; d < count; d++) {
      int64_t first = begins[d], n = (d + 1 < count ? begins[d + 1] : 300) - first;
      attn_problem own = p;
      own.n_q = own.n_kv = n;
      inputs part = inputs_make(&own, false, 0, 0);
      for (tensor t = TENSOR_Q; t <= TENSOR_V; t++)
        for (int64_t r = 0; r < 2 * (t == TENSOR_Q ? 2 : 1) * n; r++) {
          int64_t heads = t == TENSOR_Q ? 2 : 1, b = r / (heads * n), h = r / n % heads, i = r % n;
          for (int64_t l = 0; l < (t == TENSOR_V ? 6 : 9); l++)
            inputs_set(&part, t, b, h, i, l, inputs_get(&in, t, b, h, first + i, l));
        }
      void *o = run_spec("tiled", &options, &part);
      for (int64_t at = 0; o && whole && at < 4 * n * 6; at++) {
        double x = output_get(&part.problem, o, at / (12 * n), at / (6 * n) % 2, at / 6 % n, at % 6);
        double y =
            output_get(&in.problem, whole, at / (12 * n), at / (6 * n) % 2, first + at / 6 % n, at % 6);
        if (!(x <= y && x >= y)) note_failure("document %d, element %d: %a, alone %a", d, (int)at, y, x);
      }
      free(o);
      inputs_free(&part);
    }
    free(whole);
    inputs_free(&in);
  }
}

Test(variants_graph, documents_are_runs_of_their_own) {
  expect_documents("graph:size=100", (int64_t[]){0, 100, 200}, 3);
  expect_documents("graph:size=130", (int64_t[]){0, 130, 260}, 3);
  expect_documents("graph:offsets=64+200", (int64_t[]){0, 64, 200}, 3);
}

/* -- GR-1: another numbering of the nodes renumbers the rows of the output, and nothing else -- */

enum { NODES = 60 };
static int64_t renamed(int64_t i) { return (7 * i + 11) % NODES; }
static bool relabelled(int64_t head, int64_t i, int64_t j) { return scattered(head, renamed(i), renamed(j)); }

Test(variants_graph, relabelled_nodes_give_relabelled_rows) {
  for (attn_dtype dtype = ATTN_F32; dtype <= ATTN_F64; dtype++) {
    attn_problem p = shape_problem((case_shape){1, 2, 2, NODES, NODES, 9, 6, false, false}, dtype);
    inputs in = inputs_make(&p, false, 31, 1), other = inputs_copy(&in);
    for (tensor t = TENSOR_Q; t <= TENSOR_V; t++)
      for (int64_t at = 0; at < 2 * NODES; at++)
        for (int64_t l = 0; l < (t == TENSOR_V ? 6 : 9); l++)
          inputs_set(&other, t, 0, at / NODES, at % NODES, l,
                     inputs_get(&in, t, 0, at / NODES, renamed(at % NODES), l));
    files_hold(scattered, 2);
    attn_plan *plan = plan_made(&p, "graph:kind=file,file=x", NULL);
    oracle own = oracle_of_run(plan, &in);
    files_hold(relabelled, 2);
    void *o = run_spec("graph:kind=file,file=x", NULL, &other);
    for (int64_t at = 0; o && at < 2 * NODES * 6; at++) {
      size_t from = output_index(&p, 0, at / 6 / NODES, renamed(at / 6 % NODES), at % 6);
      double x = output_get(&p, o, 0, at / 6 / NODES, at / 6 % NODES, at % 6);
      if (!(fabs(x - own.o[from]) <= own.bound[from]))
        note_failure("element %d: %g, expected %g", (int)at, x, own.o[from]);
    }
    free(o);
    oracle_free(&own);
    attn_plan_destroy(plan);
    inputs_free(&in), inputs_free(&other);
  }
}

/* -- rows without keys, and refusals -- */

static bool nothing(int64_t head, int64_t i, int64_t j) { return head < 0 && i == j; }

Test(variants_graph, a_row_without_keys_gives_zeros) {
  files_hold(nothing, 1);
  inputs in = make_inputs(40, false, ATTN_F32);
  float *o = kept_memory(run_spec("graph:kind=file,file=x", NULL, &in));
  for (size_t at = 0; o && at < output_count(&in.problem); at++)
    if (!(o[at] <= 0 && o[at] >= 0)) note_failure("element %d is %g", (int)at, (double)o[at]);
}

static bool cyclic(int64_t head, int64_t i, int64_t j) { return head == 0 && i == 3 && j == 5; }
static bool two_parents(int64_t head, int64_t i, int64_t j) {
  return head == 0 && i == 3 && (j == 0 || j == 2);
}

Test(variants_graph, refusals) {
  attn_problem p = attn_problem_make(1, 1, 40, 8), more = p;
  more.n_q = 50;
  attn_graph_reader_set(NULL);
  expect_no_plan(&p, "graph:kind=file,file=x", ATTN_EUNSUPPORTED, "no reader for graphs");
  files_hold(cyclic, 1);
  expect_no_plan(&p, "graph:kind=tree,file=x", ATTN_EINVAL, "x: row 3");
  files_hold(two_parents, 1);
  expect_no_plan(&p, "graph:kind=tree,file=x", ATTN_EINVAL, "x: row 3");
  expect_no_plan(&p, "graph:kind=file,file=nowhere", ATTN_EINVAL, "nowhere");
  expect_no_plan(&p, "graph:kind=file", ATTN_EINVAL, "file");
  expect_no_plan(&p, "graph:file=x", ATTN_EINVAL, "kind=file");
  expect_no_plan(&p, "graph:self=yes", ATTN_EINVAL, "self");
  expect_no_plan(&p, "graph:block=3", ATTN_EINVAL, "block");
  expect_no_plan(&p, "graph:offsets=3+40", ATTN_EINVAL, "n_kv = 40");
  expect_no_plan(&p, "graph:kind=prefix,offsets=3", ATTN_EINVAL, "offsets");
  expect_no_plan(&p, "graph:kind=natten,width=7", ATTN_EINVAL,
                 "natten needs a width that divides n_kv = 40, which 7 does not");
  expect_no_plan(&p, "graph:kind=natten,width=8,kernel=4", ATTN_EINVAL, "odd");
  expect_no_plan(&more, "graph", ATTN_EUNSUPPORTED, "n_q > n_kv");
}
