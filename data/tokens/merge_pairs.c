/* merge_pairs.c - byte pair encoding. Pairs wait in buckets, one for each rank, and a bucket is sorted by
 * place when its turn comes: a heap of all pairs of a long text would not stay in any cache. In the heap of
 * turns are the ranks that have a bucket, and the few pairs that are found when the bucket of their rank is
 * already sorted.
 *
 * Symbols only grow, and to the right. So a pair that still ends where it ended when it was entered is the
 * same pair, and any other is left out when it comes up. */
#include "data/tokens/merge_pairs.h"

#include <stdlib.h>

typedef struct merge_entry {
  int32_t left, id;
  uint32_t end;  /* of the right symbol */
  int32_t after; /* the next of the same rank, or NONE */
} merge_entry;

/* The first of a bucket, which is not sorted yet (left is NONE) or is; or a pair by itself. */
typedef struct merge_turn {
  uint32_t rank;
  int32_t left, entry;
  bool alone;
} merge_turn;

typedef struct merge_place {
  int32_t left, entry;
} merge_place;

enum { NONE = -1, SORTED = -2, GONE = -2 /* the next of a symbol that was merged into its predecessor */ };

static attn_status reserve_ranks(merge_work *w, size_t ranks) {
  if (w->bucket) return ATTN_OK;
  w->bucket = malloc((ranks + 1) * sizeof *w->bucket);
  if (!w->bucket) return attn_fail(ATTN_ENOMEM, "no memory for %zu merges", ranks);
  w->ranks = ranks;
  for (size_t i = 0; i < ranks; i++) w->bucket[i] = NONE;
  return ATTN_OK;
}

attn_status merge_reserve(merge_work *w, size_t count, size_t ranks) {
  if (count > MERGE_BYTES_MAX)
    return attn_fail(ATTN_EUNSUPPORTED, "a piece of text of %zu bytes, more than %d", count, MERGE_BYTES_MAX);
  attn_status status = reserve_ranks(w, ranks);
  if (status || count <= w->capacity) return status;
  int32_t *const bucket = w->bucket;
  w->bucket = NULL;
  merge_free(w);
  /* Each merge takes an entry and makes two at most, so that there are never more than three for each symbol,
   * and two at the same time. */
  *w = (merge_work){.symbol = malloc(count * sizeof *w->symbol),
                    .entry = malloc(3 * count * sizeof *w->entry),
                    .turn = malloc(2 * count * sizeof *w->turn),
                    .place = malloc(2 * count * sizeof *w->place),
                    .bucket = bucket,
                    .ranks = ranks,
                    .capacity = count};
  if (w->symbol && w->entry && w->turn && w->place) return ATTN_OK;
  merge_free(w);
  return attn_fail(ATTN_ENOMEM, "no memory to encode a text of %zu symbols", count);
}

void merge_free(merge_work *w) {
  free(w->symbol);
  free(w->entry);
  free(w->turn);
  free(w->place);
  free(w->bucket);
  *w = (merge_work){0};
}

/* ---- the heap of turns --------------------------------------------------------------------------------- */

static bool before(const merge_turn *a, const merge_turn *b) {
  return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static void push(merge_work *w, merge_turn t) {
  size_t at = w->turns++;
  for (; at && before(&t, &w->turn[(at - 1) / 2]); at = (at - 1) / 2) w->turn[at] = w->turn[(at - 1) / 2];
  w->turn[at] = t;
}

/* Puts another in the place of the first. */
static void replace(merge_work *w, merge_turn t) {
  size_t at = 0, child;
  while ((child = 2 * at + 1) < w->turns) {
    if (child + 1 < w->turns && before(&w->turn[child + 1], &w->turn[child])) child++;
    if (!before(&w->turn[child], &t)) break;
    w->turn[at] = w->turn[child];
    at = child;
  }
  w->turn[at] = t;
}

static void drop(merge_work *w) { replace(w, w->turn[--w->turns]); }

static int by_place(const void *a, const void *b) {
  const int32_t x = ((const merge_place *)a)->left, y = ((const merge_place *)b)->left;
  return (x > y) - (x < y);
}

/* Sorts the bucket whose turn it is. */
static void sort(merge_work *w, merge_turn t) {
  size_t count = 0;
  bool falls = true;
  for (int32_t i = w->bucket[t.rank]; i != NONE; i = w->entry[i].after, count++) {
    w->place[count] = (merge_place){w->entry[i].left, i};
    falls = falls && (!count || w->place[count].left < w->place[count - 1].left);
  }
  if (!falls) qsort(w->place, count, sizeof *w->place, by_place);
  for (size_t i = 0; i < count; i++) {
    /* Where they fall, from the last to the first. */
    const merge_place *at = &w->place[falls ? count - 1 - i : i];
    const merge_place *next = i + 1 == count ? NULL : &w->place[falls ? count - 2 - i : i + 1];
    w->entry[at->entry].after = next ? next->entry : NONE;
    if (i == 0) t = (merge_turn){t.rank, at->left, at->entry, false};
  }
  w->bucket[t.rank] = SORTED;
  replace(w, t);
}

/* Takes the next entry. */
static int32_t take(merge_work *w) {
  while (w->turn->left == NONE) sort(w, *w->turn);
  const merge_turn t = *w->turn;
  const int32_t after = t.alone ? NONE : w->entry[t.entry].after;
  if (after != NONE) {
    replace(w, (merge_turn){t.rank, w->entry[after].left, after, false});
  } else {
    if (!t.alone) w->bucket[t.rank] = NONE;
    drop(w);
  }
  return t.entry;
}

/* ---- merging ------------------------------------------------------------------------------------------- */

uint32_t merge_end(const merge_work *w, int32_t i, uint32_t bytes) {
  return w->symbol[i].next < 0 ? bytes : w->symbol[w->symbol[i].next].begin;
}

/* Enters symbol i and its successor, if they may merge. */
static void consider(merge_work *w, int32_t i, uint32_t bytes, merge_rule *rule, const void *context) {
  const merge_symbol *left = &w->symbol[i];
  uint32_t rank;
  if (left->next < 0) return;
  const int32_t at = (int32_t)w->entries;
  merge_entry e = {.left = i, .end = merge_end(w, left->next, bytes), .after = NONE};
  if (!rule(context, left, &w->symbol[left->next], e.end, &rank, &e.id)) return;
  if (w->bucket[rank] == SORTED) {
    push(w, (merge_turn){rank, i, at, true});
  } else {
    if (w->bucket[rank] == NONE) push(w, (merge_turn){rank, NONE, NONE, false});
    e.after = w->bucket[rank];
    w->bucket[rank] = at;
  }
  w->entry[w->entries++] = e;
}

static void merge(merge_work *w, const merge_entry *e) {
  merge_symbol *left = &w->symbol[e->left], *right = &w->symbol[left->next];
  left->id = e->id;
  left->next = right->next;
  if (right->next >= 0) w->symbol[right->next].previous = e->left;
  right->next = GONE;
}

void merge_run(merge_work *w, size_t count, uint32_t bytes, merge_rule *rule, const void *context) {
  for (size_t i = 0; i < count; i++) {
    w->symbol[i].previous = (int32_t)i - 1;
    w->symbol[i].next = i + 1 < count ? (int32_t)i + 1 : -1;
  }
  w->entries = 0;
  for (size_t i = 0; i < count; i++) consider(w, (int32_t)i, bytes, rule, context);
  while (w->turns) {
    const merge_entry e = w->entry[take(w)];
    const int32_t right = w->symbol[e.left].next;
    if (right < 0 || merge_end(w, right, bytes) != e.end) continue;
    merge(w, &e);
    consider(w, e.left, bytes, rule, context);
    if (w->symbol[e.left].previous >= 0) consider(w, w->symbol[e.left].previous, bytes, rule, context);
  }
}
