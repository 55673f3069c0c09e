/* request.c - evaluations over tasks and lengths, with their baselines (request.h). */
#include "experiments/quality/request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/support/file.h"
#include "data/support/sha256.h"
#include "experiments/quality/tasks/tasks.h"
#include "experiments/results/row.h"

enum { BYTES = 256, WINDOWS_MAX = 64 };

typedef struct answer {
  const quality_request *r;
  const quality_store *store;
  data_llama *model;
  data_tokenizer *tokenizer; /* NULL: tokens are bytes, or the model has none */
  data_ids text;
  char model_sha256[65], config_sha256[65];
  attn_options machine; /* as plans have it */
  spec_files *files;
  int64_t question; /* number of the task and length */
  quality_done *done;
  void *to;
} answer;

/* -- runs -- */

typedef enum { ASKED, NULLS, WINDOWS } kind_of_runs;

/* The rows of a job's swaps, appended. */
static attn_status collect(const quality_job *j, const quality_set *set, const quality_record **rows,
                           size_t *count) {
  for (int64_t s = 0; s < j->swaps->count; s++) {
    quality_record asked;
    attn_status status = quality_describe(j, s, &asked);
    if (status) return status;
    rows[*count] = quality_set_find(set, asked.key);
    if (!rows[*count]) status = attn_fail(ATTN_EFOREIGN, "a run that was written is gone: %.300s", asked.key);
    quality_record_free(&asked);
    if (status) return status;
    ++*count;
  }
  return ATTN_OK;
}

/* Keys of a window whose share of n (n + 1) / 2 pairs is nearest: w n - w (w - 1) / 2 of them. */
static int64_t window_of(double density, int64_t n) {
  const double pairs = density * (double)n * ((double)n + 1) / 2, b = (double)n + 0.5,
               w = b - sqrt(fmax(0, b * b - 2 * pairs));
  return w < 1 ? 1 : (int64_t)(w + 0.5);
}

/* specs: of the kind; those of ASKED are the request's. */
static attn_status list_swaps(const answer *a, const quality_windows *w, const char *const *specs,
                              int64_t count, kind_of_runs kind, swap_list *out) {
  const quality_request *r = a->r;
  static const double one = 1;
  const swap_request asked = {.specs = kind == ASKED ? r->specs : specs,
                              .count = kind == ASKED ? r->spec_count : count,
                              .caches = r->caches,
                              .cache_count = kind == ASKED ? r->cache_count : 0,
                              .prompt = quality_windows_prompt(w),
                              .layers = r->layers,
                              .heads = r->heads,
                              .phase = r->phase,
                              .mixes = kind != ASKED ? &one : r->mixes,
                              .mix_count = kind != ASKED ? 1 : r->mix_count,
                              .n = w->n};
  return swap_list_make(&asked, data_llama_get_config(a->model), out);
}

static attn_status run_specs(const answer *a, quality_job *j, const char *const *specs, int64_t count,
                             kind_of_runs kind, swap_list *list) {
  const quality_request *r = a->r;
  attn_status status = list_swaps(a, j->windows, specs, count, kind, list);
  if (!status && r->shards > 1 && kind != WINDOWS) swap_list_share(list, r->shard - a->question, r->shards);
  j->swaps = list;
  return status ? status : quality_run(j);
}

/* Windows as dense as the runs: specs to be freed. */
static attn_status windows_like(const quality_job *j, const quality_set *set, char **specs, int64_t *count) {
  size_t found = 0;
  const quality_record **rows = calloc((size_t)j->swaps->count + 1, sizeof *rows);
  attn_status status = rows ? collect(j, set, rows, &found)
                            : attn_fail(ATTN_ENOMEM, "no memory for the runs of an evaluation");
  for (size_t i = 0; !status && i < found && *count < WINDOWS_MAX; i++) {
    if (rows[i]->status != RUN_OK || !(rows[i]->density < 0.99)) continue;
    char *spec =
        text_format("streaming:sink=0,window=%lld", (long long)window_of(rows[i]->density, j->windows->n));
    bool known = false;
    for (int64_t k = 0; spec && k < *count; k++) known = known || strcmp(specs[k], spec) == 0;
    if (spec && !known)
      specs[(*count)++] = spec;
    else
      free(spec);
    if (!spec) status = ATTN_ENOMEM;
  }
  free(rows);
  return status;
}

static attn_status run_baselines(const answer *a, quality_job *j, swap_list lists[2]) {
  static const char *const nulls[] = {"full", SWAP_MEAN};
  char *windows[WINDOWS_MAX] = {NULL};
  int64_t dense = 0;
  quality_set set;
  attn_status status = quality_store_set(j->store, &set);
  if (status) return status;
  status = windows_like(j, &set, windows, &dense);
  result_set_free(&set);
  if (!status) status = run_specs(a, j, nulls, 2, NULLS, &lists[0]);
  if (!status) status = run_specs(a, j, (const char *const *)windows, dense, WINDOWS, &lists[1]);
  for (int64_t i = 0; i < dense; i++) free(windows[i]);
  return status;
}

static attn_status tell(const answer *a, quality_job *j, const swap_list lists[3]) {
  quality_set set;
  size_t count = 0;
  attn_status status = quality_store_set(j->store, &set);
  if (status) return status;
  const quality_record **rows =
      calloc((size_t)(lists[0].count + lists[1].count + lists[2].count) + 1, sizeof *rows);
  if (!rows) status = attn_fail(ATTN_ENOMEM, "no memory for the runs of an evaluation");
  for (int i = 0; !status && i < 3; i++) {
    j->swaps = &lists[i];
    status = collect(j, &set, rows, &count);
  }
  if (!status) status = a->done(a->to, &set, rows, count);
  free(rows);
  result_set_free(&set);
  return status;
}

static attn_status run_all(const answer *a, quality_job *j) {
  swap_list lists[3] = {{0}, {0}, {0}};
  attn_status status = run_specs(a, j, NULL, 0, ASKED, &lists[0]);
  if (!status && !a->r->bare) status = run_baselines(a, j, &lists[1]);
  if (!status) status = tell(a, j, lists);
  for (int i = 0; i < 3; i++) swap_list_free(&lists[i]);
  return status;
}

/* The windows of a task, and its spec with all parameters. */
static attn_status prepare(const answer *a, const char *spec, int64_t n, bool run, quality_windows *windows,
                           char **asked) {
  const task_input in = {.text = a->text.id,
                         .length = a->text.count,
                         .vocab = data_llama_get_config(a->model)->vocab,
                         .bos = a->text.bos,
                         .seed = (uint64_t)a->r->seed,
                         .tokenizer = a->tokenizer,
                         .model = run ? a->model : NULL};
  *asked = NULL;
  attn_status status = quality_windows_make(a->r->windows, n, windows);
  if (!status) status = task_fill(spec, &in, windows, asked);
  return status ? status : data_llama_check(a->model, windows->tokens, windows->count, n);
}

/* Of all that a pass is given: the windows, and what of them is scored. */
static void digest_tokens(const quality_windows *w, char hex[65]) {
  sha256 digest;
  sha256_begin(&digest);
  sha256_add(&digest, w->tokens, (size_t)(w->count * w->n) * sizeof *w->tokens);
  sha256_add(&digest, w->first, (size_t)w->count * sizeof *w->first);
  sha256_end(&digest, hex);
}

/* run: false to see whether it can be asked. */
static attn_status ask(const answer *a, const char *spec, int64_t n, bool run) {
  const quality_request *r = a->r;
  quality_windows windows = {0};
  char *asked = NULL, tokens_sha256[65];
  attn_status status = prepare(a, spec, n, run, &windows, &asked);
  if (!status && !run) {
    swap_list list = {0};
    status = list_swaps(a, &windows, NULL, 0, ASKED, &list);
    swap_list_free(&list);
  }
  if (!status && run) {
    digest_tokens(&windows, tokens_sha256);
    const quality_record about = {.model = (char *)r->ids.model,
                                  .model_sha256 = (char *)a->model_sha256,
                                  .data = (char *)(r->ids.tokens ? r->ids.tokens : r->ids.text),
                                  .data_sha256 = (char *)a->text.sha256,
                                  .config_sha256 = (char *)a->config_sha256,
                                  .tokens_sha256 = tokens_sha256,
                                  .isa = (char *)a->machine.isa,
                                  .block_q = a->machine.blocks.query,
                                  .block_k = a->machine.blocks.key,
                                  .build = (char *)a->store->build,
                                  .task = asked,
                                  .bos = a->text.bos,
                                  .seed = r->seed,
                                  .margin = r->margin,
                                  .kl_budget = r->kl_budget};
    status = run_all(a, &(quality_job){.model = a->model,
                                       .windows = &windows,
                                       .about = &about,
                                       .files = a->files,
                                       .store = a->store,
                                       .limit = r->limit,
                                       .keep_stale = r->keep_stale});
  }
  free(asked);
  quality_windows_free(&windows);
  return status;
}

static attn_status ask_all(const answer *a, bool run) {
  attn_status status = ATTN_OK;
  for (int64_t t = 0; !status && t < a->r->task_count; t++)
    for (int64_t i = 0; !status && i < a->r->n.count; i++) {
      answer own = *a;
      own.question = t * a->r->n.count + i;
      status = ask(&own, a->r->tasks[t], a->r->n.items[i], run);
    }
  return status;
}

attn_status quality_answer(const quality_request *r, quality_store *store, quality_done *done, void *to) {
  answer a = {.r = r, .store = store, .done = done, .to = to};
  attn_status status = data_llama_open(r->ids.model, &a.model);
  if (status) return status;
  const data_llama_config *c = data_llama_get_config(a.model);
  status = data_ids_read(&r->ids, c, &a.text);
  if (!status && c->vocab != BYTES) {
    status = data_tokenizer_open(r->ids.model, &a.tokenizer);
    if ((status == ATTN_ENOTFOUND || status == ATTN_EUNSUPPORTED) && r->ids.tokens)
      status = ATTN_OK; /* tasks without sentences can be asked */
  }
  if (!status) status = attn_options_fill(NULL, ATTN_F32, c->head_dim, c->head_dim, &a.machine);
  if (!status) status = spec_files_make(&a.files);
  if (!status) data_llama_sha256(a.model, a.model_sha256);
  if (!status) data_llama_config_sha256(a.model, a.config_sha256);
  if (!status) status = ask_all(&a, false);
  if (!status) status = quality_store_begin(store);
  if (!status) status = ask_all(&a, true);
  spec_files_free(a.files);
  free(a.text.id);
  data_tokenizer_close(a.tokenizer);
  data_llama_close(a.model);
  return status;
}
