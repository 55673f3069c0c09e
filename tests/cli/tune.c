/* tune.c - attnlab tune, and what the other commands make of its file. No time is asserted. */
#define _POSIX_C_SOURCE 200809L
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/command.h"
#include "experiments/runner/tune.h"
#include "experiments/runner/wisdom.h"

TestSuite(tune, .init = command_enter, .fini = command_leave);

static command_result result;

static void run(const char *arguments, int exit_code) {
  command_run(arguments, &result);
  cr_assert(result.exit_code == exit_code, "attnlab %s: exit %d\n%s", arguments, result.exit_code,
            result.err);
}

static void read_file(const char *name, char *text, size_t size) {
  FILE *file = fopen(name, "r");
  cr_assert(file, "%s is missing", name);
  text[fread(text, 1, size - 1, file)] = '\0';
  fclose(file);
}

static int count_of(const char *text, const char *part) {
  int count = 0;
  for (const char *at = text; (at = strstr(at, part)); at++) count++;
  return count;
}

/* The default place, and what follows: info reads it. */
Test(tune, measures_and_writes) {
  char text[4096];
  cr_assert(setenv("ATTN_ISA", attn_isa_list()[0], 1) == 0 && unsetenv("ATTNLAB_WISDOM") == 0 &&
            setenv("XDG_CACHE_HOME", "deep/cache", 1) == 0);
  run("tune --quick", 0);
  cr_expect(result.err[0] == '\0', "%s", result.err);
  snprintf(text, sizeof text, "\n%s ", attn_isa_list()[0]);
  cr_expect(count_of(result.out, text) == 4 * (TUNE_CANDIDATES + 1), "%s", result.out);
  cr_expect(count_of(result.out, "default kept") + count_of(result.out, "chosen") == 4, "%s", result.out);
  cr_expect(strstr(result.out, "deep/cache/attnlab/wisdom"), "%s", result.out);
  read_file("deep/cache/attnlab/wisdom", text, sizeof text);
  cr_expect(strncmp(text, "attnlab wisdom 1\ncpu ", 21) == 0, "%s", text);
  cr_expect(count_of(text, " f32 ") + count_of(text, " f64 ") == count_of(result.out, "chosen"), "%s", text);
  run("info", 0);
  cr_expect(result.err[0] == '\0', "%s", result.err);
  cr_expect(strstr(result.out, "deep/cache/attnlab/wisdom"), "%s", result.out);
}

/* What is chosen is written, read again, and in force. */
Test(tune, round_trip) {
  static tune_result r = {
      .cases =
          {{.isa = "scalar", .dtype = ATTN_F32, .d = 64, .again = {.blocks = {512, 72}}, .chosen = true},
           {.isa = "scalar", .dtype = ATTN_F64, .d = 64, .again = {.blocks = {512, 48}}},
           {.isa = "scalar", .dtype = ATTN_F64, .d = 128, .again = {.blocks = {128, 60}}, .chosen = true}},
      .count = 3};
  char *lines = tune_lines(&r);
  cr_assert_str_eq(lines, "scalar f32 64 64 512 72\nscalar f64 128 128 128 60\n");
  cr_assert(wisdom_save("w", false, lines) == ATTN_OK, "%s", attn_last_error());
  free(lines);
  attn_wisdom_forget();
  cr_assert(setenv("ATTNLAB_WISDOM", "w", 1) == 0 && setenv("ATTN_ISA", "scalar", 1) == 0);
  cr_assert(wisdom_load() == ATTN_OK, "%s", attn_last_error());
  cr_expect(attn_wisdom_count() == 2);
  run("info", 0);
  cr_expect(strstr(result.out, "f32 d=64: 512 x 72") && strstr(result.out, "f64 d=128: 128 x 60"), "%s",
            result.out);
  cr_expect(strstr(result.out, "2 entries; file w"), "%s", result.out);
  run("info --no-wisdom", 0);
  cr_expect(strstr(result.out, "f32 d=64: 256 x 96") && strstr(result.out, "0 entries"), "%s", result.out);
  cr_assert(setenv("ATTNLAB_WISDOM", "", 1) == 0);
  run("info", 0);
  cr_expect(strstr(result.out, "0 entries"), "%s", result.out);
}

/* A sweep records the sizes in each run's key; --no-wisdom has those of the caches. */
Test(tune, sweeps_record_sizes) {
  command_write_text("c.yaml",
                     "schema: 1\ngrid: {n: 64, d: 64}\nvariants: [tiled]\ndatasets: gaussian\nnulls: no\n");
  cr_assert(setenv("ATTN_ISA", "scalar", 1) == 0 &&
            wisdom_save("w", false, "scalar f32 64 64 512 72\n") == ATTN_OK &&
            setenv("ATTNLAB_WISDOM", "w", 1) == 0);
  run("run c.yaml -o r.h5 --dry-run", 0);
  cr_expect(strstr(result.out, " blocks=512x72 "), "%s", result.out);
  run("run c.yaml -o r.h5 --dry-run --no-wisdom", 0);
  cr_expect(strstr(result.out, " blocks=256x96 "), "%s", result.out);
  run("run c.yaml -o r.h5 --quiet", 0);
  run("export --csv r.h5", 0);
  cr_expect(strstr(result.out, "block_k") && strstr(result.out, ",512,72,"), "%s", result.out);
}

Test(tune, foreign_wisdom_is_ignored_with_a_note) {
  cr_assert(setenv("ATTNLAB_WISDOM", "w", 1) == 0);
  command_write_text("w", "attnlab wisdom 1\ncpu Babbage engine\nscalar f32 64 64 512 72\n");
  run("info", 0);
  cr_expect(command_diagnostics(&result) == 1 &&
                strstr(result.err, "w: made for another processor, Babbage engine"),
            "%s", result.err);
  cr_expect(strstr(result.out, "0 entries"), "%s", result.out);
  run("info --no-wisdom", 0);
  cr_expect(result.err[0] == '\0', "%s", result.err);
}

Test(tune, hostile_wisdom) {
  static const struct {
    const char *bytes;
    size_t size;
    const char *says;
  } cases[] = {{"attnlab wisdom 3\n", 17, "w: line 1"},
               {"attnlab wisdom 1\nn\n", 19, "w: line 2"},
               {"attnlab\0wisdom 1\n", 17, "w: line 1"},
               {"", 0, "w: the file is empty"}};
  cr_assert(setenv("ATTNLAB_WISDOM", "w", 1) == 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    command_write("w", cases[i].bytes, cases[i].size);
    run("info", 2);
    cr_expect(command_diagnostics(&result) == 1 && strstr(result.err, cases[i].says), "%s", result.err);
    cr_expect(result.out[0] == '\0', "%s", result.out);
    run("info --no-wisdom", 0);
    run("list", 0);
  }
  cr_assert(setenv("ATTNLAB_WISDOM", ".", 1) == 0);
  run("info", 2);
}

Test(tune, refuses) {
  cr_assert(setenv("ATTN_ISA", attn_isa_list()[0], 1) == 0);
  run("tune nonsense", 2);
  run("tune --slow", 2);
  cr_assert(setenv("ATTNLAB_WISDOM", "", 1) == 0);
  run("tune --quick", 2);
  cr_expect(strstr(result.err, "-o FILE"), "%s", result.err);
  run("tune --quick -o missing/w", 74);
  cr_expect(strstr(result.err, "missing/w"), "%s", result.err);
}
