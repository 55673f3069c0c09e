/* feature_law.c - the numbers that follow from the law of the vectors. */
#include "experiments/mathematics/feature_law.h"

void feature_law_resize(feature_law *law, int64_t m) {
  double d = (double)law->d, last = (double)(m % law->d), full = (double)(m / law->d), count = (double)m;
  law->m = m;
  law->pairs = 0;
  law->independent = law->blocks = count;
  law->share = 1 / count;
  if (!law->orthogonal) return;
  law->pairs = full * d * (d - 1) + last * (last - 1);
  law->blocks = count * count / (full * d * d + last * last);
  law->share = (m < law->d ? count : d) / count;
  if (law->pairs > 0) law->independent = count * count / (count + law->pairs * 3 / (d * d - 1));
}

const char *feature_law_of(const attn_feature_map *map, int64_t d, feature_law *out) {
  if (!map) return "no random features";
  const attn_feature_law *given = &map->law;
  bool twofold = given->kind == ATTN_FEATURES_HYPERBOLIC || given->kind == ATTN_FEATURES_TRIG;
  if (given->kind == ATTN_FEATURES_UNKNOWN)
    return "the variant describes no law of its features: nothing to hold them against";
  if (given->kind == ATTN_FEATURES_FIXED) return "nothing is drawn for these features";
  if (given->vectors < 1 || map->columns % given->vectors ||
      (given->kind != ATTN_FEATURES_OTHER && map->columns != given->vectors * (twofold ? 2 : 1)))
    return "the variant's law of its features does not fit their number of columns";
  *out = (feature_law){.kind = given->kind,
                       .d = d,
                       .a = given->a,
                       .orthogonal = given->orthogonal,
                       .constant = given->fixed_length};
  feature_law_resize(out, given->vectors);
  return NULL;
}

bool feature_law_is_favor(const feature_law *law) {
  return law->kind == ATTN_FEATURES_POSITIVE || law->kind == ATTN_FEATURES_HYPERBOLIC ||
         law->kind == ATTN_FEATURES_TRIG;
}
