/* advise.c - attnlab advise: the cheapest setting within an error on given tensors, or for the layers of a
 * model. */
#include "experiments/commands/commands.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/output.h"
#include "experiments/advice/caches.h"
#include "experiments/advice/tell.h"
#include "experiments/commands/cli.h"
#include "experiments/commands/operands.h"
#include "experiments/instruments/timing.h"
#include "experiments/quality/budgets/advise_layers.h"
#include "experiments/support/escape.h"
#include "experiments/support/status_line.h"

enum { SPECS_MAX = 64 };

typedef struct arguments {
  reading_options reading;
  const char *specs[SPECS_MAX];
  int count;
  double error, limit;
  int64_t draws, kv_bytes;
  bool causal, json, quiet;
  int threads;
  target_options target;
  quality_request model; /* ids.model: advise on a model instead */
  const char *output, *task, *assignment;
  int64_t n, budget;
} arguments;

static const cli_option options[] = {
    READING_OPTIONS(reading),
    {"error", 0, "E", "Target relative error, as 5% or 0.05 (default 10%)", CLI_READ},
    {"kv-bytes", 0, "BYTES",
     "Instead of --error: of the policies of caches SPEC (by default those of evict) and of the types of "
     "stores "
     "the least error whose keys and values take at most BYTES, as 64KiB",
     CLI_READ},
    {"causal", 0, NULL, "Query i sees key j iff j <= i + n_kv - n_q", CLI_SET(CLI_FLAG, causal)},
    {"limit", 0, "T", "Time limit of the search of a variant, seconds (default 20)",
     CLI_SET(CLI_REAL, limit)},
    {"draws", 0, "N", "Draws of a random variant (default 5)", CLI_RANGE(draws, 2, ADVICE_DRAWS)},
    {"json", 0, NULL, "Print a JSON object", CLI_SET(CLI_FLAG, json)},
    TARGET_OPTIONS(target),
    {"model", 0, "MODEL", "Instead of --in: the layers of this model, on windows of a text",
     CLI_SET(CLI_TEXT, model.ids.model)},
    {"text", 0, "FILE", "Text for the model, as for `attnlab eval'", CLI_SET(CLI_TEXT, model.ids.text)},
    {"tokens", 0, "FILE", "Or token ids", CLI_SET(CLI_TEXT, model.ids.tokens)},
    {"bos", 0, "ID|none", "Begin each window with this token, as for `attnlab eval'",
     CLI_SET(CLI_TEXT, model.ids.bos)},
    {"task", 0, "TASK", "Task, as for `attnlab eval' (default text)", CLI_SET(CLI_TEXT, task)},
    {"kl", 0, "K", "Divergence that all layers together may cost, nats a token (default 0.01)",
     CLI_SET(CLI_REAL, model.kl_budget)},
    {"budget", 0, "B",
     "Instead of --kl: share B keys a layer (k of topk, budget of pages, ...) among the layers so that KL is "
     "least",
     CLI_RANGE(budget, 1, INT32_MAX)},
    {"n", 'n', "N", "Positions of a window (default 512)", CLI_RANGE(n, 2, INT32_MAX)},
    {"windows", 'w', "W", "Windows (default 8)", CLI_RANGE(model.windows, 1, INT32_MAX)},
    {"seed", 0, "S", "Seed of the first draw, or of the windows' places (default 0)",
     CLI_RANGE(model.seed, 0, INT64_MAX)},
    {"output", 'o', "NAME.h5",
     "Add the runs to this evaluation and its journal NAME.jsonl, as `attnlab eval' does",
     CLI_SET(CLI_TEXT, output)},
    {"assignment", 0, "FILE",
     "Write the settings of the layers there, for `attnlab eval -v @FILE' and attnlab.torch",
     CLI_SET(CLI_TEXT, assignment)},
    {"quiet", 'q', NULL, "No progress on stderr", CLI_SET(CLI_FLAG, quiet)},
    {"threads", 0, "N", "OpenMP threads", CLI_SET(CLI_THREADS, threads)},
    {NULL, 0, NULL, "variant", CLI_READ},
    {0}};

static void read_other(struct argp_state *state, void *input, const char *option, char *text) {
  arguments *a = input;
  if (option && strcmp(option, "--error") == 0) {
    a->error = cli_share(state, option, text);
    if (!(a->error > 0 && a->error < 1))
      argp_error(state, "%s '%s': expected a share between 0 and 1", option, text);
    return;
  }
  if (option && strcmp(option, "--kv-bytes") == 0) {
    const size_t length = strlen(text);
    if (length > 1 && text[length - 1] == 'B') text[length - 1] = '\0';
    a->kv_bytes = cli_int(state, option, text, 1, INT64_C(1) << 53);
    return;
  }
  if (reading_option(state, &a->reading, option, text)) return;
  if (a->count == SPECS_MAX) argp_error(state, "'%s': at most %d variants", text, SPECS_MAX);
  a->specs[a->count++] = text;
}

static const char *const of_tensors[] = {"names",  "extra", "layout", "dtype", "error",   "kv-bytes",
                                         "causal", "limit", "draws",  "json",  "softcap", "leaky",
                                         "alibi",  "t5",    "bias",   "sink",  "mask",    NULL};
static const char *const of_models[] = {"text", "tokens",  "bos",    "task",       "kl", "budget",
                                        "n",    "windows", "output", "assignment", NULL};

static void complete(struct argp_state *state, void *input) {
  const arguments *a = input;
  const data_reading *f = &a->reading.from;
  if (!(a->limit >= 0)) argp_error(state, "--limit %g: expected seconds", a->limit);
  if (!a->model.ids.model == !(f->in || f->q))
    argp_error(state, "expected either --in FILE (or --q, --k and --v) or --model MODEL");
  const char *other = cli_given(state, a->model.ids.model ? of_tensors : of_models);
  if (other && a->model.ids.model) argp_error(state, "--%s is for tensors (--in), not for --model", other);
  if (other) argp_error(state, "--%s is for --model, not for tensors", other);
  if (!a->model.ids.model) {
    reading_complete(state, &a->reading, true);
    return;
  }
  if (a->budget && cli_given(state, (const char *const[]){"kl", NULL}))
    argp_error(state, "--budget B stands in place of --kl K");
  if (!a->model.ids.text == !a->model.ids.tokens)
    argp_error(state, "--model: expected either --text FILE or --tokens FILE");
  if (!(a->model.kl_budget > 0)) argp_error(state, "--kl %g: expected a positive number", a->model.kl_budget);
}

static const cli_command parser = {
    .usage = "[SPEC...]",
    .options = options,
    .read = read_other,
    .complete = complete,
    .plugins = true,
    .doc =
        "Finds the cheapest setting of any variant within an error on these tensors, by measuring.\v"
        "For each SPEC, or every variant, the smallest budget (keys, random features, projected rows) is "
        "found "
        "whose relative Frobenius error over all heads is within --error. What is found is timed in "
        "turns with exact attention; a SPEC that sets its budget is measured unchanged. The output is a "
        "sentence, a command to paste, and a line for each variant: error, keys read, time, memory, and "
        "whether "
        "the error is certain (nothing is drawn: every row was compared with exact attention) or estimated "
        "from "
        "several draws.\n\n"
        "With --kv-bytes, each policy holds as many keys as fit, in each of several types, and the settings "
        "are "
        "listed by their error.\n\n"
        "With --model, the cheapest method is chosen for each layer among the SPECs (by default windows with "
        "sinks, pages and the keys of largest score, of n/16, n/8, n/4 and n/2 keys), so that all layers "
        "together cost the divergence --kl from the exact model, as each layer's error and sensitivity "
        "predict; "
        "then the model is run so, and the prediction judged. With --budget, every SPEC is run in each "
        "layer, and "
        "layers have those whose divergences add up to the least sum, with B keys on average.\n\n"
        "  attnlab advise --model build/models/minimind2 --text LICENSE --kl 0.01\n"
        "  attnlab advise --in qkv.h5 --error 5%\n"
        "  attnlab advise longformer:global=4 performer:kernel=trig --in qkv.npz --layout bnhd --causal"};

/* -- tensors -- */

enum { PERIOD = 5 }; /* seconds between lines where there is no terminal */

typedef struct progress_line {
  status_line line;
  bool quiet;
  double start, told;
} progress_line;

/* The pace of the first variants says little of the others. */
#define PACE 0.1

static void show(void *to, double done, const char *text) {
  progress_line *p = to;
  const double now = timing_now(), spent = now - p->start;
  char whole[512], left[48] = "";
  if (p->quiet) return;
  if (done >= PACE) snprintf(left, sizeof left, ", about %.0f s left", spent * (1 - done) / done);
  snprintf(whole, sizeof whole, "advise, %.0f s%s: %s", spent, left, text);
  status_line_draw(&p->line, whole);
  if (p->line.on || now - p->told < PERIOD) return;
  fprintf(stderr, "%s\n", status_line_printable(whole));
  p->told = now;
}

/* What `attnlab apply` takes after the spec for these tensors, to be freed. */
static char *operands_text(const arguments *a) {
  const data_reading *f = &a->reading.from;
  const target_options *t = &a->target;
  const struct {
    const char *name, *value;
  } parts[] = {{"in", f->in},
               {"q", f->q},
               {"k", f->k},
               {"v", f->v},
               {"names", f->names},
               {"layout", f->layout == DATA_BNHD ? data_layout_names[DATA_BNHD] : NULL},
               {"dtype", f->bf16                 ? "bf16"
                         : !a->reading.has_dtype ? NULL
                                                 : attn_numbers[a->reading.dtype].name},
               {"softcap", t->softcap},
               {"leaky", t->leaky},
               {"t5", t->t5},
               {"bias", t->bias},
               {"sink", t->sink},
               {"mask", t->mask}};
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  if (!out) return NULL;
  cli_put_plugins(out);
  fprintf(out, "%s%s", a->causal ? " --causal" : "", t->alibi ? " --alibi" : "");
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (!parts[i].value) continue;
    fprintf(out, " --%s ", parts[i].name);
    escape_put_word(out, parts[i].value);
  }
  for (int x = 0; x < ATTN_EXTRA_KINDS; x++) {
    if (!f->extra[x]) continue;
    fprintf(out, " --extra %s=", attn_extra_kinds[x].name);
    escape_put_word(out, f->extra[x]);
  }
  fputs(" -o out.npy", out);
  attn_stream_text(out, &text);
  return text;
}

static attn_status tell(const arguments *a, const advice_request *r, const advice *found) {
  char *text = operands_text(a);
  json_t *all = a->json ? advice_json(r, found) : NULL;
  attn_status status =
      text && (all || !a->json) ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for the advice");
  if (!status && a->json) status = cli_print_json(all);
  if (!status && !a->json) status = advice_print(stdout, r, found, text);
  json_decref(all);
  free(text);
  return status;
}

static attn_status advise(const arguments *a) {
  data_qkv qkv = {0};
  data_target *target = NULL;
  attn_problem problem;
  advice found = {.best = -1};
  advice_caches caches = {.count = 0};
  progress_line progress = {.quiet = a->quiet, .start = timing_now(), .told = timing_now()};
  attn_status status = reading_read(&a->reading, &qkv);
  if (status) return status;
  problem = data_qkv_problem(&qkv);
  problem.causal = a->causal;
  advice_request r = {.input = &qkv,
                      .problem = &problem,
                      .specs = a->specs,
                      .count = a->count,
                      .error = a->error,
                      .kv_bytes = a->kv_bytes,
                      .limit = a->limit,
                      .draws = (int)a->draws,
                      .seed = a->model.seed,
                      .threads = a->threads,
                      .progress = show,
                      .to = &progress};
  status = data_qkv_check_finite(&qkv);
  if (!status) status = target_make(&a->target, &problem, &target);
  if (!status && a->kv_bytes) {
    status = advice_caches_make(&problem, a->kv_bytes, a->specs, a->count, &caches);
    r.specs = (const char *const *)caches.spec;
    r.count = caches.count;
  }
  if (!status) {
    reading_tell("attnlab advise", &qkv);
    if (!a->quiet) status_line_open(&progress.line);
    status = advice_make(&r, &found);
    status_line_close(&progress.line);
  }
  if (!status) status = tell(a, &r, &found);
  advice_free(&found);
  advice_caches_free(&caches);
  data_target_free(target);
  data_qkv_free(&qkv);
  return status;
}

/* -- a model -- */

static void print_note(void *to, const char *line) {
  (void)to;
  escape_put(stdout, line);
  putchar('\n');
}

/* Settings to choose from where none were given: [count], to be freed. */
static attn_status make_presets(int64_t n, char **specs, int *count) {
  static const char *const methods[] = {"streaming:sink=4,window=%lld", "pages:budget=%lld", "topk:k=%lld"};
  for (size_t m = 0; m < sizeof methods / sizeof *methods; m++)
    for (int64_t part = 16; part >= 2; part /= 2) {
      const long long keys = n / part > 8 ? n / part : 8;
      specs[*count] = m == 0   ? text_format(methods[0], keys)
                      : m == 1 ? text_format(methods[1], keys)
                               : text_format(methods[2], keys);
      if (!specs[*count]) return ATTN_ENOMEM;
      ++*count;
    }
  return ATTN_OK;
}

/* A line that ends with the layers of a setting. */
static bool is_assignment(const char *path, const file_map *content) {
  const char *text = (const char *)content->at;
  size_t end = content->bytes - (text[content->bytes - 1] == '\n'), at = end;
  (void)path;
  while (at > 0 && text[at - 1] && strchr("0123456789,-", text[at - 1])) at--;
  return at > 0 && at < end && text[at - 1] == '@';
}
static const output_kind kind_assignment = {"an assignment of settings to layers", is_assignment};

static attn_status write_assignment(const char *path, const char *spec) {
  if (!spec) return attn_fail(ATTN_EUNSUPPORTED, "%s is not written: every layer stays exact", path);
  return output_write(path, &kind_assignment, (const file_part[]){{spec, strlen(spec)}, {"\n", 1}}, 2);
}

static attn_status prepare_model(arguments *a, int argc, char **argv) {
  quality_request *r = &a->model;
  char *presets[SPECS_MAX];
  int made = 0;
  char task[40];
  const char *const asked = task;
  snprintf(task, sizeof task, "text:skip=%lld", (long long)(a->n < 512 ? a->n / 4 : 128));
  r->tasks = a->task ? &a->task : &asked;
  r->task_count = 1;
  attn_status status = a->count == 0 ? make_presets(a->n, presets, &made) : ATTN_OK;
  r->specs = made ? (const char *const *)presets : a->specs;
  r->spec_count = made ? made : a->count;
  r->n = (attn_int_list){1, &a->n};
  if (a->threads) omp_set_num_threads(a->threads);
  const char *const inputs[] = {r->ids.text, r->ids.tokens};
  const quality_session session = {
      .path = a->output, .inputs = inputs, .input_count = 2, .argc = argc, .argv = argv, .note = print_note};
  quality_store store = {0};
  if (!status) status = quality_store_open(&session, &store);
  char *best = NULL;
  if (!status && a->assignment) status = output_check(a->assignment, &kind_assignment, inputs, 2);
  if (!status) status = quality_advise(r, &store, a->budget, stdout, &best);
  if (!status && a->assignment) status = write_assignment(a->assignment, best);
  free(best);
  quality_store_close(&store);
  for (int i = 0; i < made; i++) free(presets[i]);
  return status;
}

int cmd_advise(int argc, char **argv) {
  arguments a = {.error = 0.1,
                 .limit = 20,
                 .draws = 5,
                 .n = 512,
                 .model = {.windows = 8, .kl_budget = 0.01, .margin = 0.01, .limit = 86400}};
  cli_parse(&parser, argc, argv, &a);
  const int code = cli_report(argv[0], a.model.ids.model ? prepare_model(&a, argc, argv) : advise(&a));
  return cli_close_stdout(argv[0], code);
}
