/* graph_rows.c - compressed sparse rows in HDF5 and safetensors files: indptr and indices, as SciPy names
 * them.
 *
 * A file that we write has shape beside them, [rows of all heads, columns], for
 * scipy.sparse.csr_matrix((ones, indices, indptr), shape). */
#include "data/formats/graph_file.h"

#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "data/formats/hdf5_input.h"
#include "data/formats/hdf5_write.h"
#include "data/formats/kinds.h"
#include "data/formats/safetensors.h"

static const char *const names[2] = {"indptr", "indices"};

/* Edges may be weighted: that is another problem's bias, and never dropped in silence. */
static attn_status refuse_weights(const char *path) {
  return attn_fail(ATTN_EUNSUPPORTED, "%s: has weights; a graph is edges alone, expected indptr and indices",
                   path);
}

static attn_status rows_finish(const char *path, graph_rows *x, const attn_graph_request *want,
                               attn_status status, attn_graph *out) {
  if (!status) status = graph_from_rows(path, x, want, out);
  free(x->indptr);
  free(x->indices);
  return status;
}

static attn_status check_length(const char *path, const char *name, int rank, int64_t length) {
  if (rank == 1 && length >= (name == names[0])) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s: %s has %d axes and %lld elements, expected one axis", path, name, rank,
                   (long long)length);
}

/* ---- HDF5 ---------------------------------------------------------------------------------------------- */

static attn_status read_integers(const char *path, hid_t file, const char *name, int64_t **out,
                                 int64_t *count) {
  hid_t dataset = -1, type = -1, space = -1;
  if (H5Lexists(file, name, H5P_DEFAULT) <= 0 || (dataset = H5Dopen2(file, name, H5P_DEFAULT)) < 0)
    return attn_fail(ATTN_EINVAL, "%s: no dataset %s; expected indptr and indices", path, name);
  type = H5Dget_type(dataset);
  space = H5Dget_space(dataset);
  int64_t *made = NULL;
  const int rank = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
  const int64_t length = rank < 0 ? -1 : (int64_t)H5Sget_simple_extent_npoints(space);
  attn_status status = check_length(path, name, rank, length);
  if (!status && (type < 0 || H5Tget_class(type) != H5T_INTEGER))
    status = attn_fail(ATTN_EINVAL, "%s: dataset %s: elements are not integers", path, name);
  if (!status && !(made = calloc((size_t)length + 1, sizeof *made)))
    status = attn_fail(ATTN_ENOMEM, "%s: no memory for %lld integers", path, (long long)length);
  if (!status && H5Dread(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, made) < 0)
    status = attn_fail(ATTN_EINVAL, "%s: dataset %s cannot be read: the file is damaged", path, name);
  if (space >= 0) H5Sclose(space);
  if (type >= 0) H5Tclose(type);
  H5Dclose(dataset);
  if (status) {
    free(made);
    return status;
  }
  *out = made;
  *count = length;
  return ATTN_OK;
}

static attn_status read_rows(const char *path, void *context) {
  graph_rows *x = context;
  hid_t file = -1;
  const hdf5_quiet before = hdf5_quiet_begin();
  attn_status status = hdf5_input_open(path, &file);
  if (!status && H5Lexists(file, "weights", H5P_DEFAULT) > 0) status = refuse_weights(path);
  if (!status) status = read_integers(path, file, names[0], &x->indptr, &x->starts);
  if (!status) status = read_integers(path, file, names[1], &x->indices, &x->edges);
  if (file >= 0) H5Fclose(file);
  hdf5_quiet_end(before);
  return status;
}

attn_status graph_read_hdf5(const char *path, const attn_graph_request *want, attn_graph *out) {
  graph_rows x = {.starts = 0}, tried = x;
  attn_status status = hdf5_input_try(path, read_rows, &tried); /* in another process */
  if (!status) status = read_rows(path, &x);
  return rows_finish(path, &x, want, status, out);
}

/* ---- safetensors --------------------------------------------------------------------------------------- */

static attn_status widen(const char *path, const safetensors *file, const char *name, int64_t **out,
                         int64_t *count) {
  const tensor *t = safetensors_find(file, name);
  if (!t) return attn_fail(ATTN_EINVAL, "%s: no tensor %s; expected indptr and indices", path, name);
  const bool wide = strcmp(t->format->name, "I64") == 0;
  if (!wide && strcmp(t->format->name, "I32") != 0)
    return attn_fail(ATTN_EINVAL, "%s: tensor %s is %s; expected I32 or I64", path, name, t->format->name);
  attn_status status = check_length(path, name, t->rank, t->count);
  if (status) return status;
  int64_t *made = calloc((size_t)t->count + 1, sizeof *made);
  if (!made) return attn_fail(ATTN_ENOMEM, "%s: no memory for %lld integers", path, (long long)t->count);
  for (int64_t i = 0; i < t->count; i++) {
    int32_t narrow;
    if (wide) {
      memcpy(&made[i], t->at + 8 * i, sizeof made[i]);
    } else {
      memcpy(&narrow, t->at + 4 * i, sizeof narrow);
      made[i] = narrow;
    }
  }
  *out = made;
  *count = t->count;
  return ATTN_OK;
}

attn_status graph_read_safetensors(const char *path, const attn_graph_request *want, attn_graph *out) {
  safetensors *file = NULL;
  graph_rows x = {.starts = 0};
  attn_status status = safetensors_open(path, &file);
  if (status) return status;
  if (safetensors_find(file, "weights")) status = refuse_weights(path);
  if (!status) status = widen(path, file, names[0], &x.indptr, &x.starts);
  if (!status) status = widen(path, file, names[1], &x.indices, &x.edges);
  safetensors_close(file);
  return rows_finish(path, &x, want, status, out);
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static bool is_graph(const char *path, const file_map *content) {
  return hdf5_input_is(path, content, "kind", "graph");
}

const output_kind kind_graph = {"a graph", is_graph};

static bool write_integers(hid_t file, const char *name, int64_t count, const int64_t *at) {
  const hsize_t dims = (hsize_t)count;
  return hdf5_write_dataset(file, name, 1, &dims, H5T_STD_I64LE, H5T_NATIVE_INT64, at);
}

static bool write_rows(hid_t file, const void *context) {
  const attn_graph *g = context;
  const int64_t rows = g->heads * g->rows, shape[2] = {rows, g->columns};
  graph_rows x = {.starts = rows + 1, .indptr = calloc((size_t)rows + 1, sizeof *x.indptr)};
  for (int64_t s = 0; s < g->starts[rows]; s++) x.edges += g->spans[s].end - g->spans[s].first;
  x.indices = calloc((size_t)x.edges + 1, sizeof *x.indices);
  bool good = x.indptr && x.indices;
  for (int64_t r = 0, used = 0; good && r < rows; r++) {
    for (int64_t s = g->starts[r]; s < g->starts[r + 1]; s++)
      for (int64_t j = g->spans[s].first; j < g->spans[s].end; j++) x.indices[used++] = j;
    x.indptr[r + 1] = used;
  }
  good = good && write_integers(file, names[0], x.starts, x.indptr) &&
         write_integers(file, names[1], x.edges, x.indices) && write_integers(file, "shape", 2, shape) &&
         hdf5_write_attribute(file, &(hdf5_attribute){.name = "kind", .text = "graph"});
  free(x.indptr);
  free(x.indices);
  return good;
}

attn_status data_graph_write(const char *path, const attn_graph *g) {
  return hdf5_write(path, &kind_graph, write_rows, g);
}
