/* recall.c - the task recall: a number that stands in a long text, asked for at its end (the needle in a
 * haystack; RULER, Hsieh et al. 2024, arXiv:2404.06654, has it with several keys, values and queries: words,
 * numbers of a word, words that are asked for. Words that are not asked for distract).
 *
 *   text ... The number of ember is 493817. ... text. Question: what is the number of ember? Answer: The
 *   number of ember is 493817 */
#include <stdio.h>
#include <string.h>

#include "attn_variant.h"
#include "experiments/quality/tasks/sentences.h"

enum { PAIRS_MAX = 32, VALUES_MAX = 8, DIGITS_MAX = 16 };

static const char *const words[] = {"amber",   "basil",  "cedar",  "delta",  "ember",   "fjord",  "grove",
                                    "heron",   "indigo", "jasper", "kettle", "lantern", "maple",  "nectar",
                                    "opal",    "pepper", "quartz", "raven",  "saffron", "timber", "umber",
                                    "velvet",  "willow", "yarrow", "zephyr", "anchor",  "beacon", "candle",
                                    "drummer", "falcon", "harbor", "island"};
_Static_assert(sizeof words / sizeof *words == PAIRS_MAX, "a word for each pair");

typedef struct recall_params {
  int64_t pairs, values, queries, digits;
  double depth;
  int aware;
} recall_params;

static const attn_param table[] = {
    {"pairs", ATTN_INT, offsetof(recall_params, pairs), 1, PAIRS_MAX, "1", NULL, "words that have a number"},
    {"values", ATTN_INT, offsetof(recall_params, values), 1, VALUES_MAX, "1", NULL,
     "numbers of each word, a sentence for each"},
    {"queries", ATTN_INT, offsetof(recall_params, queries), 1, PAIRS_MAX, "1", NULL,
     "words whose numbers are asked for, in one question"},
    {"digits", ATTN_INT, offsetof(recall_params, digits), 1, DIGITS_MAX, "6", NULL, "of a number"},
    {"depth", ATTN_REAL, offsetof(recall_params, depth), -1, 1, "-1", NULL,
     "where in the text the first sentence of the first word that is asked for stands, 0 to 1; -1: anywhere"},
    SENTENCES_AWARE(recall_params),
    {.name = NULL}};

/* The sentences of a word, in the order of the text; answer: their numbers, with a blank before each. depth:
 * of the first sentence, and the others follow it; below 0: anywhere. */
static attn_status write_word(const recall_params *p, const task_input *in, attn_rng *rng, const char *word,
                              double depth, sentence *out, char *answer) {
  char *number[VALUES_MAX], text[64];
  double place[VALUES_MAX];
  attn_status status = ATTN_OK;
  for (int64_t v = 0; v < p->values; v++) {
    number[v] = answer;
    *answer++ = ' ';
    for (int64_t d = 0; d < p->digits; d++) *answer++ = (char)('0' + attn_rng_below(rng, 10));
  }
  *answer = '\0';
  sentence_places(rng, p->values, place);
  for (int64_t v = 0; !status && v < p->values; v++) {
    out[v].place = depth < 0 ? place[v] : v == 0 ? depth : depth + (1 - depth) * place[v];
    snprintf(text, sizeof text, " The number of %s is%.*s.", word, (int)p->digits + 1, number[v]);
    status = sentence_encode(in, text, &out[v]);
  }
  return status;
}

/* The sentences, question and answer of a window: pieces [pairs * values + 2]. */
static attn_status write_pieces(const recall_params *p, const task_input *in, int64_t window,
                                sentence *pieces) {
  enum { ANSWER = VALUES_MAX * (DIGITS_MAX + 1) };
  char answer[PAIRS_MAX * ANSWER + 1] = "", others[ANSWER + 1], asked[PAIRS_MAX * 16] = "";
  char text[sizeof asked * 2 + 80];
  const int64_t count = p->pairs * p->values;
  int chosen[PAIRS_MAX];
  attn_rng rng;
  attn_status status = ATTN_OK;
  attn_rng_init(&rng, in->seed, 2, (uint64_t)window);
  for (int i = 0; i < PAIRS_MAX; i++) chosen[i] = i;
  for (int64_t i = 0; !status && i < p->pairs; i++) {
    const int64_t at = i + attn_rng_below(&rng, PAIRS_MAX - i);
    const char *word = words[chosen[at]];
    chosen[at] = chosen[i];
    status = write_word(p, in, &rng, word, i == 0 ? p->depth : -1, &pieces[i * p->values],
                        i < p->queries ? answer + strlen(answer) : others);
    if (i < p->queries) {
      if (i > 0) strcat(asked, i + 1 < p->queries ? ", " : " and ");
      strcat(asked, word);
    }
  }
  if (p->queries * p->values == 1)
    snprintf(text, sizeof text, "\nQuestion: what is the number of %s? Answer: The number of %s is", asked,
             asked);
  else
    snprintf(text, sizeof text, "\nQuestion: what are the numbers of %s? Answer: The numbers of %s are",
             asked, asked);
  if (!status) status = sentence_encode(in, text, &pieces[count]);
  return status ? status : sentence_encode(in, answer, &pieces[count + 1]);
}

static attn_status fill(const void *params, const task_input *in, quality_windows *w) {
  const recall_params *p = params;
  const int64_t count = p->pairs * p->values;
  attn_status status = quality_windows_fill(w, in->text, in->length, in->bos, 0, in->seed);
  if (!status && p->depth < 0 && p->depth > -1)
    status = attn_fail(ATTN_EINVAL, "task recall: depth=%g, expected -1 or a number from 0 to 1", p->depth);
  if (!status && p->queries > p->pairs)
    status = attn_fail(ATTN_EINVAL, "task recall: queries=%lld, expected at most the words, pairs=%lld",
                       (long long)p->queries, (long long)p->pairs);
  for (int64_t i = 0; !status && i < w->count; i++) {
    sentence pieces[PAIRS_MAX * VALUES_MAX + 2] = {{0}};
    status = write_pieces(p, in, i, pieces);
    if (!status) status = sentences_compose(in, pieces, count, p->aware, i, w);
    sentences_free(pieces, count + 2);
  }
  return status;
}

const task task_recall = {"recall", table, sizeof(recall_params), fill, true};
