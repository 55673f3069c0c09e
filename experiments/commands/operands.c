/* operands.c - parsing the operands of apply and matrix, and making the plan that they describe. */
#define _POSIX_C_SOURCE 200809L
#include "experiments/commands/operands.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_variant.h"
#include "data/formats/kinds.h"
#include "data/support/file.h"
#include "experiments/commands/cli.h"
#include "experiments/support/spec.h"

const cli_option operands_options[] = {
    {NULL, 0, NULL, "variant", CLI_TEXT, offsetof(operands, spec), 0, 0, "SPEC, the variant,"},
    {"q", 0, "FILE", "Queries, .npy: [n,d], [heads,n,d] or [batch,heads,n,d], f4 or f8", CLI_TEXT,
     offsetof(operands, q), 0, 0, NULL},
    {"k", 0, "FILE", "Keys; fewer heads than the queries are shared among them", CLI_TEXT,
     offsetof(operands, k), 0, 0, NULL},
    {"v", 0, "FILE", "Values (apply only)", CLI_TEXT, offsetof(operands, v), 0, 0, NULL},
    {"in", 0, "FILE", "All of them from the tensors q, k, v of an HDF5 or safetensors file", CLI_TEXT,
     offsetof(operands, in), 0, 0, NULL},
    {"output", 'o', "FILE", "The result, .npy, of q's rank and dtype", CLI_TEXT, offsetof(operands, output),
     0, 0, NULL},
    {"causal", 0, NULL, "Query i sees key j iff j <= i + n_kv - n_q", CLI_FLAG, offsetof(operands, causal), 0,
     0, NULL},
    TARGET_OPTIONS(operands, target),
    {"kv-len", 0, "L,...", "Keys that exist: one number, or one per batch entry", CLI_OTHER, 0, 0, 0, NULL},
    {"scale", 0, "S", "Of the scores; 1/sqrt(d) by default", CLI_REAL, offsetof(operands, scale), 0, 0, NULL},
    {"dtype", 0, "f32|f64", "Compute and write in this precision", CLI_OTHER, 0, 0, 0, NULL},
    {"threads", 0, "N", "OpenMP threads", CLI_THREADS, offsetof(operands, threads), 0, 0, NULL},
    {"check-finite", 0, NULL, "Refuse inputs with NaN or infinite elements", CLI_FLAG,
     offsetof(operands, check_finite), 0, 0, NULL},
    {0}};

static void read_lengths(operands *o, const char *text, struct argp_state *state) {
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

void operands_other(struct argp_state *state, void *input, const char *option, char *text) {
  operands *o = input;
  if (strcmp(option, "--kv-len") == 0) {
    read_lengths(o, text, state);
  } else {
    o->dtype = cli_dtype(state, option, text);
    o->has_dtype = true;
  }
}

void operands_complete(struct argp_state *state, void *input) {
  const operands *o = input;
  if (o->v && !o->needs_v) argp_error(state, "--v %s: the matrix does not depend on the values", o->v);
  if (o->in && (o->q || o->k || o->v)) argp_error(state, "--in %s: excludes --q, --k and --v", o->in);
  if (!o->in) {
    cli_require(state, o->q, "--q FILE (or --in FILE)");
    cli_require(state, o->k, "--k FILE (or --in FILE)");
    if (o->needs_v) cli_require(state, o->v, "--v FILE (or --in FILE)");
  }
  cli_require(state, o->output, "-o FILE");
}

attn_status operands_check_spec(const char *output, const output_kind *kind, const char *const *inputs,
                                size_t count, const char *spec) {
  const attn_variant *variant;
  attn_status status = output_check(output, kind, inputs, count);
  if (status) return status;
  char *name = strndup(spec, strcspn(spec, ":"));
  if (!name) return attn_fail(ATTN_ENOMEM, "no memory for a name");
  status = attn_variant_find(name, &variant);
  free(name);
  return status ? status : spec_check_output(spec, variant->params, output, kind);
}

attn_status operands_check_output(const operands *o) {
  const target_options *t = &o->target;
  const char *const inputs[] = {o->in, o->q, o->k, o->v, t->t5, t->bias, t->sink, t->mask};
  return operands_check_spec(o->output, &kind_npy, inputs, sizeof inputs / sizeof *inputs, o->spec);
}

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
                             data_target **target, int64_t **kv_len) {
  int64_t *lengths = NULL;
  attn_problem p = data_qkv_problem(qkv);
  p.causal = o->causal;
  if (!isnan(o->scale)) p.scale = o->scale;
  attn_status status = o->kv_len ? stretch_lengths(o, qkv, &lengths) : ATTN_OK;
  if (!status) status = target_make(&o->target, &p, target);
  if (status) {
    free(lengths);
    return status;
  }
  *problem = p;
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

/* -- what is computed -- */

static attn_status score_text(const target_options *t, char **score) {
  const struct {
    const char *name, *value;
  } parts[] = {{"softcap=", t->softcap}, {"leaky=", t->leaky}, {"alibi", t->alibi ? "" : NULL},
               {"t5=", t->t5},           {"bias=", t->bias},   {"sink=", t->sink}};
  char *text = text_format("%s", "");
  for (size_t i = 0; text && i < sizeof parts / sizeof *parts; i++) {
    if (!parts[i].value) continue;
    char *longer = text_format("%s%s%s%s", text, *text ? "," : "", parts[i].name, parts[i].value);
    free(text);
    text = longer;
  }
  const attn_status status = text ? data_score_parse(text, score) : ATTN_ENOMEM;
  free(text);
  return status;
}

bool target_given(const target_options *t) {
  return t->softcap || t->leaky || t->alibi || t->t5 || t->bias || t->sink || t->mask;
}

attn_status target_texts(const target_options *t, char **score, char **mask) {
  char *of_scores = NULL;
  attn_status status = score_text(t, &of_scores);
  if (!status) status = data_mask_parse(t->mask ? t->mask : "", mask);
  if (status)
    free(of_scores);
  else
    *score = of_scores;
  return status;
}

attn_status target_make(const target_options *t, attn_problem *problem, data_target **out) {
  char *score = NULL, *mask = NULL;
  attn_status status = target_texts(t, &score, &mask);
  if (!status) status = data_target_make(score, mask, problem, out);
  free(score);
  free(mask);
  return status;
}
