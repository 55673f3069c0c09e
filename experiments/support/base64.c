/* base64.c - encoding, and decoding that accepts nothing but what encoding writes. */
#include "experiments/support/base64.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *base64_encode(const void *bytes, size_t size) {
  const unsigned char *in = bytes;
  char *text = size < SIZE_MAX / 2 ? malloc((size + 2) / 3 * 4 + 1) : NULL, *out = text;
  if (!text) return NULL;
  for (size_t i = 0; i < size; i += 3) {
    const size_t left = size - i;
    const unsigned word = (unsigned)in[i] << 16 | (left > 1 ? (unsigned)in[i + 1] << 8 : 0) |
                          (left > 2 ? (unsigned)in[i + 2] : 0);
    for (unsigned k = 0; k < 4; k++) *out++ = k > left ? '=' : alphabet[word >> (18 - 6 * k) & 63];
  }
  *out = '\0';
  return text;
}

bool base64_decode(const char *text, size_t length, void *bytes, size_t size) {
  unsigned char value[256], *out = bytes;
  if (size >= SIZE_MAX / 2 || length != (size + 2) / 3 * 4) return false;
  memset(value, 64, sizeof value);
  for (unsigned char i = 0; i < 64; i++) value[(unsigned char)alphabet[i]] = i;
  for (size_t i = 0; i < size; i += 3) {
    unsigned word = 0;
    for (size_t k = 0; k < 4; k++) {
      const unsigned char c = (unsigned char)*text++;
      const bool padding = k > size - i;
      if (padding ? c != '=' : value[c] == 64) return false;
      word = word << 6 | (padding ? 0 : value[c]);
    }
    for (size_t k = 0; k < 3 && i + k < size; k++) *out++ = (unsigned char)(word >> (16 - 8 * k));
  }
  return true;
}
