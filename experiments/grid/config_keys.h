/* config_keys.h - tables of the keys of a configuration: what each holds, where, and what `attnlab help
 * config' says of it. */
#ifndef EXPERIMENTS_GRID_CONFIG_KEYS_H
#define EXPERIMENTS_GRID_CONFIG_KEYS_H

#include <stdio.h>

#include "experiments/grid/config.h"

typedef enum {
  KEY_TEXT,   /* const char * */
  KEY_TEXTS,  /* value_texts */
  KEY_INTS,   /* value_ints */
  KEY_INT,    /* int64_t */
  KEY_REAL,   /* double */
  KEY_REALS,  /* as its reader keeps them */
  KEY_YES_NO, /* bool */
  KEY_SCORE,  /* value_texts, as `--softcap' and the like */
  KEY_MASK,   /* value_texts, as `--mask' */
  KEY_MAP,    /* a section, or read by a function of its own */
} config_key_type;

typedef struct config_key {
  const char *section, *name; /* section "" is the top level */
  config_key_type type;
  size_t offset; /* in the struct that the keys fill */
  double min, max;
  const char *preset; /* how the help shows it; "": it is needed; NULL: what the struct holds beforehand */
  const char *help;
} config_key;

/* The key of that name in the section; NULL: none. */
const config_key *config_key_find(const config_key *, size_t count, const char *section, const char *name);
/* EINVAL: "unknown key ...", with the near and the known ones of the section, axes among them. */
attn_status config_key_unknown(const tree_node *key, const char *section, const config_key *, size_t count);
/* A line for each key of the section, and of the sections in it. defaults: the struct, filled with its
 * presets. */
void config_keys_print(FILE *, const char *section, const config_key *, size_t count, const void *defaults);

/* All keys of a sweep, with the sections. */
void config_print_help(FILE *);

#endif
