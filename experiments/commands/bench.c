/* bench.c - attnlab bench: how near the limits of the machine each engine comes, or how variants compare. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/commands/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/bench/bench.h"
#include "experiments/commands/cli.h"
#include "experiments/runner/provenance.h"

static const struct group {
  const char *name, *help;
  void (*build)(bench *);
  bool optional; /* runs only if it is named */
} groups[] = {
    {"peaks", "multiply-adds and reads per second, nothing else", bench_peaks, false},
    {"exact", "tiled: over the peak of each instruction set, causal, odd sizes, memory", bench_exact, false},
    {"variants",
     "approximate variants and full: over the peak, over their transforms, over OpenBLAS; threads; growth",
     bench_variants, false},
    {"decode", "few queries against many keys: bytes per second over the read bandwidth", bench_decode,
     false},
    {"crossover", "from which length on a variant is faster than tiled", bench_crossover, false},
    {"long", "a million tokens: memory (half an hour; only if named)", bench_long, true},
};
enum { GROUPS = sizeof groups / sizeof *groups };

typedef struct arguments {
  bench_options options;
  bool chosen[GROUPS], markdown, serve;
  size_t chosen_count;
  const char *json;
} arguments;

enum {
  KEY_ISA = 1000,
  KEY_THREADS,
  KEY_ROUNDS,
  KEY_BUDGET,
  KEY_JSON,
  KEY_QUICK,
  KEY_SEED,
  KEY_AGAINST,
  KEY_SERVE
};

static const struct argp_option options[] = {
    {"isa", KEY_ISA, "NAME", 0, "This instruction set alone", 0},
    {"threads", KEY_THREADS, "N", 0, "Threads (default: the OpenMP default)", 0},
    {"rounds", KEY_ROUNDS, "N", 0, "Rounds at least (default 3)", 0},
    {"budget", KEY_BUDGET, "SECONDS", 0,
     "Further rounds, up to five times as many, while this lasts (default 120, quick 0)", 0},
    {"n", 'n', "N,...", 0, "Lengths, in place of each group's own", 0},
    {"d", 'd', "D,...", 0, "Head sizes, in place of a group's own", 0},
    {"quick", KEY_QUICK, NULL, 0, "Short measurements of short sequences", 0},
    {"seed", KEY_SEED, "N", 0, "Of the order in a round and of the intervals (default 0)", 0},
    {"json", KEY_JSON, "FILE", 0, "Also write every sample, with machine, version and date", 0},
    {"markdown", 'm', NULL, 0, "The table in Markdown", 0},
    {"against", KEY_AGAINST, "PROGRAM", 0, "Compare each SPEC with itself in this other build of attnlab", 0},
    {"serve", KEY_SERVE, NULL, OPTION_HIDDEN, NULL, 0},
    {0}};

static void read_list(struct argp_state *state, const char *option, char *text, int64_t max,
                      value_ints *list) {
  for (char *save = NULL, *item = strtok_r(text, ",", &save); item; item = strtok_r(NULL, ",", &save))
    if (value_ints_add(list, cli_int(state, option, item, 1, max)))
      argp_error(state, "%s", attn_last_error());
  if (list->count == 0) argp_error(state, "%s: expected numbers", option);
}

/* A group, or else a variant to compare. */
static void read_word(struct argp_state *state, arguments *a, const char *word) {
  for (size_t i = 0; i < GROUPS; i++)
    if (strcmp(word, groups[i].name) == 0) {
      a->chosen_count += !a->chosen[i];
      a->chosen[i] = true;
      return;
    }
  attn_spec *spec = NULL;
  if (attn_spec_parse(&spec, word))
    argp_error(state, "'%s' is no group (see --help), and no variant: %s", word, attn_last_error());
  attn_spec_destroy(spec);
  if (value_texts_add(&a->options.others, word)) argp_error(state, "%s", attn_last_error());
}

static error_t parse(int key, char *value, struct argp_state *state) {
  arguments *a = state->input;
  bench_options *o = &a->options;
  switch (key) {
  case KEY_ISA:
    o->isa = value;
    o->one_isa = true;
    break;
  case KEY_THREADS:
    o->threads = (int)cli_int(state, "--threads", value, 1, 4096);
    break;
  case KEY_ROUNDS:
    o->rounds = cli_int(state, "--rounds", value, 1, 1000);
    break;
  case KEY_BUDGET:
    if ((o->budget = cli_real(state, "--budget", value)) < 0)
      argp_error(state, "--budget '%s': expected at least 0", value);
    break;
  case 'n':
    read_list(state, "--n", value, INT64_C(1) << 24, &o->n);
    break;
  case 'd':
    read_list(state, "--d", value, 4096, &o->d);
    break;
  case KEY_QUICK:
    o->quick = true;
    break;
  case KEY_SEED:
    o->seed = (uint64_t)cli_int(state, "--seed", value, 0, INT64_MAX);
    break;
  case KEY_JSON:
    a->json = value;
    break;
  case 'm':
    a->markdown = true;
    break;
  case KEY_AGAINST:
    o->against = value;
    break;
  case KEY_SERVE:
    a->serve = true;
    break;
  case ARGP_KEY_ARG:
    read_word(state, a, value);
    break;
  case ARGP_KEY_END:
    if (a->chosen_count && o->others.count) argp_error(state, "groups and variants exclude each other");
    if ((o->against || a->serve) && !o->others.count)
      argp_error(state, "--against needs variants to compare");
    break;
  default:
    return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

static char *list_groups(int key, const char *text, void *input) {
  (void)input;
  if (key != ARGP_KEY_HELP_POST_DOC) return (char *)(uintptr_t)text;
  char *out = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&out, &size);
  if (!stream) return NULL;
  fprintf(stream, "Groups (default: all but long):\n");
  for (size_t i = 0; i < GROUPS; i++) fprintf(stream, "  %-10s %s\n", groups[i].name, groups[i].help);
  fputs(text, stream);
  fclose(stream);
  return out;
}

static const struct argp parser = {
    .options = options,
    .parser = parse,
    .args_doc = "[GROUP...]\nSPEC...",
    .doc =
        "Each engine against the limits of this machine, or variants against each other."
        "\v"
        "Every ratio is the median over interleaved rounds, with its 95 % bootstrap interval; the limit is "
        "measured directly "
        "before and after. A variant whose output is wrong is an error.\n\n"
        "  attnlab bench                           the whole table, about six minutes\n"
        "  attnlab bench exact --isa avx2 --quick\n"
        "  attnlab bench tiled longformer performer --n 4Ki,16Ki\n"
        "  attnlab bench tiled performer --against ../before/build/release/experiments/attnlab",
    .children = cli_plugin_children,
    .help_filter = list_groups};

static attn_status report(const bench *b, const arguments *a, int argc, char **argv) {
  json_t *provenance = NULL;
  attn_status status = bench_print(b, a->markdown);
  if (status || !a->json) return status;
  if (!(status = provenance_collect(argc, argv, "", true, &provenance)))
    status = bench_json(b, a->json, provenance);
  json_decref(provenance);
  return status;
}

int cmd_bench(int argc, char **argv) {
  arguments a = {.options = {.rounds = 3, .budget = -1}};
  bool from_environment = getenv("ATTN_ISA") && *getenv("ATTN_ISA");
  argp_parse(&parser, argc, argv, 0, NULL, &a);
  bench b = {.options = a.options};
  b.options.one_isa = a.options.one_isa || from_environment;
  if (b.options.budget < 0) b.options.budget = a.options.quick ? 0 : 120;
  b.status = bench_machine(&b.options);
  for (size_t i = 0; i < GROUPS; i++)
    if (a.options.others.count ? false : a.chosen_count ? a.chosen[i] : !groups[i].optional) {
      b.group = groups[i].name;
      if (!b.status) groups[i].build(&b);
    }
  if (a.options.others.count && !a.serve && !b.status) {
    b.group = "compare";
    bench_compare(&b);
  }
  attn_status status = b.status;
  if (a.serve) {
    if (!status) status = bench_serve(&b, stdin, stdout);
  } else if (!(status = bench_measure(&b))) {
    status = report(&b, &a, argc, argv);
  }
  bench_free(&b);
  value_ints_free(&a.options.n);
  value_ints_free(&a.options.d);
  value_texts_free(&a.options.others);
  return cli_report(argv[0], status);
}
