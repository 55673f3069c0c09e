/* sweep.h - a sweep: the runs of a configuration that are not in the journal yet, from first block to last
 * snapshot. */
#ifndef EXPERIMENTS_RUNNER_SWEEP_H
#define EXPERIMENTS_RUNNER_SWEEP_H

#include "experiments/grid/config.h"
#include "experiments/grid/grid.h"

typedef struct sweep_options {
  const char *config_path;
  const char *output;           /* NAME.h5 */
  const char *const *overrides; /* --set */
  size_t override_count;
  char *const *plugins;  /* NULL-terminated; loaded already */
  const char *only;      /* runs whose key has a part like this glob, or NULL */
  int64_t shard, shards; /* 0, 1: all */
  int64_t threads;       /* in place of the configuration's, 0: none given */
  bool retry_failed;     /* also runs that failed, crashed, timed out, ran out of memory or were skipped */
  bool keep_stale;       /* rows of another build count */
  bool dry_run, json;    /* json: of the dry run */
  bool no_hostname, quiet;
  int argc; /* the command line, for the record */
  char *const *argv;
} sweep_options;

typedef struct sweep_outcome {
  bool started; /* the arguments are valid: any failure has another cause */
  int signal;   /* that stopped it; 0: none */
  /* Runs of the whole journal, where nothing stopped it. Where none was measured, all have failed. */
  size_t violations, failures;
} sweep_outcome;

/* Everything that `attnlab run` does after its arguments are read; its progress goes to stderr. EEXIST:
 * another sweep writes to the same journal. */
attn_status sweep_run(const sweep_options *, sweep_outcome *);

/* The journal or results file of a shard: "x.h5" gives "x.jsonl", or "x.2-of-8.h5" and "x.2-of-8.jsonl" if
 * shards > 1. *path: to be freed. EINVAL if output does not end in .h5. */
attn_status sweep_path(const char *output, int64_t shard, int64_t shards, const char *extension, char **path);

#endif
