/* product.c - products with weights of a model (product.h). */
#include "data/weights/product.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
  SLICE = 1 << 20 /* elements of a matrix that are packed together: several for each thread of large ones */
};

attn_status product_allocate(const char *what, int64_t rows, int64_t columns, size_t size, void *out) {
  size_t bytes;
  attn_status status = attn_size_product(what, (int64_t[]){rows, columns, (int64_t)size}, 3, &bytes);
  if (status) return status;
  void *at = aligned_alloc(64, (bytes / 64 + 1) * 64);
  if (!at) return attn_fail(ATTN_ENOMEM, "no memory for %s, %zu bytes", what, bytes);
  memcpy(out, &at, sizeof at);
  return ATTN_OK;
}

attn_status product_tools_make(const attn_kernels *kernels, product_tools *out) {
  product_tools t = {.kernels = kernels, .threads = omp_get_max_threads()};
  t.scratch_bytes = (attn_gemm_scratch(kernels) + 63) / 64 * 64;
  attn_status status =
      product_allocate("scratch of products", t.threads, (int64_t)t.scratch_bytes, 1, &t.scratch);
  if (!status) *out = t;
  return status;
}

void product_tools_free(product_tools *t) {
  free(t->scratch);
  *t = (product_tools){0};
}

attn_status product_vector_load(const tensor *t, float **out) {
  attn_status status = *out ? ATTN_OK : product_allocate(t->name, 1, t->shape[0], sizeof **out, out);
  return status ? status : tensor_to_f32(t, 0, t->shape[0], *out);
}

/* Rows first .. first+count-1 as f32; head and turned as of product_matrix_load. */
static attn_status widen_rows(const tensor *t, int64_t head, int64_t turned, int64_t first, int64_t count,
                              float *out) {
  const int64_t columns = t->shape[1];
  attn_status status = ATTN_OK;
  if (!turned) return tensor_to_f32(t, first * columns, count * columns, out);
  for (int64_t row = first; !status && row < first + count; row++, out += columns) {
    const int64_t i = row % head, from = i < turned / 2 ? 2 * i : 2 * i - turned + 1;
    status = tensor_to_f32(t, (i < turned ? row - i + from : row) * columns, columns, out);
  }
  return status;
}

attn_status product_matrix_load(const product_tools *tools, const tensor *t, const tensor *bias, int64_t head,
                                int64_t turned, product_matrix *m) {
  if (!m->at) {
    m->rows = t->shape[0];
    m->columns = t->shape[1];
    m->slice = SLICE / m->columns > 0 ? SLICE / m->columns : 1;
    m->slice = m->slice < m->rows ? m->slice : m->rows;
    m->stride = (attn_gemm_packed_bytes(tools->kernels, m->columns, m->slice) + 63) / 64 * 64;
    attn_status status =
        product_allocate(t->name, (m->rows - 1) / m->slice + 1, (int64_t)m->stride, 1, &m->at);
    if (status) return status;
  }
  attn_status failed = bias ? product_vector_load(bias, &m->bias) : ATTN_OK;
  if (failed) return failed;
#pragma omp parallel num_threads(tools->threads)
  {
    float *wide = NULL;
    attn_status status = product_allocate(t->name, m->slice, m->columns, sizeof *wide, &wide);
#pragma omp for schedule(static)
    for (int64_t first = 0; first < m->rows; first += m->slice) {
      const int64_t count = m->rows - first < m->slice ? m->rows - first : m->slice;
      if (!status) status = widen_rows(t, head, turned, first, count, wide);
      if (!status)
        attn_gemm_pack(tools->kernels, m->columns, count, (attn_matrix){wide, 1, m->columns},
                       m->at + (size_t)(first / m->slice) * m->stride);
    }
    free(wide);
    if (status) {
#pragma omp critical
      failed = status;
    }
  }
  return failed == ATTN_ENOMEM ? attn_fail(failed, "no memory to widen %s", t->name) : failed;
}

void product_matrix_free(product_matrix *m) {
  free(m->at);
  free(m->bias);
  *m = (product_matrix){0};
}

/* y[n, count] <- b, or += b, for the product to be added to. */
static void put_bias(const float *bias, int64_t n, int64_t count, bool accumulate, float *y, int64_t row) {
  for (int64_t i = 0; i < n; i++, y += row)
    for (int64_t j = 0; j < count; j++) y[j] = accumulate ? y[j] + bias[j] : bias[j];
}

void product_multiply(const product_tools *tools, const product_matrix *m, int64_t n, const float *x,
                      bool accumulate, float *y) {
  const int64_t slices = (m->rows - 1) / m->slice + 1, part = (n + tools->threads - 1) / tools->threads,
                parts = (n - 1) / part + 1;
#pragma omp parallel for num_threads(tools->threads) schedule(dynamic)
  for (int64_t t = 0; t < slices * parts; t++) {
    const int64_t s = t / parts, i = t % parts * part, first = s * m->slice,
                  rows = n - i < part ? n - i : part;
    const int64_t count = m->rows - first < m->slice ? m->rows - first : m->slice;
    float *to = y + i * m->rows + first;
    if (m->bias) put_bias(m->bias + first, rows, count, accumulate, to, m->rows);
    attn_gemm_packed(tools->kernels, rows, count, m->columns,
                     (attn_matrix){x + i * m->columns, m->columns, 1},
                     (attn_packed){m->at + (size_t)s * m->stride, m->columns, count}, accumulate || m->bias,
                     to, m->rows, tools->scratch + (size_t)omp_get_thread_num() * tools->scratch_bytes);
  }
}
