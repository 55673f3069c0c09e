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

SMALL = {"vocab_size": 11, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 64, "rms_norm_eps": 0.0009765625,
         "rope_theta": 500.0, "hidden_act": "silu"}
WIDE = {**SMALL, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "rope_theta": 100.0,
        "model_type": "llama"}
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
    "qwen2": {**SMALL, "model_type": "qwen2", "sliding_window": 4, "use_sliding_window": False,
              "tie_word_embeddings": True},
    "qwen2-window": {**SMALL, "model_type": "qwen2", "sliding_window": 4, "use_sliding_window": True,
                     "max_window_layers": 1},
    "qwen3": {**SMALL, "model_type": "qwen3", "sliding_window": None, "attention_bias": False},
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
    hidden, inner, layers = c["hidden_size"], c["intermediate_size"], range(c["num_hidden_layers"])
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
    d, kind, bias, mlp = c["head_dim"], c["model_type"], c.get("attention_bias", False), c.get("mlp_bias", False)
    made["model.embed_tokens.weight"] = (c["vocab_size"], hidden)
    norm("model.norm", hidden, False)
    if not c.get("tie_word_embeddings"):
        made["lm_head.weight"] = (c["vocab_size"], hidden)
    for p in (f"model.layers.{i}." for i in layers):
        norm(p + "input_layernorm", hidden, False)
        for t, heads in zip("qkv", (c["num_attention_heads"],) + 2 * (c["num_key_value_heads"],)):
            linear(p + f"self_attn.{t}_proj", heads * d, hidden, bias or kind == "qwen2")
            if kind == "qwen3" and t != "v":
                norm(p + f"self_attn.{t}_norm", d, False)
        linear(p + "self_attn.o_proj", hidden, c["num_attention_heads"] * d, bias)
        norm(p + "post_attention_layernorm", hidden, False)
        for t in ("gate_proj", "up_proj"):
            linear(p + "mlp." + t, inner, hidden, mlp)
        linear(p + "mlp.down_proj", hidden, inner, mlp)
    return made


def rounded(x):
    return [float(f"{value:.9g}") for value in np.ravel(x)]


def golden(config):
    tensors = shapes(config)
    arrays = {name: numbers(name, shape) for name, shape in tensors.items()}
    case = {"config": config, "tensors": {name: list(shape) for name, shape in tensors.items()}, "tokens": TOKENS,
            "kept": KEPT}
    if config["model_type"] == "bert":
        qkv = forward.encode(config, arrays.__getitem__, TOKENS)[-1]
    else:
        model = forward.Decoder(config, arrays.__getitem__)
        case["logits"] = rounded(model.forward(TOKENS))
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
