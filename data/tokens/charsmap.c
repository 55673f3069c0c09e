/* charsmap.c - SentencePiece's precompiled_charsmap (sentencepiece/src/normalizer.h): the size of a trie in
 * bytes (32 bits, little-endian), the trie, and the texts that its values point to, each ending with NUL.
 *
 * The trie is a double array in Darts-clone's form (Yata; darts.h, DoubleArrayUnit): of the 32 bits of a unit
 * bits 0-7 and 31 are its label, bit 8 says whether a key ends there, bit 9 that the offset of its children
 * in bits 10-30 counts 256s. A child stands at the parent's place XOR its offset XOR the label; the value of
 * a key, at the place for the label 0, is in bits 0-30. */
#include "data/tokens/charsmap.h"

#include <nettle/base64.h>
#include <stdlib.h>
#include <string.h>
#include <unistr.h>

struct charsmap {
  uint8_t *bytes;
  size_t units; /* from byte 4 on */
  const char *text;
  size_t text_bytes; /* with the last NUL */
};

static uint32_t number_at(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The bytes, and a NUL. */
static attn_status decode(const char *where, const char *base64, uint8_t **out, size_t *bytes) {
  struct base64_decode_ctx context;
  const size_t length = strlen(base64);
  size_t used = 0;
  uint8_t *made = malloc(BASE64_DECODE_LENGTH(length) + 1);
  if (!made) return attn_fail(ATTN_ENOMEM, "%s: no memory for a map of characters", where);
  base64_decode_init(&context);
  if (!base64_decode_update(&context, &used, made, length, base64) || !base64_decode_final(&context)) {
    free(made);
    return attn_fail(ATTN_EINVAL, "%s is not base64", where);
  }
  made[used] = 0;
  *out = made;
  *bytes = used;
  return ATTN_OK;
}

attn_status charsmap_make(const char *where, const char *base64, charsmap **out) {
  size_t bytes = 0;
  charsmap *m = calloc(1, sizeof *m);
  if (!m) return attn_fail(ATTN_ENOMEM, "%s: no memory for a map of characters", where);
  attn_status status = decode(where, base64, &m->bytes, &bytes);
  const size_t trie = !status && bytes >= 4 ? number_at(m->bytes) : 0;
  if (!status && (!trie || trie % 4 || trie > bytes - 4))
    status = attn_fail(ATTN_EINVAL, "%s: the size of its trie, %zu bytes, does not fit", where, trie);
  if (!status) {
    m->units = trie / 4;
    m->text = (const char *)m->bytes + 4 + trie;
    m->text_bytes = bytes - 4 - trie + 1;
    if (u8_check((const uint8_t *)m->text, m->text_bytes))
      status = attn_fail(ATTN_EINVAL, "%s: its texts are not UTF-8", where);
  }
  if (status)
    charsmap_free(m);
  else
    *out = m;
  return status;
}

void charsmap_free(charsmap *m) {
  if (!m) return;
  free(m->bytes);
  free(m);
}

/* 0 beyond the end: a unit without label, key and children. */
static uint32_t unit_at(const charsmap *m, size_t place) {
  return place < m->units ? number_at(m->bytes + 4 + 4 * place) : 0;
}

static size_t offset_of(uint32_t unit) { return (size_t)(unit >> 10) << (unit >> 6 & 8); }

const char *charsmap_find(const charsmap *m, const uint8_t *text, size_t bytes) {
  size_t place = offset_of(unit_at(m, 0));
  for (size_t i = 0; i < bytes && text[i]; i++) {
    place ^= text[i];
    const uint32_t unit = unit_at(m, place);
    if ((unit & (UINT32_C(1) << 31 | 255)) != text[i]) return NULL;
    place ^= offset_of(unit);
    if (!(unit >> 8 & 1)) continue;
    const size_t value = unit_at(m, place) & INT32_MAX;
    /* Not into a character of a crafted map. */
    return value < m->text_bytes && (m->text[value] & 0xc0) != 0x80 ? m->text + value : NULL;
  }
  return NULL;
}
