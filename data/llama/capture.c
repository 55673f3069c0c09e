/* capture.c - a capture: Q, K and V of one layer of a model on a text, in an HDF5 file with their origin as
 * attributes. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/kinds.h"
#include "data/formats/qkv.h"
#include "data/llama/llama.h"
#include "data/support/file.h"

/* The last component of a path, after links and dots are resolved. */
static attn_status last_name(const char *path, char **out) {
  char *real = realpath(path, NULL);
  if (!real) return attn_fail(ATTN_EFOREIGN, "%s: cannot be found", path);
  char *name = text_format("%s", basename(real));
  free(real);
  if (!name) return ATTN_ENOMEM;
  *out = name;
  return ATTN_OK;
}

/* The ids of all positions: each window of max_positions begins with the first token, if there is one. */
static attn_status lay_out(const char *path, const data_llama_config *c, const data_ids *s, int64_t n,
                           int64_t **out, int64_t *positions) {
  const int64_t bos = s->bos;
  const int64_t window = c->max_positions, held = window - (bos >= 0);
  if (held < 1)
    return attn_fail(ATTN_EINVAL, "%s: a context of one position has no room behind the first token", path);
  const int64_t there = bos >= 0 ? s->count + (s->count - 1) / held + 1 : s->count;
  if (n > there)
    return attn_fail(ATTN_EINVAL, "%s: %" PRId64 " positions, fewer than the %" PRId64 " asked for", path,
                     there, n);
  const int64_t count = n > 0 ? n : there;
  int64_t *id = malloc((size_t)count * sizeof *id);
  if (!id) return attn_fail(ATTN_ENOMEM, "%s: no memory for %" PRId64 " token ids", path, count);
  for (int64_t i = 0, next = 0; i < count; i++) id[i] = bos >= 0 && i % window == 0 ? bos : s->id[next++];
  *out = id;
  *positions = count;
  return ATTN_OK;
}

attn_status data_capture(const data_capture_request *r) {
  attn_status status;
  data_llama *m = NULL;
  data_qkv x = {0};
  data_ids ids = {.id = NULL};
  int64_t *tokens = NULL, n = 0;
  char *model = NULL, *source = NULL, model_hex[65], bos[24];
  const char *path = r->ids.text ? r->ids.text : r->ids.tokens;
  if (r->n < 0)
    return attn_fail(ATTN_EINVAL, "n=%" PRId64 " positions; a positive number was expected", r->n);
  status = output_check(r->output, &kind_capture, (const char *const[]){r->ids.text, r->ids.tokens}, 2);
  if (status) return status;
  status = data_llama_open(r->ids.model, &m);
  if (status) return status;
  const data_llama_config *c = &m->config;
  status = data_ids_read(&r->ids, c, &ids);
  if (!status) status = lay_out(path, c, &ids, r->n, &tokens, &n);
  if (!status) status = last_name(r->ids.model, &model);
  if (!status) status = last_name(path, &source);
  if (!status) status = data_llama_capture(m, tokens, n, r->layer, r->pre_rope, &x);
  if (!status) status = data_qkv_check_finite(&x);
  if (status) goto out;
  weights_sha256(m->files, model_hex);
  int64_t windows = (n - 1) / c->max_positions + 1;
  snprintf(bos, sizeof bos, ids.bos < 0 ? "none" : "%" PRId64, ids.bos);
  const char *note =
      r->pre_rope ? "pairs (i, i + d/2); q and k are to be rotated, row r at position first_position + r; "
                    "the forward pass in independent windows of trained_context positions, at local ones"
      : windows == 1
          ? "pairs (i, i + d/2); q and k are rotated at positions 0 ... n-1"
          : "pairs (i, i + d/2); independent windows of trained_context positions: the forward pass "
            "at local positions, the stored q and k rotated at global positions 0 ... n-1";
  const hdf5_attribute attribute[] = {
      {.name = "model", .text = model},
      {.name = "model_sha256", .text = model_hex},
      {.name = r->ids.text ? "text" : "tokens", .text = source},
      {.name = r->ids.text ? "text_sha256" : "tokens_sha256", .text = ids.sha256},
      {.name = "bos", .text = bos},
      {.name = "layer", .integer = r->layer},
      {.name = "positions", .integer = n},
      {.name = "trained_context", .integer = c->max_positions},
      {.name = "windows", .integer = windows},
      {.name = "rope_theta", .real = true, .number = c->rope_theta},
      {.name = "rotation", .text = note}};
  enum { ALWAYS = sizeof attribute / sizeof *attribute };
  hdf5_attribute all[ALWAYS + 3];
  size_t count = ALWAYS;
  memcpy(all, attribute, sizeof attribute);
  if (*ids.shape) all[count++] = (hdf5_attribute){.name = "tokens_shape", .text = ids.shape};
  if (r->pre_rope) {
    all[count++] = (hdf5_attribute){.name = "rope", .text = "pending"};
    all[count++] = (hdf5_attribute){.name = "first_position", .integer = 0};
  }
  status = hdf5_write_qkv(r->output, &x, all, count);
out:
  data_qkv_free(&x);
  data_llama_close(m);
  free(tokens);
  free(ids.id);
  free(model);
  free(source);
  return status;
}
