/* pairs.c - pairing by texts: of each run what must agree, and what should. */
#include "experiments/analysis/pairs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_tools.h"
#include "data/support/file.h"
#include "data/support/json_text.h"
#include "experiments/analysis/setting.h"

/* A run of a file on its way to a pair. */
typedef struct candidate {
  const result_row *row;
  setting setting;
  char *must, *should; /* agree */
  bool paired;
} candidate;

typedef struct candidates {
  candidate *items;
  size_t count;
} candidates;

static void release(candidates *c) {
  for (size_t i = 0; c->items && i < c->count; i++) {
    setting_free(&c->items[i].setting);
    free(c->items[i].must);
    free(c->items[i].should);
  }
  free(c->items);
}

static attn_status no_memory(void) { return attn_fail(ATTN_ENOMEM, "out of memory to pair runs"); }

static attn_status collect(const result_set *set, candidates *out) {
  if (!(out->items = calloc(set->count + 1, sizeof *out->items))) return no_memory();
  for (; out->count < set->count; out->count++) {
    candidate *c = &out->items[out->count];
    c->row = &set->rows[out->count];
    const attn_status status = setting_make(c->row, &c->setting);
    if (status) return status;
  }
  return ATTN_OK;
}

/* Without those that have their defaults: a file of an earlier version may not know them. */
static char *params_beyond_defaults(candidate *c) {
  const char *name;
  json_t *value;
  void *next;
  json_object_foreach_safe(c->setting.params, next, name, value) {
    if (setting_is_preset(c->row->variant, name, value)) json_object_del(c->setting.params, name);
  }
  return json_print(c->setting.params, JSON_COMPACT | JSON_SORT_KEYS);
}

/* An axis that follows from the others has no section of the configuration. */
static bool free_axis(axis_id a) { return a == AXIS_threads || !axes[a].section; }

static attn_status identify(candidates *own) {
  for (size_t i = 0; i < own->count; i++) {
    candidate *c = &own->items[i];
    size_t size;
    char *params = params_beyond_defaults(c);
    if (!params) return no_memory();
    FILE *out = open_memstream(&c->must, &size);
    if (out) {
      fprintf(out, "%s\n%s", c->row->variant, params);
      for (text_axis_id t = 0; t < TEXT_AXES; t++)
        if (text_axes[t].section) fprintf(out, "\n%s", result_text(c->row, t));
      for (axis_id a = 0; a < AXES; a++)
        if (!free_axis(a)) fprintf(out, " %lld", (long long)c->row->axis[a]);
    }
    free(params);
    if (!attn_stream_text(out, &c->must)) return no_memory();
    c->should = text_format("%s %lld", result_text(c->row, TEXT_AXIS_isa), (long long)c->row->threads);
    if (!c->should) return no_memory();
  }
  return ATTN_OK;
}

static int compare(const void *x, const void *y) {
  const candidate *a = x, *b = y;
  const int order = strcmp(a->must, b->must);
  return order ? order : strcmp(a->should, b->should);
}

static void add_pair(candidate *a, candidate *b, result_pairs *out) {
  a->paired = b->paired = true;
  const result_pair pair = {a->row, b->row};
  out->items[out->count++] = pair;
  out->other_isa += strcmp(result_text(a->row, TEXT_AXIS_isa), result_text(b->row, TEXT_AXIS_isa)) != 0;
  out->other_threads += a->row->threads != b->row->threads;
  out->other_data += !pair_same_data(&pair);
}

bool pair_same_data(const result_pair *p) {
  return strcmp(text_or_none(p->a->dataset_sha256), text_or_none(p->b->dataset_sha256)) == 0 &&
         strcmp(text_or_none(p->a->files_sha256), text_or_none(p->b->files_sha256)) == 0;
}

/* The one of count candidates that is without a pair; NULL if there is none or another. */
static candidate *left_over(candidate *first, size_t count) {
  candidate *found = NULL;
  for (size_t i = 0; i < count; i++) {
    if (first[i].paired) continue;
    if (found) return NULL;
    found = &first[i];
  }
  return found;
}

/* Candidates that agree in what they must: those that agree in all pair, then the last two. */
static void pair_group(candidate *a, size_t a_count, candidate *b, size_t b_count, result_pairs *out) {
  for (size_t i = 0, j = 0; i < a_count && j < b_count;) {
    const int order = strcmp(a[i].should, b[j].should);
    if (order == 0) add_pair(&a[i], &b[j], out);
    i += order <= 0;
    j += order >= 0;
  }
  candidate *x = left_over(a, a_count), *y = left_over(b, b_count);
  if (x && y) add_pair(x, y, out);
}

static size_t group_end(const candidates *c, size_t begin) {
  size_t end = begin;
  while (end < c->count && strcmp(c->items[end].must, c->items[begin].must) == 0) end++;
  return end;
}

static size_t list_alone(const candidates *c, const result_row **out) {
  size_t count = 0;
  for (size_t i = 0; i < c->count; i++)
    if (!c->items[i].paired) out[count++] = c->items[i].row;
  return count;
}

static void pair_all(candidates *a, candidates *b, result_pairs *out) {
  for (size_t i = 0, j = 0; i < a->count && j < b->count;) {
    const int order = strcmp(a->items[i].must, b->items[j].must);
    const size_t i_end = group_end(a, i), j_end = group_end(b, j);
    if (order == 0) pair_group(&a->items[i], i_end - i, &b->items[j], j_end - j, out);
    if (order <= 0) i = i_end;
    if (order >= 0) j = j_end;
  }
}

attn_status pairs_make(const result_set *a, const result_set *b, result_pairs *out) {
  candidates x = {0}, y = {0};
  result_pairs made = {0};
  attn_status status = collect(a, &x);
  if (!status) status = collect(b, &y);
  if (!status) status = identify(&x);
  if (!status) status = identify(&y);
  if (!status) {
    made.items = calloc(a->count + 1, sizeof *made.items);
    made.only_a = calloc(a->count + 1, sizeof(result_row *));
    made.only_b = calloc(b->count + 1, sizeof(result_row *));
    if (!made.items || !made.only_a || !made.only_b) status = no_memory();
  }
  if (!status) {
    qsort(x.items, x.count, sizeof *x.items, compare);
    qsort(y.items, y.count, sizeof *y.items, compare);
    pair_all(&x, &y, &made);
    made.only_a_count = list_alone(&x, made.only_a);
    made.only_b_count = list_alone(&y, made.only_b);
    *out = made;
  } else {
    pairs_free(&made);
  }
  release(&x);
  release(&y);
  return status;
}

void pairs_free(result_pairs *p) {
  free(p->items);
  free(p->only_a);
  free(p->only_b);
  *p = (result_pairs){0};
}
