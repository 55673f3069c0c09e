/* fuzz_journal.c - a sweep's journal: as a set of rows and their table, and as a resumed sweep reads it. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>

#include "experiments/results/write_journal.h"
#include "experiments/results/set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *path = fuzz_file("x.jsonl", data, size);
  result_set set;
  fuzz_prepare(&set, sizeof set);
  const bool loaded = fuzz_succeeded(results_load(&path, 1, &set), &set, sizeof set);
  if (loaded) {
    char *text = NULL;
    FILE *table = open_memstream(&text, &(size_t){0});
    REQUIRE(table && !results_export_csv(table, &set));
    fclose(table);
    free(text);
  }

  journal *j;
  fuzz_prepare(&j, sizeof j);
  const bool opened = fuzz_succeeded(journal_open(path, &rows_of_sweep, "build", NULL, &j), &j, sizeof j);
  REQUIRE(opened == loaded);
  if (opened) {
    for (size_t i = 0; i < set.count; i++) {
      journal_entry entry;
      REQUIRE(journal_find(j, set.rows[i].key, &entry));
      REQUIRE(entry.status == set.rows[i].status);
    }
    journal_close(j);
    result_set_free(&set);
  }
  return 0;
}
