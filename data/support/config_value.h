/* config_value.h - what a file says of a key, in JSON or in another form, and the rules for the numbers of a
 * model. */
#ifndef DATA_SUPPORT_CONFIG_VALUE_H
#define DATA_SUPPORT_CONFIG_VALUE_H

#include "attn.h"

typedef enum {
  SETTING_ABSENT,
  SETTING_INTEGER,
  SETTING_REAL,
  SETTING_FLAG,
  SETTING_TEXT,
  SETTING_OTHER /* a list, an object, an integer beyond int64_t */
} setting_kind;

typedef struct setting {
  setting_kind kind;
  int64_t integer;  /* also of a flag */
  double real;      /* also of an integer */
  const char *text; /* `bytes` of them, without an end; in the file */
  size_t bytes;
} setting;

/* preset 0: the key is required. path and key: for the message. */
attn_status setting_size(const char *path, const char *key, setting, int64_t preset, int64_t max,
                         int64_t *out);
/* preset NAN: the key is required. */
attn_status setting_real(const char *path, const char *key, setting, double preset, double min, double max,
                         double *out);
/* false if it is absent. */
attn_status setting_flag(const char *path, const char *key, setting, bool *out);
/* Whether it is this text. */
bool setting_is(setting, const char *text);
/* Any other text is EUNSUPPORTED. */
attn_status setting_expect(const char *path, const char *key, setting, const char *wanted, bool required);

#endif
