/* sampled_text.c - the task sample: text drawn from the exact model itself, whatever language it speaks. On
 * such text the change of the log-likelihood is the Kullback-Leibler divergence on average (EV-9). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "data/support/forked_probe.h"
#include "experiments/quality/tasks/tasks.h"
#include "experiments/results/column.h"

typedef struct sample_params {
  double temperature;
  int64_t prompt, skip;
} sample_params;

static const attn_param table[] = {{"temperature", ATTN_REAL, offsetof(sample_params, temperature), 0, 100,
                                    "1", NULL, "logits are divided by it; 0: the most likely token"},
                                   {"prompt", ATTN_INT, offsetof(sample_params, prompt), 0, 1 << 30, "1",
                                    NULL, "tokens of the text that the model goes on from"},
                                   {"skip", ATTN_INT, offsetof(sample_params, skip), 0, 1 << 30, "128", NULL,
                                    "leading positions that are not scored"},
                                   {.name = NULL}};

/* From softmax(z / temperature): the first token whose cumulated share is above a uniform number. */
static int64_t draw(attn_rng *rng, const float *z, int64_t vocab, double temperature) {
  int64_t top = 0;
  double sum = 0;
  for (int64_t t = 0; t < vocab; t++) top = z[t] > z[top] ? t : top;
  if (temperature == 0) return top;
  for (int64_t t = 0; t < vocab; t++) sum += exp(((double)z[t] - (double)z[top]) / temperature);
  double left = attn_rng_uniform(rng) * sum;
  for (int64_t t = 0; t < vocab; t++) {
    left -= exp(((double)z[t] - (double)z[top]) / temperature);
    if (left <= 0) return t;
  }
  return top; /* what rounding left over */
}

typedef struct drawing {
  const sample_params *p;
  const task_input *in;
  quality_windows *w;
  int64_t given; /* leading tokens of a window that are not drawn */
  attn_status status;
} drawing;

/* What a child answers. */
typedef struct drawn {
  int status;
  char message[256];
  int64_t tokens[];
} drawn;

static attn_status draw_all(const drawing *d, int64_t *tokens) {
  const quality_windows *w = d->w;
  const int64_t vocab = d->in->vocab;
  data_llama_decoder *decoder = NULL;
  int64_t *next = malloc((size_t)w->count * sizeof *next);
  float *logits = malloc((size_t)(w->count * vocab) * sizeof *logits);
  attn_rng *rng = malloc((size_t)w->count * sizeof *rng);
  attn_status status = next && logits && rng ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory to draw a text");
  if (!status) status = data_llama_decoder_make(d->in->model, w->count, w->n, &decoder);
  for (int64_t i = 0; !status && i < w->count; i++) attn_rng_init(&rng[i], d->in->seed, 3, (uint64_t)i);
  memcpy(tokens, w->tokens, (size_t)(w->count * w->n) * sizeof *tokens);
  for (int64_t at = 0; !status && at + 1 < w->n; at++) {
    for (int64_t i = 0; i < w->count; i++) next[i] = tokens[i * w->n + at];
    status = data_llama_decoder_step(decoder, next, logits);
    for (int64_t i = 0; !status && at + 1 >= d->given && i < w->count; i++)
      tokens[i * w->n + at + 1] = draw(&rng[i], logits + i * vocab, vocab, d->p->temperature);
  }
  data_llama_decoder_free(decoder);
  free(next);
  free(logits);
  free(rng);
  return status;
}

static size_t drawn_bytes(const drawing *d) {
  return sizeof(drawn) + (size_t)(d->w->count * d->w->n) * sizeof(int64_t);
}

static void send(void *context, size_t item, int to) {
  const drawing *d = context;
  drawn *all = calloc(1, drawn_bytes(d));
  (void)item;
  if (!all) return;
  all->status = (int)draw_all(d, all->tokens);
  column_cut_text(all->message, sizeof all->message, all->status ? attn_last_error() : "");
  (void)probe_send(to, all, drawn_bytes(d));
  free(all);
}

static bool take(void *context, size_t item, const void *message) {
  drawing *d = context;
  drawn head;
  (void)item;
  memcpy(&head, message, sizeof head);
  d->status = head.status ? attn_fail((attn_status)head.status, "%s", head.message) : ATTN_OK;
  if (!d->status) memcpy(d->w->tokens, (const char *)message + sizeof head, drawn_bytes(d) - sizeof head);
  return true;
}

static bool lose(void *context, size_t item, const probe_result *r) {
  drawing *d = context;
  (void)item;
  d->status = attn_fail(ATTN_EFOREIGN, "task sample: the process that draws the text %s", r->text);
  return false;
}

static attn_status fill(const void *params, const task_input *in, quality_windows *w) {
  const sample_params *p = params;
  drawing d = {p, in, w, p->prompt + (in->bos >= 0), ATTN_OK};
  if (d.given < 1) return attn_fail(ATTN_EINVAL, "task sample: prompt=0 without a first token (--bos)");
  if (d.given >= w->n || p->skip > w->n - 2)
    return attn_fail(ATTN_EINVAL, "task sample: nothing is scored in windows of %lld positions",
                     (long long)w->n);
  attn_status status = quality_windows_fill(w, in->text, in->length, in->bos, 0, in->seed);
  for (int64_t i = 0; i < w->count; i++) w->first[i] = p->skip < d.given - 1 ? d.given - 1 : p->skip;
  if (status || !in->model) return status;
  /* In a process of its own: this one has one thread, as others that follow must have been started from. */
  const probe_job job = {.items = 1,
                         .message = drawn_bytes(&d),
                         .limit = 1e6,
                         .context = &d,
                         .work = send,
                         .take = take,
                         .lost = lose};
  status = probe_run(&job, NULL);
  w->drawn = p->temperature == 1;
  return status ? status : d.status;
}

const task task_sample = {"sample", table, sizeof(sample_params), fill, false};
