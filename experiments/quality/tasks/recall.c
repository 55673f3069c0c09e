/* recall.c - the task recall: a number that stands in a long text, asked for at its end (the needle in a
 * haystack; with pairs > 1 the other sentences distract).
 *
 *   text ... The number of ember is 493817. ... text. Question: what is the number of ember? Answer:
 *   493817 */
#include <stdio.h>
#include <string.h>

#include "attn_variant.h"
#include "experiments/quality/tasks/sentences.h"

enum { PAIRS_MAX = 32, DIGITS_MAX = 16 };

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

/* The sentences, question and answer of a window: pieces [pairs + 2]. The first is the one that is asked
 * for. */
static attn_status write_pieces(const recall_params *p, const task_input *in, int64_t window,
                                sentence *pieces) {
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
    status = sentence_encode(in, text, &pieces[i]);
  }
  snprintf(text, sizeof text, "\nQuestion: what is the number of %s? Answer: The number of %s is", asked,
           asked);
  if (!status) status = sentence_encode(in, text, &pieces[p->pairs]);
  snprintf(text, sizeof text, " %s", number);
  return status ? status : sentence_encode(in, text, &pieces[p->pairs + 1]);
}

static attn_status fill(const void *params, const task_input *in, quality_windows *w) {
  const recall_params *p = params;
  attn_status status = quality_windows_fill(w, in->text, in->length, in->bos, 0, in->seed);
  if (!status && p->depth < 0 && p->depth > -1)
    status = attn_fail(ATTN_EINVAL, "task recall: depth=%g, expected -1 or a number from 0 to 1", p->depth);
  for (int64_t i = 0; !status && i < w->count; i++) {
    sentence pieces[PAIRS_MAX + 2] = {{0}};
    status = write_pieces(p, in, i, pieces);
    if (!status) status = sentences_compose(in, pieces, p->pairs, i, w);
    sentences_free(pieces, p->pairs + 2);
  }
  return status;
}

const task task_recall = {"recall", table, sizeof(recall_params), fill};
