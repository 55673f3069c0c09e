/* quantised.h - the quantised formats of tensors in GGUF files. Internal to data/. */
#ifndef DATA_FORMATS_QUANTISED_H
#define DATA_FORMATS_QUANTISED_H

#include "data/formats/tensor.h"

extern const tensor_format tensor_q8_0, tensor_q4_0, tensor_q2_k, tensor_q4_k, tensor_q5_k,
    tensor_q6_k;                           /* quantised.c */
extern const tensor_format tensor_iq2_xxs; /* quantised_iq2.c */

#endif
