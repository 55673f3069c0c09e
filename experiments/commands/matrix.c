/* matrix.c - attnlab matrix: the weights a variant implies.
 *
 * Every variant is linear in V, o = P(Q, K) V, so V = I reads P off. The columns of I are fed in panels,
 * written straight to their place in P by strides; the last panel overlaps its neighbour rather than have
 * another width. */
#include "experiments/commands/commands.h"

#include <math.h>
#include <stdlib.h>

#include "attn_variant.h"
#include "experiments/commands/operands.h"

enum { PANEL = 256 };

typedef struct arguments {
  operands of;
} arguments;

static const cli_option options[] = {OPERANDS_OPTIONS(of), {0}};

static const cli_command parser = {
    .usage = "SPEC",
    .options = options,
    .read = operands_other,
    .complete = operands_complete,
    .plugins = true,
    .doc = "Computes the weights that a variant gives to each key, [..., n, n_kv], from queries and keys.\v"
           "Heads stand before positions, whatever the layout of the input. "
           "Rows of an exact variant are its softmax rows; those of an approximation need not sum to 1.\n\n"
           "  attnlab matrix linformer:k=64 --in qkv.h5 -o p.npy"};

static void put_diagonal(const data_qkv *qkv, int64_t first, int64_t width, double value, void *panel) {
  for (int64_t slice = 0; slice < qkv->batch * qkv->kv_heads; slice++)
    for (int64_t c = 0; c < width; c++) {
      const int64_t at = (slice * qkv->n_kv + first + c) * width + c;
      attn_set(panel, at, qkv->dtype, value);
    }
}

static attn_status compute_weights(operands *o, int64_t width, void *panel) {
  const data_qkv *qkv = &o->qkv;
  const size_t element = attn_dtype_size(qkv->dtype);
  o->problem.d_v = width;
  o->problem.o.row = qkv->n_kv;
  o->problem.o.head = qkv->n_q * qkv->n_kv;
  o->problem.o.batch = qkv->heads * qkv->n_q * qkv->n_kv;
  attn_view view;
  attn_status status = operands_plan(o);
  if (!status) status = attn_plan_inspect(o->plan, &view);
  if (status) return status;
  const char *why = attn_exempt(view.exempt, ATTN_EXEMPT_VALUES);
  if (why && !(view.store && !view.store->v_scheme.decode))
    return attn_fail(ATTN_EUNSUPPORTED, "%s: no weights but with its values: %s", o->spec, why);
  reading_tell("attnlab matrix", qkv);
  for (int64_t next = 0; next < qkv->n_kv; next += width) {
    const int64_t first = next + width <= qkv->n_kv ? next : qkv->n_kv - width;
    void *at = (char *)o->out.at + (size_t)first * element;
    put_diagonal(qkv, first, width, 1, panel);
    if ((status = operands_run(o, panel, at, NULL))) return status;
    put_diagonal(qkv, first, width, 0, panel);
  }
  return ATTN_OK;
}

static attn_status matrix(operands *o) {
  const data_qkv *qkv = &o->qkv;
  attn_status status = operands_check(o);
  if (!status) status = operands_read(o);
  if (!status) status = operands_array(qkv, DATA_BHND, qkv->heads, qkv->n_q, qkv->n_kv, &o->out);
  if (status) return status;
  const int64_t width = qkv->n_kv < PANEL ? qkv->n_kv : PANEL;
  size_t count;
  status = attn_size_product("panel of the identity",
                             (const int64_t[]){qkv->batch, qkv->kv_heads, qkv->n_kv, width}, 4, &count);
  if (status) return status;
  void *panel = calloc(count, attn_dtype_size(qkv->dtype));
  if (!panel) return attn_fail(ATTN_ENOMEM, "out of memory for a panel of %zu elements", count);
  status = compute_weights(o, width, panel);
  free(panel);
  return status ? status : data_npy_write(o->output, &o->out);
}

int cmd_matrix(int argc, char **argv) {
  arguments a = {.of.scale = (double)NAN};
  cli_parse(&parser, argc, argv, &a);
  const attn_status status = matrix(&a.of);
  operands_free(&a.of);
  return cli_report(argv[0], status);
}
