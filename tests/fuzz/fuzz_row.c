/* fuzz_row.c - a row of results as JSON, as a worker sends it. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/results/row_json.h"

static char *line_of(const result_row *row) {
  char *line;
  size_t length;
  json_t *json = result_row_to_json(row);
  REQUIRE(json && !result_json_line(json, &line, &length));
  REQUIRE(strlen(line) == length && strchr(line, '\n') == line + length - 1);
  json_decref(json);
  return line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  result_row row, again;
  fuzz_prepare(&row, sizeof row);
  if (fuzz_succeeded(result_row_parse((const char *)data, size, &row), &row, sizeof row)) {
    char *line = line_of(&row);
    REQUIRE(!result_row_parse(line, strlen(line), &again));
    char *line_again = line_of(&again);
    REQUIRE(!strcmp(line, line_again));
    free(line);
    free(line_again);
    result_row_free(&row);
    result_row_free(&again);
  }
  return 0;
}
