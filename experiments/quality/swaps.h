/* swaps.h - which heads of a model are replaced by what: the runs of an evaluation. */
#ifndef EXPERIMENTS_QUALITY_SWAPS_H
#define EXPERIMENTS_QUALITY_SWAPS_H

#include "data/data.h"

/* The null that gives each query the mean of the values it may see: exact attention whose scores all are the
 * same. */
#define SWAP_MEAN "null_mean_v"

/* As a user writes them; specs are of variants, or SWAP_MEAN, or several variants with the layers of each:
 * "topk:k=64@0-1;streaming@2,3", where the layers that none names stay exact. "evict:budget=128@pyramid=20"
 * is a variant whose budget falls with the layer (PyramidKV: Cai et al. 2024, arXiv:2406.02069): with K the
 * budget less `recent`, which every layer keeps besides, the last layer has K / 20, the first 2 K - K / 20,
 * and those between are on a line, rounded to the nearest: K on average. Where the first would have more
 * than n, it has n, and the last what that leaves. "@FILE" is a spec that is the line of a file. Sets:
 * "all", "each" (a run for each member), or numbers and ranges, 0,3-5. phase: "both", "prefill:M" or
 * "decode:M", M the last queries of a window of n. */
typedef struct swap_request {
  const char *const *specs;
  int64_t count;
  const char *layers, *heads, *phase;
  const double *mixes; /* a run for each */
  int64_t mix_count;
  int64_t n;
  const char *const *caches; /* further specs: a policy that names no prompt has this one */
  int64_t cache_count, prompt;
} swap_request;

/* The parameter that buys accuracy, of the first term that has one; NULL: none has. */
const char *swap_budget_name(const attn_spec *);

typedef struct swap_run {
  data_llama_swap swap;        /* owns its text, its bitmap and its chain */
  char *spec, *layers, *heads; /* spec: canonical */
  const char *phase;
} swap_run;

typedef struct swap_list {
  swap_run *runs;
  int64_t count;
} swap_list;

/* EINVAL names the spec, or the set and what was expected: a layer or a head that the model does not have. */
attn_status swap_list_make(const swap_request *, const data_llama_config *, swap_list *out);
/* Leaves every shards-th run, from number first on, counted modulo shards. */
void swap_list_share(swap_list *, int64_t first, int64_t shards);
void swap_list_free(swap_list *);

#endif
