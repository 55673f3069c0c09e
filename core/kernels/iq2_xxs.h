/* iq2_xxs.h - IQ2_XXS, 2.06 bits an element: directions of eight elements from a table, with signs and
 * scales.
 *
 *   256 elements in 66 bytes: d, then for each 32 of them u8 i[4] and a little-endian u32 w
 *   x = d (w_28..31 + 1/2) / 4 * r[i_j] * (-1)^z,   for element k of the eight of i_j
 *
 * z is bit k of a byte whose low seven bits are bits 7j ... 7j + 6 of w and whose eighth gives it an even
 * number of ones. r is a row of eight lengths, each of 8, 25 and 43, of which an even number are 25: 256
 * of the 3281 rows of that kind, chosen by the authors of the format (https://github.com/ggml-org/ggml,
 * iq2xxs_grid). Here a row is two bytes: bit k of the low one says that length k is 25, bit k of the high
 * one that it is 43. */
#ifndef ATTN_CORE_KERNELS_IQ2_XXS_H
#define ATTN_CORE_KERNELS_IQ2_XXS_H

#include <stdint.h>
#include <string.h>

#define IQ2_ROWS(X)                                                                                      \
  X(0x0000), X(0x0100), X(0x0003), X(0x0200), X(0x0300), X(0x0005), X(0x0006), X(0x0400), X(0x0500),     \
      X(0x0600), X(0x0700), X(0x0009), X(0x000a), X(0x000c), X(0x020c), X(0x0409), X(0x040a), X(0x0800), \
      X(0x0900), X(0x0b00), X(0x0d00), X(0x0011), X(0x0012), X(0x0014), X(0x0017), X(0x0018), X(0x0812), \
      X(0x0a14), X(0x1000), X(0x1100), X(0x1500), X(0x1900), X(0x0021), X(0x0022), X(0x0024), X(0x0421), \
      X(0x0422), X(0x0028), X(0x0128), X(0x0228), X(0x0428), X(0x0821), X(0x0822), X(0x0824), X(0x0c22), \
      X(0x0030), X(0x0130), X(0x0230), X(0x0430), X(0x013a), X(0x0639), X(0x0830), X(0x0835), X(0x1221), \
      X(0x1024), X(0x1028), X(0x1822), X(0x1c22), X(0x2000), X(0x2003), X(0x2200), X(0x2006), X(0x2600), \
      X(0x2009), X(0x200a), X(0x200c), X(0x210c), X(0x2a00), X(0x2012), X(0x2018), X(0x3100), X(0x3006), \
      X(0x0041), X(0x0042), X(0x0044), X(0x0441), X(0x0048), X(0x0448), X(0x0842), X(0x0844), X(0x0847), \
      X(0x0050), X(0x0250), X(0x0450), X(0x005c), X(0x035c), X(0x0850), X(0x1442), X(0x104b), X(0x0060), \
      X(0x0260), X(0x0460), X(0x0463), X(0x0269), X(0x0860), X(0x0274), X(0x0578), X(0x1060), X(0x1166), \
      X(0x2041), X(0x2042), X(0x2044), X(0x2048), X(0x2841), X(0x2050), X(0x2053), X(0x2c50), X(0x304d), \
      X(0x4000), X(0x4100), X(0x4300), X(0x400a), X(0x4409), X(0x4800), X(0x4900), X(0x4611), X(0x4218), \
      X(0x5000), X(0x5100), X(0x4021), X(0x4022), X(0x4024), X(0x4028), X(0x412e), X(0x4030), X(0x4039), \
      X(0x443a), X(0x5824), X(0x6200), X(0x6400), X(0x6806), X(0x700a), X(0x0081), X(0x0082), X(0x0084), \
      X(0x0284), X(0x0481), X(0x0482), X(0x0088), X(0x0288), X(0x018e), X(0x0488), X(0x0881), X(0x0882), \
      X(0x0884), X(0x0090), X(0x0490), X(0x0499), X(0x0890), X(0x0893), X(0x1081), X(0x1084), X(0x1288), \
      X(0x118e), X(0x1688), X(0x00a0), X(0x02a0), X(0x04a0), X(0x08a0), X(0x0aa5), X(0x01b4), X(0x04b2), \
      X(0x10a0), X(0x2081), X(0x2082), X(0x2084), X(0x2088), X(0x208b), X(0x2090), X(0x229c), X(0x2499), \
      X(0x2990), X(0x308b), X(0x3884), X(0x00c0), X(0x02c0), X(0x00c5), X(0x02c5), X(0x04c0), X(0x08c0), \
      X(0x0ac0), X(0x00d2), X(0x01d8), X(0x0cd2), X(0x18c5), X(0x08e4), X(0x09e4), X(0x03f0), X(0x10e1), \
      X(0x10ee), X(0x20c0), X(0x20c5), X(0x22c5), X(0x24ca), X(0x20d8), X(0x32c0), X(0x4082), X(0x4084), \
      X(0x4088), X(0x4688), X(0x4090), X(0x409f), X(0x5284), X(0x5488), X(0x40a0), X(0x40a3), X(0x40b4), \
      X(0x41b4), X(0x48b2), X(0x6188), X(0x8000), X(0x8100), X(0x8300), X(0x8009), X(0x8900), X(0x8012), \
      X(0x8214), X(0x8018), X(0x9005), X(0x8021), X(0x8022), X(0x8024), X(0x8027), X(0x8028), X(0x8428), \
      X(0x8030), X(0x813a), X(0x8836), X(0x9221), X(0x9028), X(0x9428), X(0xa100), X(0xa012), X(0xb005), \
      X(0x8042), X(0x8044), X(0x8442), X(0x8048), X(0x8c41), X(0x8156), X(0x8850), X(0x904b), X(0x8060), \
      X(0x8560), X(0x806a), X(0x807d), X(0xa841), X(0xa450), X(0xc100), X(0xc00c), X(0xc803), X(0xc211), \
      X(0xd000), X(0xc224), X(0xe00c), X(0xe012)

/* Eight bits as bytes 0 and 1, of the lowest first; a constant. */
#define IQ2_SPREAD(bits)                                                                     \
  (((((bits)&UINT64_C(255)) * UINT64_C(0x0101010101010101) & UINT64_C(0x8040201008040201)) + \
    UINT64_C(0x7f7f7f7f7f7f7f7f)) >>                                                         \
       7 &                                                                                   \
   UINT64_C(0x0101010101010101))
#define IQ2_LENGTHS(row) (IQ2_SPREAD(255) * 8 + IQ2_SPREAD(row) * 17 + IQ2_SPREAD((row) >> 8) * 35)
/* Seven bits, and an eighth that makes their number even. */
#define IQ2_PARITY(b) ((b) ^ (b) >> 1 ^ (b) >> 2 ^ (b) >> 3 ^ (b) >> 4 ^ (b) >> 5 ^ (b) >> 6)
#define IQ2_SIGN(b) (IQ2_SPREAD((b) | (IQ2_PARITY(b) & 1) << 7) * 255)
#define IQ2_SIGNS_4(b) IQ2_SIGN(b), IQ2_SIGN(b + 1), IQ2_SIGN(b + 2), IQ2_SIGN(b + 3)
#define IQ2_SIGNS_16(b) IQ2_SIGNS_4(b), IQ2_SIGNS_4(b + 4), IQ2_SIGNS_4(b + 8), IQ2_SIGNS_4(b + 12)

/* Eight bytes each, of the lowest element first: the lengths of a row, and ones where the sign is
 * negative. */
static const uint64_t iq2_lengths[256] = {IQ2_ROWS(IQ2_LENGTHS)};
static const uint64_t iq2_signs[128] = {IQ2_SIGNS_16(0),  IQ2_SIGNS_16(16), IQ2_SIGNS_16(32),
                                        IQ2_SIGNS_16(48), IQ2_SIGNS_16(64), IQ2_SIGNS_16(80),
                                        IQ2_SIGNS_16(96), IQ2_SIGNS_16(112)};

/* The 32 elements of four indices and w as signed bytes in four words, without their factor. Returns what
 * d is to be multiplied with. */
static inline float iq2_group(const uint8_t *at, uint64_t codes[4]) {
  uint32_t w;
  memcpy(&w, at + 4, sizeof w);
  for (int j = 0; j < 4; j++) {
    /* The two's complement where the sign is set: no byte overflows. */
    const uint64_t signs = iq2_signs[w >> 7 * j & 127];
    codes[j] = (iq2_lengths[at[j]] ^ signs) + (signs & UINT64_C(0x0101010101010101));
  }
  return (0.5f + (float)(w >> 28)) * 0.25f;
}

#endif
