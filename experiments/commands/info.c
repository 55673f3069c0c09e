/* info.c - attnlab info: the machine, the instruction sets, caches and block sizes, the libraries. */
#include "experiments/commands/commands.h"

#include <stdio.h>

#include "attn_variant.h"
#include "experiments/commands/cli.h"
#include "experiments/instruments/machine.h"

static const cli_command parser = {
    .doc = "This machine, the instruction sets that attnlab has kernels for, its libraries."};

static void line(const char *label, const char *text) { printf("%-14s %s\n", label, text); }

static void fact(const char *label, const json_t *facts, const char *name) {
  line(label, json_string_value(json_object_get(facts, name)));
}

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

static void print_caches(void) {
  static const char *const names[] = {"L1d", "L2", "L3"};
  printf("%-14s", "caches");
  for (int i = 0; i < 3; i++) {
    const attn_cache c = attn_cache_size(i + 1);
    printf("%s %s %lld KiB (%s)", i ? "," : "", names[i], (long long)(c.bytes >> 10), c.from);
  }
  printf("\n");
}

/* Block sizes: queries that share keys, and keys of one step of the online softmax. */
static attn_status print_blocks(void) {
  static const int64_t widths[] = {64, 128};
  static const char *const dtypes[] = {"f32", "f64"};
  printf("%-14s", "blocks");
  for (int i = 0; i < 4; i++) {
    attn_options o;
    const attn_status status =
        attn_options_fill(NULL, i / 2 ? ATTN_F64 : ATTN_F32, widths[i % 2], widths[i % 2], &o);
    if (status) return status;
    printf("%s %s d=%lld: %lld x %lld", i ? "," : "", dtypes[i / 2], (long long)widths[i % 2],
           (long long)o.blocks.query, (long long)o.blocks.key);
  }
  printf("\n");
  return ATTN_OK;
}

int cmd_info(int argc, char **argv) {
  cli_parse(&parser, argc, argv, NULL);
  char use[64];
  attn_options machine;
  attn_status status = in_use(use, sizeof use);
  if (!status) status = attn_options_fill(NULL, ATTN_F32, 1, 1, &machine);
  if (status) return cli_report(argv[0], status);
  json_t *facts = machine_facts();
  if (!facts) return cli_report(argv[0], attn_fail(ATTN_ENOMEM, "out of memory"));

  fact("processor", facts, "cpu_model");
  printf("%-14s %d\n", "cores", (int)json_integer_value(json_object_get(facts, "n_cores")));
  if (machine_memory() > 0) printf("%-14s %.1f GiB\n", "memory", machine_memory() / 0x1p30);
  fact("kernel", facts, "kernel");
  fact("governor", facts, "governor");
  printf("%-14s", "kernels for");
  for (const char *const *name = attn_isa_list(); *name; name++) printf(" %s", *name);
  printf("\n");
  line("in use", use);
  printf("%-14s %d\n", "threads", machine.threads);
  print_caches();
  status = print_blocks();
  fact("libraries", facts, "lib_versions");
  fact("compiler", facts, "compiler");
  fact("flags", facts, "cflags");
  json_decref(facts);
  return cli_report(argv[0], status);
}
