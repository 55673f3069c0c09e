/* request.h - an evaluation as a user asks for it: a model, a text, tasks, lengths, variants; and the
 * baselines that it is read against. */
#ifndef EXPERIMENTS_QUALITY_REQUEST_H
#define EXPERIMENTS_QUALITY_REQUEST_H

#include "experiments/quality/passes.h"

#define QUALITY_MIX 1e3 /* the largest share of a replacement, of either sign */

typedef struct quality_request {
  data_ids_request ids; /* the model, and what its windows are taken from */
  const char *const *specs, *const *tasks;
  const char *const *caches; /* specs whose policies give up keys from the first scored position on */
  int64_t spec_count, cache_count, task_count;
  attn_int_list n;
  const char *layers, *heads, *phase;
  int64_t windows, seed;
  const double *mixes; /* a run for each; the baselines have mix 1 */
  int64_t mix_count;
  double margin, limit, kl_budget;
  bool bare;             /* without the baselines */
  bool keep_stale;       /* runs of the file that another build or plug-in made */
  int64_t shard, shards; /* every shards-th run, and the windows as dense as those; shards 0 or 1: all */
} quality_request;

/* The runs of a task and a length, when they are done: those of the variants first, then the baselines':
 * exact attention summed in another order (full), the mean of the values (null_mean_v), and of each density
 * that a variant has the window of as many keys. */
typedef attn_status quality_done(void *to, const quality_set *, const quality_record *const *runs,
                                 size_t count);

/* Adds the runs to the store. EINVAL, EUNSUPPORTED: what was asked for cannot be, in one
 * line. */
attn_status quality_answer(const quality_request *, quality_store *, quality_done *done, void *to);

#endif
