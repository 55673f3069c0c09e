/* npy.c - NumPy's .npy files.
 *
 * Format: "\x93NUMPY", major, minor, header length (2 bytes little-endian in version 1, 4 in versions 2 and
 * 3), then a Python dictionary with exactly the keys descr, fortran_order and shape, padded with blanks and
 * ended by a newline, then the elements (numpy.lib.format). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "data/formats/kinds.h"
#include "data/formats/npy.h"
#include "data/formats/tensor.h"

/* The file must hold the header and the elements, and nothing else. */
static attn_status check_size(const char *path, size_t size, const npy_header *h, size_t element,
                              size_t *bytes) {
  int64_t factors[DATA_RANK_MAX + 1] = {(int64_t)element};
  size_t wanted, there = size - h->offset;
  for (int i = 0; i < h->rank; i++) factors[i + 1] = h->shape[i];
  if (attn_size_product("bytes", factors, (size_t)h->rank + 1, &wanted))
    return attn_fail(ATTN_EINVAL, "%s: the sizes of the shape overflow", path);
  if (there < wanted)
    return attn_fail(ATTN_EINVAL, "%s: truncated: the shape needs %zu bytes, %zu are there", path, wanted,
                     there);
  if (there > wanted)
    return attn_fail(ATTN_EINVAL, "%s: %zu bytes after the end of the array", path, there - wanted);
  *bytes = wanted;
  return ATTN_OK;
}

static const struct {
  const char *name; /* behind the order of bytes */
  size_t bytes;
} types[] = {{"f2", 2}, {"f4", 4}, {"f8", 8}, {"i4", 4}, {"i8", 8},
             {"u2", 2}, {"i2", 2}, {"V2", 2}, {"u1", 1}, {"b1", 1}};

/* Sets descr and element of *a; *swapped: the file has the other order of bytes. */
static attn_status take_type(const char *path, const char *descr, npy_array *a, bool *swapped) {
  for (size_t i = 0; i < sizeof types / sizeof *types && *descr && strchr("<>|=", *descr); i++) {
    if (strcmp(descr + 1, types[i].name) != 0) continue;
    a->element = types[i].bytes;
    *swapped = *descr == '>';
    const bool ordered = a->element > 1 && types[i].name[0] != 'V';
    snprintf(a->descr, sizeof a->descr, "%c%s", ordered ? '<' : '|', types[i].name);
    return ATTN_OK;
  }
  return attn_fail(ATTN_EINVAL, "%s: elements are '%s'; expected f2, f4, f8, i4, i8, V2, u2, i2, u1 or b1",
                   path, descr);
}

static void copy_element(uint8_t *to, const uint8_t *from, size_t element, bool swapped) {
  for (size_t b = 0; b < element; b++) to[b] = from[swapped ? element - 1 - b : b];
}

/* The elements in C order, little-endian. */
static attn_status reorder(const char *path, npy_array *a, bool fortran, bool swapped) {
  size_t stride[DATA_RANK_MAX], row = a->element;
  int64_t index[DATA_RANK_MAX] = {0};
  uint8_t *made = malloc(a->bytes), *to = made;
  if (!made) return attn_fail(ATTN_ENOMEM, "%s: no memory for %zu bytes in C order", path, a->bytes);
  for (int i = 0; i < a->rank; i++) {
    const int axis = fortran ? i : a->rank - 1 - i;
    stride[axis] = row;
    row *= (size_t)a->shape[axis];
  }
  const int last = a->rank - 1;
  for (const uint8_t *from = a->at; from;) {
    for (int64_t i = 0; i < a->shape[last]; i++, to += a->element)
      copy_element(to, from + (size_t)i * stride[last], a->element, swapped);
    int axis = last - 1;
    while (axis >= 0 && ++index[axis] == a->shape[axis]) index[axis--] = 0;
    from = axis < 0 ? NULL : a->at;
    for (int i = 0; from && i < last; i++) from += (size_t)index[i] * stride[i];
  }
  free(a->owned);
  a->at = a->owned = made;
  return ATTN_OK;
}

/* The header, and what follows it. */
static attn_status open_content(const char *path, npy_array *a, npy_header *h, size_t *size) {
  attn_status status;
  *size = a->map.bytes;
  if (npz_find_separator(path)) return npz_member(path, &a->map, h, &a->owned, &a->at, size);
  if ((status = npz_refuse_pickle(path, &a->map, true))) return status;
  if (zip_is(&a->map))
    return attn_fail(ATTN_EINVAL, "%s: an archive of arrays; one of them is named %s:NAME", path, path);
  a->at = a->map.at;
  return npy_header_parse(path, a->map.at, a->map.bytes, h);
}

attn_status npy_open(const char *path, npy_array *out) {
  npy_header h = {.rank = 0};
  npy_array made = {.rank = 0};
  bool swapped = false;
  size_t size;
  char *file = npz_file(path);
  attn_status status = file ? file_map_open(file, &made.map) : ATTN_ENOMEM;
  free(file);
  if (status) return status;
  if ((status = open_content(path, &made, &h, &size))) goto out;
  if ((status = take_type(path, h.descr, &made, &swapped))) goto out;
  if ((status = check_size(path, size, &h, made.element, &made.bytes))) goto out;
  memcpy(made.shape, h.shape, sizeof made.shape);
  made.rank = h.rank;
  made.at += h.offset;
  if (h.fortran || swapped) status = reorder(path, &made, h.fortran, swapped);
  if (status) goto out;
  *out = made;
  return ATTN_OK;
out:
  npy_close(&made);
  return status;
}

void npy_close(npy_array *a) {
  free(a->owned);
  a->owned = NULL;
  file_map_close(&a->map);
}

bool npy_is(const npy_array *a, const char *descr) { return strcmp(a->descr, descr) == 0; }

static attn_status float_format(const char *path, const npy_array *file, bool bf16,
                                const tensor_format **format) {
  const bool bare = npy_is(file, "|V2") || npy_is(file, "<u2") || npy_is(file, "<i2");
  *format = npy_is(file, "<f2")   ? &tensor_f16
            : npy_is(file, "<f4") ? &tensor_f32
            : npy_is(file, "<f8") ? &tensor_f64
                                  : NULL;
  if (bf16 && bare) *format = &tensor_bf16;
  if (bf16 && !bare)
    return attn_fail(ATTN_EINVAL, "%s: elements are '%s'; bf16 is read from 'V2', 'u2' or 'i2'", path,
                     file->descr);
  if (*format) return ATTN_OK;
  return attn_fail(ATTN_EINVAL, "%s: elements are '%s'; expected 'f2', 'f4' or 'f8'%s", path, file->descr,
                   bare ? ", or bfloat16 (dtype bf16)" : "");
}

attn_status npy_read(const char *path, bool bf16, data_array *out) {
  npy_array file;
  const tensor_format *format;
  data_array made = {0};
  attn_status status = npy_open(path, &file);
  if (status) return status;
  status = float_format(path, &file, bf16, &format);
  const bool wide = !status && format == &tensor_f64;
  if (!status) status = data_array_make(wide ? ATTN_F64 : ATTN_F32, file.rank, file.shape, &made);
  if (!status) {
    if (wide)
      memcpy(made.at, file.at, file.bytes);
    else
      format->widen(file.at, data_array_count(&made), made.at);
    *out = made;
  }
  npy_close(&file);
  return status;
}

attn_status data_npy_read(const char *path, data_array *out) { return npy_read(path, false, out); }

attn_status data_npy_read_ids(const char *path, int64_t **out, int64_t *count, data_array *shape) {
  npy_array file;
  attn_status status = npy_open(path, &file);
  if (status) return status;
  int64_t *made = NULL;
  const bool wide = npy_is(&file, "<i8");
  const size_t there = file.bytes / file.element;
  if (!wide && !npy_is(&file, "<i4"))
    status = attn_fail(ATTN_EINVAL, "%s: elements are '%s'; expected 'i4' or 'i8'", path, file.descr);
  else if (there > SIZE_MAX / sizeof *made || !(made = malloc(there * sizeof *made)))
    status = attn_fail(ATTN_ENOMEM, "%s: no memory for %zu numbers", path, there);
  for (size_t i = 0; !status && i < there; i++) {
    int32_t narrow;
    memcpy(wide ? (void *)&made[i] : &narrow, file.at + i * file.element, file.element);
    if (!wide) made[i] = narrow;
  }
  if (!status) {
    *out = made;
    *count = (int64_t)there;
    shape->rank = file.rank;
    memcpy(shape->shape, file.shape, sizeof file.shape);
  }
  npy_close(&file);
  return status;
}

static bool is_npy(const char *path, const file_map *content) {
  (void)path;
  return file_begins(content, "\x93NUMPY");
}

const output_kind kind_npy = {"an .npy file", is_npy};

static attn_status write_npy(const char *path, const char *descr, size_t element, int rank,
                             const int64_t *shape, const void *at) {
  enum { START = 128 }; /* of the elements: a multiple of 64, behind the dictionary of any array in memory */
  char header[256];
  int64_t factors[DATA_RANK_MAX + 1] = {(int64_t)element};
  size_t bytes;
  size_t used = 10 + (size_t)snprintf(header + 10, sizeof header - 10,
                                      "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  for (int i = 0; i < rank; i++) {
    factors[i + 1] = shape[i];
    used += (size_t)snprintf(header + used, sizeof header - used,
                             rank == 1 ? "%" PRId64 ","
                             : i       ? ", %" PRId64
                                       : "%" PRId64,
                             shape[i]);
  }
  used += (size_t)snprintf(header + used, sizeof header - used, "), }");
  attn_status status = attn_size_product("bytes of an npy file", factors, (size_t)rank + 1, &bytes);
  if (status) return status;
  memset(header + used, ' ', START - used - 1);
  header[START - 1] = '\n';
  memcpy(header, "\x93NUMPY\x01\x00", 8);
  header[8] = START - 10;
  header[9] = 0;
  return output_write(path, &kind_npy, (file_part[]){{header, START}, {at, bytes}}, 2);
}

attn_status data_npy_write(const char *path, const data_array *array) {
  return write_npy(path, attn_dtype_size(array->dtype) == 8 ? "<f8" : "<f4", attn_dtype_size(array->dtype),
                   array->rank, array->shape, array->at);
}

attn_status data_npy_write_u8(const char *path, int rank, const int64_t *shape, const uint8_t *at) {
  return write_npy(path, "|u1", 1, rank, shape, at);
}
