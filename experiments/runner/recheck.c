/* recheck.c - digests of outputs, and inputs that change in place. */
#include "experiments/runner/recheck.h"

#include "experiments/support/digest.h"
#include "experiments/support/entropy.h"

#include <inttypes.h>
#include <string.h>

/* Every byte 0xff: a NaN in both dtypes, which arithmetic gives only as that of an operand. */
enum { POISON = 0xff };

void recheck_poison(const recheck *c) { memset(c->o, POISON, c->o_bytes); }

int64_t recheck_unwritten(const recheck *c) {
  const size_t size = attn_dtype_size(c->dtype);
  const unsigned char *o = c->o;
  unsigned char poison[sizeof(double)];
  int64_t count = 0;
  memset(poison, POISON, sizeof poison);
  for (size_t i = 0; i < c->o_bytes; i += size) count += memcmp(o + i, poison, size) == 0;
  return count;
}

static void mirror_f32(uint32_t *x, size_t count) {
  const uint32_t sign = UINT32_C(1) << 31;
  for (size_t i = 0; i < count / 2; i++) {
    const uint32_t first = x[i];
    x[i] = x[count - 1 - i] ^ sign;
    x[count - 1 - i] = first ^ sign;
  }
  if (count % 2) x[count / 2] ^= sign;
}

static void mirror_f64(uint64_t *x, size_t count) {
  const uint64_t sign = UINT64_C(1) << 63;
  for (size_t i = 0; i < count / 2; i++) {
    const uint64_t first = x[i];
    x[i] = x[count - 1 - i] ^ sign;
    x[count - 1 - i] = first ^ sign;
  }
  if (count % 2) x[count / 2] ^= sign;
}

void recheck_begin(recheck *c) { c->ends = 16 + entropy_below(16); }

static void mirror(const recheck *c, void *at, size_t bytes) {
  const size_t count = bytes / attn_dtype_size(c->dtype), kept = count / (size_t)c->ends;
  if (c->dtype == ATTN_F64)
    mirror_f64((uint64_t *)at + kept, count - 2 * kept);
  else
    mirror_f32((uint32_t *)at + kept, count - 2 * kept);
}

void recheck_mirror(recheck *c) {
  mirror(c, c->q, c->q_bytes);
  mirror(c, c->k, c->k_bytes);
  mirror(c, c->v, c->v_bytes);
  c->mirrored = !c->mirrored;
}

/* May the output stay what it was when the inputs are mirrored? Where the values are their own mirror image
 * or average to zero everywhere. */
static bool may_stay(const recheck *c) {
  const int64_t outputs = (int64_t)(c->o_bytes / attn_dtype_size(c->dtype)),
                values = (int64_t)(c->v_bytes / attn_dtype_size(c->dtype)), kept = values / c->ends;
  bool zero = true, symmetric = true;
  for (int64_t i = 0; zero && i < outputs; i++) {
    const double o = c->dtype == ATTN_F64 ? ((const double *)c->o)[i] : (double)((const float *)c->o)[i];
    zero = !(o > 0 || o < 0);
  }
  for (int64_t i = kept; symmetric && i < values - kept; i++) {
    const int64_t j = values - 1 - i;
    const double a = c->dtype == ATTN_F64 ? ((const double *)c->v)[i] : (double)((const float *)c->v)[i],
                 b = c->dtype == ATTN_F64 ? ((const double *)c->v)[j] : (double)((const float *)c->v)[j];
    symmetric = !(a + b > 0 || a + b < 0);
  }
  return zero || symmetric;
}

attn_status recheck_learn(recheck *c) {
  const bool now = c->mirrored;
  c->digest[now] = digest_of(c->o, c->o_bytes);
  c->known[now] = true;
  if (!c->known[!now] || c->digest[now] != c->digest[!now] || may_stay(c)) return ATTN_OK;
  return attn_fail(ATTN_ENUMERIC, "a fresh plan gave the output of other inputs: the result is stale");
}

attn_status recheck_output(const recheck *c, int64_t execution) {
  const bool now = c->mirrored;
  const uint64_t digest = digest_of(c->o, c->o_bytes);
  if (!c->known[now] || digest == c->digest[now]) return ATTN_OK;
  const int64_t unwritten = recheck_unwritten(c);
  if (unwritten)
    return attn_fail(ATTN_ENUMERIC, "execution %" PRId64 " left %" PRId64 " elements of its output unwritten",
                     execution, unwritten);
  if (c->known[!now] && digest == c->digest[!now])
    return attn_fail(ATTN_ENUMERIC,
                     "execution %" PRId64 " gave the output of other inputs: the result is stale", execution);
  return attn_fail(ATTN_ENUMERIC, "execution %" PRId64 " gave other bits than %s", execution,
                   now ? "a fresh plan on the same inputs" : "the verified one");
}
