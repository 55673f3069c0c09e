/* eval.c - attnlab eval: what approximations of its attention do to a model. */
#include "experiments/commands/commands.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/support/file.h"
#include "experiments/commands/cli.h"
#include "experiments/quality/summary.h"
#include "experiments/quality/swaps.h"
#include "experiments/quality/tasks.h"
#include "experiments/support/table.h"

enum { SPECS_MAX = 64, BYTES = 256 };

typedef struct arguments {
  const char *model, *text, *tokens;
  const char *specs[SPECS_MAX];
  int count;
  const char *layers, *heads, *phase;
  const char *task;
  int64_t n, windows, bos, seed;
  double mix, margin;
  int threads;
} arguments;

static const cli_option options[] = {
    {NULL, 0, NULL, "model directory", CLI_TEXT, offsetof(arguments, model), 0, 0, "MODEL_DIR"},
    {"tokens", 0, "FILE", "Token ids, an int64 .npy", CLI_TEXT, offsetof(arguments, tokens), 0, 0, NULL},
    {"text", 0, "FILE", "The bytes of this file (models whose vocabulary is the 256 bytes)", CLI_TEXT,
     offsetof(arguments, text), 0, 0, NULL},
    {"variant", 'v', "SPEC", "Replace attention by this variant (may be repeated)", CLI_OTHER, 0, 0, 0, NULL},
    {"layers", 0, "SET", "In these layers: all, 0,3-5, or each: a run for each layer", CLI_TEXT,
     offsetof(arguments, layers), 0, 0, NULL},
    {"heads", 0, "SET", "In these query heads, likewise", CLI_TEXT, offsetof(arguments, heads), 0, 0, NULL},
    {"phase", 0, "PHASE", "both, prefill:M (the last M queries are exact) or decode:M (only they are not)",
     CLI_TEXT, offsetof(arguments, phase), 0, 0, NULL},
    {"mix", 0, "A", "o = o_exact + A (o_variant - o_exact); 1", CLI_REAL, offsetof(arguments, mix), 0, 0,
     NULL},
    {"n", 'n', "N", "Positions of a window (1024)", CLI_INT, offsetof(arguments, n), 2, INT32_MAX, NULL},
    {"windows", 'w', "W", "Windows (16); intervals need 8", CLI_INT, offsetof(arguments, windows), 1,
     INT32_MAX, NULL},
    {"bos", 0, "ID", "Begin each window with this token", CLI_INT, offsetof(arguments, bos), 0, INT32_MAX,
     NULL},
    {"task", 0, "TASK", "text:skip=128 (the default) or copy:length=64,alphabet=64", CLI_TEXT,
     offsetof(arguments, task), 0, 0, NULL},
    {"margin", 0, "D", "What counts as no worse, nats a token (0.01)", CLI_REAL, offsetof(arguments, margin),
     0, 0, NULL},
    {"seed", 0, "S", "Of the windows' places (0)", CLI_INT, offsetof(arguments, seed), 0, INT64_MAX, NULL},
    {"threads", 0, "N", "OpenMP threads", CLI_THREADS, offsetof(arguments, threads), 0, 0, NULL},
    {0}};

static void read_spec(struct argp_state *state, void *input, const char *option, char *text) {
  arguments *a = input;
  (void)option;
  if (a->count == SPECS_MAX) argp_error(state, "'%s': at most %d variants", text, SPECS_MAX);
  a->specs[a->count++] = text;
}

static void complete(struct argp_state *state, void *input) {
  const arguments *a = input;
  if (!a->text == !a->tokens) argp_error(state, "one of --text FILE and --tokens FILE is expected");
  if (a->count == 0) argp_error(state, "--variant SPEC is expected");
}

static const cli_command parser = {
    .usage = "MODEL_DIR",
    .options = options,
    .read = read_spec,
    .complete = complete,
    .plugins = true,
    .doc =
        "What approximations of its attention do to a model's next-token distribution.\v"
        "The model runs exactly and with its attention replaced, on the same windows of a text. Of each run "
        "a line: "
        "the share of causal pairs that were read; the change of the negative log-likelihood, nats a token; "
        "the "
        "Kullback-Leibler divergence from the exact distribution; how often the likeliest token stays; the "
        "root mean square change of the true token's probability. Intervals are of 95 %, over windows.\n\n"
        "  attnlab eval build/models/minimind2 --tokens ids.npy --bos 1 -v streaming:sink=4,window=128 -v "
        "topk:k=64"};

static void add_interval(text_table *t, interval x, const char *format) {
  char text[3][32];
  const double v[] = {x.at, x.lo, x.hi};
  for (int i = 0; i < 3; i++) snprintf(text[i], sizeof text[i], format, v[i]);
  table_add(t, "%s", text[0]);
  table_add(t, x.lo <= x.hi ? "%s .. %s" : "-", text[1], text[2]);
}

static attn_status print(const swap_list *runs, const quality_data *d, double margin) {
  static const char *const header[] = {"variant", "layers",  "heads",   "read %", "dNLL",  "95 %",  "KL",
                                       "95 %",    "top-1 %", "right %", "dp %",   "PPL x", "error", ""};
  text_table table = {.columns = sizeof header / sizeof *header, .left = 3};
  attn_status status = ATTN_OK;
  for (size_t i = 0; i < table.columns; i++) table_add(&table, "%s", header[i]);
  for (int64_t s = 0; !status && s < runs->count; s++) {
    quality_row r;
    char error[SHORT_TEXT];
    status = quality_summarise(d, s, margin, &r);
    if (status) break;
    table_add(&table, "%s", runs->runs[s].spec);
    table_add(&table, "%s", runs->runs[s].layers);
    table_add(&table, "%s", runs->runs[s].heads);
    table_add(&table, r.density <= 1 ? "%.2f" : "-", 100 * r.density);
    add_interval(&table, r.dnll, "%+.4f");
    add_interval(&table, r.kl, "%.4g");
    table_add(&table, "%.2f", 100 * r.top1.at);
    table_add(&table, "%.1f", 100 * r.right.at);
    table_add(&table, "%.3f", 100 * r.dp_rms);
    table_add(&table, "%.4g", r.ppl_ratio.at);
    table_add(&table, "%s", short_number(r.error, error));
    table_add(&table, "%s", quality_words[r.word]);
  }
  if (!status) {
    quality_exact e;
    status = quality_summarise_exact(d, &e);
    if (!status)
      printf("exact: %.4f nats a token, perplexity %.4g, %.1f %% right, over %lld windows of %lld scored "
             "positions\n\n",
             e.nll.at, exp(e.nll.at), 100 * e.right.at, (long long)d->windows, (long long)d->positions);
    if (!status) status = table_print(stdout, &table, TABLE_TEXT);
  }
  table_free(&table);
  return status;
}

static attn_status read_text(const arguments *a, const data_llama_config *c, int64_t **out, int64_t *count) {
  file_map map = {0};
  if (a->tokens) return data_npy_read_i64(a->tokens, out, count);
  if (c->vocab != BYTES)
    return attn_fail(ATTN_EUNSUPPORTED, "%s: a vocabulary of %lld tokens: a text needs token ids (--tokens)",
                     a->model, (long long)c->vocab);
  attn_status status = file_map_open(a->text, &map);
  if (status) return status;
  if ((*out = malloc(map.bytes * sizeof **out)))
    for (size_t i = 0; i < map.bytes; i++) (*out)[i] = map.at[i];
  else
    status = attn_fail(ATTN_ENOMEM, "%s: no memory", a->text);
  *count = (int64_t)map.bytes;
  file_map_close(&map);
  return status;
}

static attn_status evaluate(const arguments *a) {
  data_llama *m = NULL;
  quality_windows windows = {0};
  quality_data data = {0};
  swap_list runs = {0};
  data_llama_swap swaps[1024];
  int64_t *text = NULL, length = 0;
  char *task = NULL;
  attn_status status = data_llama_open(a->model, &m);
  if (status) return status;
  const data_llama_config *c = data_llama_get_config(m);
  status =
      swap_list_make(&(swap_request){a->specs, a->count, a->layers, a->heads, a->phase, a->mix}, c, &runs);
  if (!status) status = read_text(a, c, &text, &length);
  if (!status) status = quality_windows_make(a->windows, a->n, &windows);
  if (!status)
    status =
        task_fill(a->task, &(task_input){text, length, c->vocab, a->bos, (uint64_t)a->seed}, &windows, &task);
  for (int64_t i = 0; !status && i < runs.count && i < 1024; i++) swaps[i] = runs.runs[i].swap;
  if (!status) status = quality_evaluate(m, &windows, swaps, runs.count, &data);
  if (!status) status = print(&runs, &data, a->margin);
  free(text);
  free(task);
  quality_data_free(&data);
  quality_windows_free(&windows);
  swap_list_free(&runs);
  data_llama_close(m);
  return status;
}

int cmd_eval(int argc, char **argv) {
  arguments a = {.layers = "all",
                 .heads = "all",
                 .phase = "both",
                 .n = 1024,
                 .windows = 16,
                 .bos = -1,
                 .task = "text",
                 .mix = 1,
                 .margin = 0.01};
  cli_parse(&parser, argc, argv, &a);
  return cli_close_stdout(argv[0], cli_report(argv[0], evaluate(&a)));
}
