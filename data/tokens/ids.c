/* ids.c - the ids that a command gives to a model: of a text or from an array, each in the vocabulary, and
 * the token that windows begin with. */
#include "data/data.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/qkv.h"
#include "data/support/file.h"

enum { BYTES = 256 };

static attn_status read_bytes(const file_map *text, data_ids *s) {
  s->id = malloc(text->bytes * sizeof *s->id);
  if (!s->id) return attn_fail(ATTN_ENOMEM, "no memory for %zu token ids", text->bytes);
  for (size_t i = 0; i < text->bytes; i++) s->id[i] = text->at[i];
  s->count = (int64_t)text->bytes;
  return ATTN_OK;
}

static attn_status encode(const data_ids_request *r, const data_llama_config *c, const file_map *text,
                          data_ids *s) {
  data_tokenizer *t = NULL;
  attn_status status = data_tokenizer_open(r->model, &t);
  if (status == ATTN_ENOTFOUND && c->vocab == BYTES) return read_bytes(text, s);
  if (status == ATTN_ENOTFOUND)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "%s has a vocabulary of %" PRId64
                     ", not of 256 bytes, and no tokenizer.json: a text needs token ids (--tokens)",
                     r->model, c->vocab);
  if (!status) status = data_tokenizer_encode(t, r->text, text->at, text->bytes, &s->id, &s->count);
  if (!status) s->bos = c->bos >= 0 ? c->bos : data_tokenizer_bos(t);
  data_tokenizer_close(t);
  return status;
}

/* What the request says of the first token; *bos stays where it says nothing. */
static attn_status choose_bos(const data_ids_request *r, int64_t vocab, int64_t *bos) {
  if (!r->bos) return ATTN_OK;
  if (strcmp(r->bos, "none") == 0) {
    *bos = -1;
    return ATTN_OK;
  }
  char *end;
  errno = 0;
  const long long id = strtoll(r->bos, &end, 10);
  if (errno || *end || *r->bos < '0' || *r->bos > '9' || id >= vocab)
    return attn_fail(ATTN_EINVAL, "bos '%s' is neither none nor a token from 0 to %" PRId64, r->bos,
                     vocab - 1);
  *bos = id;
  return ATTN_OK;
}

static attn_status check_ids(const char *path, const data_ids_request *r, const data_llama_config *c,
                             const data_ids *s) {
  for (int64_t i = 0; i < s->count; i++)
    if (s->id[i] < 0 || s->id[i] >= c->vocab)
      return attn_fail(ATTN_EINVAL,
                       "%s: token %" PRId64 " is %" PRId64 "; the vocabulary of %s is 0 ... %" PRId64, path,
                       i, s->id[i], r->model, c->vocab - 1);
  if (s->bos >= c->vocab)
    return attn_fail(ATTN_EINVAL, "%s: its first token is %" PRId64 " of a vocabulary of %" PRId64, r->model,
                     s->bos, c->vocab);
  return ATTN_OK;
}

attn_status data_ids_read(const data_ids_request *r, const data_llama_config *c, data_ids *out) {
  const char *path = r->text ? r->text : r->tokens;
  data_ids made = {.bos = -1};
  data_array shape = {.rank = 0};
  file_map map = {0};
  if (!r->text == !r->tokens) return attn_fail(ATTN_EINVAL, "either a text or token ids must be given");
  attn_status status = file_map_open(path, &map);
  if (status) return status;
  data_sha256(map.at, map.bytes, made.sha256);
  if (r->tokens)
    status = data_npy_read_ids(path, &made.id, &made.count, &shape);
  else
    status = encode(r, c, &map, &made);
  if (!status) status = choose_bos(r, c->vocab, &made.bos);
  if (!status) status = check_ids(path, r, c, &made);
  if (!status && shape.rank > 1) {
    char text[96];
    array_print_shape(&shape, text);
    snprintf(made.shape, sizeof made.shape, "%s, flattened in C order", text);
  }
  if (status)
    free(made.id);
  else
    *out = made;
  file_map_close(&map);
  return status;
}
