/* capture_layer.c - a capture: Q, K and V of one layer of a model on a text, in an HDF5 file with their
 * origin as attributes. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/kinds.h"
#include "data/formats/qkv.h"
#include "data/llama/llama.h"
#include "data/support/file.h"

/* The last component of a path, after links and dots are resolved. */
static attn_status last_name(const char *path, char **out) {
  char *real = realpath(path, NULL);
  if (!real) return attn_fail(ATTN_EFOREIGN, "%s: cannot be found", path);
  char *name = text_format("%s", basename(real));
  free(real);
  if (!name) return ATTN_ENOMEM;
  *out = name;
  return ATTN_OK;
}

/* The ids of all positions: each window of max_positions begins with the first token, if there is one. */
static attn_status lay_out(const char *path, const data_llama_config *c, const data_ids *s, int64_t n,
                           int64_t **out, int64_t *positions) {
  const int64_t bos = s->bos;
  const int64_t window = c->max_positions, held = window - (bos >= 0);
  if (held < 1)
    return attn_fail(ATTN_EINVAL, "%s: a context of one position leaves no room after the first token", path);
  const int64_t there = bos >= 0 ? s->count + (s->count - 1) / held + 1 : s->count;
  if (n > there)
    return attn_fail(ATTN_EINVAL, "%s: %" PRId64 " positions, fewer than the %" PRId64 " asked for", path,
                     there, n);
  const int64_t count = n > 0 ? n : there;
  int64_t *id = malloc((size_t)count * sizeof *id);
  if (!id) return attn_fail(ATTN_ENOMEM, "%s: no memory for %" PRId64 " token ids", path, count);
  for (int64_t i = 0, next = 0; i < count; i++) id[i] = bos >= 0 && i % window == 0 ? bos : s->id[next++];
  *out = id;
  *positions = count;
  return ATTN_OK;
}

/* A capture being made, and the attributes of its file. */
enum { ATTRIBUTES = 24 };
typedef struct capture {
  const data_capture_request *r;
  data_ids ids;
  int64_t *tokens, n;
  int64_t window; /* positions that the model has */
  char *model, *source, *frequencies, *sinks;
  char model_hex[65], bos[24];
  data_qkv x;
  hdf5_attribute attribute[ATTRIBUTES];
  size_t count;
} capture;

static void add(capture *c, hdf5_attribute a) { c->attribute[c->count++] = a; }

static attn_status read_ids(capture *c, const data_llama_config *config) {
  const data_capture_request *r = c->r;
  const char *path = r->ids.text ? r->ids.text : r->ids.tokens;
  c->window = config->max_positions;
  attn_status status = data_ids_read(&r->ids, config, &c->ids);
  if (!status) status = lay_out(path, config, &c->ids, r->n, &c->tokens, &c->n);
  if (!status) status = last_name(r->ids.model, &c->model);
  return status ? status : last_name(path, &c->source);
}

/* What every capture says of itself. */
static void describe(capture *c) {
  const data_capture_request *r = c->r;
  snprintf(c->bos, sizeof c->bos, c->ids.bos < 0 ? "none" : "%" PRId64, c->ids.bos);
  add(c, (hdf5_attribute){.name = "model", .text = c->model});
  add(c, (hdf5_attribute){.name = "model_sha256", .text = c->model_hex});
  add(c, (hdf5_attribute){.name = r->ids.text ? "text" : "tokens", .text = c->source});
  add(c, (hdf5_attribute){.name = r->ids.text ? "text_sha256" : "tokens_sha256", .text = c->ids.sha256});
  if (*c->ids.shape) add(c, (hdf5_attribute){.name = "tokens_shape", .text = c->ids.shape});
  add(c, (hdf5_attribute){.name = "bos", .text = c->bos});
  add(c, (hdf5_attribute){.name = "layer", .integer = r->layer});
  add(c, (hdf5_attribute){.name = "positions", .integer = c->n});
  add(c, (hdf5_attribute){.name = "trained_context", .integer = c->window});
  add(c, (hdf5_attribute){.name = "windows", .integer = (c->n - 1) / c->window + 1});
}

/* The rotation of the layer; NULL: nothing turns there. */
static const data_rope *rope_of(const data_llama_config *c, int64_t layer, data_rope *local) {
  *local = (data_rope){.kind = DATA_ROPE_PLAIN, .theta = c->window_theta, .attention = 1};
  if (c->rotary_dim == 0 || c->layer[layer] & DATA_LLAMA_UNTURNED) return NULL;
  return c->window_theta > 0 && c->layer[layer] & DATA_LLAMA_WINDOW ? local : &c->rope;
}

/* n numbers, a space between two; NULL: no memory. */
static char *print_numbers(const double *number, int64_t n) {
  enum { WIDTH = 25 };
  char *text = calloc((size_t)n, WIDTH), *to = text;
  for (int64_t i = 0; text && i < n; i++) to += snprintf(to, WIDTH, i ? " %.17g" : "%.17g", number[i]);
  return text;
}

/* The frequencies of stretched positions as a text, for those who rotate a pending capture. */
static attn_status print_frequencies(const data_llama *m, const data_rope *rope, capture *c) {
  enum { MOST = 2048 };
  const data_llama_config *config = &m->config;
  const int64_t half = config->rotary_dim / 2;
  if (half > MOST)
    return attn_fail(ATTN_EUNSUPPORTED, "%s: heads of %" PRId64 " are too wide to say how they turn", m->path,
                     config->head_dim);
  double frequency[MOST];
  /* Those that depend on the length are captured in one window (data_llama_capture). */
  data_rope_frequencies(rope, config->rotary_dim, c->n, frequency);
  c->frequencies = print_numbers(frequency, half);
  return c->frequencies ? ATTN_OK : attn_fail(ATTN_ENOMEM, "%s: no memory for its frequencies", m->path);
}

static attn_status describe_rotation(const data_llama *m, const data_rope *rope, capture *c) {
  const char *note =
      c->r->pre_rope
          ? "pairs (i, i + rotary_dim/2); q and k are to be rotated, row r at position first_position + r; "
            "the forward pass in independent windows of trained_context positions, at local ones"
      : c->n <= c->window
          ? "pairs (i, i + rotary_dim/2); q and k are rotated at positions 0 ... n-1"
          : "pairs (i, i + rotary_dim/2); independent windows of trained_context positions: the forward pass "
            "at local positions, the stored q and k rotated at global positions 0 ... n-1";
  add(c, (hdf5_attribute){.name = "rope_theta", .real = true, .number = rope->theta});
  add(c, (hdf5_attribute){.name = "rotary_dim", .integer = m->config.rotary_dim});
  add(c, (hdf5_attribute){.name = "rotation", .text = note});
  if (c->r->pre_rope) {
    add(c, (hdf5_attribute){.name = "rope", .text = "pending"});
    add(c, (hdf5_attribute){.name = "first_position", .integer = 0});
  }
  attn_status status = print_frequencies(m, rope, c);
  add(c, (hdf5_attribute){.name = "rope_frequencies", .text = c->frequencies});
  add(c, (hdf5_attribute){.name = "rope_attention_factor", .real = true, .number = rope->attention});
  return status;
}

/* What the layer's scores are, where they are not those of a causal attention of scale 1/sqrt(d). */
static attn_status describe_scores(const data_llama *m, capture *c) {
  const data_llama_config *config = &m->config;
  const double usual = 1 / sqrt((double)config->head_dim);
  if (m->kind->encoder)
    add(c, (hdf5_attribute){.name = "causal", .text = "no: a token sees those after it, too"});
  if (config->layer[c->r->layer] & DATA_LLAMA_WINDOW)
    add(c, (hdf5_attribute){.name = "sliding_window", .integer = config->window});
  if (config->score_scale < usual || config->score_scale > usual)
    add(c, (hdf5_attribute){.name = "score_scale", .real = true, .number = config->score_scale});
  if (config->score_cap > 0)
    add(c, (hdf5_attribute){.name = "score_softcap", .real = true, .number = config->score_cap});
  if (!m->sinks) return ATTN_OK;
  c->sinks = print_numbers(m->sinks + c->r->layer * config->heads, config->heads);
  add(c, (hdf5_attribute){.name = "score_sinks", .text = c->sinks});
  return c->sinks ? ATTN_OK : attn_fail(ATTN_ENOMEM, "%s: no memory for its sinks", m->path);
}

static attn_status capture_model(capture *c) {
  const data_capture_request *r = c->r;
  data_llama *m = NULL;
  data_rope local;
  const data_rope *rope = NULL;
  attn_status status = llama_open(r->ids.model, &m);
  if (status) return status;
  status = llama_check_layer(m, r->layer);
  if (!status) rope = rope_of(&m->config, r->layer, &local);
  if (!status && r->pre_rope && !rope)
    status = attn_fail(ATTN_EUNSUPPORTED,
                       "%s: layer %" PRId64 " has no rotary embedding, so --pre-rope does not apply", m->path,
                       r->layer);
  if (!status && r->ids.text && m->kind->encoder)
    status = attn_fail(ATTN_EUNSUPPORTED, "%s: an encoder needs token ids (--tokens)", m->path);
  if (!status) status = read_ids(c, &m->config);
  if (!status) status = data_llama_capture(m, c->tokens, c->n, r->layer, r->pre_rope, &c->x);
  if (!status) {
    weights_sha256(m->files, c->model_hex);
    describe(c);
    status = describe_scores(m, c);
    if (!status && rope) status = describe_rotation(m, rope, c);
  }
  data_llama_close(m);
  return status;
}

attn_status data_capture(const data_capture_request *r, data_qkv *out) {
  capture c = {.r = r};
  if (r->n < 0) return attn_fail(ATTN_EINVAL, "n=%" PRId64 " positions; expected a positive number", r->n);
  attn_status status =
      output_check(r->output, &kind_capture, (const char *const[]){r->ids.text, r->ids.tokens}, 2);
  if (status) return status;
  status = capture_model(&c);
  if (!status) status = data_qkv_check_finite(&c.x);
  if (!status) status = hdf5_write_qkv(r->output, &c.x, c.attribute, c.count);
  if (!status && out)
    *out = c.x;
  else
    data_qkv_free(&c.x);
  free(c.tokens);
  free(c.ids.id);
  free(c.model);
  free(c.source);
  free(c.frequencies);
  free(c.sinks);
  return status;
}
