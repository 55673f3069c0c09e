/* fast_transform.c - rows of T diag(sign) x for a fast orthogonal transform T: the DCT-II by FFTW (Frigo and
 * Johnson 2005) and the Walsh-Hadamard transform by butterflies.
 *
 * DCT: with v = (x_0, x_2, x_4, ... , x_5, x_3, x_1) and V its Fourier transform, row r of the unnormalised
 * DCT-II is Re(e^(-i pi r / 2n) V_r) (Makhoul 1980). FFTW's real transform of one contiguous, aligned column
 * is several times as fast as its REDFT10 and as its transforms across columns, and the factor is needed for
 * the rows asked for alone.
 *
 * FFTW allocates for itself; planning is serialised, executing is not. */
#include "core/engines/fftw_planner.h"
#include "core/internal.h"

#include <fftw3.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = ATTN_TRANSFORM_COLUMNS, ROWS = 64 /* transposed at a time */ };

pthread_mutex_t attn_fftw_planner = PTHREAD_MUTEX_INITIALIZER;

struct attn_transform {
  attn_transform_kind kind;
  attn_dtype dtype;
  int64_t n;
  fftwf_plan f32, f32_back; /* DCT, to the spectrum and from it */
  fftw_plan f64, f64_back;
};

/* x: columns one after another (DCT) or rows (Walsh); the spectrum of one column; for each row asked for the
 * weights of the spectrum's real and imaginary part. */
typedef struct layout {
  void *x, *spectrum, *tile;
  double *weights;
  int64_t stride; /* between columns */
} layout;

static layout lay_out(attn_transform_kind kind, int64_t n, int64_t count, attn_dtype t, attn_carver *carver) {
  layout l = {.stride = attn_padded(n, t)};
  size_t size = attn_dtype_size(t);
  if (kind == ATTN_WALSH) {
    l.x = attn_carve(carver, n, COLUMNS, size);
    return l;
  }
  l.x = attn_carve(carver, l.stride, COLUMNS, size);
  l.spectrum = attn_carve(carver, n / 2 + 1, 2, size);
  l.tile = attn_carve(carver, ROWS, COLUMNS, size);
  l.weights = attn_carve(carver, count, 2, sizeof(double));
  return l;
}

size_t attn_transform_scratch(attn_transform_kind kind, int64_t n, int64_t count, attn_dtype t) {
  attn_carver counter = {0};
  lay_out(kind, n, count, t, &counter);
  return counter.used;
}

static void release_plans(const attn_transform *t) {
  pthread_mutex_lock(&attn_fftw_planner);
  if (t->f64) fftw_destroy_plan(t->f64);
  if (t->f64_back) fftw_destroy_plan(t->f64_back);
  if (t->f32) fftwf_destroy_plan(t->f32);
  if (t->f32_back) fftwf_destroy_plan(t->f32_back);
  pthread_mutex_unlock(&attn_fftw_planner);
}

/* ESTIMATE looks at the alignment of the arrays and not at their content; the same plan every time. */
static attn_status make_plan(attn_transform *t) {
  if (t->n > INT32_MAX)
    return attn_fail(ATTN_EUNSUPPORTED, "dct: length %lld is beyond FFTW's sizes", (long long)t->n);
  size_t size = attn_dtype_size(t->dtype);
  pthread_mutex_lock(&attn_fftw_planner);
  void *x = fftw_malloc((size_t)t->n * size), *spectrum = fftw_malloc((size_t)(t->n / 2 + 1) * 2 * size);
  bool memory = x && spectrum;
  if (memory && size == sizeof(double)) {
    t->f64 = fftw_plan_dft_r2c_1d((int)t->n, x, spectrum, FFTW_ESTIMATE);
    t->f64_back = fftw_plan_dft_c2r_1d((int)t->n, spectrum, x, FFTW_ESTIMATE);
  } else if (memory) {
    t->f32 = fftwf_plan_dft_r2c_1d((int)t->n, x, spectrum, FFTW_ESTIMATE);
    t->f32_back = fftwf_plan_dft_c2r_1d((int)t->n, spectrum, x, FFTW_ESTIMATE);
  }
  fftw_free(x);
  fftw_free(spectrum);
  pthread_mutex_unlock(&attn_fftw_planner);
  if ((t->f32 && t->f32_back) || (t->f64 && t->f64_back)) return ATTN_OK;
  release_plans(t);
  return attn_fail(memory ? ATTN_EFOREIGN : ATTN_ENOMEM, "dct: FFTW made no plan for length %lld",
                   (long long)t->n);
}

attn_status attn_transform_create(attn_transform **out, attn_transform_kind kind, int64_t n,
                                  attn_dtype dtype) {
  if (!out) return attn_null("transform", "transform");
  if (n < 1 || (kind == ATTN_WALSH && n & (n - 1)))
    return attn_fail(ATTN_EINVAL, "transform: length %lld, expected at least 1%s", (long long)n,
                     kind == ATTN_WALSH ? " and a power of two" : "");
  attn_transform *t = calloc(1, sizeof *t);
  if (!t) return attn_fail(ATTN_ENOMEM, "no memory for a transform");
  *t = (attn_transform){.kind = kind, .dtype = dtype, .n = n};
  attn_status status = kind == ATTN_DCT ? make_plan(t) : ATTN_OK;
  if (status)
    free(t);
  else
    *out = t;
  return status;
}

void attn_transform_destroy(attn_transform *t) {
  if (!t) return;
  release_plans(t);
  free(t);
}

static void walsh(const attn_transform *t, const attn_kernels *kernels, const attn_transform_job *in,
                  int64_t columns, const void *x, void *y, const layout *l) {
  attn_dtype type = t->dtype;
  kernels->scale_rows(in->x_rows, columns, x, in->x_row, in->sign, 1, l->x);
  memset(attn_at(l->x, in->x_rows * columns, type), 0,
         (size_t)((t->n - in->x_rows) * columns) * attn_dtype_size(type));
  kernels->walsh(t->n, columns, l->x);
  double weight = in->gain / sqrt((double)t->n);
  for (int64_t i = 0; i < in->count; i++)
    for (int64_t c = 0; c < columns; c++)
      attn_set(y, i * in->y_row + c, type, weight * attn_get(l->x, in->rows[i] * columns + c, type));
}

/* Rows j, j + 2, ... (count of them; before: j - 2, ...) of x become elements `to`, to + 1, ... of the
 * columns. */
static void transpose_rows(const attn_kernels *kernels, const attn_transform_job *in, int64_t columns,
                           const void *x, int64_t j, int64_t step, int64_t count, int64_t to, const layout *l,
                           attn_dtype t) {
  for (int64_t done = 0; done < count; done += ROWS, j += step * ROWS) {
    int64_t rows = attn_min(ROWS, count - done);
    kernels->scale_rows(rows, columns, attn_at(x, j * in->x_row, t), step * in->x_row, in->sign + j, step,
                        l->tile);
    kernels->transpose(rows, columns, l->tile, columns, attn_at(l->x, to + done, t), l->stride);
  }
}

static void cosine(const attn_transform *t, const attn_kernels *kernels, const attn_transform_job *in,
                   int64_t columns, const void *x, void *y, const layout *l) {
  attn_dtype type = t->dtype;
  int64_t n = t->n, even = (in->x_rows + 1) / 2, odd = in->x_rows / 2;
  for (int64_t c = 0; c < columns; c++)
    memset(attn_at(l->x, c * l->stride + even, type), 0, (size_t)(n - in->x_rows) * attn_dtype_size(type));
  transpose_rows(kernels, in, columns, x, 0, 2, even, 0, l, type);
  transpose_rows(kernels, in, columns, x, 2 * odd - 1, -2, odd, n - odd, l, type);
  for (int64_t c = 0; c < columns; c++) {
    void *column = attn_at(l->x, c * l->stride, type);
    if (t->f64)
      fftw_execute_dft_r2c(t->f64, column, l->spectrum);
    else
      fftwf_execute_dft_r2c(t->f32, column, l->spectrum);
    for (int64_t i = 0; i < in->count; i++) {
      /* The upper half of the spectrum is the conjugate of the lower. */
      int64_t at = attn_min(in->rows[i], n - in->rows[i]);
      attn_set(y, i * in->y_row + c, type,
               l->weights[2 * i] * attn_get(l->spectrum, 2 * at, type) +
                   l->weights[2 * i + 1] * attn_get(l->spectrum, 2 * at + 1, type));
    }
  }
}

/* What the spectrum is multiplied by; its upper half is the conjugate of the lower. */
static void weigh_spectrum(const attn_transform *t, const attn_transform_job *in, const layout *l) {
  for (int64_t i = 0; t->kind == ATTN_DCT && i < in->count; i++) {
    const int64_t r = in->rows[i];
    const double angle = 3.14159265358979323846 * (double)r / (2 * (double)t->n),
                 norm = in->gain * sqrt((r ? 2 : 1) / (double)t->n);
    l->weights[2 * i] = norm * cos(angle);
    l->weights[2 * i + 1] = norm * sin(angle) * (2 * r > t->n ? -1 : 1);
  }
}

void attn_transform_rows(const attn_transform *t, const attn_kernels *kernels, const attn_transform_job *in,
                         void *scratch) {
  if (!t || !kernels || !in || !scratch || !in->x || !in->y || !in->sign || !in->rows) return;
  attn_carver carver = {.base = scratch};
  layout l = lay_out(t->kind, t->n, in->count, t->dtype, &carver);
  weigh_spectrum(t, in, &l);
  for (int64_t c = 0; c < in->columns; c += COLUMNS) {
    int64_t columns = attn_min(COLUMNS, in->columns - c);
    const void *x = attn_at(in->x, c, t->dtype);
    void *y = attn_at(in->y, c, t->dtype);
    if (t->kind == ATTN_DCT)
      cosine(t, kernels, in, columns, x, y, &l);
    else
      walsh(t, kernels, in, columns, x, y, &l);
  }
}

/* -- transposed -- */

static void walsh_back(const attn_transform *t, const attn_kernels *kernels, const attn_transform_job *in,
                       int64_t columns, const void *x, void *y, const layout *l) {
  const attn_dtype type = t->dtype;
  const double weight = in->gain / sqrt((double)t->n);
  memset(l->x, 0, (size_t)(t->n * columns) * attn_dtype_size(type));
  for (int64_t i = 0; i < in->count; i++)
    memcpy(attn_at(l->x, in->rows[i] * columns, type), attn_at(x, i * in->x_row, type),
           (size_t)columns * attn_dtype_size(type));
  kernels->walsh(t->n, columns, l->x);
  for (int64_t j = 0; j < in->x_rows; j++)
    kernels->scale_row(columns, weight * in->sign[j], attn_at(l->x, j * columns, type),
                       attn_at(y, j * in->y_row, type));
}

/* FFTW counts numbers of a spectrum twice that stand in its upper half, too; the others are real. */
static void cosine_back(const attn_transform *t, const attn_transform_job *in, int64_t columns, const void *x,
                        void *y, const layout *l) {
  const attn_dtype type = t->dtype;
  const int64_t n = t->n;
  for (int64_t c = 0; c < columns; c++) {
    void *column = attn_at(l->x, c * l->stride, type);
    memset(l->spectrum, 0, (size_t)(n / 2 + 1) * 2 * attn_dtype_size(type));
    for (int64_t i = 0; i < in->count; i++) {
      const int64_t at = attn_min(in->rows[i], n - in->rows[i]);
      const int64_t parts = at && 2 * at < n ? 2 : 1;
      const double value = attn_get(x, i * in->x_row + c, type) / (double)parts;
      for (int64_t part = 0; part < parts; part++)
        attn_set(l->spectrum, 2 * at + part, type,
                 attn_get(l->spectrum, 2 * at + part, type) + l->weights[2 * i + part] * value);
    }
    if (t->f64)
      fftw_execute_dft_c2r(t->f64_back, l->spectrum, column);
    else
      fftwf_execute_dft_c2r(t->f32_back, l->spectrum, column);
    for (int64_t j = 0; j < in->x_rows; j++)
      attn_set(y, j * in->y_row + c, type,
               in->sign[j] * attn_get(column, j % 2 ? n - 1 - j / 2 : j / 2, type));
  }
}

void attn_transform_transposed(const attn_transform *t, const attn_kernels *kernels,
                               const attn_transform_job *in, void *scratch) {
  if (!t || !kernels || !in || !scratch || !in->x || !in->y || !in->sign || !in->rows) return;
  attn_carver carver = {.base = scratch};
  const layout l = lay_out(t->kind, t->n, in->count, t->dtype, &carver);
  weigh_spectrum(t, in, &l);
  for (int64_t c = 0; c < in->columns; c += COLUMNS) {
    const int64_t columns = attn_min(COLUMNS, in->columns - c);
    const void *x = attn_at(in->x, c, t->dtype);
    void *y = attn_at(in->y, c, t->dtype);
    if (t->kind == ATTN_DCT)
      cosine_back(t, in, columns, x, y, &l);
    else
      walsh_back(t, kernels, in, columns, x, y, &l);
  }
}
