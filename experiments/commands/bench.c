/* bench.c - attnlab bench: how near the limits of the machine each engine comes, or how variants compare. */
#include "experiments/commands/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/bench/benchmark.h"
#include "experiments/commands/cli.h"
#include "experiments/commands/operands.h"
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
    {"cache", "one query against keys and values in few bits, and tokens that arrive in a cache", bench_cache,
     false},
    {"recurrent", "states carried from key to key: over the peak; threads", bench_recurrent, false},
    {"backward", "gradients of exact attention and patterns: over the peak; threads", bench_gradients, false},
    {"score", "transforms of the scores and documents: time over that without", bench_score, false},
    {"select", "keys chosen at run time: rates and times over dense tiled's", bench_select, false},
    {"crossover", "from which length on a variant is faster than tiled", bench_crossover, false},
    {"model", "a model (--model): weights of a token over the bandwidth, a window over the peak", bench_model,
     true},
    {"long", "time and memory up to four million tokens, exponents (ten minutes; only if named)", bench_long,
     true},
};
enum { GROUPS = sizeof groups / sizeof *groups };

typedef struct arguments {
  bench_options options;
  bool chosen[GROUPS], markdown, serve;
  size_t chosen_count;
  int64_t seed;
  const char *json;
  target_options target;
} arguments;

static void read_list(struct argp_state *state, const char *option, char *text, int64_t max,
                      value_ints *list) {
  for (char *save = NULL, *item = strtok_r(text, ",", &save); item; item = strtok_r(NULL, ",", &save))
    if (value_ints_add(list, cli_int(state, option, item, 1, max))) cli_fail(state);
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
    argp_error(state, "'%s' is neither a group (see --help) nor a variant: %s", word, attn_last_error());
  attn_spec_destroy(spec);
  if (value_texts_add(&a->options.others, word)) cli_fail(state);
}

static void list_groups(FILE *stream) {
  fprintf(stream, "Groups (default: all but model and long):\n");
  for (size_t i = 0; i < GROUPS; i++) fprintf(stream, "  %-10s %s\n", groups[i].name, groups[i].help);
}

static const cli_option options[] = {
    {"isa", 0, "NAME", "Use only this instruction set", CLI_SET(CLI_TEXT, options.isa)},
    {"threads", 0, "N", "Threads (default: the OpenMP default)", CLI_SET(CLI_THREADS, options.threads)},
    {"rounds", 0, "N", "Rounds at least (default 3)", CLI_RANGE(options.rounds, 1, 1000)},
    {"budget", 0, "SECONDS", "Further rounds, up to five times as many, while this lasts (default 0)",
     CLI_READ},
    {"n", 'n', "N,...", "Lengths, instead of each group's own", CLI_READ},
    {"d", 'd', "D,...", "Head sizes, instead of a group's own", CLI_READ},
    {"quick", 0, NULL, "Short measurements of short sequences", CLI_SET(CLI_FLAG, options.quick)},
    {"seed", 0, "N", "Seed of the order in a round and of the intervals (default 0)",
     CLI_RANGE(seed, 0, INT64_MAX)},
    {"json", 0, "FILE", "Also write every sample, with machine, version and date", CLI_SET(CLI_TEXT, json)},
    {"markdown", 'm', NULL, "Print the table in Markdown", CLI_SET(CLI_FLAG, markdown)},
    {"model", 0, "PATH", "The model of the group model, which runs under ATTN_ISA and OMP_NUM_THREADS",
     CLI_SET(CLI_TEXT, options.model)},
    {"against", 0, "PROGRAM", "Compare each SPEC with itself in this other build of attnlab",
     CLI_SET(CLI_TEXT, options.against)},
    {"causal", 0, NULL, "Query i sees key j iff j <= i", CLI_SET(CLI_FLAG, options.causal)},
    TARGET_OPTIONS(target),
    {"serve", 0, NULL, "", CLI_SET(CLI_FLAG, serve)},
    {NULL, 0, NULL, "group or variant", CLI_READ},
    {0}};

static void read_other(struct argp_state *state, void *input, const char *option, char *text) {
  arguments *a = input;
  bench_options *o = &a->options;
  if (!option) {
    read_word(state, a, text);
  } else if (strcmp(option, "--n") == 0) {
    read_list(state, option, text, INT64_C(1) << 24, &o->n);
  } else if (strcmp(option, "--d") == 0) {
    read_list(state, option, text, 4096, &o->d);
  } else if ((o->budget = cli_real(state, option, text)) < 0) {
    argp_error(state, "%s '%s': expected at least 0", option, text);
  }
}

static void complete(struct argp_state *state, void *input) {
  const arguments *a = input;
  if (a->chosen_count && a->options.others.count) argp_error(state, "give groups or variants, not both");
  if ((a->options.against || a->serve) && !a->options.others.count)
    argp_error(state, "--against needs variants to compare");
  if (a->options.model && (a->options.isa || a->options.threads))
    argp_error(state, "--model: set ATTN_ISA and OMP_NUM_THREADS instead of --isa and --threads");
  for (size_t i = 0; a->options.model && i < GROUPS; i++)
    if (groups[i].build == bench_model && !a->chosen[i])
      argp_error(state, "--model goes with the group model");
  if (!a->options.others.count && (target_given(&a->target) || a->options.causal))
    argp_error(state, "scores and masks are of variants to compare; groups have their own");
}

static const cli_command parser = {
    .usage = "[GROUP...]\nSPEC...",
    .options = options,
    .read = read_other,
    .complete = complete,
    .list = list_groups,
    .plugins = true,
    .doc = "Benchmarks engines against the limits of this machine, or variants against each other.\v"
           "Every ratio is the median over interleaved rounds, with its 95 % bootstrap interval; the "
           "limit is measured directly before and after. A variant whose output is wrong is an error. "
           "Variants are "
           "compared on one problem of 4 heads, with the score and mask that options give it.\n\n"
           "  attnlab bench                           the whole table, about six minutes\n"
           "  attnlab bench exact --isa avx2 --quick\n"
           "  attnlab bench tiled longformer performer --n 4Ki,16Ki\n"
           "  attnlab bench tiled topk --softcap 50 --mask documents:1Ki\n"
           "  attnlab bench tiled performer --against ../before/build/release/experiments/attnlab"};

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
  arguments a = {.options = {.rounds = 3}};
  bool from_environment = getenv("ATTN_ISA") && *getenv("ATTN_ISA");
  cli_parse(&parser, argc, argv, &a);
  char *score = NULL, *mask = NULL;
  attn_status status = target_texts(&a.target, &score, &mask);
  bench b = {.options = a.options, .status = status};
  b.options.score = score;
  b.options.mask = mask;
  b.options.one_isa = a.options.isa || from_environment;
  b.options.seed = (uint64_t)a.seed;
  if (a.json && !b.status) b.status = output_check(a.json, &kind_bench, NULL, 0);
  if (!b.status) b.status = bench_machine(&b.options);
  for (size_t i = 0; i < GROUPS; i++)
    if (a.options.others.count ? false : a.chosen_count ? a.chosen[i] : !groups[i].optional) {
      b.group = groups[i].name;
      if (!b.status) groups[i].build(&b);
    }
  if (a.options.others.count && !a.serve && !b.status) {
    b.group = "compare";
    bench_compare(&b);
  }
  status = b.status;
  if (a.serve) {
    if (!status) status = bench_serve(&b, stdin, stdout);
  } else if (!(status = bench_measure(&b))) {
    status = report(&b, &a, argc, argv);
  }
  bench_free(&b);
  free(score);
  free(mask);
  value_ints_free(&a.options.n);
  value_ints_free(&a.options.d);
  value_texts_free(&a.options.others);
  return cli_report(argv[0], status);
}
