/* config.h - an experiment as its YAML file describes it.
 *
 *   schema: 1
 *   grid:
 *     n: [512:8192:x2]
 *     causal: [no, yes]
 *     seed: 0:2
 *   variants: [full, tiled: {block_q: [32, 64]}, "longformer:window=256"]
 *   datasets: [gaussian: {std_q: [1, 4]}, captured: {file: qkv.h5}]
 *   exclude:  [{variant: full, n: [16Ki, 32Ki]}, {variant: tiled, block_q: 32, dataset: captured}]
 *   budget: {time: 60, memory: 8Gi}
 *
 * `attnlab help config' lists all keys, from the tables that read them (config.c, settings.def,
 * results/axes.def). Only schema, grid.n, variants and datasets are needed. Every value may be one or a list,
 * integers and reals may be ranges (value_texts.h). Several parameters of one item make a cross product. */
#ifndef EXPERIMENTS_GRID_CONFIG_H
#define EXPERIMENTS_GRID_CONFIG_H

#include "experiments/grid/value_texts.h"
#include "experiments/instruments/timing.h"
#include "experiments/results/axes.h"

/* A variant or dataset with one value for each parameter that its item names, parsed and so known to be
 * valid. */
typedef struct config_spec {
  char *text;       /* "name:parameter=value,..." as written */
  attn_spec *spec;  /* of a variant; NULL: of a dataset */
  const char *seed; /* the parameter of a random variant that the grid sets, or NULL */
} config_spec;

typedef struct config_specs {
  config_spec *items;
  size_t count;
} config_specs;

/* A partial row: a run is excluded if each named column has one of its values. */
typedef struct config_filter {
  value_texts names;   /* columns, or parameters of the variants that the filter names */
  value_texts *values; /* of each name */
} config_filter;

typedef struct config {
  union { /* the values of each axis; none where it is not configured */
    value_ints axis[AXES];
    struct {
#define AXIS(name, ...) value_ints name;
#include "experiments/results/axes.def"
    };
  };
  bool omitted[AXES]; /* the configuration does not name it: the value is its preset */
  config_specs variants, datasets;
  value_texts scores, masks; /* canonical; "" is none */
  config_filter *exclude;
  size_t exclude_count;
  timing_options timing;
  double budget_time;    /* seconds of a run */
  int64_t budget_memory; /* bytes of a run's process */
  bool nulls;
  int64_t maps; /* largest n that gets a map */
  char *text;   /* the file, and a comment line for each override */
} config;

/* Reads the file, applies the overrides "grid.n=1Ki,2Ki" in order and checks everything that can be checked
 * without running. EINVAL and ENOTFOUND name file:line:column, EFOREIGN the file. Plug-ins must be loaded
 * before. */
attn_status config_load(const char *path, const char *const *overrides, size_t count, config **);
/* The same from memory; source stands for the file in messages. */
attn_status config_parse(const char *source, const char *text, size_t length, const char *const *overrides,
                         size_t count, config **);
void config_free(config *);

/* The value of a column of a run as text. */
typedef const char *config_lookup(const void *context, const char *name);
/* Does a filter exclude the run that the lookup describes? spec: its parameters, which compare by value (1Ki
 * equals 1024); NULL: it has none. */
bool config_excludes(const config *, const attn_spec *, config_lookup *, const void *context);

#endif
