#!/usr/bin/python3
"""architectures.py FILE [--write] - small random models of each architecture: what FILE says of them is what NumPy
computes in fp64 (forward.py). tests/data/architectures.c holds the program against FILE.

A tensor's numbers follow from its name: a linear congruential generator from the name's FNV-1a hash, multiples of 1/64.
Exit code 77: no NumPy."""
import json
import sys

try:
    import numpy as np
except ImportError:
    print("architectures.py: no NumPy: the models' golden numbers are not computed again")
    sys.exit(77)

sys.dont_write_bytecode = True
import forward

MASK = (1 << 64) - 1
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]
KEPT = [0, 6, 15]  # positions whose q, k and v are kept


def without(config, *names):
    return {name: value for name, value in config.items() if name not in names}


SMALL = {"vocab_size": 11, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 64, "rms_norm_eps": 0.0009765625,
         "rope_theta": 500.0, "hidden_act": "silu"}
WIDE = {**SMALL, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "rope_theta": 100.0, "model_type": "llama"}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.0, 1.125, 1.125, 1.25, 1.25, 1.5, 1.5],
            "long_factor": [1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0]}
CASES = {
    "llama-biases": {**SMALL, "model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "linear": {**WIDE, "rope_scaling": {"type": "linear", "factor": 2.5}},
    "dynamic": {**WIDE, "max_position_embeddings": 8, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
    "yarn": {**WIDE, "max_position_embeddings": 256, "rope_scaling": YARN},
    "yarn-given": {**WIDE, "rope_parameters": {**YARN, "rope_theta": 90.0, "attention_factor": 0.8, "beta_fast": 4.0,
                                               "beta_slow": 0.5, "truncate": False}},
    "yarn-mscale": {**WIDE, "max_position_embeddings": 256, "partial_rotary_factor": 0.5,
                    "rope_scaling": {**YARN, "mscale": 2.0, "mscale_all_dim": 0.5}},
    "longrope": {**WIDE, "rope_scaling": {**LONGROPE, "original_max_position_embeddings": 8}},
    "longrope-short": {**WIDE, "model_type": "qwen2", "use_sliding_window": False, "rope_parameters": {
        **LONGROPE, "original_max_position_embeddings": 16, "factor": 2.0,
        "partial_rotary_factor": 0.5, "short_factor": [1.0, 1.25, 1.5, 1.75], "long_factor": [2.0, 4.0, 8.0, 16.0]}},
    "llama3": {**WIDE, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                        "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
    "mistral": {**SMALL, "model_type": "mistral", "sliding_window": 5, "tie_word_embeddings": True},
    "qwen2": {**SMALL, "model_type": "qwen2", "sliding_window": 4, "use_sliding_window": False, "tie_word_embeddings": True},
    "qwen2-window": {**SMALL, "model_type": "qwen2", "sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1},
    "qwen3": {**SMALL, "model_type": "qwen3", "sliding_window": None, "attention_bias": False},
    "gemma2": {**SMALL, "model_type": "gemma2", "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 5,
               "query_pre_attn_scalar": 7, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 8.0,
               "tie_word_embeddings": True},
    "gemma3": {**SMALL, "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4,
               "layer_types": ["sliding_attention", "full_attention"], "rope_local_base_freq": 50.0,
               "rope_scaling": {"rope_type": "linear", "factor": 4.0}, "tie_word_embeddings": True},
    "olmo2": {**SMALL, "model_type": "olmo2"},
    "smollm3": {**SMALL, "model_type": "smollm3", "no_rope_layers": [0, 1], "use_sliding_window": True, "sliding_window": 4,
                "layer_types": ["sliding_attention", "full_attention"], "tie_word_embeddings": True},
    "phi3": {**SMALL, "model_type": "phi3", "sliding_window": 6, "original_max_position_embeddings": 8,
             "rope_scaling": {"type": "longrope", "short_factor": [1.0, 2.0], "long_factor": [1.5, 4.0]}},
    "granite": {**SMALL, "model_type": "granite", "embedding_multiplier": 3.0, "residual_multiplier": 0.5,
                "attention_multiplier": 0.75, "logits_scaling": 4.0},
    "stablelm": {**without(SMALL, "rms_norm_eps", "head_dim"), "hidden_size": 32, "model_type": "stablelm",
                 "use_qkv_bias": True, "layer_norm_eps": 0.0009765625},
    "stablelm-parallel": {**without(SMALL, "rms_norm_eps", "head_dim"), "hidden_size": 32, "model_type": "stablelm",
                          "use_parallel_residual": True, "qk_layernorm": True, "layer_norm_eps": 0.0009765625},
    "experts": {**without(SMALL, "head_dim"), "hidden_size": 16, "model_type": "qwen2_moe", "num_experts": 3, "num_experts_per_tok": 2,
                "moe_intermediate_size": 8, "shared_expert_intermediate_size": 16, "mlp_only_layers": [1]},
    "experts-normed": {**without(SMALL, "head_dim"), "hidden_size": 16, "model_type": "qwen2_moe", "num_experts": 5, "num_experts_per_tok": 3,
                       "moe_intermediate_size": 4, "shared_expert_intermediate_size": 6, "norm_topk_prob": True},
    "gpt-oss": {**SMALL, "model_type": "gpt_oss", "attention_bias": True, "sliding_window": 5, "num_local_experts": 3,
                "num_experts_per_tok": 2, "swiglu_limit": 0.5, "rope_scaling": {**YARN, "truncate": False}},
    "gpt2": {"model_type": "gpt2", "vocab_size": 11, "n_embd": 12, "n_layer": 2, "n_head": 4, "n_positions": 20,
             "activation_function": "gelu_new", "layer_norm_epsilon": 0.0009765625, "tie_word_embeddings": True},
    "pythia": {**without(SMALL, "rms_norm_eps", "head_dim", "num_key_value_heads"), "model_type": "gpt_neox",
               "hidden_size": 32, "hidden_act": "gelu", "layer_norm_eps": 0.0009765625, "attention_bias": True},
    "neox-serial": {**without(SMALL, "rms_norm_eps", "head_dim", "num_key_value_heads"), "model_type": "gpt_neox",
                    "hidden_size": 16, "hidden_act": "relu", "layer_norm_eps": 0.0009765625, "attention_bias": True,
                    "use_parallel_residual": False, "partial_rotary_factor": 0.5},
    "modernbert": {**without(SMALL, "rms_norm_eps", "rope_theta", "head_dim", "num_key_value_heads"),
                   "model_type": "modernbert", "hidden_size": 16, "hidden_activation": "gelu", "num_hidden_layers": 3,
                   "norm_eps": 0.0009765625, "local_attention": 6, "global_rope_theta": 500.0, "local_rope_theta": 50.0},
    "bert": {"model_type": "bert", "vocab_size": 11, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
             "num_attention_heads": 3, "max_position_embeddings": 32, "type_vocab_size": 2, "hidden_act": "gelu",
             "layer_norm_eps": 0.0009765625},
}


def numbers(name, shape):
    state = 0xcbf29ce484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001b3 & MASK
    out = []
    for _ in range(int(np.prod(shape))):
        state = (state * 6364136223846793005 + 1442695040888963407) & MASK
        out.append((state >> 33) % 49 - 24)
    around = 64 if len(shape) == 1 and name.endswith(".weight") else 0  # what is multiplied by is near 1
    return (np.array(out, np.float64).reshape(shape) + around) / 64


def shapes(c):
    hidden = c.get("hidden_size", c.get("n_embd"))
    inner, layers = c.get("intermediate_size", 4 * hidden), range(c.get("num_hidden_layers", c.get("n_layer")))
    made = {}

    def linear(name, rows, columns, bias):
        made[name + ".weight"] = (rows, columns)
        if bias:
            made[name + ".bias"] = (rows,)

    def norm(name, size, bias):
        made[name + ".weight"] = (size,)
        if bias:
            made[name + ".bias"] = (size,)

    if c["model_type"] == "bert":
        made["embeddings.word_embeddings.weight"] = (c["vocab_size"], hidden)
        made["embeddings.position_embeddings.weight"] = (c["max_position_embeddings"], hidden)
        made["embeddings.token_type_embeddings.weight"] = (c["type_vocab_size"], hidden)
        norm("embeddings.LayerNorm", hidden, True)
        for p in (f"encoder.layer.{i}." for i in layers):
            for t in ("self.query", "self.key", "self.value", "output.dense"):
                linear(p + "attention." + t, hidden, hidden, True)
            linear(p + "intermediate.dense", inner, hidden, True)
            linear(p + "output.dense", hidden, inner, True)
            norm(p + "attention.output.LayerNorm", hidden, True)
            norm(p + "output.LayerNorm", hidden, True)
        return made
    kind, bias, mlp = c["model_type"], c.get("attention_bias", False), c.get("mlp_bias", False)
    heads = c.get("num_attention_heads", c.get("n_head"))
    kv_heads, d = c.get("num_key_value_heads", heads), c.get("head_dim", hidden // heads)
    norm_bias = kind in ("stablelm", "gpt2", "gpt_neox")
    made["model.embed_tokens.weight"] = (c["vocab_size"], hidden)
    norm("model.norm", hidden, norm_bias)
    if kind == "modernbert":
        made["model.embeddings.norm.weight"] = (hidden,)
    elif not c.get("tie_word_embeddings"):
        made["lm_head.weight"] = (c["vocab_size"], hidden)
    if kind == "gpt2":
        made["transformer.wpe.weight"] = (c["n_positions"], hidden)
    for i, p in ((i, f"model.layers.{i}.") for i in layers):
        if kind != "olmo2" and not (kind == "modernbert" and i == 0):
            norm(p + "input_layernorm", hidden, norm_bias)
        if not c.get("use_parallel_residual") or kind != "stablelm":
            norm(p + "post_attention_layernorm", hidden, norm_bias)
        for t in {"gemma2": ("pre", "post"), "gemma3_text": ("pre", "post"), "olmo2": ("post",)}.get(kind, ()):
            norm(p + t + "_feedforward_layernorm", hidden, False)
        if kind in forward.FUSED:
            linear(p + "self_attn.qkv_proj", (heads + 2 * kv_heads) * d, hidden, norm_bias)
        else:
            for t, count in zip("qkv", (heads, kv_heads, kv_heads)):
                linear(p + f"self_attn.{t}_proj", count * d, hidden, bias or kind.startswith("qwen2") or c.get("use_qkv_bias"))
                for h in range(count if c.get("qk_layernorm") and t != "v" else 0):
                    norm(p + f"self_attn.{t}_layernorm.norms.{h}", d, False)
                if kind in ("qwen3", "gemma3_text", "olmo2") and t != "v":
                    norm(p + f"self_attn.{t}_norm", count * d if kind == "olmo2" else d, False)
        linear(p + "self_attn.o_proj", hidden, heads * d, bias or kind == "gpt2")
        if kind == "qwen2_moe" and i not in c.get("mlp_only_layers", ()):
            linear(p + "mlp.gate", c["num_experts"], hidden, False)
            linear(p + "mlp.shared_expert_gate", 1, hidden, False)
            own, shared = c["moe_intermediate_size"], c["shared_expert_intermediate_size"]
            widths = {f"experts.{e}": own for e in range(c["num_experts"])} | {"shared_expert": shared}
            for part, width in widths.items():
                linear(p + f"mlp.{part}.gate_proj", width, hidden, False)
                linear(p + f"mlp.{part}.up_proj", width, hidden, False)
                linear(p + f"mlp.{part}.down_proj", hidden, width, False)
            continue
        if kind == "gpt_oss":
            made[p + "self_attn.sinks"] = (heads,)
            linear(p + "mlp.router", c["num_local_experts"], hidden, True)
            for t, columns, rows in ("gate_up_proj", hidden, 2 * inner), ("down_proj", inner, hidden):
                made[p + f"mlp.experts.{t}"] = (c["num_local_experts"], columns, rows)
                made[p + f"mlp.experts.{t}_bias"] = (c["num_local_experts"], rows)
            continue
        if kind in ("phi3", "modernbert"):
            linear(p + "mlp.gate_up_proj", 2 * inner, hidden, False)
        else:
            for t in ("up_proj",) if kind in forward.ALL_BIASES else ("gate_proj", "up_proj"):
                linear(p + "mlp." + t, inner, hidden, mlp or kind in forward.ALL_BIASES)
        linear(p + "mlp.down_proj", hidden, inner, mlp or kind in forward.ALL_BIASES)
    if kind == "gpt2":  # these are stored turned
        made = {name: s[::-1] if ".layers." in name else s for name, s in made.items()}
    return {forward.Decoder(c, None).called(name): shape for name, shape in made.items()}


def rounded(x):
    return [float(f"{value:.9g}") for value in np.ravel(x)]


def golden(config):
    tensors = shapes(config)
    arrays = {name: numbers(name, shape) for name, shape in tensors.items()}
    case = {"config": config, "tensors": {name: list(shape) for name, shape in tensors.items()}, "tokens": TOKENS, "kept": KEPT}
    if config["model_type"] == "bert":
        qkv = forward.encode(config, arrays.__getitem__, TOKENS)[-1]
    else:
        model = forward.Decoder(config, arrays.__getitem__)
        logits = model.forward(TOKENS)
        if logits is not None:
            case["logits"] = rounded(logits)
        qkv = model.qkv[-1]
    case.update({name: rounded(x[KEPT]) for name, x in zip("qkv", qkv)})
    return case


def main():
    made = {name: golden(config) for name, config in CASES.items()}
    if sys.argv[2:] == ["--write"]:
        lines = (f'"{name}": {json.dumps(case)}' for name, case in made.items())
        with open(sys.argv[1], "w") as file:
            file.write("{" + ",\n".join(lines) + "}\n")
        return
    with open(sys.argv[1]) as file:
        kept = json.load(file)
    assert kept.keys() == made.keys(), "other cases"
    for name, case in made.items():
        for key, value in case.items():
            if key in ("logits", "q", "k", "v"):
                apart = np.abs(np.array(value) - np.array(kept[name][key])).max()
                assert apart <= 1e-6 * np.abs(value).max(), f"{name}: {key} differs by {apart}"
            else:
                assert kept[name][key] == value, f"{name}: {key}"
    print(f"{len(made)} models, as {sys.argv[1]} says")


main()
