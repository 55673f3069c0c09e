/* llama_config.h - the numbers of a model, whatever a format calls them. Internal to data/llama/. */
#ifndef DATA_LLAMA_LLAMA_CONFIG_H
#define DATA_LLAMA_LLAMA_CONFIG_H

#include "data/data.h"
#include "data/support/config_value.h"

/* Larger than any model, and small enough that a product of two does not overflow. */
enum { LLAMA_DIMENSION_MAX = 1 << 28, LLAMA_LAYERS_MAX = 1 << 16 };

/* Keys, and the values of those that may be absent (0, NAN: they may not). */
typedef struct llama_keys {
  const char *hidden, *intermediate, *layers, *heads, *kv_heads, *head_dim, *max_positions, *norm_eps;
  const char *experts, *experts_used;                    /* NULL: there are none */
  const char *expert_intermediate, *shared_intermediate; /* NULL: the MLP's */
  int64_t intermediate_times;                            /* the preset is this many times hidden */
  int64_t head_dim_preset;                               /* 0: hidden / heads */
  bool kv_heads_required;                                /* or as many as heads */
  int64_t max_positions_preset;
  double norm_eps_preset;
} llama_keys;

typedef setting setting_getter(const void *from, const char *key);

/* Sets the members of *c that have a key, makes c->layer, and checks that they fit together. */
attn_status llama_read_numbers(const char *path, const llama_keys *, setting_getter *, const void *from,
                               data_llama_config *c);

/* Keys of the stretching of rotary positions. */
typedef struct llama_rope_keys {
  const char *kind; /* its value is a name; absent: plain */
  const char *factor, *original, *beta_fast, *beta_slow, *attention, *mscale, *mscale_all, *low, *high;
  /* A GGUF file: the value of `attention` stands with yarn's 0.1 ln factor + 1, not for it, and longrope's is
   * 1 unless it is there. */
  bool attention_multiplies;
} llama_rope_keys;

/* What members of *c have that no key sets. */
void llama_config_begin(data_llama_config *c);
void llama_config_free(data_llama_config *c);

/* Sets c->rotary_dim, as `key` says it; head_dim is already set. */
attn_status llama_set_rotary_dim(const char *path, const char *key, int64_t count, data_llama_config *c);

/* Sets c->rope except theta and divisors; theta and rotary_dim are already set. Raises c->max_positions to
 * the stretched length. */
attn_status llama_read_rope(const char *path, const llama_rope_keys *, setting_getter *, const void *from,
                            data_llama_config *c);

#endif
