/* quantised.h - the quantised formats of tensors in GGUF files, and floating point of 8 bits. Internal to
 * data/. */
#ifndef DATA_FORMATS_QUANTISED_H
#define DATA_FORMATS_QUANTISED_H

#include "data/formats/tensor.h"

extern const tensor_format tensor_q8_0, tensor_q4_0, tensor_q2_k, tensor_q4_k, tensor_q5_k,
    tensor_q6_k;                                                               /* quantised.c */
extern const tensor_format tensor_q4_1, tensor_q5_0, tensor_q5_1, tensor_q3_k; /* quantised_offset.c */
extern const tensor_format tensor_iq4_nl, tensor_iq4_xs, tensor_mxfp4, tensor_tq1_0, tensor_tq2_0,
    tensor_e4m3, tensor_e5m2;              /* quantised_values.c */
extern const tensor_format tensor_iq2_xxs; /* quantised_iq2.c */

#endif
