/* sha256.c - SHA-256, after FIPS 180-4: sections 4.1.2 (functions), 4.2.2 (constants), 5.1.1 (padding), 6.2
 * (computation). */
#include "data/support/sha256.h"

#include <stdio.h>
#include <string.h>

#include "data/data.h"

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void digest(uint32_t state[8], const uint8_t *block) {
  uint32_t w[64], s[8];
  for (int t = 0; t < 16; t++)
    w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 | (uint32_t)block[4 * t + 2] << 8 |
           block[4 * t + 3];
  for (int t = 16; t < 64; t++)
    w[t] = (rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10) + w[t - 7] +
           (rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3) + w[t - 16];
  memcpy(s, state, sizeof s);
  for (int t = 0; t < 64; t += 8)
    /* Working variable i of the standard stands at i - r: eight rounds bring each back to its place. */
    for (int r = 0; r < 8; r++) {
      uint32_t *a = &s[(8 - r) & 7], *d = &s[(11 - r) & 7], *h = &s[(15 - r) & 7];
      uint32_t b = s[(9 - r) & 7], c = s[(10 - r) & 7], e = s[(12 - r) & 7], f = s[(13 - r) & 7],
               g = s[(14 - r) & 7];
      uint32_t choose = (e & f) ^ (~e & g), majority = (*a & b) ^ (*a & c) ^ (b & c);
      uint32_t one =
          *h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + choose + constants[t + r] + w[t + r];
      *d += one;
      *h = one + (rotate(*a, 2) ^ rotate(*a, 13) ^ rotate(*a, 22)) + majority;
    }
  for (int i = 0; i < 8; i++) state[i] += s[i];
}

void sha256_begin(sha256 *h) {
  *h = (sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
                          0x5be0cd19}};
}

void sha256_add(sha256 *h, const void *at, size_t bytes) {
  const uint8_t *next = at;
  size_t held = h->bytes % 64;
  h->bytes += bytes;
  if (held > 0) {
    size_t part = bytes < 64 - held ? bytes : 64 - held;
    memcpy(h->block + held, next, part);
    next += part;
    bytes -= part;
    if (held + part < 64) return;
    digest(h->state, h->block);
  }
  for (; bytes >= 64; next += 64, bytes -= 64) digest(h->state, next);
  if (bytes > 0) memcpy(h->block, next, bytes);
}

void sha256_end(sha256 *h, char hex[65]) {
  uint64_t bits = h->bytes * 8;
  uint8_t padding[72] = {0x80},
          length = (uint8_t)(h->bytes % 64 < 56 ? 56 - h->bytes % 64 : 120 - h->bytes % 64);
  for (int i = 0; i < 8; i++) padding[length + i] = (uint8_t)(bits >> (56 - 8 * i));
  sha256_add(h, padding, length + 8u);
  for (int i = 0; i < 8; i++) snprintf(hex + 8 * i, 9, "%08x", h->state[i]);
}

void data_sha256(const void *at, size_t bytes, char hex[65]) {
  sha256 h;
  sha256_begin(&h);
  sha256_add(&h, at, bytes);
  sha256_end(&h, hex);
}
