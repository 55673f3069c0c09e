/* operands.c - parsing the operands of apply and matrix, and making the plan that they describe. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/commands/operands.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/commands/cli.h"

enum {
  KEY_Q = 256,
  KEY_K,
  KEY_V,
  KEY_IN,
  KEY_CAUSAL,
  KEY_KV_LEN,
  KEY_SCALE,
  KEY_DTYPE,
  KEY_THREADS,
  KEY_FINITE
};

static const struct argp_option options[] = {
    {"q", KEY_Q, "FILE", 0, "Queries, .npy: [n,d], [heads,n,d] or [batch,heads,n,d], f4 or f8", 0},
    {"k", KEY_K, "FILE", 0, "Keys; fewer heads than the queries are shared among them", 0},
    {"v", KEY_V, "FILE", 0, "Values (apply only)", 0},
    {"in", KEY_IN, "FILE", 0, "All of them from the tensors q, k, v of an HDF5 or safetensors file", 0},
    {"output", 'o', "FILE", 0, "The result, .npy, of q's rank and dtype", 0},
    {"causal", KEY_CAUSAL, NULL, 0, "Query i sees key j iff j <= i + n_kv - n_q", 0},
    {"kv-len", KEY_KV_LEN, "L,...", 0, "Keys that exist: one number, or one per batch entry", 0},
    {"scale", KEY_SCALE, "S", 0, "Of the scores; 1/sqrt(d) by default", 0},
    {"dtype", KEY_DTYPE, "f32|f64", 0, "Compute and write in this precision", 0},
    {"threads", KEY_THREADS, "N", 0, "OpenMP threads", 0},
    {"check-finite", KEY_FINITE, NULL, 0, "Refuse inputs with NaN or infinite elements", 0},
    {0}};

static void parse_lengths(operands *o, const char *text, struct argp_state *state) {
  int64_t count = 1;
  for (const char *c = text; *c; c++) count += *c == ',';
  int64_t *lengths = malloc((size_t)count * sizeof *lengths);
  char *copy = strdup(text);
  if (!lengths || !copy) argp_failure(state, EXIT_IO, 0, "out of memory");
  char *item = copy;
  for (int64_t i = 0; i < count; i++) {
    char *comma = strchr(item, ',');
    if (comma) *comma = '\0';
    lengths[i] = cli_int(state, "--kv-len", item, 0, INT64_MAX);
    item = comma ? comma + 1 : item;
  }
  free(copy);
  free(o->kv_len);
  o->kv_len = lengths;
  o->kv_len_count = count;
}

static void check_complete(const operands *o, struct argp_state *state) {
  cli_require(state, o->spec, "SPEC, the variant,");
  if (o->v && !o->needs_v) argp_error(state, "--v %s: the matrix does not depend on the values", o->v);
  if (o->in && (o->q || o->k || o->v)) argp_error(state, "--in %s: excludes --q, --k and --v", o->in);
  if (!o->in) {
    cli_require(state, o->q, "--q FILE (or --in FILE)");
    cli_require(state, o->k, "--k FILE (or --in FILE)");
    if (o->needs_v) cli_require(state, o->v, "--v FILE (or --in FILE)");
  }
  cli_require(state, o->output, "-o FILE");
}

static error_t parse(int key, char *arg, struct argp_state *state) {
  operands *o = state->input;
  switch (key) {
  case KEY_Q:
    o->q = arg;
    break;
  case KEY_K:
    o->k = arg;
    break;
  case KEY_V:
    o->v = arg;
    break;
  case KEY_IN:
    o->in = arg;
    break;
  case 'o':
    o->output = arg;
    break;
  case KEY_CAUSAL:
    o->causal = true;
    break;
  case KEY_KV_LEN:
    parse_lengths(o, arg, state);
    break;
  case KEY_SCALE:
    o->scale = cli_real(state, "--scale", arg);
    break;
  case KEY_DTYPE:
    if (strcmp(arg, "f32") != 0 && strcmp(arg, "f64") != 0)
      argp_error(state, "--dtype '%s': expected f32 or f64", arg);
    o->dtype = strcmp(arg, "f64") == 0 ? ATTN_F64 : ATTN_F32;
    o->has_dtype = true;
    break;
  case KEY_THREADS:
    o->threads = (int)cli_int(state, "--threads", arg, 1, 4096);
    break;
  case KEY_FINITE:
    o->check_finite = true;
    break;
  case ARGP_KEY_INIT:
    o->scale = (double)NAN;
    break;
  case ARGP_KEY_ARG:
    cli_argument(state, &o->spec, "variant", arg);
    break;
  case ARGP_KEY_END:
    check_complete(o, state);
    break;
  default:
    return ARGP_ERR_UNKNOWN;
  }
  return 0;
}

const struct argp operands_argp = {.options = options, .parser = parse, .children = cli_plugin_children};

/* Prefixes the failure of a finiteness check, which begins with the tensor's name, with the tensor's file. */
static attn_status fail_not_finite(const operands *o, attn_status status) {
  char message[256];
  snprintf(message, sizeof message, "%s", attn_last_error());
  const char *file = o->in ? o->in : message[0] == 'q' ? o->q : message[0] == 'k' ? o->k : o->v;
  return attn_fail(status, "%s: %s", file, message);
}

attn_status operands_read(const operands *o, data_qkv *out) {
  data_qkv qkv = {0};
  attn_status status = o->in ? data_qkv_read(o->in, 0, &qkv)
                             : data_qkv_read_npy(o->q, o->k, o->needs_v ? o->v : NULL, 0, &qkv);
  if (status) return status;
  if (o->check_finite) {
    status = data_qkv_check_finite(&qkv);
    if (status) status = fail_not_finite(o, status);
  }
  if (!status && o->has_dtype) status = data_qkv_convert(&qkv, o->dtype);
  if (!status)
    *out = qkv;
  else
    data_qkv_free(&qkv);
  return status;
}

static attn_status stretch_lengths(const operands *o, const data_qkv *qkv, int64_t **out) {
  if (o->kv_len_count != 1 && o->kv_len_count != qkv->batch)
    return attn_fail(ATTN_EINVAL, "--kv-len: %" PRId64 " lengths, but the batch has %" PRId64 " entries",
                     o->kv_len_count, qkv->batch);
  for (int64_t i = 0; i < o->kv_len_count; i++)
    if (o->kv_len[i] > qkv->n_kv)
      return attn_fail(ATTN_EINVAL, "--kv-len %" PRId64 ": there are %" PRId64 " keys", o->kv_len[i],
                       qkv->n_kv);
  int64_t *lengths = malloc((size_t)qkv->batch * sizeof *lengths);
  if (!lengths) return attn_fail(ATTN_ENOMEM, "out of memory for %" PRId64 " lengths", qkv->batch);
  for (int64_t b = 0; b < qkv->batch; b++) lengths[b] = o->kv_len[o->kv_len_count == 1 ? 0 : b];
  *out = lengths;
  return ATTN_OK;
}

attn_status operands_problem(const operands *o, const data_qkv *qkv, attn_problem *problem,
                             int64_t **kv_len) {
  int64_t *lengths = NULL;
  if (o->kv_len) {
    const attn_status status = stretch_lengths(o, qkv, &lengths);
    if (status) return status;
  }
  *problem = data_qkv_problem(qkv);
  problem->causal = o->causal;
  if (!isnan(o->scale)) problem->scale = o->scale;
  *kv_len = lengths;
  return ATTN_OK;
}

attn_status operands_plan(const operands *o, const attn_problem *problem, attn_plan **plan, void **work) {
  const attn_options settings = {.threads = o->threads};
  attn_plan *made = NULL;
  const attn_status status = attn_plan_create(&made, problem, o->spec, &settings);
  if (status) return status;
  const size_t bytes = attn_plan_work_size(made);
  void *memory = NULL;
  if (bytes > 0 && !(memory = malloc(bytes))) {
    attn_plan_destroy(made);
    return attn_fail(ATTN_ENOMEM, "%s: out of memory for %zu bytes of work space", o->spec, bytes);
  }
  *plan = made;
  *work = memory;
  return ATTN_OK;
}

attn_status operands_output(const data_qkv *qkv, int64_t columns, data_array *out) {
  const int64_t shape[] = {qkv->batch, qkv->heads, qkv->n_q, columns};
  return data_array_make(qkv->dtype, qkv->rank, shape + (4 - qkv->rank), out);
}

void operands_free(operands *o) { free(o->kv_len); }
