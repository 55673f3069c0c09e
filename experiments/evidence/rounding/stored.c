/* stored.c - see stored.h. */
#include "experiments/evidence/rounding/stored.h"

#include <inttypes.h>
#include <math.h>

#include "attn_arithmetic.h"

static bool is_rounded_once(double stored, double wide, attn_dtype t, attn_dtype arithmetic) {
  const attn_number *s = &attn_numbers[t];
  const double want = attn_rounded(wide, t);
  if (isnan(want) || isinf(want)) return isnan(want) ? isnan(stored) : isinf(stored) && stored * want > 0;
  return fabs(stored - wide) <= (s->unit + 4 * attn_numbers[arithmetic].unit) * fabs(wide) + s->subnormal / 2;
}

attn_status stored_check(const void *stored, attn_dtype as, const void *wide, attn_dtype arithmetic,
                         int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    const double is = attn_get(stored, i, as), exact = attn_get(wide, i, arithmetic);
    if (!is_rounded_once(is, exact, as, arithmetic))
      return attn_fail(ATTN_EFOREIGN,
                       "output element %" PRId64 " is %.9g in %s, but %.9g in %s on the same numbers", i, is,
                       attn_numbers[as].name, exact, attn_numbers[arithmetic].name);
  }
  return ATTN_OK;
}
