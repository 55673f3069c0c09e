/* list.c - attnlab list: the names that other commands and configurations accept. */
#include "experiments/commands/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_gradients.h"
#include "data/data.h"
#include "data/support/json_text.h"
#include "experiments/checks/check.h"
#include "experiments/commands/cli.h"
#include "experiments/commands/describe.h"
#include "experiments/support/escape.h"

/* One line of a list, and of its JSON. kind, family, of: of checks. */
typedef struct entry {
  const char *name, *text, *kind, *family, *of;
} entry;

static bool variant_entry(size_t i, entry *e) {
  const attn_variant *v = attn_variant_at(i);
  if (v) *e = (entry){.name = v->name, .text = v->summary};
  return v != NULL;
}

/* Without parameters; of a causal problem where it takes no other. */
static bool has_gradients(const attn_variant *v) {
  attn_plan *plan = NULL;
  attn_problem p = attn_problem_make(1, 1, 512, 64);
  p.causal = attn_plan_create(&plan, &p, v->name, NULL);
  if (p.causal) (void)attn_plan_create(&plan, &p, v->name, NULL);
  const bool found = plan && !attn_plan_backward_size(plan, &(size_t){0});
  attn_plan_destroy(plan);
  return found;
}

static bool dataset_entry(size_t i, entry *e) {
  const data_source *s = data_source_at(i);
  if (s) *e = (entry){.name = s->name, .text = s->help};
  return s != NULL;
}

static bool check_entry(size_t i, entry *e) {
  const char *family;
  const check *c = listed_check(i, &family);
  if (c) *e = (entry){c->name, c->statement, check_kind_names[c->kind], family, c->of->text};
  return c != NULL;
}

typedef struct section {
  const char *name;
  bool (*entry)(size_t i, entry *); /* false: there is none */
  int of;                           /* width of a column for entry.kind and .of; 0: none */
} section;

static const section sections[] = {
    {"variants", variant_entry, 0}, {"datasets", dataset_entry, 0}, {"checks", check_entry, 50}};

enum { SECTIONS = sizeof sections / sizeof sections[0] };

typedef struct arguments {
  const section *chosen;
  bool json, backward;
} arguments;

static const cli_option options[] = {
    {"backward", 0, NULL, "Only variants that have gradients", CLI_SET(CLI_FLAG, backward)},
    {"json", 0, NULL, "Print a JSON object with an array for each section", CLI_SET(CLI_FLAG, json)},
    {NULL, 0, NULL, "section", CLI_READ},
    {0}};

static void print_section(const section *s, bool backward) {
  if (s->of)
    printf("%-15s %-8s %-20s %-*s %s\n", "check", "kind", "family", s->of, "of variants", "statement");
  entry e;
  for (size_t i = 0; s->entry(i, &e); i++) {
    if (backward && !has_gradients(attn_variant_at(i))) continue;
    printf("%-15s ", e.name);
    if (s->of) printf("%-8s %-20s %-*s ", e.kind, e.family, s->of, e.of);
    escape_put(stdout, e.text);
    putchar('\n');
  }
}

static json_t *section_json(const section *s, bool backward) {
  json_t *list = json_array();
  entry e;
  bool good = list != NULL;
  for (size_t i = 0; good && s->entry(i, &e); i++) {
    if (backward && !has_gradients(attn_variant_at(i))) continue;
    char *text = escape_text(e.text);
    json_t *one = json_pack("{s:s, s:s}", "name", e.name, "summary", text ? text : "");
    good = text && one &&
           (!e.of || (!json_object_set_new(one, "kind", json_string(e.kind)) &&
                      !json_object_set_new(one, "family", json_string(e.family)) &&
                      !json_object_set_new(one, "of", json_string(e.of))));
    if (json_array_append_new(list, one)) good = false;
    free(text);
  }
  return json_whole(list, good);
}

static void read_section(struct argp_state *state, void *input, const char *option, char *text) {
  const section **chosen = &((arguments *)input)->chosen;
  (void)option;
  if (*chosen) argp_error(state, "'%s': extra argument", text);
  for (int i = 0; i < SECTIONS; i++)
    if (strcmp(text, sections[i].name) == 0) *chosen = &sections[i];
  if (!*chosen) argp_error(state, "'%s': expected variants, datasets or checks", text);
}

static void complete(struct argp_state *state, void *input) {
  arguments *a = input;
  if (!a->backward) return;
  if (a->chosen && a->chosen != sections) argp_error(state, "--backward: goes with variants");
  a->chosen = sections;
}

static const cli_command parser = {
    .usage = "[variants|datasets|checks]",
    .options = options,
    .read = read_section,
    .complete = complete,
    .plugins = true,
    .doc = "Lists variants, datasets and checks, or one of the three, one per line.\v"
           "`attnlab describe NAME' describes each."};

static int print_json(const char *command, const section *chosen, bool backward) {
  json_t *all = json_object();
  attn_status status = ATTN_OK;
  for (int i = 0; i < SECTIONS && !status; i++)
    if ((!chosen || chosen == &sections[i]) &&
        json_object_set_new(all, sections[i].name, section_json(&sections[i], backward)))
      status = attn_fail(ATTN_ENOMEM, "no memory for the lists");
  if (!status) status = cli_print_json(all);
  json_decref(all);
  return cli_report(command, status);
}

int cmd_list(int argc, char **argv) {
  arguments a = {0};
  cli_parse(&parser, argc, argv, &a);
  if (a.json) return print_json(argv[0], a.chosen, a.backward);
  for (int i = 0; i < SECTIONS; i++) {
    if (a.chosen && a.chosen != &sections[i]) continue;
    if (!a.chosen) printf("%s%s:\n", i ? "\n" : "", sections[i].name);
    print_section(&sections[i], a.backward);
  }
  return 0;
}
