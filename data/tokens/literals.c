/* literals.c - the longest of a sorted list of texts that begins at a place: byte after byte, the range of
 * those that agree so far is narrowed. */
#include "data/tokens/literals.h"

#include <stdlib.h>
#include <string.h>

static int by_text(const void *a, const void *b) {
  const token *x = a, *y = b;
  const int order = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);
  return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

void literals_make(literals *l, token *items, size_t count) {
  *l = (literals){.item = items, .count = count};
  if (count) qsort(items, count, sizeof *items, by_text);
  for (size_t b = 0, i = 0; b <= 256; b++) {
    while (i < count && (uint8_t)items[i].text[0] < b) i++;
    l->first[b] = i;
  }
}

void literals_free(literals *l) {
  free(l->item);
  *l = (literals){0};
}

/* The first of [begin, end), all longer than `depth`, whose byte at `depth` is `least` or more. */
static size_t lower(const literals *l, size_t begin, size_t end, size_t depth, unsigned least) {
  while (begin < end) {
    const size_t middle = begin + (end - begin) / 2;
    if ((uint8_t)l->item[middle].text[depth] < least)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

literals_walk literals_walk_begin(const literals *l, const uint8_t *text, size_t bytes) {
  literals_walk w = {.in = l, .depth = 1};
  if (!l->count || !bytes) return w;
  w.begin = l->first[text[0]];
  w.end = l->first[text[0] + 1];
  return w;
}

const token *literals_next(literals_walk *w, const uint8_t *text, size_t bytes) {
  const literals *l = w->in;
  while (w->begin < w->end) {
    if (l->item[w->begin].bytes == w->depth) return &l->item[w->begin++];
    if (w->depth == bytes) break;
    const size_t from = w->begin;
    w->begin = lower(l, from, w->end, w->depth, text[w->depth]);
    w->end = lower(l, w->begin, w->end, w->depth, text[w->depth] + 1U);
    w->depth++;
  }
  return NULL;
}

const token *literals_longest(const literals *l, const uint8_t *text, size_t bytes) {
  const token *found = NULL, *next;
  literals_walk w = literals_walk_begin(l, text, bytes);
  while ((next = literals_next(&w, text, bytes))) found = next;
  return found;
}

const token *literals_find(const literals *l, const uint8_t *text, size_t bytes, size_t from, size_t *place) {
  for (size_t at = from; l->count && at < bytes; at++) {
    const token *found = literals_longest(l, text + at, bytes - at);
    if (!found) continue;
    *place = at;
    return found;
  }
  return NULL;
}
