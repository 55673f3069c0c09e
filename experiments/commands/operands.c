/* operands.c - parsing the operands of apply and matrix, and making the plan that they describe. */
#include "experiments/commands/operands.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_expression.h"
#include "attn_variant.h"
#include "data/formats/kinds.h"
#include "data/support/file.h"
#include "experiments/commands/cli.h"
#include "experiments/support/escape.h"

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

static void read_extra(struct argp_state *state, reading_options *r, const char *text) {
  const char *file = strchr(text, '=');
  char name[32] = "";
  if (file && (size_t)(file - text) < sizeof name) memcpy(name, text, (size_t)(file - text));
  const int which = attn_extra_find(name);
  attn_nearest near = {.name = name};
  for (int i = 0; i < ATTN_EXTRA_KINDS; i++) attn_nearest_try(&near, attn_extra_kinds[i].name);
  if (which < 0 || !file[1])
    argp_error(state, "--extra %s: expected NAME=FILE, the name of an extra tensor%s", text,
               attn_nearest_hint(&near));
  else
    r->from.extra[which] = file + 1;
}

bool reading_option(struct argp_state *state, reading_options *r, const char *option, const char *text) {
  if (!option) return false;
  if (strcmp(option, "--layout") == 0) {
    r->from.layout = strcmp(text, data_layout_names[DATA_BNHD]) == 0 ? DATA_BNHD : DATA_BHND;
    if (strcmp(text, data_layout_names[r->from.layout]) != 0)
      argp_error(state, "%s '%s': expected bhnd or bnhd", option, text);
    return true;
  }
  if (strcmp(option, "--extra") == 0) {
    read_extra(state, r, text);
    return true;
  }
  if (strcmp(option, "--dtype") != 0) return false;
  if (strcmp(text, "f16") == 0)
    argp_error(state, "%s f16: expected f32, f64 or bf16; half precision is read without it", option);
  r->from.bf16 = strcmp(text, "bf16") == 0;
  r->has_dtype = true;
  r->dtype = r->from.bf16 ? ATTN_F32 : cli_dtype(state, option, text, "f32, f64 or bf16");
  return true;
}

void reading_complete(struct argp_state *state, const reading_options *r, bool needs_v) {
  const data_reading *f = &r->from;
  if (f->v && !needs_v) argp_error(state, "--v %s: the matrix does not depend on the values", f->v);
  if (f->in && (f->q || f->k || f->v)) argp_error(state, "--in %s: excludes --q, --k and --v", f->in);
  if (f->names && !f->in) argp_error(state, "--names %s: goes with --in", f->names);
  if (f->in) return;
  cli_require(state, f->q, "--q FILE (or --in FILE)");
  cli_require(state, f->k, "--k FILE (or --in FILE)");
  if (needs_v) cli_require(state, f->v, "--v FILE (or --in FILE)");
}

attn_status reading_read(const reading_options *r, data_qkv *out) {
  data_qkv qkv = {0};
  attn_status status = data_qkv_read(&r->from, &qkv);
  if (status) return status;
  if (r->has_dtype) status = data_qkv_convert(&qkv, r->dtype);
  if (!status)
    *out = qkv;
  else
    data_qkv_free(&qkv);
  return status;
}

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

void reading_tell(const char *command, const data_qkv *x) {
  static const char *const axes[2][3] = {{"[n, d]", "[heads, n, d]", "[batch, heads, n, d]"},
                                         {"[n, d]", "[n, heads, d]", "[batch, n, heads, d]"}};
  char *name = escape_text(x->description), keys[96] = "", values[48] = "";
  if (x->kv_heads != x->heads || x->n_kv != x->n_q)
    snprintf(keys, sizeof keys, ", %" PRId64 " head%s of %" PRId64 " keys", x->kv_heads, plural(x->kv_heads),
             x->n_kv);
  if (x->d_v && x->d_v != x->d_qk) snprintf(values, sizeof values, ", values %" PRId64, x->d_v);
  fprintf(stderr,
          "%s: %s read as %s: %" PRId64 " batch%s, %" PRId64 " head%s of %" PRId64 " row%s%s, width %" PRId64
          "%s, %s\n",
          command, name ? name : "tensors", axes[x->layout][x->rank - 2], x->batch, x->batch == 1 ? "" : "es",
          x->heads, plural(x->heads), x->n_q, plural(x->n_q), keys, x->d_qk, values,
          attn_numbers[x->dtype].name);
  if (x->scored)
    fprintf(
        stderr,
        "%s: note: its attributes name a scale, soft cap, sinks or window of the layer's scores, which only "
        "options apply\n",
        command);
  /* There are more keys than heads, but in tests. */
  if (x->rank > 2 && x->heads > x->n_kv)
    fprintf(stderr, "%s: warning: more heads than keys: if the file has %s, add --layout %s\n", command,
            axes[!x->layout][x->rank - 2], data_layout_names[!x->layout]);
  free(name);
}

void operands_other(struct argp_state *state, void *input, const char *option, char *text) {
  operands *o = input;
  if (!reading_option(state, &o->reading, option, text)) read_lengths(o, text, state);
}

void operands_complete(struct argp_state *state, void *input) {
  const operands *o = input;
  reading_complete(state, &o->reading, o->needs_v);
  cli_require(state, o->output, "-o FILE");
}

typedef struct output_request {
  const char *output;
  const output_kind *kind;
} output_request;

static attn_status check_files(void *context, const attn_spec *atom) {
  const output_request *x = context;
  return output_check_params(x->output, x->kind, atom->variant->params, atom->params);
}

attn_status operands_check_spec(const char *output, const output_kind *kind, const char *const *inputs,
                                size_t count, const attn_spec *spec) {
  const attn_status status = output_check(output, kind, inputs, count);
  return status ? status : attn_spec_each(spec, false, check_files, &(output_request){output, kind});
}

attn_status operands_check(operands *o) {
  const attn_status status = attn_spec_parse(&o->variant, o->spec);
  return status ? status : operands_check_output(o, o->output, NULL);
}

attn_status operands_check_output(const operands *o, const char *output, const char *more) {
  const target_options *t = &o->target;
  const data_reading *f = &o->reading.from;
  const char *inputs[9 + ATTN_EXTRA_KINDS] = {f->in,   f->q,    f->k,    f->v, t->t5,
                                              t->bias, t->sink, t->mask, more};
  memcpy(inputs + 9, f->extra, sizeof f->extra);
  return operands_check_spec(output, &kind_npy, inputs, sizeof inputs / sizeof *inputs, o->variant);
}

/* Prefixes the failure of a finiteness check, which begins with the tensor's name, with the tensor's file. */
static attn_status fail_not_finite(const data_reading *f, attn_status status) {
  char message[256];
  snprintf(message, sizeof message, "%s", attn_last_error());
  const char *file = f->in ? f->in : message[0] == 'q' ? f->q : message[0] == 'k' ? f->k : f->v;
  return attn_fail(status, "%s: %s", file, message);
}

static attn_status stretch_lengths(operands *o) {
  const data_qkv *qkv = &o->qkv;
  if (o->kv_len_count != 1 && o->kv_len_count != qkv->batch)
    return attn_fail(ATTN_EINVAL, "--kv-len: %" PRId64 " lengths, but the batch has %" PRId64 " entries",
                     o->kv_len_count, qkv->batch);
  for (int64_t i = 0; i < o->kv_len_count; i++)
    if (o->kv_len[i] > qkv->n_kv)
      return attn_fail(ATTN_EINVAL, "--kv-len %" PRId64 ": there are %" PRId64 " keys", o->kv_len[i],
                       qkv->n_kv);
  o->each_len = malloc((size_t)qkv->batch * sizeof *o->each_len);
  if (!o->each_len) return attn_fail(ATTN_ENOMEM, "out of memory for %" PRId64 " lengths", qkv->batch);
  for (int64_t b = 0; b < qkv->batch; b++) o->each_len[b] = o->kv_len[o->kv_len_count == 1 ? 0 : b];
  return ATTN_OK;
}

attn_status operands_read(operands *o) {
  attn_status status = reading_read(&o->reading, &o->qkv);
  if (status) return status;
  if (o->check_finite && (status = data_qkv_check_finite(&o->qkv)))
    return fail_not_finite(&o->reading.from, status);
  o->problem = data_qkv_problem(&o->qkv);
  o->problem.causal = o->causal;
  if (!isnan(o->scale)) o->problem.scale = o->scale;
  if (o->kv_len && (status = stretch_lengths(o))) return status;
  return target_make(&o->target, &o->problem, &o->made);
}

attn_status operands_plan(operands *o) {
  const attn_options settings = {.threads = o->threads};
  const attn_status status = attn_plan_create_spec(&o->plan, &o->problem, o->variant, &settings);
  if (status) return status;
  const size_t bytes = attn_plan_work_size(o->plan);
  if (bytes > 0 && !(o->work = malloc(bytes)))
    return attn_fail(ATTN_ENOMEM, "%s: out of memory for %zu bytes of work space", o->spec, bytes);
  return ATTN_OK;
}

attn_status operands_run(const operands *o, const void *v, void *out, const operands_backward *back) {
  attn_extra extra[ATTN_EXTRA_KINDS];
  attn_tensors x = {.q = o->qkv.q,
                    .k = o->qkv.k,
                    .v = v,
                    .kv_len = o->each_len,
                    .o = out,
                    .work = o->work,
                    .extra = extra,
                    .extras = data_qkv_extras(&o->qkv, extra)};
  if (back && attn_plan_variant(o->plan)->caps & ATTN_CAP_LSE) x.lse = back->lse;
  const attn_status status = attn_plan_run(o->plan, &x);
  if (status || !back) return status;
  x.work = back->work;
  return attn_plan_backward(o->plan, &x, &back->to);
}

attn_status operands_array(const data_qkv *qkv, data_layout layout, int64_t heads, int64_t n, int64_t columns,
                           data_array *out) {
  const bool rows_first = layout == DATA_BNHD && qkv->rank > 2;
  const int64_t shape[] = {qkv->batch, rows_first ? n : heads, rows_first ? heads : n, columns};
  return data_array_make(qkv->dtype, qkv->rank, shape + (4 - qkv->rank), out);
}

attn_stride operands_stride(const data_qkv *x) {
  attn_stride s = {0};
  if (x->layout == DATA_BNHD && x->rank > 2) {
    s.head = x->d_v;
    s.row = x->heads * x->d_v;
    s.batch = x->n_q * s.row;
  }
  return s;
}

void operands_free(operands *o) {
  data_array_free(&o->out);
  free(o->work);
  attn_plan_destroy(o->plan);
  data_target_free(o->made);
  free(o->each_len);
  data_qkv_free(&o->qkv);
  free(o->kv_len);
  attn_spec_destroy(o->variant);
}

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
