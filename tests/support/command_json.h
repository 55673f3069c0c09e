/* command_json.h - what the program prints in JSON. */
#ifndef TESTS_SUPPORT_COMMAND_JSON_H
#define TESTS_SUPPORT_COMMAND_JSON_H

#include <jansson.h>

#include "tests/support/basics/kept.h"
#include "tests/support/command.h"

static inline void release_json(void *kept) { json_decref(*(json_t **)kept); }

/* A document that is released at the end. */
static inline json_t *kept_json(json_t *document) {
  keep_copy(&document, sizeof(json_t *), release_json);
  return document;
}

/* The document that the program printed last; kept. */
static inline json_t *answer(void) {
  json_error_t error;
  json_t *document = json_loads(result.out, 0, &error);
  cr_assert_not_null(document, "%s\n%s", error.text, result.out);
  return kept_json(document);
}

/* The same of "attnlab <arguments>", which must end with exit code 0. */
static inline json_t *ask(const char *arguments) {
  command_run_good(arguments);
  return answer();
}

static inline const char *json_text(const json_t *of, const char *name) {
  const char *text = json_string_value(json_object_get(of, name));
  cr_assert_not_null(text, "no text of %s", name);
  return text;
}

/* NaN: it is no number. */
static inline double number(const json_t *of, const char *name) {
  const json_t *x = json_object_get(of, name);
  return json_is_number(x) ? json_number_value(x) : (double)NAN;
}

#endif
