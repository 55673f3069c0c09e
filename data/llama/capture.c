/* capture.c - a capture: Q, K and V of one layer of a model on a text, in an HDF5 file with their origin as
 * attributes. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/kinds.h"
#include "data/formats/qkv.h"
#include "data/llama/llama.h"
#include "data/support/file.h"

enum { BYTES = 256 };

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

/* The token ids of a request (to be freed) and the hash of the file they come from. */
static attn_status read_tokens(const data_capture_request *r, const data_llama_config *c, int64_t **out,
                               int64_t *count, char hex[65]) {
  const char *path = r->text ? r->text : r->tokens;
  file_map map = {0};
  int64_t *tokens = NULL, there;
  if (r->text && c->vocab != BYTES)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "%s has a vocabulary of %" PRId64
                     ", not of 256 bytes: a text needs token ids (--tokens)",
                     r->model, c->vocab);
  attn_status status = file_map_open(path, &map);
  if (status) return status;
  data_sha256(map.at, map.bytes, hex);
  there = (int64_t)map.bytes;
  if (r->tokens) status = data_npy_read_i64(path, &tokens, &there);
  if (!status && r->n > there)
    status = attn_fail(ATTN_EINVAL, "%s: %" PRId64 " positions, fewer than the %" PRId64 " asked for", path,
                       there, r->n);
  if (status) goto out;
  int64_t n = r->n > 0 ? r->n : there;
  if (r->text) {
    tokens = calloc((size_t)n, sizeof *tokens);
    if (!tokens) {
      status = attn_fail(ATTN_ENOMEM, "%s: no memory for %" PRId64 " token ids", path, n);
      goto out;
    }
    for (int64_t i = 0; i < n; i++) tokens[i] = map.at[i];
  }
  *out = tokens;
  *count = n;
  tokens = NULL;
out:
  free(tokens);
  file_map_close(&map);
  return status;
}

attn_status data_capture(const data_capture_request *r) {
  attn_status status;
  data_llama *m = NULL;
  data_qkv x = {0};
  int64_t *tokens = NULL, n = 0;
  char *model = NULL, *source = NULL, hex[65], model_hex[65];
  if (!r->text == !r->tokens) return attn_fail(ATTN_EINVAL, "either a text or token ids must be given");
  if (r->n < 0)
    return attn_fail(ATTN_EINVAL, "n=%" PRId64 " positions; a positive number was expected", r->n);
  status = output_check(r->output, &kind_capture, (const char *const[]){r->text, r->tokens}, 2);
  if (status) return status;
  status = data_llama_open(r->model, &m);
  if (status) return status;
  const data_llama_config *c = &m->config;
  status = read_tokens(r, c, &tokens, &n, hex);
  if (!status) status = last_name(r->model, &model);
  if (!status) status = last_name(r->text ? r->text : r->tokens, &source);
  if (!status) status = data_llama_capture(m, tokens, n, r->layer, r->pre_rope, &x);
  if (!status) status = data_qkv_check_finite(&x);
  if (status) goto out;
  weights_sha256(m->files, model_hex);
  int64_t windows = (n - 1) / c->max_positions + 1;
  const char *note =
      r->pre_rope ? "pairs (i, i + d/2); q and k are to be rotated, row r at position first_position + r; "
                    "the forward pass in independent windows of trained_context positions, at local ones"
      : windows == 1
          ? "pairs (i, i + d/2); q and k are rotated at positions 0 ... n-1"
          : "pairs (i, i + d/2); independent windows of trained_context positions: the forward pass "
            "at local positions, the stored q and k rotated at global positions 0 ... n-1";
  const hdf5_attribute attribute[] = {{.name = "model", .text = model},
                                      {.name = "model_sha256", .text = model_hex},
                                      {.name = r->text ? "text" : "tokens", .text = source},
                                      {.name = r->text ? "text_sha256" : "tokens_sha256", .text = hex},
                                      {.name = "layer", .integer = r->layer},
                                      {.name = "positions", .integer = n},
                                      {.name = "trained_context", .integer = c->max_positions},
                                      {.name = "windows", .integer = windows},
                                      {.name = "rope_theta", .real = true, .number = c->rope_theta},
                                      {.name = "rotation", .text = note},
                                      {.name = "rope", .text = "pending"},
                                      {.name = "first_position", .integer = 0}};
  enum { ALL = sizeof attribute / sizeof *attribute, OF_PENDING = 2 };
  status = hdf5_write_qkv(r->output, &x, attribute, r->pre_rope ? ALL : ALL - OF_PENDING);
out:
  data_qkv_free(&x);
  data_llama_close(m);
  free(tokens);
  free(model);
  free(source);
  return status;
}
