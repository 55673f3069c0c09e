/* eval.c - attnlab eval: what approximations of its attention do to a model. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/commands/commands.h"

#include <errno.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/commands/cli.h"
#include "experiments/quality/run.h"
#include "experiments/quality/tasks.h"
#include "experiments/results/row.h"
#include "experiments/support/spec.h"
#include "experiments/support/table.h"

enum { SPECS_MAX = 64 };

typedef struct arguments {
  data_ids_request ids;
  const char *specs[SPECS_MAX];
  int count;
  const char *layers, *heads, *phase;
  const char *task;
  int64_t n, windows, seed;
  double mix, margin, limit;
  int threads;
  const char *output;
} arguments;

static const cli_option options[] = {
    {NULL, 0, NULL, "model directory", CLI_TEXT, offsetof(arguments, ids.model), 0, 0, "MODEL_DIR"},
    {"tokens", 0, "FILE", "Token ids: an int32 or int64 .npy of any rank, flattened in C order", CLI_TEXT,
     offsetof(arguments, ids.tokens), 0, 0, NULL},
    {"text", 0, "FILE", "A text, encoded by the model's tokenizer, or as bytes if those are its vocabulary",
     CLI_TEXT, offsetof(arguments, ids.text), 0, 0, NULL},
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
    {"bos", 0, "ID|none",
     "Begin each window with this token; by default the model's, if its tokenizer encodes the text", CLI_TEXT,
     offsetof(arguments, ids.bos), 0, 0, NULL},
    {"task", 0, "TASK", "text:skip=128 (the default) or copy:length=64,alphabet=64", CLI_TEXT,
     offsetof(arguments, task), 0, 0, NULL},
    {"margin", 0, "D", "What counts as no worse, nats a token (0.01)", CLI_REAL, offsetof(arguments, margin),
     0, 0, NULL},
    {"seed", 0, "S", "Of the windows' places (0)", CLI_INT, offsetof(arguments, seed), 0, INT64_MAX, NULL},
    {"limit", 0, "S", "Seconds that a pass may take (a day)", CLI_REAL, offsetof(arguments, limit), 0, 0,
     NULL},
    {"output", 'o', "FILE", "Add the runs to this file, .h5; those that it has are not repeated", CLI_TEXT,
     offsetof(arguments, output), 0, 0, NULL},
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
  if (!a->ids.text == !a->ids.tokens) argp_error(state, "one of --text FILE and --tokens FILE is expected");
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
        "  attnlab eval build/models/minimind2 --text README.md -v streaming:sink=4,window=128 -v "
        "topk:k=64"};

static void add_interval(text_table *t, double at, double lo, double hi, const char *format) {
  char text[3][32];
  const double v[] = {at, lo, hi};
  for (int i = 0; i < 3; i++) snprintf(text[i], sizeof text[i], format, v[i]);
  table_add(t, "%s", text[0]);
  table_add(t, lo <= hi ? "%s .. %s" : "-", text[1], text[2]);
}

static void add_row(text_table *t, const quality_record *r) {
  char error[SHORT_TEXT], *spec = NULL;
  if (spec_short(r->spec, &spec)) t->failed = true;
  table_add(t, "%s", spec ? spec : "");
  free(spec);
  table_add(t, "%s", r->layers);
  table_add(t, "%s", r->heads);
  table_add(t, r->density <= 1 ? "%.2f" : "-", 100 * r->density);
  add_interval(t, r->dnll, r->dnll_lo, r->dnll_hi, "%+.4f");
  add_interval(t, r->kl, r->kl_lo, r->kl_hi, "%.4g");
  table_add(t, "%.2f", 100 * r->top1);
  table_add(t, "%.1f", 100 * r->right);
  table_add(t, "%.3f", 100 * r->dp_rms);
  table_add(t, "%.4g", r->ppl_ratio);
  table_add(t, "%s", short_number(r->attention_error, error));
  table_add(t, "%s", quality_words[r->word]);
}

/* The runs of this command, in its order. */
static attn_status print(const quality_job *j, const quality_set *set, int64_t *failed) {
  static const char *const header[] = {"variant", "layers",  "heads",   "read %", "dNLL",  "95 %",  "KL",
                                       "95 %",    "top-1 %", "right %", "dp %",   "PPL x", "error", ""};
  text_table table = {.columns = sizeof header / sizeof *header, .left = 3};
  const quality_record *first = NULL;
  attn_status status = ATTN_OK;
  for (size_t i = 0; i < table.columns; i++) table_add(&table, "%s", header[i]);
  for (int64_t s = 0; !status && s < j->swaps->count; s++) {
    quality_record asked;
    status = quality_describe(j, s, &asked);
    if (status) break;
    const quality_record *r = quality_set_find(set, asked.key);
    quality_record_free(&asked);
    if (r->status == RUN_OK) {
      first = first ? first : r;
      add_row(&table, r);
    } else {
      ++*failed;
      fprintf(stderr, "attnlab eval: %s: %s\n", r->spec, r->message);
    }
  }
  if (!status && first) {
    printf("%s, %s, %lld windows of %lld\nexact: %.4f nats a token, perplexity %.4g, %.1f %% of tokens "
           "right\n\n",
           first->model, first->task, (long long)first->windows, (long long)first->n, first->nll_exact,
           exp(first->nll_exact), 100 * first->right_exact);
    status = table_print(stdout, &table, TABLE_TEXT);
  }
  table_free(&table);
  return status;
}

/* Evaluates into the file at path. */
static attn_status evaluate(const arguments *a, const char *path, int64_t *failed) {
  data_llama *m = NULL;
  quality_windows windows = {0};
  quality_set set = {0};
  swap_list runs = {0};
  data_ids text = {.id = NULL};
  char model_hex[65], *task = NULL;
  attn_status status = data_llama_open(a->ids.model, &m);
  if (status) return status;
  const data_llama_config *c = data_llama_get_config(m);
  status = swap_list_make(&(swap_request){a->specs, a->count, a->layers, a->heads, a->phase, a->mix, a->n}, c,
                          &runs);
  if (!status) status = data_ids_read(&a->ids, c, &text);
  if (!status) status = quality_windows_make(a->windows, a->n, &windows);
  if (!status)
    status = task_fill(a->task, &(task_input){text.id, text.count, c->vocab, text.bos, (uint64_t)a->seed},
                       &windows, &task);
  if (!status) status = data_llama_check(m, windows.tokens, windows.count, windows.n);
  if (!status) {
    data_llama_sha256(m, model_hex);
    const quality_record about = {.model = (char *)a->ids.model,
                                  .model_sha256 = model_hex,
                                  .data = (char *)(a->ids.tokens ? a->ids.tokens : a->ids.text),
                                  .data_sha256 = text.sha256,
                                  .task = task,
                                  .bos = text.bos,
                                  .seed = a->seed,
                                  .margin = a->margin};
    const quality_job job = {
        .model = m, .windows = &windows, .swaps = &runs, .about = &about, .path = path, .limit = a->limit};
    status = quality_run(&job, &set);
    if (!status) status = print(&job, &set, failed);
  }
  free(text.id);
  free(task);
  quality_set_free(&set);
  quality_windows_free(&windows);
  swap_list_free(&runs);
  data_llama_close(m);
  return status;
}

/* Without -o the file lives as long as the command. */
static attn_status evaluate_unnamed(const arguments *a, int64_t *failed) {
  const char *parent = getenv("TMPDIR");
  char *directory = text_format("%s/attnlab-eval.XXXXXX", parent && *parent ? parent : "/tmp"), *path = NULL;
  attn_status status = ATTN_ENOMEM;
  if (!directory) return status;
  if (!mkdtemp(directory)) {
    status = attn_fail(ATTN_EFOREIGN, "%s: %s", directory, strerror(errno));
  } else {
    if ((path = text_format("%s/eval.h5", directory))) status = evaluate(a, path, failed);
    if (path) unlink(path);
    rmdir(directory);
  }
  free(path);
  free(directory);
  return status;
}

int cmd_eval(int argc, char **argv) {
  arguments a = {.layers = "all",
                 .heads = "all",
                 .phase = "both",
                 .task = "text",
                 .n = 1024,
                 .windows = 16,
                 .mix = 1,
                 .margin = 0.01,
                 .limit = 86400};
  int64_t failed = 0;
  cli_parse(&parser, argc, argv, &a);
  if (a.threads) omp_set_num_threads(a.threads);
  attn_status status = ATTN_OK;
  if (a.output)
    status = output_check(a.output, &kind_evaluation, (const char *const[]){a.ids.text, a.ids.tokens}, 2);
  if (!status) status = a.output ? evaluate(&a, a.output, &failed) : evaluate_unnamed(&a, &failed);
  const int code = cli_report(argv[0], status);
  return cli_close_stdout(argv[0], code ? code : failed ? EXIT_RUNS : 0);
}
