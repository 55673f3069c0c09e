/* apply.c - attnlab apply: attention of Q, K, V from files by a variant, and the gradients by them. */
#include "experiments/commands/commands.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/commands/operands.h"

enum { RESULTS = 3 }; /* by q, k and v */

typedef struct arguments {
  operands of;
  const char *grad, *to[RESULTS];
} arguments;

static const cli_option options[] = {
    OPERANDS_OPTIONS(of),
    {"grad", 0, "FILE", "The gradient of a loss by the result, .npy, of its shape: for --dq, --dk and --dv",
     CLI_SET(CLI_TEXT, grad)},
    {"dq", 0, "FILE", "The loss's gradient by the queries, .npy, of their shape", CLI_SET(CLI_TEXT, to[0])},
    {"dk", 0, "FILE", "... by the keys", CLI_SET(CLI_TEXT, to[1])},
    {"dv", 0, "FILE", "... by the values", CLI_SET(CLI_TEXT, to[2])},
    {0}};

static void complete(struct argp_state *state, void *input) {
  const arguments *a = input;
  operands_complete(state, input);
  if ((a->to[0] || a->to[1] || a->to[2]) != !!a->grad)
    argp_error(state, "--grad FILE goes with --dq, --dk or --dv, and they with it");
}

static const cli_command parser = {
    .usage = "SPEC",
    .options = options,
    .read = operands_other,
    .complete = complete,
    .plugins = true,
    .doc = "Applies a variant to queries, keys and values from files.\v"
           "SPEC is a variant with parameters, such as tiled or longformer:window=256,global=4; see "
           "`attnlab list' and `attnlab describe VARIANT'.\n\n"
           "  attnlab apply tiled --q q.npy --k k.npy --v v.npy -o out.npy\n"
           "  attnlab apply performer:features=256 --in qkv.h5 --causal -o out.npy\n"
           "  attnlab apply tiled --in qkv.npz --layout bnhd --names query,key,value -o out.npy\n"
           "  attnlab apply tiled --in qkv.h5 -o out.npy --grad do.npy --dq dq.npy --dk dk.npy --dv dv.npy"};

/* What is not finite is warned of, once: of the inputs, or of the output where they are. */
static void warn_nonfinite(const data_qkv *in, const data_array *out) {
  char place[DATA_PLACE];
  if (data_qkv_find_nonfinite(in, place))
    fprintf(stderr, "attnlab apply: warning: %s, and so is what depends on it\n", place);
  else if (data_find_nonfinite(out, "output", place))
    fprintf(stderr, "attnlab apply: warning: %s, although q, k and v are finite\n", place);
}

typedef struct gradients {
  data_array d_o, of[RESULTS]; /* of rank 0: not wanted */
  operands_backward back;
} gradients;

/* From [batch, heads, n, d] to [batch, n, heads, d], which is the array's shape. */
static attn_status turn(data_array *x) {
  const int64_t heads = x->shape[x->rank - 2], n = x->shape[x->rank - 3], d = x->shape[x->rank - 1];
  const size_t row = (size_t)d * attn_dtype_size(x->dtype);
  data_array to;
  const attn_status status = data_array_make(x->dtype, x->rank, x->shape, &to);
  for (int64_t at = 0; !status && at < data_array_count(x) / d; at++) {
    const int64_t b = at / n / heads, h = at / n % heads, i = at % n;
    memcpy((char *)to.at + (size_t)((b * n + i) * heads + h) * row, (char *)x->at + (size_t)at * row, row);
  }
  if (status) return status;
  data_array_free(x);
  *x = to;
  return ATTN_OK;
}

/* In the type of the output. */
static attn_status read_upstream(const arguments *a, data_array *out) {
  const data_array *o = &a->of.out;
  data_array given = {0};
  attn_status status = data_npy_read(a->grad, &given);
  if (status) return status;
  if (given.rank != o->rank || memcmp(given.shape, o->shape, (size_t)o->rank * sizeof *o->shape) != 0)
    status = attn_fail(ATTN_EINVAL, "%s: its shape is not that of the output", a->grad);
  if (!status && a->of.check_finite) status = data_check_finite(&given, a->grad);
  if (!status) status = data_array_make(o->dtype, o->rank, o->shape, out);
  if (!status) attn_convert(given.at, given.dtype, data_array_count(&given), o->dtype, out->at);
  data_array_free(&given);
  return status;
}

/* Refused before the work is done. */
static attn_status prepare(const arguments *a, gradients *g) {
  const data_qkv *in = &a->of.qkv;
  size_t bytes = 0;
  attn_status status = attn_plan_backward_size(a->of.plan, &bytes);
  if (!status) status = read_upstream(a, &g->d_o);
  for (int i = 0; i < RESULTS && !status; i++)
    if (a->to[i])
      status = operands_array(in, in->layout, i ? in->kv_heads : in->heads, i ? in->n_kv : in->n_q,
                              i == 2 ? in->d_v : in->d_qk, &g->of[i]);
  if (status) return status;
  g->back.work = malloc(bytes + 1);
  g->back.lse = malloc((size_t)(in->batch * in->heads * in->n_q) * sizeof *g->back.lse);
  g->back.to = (attn_gradients){.d_o = g->d_o.at,
                                .d_o_at = operands_stride(in),
                                .dq = g->of[0].at,
                                .dk = g->of[1].at,
                                .dv = g->of[2].at};
  return g->back.work && g->back.lse ? ATTN_OK : attn_fail(ATTN_ENOMEM, "out of memory for the gradients");
}

/* No output is an input, or another output. */
static attn_status check_files(arguments *a) {
  const char *files[] = {a->of.output, a->to[0], a->to[1], a->to[2]};
  attn_status status = operands_check(&a->of);
  for (int i = 0; i < 1 + RESULTS && !status; i++) {
    if (files[i]) status = operands_check_output(&a->of, files[i], a->grad);
    for (int j = 0; j < i && files[i] && !status; j++) {
      bool same = false;
      if (files[j]) status = output_same(files[i], files[j], &same);
      if (same) status = attn_fail(ATTN_EINVAL, "%s: two outputs in one file", files[i]);
    }
  }
  return status;
}

static attn_status apply(arguments *a, gradients *g) {
  operands *o = &a->of;
  const data_qkv *in = &o->qkv;
  attn_status status = check_files(a);
  if (!status) status = operands_read(o);
  if (status) return status;
  o->problem.o = operands_stride(in);
  if ((status = operands_plan(o))) return status;
  reading_tell("attnlab apply", in);
  if ((status = operands_array(in, in->layout, in->heads, in->n_q, in->d_v, &o->out))) return status;
  if (a->grad && (status = prepare(a, g))) return status;
  status = operands_run(o, in->v, o->out.at, a->grad ? &g->back : NULL);
  for (int i = 0; i < RESULTS && in->layout == DATA_BNHD && in->rank > 2 && !status; i++)
    if (a->to[i]) status = turn(&g->of[i]);
  if (status) return status;
  warn_nonfinite(in, &o->out);
  status = data_npy_write(o->output, &o->out);
  for (int i = 0; i < RESULTS && !status; i++)
    if (a->to[i]) status = data_npy_write(a->to[i], &g->of[i]);
  return status;
}

int cmd_apply(int argc, char **argv) {
  arguments a = {.of = {.needs_v = true, .scale = (double)NAN}};
  gradients g = {.back.work = NULL};
  cli_parse(&parser, argc, argv, &a);
  const attn_status status = apply(&a, &g);
  for (int i = 0; i < RESULTS; i++) data_array_free(&g.of[i]);
  data_array_free(&g.d_o);
  free(g.back.lse);
  free(g.back.work);
  operands_free(&a.of);
  return cli_report(argv[0], status);
}
