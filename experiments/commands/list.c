/* list.c - attnlab list: the names that other commands and configurations accept. */
#include "experiments/commands/commands.h"

#include <stdio.h>
#include <string.h>

#include "data/data.h"
#include "experiments/checks/check.h"
#include "experiments/commands/cli.h"
#include "experiments/quality/checks.h"

static void list_variants(void) {
  for (size_t i = 0; i < attn_variant_count(); i++)
    printf("%-12s %s\n", attn_variant_at(i)->name, attn_variant_at(i)->summary);
}

static void list_datasets(void) {
  for (size_t i = 0; i < data_source_count(); i++)
    printf("%-12s %s\n", data_source_at(i)->name, data_source_at(i)->help);
}

static void list_check(const check *c, int of) {
  printf("%-12s %-6s %-*s %s\n", c->name, check_kind_names[c->kind], of, c->of->text, c->statement);
}

static void list_checks(void) {
  enum { OF = 50 };
  printf("%-12s %-6s %-*s %s\n", "check", "kind", OF, "of variants", "statement");
  for (const check *const *c = checks_all; *c; c++) list_check(*c, OF);
  for (int c = 0; c < QUALITY_CHECKS; c++) list_check(&quality_checks[c], OF);
}

typedef struct section {
  const char *name;
  void (*print)(void);
} section;

static const section sections[] = {
    {"variants", list_variants}, {"datasets", list_datasets}, {"checks", list_checks}};

enum { SECTIONS = sizeof sections / sizeof sections[0] };

static const cli_option options[] = {{NULL, 0, NULL, "section", CLI_OTHER, 0, 0, 0, NULL}, {0}};

static void read_section(struct argp_state *state, void *input, const char *option, char *text) {
  const section **chosen = input;
  (void)option;
  if (*chosen) argp_error(state, "'%s': one argument is expected at most", text);
  for (int i = 0; i < SECTIONS; i++)
    if (strcmp(text, sections[i].name) == 0) *chosen = &sections[i];
  if (!*chosen) argp_error(state, "'%s': expected variants, datasets or checks", text);
}

static const cli_command parser = {
    .usage = "[variants|datasets|checks]",
    .options = options,
    .read = read_section,
    .plugins = true,
    .doc = "Variants, datasets and bound checks, or one of the three, a line each.\v"
           "`attnlab describe NAME' tells more about each."};

int cmd_list(int argc, char **argv) {
  const section *chosen = NULL;
  cli_parse(&parser, argc, argv, &chosen);
  if (chosen) {
    chosen->print();
    return 0;
  }
  for (int i = 0; i < SECTIONS; i++) {
    printf("%s%s:\n", i ? "\n" : "", sections[i].name);
    sections[i].print();
  }
  return 0;
}
