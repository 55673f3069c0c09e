/* architectures.h - what the architectures differ in, as data: keys of config.json, names of tensors, which
 * norms there are and where. Everything else (shapes, biases, windows) follows from a configuration. Internal
 * to data/llama/. */
#ifndef DATA_LLAMA_ARCHITECTURES_H
#define DATA_LLAMA_ARCHITECTURES_H

#include "data/llama/llama_config.h"

/* The tensors of a layer: vectors of norms, then matrices. */
typedef enum llama_part {
  LLAMA_ATTENTION_NORM, /* of what q, k and v are computed from; absent: x itself */
  LLAMA_Q_NORM,
  LLAMA_K_NORM,
  LLAMA_ATTENTION_POST_NORM, /* of what attention adds */
  LLAMA_MLP_NORM,            /* absent: x itself */
  LLAMA_MLP_POST_NORM,
  LLAMA_NORMS,
  LLAMA_Q = LLAMA_NORMS,
  LLAMA_K,
  LLAMA_V, /* of one name with q and k: one matrix, the rows of q, k and v after one another */
  LLAMA_O,
  LLAMA_GATE, /* absent: the activation is of `up`. In layers of experts these three are the shared one */
  LLAMA_UP,   /* of one name with the gate: the rows after its own */
  LLAMA_DOWN,
  LLAMA_ROUTER,      /* [experts, hidden] in layers of experts */
  LLAMA_SHARED_GATE, /* [1, hidden]: what the shared expert is times, before the sigmoid */
  LLAMA_PARTS
} llama_part;

/* NULL, 0 and false are what most have. Names of tensors are without ".weight" and ".bias". */
typedef struct llama_architecture {
  const char *name, *in_gguf; /* model_type; general.architecture, NULL: such files are not read */
  const char *also;           /* another model_type that is the same */
  const char *prefix;         /* of all names but the head's; files of the bare model leave it out */
  const char *embedding, *positions, *types, *embedding_norm, *norm, *head;
  const char *layer; /* "layers.": before the number of a layer, a dot and a part */
  const char *part[LLAMA_PARTS];
  const char *ignored[3];       /* how names of buffers end that files have for nothing */
  const char *mlp_norm_in_gguf; /* NULL: ffn_norm */
  const char *sinks;            /* [heads] the logits of attention's sinks, a whole name */
  /* In layers of experts: the name before each part of an expert (gate, up, down), and the names of these;
   * NULL: all experts are in the tensors gate_up_proj and down_proj. And those of the shared expert. */
  const char *experts, *expert[3], *shared[3];

  const llama_keys *keys;
  const char *activation_key, *activation; /* the preset */
  const char *window_key;                  /* how far a query sees; NULL: it has none */
  int64_t window;                          /* preset; 0: none */
  bool window_optional;                    /* use_sliding_window says whether */
  const char *window_from_key;             /* the first layer that has it */
  const char *period_key;                  /* of this many layers one sees all: the last ... */
  int64_t period;                          /* preset; 0: none does */
  bool period_begins;                      /* ... or the first */
  const char *theta_key, *turned_key, *window_theta_key;
  double theta, turned, window_theta;   /* presets; 0: 10000, all, and that of other layers */
  bool unturned_layers;                 /* no_rope_layers */
  const char *bias_key;                 /* whether q, k, v and o have biases */
  bool bias_of_qkv, mlp_bias_key;       /* the key is for q, k and v alone; it has mlp_bias */
  bool qkv_bias, output_bias, mlp_bias; /* presets */
  const char *parallel_key;             /* of blocks x + attention(x) + mlp(x) */
  bool parallel;                        /* preset */
  const char *experts_normed_key;       /* whether the weights of experts add up to 1: no, if it is absent */
  bool experts_normed;                  /* without such a key, or in a GGUF file */
  double gate_limit, gate_slope;        /* presets of swiglu_limit and swiglu_alpha; 0: there are none */
  bool query_scalar, multipliers;       /* query_pre_attn_scalar; Granite's four */
  bool capped;                          /* the keys *_logit_softcapping */
  double score_cap, logit_cap;          /* presets; 0: none */
  bool root_of_hidden;                  /* embeddings are times sqrt(hidden) */
  bool tied;                            /* preset of tie_word_embeddings */

  bool layer_norm, norm_bias; /* LayerNorm; else RMS */
  bool plus_one;              /* norms are times 1 + w */
  bool whole_norms;           /* those of q and k are of all heads together */
  bool norms_of_sums;         /* post-norms are of x with what was added */
  bool first_unnormed;        /* the first layer has no norm before its attention */
  bool transposed;            /* matrices of layers are stored [columns, rows] */
  bool interleaved;           /* q, k and v of one name, head by head */
  bool pairs_in_gguf;         /* llama.cpp rotates neighbours */
  bool expert_bias;           /* experts and their router have biases */
  bool alternating;           /* experts' matrices are [columns, rows], rows of gate and up in turn */
  bool exact_range;           /* yarn's range is not rounded: a GGUF file has no key for it */
  bool one_norm;              /* a parallel block has the attention's norm alone */
  bool norms_of_heads;        /* q and k: a norm for each head, its number after the name, if qk_layernorm */
  bool images;                /* of images and text: text alone is read, whose axes of positions are one */
  bool encoder;               /* every token sees all; no next one is predicted */
} llama_architecture;

/* By model_type, or by general.architecture in a GGUF file; path and key for messages. EUNSUPPORTED names
 * what is computed. */
attn_status llama_architecture_find(const char *path, const char *key, setting, bool in_gguf,
                                    const llama_architecture **);
const llama_architecture *llama_architecture_of(const data_llama_config *);
/* The architecture of files of the same general.architecture whose layers have experts; NULL: none. */
const llama_architecture *llama_architecture_of_experts(const llama_architecture *);

/* The function that a configuration calls so; NULL: it is not computed. */
float (*llama_activation(const char *name, size_t bytes))(float);

#endif
