/* graph_file.c - graphs from files: which keys each query sees, as spans (attn_graph_reader_set).
 *
 *   npy |u1, |b1   [rows, columns] or [heads, rows, columns]: 1 where there is an edge
 *   npy <i8        [edges, 2] of (row, column), or [edges, 3] with the head before them; or [rows], one
 *                  column for each row, -1 for none: a list of parents; or a mask as above, of more than 3
 *                  columns
 *   HDF5,          indptr [rows + 1] (or [heads * rows + 1], the rows of one head after those of another) and
 *   safetensors    indices, the columns of one row after those of another: SciPy's compressed sparse rows
 *
 * Whatever does not fit the wanted shape, lies outside it or stands there twice is refused by its place. */
#include "data/formats/graph_file.h"

#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "data/formats/npy.h"
#include "data/formats/qkv.h"

/* The edges of a file: (head * rows + row) * columns + column. */
typedef struct edges {
  const char *path;
  const attn_graph_request *want;
  int64_t heads, count, *at;
} edges;

static int compare(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static void edges_sort(edges *e) {
  int64_t i = 1;
  while (i < e->count && e->at[i - 1] <= e->at[i]) i++;
  if (i < e->count) qsort(e->at, (size_t)e->count, sizeof *e->at, compare);
}

/* Room for the edges of the file, and for those that the request adds. */
static attn_status edges_make(const char *path, const attn_graph_request *want, int64_t heads, int64_t count,
                              edges *out) {
  edges e = {.path = path, .want = want, .heads = heads};
  int64_t all[] = {heads, want->rows, want->columns}, room[] = {count + heads * want->rows, 2, 8};
  size_t bytes;
  attn_status status = attn_size_product("the edges of a graph", all, 3, &bytes);
  if (!status) status = attn_size_product("the edges of a graph", room, 3, &bytes);
  if (status) return status;
  if (!(e.at = malloc(bytes)))
    return attn_fail(ATTN_ENOMEM, "%s: no memory for %zu bytes of edges", path, bytes);
  *out = e;
  return ATTN_OK;
}

static int64_t code_of(const edges *e, int64_t head, int64_t row, int64_t column) {
  return (head * e->want->rows + row) * e->want->columns + column;
}

static attn_status refuse_duplicates(const edges *e) {
  for (int64_t i = 1; i < e->count; i++)
    if (e->at[i] == e->at[i - 1]) {
      const int64_t row = e->at[i] / e->want->columns;
      return attn_fail(ATTN_EINVAL,
                       "%s: row %lld of head %lld names column %lld twice, expected distinct edges", e->path,
                       (long long)(row % e->want->rows), (long long)(row / e->want->rows),
                       (long long)(e->at[i] % e->want->columns));
    }
  return ATTN_OK;
}

/* The edges that symmetry and the rows themselves add. */
static void edges_complete(edges *e) {
  const int64_t rows = e->want->rows, given = e->count;
  for (int64_t i = 0; e->want->symmetric && i < given; i++) {
    const int64_t row = e->at[i] / rows;
    e->at[e->count++] = code_of(e, row / rows, e->at[i] % rows, row % rows);
  }
  for (int64_t i = 0; e->want->self && i < e->heads * rows; i++)
    e->at[e->count++] = code_of(e, i / rows, i % rows, i % rows);
  if (e->count > given) edges_sort(e);
}

/* Takes the rows that a file has, if they are those wanted. */
static bool fits(attn_graph_request *want, int64_t rows) {
  const bool known = rows == want->columns || rows == want->rows;
  if (known) want->rows = rows;
  return known;
}

static attn_status check_square(const char *path, const attn_graph_request *want) {
  if (!(want->symmetric || want->self) || want->rows == want->columns) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s: symmetric and self need as many rows as columns, not %lld and %lld",
                   path, (long long)want->rows, (long long)want->columns);
}

static attn_status graph_make(const char *path, const attn_graph_request *want, int64_t heads, int64_t spans,
                              attn_graph *out) {
  attn_graph g = {.heads = heads, .rows = want->rows, .columns = want->columns};
  g.starts = calloc((size_t)(heads * want->rows + 1), sizeof *g.starts);
  g.spans = calloc((size_t)spans + 1, sizeof *g.spans);
  if (!g.starts || !g.spans) {
    attn_graph_free(&g);
    return attn_fail(ATTN_ENOMEM, "%s: no memory for %lld runs of keys", path, (long long)spans);
  }
  *out = g;
  return ATTN_OK;
}

/* Whether edge i continues the span of the edge before it; one that stands there again does. */
static bool continues(const edges *e, int64_t i) {
  return i > 0 && e->at[i] <= e->at[i - 1] + 1 &&
         e->at[i] / e->want->columns == e->at[i - 1] / e->want->columns;
}

static attn_status edges_to_graph(edges *e, attn_graph *out) {
  int64_t spans = 0, row = 0, used = 0;
  edges_sort(e);
  attn_status status = refuse_duplicates(e);
  if (status) return status;
  edges_complete(e);
  for (int64_t i = 0; i < e->count; i++) spans += !continues(e, i);
  if ((status = graph_make(e->path, e->want, e->heads, spans, out))) return status;
  for (int64_t i = 0; i < e->count; i++) {
    const int64_t column = e->at[i] % e->want->columns;
    while (row <= e->at[i] / e->want->columns) out->starts[row++] = used;
    if (!continues(e, i)) out->spans[used++].first = column;
    out->spans[used - 1].end = column + 1;
  }
  while (row <= e->heads * e->want->rows) out->starts[row++] = used;
  return ATTN_OK;
}

/* ---- masks --------------------------------------------------------------------------------------------- */

typedef struct mask {
  const npy_array *file;
  const attn_graph_request *want;
} mask;

static int64_t load(const npy_array *file, int64_t i) {
  int64_t value;
  if (file->element == 1) return file->at[i];
  memcpy(&value, file->at + 8 * i, sizeof value);
  return value;
}

static bool marked(const mask *m, int64_t head, int64_t i, int64_t j) {
  const int64_t rows = m->want->rows, columns = m->want->columns;
  return load(m->file, (head * rows + i) * columns + j) || (m->want->self && i == j) ||
         (m->want->symmetric && load(m->file, (head * rows + j) * columns + i));
}

/* The spans of all rows, into *g if it is not NULL. Returns how many there are. */
static int64_t mask_spans(const mask *m, int64_t heads, attn_graph *g) {
  int64_t used = 0;
  for (int64_t r = 0; r < heads * m->want->rows; r++) {
    bool inside = false;
    if (g) g->starts[r] = used;
    for (int64_t j = 0; j < m->want->columns; j++) {
      const bool now = marked(m, r / m->want->rows, r % m->want->rows, j);
      if (now && !inside && g) g->spans[used].first = j;
      if (now && g) g->spans[used].end = j + 1;
      used += inside && !now;
      inside = now;
    }
    used += inside;
  }
  if (g) g->starts[heads * m->want->rows] = used;
  return used;
}

static attn_status read_mask(const char *path, const npy_array *file, attn_graph_request *want,
                             attn_graph *out) {
  const int64_t *shape = file->shape + (file->rank == 3), heads = file->rank == 3 ? file->shape[0] : 1;
  const int64_t columns = want->columns;
  if (file->rank < 2 || file->rank > 3 || (heads != 1 && heads != want->heads) || shape[1] != columns ||
      !fits(want, shape[0])) {
    char text[96];
    data_array array = {.rank = file->rank};
    memcpy(array.shape, file->shape, sizeof array.shape);
    array_print_shape(&array, text);
    return attn_fail(ATTN_EINVAL, "%s: a mask %s, expected [%lld,%lld] or [%lld,%lld,%lld]", path, text,
                     (long long)want->rows, (long long)columns, (long long)want->heads, (long long)want->rows,
                     (long long)columns);
  }
  attn_status status = check_square(path, want);
  if (status) return status;
  for (int64_t i = 0; i < heads * want->rows * columns; i++)
    if (load(file, i) < 0 || load(file, i) > 1)
      return attn_fail(ATTN_EINVAL, "%s: row %lld, column %lld is %lld, expected 0 or 1", path,
                       (long long)(i / columns % want->rows), (long long)(i % columns),
                       (long long)load(file, i));
  const mask m = {file, want};
  status = graph_make(path, want, heads, mask_spans(&m, heads, NULL), out);
  if (!status) mask_spans(&m, heads, out);
  return status;
}

/* ---- lists --------------------------------------------------------------------------------------------- */

static bool within(int64_t x, int64_t size) { return x >= 0 && x < size; }

static attn_status list_edges(const npy_array *file, edges *e) {
  const attn_graph_request *want = e->want;
  const int64_t width = file->rank == 1 ? 1 : file->shape[1];
  for (int64_t i = 0; i < file->shape[0]; i++) {
    const int64_t end = (i + 1) * width, head = width == 3 ? load(file, end - 3) : 0,
                  row = width == 1 ? i : load(file, end - 2), column = load(file, end - 1);
    if (width == 1 && column == -1) continue;
    if (!within(head, e->heads) || !within(row, want->rows) || !within(column, want->columns))
      return attn_fail(
          ATTN_EINVAL,
          "%s: edge %lld is (head %lld, row %lld, column %lld), expected below (%lld, %lld, %lld) and "
          "none below 0",
          e->path, (long long)i, (long long)head, (long long)row, (long long)column, (long long)e->heads,
          (long long)want->rows, (long long)want->columns);
    e->at[e->count++] = code_of(e, head, row, column);
  }
  return ATTN_OK;
}

/* Edges tell no shape: their rows are positions, unless there are more queries than keys. */
static attn_status read_list(const char *path, const npy_array *file, attn_graph_request *want,
                             attn_graph *out) {
  edges e = {.path = path};
  if (want->rows < want->columns) want->rows = want->columns;
  const bool pairs = file->rank == 2 && (file->shape[1] == 2 || file->shape[1] == 3);
  if (!pairs && !(file->rank == 1 && file->shape[0] == want->rows))
    return attn_fail(ATTN_EINVAL,
                     "%s: '<i8' of %d axes, expected edges [.,2] or [.,3], or the %lld columns of rows", path,
                     file->rank, (long long)want->rows);
  attn_status status = check_square(path, want);
  if (!status)
    status = edges_make(path, want, pairs && file->shape[1] == 3 ? want->heads : 1, file->shape[0], &e);
  if (!status) status = list_edges(file, &e);
  if (!status) status = edges_to_graph(&e, out);
  free(e.at);
  return status;
}

/* ---- compressed sparse rows ---------------------------------------------------------------------------- */

static attn_status check_indptr(const char *path, const graph_rows *x) {
  if (x->indptr[0] != 0)
    return attn_fail(ATTN_EINVAL, "%s: indptr[0] = %lld, expected 0", path, (long long)x->indptr[0]);
  for (int64_t r = 1; r < x->starts; r++)
    if (x->indptr[r] < x->indptr[r - 1])
      return attn_fail(ATTN_EINVAL,
                       "%s: indptr[%lld] = %lld is below its predecessor %lld, expected ascending", path,
                       (long long)r, (long long)x->indptr[r], (long long)x->indptr[r - 1]);
  if (x->indptr[x->starts - 1] != x->edges)
    return attn_fail(ATTN_EINVAL, "%s: indptr[%lld] = %lld, expected the number of indices, %lld", path,
                     (long long)(x->starts - 1), (long long)x->indptr[x->starts - 1], (long long)x->edges);
  return ATTN_OK;
}

attn_status graph_from_rows(const char *path, const graph_rows *x, const attn_graph_request *wanted,
                            attn_graph *out) {
  attn_graph_request fit = *wanted, *want = &fit;
  edges e = {.path = path};
  const int64_t rows = x->starts - 1, heads = fits(want, rows) ? 1 : want->heads;
  if (rows % heads || !fits(want, rows / heads))
    return attn_fail(ATTN_EINVAL,
                     "%s: indptr has %lld elements, expected %lld (rows + 1), or %lld for %lld heads", path,
                     (long long)x->starts, (long long)want->rows + 1,
                     (long long)(want->heads * want->rows + 1), (long long)want->heads);
  attn_status status = check_square(path, want);
  if (!status) status = check_indptr(path, x);
  if (!status) status = edges_make(path, want, heads, x->edges, &e);
  for (int64_t r = 0; !status && r < x->starts - 1; r++)
    for (int64_t i = x->indptr[r]; !status && i < x->indptr[r + 1]; i++) {
      if (!within(x->indices[i], want->columns))
        status = attn_fail(ATTN_EINVAL, "%s: indices[%lld] = %lld (row %lld), expected 0 ... %lld", path,
                           (long long)i, (long long)x->indices[i], (long long)(r % want->rows),
                           (long long)want->columns - 1);
      else
        e.at[e.count++] = code_of(&e, 0, r, x->indices[i]);
    }
  if (!status) status = edges_to_graph(&e, out);
  free(e.at);
  return status;
}

attn_status graph_read(const char *path, bool parents, const attn_graph_request *want, attn_graph *out) {
  file_map content;
  npy_array file;
  attn_graph_request fit = *want;
  char *name = npz_file(path);
  attn_status status = name ? file_map_open(name, &content) : ATTN_ENOMEM;
  free(name);
  if (status) return status;
  const bool npy = npz_find_separator(path) || file_begins(&content, "\x93NUMPY"),
             hdf5 = file_begins(&content, "\x89HDF\r\n\x1a\n");
  file_map_close(&content);
  if (!npy) return hdf5 ? graph_read_hdf5(path, want, out) : graph_read_safetensors(path, want, out);
  if ((status = npy_open(path, &file))) return status;
  const bool wide = npy_is(&file, "<i8") && file.rank > 1 && file.shape[file.rank - 1] > 3;
  if (npy_is(&file, "|u1") || npy_is(&file, "|b1") || wide)
    status = read_mask(path, &file, &fit, out);
  else if (npy_is(&file, "<i8") && file.rank == 1 && !parents)
    status = attn_fail(ATTN_EINVAL, "%s: one axis; a mask is [n_q,n_kv] or [heads,n_q,n_kv]", path);
  else if (npy_is(&file, "<i8"))
    status = read_list(path, &file, &fit, out);
  else
    status =
        attn_fail(ATTN_EINVAL, "%s: elements are '%s'; a graph is '|u1', '|b1' or '<i8'", path, file.descr);
  npy_close(&file);
  return status;
}

attn_status data_graph_read(const char *path, const attn_graph_request *want, attn_graph *out) {
  return graph_read(path, true, want, out);
}
