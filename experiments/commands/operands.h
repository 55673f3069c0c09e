/* operands.h - the arguments that apply and matrix share: a variant, its tensors, mask, scale and output
 * file; and those for scores and masks that other commands have, too. */
#ifndef EXPERIMENTS_COMMANDS_OPERANDS_H
#define EXPERIMENTS_COMMANDS_OPERANDS_H

#include "attn_gradients.h"
#include "data/data.h"
#include "data/support/output.h"
#include "experiments/commands/cli.h"

/* What is computed of Q, K and V: the transforms of the scores, and the mask (data.h, part 5). */
typedef struct target_options {
  const char *softcap, *leaky, *t5, *bias, *sink, *mask; /* NULL: not given */
  bool alibi;
} target_options;

/* Rows of a command's options; member: a target_options in its arguments. */
#define TARGET_OPTIONS(member)                                                                             \
  {"softcap", 0, "CAP", "Scores s become CAP tanh(s / CAP)", CLI_SET(CLI_TEXT, member.softcap)},           \
      {"leaky", 0, "SLOPE", "Scores s below 0 become SLOPE s", CLI_SET(CLI_TEXT, member.leaky)},           \
      {"alibi", 0, NULL, "Add ALiBi's bias, -slope(head) |distance|", CLI_SET(CLI_FLAG, member.alibi)},    \
      {"t5", 0, "STEP|FILE",                                                                               \
       "Add a bias for T5's bucket of the distance (32, the last from 128 on): -STEP for each "            \
       "bucket further away, or one each from .npy [32,heads]",                                            \
       CLI_SET(CLI_TEXT, member.t5)},                                                                      \
      {"bias", 0, "FILE",                                                                                  \
       "Add a bias to the scores, .npy: [n_q,n_kv], [heads,n_q,n_kv] or [batch,...]; -inf masks",          \
       CLI_SET(CLI_TEXT, member.bias)},                                                                    \
      {"sink", 0, "Z|FILE", "Add one more logit of value 0 to each row: Z, or one per head from .npy",     \
       CLI_SET(CLI_TEXT, member.sink)},                                                                    \
  {                                                                                                        \
    "mask", 0, "MASK|FILE",                                                                                \
        "prefix:SIZE, block_causal:SIZE, documents:SIZE or documents:0+30+64 (where each begins), "        \
        "or a mask [n_q,n_kv] or [heads,...] of 0 and 1 in .npy, or a graph, CSR, in HDF5 or safetensors", \
        CLI_SET(CLI_TEXT, member.mask)                                                                     \
  }

bool target_given(const target_options *); /* any of them */
/* The score and the mask of these options as a configuration has them; "" of none. To be freed. */
attn_status target_texts(const target_options *, char **score, char **mask);

/* data_target_make with them. */
attn_status target_make(const target_options *, attn_problem *, data_target **);

/* Which tensors are read, and how. */
typedef struct reading_options {
  data_reading from;
  bool has_dtype; /* they are converted to this type */
  attn_dtype dtype;
} reading_options;

/* Rows of a command's options; member: a reading_options in its arguments. Those that are read are for
 * reading_option. */
#define READING_OPTIONS(member)                                                                             \
  {"in", 0, "FILE", "Queries, keys and values: tensors q, k, v of an HDF5, safetensors or .npz file",       \
   CLI_SET(CLI_TEXT, member.from.in)},                                                                      \
      {"names", 0, "Q,K,V", "Other names of the tensors of --in, such as query,key,value",                  \
       CLI_SET(CLI_TEXT, member.from.names)},                                                               \
      {"q", 0, "FILE",                                                                                      \
       "Or queries from .npy (f2, f4, f8; or qkv.npz:NAME): [n,d], [heads,n,d] or [batch,heads,n,d]",       \
       CLI_SET(CLI_TEXT, member.from.q)},                                                                   \
      {"k", 0, "FILE", "Keys; fewer heads than the queries are shared among them",                          \
       CLI_SET(CLI_TEXT, member.from.k)},                                                                   \
      {"v", 0, "FILE", "Values", CLI_SET(CLI_TEXT, member.from.v)},                                         \
      {"extra", 0, "NAME=FILE",                                                                             \
       "A tensor that the variant reads besides, such as a recurrence's decay (logarithms), from .npy: "    \
       "[heads,n], [heads,n,columns], or a batch axis before them (index_k: without heads); an HDF5 file "  \
       "of "                                                                                                \
       "--in may have them, too",                                                                           \
       CLI_READ},                                                                                           \
      {"layout", 0, "bhnd|bnhd", "Axes of the arrays: [batch,heads,n,d], or [batch,n,heads,d] with bnhd",   \
       CLI_READ},                                                                                           \
  {                                                                                                         \
    "dtype", 0, "f32|f64|bf16",                                                                             \
        "Compute and write in this precision; bf16: two-byte elements (V2, uint16) are bfloat16, computed " \
        "in f32",                                                                                           \
        CLI_READ                                                                                            \
  }

/* Reads one of these CLI_OTHER options; false: the option is another one. */
bool reading_option(struct argp_state *, reading_options *, const char *option, const char *text);
void reading_complete(struct argp_state *, const reading_options *, bool needs_v);
attn_status reading_read(const reading_options *, data_qkv *);
/* Prints on stderr how the tensors were read, and a warning where they look transposed. */
void reading_tell(const char *command, const data_qkv *);

typedef struct operands {
  bool needs_v; /* set before parsing; without it --v is refused */
  const char *spec, *output;
  attn_spec *variant; /* spec, once it is parsed */
  reading_options reading;
  bool causal, check_finite;
  double scale; /* NaN: 1/sqrt(d) */
  int64_t *kv_len, kv_len_count;
  int threads; /* 0: OpenMP's default */
  target_options target;
  /* Of the run, released by operands_free. */
  data_qkv qkv;
  attn_problem problem;
  data_target *made; /* what the problem points to */
  int64_t *each_len; /* kv_len stretched over the batch, or NULL */
  attn_plan *plan;
  void *work; /* of the plan; NULL if it needs none */
  data_array out;
} operands;

/* Rows of a command's options; member: an operands, the first of its arguments (scale is NaN before). And its
 * read and complete, below. */
#define OPERANDS_OPTIONS(member)                                                                            \
  {NULL, 0, NULL, "variant", CLI_NEED(member.spec, "SPEC, the variant,")}, READING_OPTIONS(member.reading), \
      {"output", 'o', "FILE",                                                                               \
       "The result, .npy, with q's rank and layout: f8 if q is f8 (or --dtype f64), else f4",               \
       CLI_SET(CLI_TEXT, member.output)},                                                                   \
      {"causal", 0, NULL, "Query i sees key j iff j <= i + n_kv - n_q", CLI_SET(CLI_FLAG, member.causal)},  \
      TARGET_OPTIONS(member.target),                                                                        \
      {"kv-len", 0, "L,...", "Keys that exist: one number, or one per batch entry", CLI_READ},              \
      {"scale", 0, "S", "Scale of the scores (default 1/sqrt(d))", CLI_SET(CLI_REAL, member.scale)},        \
      {"threads", 0, "N", "OpenMP threads", CLI_SET(CLI_THREADS, member.threads)}, {                        \
    "check-finite", 0, NULL, "Refuse inputs with NaN or infinite elements",                                 \
        CLI_SET(CLI_FLAG, member.check_finite)                                                              \
  }
void operands_other(struct argp_state *, void *operands, const char *option, char *text);
void operands_complete(struct argp_state *, void *operands);

/* Parses the spec, before any file is read, because a misspelt variant is the commoner mistake. Then checks
 * that the .npy output may be written: it must not be one of the inputs. */
attn_status operands_check(operands *);
/* The same of another output; more: one more file that it must not be. */
attn_status operands_check_output(const operands *, const char *output, const char *more);
/* The same for any output: it must not be one of the inputs, nor a file that the spec names. */
attn_status operands_check_spec(const char *output, const output_kind *, const char *const *inputs,
                                size_t count, const attn_spec *);

/* Reads the tensors, converted and checked as the options say, and makes the problem of them under the
 * options. Also checks kv_len against it. */
attn_status operands_read(operands *);

/* A plan of the problem, and its work memory. */
attn_status operands_plan(operands *);

/* What gradients take besides: room for the log-sum-exps, and work memory of the backward pass. */
typedef struct operands_backward {
  double *lse;
  void *work;
  attn_gradients to;
} operands_backward;

/* Runs the plan on these values, and the backward pass unless that is NULL. */
attn_status operands_run(const operands *, const void *v, void *o, const operands_backward *);

/* Uninitialised, of q's rank and type: [..., heads, n, columns], or [n, heads, columns]. */
attn_status operands_array(const data_qkv *, data_layout, int64_t heads, int64_t n, int64_t columns,
                           data_array *);
/* Strides of the output in the layout of the input. */
attn_stride operands_stride(const data_qkv *);

void operands_free(operands *);

#endif
