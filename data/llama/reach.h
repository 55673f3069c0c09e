/* reach.h - how far back the layers of a model see, and plans of its attention with this as their mask.
 * Internal to data/llama/. */
#ifndef DATA_LLAMA_REACH_H
#define DATA_LLAMA_REACH_H

#include "data/llama/llama.h"

/* All keys, of a decoder before a query, or the model's window of them. */
typedef enum { REACH_ALL, REACH_WINDOW, REACHES } llama_reach;

/* The attention of n_q queries on n_kv keys; rows of all heads lie side by side, as the linear layers write
 * and read them. */
attn_problem llama_problem(const data_llama *, int64_t layer, int64_t n_q, int64_t n_kv);

/* Plans of the attention of all layers: one for each reach that some layer has, or, where they have sinks,
 * for each layer. */
typedef struct llama_plans {
  const data_llama *of;
  attn_plan **plan;
  int64_t count;
} llama_plans;

/* The problem of a layer, changed by what a plan is for. */
typedef void llama_plan_problem(const void *of, llama_reach, attn_problem *);

/* where: [layers, heads], a layer of zeros needs no plan; NULL: all do. To be freed by llama_plans_free,
 * failed or not. */
attn_status llama_plans_make(const data_llama *, const attn_spec *spec, const unsigned char *where,
                             int64_t n_q, int64_t n_kv, llama_plan_problem *, const void *of, llama_plans *);
void llama_plans_free(llama_plans *);
attn_plan *llama_plan_of(const llama_plans *, int64_t layer);
/* The most that a plan of them needs. */
size_t llama_plans_work(const llama_plans *);

#endif
