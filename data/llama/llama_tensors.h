/* llama_tensors.h - finding a model's tensors in its files. Internal to data/llama/. */
#ifndef DATA_LLAMA_LLAMA_TENSORS_H
#define DATA_LLAMA_LLAMA_TENSORS_H

#include "data/llama/llama.h"

enum { LLAMA_NAME = 160, LLAMA_PART = 64 }; /* bytes of names: whole, and in a layer */

/* many: how many of them a tensor has, 0: it is one; columns 0: a vector; rows 0: any number. Files of a
 * model without its head leave out the prefix. EINVAL: it is not there, or of another shape. */
attn_status llama_find(const data_llama *, const char *name, int64_t many, int64_t rows, int64_t columns,
                       const tensor **out);
/* EUNSUPPORTED: elements that are not floating point. */
attn_status llama_check_format(const tensor *);

attn_status llama_find_layer(const data_llama *, int64_t index, llama_layer *);
/* How many `one` of a layer has. */
int64_t llama_count_of_one(const data_llama *, int64_t index);

#endif
