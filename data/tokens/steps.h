/* steps.h - what a text goes through before a model encodes it: normalisers rewrite it, pre-tokenisers cut
 * it, and some do both. Each is a list of steps. Internal to data/. */
#ifndef DATA_TOKENS_STEPS_H
#define DATA_TOKENS_STEPS_H

#include "data/tokens/characters.h"
#include "data/tokens/charsmap.h"
#include "data/tokens/regex.h"

enum { STEPS_MAX = 32 };

/* What becomes of the matches of a pattern: pieces, nothing, part of the piece before or behind, or one piece
 * with the matches next to them. */
typedef enum cut_rule {
  CUT_ISOLATED,
  CUT_REMOVED,
  CUT_WITH_PREVIOUS,
  CUT_WITH_NEXT,
  CUT_CONTIGUOUS
} cut_rule;

/* Before which texts a step puts its own: all, those that do not begin with it, or of these the first. */
typedef enum prepend_rule { PREPEND_ALWAYS, PREPEND_UNLESS_THERE, PREPEND_TO_FIRST } prepend_rule;

typedef struct step step;
typedef struct passage passage;

/* One step, and those members that it reads. */
struct step {
  attn_status (*apply)(const step *, const passage *rest, const uint8_t *text, size_t bytes);
  pattern *cuts;
  char *text;
  charsmap *map;
  character_map *each;
  const struct unicode_normalization_form *form;
  cut_rule rule;
  prepend_rule where;
  bool invert; /* what lies between matches is the match */
  bool left, right;
};

typedef struct step_list {
  step item[STEPS_MAX];
  int count;
} step_list;

/* Takes what the last step leaves: valid UTF-8, not empty. first: it begins where the text began that was
 * given to the first step, and that was the first. */
typedef attn_status step_finish(void *context, const uint8_t *text, size_t bytes, bool first);

/* A text on its way. */
struct passage {
  const step *next, *end;
  pattern_work *match;
  step_finish *finish;
  void *context;
  bool first; /* as of step_finish */
};

/* Takes the steps, each on what the one before it left. */
attn_status steps_run(const step_list *, pattern_work *, step_finish *, void *context, const uint8_t *text,
                      size_t bytes, bool first);
void steps_free(step_list *);

/* Appends a step, which owns *s then, also on failure. cuts: the regular expression of its pattern, or NULL.
 * EUNSUPPORTED: there are STEPS_MAX already; and as pattern_make. */
attn_status steps_add(step_list *, const char *place, step s, const char *cuts);

/* The steps: what each does with the members that it reads. */
attn_status step_split(const step *, const passage *, const uint8_t *, size_t);    /* cuts, rule, invert */
attn_status step_replace(const step *, const passage *, const uint8_t *, size_t);  /* cuts by text */
attn_status step_prepend(const step *, const passage *, const uint8_t *, size_t);  /* text, where */
attn_status step_strip(const step *, const passage *, const uint8_t *, size_t);    /* left, right */
attn_status step_each(const step *, const passage *, const uint8_t *, size_t);     /* each character */
attn_status step_form(const step *, const passage *, const uint8_t *, size_t);     /* Unicode's form */
attn_status step_charsmap(const step *, const passage *, const uint8_t *, size_t); /* map */
attn_status step_letters(const step *, const passage *, const uint8_t *, size_t);  /* bytes as letters */

#endif
