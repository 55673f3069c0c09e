/* recheck.c - digests of outputs, and inputs that change in place. */
#include "experiments/runner/recheck.h"

#include "experiments/support/digest.h"
#include "experiments/support/entropy.h"

#include "attn_variant.h"

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

/* Reversed, with the other sign. */
static void mirror_elements(void *x, attn_dtype t, int64_t count) {
  for (int64_t i = 0, j = count - 1; i <= j; i++, j--) {
    const double first = attn_get(x, i, t);
    attn_set(x, i, t, -attn_get(x, j, t));
    attn_set(x, j, t, -first);
  }
}

void recheck_begin(recheck *c) { c->ends = 16 + entropy_below(16); }

static void mirror(const recheck *c, void *at, size_t bytes, int64_t kept) {
  const int64_t count = (int64_t)(bytes / attn_dtype_size(c->dtype));
  mirror_elements(attn_at(at, kept, c->dtype), c->dtype, count - 2 * kept);
}

static int64_t kept_of(const recheck *c, size_t bytes) {
  return (int64_t)(bytes / attn_dtype_size(c->dtype)) / c->ends;
}

/* No whole row of values stays: it may be all that a query sees. */
static int64_t kept_values(const recheck *c) {
  const int64_t kept = kept_of(c, c->v_bytes);
  return kept < c->d_v ? kept : c->d_v - 1;
}

void recheck_mirror(recheck *c) {
  mirror(c, c->q, c->q_bytes, kept_of(c, c->q_bytes));
  mirror(c, c->k, c->k_bytes, kept_of(c, c->k_bytes));
  mirror(c, c->v, c->v_bytes, kept_values(c));
  c->mirrored = !c->mirrored;
}

/* May the output stay what it was when the inputs are mirrored? Where the values are their own mirror image
 * or average to zero everywhere. */
static bool may_stay(const recheck *c) {
  const int64_t outputs = (int64_t)(c->o_bytes / attn_dtype_size(c->dtype)),
                values = (int64_t)(c->v_bytes / attn_dtype_size(c->dtype)), kept = kept_values(c);
  bool zero = true, symmetric = true;
  for (int64_t i = 0; zero && i < outputs; i++) {
    const double o = attn_get(c->o, i, c->dtype);
    zero = !(o > 0 || o < 0);
  }
  for (int64_t i = kept; symmetric && i < values - kept; i++) {
    const int64_t j = values - 1 - i;
    const double a = attn_get(c->v, i, c->dtype), b = attn_get(c->v, j, c->dtype);
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
