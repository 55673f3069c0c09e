/* bpe.c - byte pair encoding by a list of merges (Sennrich, Haddow, Birch 2016, arXiv:1508.07909), as
 * `tokenizers` has it: a piece begins as its characters, those behind the first with a prefix and the last
 * with a suffix where the model has them. A character without a token becomes the tokens of its bytes, or the
 * unknown one. */
#include "data/tokens/tokenizer.h"
#include "data/tokens/utf8.h"

static bool find_pair(const void *context, const merge_symbol *left, const merge_symbol *right, uint32_t end,
                      uint32_t *rank, int32_t *id) {
  const data_tokenizer *t = context;
  (void)end;
  const int32_t key[2] = {left->id, right->id}, found = token_map_find(&t->by_pair, key, sizeof key);
  if (found < 0) return false;
  *rank = (uint32_t)found;
  *id = t->pair[found].into;
  return true;
}

/* The token of a character with its prefix and suffix. */
static const token *find_character(const data_tokenizer *t, const uint8_t *at, size_t bytes, bool first,
                                   bool last) {
  char name[2 * TOKEN_BYTES_MAX + 6];
  const char *before = first ? NULL : t->continuing, *behind = last ? t->ending : NULL;
  const size_t lead = before ? strlen(before) : 0, tail = behind ? strlen(behind) : 0;
  memcpy(name, before ? before : "", lead);
  memcpy(name + lead, at, bytes);
  memcpy(name + lead + bytes, behind ? behind : "", tail);
  return tokenizer_find(t, name, lead + bytes + tail);
}

/* A symbol's place is its number: there is one for each character or each byte of it. */
static void put_symbol(encoder *e, size_t *count, int64_t id) {
  e->merge.symbol[*count] = (merge_symbol){.begin = (uint32_t)*count, .id = (int32_t)id};
  ++*count;
}

/* Unknown characters wait for the next that is known, also behind bytes, as in `tokenizers`. */
static attn_status put_symbols(encoder *e, const uint8_t *text, size_t bytes, size_t *count) {
  const data_tokenizer *t = e->t;
  bool waits = false;
  for (size_t at = 0, end; at < bytes; at = end) {
    end = utf8_end(text, bytes, at);
    const token *found = find_character(t, text + at, end - at, !at, end == bytes);
    if (found) {
      if (waits) put_symbol(e, count, t->unknown);
      waits = false;
      put_symbol(e, count, found->id);
    } else if (encoder_has_bytes(e, text + at, end - at)) {
      for (size_t i = at; i < end; i++) put_symbol(e, count, t->byte_id[text[i]]);
    } else if (t->unknown < 0) {
      return encoder_put_unknown(e, text + at, end - at);
    } else {
      if (waits && !t->fuse_unknown) put_symbol(e, count, t->unknown);
      waits = true;
    }
  }
  if (waits) put_symbol(e, count, t->unknown);
  return ATTN_OK;
}

attn_status bpe_encode(encoder *e, const uint8_t *text, size_t bytes) {
  const data_tokenizer *t = e->t;
  const token *whole = t->ignore_merges ? tokenizer_find(t, text, bytes) : NULL;
  size_t count = 0;
  if (whole) return encoder_put(e, whole->id);
  attn_status status = merge_reserve(&e->merge, bytes, t->pairs);
  if (!status) status = put_symbols(e, text, bytes, &count);
  if (status) return status;
  merge_run(&e->merge, count, (uint32_t)count, find_pair, t);
  for (int32_t i = 0; !status && i >= 0; i = e->merge.symbol[i].next)
    status = encoder_put(e, e->merge.symbol[i].id);
  return status;
}
