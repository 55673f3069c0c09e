/* source_spec.c - datasets: the table of sources, their specs, and the drawing of rows that the synthetic
 * ones share. */
#include "data/sources/sources.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/npy.h"
#include "data/formats/qkv.h"
#include "data/support/file.h"
#include "data/support/output.h"
#include "data/support/sha256.h"

static const data_source *const sources[] = {
    &source_gaussian, &source_clustered, &source_lowrank,     &source_heavytailed,
    &source_flat,     &source_peaked,    &source_duplicate,   &source_outlier,
    &source_hopfield, &source_gat,       &source_needle,      &source_rope,
    &source_captured, &source_hdf5,      &source_safetensors, &source_npy};

size_t data_source_count(void) { return sizeof sources / sizeof *sources; }

const data_source *data_source_at(size_t index) {
  return index < data_source_count() ? sources[index] : NULL;
}

attn_status data_source_find(const char *name, const data_source **out) {
  char known[256] = "";
  attn_nearest near = {.name = name};
  for (size_t i = 0; i < data_source_count(); i++) {
    if (strcmp(sources[i]->name, name) == 0) {
      *out = sources[i];
      return ATTN_OK;
    }
    if (i > 0) strncat(known, ", ", sizeof known - strlen(known) - 1);
    strncat(known, sources[i]->name, sizeof known - strlen(known) - 1);
    attn_nearest_try(&near, sources[i]->name);
  }
  return attn_fail(ATTN_ENOTFOUND, "unknown dataset '%s'%s, known: %s", name, attn_nearest_hint(&near),
                   known);
}

/* Takes those parameters out of the canonical text that are only named where they differ from their
 * presets. */
static void shorten(const data_source *source, char *text) {
  char *to = text;
  for (int i = 0; source->named && source->params[i].name; i++) {
    const attn_param *p = &source->params[i];
    const size_t length = strcspn(text, ","), name = strlen(p->name) + 1;
    const bool preset =
        length - name == strlen(p->preset) && strncmp(text + name, p->preset, length - name) == 0;
    const bool last = !text[length];
    if (i < source->named || !preset) {
      if (i > 0) *to++ = ',';
      memmove(to, text, length);
      to += length;
    }
    text += length + !last;
    if (!source->params[i + 1].name) *to = '\0';
  }
}

/* Also returns the parameters, to be released by attn_params_free. */
static attn_status parse(const char *spec, const data_source **source, void **params, char **canonical) {
  size_t length = strcspn(spec, ":");
  const data_source *found = NULL;
  char *name = strndup(spec, length), *owner = NULL, *text = NULL, *whole = NULL;
  void *block = NULL;
  attn_status status =
      name ? data_source_find(name, &found) : attn_fail(ATTN_ENOMEM, "no memory for a dataset's name");
  if (status) goto out;
  owner = text_format("dataset %s", name);
  if (!owner) {
    status = ATTN_ENOMEM;
    goto out;
  }
  status = attn_params_parse(owner, found->params, found->params_size,
                             spec[length] ? spec + length + 1 : NULL, &block, &text);
  if (status) goto out;
  shorten(found, text);
  whole = text_format("%s:%s", name, text);
  if (!whole) {
    attn_params_free(found->params, block);
    status = ATTN_ENOMEM;
    goto out;
  }
  *source = found;
  *params = block;
  *canonical = whole;
out:
  free(name);
  free(owner);
  free(text);
  return status;
}

attn_status data_source_parse(const char *spec, const data_source **source, char **canonical) {
  const data_source *found;
  void *params;
  char *text;
  attn_status status = parse(spec, &found, &params, &text);
  if (status) return status;
  attn_params_free(found->params, params);
  if (source) *source = found;
  if (canonical)
    *canonical = text;
  else
    free(text);
  return ATTN_OK;
}

static attn_status add_file(sha256 *h, const char *path) {
  file_map map;
  char *file = npz_file(path);
  const attn_status status = file ? file_map_open(file, &map) : ATTN_ENOMEM;
  free(file);
  if (status) return status;
  sha256_add(h, map.at, map.bytes);
  file_map_close(&map);
  return ATTN_OK;
}

/* text: the parameter that is no path, or NULL. */
static attn_status digest(const attn_param *table, const void *params, const char *text, char hex[65]) {
  sha256 h;
  bool any = false;
  attn_status status = ATTN_OK;
  sha256_begin(&h);
  for (const attn_param *p = table; !status && p->name; p++) {
    const char *const path =
        p->type == ATTN_TEXT ? *(const char *const *)(const void *)((const char *)params + p->offset) : "";
    if (!*path || (text && strcmp(p->name, text) == 0)) continue;
    any = true;
    status = add_file(&h, path);
  }
  if (status) return status;
  *hex = '\0';
  if (any) sha256_end(&h, hex);
  return ATTN_OK;
}

attn_status data_files_digest(const attn_param *table, const void *params, char hex[65]) {
  return digest(table, params, NULL, hex);
}

attn_status data_source_digest(const char *spec, char hex[65]) {
  const data_source *source;
  void *params;
  char *text;
  attn_status status = parse(spec, &source, &params, &text);
  if (status) return status;
  status = digest(source->params, params, source->text, hex);
  attn_params_free(source->params, params);
  free(text);
  return status;
}

attn_status data_source_check_output(const char *spec, const char *path, const output_kind *kind) {
  const data_source *source;
  void *params;
  char *text;
  attn_status status = parse(spec, &source, &params, &text);
  if (status) return status;
  status = output_check_params(path, kind, source->params, params);
  attn_params_free(source->params, params);
  free(text);
  return status;
}

attn_status data_source_sizes(const char *spec, data_request *out, bool *known) {
  const data_source *source;
  void *params;
  char *text;
  attn_status status = parse(spec, &source, &params, &text);
  if (status) return status;
  status = from_file_sizes(source, params, out, known);
  attn_params_free(source->params, params);
  free(text);
  return status;
}

attn_status data_source_fits(const char *spec, const data_request *request) {
  const data_source *source;
  void *params;
  char *text;
  attn_status status = parse(spec, &source, &params, &text);
  if (status) return status;
  if (source->fits) status = source->fits(params, request);
  attn_params_free(source->params, params);
  free(text);
  return status;
}

attn_status data_source_make(const char *spec, const data_request *request, data_qkv *out, char **canonical) {
  const data_source *source;
  void *params;
  char *text;
  data_qkv made = {0};
  attn_status status = parse(spec, &source, &params, &text);
  if (status) return status;
  attn_problem problem = attn_problem_make(request->batch, request->heads, request->n_q, request->d_qk);
  problem.kv_heads = request->kv_heads;
  problem.n_kv = request->n_kv;
  problem.d_v = request->d_v;
  problem.dtype = request->dtype;
  status = attn_problem_resolve(&problem);
  if (!status && source->fits) status = source->fits(params, request);
  if (!status) status = source->generate(params, request, &made);
  attn_params_free(source->params, params);
  if (!status && !made.description) {
    made.description = text_format("%s", text);
    if (!made.description) status = ATTN_ENOMEM;
  }
  if (status) {
    data_qkv_free(&made);
    free(text);
    return status;
  }
  *out = made;
  if (canonical)
    *canonical = text;
  else
    free(text);
  return ATTN_OK;
}

void draw_normal(attn_rng *rng, double std, int64_t d, double *x) {
  for (int64_t i = 0; i < d; i++) x[i] = std * attn_rng_normal(rng);
}

/* "data" keeps these streams apart from those of variants and checks. */
static void start_stream(attn_rng *rng, const data_request *r, draw_tensor tensor, int64_t batch,
                         int64_t head) {
  attn_rng_init(rng, r->seed, UINT64_C(0x64617461) << 8 | (uint64_t)tensor,
                (uint64_t)batch << 32 | (uint64_t)head);
}

static void draw_one(const draw_plan *plan, draw_head *h, int64_t n, void *to, double *scratch) {
  const data_request *r = h->request;
  double *x = scratch + plan->shared;
  if (plan->shared > 0) {
    attn_rng rng;
    start_stream(&rng, r, DRAW_SHARED, h->batch, h->kv_head);
    plan->share(h->params, r, &rng, scratch);
    h->shared = scratch;
  }
  start_stream(&h->start, r, h->tensor, h->batch, h->head);
  h->rng = h->start;
  for (int64_t i = 0; i < n; i++) {
    plan->row(h, i, x);
    for (int64_t j = 0; j < h->d; j++) attn_set(to, i * h->d + j, r->dtype, (double)(float)x[j]);
  }
}

static void draw_tensor_heads(const draw_plan *plan, const void *params, data_qkv *x, const data_request *r,
                              draw_tensor tensor, double *scratch, int64_t stride) {
  int64_t heads = tensor == DRAW_Q ? r->heads : r->kv_heads, n = tensor == DRAW_Q ? r->n_q : r->n_kv;
  int64_t d = tensor == DRAW_V ? r->d_v : r->d_qk, group = tensor == DRAW_Q ? r->heads / r->kv_heads : 1;
  char *to = tensor == DRAW_Q ? x->q : tensor == DRAW_K ? x->k : x->v;
  size_t bytes = (size_t)(n * d) * attn_dtype_size(r->dtype);
#pragma omp parallel for schedule(dynamic)
  for (int64_t i = 0; i < r->batch * heads; i++) {
    draw_head h = {.params = params,
                   .request = r,
                   .made = x,
                   .tensor = tensor,
                   .batch = i / heads,
                   .head = i % heads,
                   .kv_head = i % heads / group,
                   .d = d};
    draw_one(plan, &h, n, to + (size_t)i * bytes, scratch + omp_get_thread_num() * stride);
  }
}

attn_status draw_all(const draw_plan *plan, const void *params, const data_request *r, data_qkv *out) {
  data_qkv made = {.batch = r->batch,
                   .heads = r->heads,
                   .kv_heads = r->kv_heads,
                   .n_q = r->n_q,
                   .n_kv = r->n_kv,
                   .d_qk = r->d_qk,
                   .d_v = r->d_v,
                   .rank = r->batch > 1 ? 4 : 3,
                   .dtype = r->dtype};
  size_t bytes;
  int64_t stride = plan->shared + (r->d_qk > r->d_v ? r->d_qk : r->d_v);
  attn_status status = attn_size_product(
      "scratch of a dataset", (int64_t[]){stride, omp_get_max_threads(), sizeof(double)}, 3, &bytes);
  if (!status) status = qkv_alloc(&made);
  if (status) return status;
  double *scratch = malloc(bytes);
  if (!scratch) {
    data_qkv_free(&made);
    return attn_fail(ATTN_ENOMEM, "no memory for a dataset's scratch of %zu bytes", bytes);
  }
  draw_tensor_heads(plan, params, &made, r, DRAW_V, scratch, stride);
  draw_tensor_heads(plan, params, &made, r, DRAW_K, scratch, stride);
  draw_tensor_heads(plan, params, &made, r, DRAW_Q, scratch, stride);
  free(scratch);
  *out = made;
  return ATTN_OK;
}
