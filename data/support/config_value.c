/* config_value.c - the numbers, flags and texts of a configuration, each in its range or refused by name. */
#include "data/support/config_value.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

attn_status setting_size(const char *path, const char *key, setting s, int64_t preset, int64_t max,
                         int64_t *out) {
  bool given = s.kind != SETTING_ABSENT;
  if (!given && preset == 0) return attn_fail(ATTN_EINVAL, "%s: key %s is missing", path, key);
  if (given && (s.kind != SETTING_INTEGER || s.integer < 1 || s.integer > max))
    return attn_fail(ATTN_EINVAL, "%s: %s is not an integer from 1 to %" PRId64, path, key, max);
  *out = given ? s.integer : preset;
  return ATTN_OK;
}

attn_status setting_real(const char *path, const char *key, setting s, double preset, double min, double max,
                         double *out) {
  bool given = s.kind != SETTING_ABSENT, number = s.kind == SETTING_INTEGER || s.kind == SETTING_REAL;
  if (!given && isnan(preset)) return attn_fail(ATTN_EINVAL, "%s: key %s is missing", path, key);
  if (given && !(number && s.real >= min && s.real <= max))
    return attn_fail(ATTN_EINVAL, "%s: %s is not a number from %g to %g", path, key, min, max);
  *out = given ? s.real : preset;
  return ATTN_OK;
}

attn_status setting_flag(const char *path, const char *key, setting s, bool *out) {
  if (s.kind != SETTING_ABSENT && s.kind != SETTING_FLAG)
    return attn_fail(ATTN_EINVAL, "%s: %s is neither true nor false", path, key);
  *out = s.kind == SETTING_FLAG && s.integer;
  return ATTN_OK;
}

bool setting_is(setting s, const char *text) {
  return s.kind == SETTING_TEXT && s.bytes == strlen(text) && memcmp(s.text, text, s.bytes) == 0;
}

attn_status setting_expect(const char *path, const char *key, setting s, const char *wanted, bool required) {
  if (s.kind == SETTING_ABSENT && !required) return ATTN_OK;
  if (s.kind != SETTING_TEXT)
    return attn_fail(ATTN_EINVAL, "%s: %s is missing or not a string; only %s is computed", path, key,
                     wanted);
  if (setting_is(s, wanted)) return ATTN_OK;
  int shown = s.bytes < 64 ? (int)s.bytes : 64;
  return attn_fail(ATTN_EUNSUPPORTED, "%s: %s is %.*s; only %s is computed", path, key, shown, s.text,
                   wanted);
}
