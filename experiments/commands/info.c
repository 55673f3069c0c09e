/* info.c - attnlab info: the machine, the instruction sets, caches and block sizes, the libraries. */
#include "experiments/commands/commands.h"

#include <stdio.h>
#include <stdlib.h>

#include "attn_variant.h"
#include "data/support/json_text.h"
#include "experiments/commands/cli.h"
#include "experiments/instruments/machine.h"
#include "experiments/support/table.h"

static const cli_option options[] = {{"json", 0, NULL, "Print a JSON object", CLI_FLAG, 0, 0, 0, NULL}, {0}};

static const cli_command parser = {
    .options = options,
    .doc = "Prints this machine, the instruction sets that attnlab has kernels for, and its libraries."};

/* A plan decides the instruction set and the kind of products. With many queries these may be tile
 * products. */
static attn_status in_use(char *text, size_t size) {
  const attn_problem problem = attn_problem_make(1, 1, 4096, 64);
  attn_plan *plan = NULL;
  attn_view view = {0};
  attn_status status = attn_plan_create(&plan, &problem, "tiled", NULL);
  if (!status) status = attn_plan_inspect(plan, &view);
  if (!status) snprintf(text, size, "%s, tiled fp32 by path=%s", attn_plan_isa(plan), view.rounding.path);
  attn_plan_destroy(plan);
  return status;
}

/* "L1d 48 KiB (sysconf), ..." */
static void print_caches(FILE *out) {
  static const char *const names[] = {"L1d", "L2", "L3"};
  for (int i = 0; i < 3; i++) {
    const attn_cache c = attn_cache_size(i + 1);
    fprintf(out, "%s%s %lld KiB (%s)", i ? ", " : "", names[i], (long long)(c.bytes >> 10), c.from);
  }
}

/* Block sizes: queries that share keys, and keys of one step of the online softmax. */
static void print_blocks(FILE *out) {
  static const int64_t widths[] = {64, 128};
  static const char *const dtypes[] = {"f32", "f64"};
  for (int i = 0; i < 4; i++) {
    attn_options o;
    if (attn_options_fill(NULL, i / 2 ? ATTN_F64 : ATTN_F32, widths[i % 2], widths[i % 2], &o)) return;
    fprintf(out, "%s%s d=%lld: %lld x %lld", i ? ", " : "", dtypes[i / 2], (long long)widths[i % 2],
            (long long)o.blocks.query, (long long)o.blocks.key);
  }
}

static void print_kernels(FILE *out) {
  for (const char *const *name = attn_isa_list(); *name; name++)
    fprintf(out, "%s%s", name == attn_isa_list() ? "" : " ", *name);
}

static bool put_printed(json_t *to, const char *name, void (*print)(FILE *)) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  if (!out) return false;
  print(out);
  const bool good = attn_stream_text(out, &text) && !json_object_set_new(to, name, json_string(text));
  free(text);
  return good;
}

/* The lines in their order; NULL: no memory. */
static json_t *sheet_of(const json_t *facts, const char *in_use, int threads) {
  static const char *const machine[][2] = {{"processor", "cpu_model"},
                                           {"cores", "n_cores"},
                                           {"memory", NULL},
                                           {"kernel", "kernel"},
                                           {"governor", "governor"}};
  static const char *const build[][2] = {
      {"libraries", "lib_versions"}, {"compiler", "compiler"}, {"flags", "cflags"}};
  json_t *sheet = json_pack("{s:s}", "version", attn_version());
  bool good = sheet != NULL;
  char memory[SHORT_TEXT];
  for (size_t i = 0; good && i < sizeof machine / sizeof *machine; i++)
    good = !(machine[i][1] ? json_object_set(sheet, machine[i][0], json_object_get(facts, machine[i][1]))
                           : json_object_set_new(sheet, machine[i][0],
                                                 json_string(short_bytes(machine_memory(), memory))));
  good = good && put_printed(sheet, "kernels_for", print_kernels) &&
         !json_object_set_new(sheet, "in_use", json_string(in_use)) &&
         !json_object_set_new(sheet, "threads", json_integer(threads)) &&
         put_printed(sheet, "caches", print_caches) && put_printed(sheet, "blocks", print_blocks);
  for (size_t i = 0; good && i < sizeof build / sizeof *build; i++)
    good = !json_object_set(sheet, build[i][0], json_object_get(facts, build[i][1]));
  return json_whole(sheet, good);
}

int cmd_info(int argc, char **argv) {
  bool json = false;
  cli_parse(&parser, argc, argv, &json);
  char use[64];
  attn_options machine;
  attn_status status = in_use(use, sizeof use);
  if (!status) status = attn_options_fill(NULL, ATTN_F32, 1, 1, &machine);
  if (status) return cli_report(argv[0], status);
  json_t *facts = machine_facts(), *sheet = facts ? sheet_of(facts, use, machine.threads) : NULL, *value;
  const char *name;
  json_decref(facts);
  if (!sheet) return cli_report(argv[0], attn_fail(ATTN_ENOMEM, "out of memory"));
  if (json) status = cli_print_json(sheet);
  json_object_foreach(sheet, name, value) {
    char label[16];
    if (json) break;
    printf("%-14s ", cli_label(name, label, sizeof label));
    if (json_is_string(value))
      puts(json_string_value(value));
    else
      printf("%lld\n", (long long)json_integer_value(value));
  }
  json_decref(sheet);
  return cli_report(argv[0], status);
}
