/* eval.c - attnlab eval: what approximations of its attention do to a model. */
#include "experiments/commands/commands.h"

#include <omp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/commands/cli.h"
#include "experiments/grid/shard.h"
#include "experiments/quality/evaluation_tables.h"
#include "experiments/quality/request.h"
#include "experiments/runner/sweep.h"
#include "experiments/results/row.h"

enum { LIST_MAX = 64 };

typedef struct arguments {
  quality_request request;
  const char *specs[LIST_MAX], *caches[LIST_MAX], *tasks[LIST_MAX];
  int64_t n[LIST_MAX];
  double mixes[LIST_MAX];
  bool json;
  int threads;
  const char *output;
} arguments;

static const cli_option options[] = {
    {NULL, 0, NULL, "model", CLI_NEED(request.ids.model, "MODEL")},
    {"text", 0, "FILE",
     "Windows of this text, encoded by the model's tokenizer, or of its bytes if those are the vocabulary",
     CLI_SET(CLI_TEXT, request.ids.text)},
    {"tokens", 0, "FILE", "Windows of these token ids, an int32 or int64 .npy",
     CLI_SET(CLI_TEXT, request.ids.tokens)},
    {"variant", 'v', "SPEC",
     "Replace attention by this variant (may be repeated); SPEC@0-3;SPEC@4: in these layers; "
     "SPEC@pyramid=20: "
     "budgets fall with the layer, the last is a 20th of the mean; @FILE: the line of a file (attnlab advise "
     "--assignment)",
     CLI_READ},
    {"cache", 0, "SPEC",
     "As --variant, of a cache: its policy gives up keys from the first scored position on, after a prompt "
     "that is read whole (may be repeated)",
     CLI_READ},
    {"task", 0, "TASK",
     "text:skip=128 (the default), copy:length=64,alphabet=64, recall:pairs=1,digits=6,depth=-1, "
     "track:chains=1,hops=4, frequent:alpha=2,words=100 or sample:temperature=1 (may be repeated); of "
     "recall, "
     "track and frequent with aware=no the policies of --cache give up keys before the question",
     CLI_READ},
    {"layers", 0, "SET", "Replace attention in these layers: all, 0,3-5, or each (one run per layer)",
     CLI_SET(CLI_TEXT, request.layers)},
    {"heads", 0, "SET", "Replace attention in these query heads only: all, 0,3-5, or each",
     CLI_SET(CLI_TEXT, request.heads)},
    {"phase", 0, "PHASE", "both, prefill:M (all but the last M queries) or decode:M (only the last M)",
     CLI_SET(CLI_TEXT, request.phase)},
    {"mix", 0, "A,...", "o = o_exact + A (o_variant - o_exact), a run for each A (default 1)", CLI_READ},
    {"n", 'n', "N,...", "Positions of a window (default 1024)", CLI_READ},
    {"windows", 'w', "W", "Windows (default 16); intervals need 8", CLI_RANGE(request.windows, 1, INT32_MAX)},
    {"bos", 0, "ID|none",
     "Begin each window with this token; by default the model's, if its tokenizer encodes the text",
     CLI_SET(CLI_TEXT, request.ids.bos)},
    {"margin", 0, "D", "Largest loss that counts as no worse, nats a token (default 0.01)",
     CLI_SET(CLI_REAL, request.margin)},
    {"kl", 0, "K",
     "Divergence that all layers together may cost, for the error that each may have (default 0.01)",
     CLI_SET(CLI_REAL, request.kl_budget)},
    {"json", 0, NULL, "Print one JSON object per run, one per line", CLI_SET(CLI_FLAG, json)},
    {"seed", 0, "S", "Seed of the windows' places (default 0)", CLI_RANGE(request.seed, 0, INT64_MAX)},
    {"limit", 0, "S", "Time limit of a pass, seconds (default a day)", CLI_SET(CLI_REAL, request.limit)},
    {"output", 'o', "NAME.h5",
     "Add the runs to the journal NAME.jsonl, and make this file from it; runs that it has are not repeated",
     CLI_SET(CLI_TEXT, output)},
    {"keep-stale", 0, NULL,
     "Keep runs of that file that another build of the program, or another plug-in, made",
     CLI_SET(CLI_FLAG, request.keep_stale)},
    {"shard", 0, "I/N|auto",
     "Run every N-th run from run I (counted from 0); write NAME.I-of-N.jsonl, for attnlab merge", CLI_READ},
    {"threads", 0, "N", "OpenMP threads", CLI_SET(CLI_THREADS, threads)},
    {0}};

static void add(struct argp_state *state, const char *option, const char **list, int64_t *count,
                const char *text) {
  if (*count == LIST_MAX) argp_error(state, "%s '%s': at most %d", option, text, LIST_MAX);
  list[(*count)++] = text;
}

static void read_option(struct argp_state *state, void *input, const char *option, char *text) {
  arguments *a = input;
  quality_request *r = &a->request;
  if (strcmp(option, "--variant") == 0) {
    add(state, option, a->specs, &r->spec_count, text);
  } else if (strcmp(option, "--cache") == 0) {
    add(state, option, a->caches, &r->cache_count, text);
  } else if (strcmp(option, "--task") == 0) {
    add(state, option, a->tasks, &r->task_count, text);
  } else if (strcmp(option, "--shard") == 0) {
    if (shard_parse(text, getenv, &r->shard, &r->shards)) cli_fail(state);
  } else if (strcmp(option, "--mix") == 0) {
    r->mix_count = 0;
    for (char *item = text, *next; item; item = next) {
      if ((next = strchr(item, ','))) *next++ = '\0';
      if (r->mix_count == LIST_MAX) argp_error(state, "%s '%s': at most %d", option, item, LIST_MAX);
      const double mix = cli_real(state, option, item);
      if (!(fabs(mix) <= QUALITY_MIX))
        argp_error(state, "%s '%s': expected a number from -%g to %g", option, item, QUALITY_MIX,
                   QUALITY_MIX);
      a->mixes[r->mix_count++] = mix;
    }
  } else {
    r->n.count = 0;
    for (char *item = text, *next; item; item = next) {
      if ((next = strchr(item, ','))) *next++ = '\0';
      if (r->n.count == LIST_MAX) argp_error(state, "%s '%s': at most %d", option, item, LIST_MAX);
      a->n[r->n.count++] = cli_int(state, option, item, 2, INT32_MAX);
    }
  }
}

static void complete(struct argp_state *state, void *input) {
  const quality_request *r = &((const arguments *)input)->request;
  if (!r->ids.text == !r->ids.tokens) argp_error(state, "expected either --text FILE or --tokens FILE");
  if (r->spec_count + r->cache_count == 0) argp_error(state, "--variant SPEC is missing");
  if (r->shards > 1 && !((const arguments *)input)->output)
    argp_error(state, "--shard: -o NAME.h5 is missing");
  if (!(r->limit > 0)) argp_error(state, "--limit %g: expected seconds", r->limit);
  if (!(r->kl_budget > 0)) argp_error(state, "--kl %g: expected a positive number", r->kl_budget);
}

static const cli_command parser = {
    .usage = "MODEL",
    .options = options,
    .read = read_option,
    .complete = complete,
    .plugins = true,
    .doc =
        "Measures what approximations of its attention do to a model's next-token distribution.\v"
        "The model (a directory in Hugging Face's layout, or a GGUF file) runs exactly and with its "
        "attention replaced, "
        "on the same windows of a text. Each run gets one line: the share of causal pairs that was read; the "
        "change of the "
        "negative log-likelihood, nats a token; the Kullback-Leibler divergence from the exact "
        "distribution; how often "
        "the most likely token stays; how many scored tokens are the most likely, and in how many windows "
        "all "
        "are; the "
        "factor of the perplexity; the relative error of the attention itself; and whether the interval "
        "of the change "
        "lies below the margin (no_worse), above it (worse), or neither (open), after Holm's correction over "
        "all lines. Intervals are of 95 %, over windows.\n\n"
        "Each run is held against theorems about the two distributions and against what a forward pass "
        "must keep "
        "(EV-1 ... EV-10 of `attnlab list checks'), and each of its variants, on the queries, keys and "
        "values "
        "of the first layer that it replaces, against the checks of its kind; one that is violated is "
        "named, and the exit code is 1.\n\n"
        "Runs to read the others against come last: exact attention summed in another order (full), the "
        "mean of all "
        "values (null_mean_v), and windows as dense as the variants.\n\n"
        "  attnlab eval build/models/minimind2 --text LICENSE -v streaming:sink=4,window=128 -v topk:k=64 "
        "-o eval.h5\n"
        "  attnlab eval build/models/minimind2 --text LICENSE --task recall --layers each -v topk:k=16"};

int cmd_eval(int argc, char **argv) {
  arguments a = {.request = {.layers = "all",
                             .heads = "all",
                             .phase = "both",
                             .windows = 16,
                             .margin = 0.01,
                             .limit = 86400,
                             .kl_budget = 0.01,
                             .n = {1, NULL},
                             .mix_count = 1},
                 .n = {1024},
                 .mixes = {1}};
  quality_request *r = &a.request;
  quality_teller teller = {.command = argv[0], .out = stdout, .errors = stderr};
  cli_parse(&parser, argc, argv, &a);
  r->specs = a.specs;
  r->caches = a.caches;
  r->tasks = a.tasks;
  r->n.items = a.n;
  r->mixes = a.mixes;
  teller.json = a.json;
  if (r->task_count == 0) a.tasks[r->task_count++] = "text";
  if (a.threads) omp_set_num_threads(a.threads);
  attn_status status = ATTN_OK;
  char *output = NULL;
  if (a.output) status = sweep_path(a.output, r->shard, r->shards, "h5", &output);
  const char *const inputs[] = {r->ids.text, r->ids.tokens};
  const quality_session session = {.path = output,
                                   .inputs = inputs,
                                   .input_count = 2,
                                   .argc = argc,
                                   .argv = argv,
                                   .note = quality_tell_note,
                                   .to = &teller};
  quality_store store = {0};
  if (!status) status = quality_store_open(&session, &store);
  if (!status) status = quality_answer(r, &store, quality_tell, &teller);
  quality_store_close(&store);
  free(output);
  const int code = cli_report(argv[0], status);
  return cli_close_stdout(argv[0], code ? code : cli_verdict_code(teller.violated, teller.failed));
}
