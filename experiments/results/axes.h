/* axes.h - the axes of an experiment: the numbers, choices and texts that identify a run; axes.def lists
 * them. */
#ifndef EXPERIMENTS_RESULTS_AXES_H
#define EXPERIMENTS_RESULTS_AXES_H

#include <stdio.h>

#include "attn.h"

typedef enum axis_id {
#define AXIS(name, ...) AXIS_##name,
#include "experiments/results/axes.def"
  AXES
} axis_id;

typedef enum text_axis_id {
#define TEXT_AXIS(name, ...) TEXT_AXIS_##name,
#include "experiments/results/axes.def"
  TEXT_AXES
} text_axis_id;

/* The value of one of "grid" is in canonical form (data.h), "": none, and then no part of keys and titles. */
struct text_axis {
  const char *name;    /* in a key, a job and `exclude:` */
  const char *section; /* of the configuration: "grid", "" for its top level; NULL: the machine gives it */
};

extern const struct text_axis text_axes[TEXT_AXES];

/* The axis of "grid" with this name; TEXT_AXES: none has it. */
text_axis_id text_axis_find(const char *name);
bool text_axis_in_grid(text_axis_id);

typedef enum { CACHE_WARM, CACHE_COLD } cache_state;
enum { ROWS_AUTO, ROWS_ALL }; /* or as many, drawn */

/* When a title names the axis. Runs that differ only in an axis without a title share a table. */
typedef enum { AXIS_NEVER, AXIS_UNLESS_DEFAULT, AXIS_ALWAYS } axis_shown;

/* Values are integers; those of a choice are positions in its list of names, behind which there may be
 * numbers. */
struct axis {
  const char *name;    /* in a configuration, a key and a job */
  const char *section; /* of the configuration: "grid", "" for its top level; NULL: it follows from others */
  bool yes_no;         /* of choices: the title is "causal" or "not causal" */
  const char *const *choices; /* names, NULL-terminated; NULL: an integer */
  int64_t min, max;
  int64_t preset;  /* if a configuration sets none; below min: it must set one */
  axis_id same_as; /* the axis whose value a 0 stands for; AXES: none */
  /* What precedes the value in a run's key, "": it is no part of the key; NULL: " name=", and only where the
   * value is not the preset, so that older keys stay what they are. */
  const char *key;
  axis_shown shown;  /* in titles */
  const char *title; /* @ is the value; a plural s is dropped after 1 */
  const char *menu;  /* label where the report page lets its reader choose a value; NULL: among the rest */
  const char *help;  /* what it is, in a few words */
};

extern const struct axis axes[AXES];

extern const char *const yes_no_names[]; /* NULL-terminated, as are the others */
extern const char *const dtype_names[];  /* by attn_dtype */
extern const char *const cache_state_names[];
extern const char *const rows_names[];

/* May it be a number, besides the names that values have? */
bool axis_numbers(axis_id);

/* The axis that a configuration sets under this name (in this section; NULL: any); AXES if there is none. */
axis_id axis_find(const char *section, const char *name);

enum { AXIS_TEXT = 32 };
/* A value as configurations and keys write it. */
const char *axis_print(axis_id, int64_t value, char text[AXIS_TEXT]);

/* Writes the axis's part of a key; reads it again, from a key behind its dataset: false if there is no such
 * part. */
void axis_write_key(FILE *, axis_id, int64_t value);
bool axis_read_key(axis_id, const char *key, int64_t *value);

/* Has the axis its default value: the preset, or that of the axis that it follows? */
bool axis_default(axis_id, const int64_t values[AXES]);

/* "d = 64, 4 heads, not causal, f32": what the runs of a table have in common; without the axes that have a
 * menu if rest is set. To be freed; NULL: no memory. */
char *axes_title(const int64_t values[AXES], bool rest);

#endif
