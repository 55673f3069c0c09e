/* value_texts.h - values of a configuration: one text or a list of texts, ranges expanded.
 *
 * A range is start:end, start:end:step or start:end:xfactor, end included if it is met exactly:
 * 0:4 is 0 1 2 3 4, 512:8Ki:x2 is 512 1024 2048 4096 8192, 0.5:1:0.25 is 0.5 0.75 1. */
#ifndef EXPERIMENTS_GRID_VALUE_TEXTS_H
#define EXPERIMENTS_GRID_VALUE_TEXTS_H

#include "experiments/grid/tree.h"

enum { VALUES_MAX = 4096 }; /* of one key, of one range */

typedef struct value_ints {
  int64_t *items;
  size_t count;
} value_ints;

typedef struct value_texts {
  char **items;
  size_t count;
} value_texts;

void value_ints_free(value_ints *);
void value_texts_free(value_texts *);
attn_status value_ints_add(value_ints *, int64_t);
attn_status value_texts_add(value_texts *, const char *);

bool value_real(const char *text, double *); /* finite */

/* Appends the node's values. Errors name the value's place and `what` it is a value of. Values outside
 * min ... max, descending or overlong ranges are EINVAL. */
attn_status values_read_ints(const tree_node *, const char *what, int64_t min, int64_t max, value_ints *);
/* The position of each text in `choices`, or an integer behind those positions, up to max; 0: there are
 * none. */
attn_status values_read_choices(const tree_node *, const char *what, const char *const *choices, int64_t max,
                                value_ints *);
/* As texts: ranges of integers or reals expanded by the parameter's type, everything else as written. */
attn_status values_read_param(const tree_node *, const attn_param *, value_texts *);

/* Exactly one value. */
attn_status values_read_int(const tree_node *, const char *what, int64_t min, int64_t max, int64_t *);
attn_status values_read_real(const tree_node *, const char *what, double min, double max, double *);

#endif
