/* recall.c - the task recall: a number that stands in a long text, asked for at its end (the needle in a haystack; with
 * pairs > 1 the other sentences distract).
 *
 *   text ... The number of ember is 493817. ... text. Question: what is the number of ember? Answer: 493817 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "experiments/quality/tasks.h"

enum { PAIRS_MAX = 32, DIGITS_MAX = 16, BYTES = 256 };

static const char *const words[] = {"amber",   "basil",  "cedar",  "delta",  "ember",   "fjord",  "grove",
                                    "heron",   "indigo", "jasper", "kettle", "lantern", "maple",  "nectar",
                                    "opal",    "pepper", "quartz", "raven",  "saffron", "timber", "umber",
                                    "velvet",  "willow", "yarrow", "zephyr", "anchor",  "beacon", "candle",
                                    "drummer", "falcon", "harbor", "island"};
_Static_assert(sizeof words / sizeof *words == PAIRS_MAX, "a word for each pair");

typedef struct recall_params {
  int64_t pairs, digits;
  double depth;
} recall_params;

static const attn_param table[] = {
    {"pairs", ATTN_INT, offsetof(recall_params, pairs), 1, PAIRS_MAX, "1", NULL,
     "sentences with a word and a number"},
    {"digits", ATTN_INT, offsetof(recall_params, digits), 1, DIGITS_MAX, "6", NULL, "of a number"},
    {"depth", ATTN_REAL, offsetof(recall_params, depth), -1, 1, "-1", NULL,
     "where in the text the sentence that is asked for stands, 0 to 1; -1: anywhere"},
    {.name = NULL}};

/* Tokens of a sentence. */
typedef struct piece {
  int64_t *tokens, count;
  double place; /* share of the text before it */
} piece;

static attn_status encode(const task_input *in, const char *text, piece *out) {
  const size_t bytes = strlen(text);
  if (in->tokenizer)
    return data_tokenizer_encode(in->tokenizer, "a task's sentence", text, bytes, &out->tokens, &out->count);
  if (in->vocab != BYTES)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "task recall: the model has no tokenizer to write its sentences with");
  if (!(out->tokens = malloc(bytes * sizeof *out->tokens)))
    return attn_fail(ATTN_ENOMEM, "no memory for a sentence");
  for (size_t i = 0; i < bytes; i++) out->tokens[i] = (unsigned char)text[i];
  out->count = (int64_t)bytes;
  return ATTN_OK;
}

static int by_place(const void *a, const void *b) {
  const double x = ((const piece *)a)->place, y = ((const piece *)b)->place;
  return (x > y) - (x < y);
}

/* The sentences, question and answer of a window: pieces [pairs + 2]. The first is the one that is asked for. */
static attn_status write_pieces(const recall_params *p, const task_input *in, int64_t window, piece *pieces) {
  char number[DIGITS_MAX + 1] = "", text[128];
  const char *asked = "";
  int chosen[PAIRS_MAX];
  attn_rng rng;
  attn_status status = ATTN_OK;
  attn_rng_init(&rng, in->seed, 2, (uint64_t)window);
  for (int i = 0; i < PAIRS_MAX; i++) chosen[i] = i;
  for (int64_t i = 0; !status && i < p->pairs; i++) {
    const int64_t at = i + attn_rng_below(&rng, PAIRS_MAX - i);
    const int word = chosen[at];
    char digits[DIGITS_MAX + 1] = "";
    chosen[at] = chosen[i];
    for (int64_t d = 0; d < p->digits; d++) digits[d] = (char)('0' + attn_rng_below(&rng, 10));
    snprintf(text, sizeof text, " The number of %s is %s.", words[word], digits);
    pieces[i].place = attn_rng_uniform(&rng);
    if (i == 0) {
      asked = words[word];
      memcpy(number, digits, sizeof number);
      if (p->depth >= 0) pieces[i].place = p->depth;
    }
    status = encode(in, text, &pieces[i]);
  }
  snprintf(text, sizeof text, "\nQuestion: what is the number of %s? Answer: The number of %s is", asked,
           asked);
  if (!status) status = encode(in, text, &pieces[p->pairs]);
  snprintf(text, sizeof text, " %s", number);
  return status ? status : encode(in, text, &pieces[p->pairs + 1]);
}

/* The window's tokens, which are text, with the pieces in their places. */
static attn_status compose(const recall_params *p, const task_input *in, int64_t window, piece *pieces,
                           quality_windows *w) {
  const int64_t begin = in->bos >= 0;
  int64_t *to = w->tokens + window * w->n + begin, *from = malloc((size_t)w->n * sizeof *from);
  int64_t room = w->n - begin, taken = 0;
  if (!from) return attn_fail(ATTN_ENOMEM, "no memory for a window");
  memcpy(from, to, (size_t)room * sizeof *from);
  for (int64_t i = 0; i < p->pairs + 2; i++) room -= pieces[i].count;
  if (room < 0) {
    free(from);
    return attn_fail(ATTN_EINVAL,
                     "task recall: sentences and question are %lld tokens longer than a window of %lld",
                     (long long)-room, (long long)w->n);
  }
  qsort(pieces, (size_t)p->pairs, sizeof *pieces, by_place);
  pieces[p->pairs].place = pieces[p->pairs + 1].place = 1;
  for (int64_t i = 0; i < p->pairs + 2; i++) {
    const int64_t until = (int64_t)(pieces[i].place * (double)room + 0.5);
    memcpy(to, from + taken, (size_t)(until - taken) * sizeof *to);
    to += until - taken;
    taken = until;
    memcpy(to, pieces[i].tokens, (size_t)pieces[i].count * sizeof *to);
    to += pieces[i].count;
  }
  w->first[window] = w->n - 1 - pieces[p->pairs + 1].count;
  free(from);
  return ATTN_OK;
}

static attn_status fill(const void *params, const task_input *in, quality_windows *w) {
  const recall_params *p = params;
  attn_status status = quality_windows_fill(w, in->text, in->length, in->bos, 0, in->seed);
  if (!status && p->depth < 0 && p->depth > -1)
    status = attn_fail(ATTN_EINVAL, "task recall: depth=%g, expected -1 or a number from 0 to 1", p->depth);
  for (int64_t i = 0; !status && i < w->count; i++) {
    piece pieces[PAIRS_MAX + 2] = {0};
    status = write_pieces(p, in, i, pieces);
    if (!status) status = compose(p, in, i, pieces, w);
    for (int64_t s = 0; s < p->pairs + 2; s++) free(pieces[s].tokens);
  }
  return status;
}

const task task_recall = {"recall", table, sizeof(recall_params), fill};
