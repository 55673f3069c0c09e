/* operands.h - the arguments that apply and matrix share: a variant, its tensors, mask, scale and output
 * file. */
#ifndef EXPERIMENTS_COMMANDS_OPERANDS_H
#define EXPERIMENTS_COMMANDS_OPERANDS_H

#include "attn.h"
#include "data/data.h"
#include "data/support/output.h"
#include "experiments/commands/cli.h"

typedef struct operands {
  bool needs_v; /* set before parsing; without it --v is refused */
  const char *spec, *q, *k, *v, *in, *output;
  bool causal, check_finite, has_dtype;
  attn_dtype dtype;
  double scale; /* NaN: 1/sqrt(d) */
  int64_t *kv_len, kv_len_count;
  int threads; /* 0: OpenMP's default */
} operands;

/* The options, read and complete of a command whose arguments are an operands (scale is NaN before). */
extern const cli_option operands_options[];
void operands_other(struct argp_state *, void *operands, const char *option, char *text);
void operands_complete(struct argp_state *, void *operands);

/* Whether the .npy output may be written: it is none of the inputs. */
attn_status operands_check_output(const operands *);
/* The same of any output: none of the inputs, and none of the files that the spec names. */
attn_status operands_check_spec(const char *output, const output_kind *, const char *const *inputs,
                                size_t count, const char *spec);

/* Reads the tensors. Converts and checks them as the options say. */
attn_status operands_read(const operands *, data_qkv *);

/* The problem of these tensors under the options. Also checks kv_len against it and stretches a single length
 * over the batch: *kv_len is NULL without the option, else to be freed. */
attn_status operands_problem(const operands *, const data_qkv *, attn_problem *, int64_t **kv_len);

/* A plan and its work memory (free; NULL if it needs none). */
attn_status operands_plan(const operands *, const attn_problem *, attn_plan **, void **work);

/* An uninitialised array [..., n_q, columns] of q's rank. */
attn_status operands_output(const data_qkv *, int64_t columns, data_array *);

void operands_free(operands *);

#endif
