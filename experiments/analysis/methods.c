/* methods.c - which settings are points of one curve. */
#include "experiments/analysis/setting.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/support/label.h"

/* What an expression might be a setting of: it without one of its parameters. */
typedef struct candidate {
  size_t setting;
  int64_t place; /* of that parameter */
  char *method;
  size_t alike; /* settings that might be of this method, this one included */
} candidate;

typedef struct candidates {
  candidate *items;
  size_t count, room;
} candidates;

static attn_status add(candidates *all, candidate one) {
  if (all->count == all->room) {
    const size_t room = 2 * all->room + 64;
    candidate *items = realloc(all->items, room * sizeof *items);
    if (!items) return attn_fail(ATTN_ENOMEM, "out of memory for the methods of a report");
    all->items = items;
    all->room = room;
  }
  all->items[all->count++] = one;
  return ATTN_OK;
}

static attn_status add_expression(candidates *all, const setting *s, size_t index) {
  attn_spec *spec = NULL;
  attn_status status = attn_spec_parse(&spec, setting_label(s));
  if (status) return status == ATTN_ENOMEM ? status : ATTN_OK;
  /* Labels leave presets out: without a parameter that has its preset the label is what it was, and once is
   * enough. */
  bool whole = false;
  for (int64_t place = 0; !status; place++) {
    char *method = NULL;
    status = label_without(spec, place, &method);
    if (status || !method) break;
    const bool preset = strcmp(method, setting_label(s)) == 0, again = preset && whole;
    if (!again) status = add(all, (candidate){index, place, method, 1});
    if (status || again) free(method);
    whole = whole || preset;
  }
  attn_spec_destroy(spec);
  return status;
}

static int by_method(const void *a, const void *b) {
  return strcmp(((const candidate *)a)->method, ((const candidate *)b)->method);
}

static void count_alike(candidates *all) {
  qsort(all->items, all->count, sizeof *all->items, by_method);
  for (size_t first = 0, end; first < all->count; first = end) {
    for (end = first + 1; end < all->count && !by_method(&all->items[first], &all->items[end]);) end++;
    for (size_t i = first; i < end; i++) all->items[i].alike = end - first;
  }
}

static bool is_better(const candidate *a, const candidate *b) {
  return !b || a->alike > b->alike || (a->alike == b->alike && a->place > b->place);
}

/* Gives each expression that is alike with others the method that it shares with most. */
static attn_status choose(candidates *all, size_t count, char **methods) {
  const candidate **best = calloc(count, sizeof *best);
  attn_status status = best ? ATTN_OK : ATTN_ENOMEM;
  if (best) count_alike(all);
  for (size_t i = 0; best && i < all->count; i++) {
    const candidate *c = &all->items[i];
    if (c->alike > 1 && is_better(c, best[c->setting])) best[c->setting] = c;
  }
  for (size_t s = 0; best && s < count; s++)
    if (best[s] && !(methods[s] = strdup(best[s]->method))) status = ATTN_ENOMEM;
  free(best);
  return status ? attn_fail(status, "out of memory for the methods of a report") : ATTN_OK;
}

/* Is the setting also that before it, of another file? */
static bool again(const setting *settings, size_t s) {
  return s > 0 && strcmp(setting_label(&settings[s - 1]), setting_label(&settings[s])) == 0;
}

attn_status setting_methods(const setting *settings, size_t count, char **methods) {
  candidates all = {0};
  attn_status status = ATTN_OK;
  for (size_t s = 0; !status && s < count; s++)
    if (settings[s].expression && !again(settings, s)) status = add_expression(&all, &settings[s], s);
  if (!status && all.count > 0) status = choose(&all, count, methods);
  for (size_t s = 0; !status && s < count; s++)
    if (!methods[s] && again(settings, s))
      status = (methods[s] = strdup(methods[s - 1])) ? ATTN_OK : ATTN_ENOMEM;
    else if (!methods[s])
      status = label_method(setting_label(&settings[s]), settings[s].row->variant, &methods[s]);
  for (size_t i = 0; i < all.count; i++) free(all.items[i].method);
  free(all.items);
  return status;
}
