/* track.c - the tasks track and frequent, after RULER's variable tracking and frequent words (Hsieh et al.
 * 2024).
 *
 *   track     text ... VAR QXKPA = 58213. ... VAR MWRTJ = QXKPA. ... Question: which variables are 58213?
 *             Answer: QXKPA MWRTJ
 *   frequent  text, then coded words, the k-th of them proportional to k^-alpha often, in random order; the
 *             three most frequent are the answer */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "data/support/file.h"
#include "experiments/quality/tasks/sentences.h"

enum {
  NAME = 5,
  CODE = 6,
  CHAINS_MAX = 16,
  HOPS_MAX = 16,
  SENTENCES_MAX = CHAINS_MAX * (HOPS_MAX + 1),
  CODES = 50
};

static void draw_name(attn_rng *rng, char first, int length, char *out) {
  for (int i = 0; i < length; i++) out[i] = (char)(first + attn_rng_below(rng, 26));
  out[length] = '\0';
}

/* -- track -- */

typedef struct track_params {
  int64_t chains, hops;
  int aware;
} track_params;

static const attn_param track_table[] = {{"chains", ATTN_INT, offsetof(track_params, chains), 1, CHAINS_MAX,
                                          "1", NULL, "chains of assignments, of which one is asked for"},
                                         {"hops", ATTN_INT, offsetof(track_params, hops), 1, HOPS_MAX, "4",
                                          NULL, "assignments of a chain after the first"},
                                         SENTENCES_AWARE(track_params),
                                         {.name = NULL}};

/* The sentences of a chain, in its order; names: those of its variables, with a blank before each. */
static attn_status write_chain(const track_params *p, const task_input *in, attn_rng *rng, int64_t value,
                               sentence *out, char *names) {
  char name[NAME + 1], before[NAME + 1] = "", text[64];
  double place[HOPS_MAX + 1];
  attn_status status = ATTN_OK;
  sentence_places(rng, p->hops + 1, place);
  for (int64_t i = 0; !status && i <= p->hops; i++) {
    draw_name(rng, 'A', NAME, name);
    if (i == 0)
      snprintf(text, sizeof text, " VAR %s = %lld.", name, (long long)value);
    else
      snprintf(text, sizeof text, " VAR %s = %s.", name, before);
    memcpy(before, name, sizeof name);
    names += sprintf(names, " %s", name);
    out[i].place = place[i];
    status = sentence_encode(in, text, &out[i]);
  }
  return status;
}

static attn_status track_window(const track_params *p, const task_input *in, int64_t window,
                                quality_windows *w) {
  const int64_t count = p->chains * (p->hops + 1);
  sentence all[SENTENCES_MAX + 2] = {{0}};
  char names[(HOPS_MAX + 1) * (NAME + 1) + 1], other[sizeof names], question[128];
  attn_rng rng;
  attn_status status = ATTN_OK;
  attn_rng_init(&rng, in->seed, 4, (uint64_t)window);
  const int64_t value = 10000 + attn_rng_below(&rng, 40000); /* of the first chain: the others' are larger */
  for (int64_t c = 0; !status && c < p->chains; c++)
    status = write_chain(p, in, &rng, c == 0 ? value : 50000 + attn_rng_below(&rng, 50000),
                         &all[c * (p->hops + 1)], c == 0 ? names : other);
  snprintf(question, sizeof question, "\nQuestion: which variables are %lld? Answer: VAR", (long long)value);
  if (!status) status = sentence_encode(in, question, &all[count]);
  if (!status) status = sentence_encode(in, names, &all[count + 1]);
  if (!status) status = sentences_compose(in, all, count, p->aware, window, w);
  sentences_free(all, count + 2);
  return status;
}

static attn_status fill_track(const void *params, const task_input *in, quality_windows *w) {
  attn_status status = quality_windows_fill(w, in->text, in->length, in->bos, 0, in->seed);
  for (int64_t i = 0; !status && i < w->count; i++) status = track_window(params, in, i, w);
  return status;
}

const task task_track = {"track", track_table, sizeof(track_params), fill_track, true};

/* -- frequent -- */

typedef struct frequent_params {
  double alpha;
  int64_t words;
  int aware;
} frequent_params;

static const attn_param frequent_table[] = {{"alpha", ATTN_REAL, offsetof(frequent_params, alpha), 1, 8, "2",
                                             NULL, "the k-th word is k^-alpha as frequent"},
                                            {"words", ATTN_INT, offsetof(frequent_params, words), 16, 1 << 20,
                                             "100", NULL, "coded words of a window"},
                                            SENTENCES_AWARE(frequent_params),
                                            {.name = NULL}};

/* How often each word stands: shares of `words`, rounded down, and what is left to the first. */
static int64_t count_words(const frequent_params *p, int64_t *count) {
  double total = 0;
  int64_t left = p->words;
  for (int k = 0; k < CODES; k++) total += pow(k + 1, -p->alpha);
  for (int k = 0; k < CODES; k++) {
    count[k] = (int64_t)((double)p->words * pow(k + 1, -p->alpha) / total);
    left -= count[k];
  }
  count[0] += left;
  return p->words;
}

static attn_status frequent_window(const frequent_params *p, const task_input *in, int64_t window,
                                   quality_windows *w) {
  char code[CODES][CODE + 1], answer[3 * (CODE + 1) + 1];
  int64_t count[CODES], total = count_words(p, count), filled = 0;
  int *order = malloc((size_t)total * sizeof *order);
  char *text = malloc((size_t)total * (CODE + 1) + 1), *at = text;
  sentence all[3] = {{0}};
  attn_rng rng;
  attn_status status = order && text ? ATTN_OK : attn_fail(ATTN_ENOMEM, "no memory for words");
  attn_rng_init(&rng, in->seed, 5, (uint64_t)window);
  for (int k = 0; k < CODES; k++) draw_name(&rng, 'a', CODE, code[k]);
  for (int k = 0; !status && k < CODES; k++)
    for (int64_t i = 0; i < count[k]; i++) order[filled++] = k;
  for (int64_t i = 0; !status && i < total; i++) {
    const int64_t other = i + attn_rng_below(&rng, total - i);
    const int kept = order[other];
    order[other] = order[i];
    at += sprintf(at, " %s", code[kept]);
  }
  snprintf(answer, sizeof answer, " %s %s %s", code[0], code[1], code[2]);
  all[0].place = 1;
  if (!status) status = sentence_encode(in, text, &all[0]);
  if (!status)
    status =
        sentence_encode(in, "\nQuestion: which three coded words are the most frequent? Answer:", &all[1]);
  if (!status) status = sentence_encode(in, answer, &all[2]);
  if (!status) status = sentences_compose(in, all, 1, p->aware, window, w);
  sentences_free(all, 3);
  free(order);
  free(text);
  return status;
}

static attn_status fill_frequent(const void *params, const task_input *in, quality_windows *w) {
  const frequent_params *p = params;
  int64_t count[CODES];
  count_words(p, count);
  attn_status status = quality_windows_fill(w, in->text, in->length, in->bos, 0, in->seed);
  if (!status && !(count[0] > count[1] && count[1] > count[2] && count[2] > count[3]))
    status =
        attn_fail(ATTN_EINVAL,
                  "task frequent: with alpha=%g and words=%lld the first words stand %lld, %lld, %lld and "
                  "%lld times, and no three are the most frequent",
                  p->alpha, (long long)p->words, (long long)count[0], (long long)count[1],
                  (long long)count[2], (long long)count[3]);
  for (int64_t i = 0; !status && i < w->count; i++) status = frequent_window(params, in, i, w);
  return status;
}

const task task_frequent = {"frequent", frequent_table, sizeof(frequent_params), fill_frequent, true};
