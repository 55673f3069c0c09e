/* reach.h - how far back the layers of a model see, and plans of its attention with this as their mask.
 * Internal to data/llama/. */
#ifndef DATA_LLAMA_REACH_H
#define DATA_LLAMA_REACH_H

#include "data/llama/llama.h"

/* All keys, of a decoder before a query, or the model's window of them. */
typedef enum { REACH_ALL, REACH_WINDOW, REACHES } llama_reach;

llama_reach llama_reach_of(const data_llama_config *, int64_t layer);

/* The attention of n_q queries on n_kv keys; rows of all heads lie side by side, as the linear layers write
 * and read them. */
attn_problem llama_problem(const data_llama *, int64_t n_q, int64_t n_kv);

/* Whether some layer has it among those where heads are named (where [layers, heads]; NULL: all). */
bool llama_reach_occurs(const data_llama_config *, llama_reach, const unsigned char *where);

/* A plan of the variant for each reach that occurs where it replaces heads; NULL for others. scale 0: the
 * model's. *seen must live as long as they do. */
attn_status llama_reach_plans(const data_llama *, const llama_seen *seen, const attn_spec *spec,
                              const unsigned char *where, double scale, int64_t n_q, int64_t n_kv,
                              attn_plan *plan[REACHES]);
void llama_reach_destroy(attn_plan *plan[REACHES]);
/* The most that a plan of them needs. */
size_t llama_reach_work(attn_plan *const plan[REACHES]);

#endif
