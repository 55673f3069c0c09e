/* apply.c - attnlab apply: attention of Q, K, V from files by a variant. */
#include "experiments/commands/commands.h"

#include <math.h>

#include "experiments/commands/operands.h"

static const cli_command parser = {
    .usage = "SPEC",
    .options = operands_options,
    .read = operands_other,
    .complete = operands_complete,
    .plugins = true,
    .doc = "Applies a variant to queries, keys and values from files.\v"
           "SPEC is a variant with parameters, such as tiled or longformer:window=256,global=4; see "
           "`attnlab list' and `attnlab describe VARIANT'.\n\n"
           "  attnlab apply tiled --q q.npy --k k.npy --v v.npy -o out.npy\n"
           "  attnlab apply performer:features=256 --in qkv.h5 --causal -o out.npy\n"
           "  attnlab apply tiled --in qkv.npz --layout bnhd --names query,key,value -o out.npy"};

/* What is not finite is warned of, once: of the inputs, or of the output where they are. */
static void warn_nonfinite(const data_qkv *in, const data_array *out) {
  char place[DATA_PLACE];
  if (data_qkv_find_nonfinite(in, place))
    fprintf(stderr, "attnlab apply: warning: %s, and so is what depends on it\n", place);
  else if (data_find_nonfinite(out, "output", place))
    fprintf(stderr, "attnlab apply: warning: %s, although q, k and v are finite\n", place);
}

static attn_status apply(operands *o) {
  const data_qkv *in = &o->qkv;
  attn_status status = operands_check(o);
  if (!status) status = operands_read(o);
  if (status) return status;
  o->problem.o = operands_stride(in);
  if ((status = operands_plan(o))) return status;
  reading_tell("attnlab apply", in);
  if ((status = operands_output(o, in->layout, in->d_v))) return status;
  if ((status = operands_run(o, in->v, o->out.at))) return status;
  warn_nonfinite(in, &o->out);
  return data_npy_write(o->output, &o->out);
}

int cmd_apply(int argc, char **argv) {
  operands o = {.needs_v = true, .scale = (double)NAN};
  cli_parse(&parser, argc, argv, &o);
  const attn_status status = apply(&o);
  operands_free(&o);
  return cli_report(argv[0], status);
}
