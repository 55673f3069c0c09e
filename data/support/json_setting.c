/* json_setting.c - settings from JSON (json_setting.h). */
#include "data/support/json_setting.h"

#include <unistd.h>

#include "data/support/file.h"
#include "data/support/json_text.h"

setting json_setting(const json_t *config, const char *key) {
  const json_t *value = json_object_get(config, key);
  setting s = {.kind = SETTING_OTHER, .real = json_number_value(value)};
  if (!value || json_is_null(value)) return (setting){.kind = SETTING_ABSENT};
  if (json_is_integer(value)) s.kind = SETTING_INTEGER, s.integer = json_integer_value(value);
  if (json_is_real(value)) s.kind = SETTING_REAL;
  if (json_is_boolean(value)) s.kind = SETTING_FLAG, s.integer = json_is_true(value);
  if (json_is_string(value))
    s.kind = SETTING_TEXT, s.text = json_string_value(value), s.bytes = json_string_length(value);
  return s;
}

attn_status json_config_read(const char *directory, char **path, json_t **out) {
  file_map map = {0};
  json_t *config = NULL;
  json_error_t error;
  *path = file_join(directory, "config.json");
  if (!*path) return ATTN_ENOMEM;
  if (access(*path, F_OK) != 0)
    return attn_fail(ATTN_ENOTFOUND, "%s: neither a GGUF file nor a model directory: there is no config.json",
                     directory);
  attn_status status = file_map_open(*path, &map);
  if (status) return status;
  status = json_parse((const char *)map.at, map.bytes, &error, &config);
  file_map_close(&map);
  if (status == ATTN_EINVAL)
    return attn_fail(ATTN_EINVAL, "%s:%d:%d: not JSON: %s", *path, error.line, error.column, error.text);
  if (status) return status;
  if (!json_is_object(config)) {
    json_decref(config);
    return attn_fail(ATTN_EINVAL, "%s: not a JSON object", *path);
  }
  *out = config;
  return ATTN_OK;
}
