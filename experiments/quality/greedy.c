/* greedy.c - EV-10: a greedy loop, and the pass that scores what it wrote (evaluation_checks.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/quality/evaluation_checks.h"

enum { SAMPLES = 8, PROMPT = 12, ANSWER = 3, LENGTH = PROMPT + ANSWER };

typedef struct greedy {
  int64_t at, vocab; /* position whose logits say the next token */
  int64_t *next;     /* [windows] */
} greedy;

static attn_status take_most_likely(void *to, const data_llama_rows *r) {
  const greedy *g = to;
  const float *z = r->logits[1] + (g->at - r->first) * g->vocab;
  int64_t top = 0;
  for (int64_t t = 0; t < g->vocab; t++) top = z[t] > z[top] ? t : top;
  g->next[r->window] = top;
  return ATTN_OK;
}

/* tokens [samples, LENGTH]: what follows the prompts. */
static attn_status write_answers(const quality_checked *c, int64_t samples, int64_t *tokens) {
  int64_t prefix[SAMPLES * LENGTH], next[SAMPLES];
  attn_status status = ATTN_OK;
  for (int64_t n = PROMPT; !status && n < LENGTH; n++) {
    greedy g = {n - 1, data_llama_get_config(c->model)->vocab, next};
    for (int64_t s = 0; s < samples; s++)
      memcpy(prefix + s * n, tokens + s * LENGTH, (size_t)n * sizeof *prefix);
    status = data_llama_run(c->model, &(data_llama_pass){.tokens = prefix,
                                                         .windows = samples,
                                                         .n = n,
                                                         .scored = n - 1,
                                                         .swaps = c->swaps,
                                                         .count = 1,
                                                         .to = &g,
                                                         .logits = take_most_likely});
    for (int64_t s = 0; s < samples; s++) tokens[s * LENGTH + n] = next[s];
  }
  return status;
}

static const char *excuse(const quality_checked *c) {
  if (c->windows->n < LENGTH) return "the windows are shorter than a prompt";
  if (c->swaps[0].phase != DATA_LLAMA_BOTH) return "the phase of a query depends on what follows it";
  return NULL;
}

attn_status quality_greedy(const quality_checked *c, result_bound *cell) {
  const int64_t samples = c->windows->count < SAMPLES ? c->windows->count : SAMPLES;
  const char *why = excuse(c);
  quality_windows answers = {0};
  quality_data d = {0};
  int64_t wrong = 0;
  bool finite = true;
  if (why) return bound_not_applicable(cell, why);
  attn_status status = ATTN_OK;
  for (int64_t n = PROMPT; !status && n <= LENGTH; n++) status = data_llama_try(c->model, n, &c->swaps[0]);
  if (status) return status == ATTN_ENOMEM ? status : bound_not_applicable(cell, attn_last_error());
  status = quality_windows_make(samples, LENGTH, &answers);
  if (status) return status;
  for (int64_t s = 0; s < samples; s++) {
    memcpy(answers.tokens + s * LENGTH, c->windows->tokens + s * c->windows->n,
           PROMPT * sizeof *answers.tokens);
    answers.first[s] = PROMPT - 1;
  }
  status = write_answers(c, samples, answers.tokens);
  if (!status) status = quality_evaluate(c->model, &answers, c->swaps, 1, false, &d);
  for (int64_t s = 0; !status && s < samples; s++)
    for (int64_t i = 0; i < d.scored[s]; i++) {
      wrong += !d.points[s * d.positions + i].right;
      finite = finite && !isnan(d.points[s * d.positions + i].kl);
    }
  if (!status && finite)
    bound_hard(cell, (double)wrong, 0);
  else if (!status)
    bound_uncertifiable(cell, "logits are not finite");
  if (!status && finite && wrong)
    why = quality_exempt(c->model, LENGTH, &c->swaps[0],
                         ATTN_EXEMPT_PREFIX | ATTN_EXEMPT_ROWS | ATTN_EXEMPT_LOOKAHEAD);
  if (why) bound_not_applicable(cell, why);
  quality_data_free(&d);
  quality_windows_free(&answers);
  return status;
}
