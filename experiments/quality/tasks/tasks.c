/* tasks.c - the tasks, one function each (tasks.h). */
#include "experiments/quality/tasks/tasks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "data/support/file.h"

enum { SPECIAL = 3 /* leading tokens of a vocabulary that are not text: unknown, beginning, end */ };

/* -- text -- */

typedef struct text_params {
  int64_t skip;
} text_params;

static const attn_param text_table[] = {{"skip", ATTN_INT, offsetof(text_params, skip), 0, 1 << 30, "128",
                                         NULL, "leading positions that are not scored"},
                                        {.name = NULL}};

static attn_status fill_text(const void *params, const task_input *in, quality_windows *w) {
  const text_params *p = params;
  return quality_windows_fill(w, in->text, in->length, in->bos, p->skip, in->seed);
}

/* -- copy -- */

typedef struct copy_params {
  int64_t length, gap, alphabet;
} copy_params;

static const attn_param copy_table[] = {
    {"length", ATTN_INT, offsetof(copy_params, length), 2, 1 << 30, "64", NULL, "tokens of the string"},
    {"gap", ATTN_INT, offsetof(copy_params, gap), -1, 1 << 30, "-1", NULL,
     "tokens of text between; -1: as many as fit, 0: none"},
    {"alphabet", ATTN_INT, offsetof(copy_params, alphabet), 0, 1 << 30, "64", NULL,
     "different tokens that the string may have; 0: the vocabulary"},
    {.name = NULL}};

/* count different tokens of the vocabulary but the special ones. */
static attn_status draw_alphabet(attn_rng *rng, int64_t vocab, int64_t count, int64_t *out) {
  int64_t *all = malloc((size_t)(vocab - SPECIAL) * sizeof *all);
  if (!all) return attn_fail(ATTN_ENOMEM, "no memory for a vocabulary");
  for (int64_t t = 0; t < vocab - SPECIAL; t++) all[t] = t + SPECIAL;
  for (int64_t t = 0; t < count; t++) {
    const int64_t drawn = t + attn_rng_below(rng, vocab - SPECIAL - t), kept = all[drawn];
    all[drawn] = all[t];
    out[t] = all[t] = kept;
  }
  free(all);
  return ATTN_OK;
}

/* Text, the string, text of the gap, the string. */
static attn_status fill_copy(const void *params, const task_input *in, quality_windows *w) {
  const copy_params *p = params;
  const int64_t begin = in->bos >= 0, room = w->n - begin - 2 * p->length, gap = p->gap < 0 ? room : p->gap;
  const int64_t many = p->alphabet ? p->alphabet : in->vocab - SPECIAL;
  if (room < (gap > 0 ? gap : 0))
    return attn_fail(ATTN_EINVAL,
                     "task copy: %lld tokens twice and a gap of %lld are more than a window of %lld",
                     (long long)p->length, (long long)(gap > 0 ? gap : 0), (long long)w->n);
  if (many < 1 || many > in->vocab - SPECIAL)
    return attn_fail(ATTN_EINVAL, "task copy: alphabet=%lld, expected at most %lld", (long long)p->alphabet,
                     (long long)(in->vocab - SPECIAL));
  attn_status status = quality_windows_fill(w, in->text, in->length, in->bos, 0, in->seed);
  int64_t *alphabet = malloc((size_t)many * sizeof *alphabet);
  if (!status && !alphabet) status = attn_fail(ATTN_ENOMEM, "no memory for an alphabet");
  for (int64_t i = 0; !status && i < w->count; i++) {
    int64_t *second = w->tokens + (i + 1) * w->n - p->length, *first = second - gap - p->length;
    attn_rng rng;
    attn_rng_init(&rng, in->seed, 1, (uint64_t)i);
    status = draw_alphabet(&rng, in->vocab, many, alphabet);
    for (int64_t t = 0; !status && t < p->length; t++)
      first[t] = second[t] = alphabet[attn_rng_below(&rng, many)];
    w->first[i] = w->n - p->length;
  }
  free(alphabet);
  return status;
}

/* -- all of them -- */

static const task task_text = {"text", text_table, sizeof(text_params), fill_text, false};
static const task task_copy = {"copy", copy_table, sizeof(copy_params), fill_copy, true};
static const task *const tasks[] = {&task_text,  &task_copy,     &task_recall,
                                    &task_track, &task_frequent, &task_sample};
enum { TASKS = sizeof tasks / sizeof *tasks };

attn_status task_fill(const char *spec, const task_input *in, quality_windows *w, char **canonical) {
  const size_t length = strcspn(spec, ":");
  for (size_t i = 0; i < TASKS; i++) {
    const task *t = tasks[i];
    char owner[32], *rest = NULL;
    void *params = NULL;
    if (strlen(t->name) != length || strncmp(spec, t->name, length) != 0) continue;
    snprintf(owner, sizeof owner, "task %s", t->name);
    attn_status status =
        attn_params_parse(owner, t->table, t->size, spec[length] ? spec + length + 1 : "", &params, &rest);
    task_input named = *in;
    named.task = t->name;
    if (!status) status = t->fill(params, &named, w);
    w->answers = t->answers;
    if (!status && !(*canonical = text_format("%s:%s", t->name, rest))) status = ATTN_ENOMEM;
    attn_params_free(t->table, params);
    free(rest);
    return status;
  }
  return attn_fail(ATTN_EINVAL, "task '%s': expected text, copy, recall, track, frequent or sample", spec);
}
