/* apply.c - attnlab apply: attention of Q, K, V from files by a variant. */
#include "experiments/commands/commands.h"

#include <math.h>
#include <stdlib.h>

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
  data_qkv qkv = {0};
  attn_problem problem;
  data_target *target = NULL;
  int64_t *kv_len = NULL;
  attn_plan *plan = NULL;
  void *work = NULL;
  data_array out = {0};
  attn_status status = operands_check(o);
  if (status) goto out;
  if ((status = operands_read(o, &qkv))) goto out;
  if ((status = operands_problem(o, &qkv, &problem, &target, &kv_len))) goto out;
  problem.o = operands_stride(&qkv);
  if ((status = operands_plan(o, &problem, &plan, &work))) goto out;
  reading_tell("attnlab apply", &qkv);
  if ((status = operands_output(&qkv, qkv.layout, qkv.d_v, &out))) goto out;
  if ((status = attn_plan_execute(plan, qkv.q, qkv.k, qkv.v, kv_len, out.at, work))) goto out;
  warn_nonfinite(&qkv, &out);
  status = data_npy_write(o->output, &out);
out:
  data_array_free(&out);
  free(work);
  attn_plan_destroy(plan);
  data_target_free(target);
  free(kv_len);
  data_qkv_free(&qkv);
  return status;
}

int cmd_apply(int argc, char **argv) {
  operands o = {.needs_v = true, .scale = (double)NAN};
  cli_parse(&parser, argc, argv, &o);
  const attn_status status = apply(&o);
  operands_free(&o);
  return cli_report(argv[0], status);
}
