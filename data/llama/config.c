/* config.c - the numbers of a model, each in its range, and together. */
#include <inttypes.h>

#include "data/llama/config.h"

attn_status llama_read_numbers(const char *path, const llama_keys *k, setting_getter *get, const void *from,
                               data_llama_config *c) {
  const struct {
    const char *key;
    int64_t max, *to;
  } sizes[] = {{k->hidden, LLAMA_DIMENSION_MAX, &c->hidden},
               {k->intermediate, LLAMA_DIMENSION_MAX, &c->intermediate},
               {k->layers, LLAMA_LAYERS_MAX, &c->layers},
               {k->heads, LLAMA_LAYERS_MAX, &c->heads}};
  attn_status status = ATTN_OK;
  for (size_t i = 0; !status && i < sizeof sizes / sizeof *sizes; i++)
    status = setting_size(path, sizes[i].key, get(from, sizes[i].key), 0, sizes[i].max, sizes[i].to);
  if (status) return status;
  setting head_dim = get(from, k->head_dim);
  if (head_dim.kind == SETTING_ABSENT && c->hidden % c->heads != 0)
    return attn_fail(ATTN_EINVAL,
                     "%s: %s=%" PRId64 " is not a multiple of %s=%" PRId64 ", and %s is not given", path,
                     k->hidden, c->hidden, k->heads, c->heads, k->head_dim);
  /* A head may be wider than the hidden size if the file says so. The default is at least 1. */
  int64_t d = c->hidden / c->heads > 0 ? c->hidden / c->heads : 1;
  status = setting_size(path, k->head_dim, head_dim, d, LLAMA_LAYERS_MAX, &c->head_dim);
  if (!status)
    status = setting_size(path, k->kv_heads, get(from, k->kv_heads), c->heads, c->heads, &c->kv_heads);
  if (!status)
    status = setting_size(path, k->max_positions, get(from, k->max_positions), k->max_positions_preset,
                          INT64_C(1) << 40, &c->max_positions);
  if (!status)
    status = setting_real(path, k->rms_eps, get(from, k->rms_eps), k->rms_eps_preset, 0, 1, &c->rms_eps);
  if (status) return status;
  if (c->heads % c->kv_heads != 0)
    return attn_fail(ATTN_EINVAL, "%s: %s=%" PRId64 " does not divide %s=%" PRId64, path, k->kv_heads,
                     c->kv_heads, k->heads, c->heads);
  if (c->head_dim % 2 != 0)
    return attn_fail(ATTN_EINVAL, "%s: %s=%" PRId64 " is odd; rotary positions need pairs", path, k->head_dim,
                     c->head_dim);
  return ATTN_OK;
}
