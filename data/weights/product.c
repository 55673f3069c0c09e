/* product.c - products with weights of a model (product.h). */
#include "data/weights/product.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
  SLICE = 1 << 20, /* elements of a matrix that are packed together: several for each thread of large ones */
  GROUP = 64,      /* most rows in place that a thread takes at a time */
  STRIP = 4096,    /* elements of a row that are widened at a time, whole blocks of every format */
  WIDENED = 4      /* rows whose strips are in the scratch together */
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
  t.scratch_bytes = (attn_gemm_scratch(kernels) + STRIP * WIDENED * sizeof(float) + 63) / 64 * 64;
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

/* Where row r of W is among those of all matrices of the tensor, and its number in the bias. */
static int64_t place_of(const product_rows *m, int64_t r) {
  const int64_t i = m->turned ? r % m->head : 0, from = i < m->turned / 2 ? 2 * i : 2 * i - m->turned + 1;
  if (i < m->turned) r += from - i;
  const tensor *t = m->weight;
  const int64_t before = m->expert > 0 ? m->expert * t->shape[t->rank - 2 + m->transposed] : 0;
  return before + m->first + r / m->run * m->stride + r % m->run;
}

/* Column `at` of a transposed tensor, rows of W from place `first` on, each `step`-th, to every columns-th
 * number of out. */
static attn_status widen_column(const product_rows *m, int64_t at, int64_t first, int64_t count, float *out) {
  enum { PART = 256 };
  float part[PART];
  const tensor *t = m->weight;
  const int64_t step = m->run == 1 ? m->stride : 1,
                from = (at + m->expert * (m->columns - 1)) * t->shape[t->rank - 1] + first;
  attn_status status = ATTN_OK;
  for (int64_t i = 0, some; !status && i < count; i += some) {
    some = count - i < PART / step ? count - i : PART / step;
    status = tensor_to_f32(t, from + i * step, (some - 1) * step + 1, part);
    for (int64_t j = 0; j < some; j++) out[(i + j) * m->columns] = part[j * step];
  }
  return status;
}

/* Columns first ... of a row at its place in the tensor, times their scales. */
static attn_status widen_row(const product_rows *m, int64_t place, int64_t first, int64_t count, float *out) {
  const int64_t width = m->scale_columns, scales = m->scale ? (m->columns - 1) / width + 1 : 0;
  attn_status status = tensor_to_f32(m->weight, place * m->columns + first, count, out);
  for (int64_t s = m->scale ? first / width : 0; !status && s < scales && s * width < first + count; s++) {
    float scale = 1;
    status = tensor_to_f32(m->scale, place / m->scale_rows * scales + s, 1, &scale);
    for (int64_t c = attn_max(first, s * width); c < attn_min(first + count, (s + 1) * width); c++)
      out[c - first] *= scale;
  }
  return status;
}

/* Rows first .. first+count-1 as f32. */
static attn_status widen_rows(const product_rows *m, int64_t first, int64_t count, float *out) {
  const bool whole = !m->turned && m->run >= m->rows && !m->scale;
  attn_status status = ATTN_OK;
  for (int64_t c = 0; m->transposed && !status && c < m->columns; c++)
    status = widen_column(m, c, place_of(m, first), count, out + c);
  if (m->transposed) return status;
  if (whole) return tensor_to_f32(m->weight, place_of(m, first) * m->columns, count * m->columns, out);
  for (int64_t r = first; !status && r < first + count; r++, out += m->columns)
    status = widen_row(m, place_of(m, r), 0, m->columns, out);
  return status;
}

attn_status product_rows_widen(const product_rows *m, float *out) { return widen_rows(m, 0, m->rows, out); }

/* Whether kernels read rows of the matrix where they are: elements may stand anywhere in a file. */
static bool kernels_read(const product_rows *m) {
  const tensor_format *f = m->weight->format;
  return f->stored != ATTN_WEIGHT_NONE && !m->scale &&
         (f->block > 1 || (uintptr_t)m->weight->at % (size_t)f->bytes == 0);
}

static attn_status load_bias(const product_rows *from, float **out) {
  attn_status status = *out ? ATTN_OK : product_allocate("a bias", 1, from->rows, sizeof **out, out);
  for (int64_t r = 0; !status && r < from->rows; r++)
    status = tensor_to_f32(from->bias, place_of(from, r), 1, *out + r);
  return status;
}

attn_status product_matrix_load(const product_tools *tools, const product_rows *from, product_matrix *m) {
  const char *name = from->weight->name;
  if (!m->at) {
    m->rows = from->rows;
    m->columns = from->columns;
    m->slice = SLICE / m->columns > 0 ? SLICE / m->columns : 1;
    m->slice = m->slice < m->rows ? m->slice : m->rows;
    m->stride = (attn_gemm_packed_bytes(tools->kernels, m->columns, m->slice) + 63) / 64 * 64;
    attn_status status = product_allocate(name, (m->rows - 1) / m->slice + 1, (int64_t)m->stride, 1, &m->at);
    if (status) return status;
  }
  attn_status failed = from->bias ? load_bias(from, &m->bias) : ATTN_OK;
  if (failed) return failed;
#pragma omp parallel num_threads(tools->threads)
  {
    float *wide = NULL;
    attn_status status = product_allocate(name, m->slice, m->columns, sizeof *wide, &wide);
#pragma omp for schedule(static)
    for (int64_t first = 0; first < m->rows; first += m->slice) {
      const int64_t count = m->rows - first < m->slice ? m->rows - first : m->slice;
      if (!status) status = widen_rows(from, first, count, wide);
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
  return failed == ATTN_ENOMEM ? attn_fail(failed, "no memory to widen %s", name) : failed;
}

attn_status product_matrix_place(const product_tools *tools, const product_rows *from, product_matrix *m) {
  float first[STRIP];
  if (from->transposed) return product_matrix_load(tools, from, m);
  attn_status status = widen_row(from, place_of(from, 0), 0, attn_min(from->columns, STRIP), first);
  if (!status && from->bias) status = load_bias(from, &m->bias);
  if (status) return status;
  m->rows = from->rows;
  m->columns = from->columns;
  m->place = *from;
  return ATTN_OK;
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

/* As multiply_group, of a matrix whose rows must be widened: a strip of WIDENED rows after the other. The
 * first strip was widened before (product_matrix_place), so none fails. */
static void multiply_widened(const product_tools *tools, const product_matrix *m, int64_t first, int64_t rows,
                             int64_t n, const float *x, bool accumulate, float *y, float *scratch) {
  const void *w[WIDENED];
  for (int64_t r = first; r < first + rows; r += WIDENED) {
    const int64_t some = attn_min(WIDENED, first + rows - r);
    for (int64_t c = 0; c < m->columns; c += STRIP) {
      const int64_t width = attn_min(STRIP, m->columns - c);
      for (int64_t i = 0; i < some; i++) {
        w[i] = scratch + i * STRIP;
        (void)widen_row(&m->place, place_of(&m->place, r + i), c, width, scratch + i * STRIP);
      }
      attn_weight_product(tools->kernels, ATTN_WEIGHT_F32, some, n, width, w, x + c, m->columns,
                          accumulate || c, y + r, m->rows);
    }
  }
}

/* Rows first ... of W, at most GROUP. */
static void multiply_group(const product_tools *tools, const product_matrix *m, int64_t first, int64_t rows,
                           int64_t n, const float *x, bool accumulate, float *y) {
  const tensor *t = m->place.weight;
  const int64_t bytes = m->columns / t->format->block * t->format->bytes;
  const void *w[GROUP];
  for (int64_t r = 0; r < rows; r++) w[r] = t->at + place_of(&m->place, first + r) * bytes;
  attn_weight_product(tools->kernels, t->format->stored, rows, n, m->columns, w, x, m->columns, accumulate,
                      y + first, m->rows);
}

static void multiply_in_place(const product_tools *tools, const product_matrix *m, int64_t n, const float *x,
                              bool accumulate, float *y) {
  const int64_t share = attn_ceil_div(m->rows, 4 * tools->threads * WIDENED) * WIDENED,
                group = attn_min(share, GROUP);
  const bool add = accumulate || m->bias, direct = kernels_read(&m->place);
#pragma omp parallel for num_threads(tools->threads) schedule(dynamic)
  for (int64_t first = 0; first < m->rows; first += group) {
    const int64_t rows = attn_min(group, m->rows - first);
    float *scratch = (float *)(tools->scratch + (size_t)omp_get_thread_num() * tools->scratch_bytes);
    if (m->bias) put_bias(m->bias + first, n, rows, accumulate, y + first, m->rows);
    if (direct)
      multiply_group(tools, m, first, rows, n, x, add, y);
    else
      multiply_widened(tools, m, first, rows, n, x, add, y, scratch);
  }
}

static void multiply_packed(const product_tools *tools, const product_matrix *m, int64_t n, const float *x,
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

void product_multiply(const product_tools *tools, const product_matrix *m, int64_t n, const float *x,
                      bool accumulate, float *y) {
  if (m->at)
    multiply_packed(tools, m, n, x, accumulate, y);
  else
    multiply_in_place(tools, m, n, x, accumulate, y);
}
