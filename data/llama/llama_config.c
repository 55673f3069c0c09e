/* llama_config.c - the numbers of a model, each in its range, and together. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/llama/llama_config.h"

#define MOST_POSITIONS (INT64_C(1) << 40)

/* Widths of experts that no key gives are the MLP's. */
static attn_status read_experts(const char *path, const llama_keys *k, setting_getter *get, const void *from,
                                data_llama_config *c) {
  const struct {
    const char *key;
    int64_t preset, max, *to;
  } sizes[] = {{k->experts, 0, LLAMA_LAYERS_MAX, &c->experts},
               {k->experts_used, 0, 0, &c->experts_used},
               {k->expert_intermediate, c->intermediate, LLAMA_DIMENSION_MAX, &c->expert_intermediate},
               {k->shared_intermediate, c->intermediate, LLAMA_DIMENSION_MAX, &c->shared_intermediate}};
  attn_status status = ATTN_OK;
  c->expert_intermediate = c->shared_intermediate = c->intermediate;
  for (size_t i = 0; !status && i < sizeof sizes / sizeof *sizes; i++)
    if (sizes[i].key)
      status = setting_size(path, sizes[i].key, get(from, sizes[i].key), sizes[i].preset,
                            sizes[i].max ? sizes[i].max : c->experts, sizes[i].to);
  return status;
}

attn_status llama_read_numbers(const char *path, const llama_keys *k, setting_getter *get, const void *from,
                               data_llama_config *c) {
  const struct {
    const char *key;
    int64_t max, *to;
  } sizes[] = {{k->hidden, LLAMA_DIMENSION_MAX, &c->hidden},
               {k->layers, LLAMA_LAYERS_MAX, &c->layers},
               {k->heads, LLAMA_LAYERS_MAX, &c->heads}};
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < sizeof sizes / sizeof *sizes; i++)
    status = setting_size(path, sizes[i].key, get(from, sizes[i].key), 0, sizes[i].max, sizes[i].to);
  if (!status)
    status = setting_size(path, k->intermediate, get(from, k->intermediate),
                          k->intermediate_times * c->hidden, LLAMA_DIMENSION_MAX, &c->intermediate);
  if (!status && k->experts) status = read_experts(path, k, get, from, c);
  if (status) return status;
  setting head_dim = get(from, k->head_dim);
  if (head_dim.kind == SETTING_ABSENT && k->head_dim_preset == 0 && c->hidden % c->heads != 0)
    return attn_fail(ATTN_EINVAL,
                     "%s: %s=%" PRId64 " is not a multiple of %s=%" PRId64 ", and %s is not given", path,
                     k->hidden, c->hidden, k->heads, c->heads, k->head_dim);
  /* The file may give a head wider than the hidden size. The default is at least 1. */
  int64_t d = c->hidden / c->heads > 0 ? c->hidden / c->heads : 1;
  if (k->head_dim_preset > 0) d = k->head_dim_preset;
  status = setting_size(path, k->head_dim, head_dim, d, LLAMA_LAYERS_MAX, &c->head_dim);
  if (!status)
    status = setting_size(path, k->kv_heads, get(from, k->kv_heads), k->kv_heads_required ? 0 : c->heads,
                          c->heads, &c->kv_heads);
  if (!status)
    status = setting_size(path, k->max_positions, get(from, k->max_positions), k->max_positions_preset,
                          MOST_POSITIONS, &c->max_positions);
  if (!status)
    status = setting_real(path, k->norm_eps, get(from, k->norm_eps), k->norm_eps_preset, 0, 1, &c->norm_eps);
  if (status) return status;
  if (c->heads % c->kv_heads != 0)
    return attn_fail(ATTN_EINVAL, "%s: %s=%" PRId64 " does not divide %s=%" PRId64, path, k->kv_heads,
                     c->kv_heads, k->heads, c->heads);
  c->score_scale = 1 / sqrt((double)c->head_dim);
  c->layer = calloc((size_t)c->layers, sizeof *c->layer);
  return c->layer ? ATTN_OK : attn_fail(ATTN_ENOMEM, "%s: no memory for its layers", path);
}

void llama_config_begin(data_llama_config *c) {
  *c = (data_llama_config){.bos = -1,
                           .image_tokens = {-1, -1},
                           .embedding_scale = 1,
                           .residual_scale = 1,
                           .logit_scale = 1,
                           .scale_block = {128, 128},
                           .rope = {.kind = DATA_ROPE_PLAIN, .attention = 1}};
}

void llama_config_free(data_llama_config *c) {
  free(c->layer);
  free(c->rope.divisors);
  *c = (data_llama_config){.layer = NULL};
}

/* -- rotary positions -- */

/* Of a text that is a name; -1: of none. */
static int kind_of(setting s) {
  static const struct {
    const char *name;
    data_rope_kind kind;
  } kinds[] = {{"none", DATA_ROPE_PLAIN},        {"default", DATA_ROPE_PLAIN}, {"linear", DATA_ROPE_LINEAR},
               {"dynamic", DATA_ROPE_DYNAMIC},   {"yarn", DATA_ROPE_YARN},     {"llama3", DATA_ROPE_LLAMA3},
               {"longrope", DATA_ROPE_LONGROPE}, {"su", DATA_ROPE_LONGROPE}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (setting_is(s, kinds[i].name)) return (int)kinds[i].kind;
  return -1;
}

/* 0.1 ln s + 1; or (0.1 mscale ln s + 1) / (0.1 mscale_all ln s + 1) where a file gives both, and neither is
 * 0 (DeepSeek-V2, 2024, arXiv:2405.04434, whose attention has the square of the divisor in its scale). */
static attn_status usual_attention(const char *path, const llama_rope_keys *k, setting_getter *get,
                                   const void *from, double factor, double *out) {
  double mscale = 0, all = 0;
  attn_status status = ATTN_OK;
  if (k->mscale) status = setting_real(path, k->mscale, get(from, k->mscale), 0, 0, 1e3, &mscale);
  if (!status && k->mscale)
    status = setting_real(path, k->mscale_all, get(from, k->mscale_all), 0, 0, 1e3, &all);
  const bool both = mscale > 0 && all > 0;
  *out = both ? (0.1 * mscale * log(factor) + 1) / (0.1 * all * log(factor) + 1) : 0.1 * log(factor) + 1;
  return status;
}

static attn_status read_yarn(const char *path, const llama_rope_keys *k, setting_getter *get,
                             const void *from, data_rope *r) {
  double said = 0, usual = 0;
  attn_status status = usual_attention(path, k, get, from, r->factor, &usual);
  if (!status)
    status = setting_real(path, k->beta_fast, get(from, k->beta_fast), 32, 1e-3, 1e6, &r->beta_fast);
  if (!status)
    status = setting_real(path, k->beta_slow, get(from, k->beta_slow), 1, 1e-3, 1e6, &r->beta_slow);
  if (!status)
    status = setting_real(path, k->attention, get(from, k->attention), k->attention_multiplies ? 1 : usual,
                          1e-3, 1e3, &said);
  if (!status && !(r->beta_slow < r->beta_fast))
    status = attn_fail(ATTN_EINVAL, "%s: %s=%g is not below %s=%g", path, k->beta_slow, r->beta_slow,
                       k->beta_fast, r->beta_fast);
  r->attention = k->attention_multiplies ? said * usual : said;
  return status;
}

static attn_status read_longrope(const char *path, const llama_rope_keys *k, setting_getter *get,
                                 const void *from, data_rope *r) {
  const double usual = r->factor > 1 ? sqrt(1 + log(r->factor) / log((double)r->original)) : 1;
  attn_status status = setting_real(path, k->attention, get(from, k->attention),
                                    k->attention_multiplies ? 1 : usual, 1e-3, 1e3, &r->attention);
  if (!status && !(r->attention <= 1e3))
    status = attn_fail(ATTN_EINVAL, "%s: %s=1 and no %s: sqrt(1 + ln %g / ln 1) is no factor", path,
                       k->original, k->attention, r->factor);
  return status;
}

static attn_status read_llama3(const char *path, const llama_rope_keys *k, setting_getter *get,
                               const void *from, data_rope *r) {
  attn_status status = setting_real(path, k->low, get(from, k->low), (double)NAN, 1e-3, 1e6, &r->low);
  if (!status) status = setting_real(path, k->high, get(from, k->high), (double)NAN, 1e-3, 1e6, &r->high);
  if (!status && !(r->low < r->high))
    status = attn_fail(ATTN_EINVAL, "%s: %s=%g is not below %s=%g", path, k->low, r->low, k->high, r->high);
  return status;
}

attn_status llama_set_rotary_dim(const char *path, const char *key, int64_t count, data_llama_config *c) {
  if (count < 2 || count % 2 != 0)
    return attn_fail(ATTN_EINVAL,
                     "%s: %s lets %" PRId64 " of %" PRId64 " components turn; rotary positions need pairs",
                     path, key, count, c->head_dim);
  c->rotary_dim = count;
  return ATTN_OK;
}

attn_status llama_read_rope(const char *path, const llama_rope_keys *k, setting_getter *get, const void *from,
                            data_llama_config *c) {
  data_rope r = {.kind = DATA_ROPE_PLAIN, .theta = c->rope.theta, .attention = 1};
  const setting name = get(from, k->kind);
  const int kind = name.kind == SETTING_ABSENT ? DATA_ROPE_PLAIN : kind_of(name);
  if (kind < 0 && name.kind == SETTING_TEXT)
    return attn_fail(ATTN_EUNSUPPORTED,
                     "%s: %s is %.*s; linear, dynamic, yarn, llama3 and longrope are computed", path, k->kind,
                     name.bytes < 64 ? (int)name.bytes : 64, name.text);
  if (kind < 0) return attn_fail(ATTN_EINVAL, "%s: %s is not a string", path, k->kind);
  r.kind = (data_rope_kind)kind;
  c->rope = r;
  if (r.kind == DATA_ROPE_PLAIN) return ATTN_OK;
  const bool required = r.kind == DATA_ROPE_LLAMA3 || r.kind == DATA_ROPE_LONGROPE;
  attn_status status = ATTN_OK;
  if (r.kind == DATA_ROPE_DYNAMIC) /* reads no other length, as transformers */
    r.original = c->max_positions;
  else if (r.kind != DATA_ROPE_LINEAR)
    status = setting_size(path, k->original, get(from, k->original), required ? 0 : c->max_positions,
                          MOST_POSITIONS, &r.original);
  const double ratio =
      r.kind == DATA_ROPE_LONGROPE ? (double)c->max_positions / (double)r.original : (double)NAN;
  if (!status) status = setting_real(path, k->factor, get(from, k->factor), ratio, 1, 1e6, &r.factor);
  if (!status && r.kind == DATA_ROPE_YARN) status = read_yarn(path, k, get, from, &r);
  if (!status && r.kind == DATA_ROPE_LONGROPE) status = read_longrope(path, k, get, from, &r);
  if (!status && r.kind == DATA_ROPE_LLAMA3) status = read_llama3(path, k, get, from, &r);
  if (!status && r.kind == DATA_ROPE_YARN && !(r.theta > 1))
    status = attn_fail(ATTN_EINVAL, "%s: %s is yarn, which needs a base above 1", path, k->kind);
  if (!status && r.kind == DATA_ROPE_DYNAMIC && c->rotary_dim == 2)
    status = attn_fail(ATTN_EINVAL, "%s: %s is dynamic, which needs more than 2 components that turn", path,
                       k->kind);
  if (status) return status;
  const double stretched = fmin((double)r.original * r.factor, (double)MOST_POSITIONS);
  if ((r.kind == DATA_ROPE_DYNAMIC || r.kind == DATA_ROPE_YARN) && stretched > (double)c->max_positions)
    c->max_positions = (int64_t)stretched;
  c->rope = r;
  return ATTN_OK;
}
