"""forward.py - forward passes of language models in NumPy, from the papers' definitions and the published configurations,
and not from the C code. `weights` gives an array for a tensor's name."""
import math

import numpy as np


def softmax(s):
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def rope_frequencies(config, n):
    """Su et al. 2021: theta^(-2i/d); stretched as `rope_scaling` says, in a window of n. And what q and k are times."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    d = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    preset = 0.25 if config["model_type"] in ("stablelm", "gpt_neox") else 1
    d = int(d * rope.get("partial_rotary_factor", config.get("partial_rotary_factor", preset)))  # components that turn
    i = np.arange(d // 2)
    f = theta ** (-2.0 * i / d)
    if kind == "default":
        return f, 1.0
    most = config.get("max_position_embeddings")
    original = rope.get("original_max_position_embeddings", config.get("original_max_position_embeddings", most))
    factor = rope.get("factor", most / original)
    if kind == "longrope":  # Ding et al. 2024: a divisor for each, by the window's length
        times = np.sqrt(1 + np.log(factor) / np.log(original)) if factor > 1 else 1.0
        divisors = rope["long_factor" if n > original else "short_factor"]
        return f / np.array(divisors, np.float64), rope.get("attention_factor", times)
    if kind == "linear":  # Chen et al. 2023: position / factor
        return f / factor, 1.0
    if kind == "dynamic":  # the base that stretches the lowest frequency by n / original, from n = original on
        if n > original:
            theta = theta * (factor * n / original - (factor - 1)) ** (d / (d - 2))
        return theta ** (-2.0 * i / d), 1.0
    if kind == "llama3":  # by wavelength, in parts of the original context
        wavelength = 2 * np.pi / f
        share = (original / wavelength - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
        mixed = (1 - share) * f / factor + share * f
        long, short = original / rope["low_freq_factor"], original / rope["high_freq_factor"]
        return np.where(wavelength < short, f, np.where(wavelength > long, f / factor, mixed)), 1.0
    assert kind == "yarn"  # Peng et al. 2023, section 3.2: rotations over the original context decide

    def index(rotations):
        return d * np.log(original / (rotations * 2 * np.pi)) / (2 * np.log(theta))

    low, high = index(rope.get("beta_fast", 32)), index(rope.get("beta_slow", 1))
    if rope.get("truncate", True):
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    gamma = 1 - np.clip((i - low) / (high - low), 0, 1)
    times = 0.1 * np.log(factor) + 1
    if rope.get("mscale") and rope.get("mscale_all_dim"):  # DeepSeek-AI 2024
        times = (0.1 * rope["mscale"] * np.log(factor) + 1) / (0.1 * rope["mscale_all_dim"] * np.log(factor) + 1)
    return (1 - gamma) * f / factor + gamma * f, rope.get("attention_factor", times)


def rotate(x, frequency, times, positions):
    """x [n, heads, d]: pairs (i, i + r/2) of the first r components turn by position * frequency."""
    angle, half = np.outer(positions, frequency)[:, None, :], len(frequency)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    c, s = (np.cos(angle) * times).astype(x.dtype), (np.sin(angle) * times).astype(x.dtype)
    return np.concatenate([a * c - b * s, b * c + a * s, rest], axis=-1)


def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def erf(x):
    return np.vectorize(math.erf, otypes=[x.dtype])(x)


ACTIVATIONS = {"silu": lambda x: x / (1 + np.exp(-x)), "gelu": lambda x: x * (1 + erf(x / np.sqrt(2))) / 2,
               "gelu_new": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
               "relu": lambda x: np.maximum(x, 0)}
ACTIVATIONS["gelu_pytorch_tanh"] = ACTIVATIONS["gelu_new"]


def attend(q, k, v, seen, scale=None, cap=None, sinks=None):
    """q [n, heads, d], k and v [m, kv_heads, d], seen [n, m]; query head h reads kv head h / (heads / kv_heads)."""
    scale = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    group, out = q.shape[1] // k.shape[1], np.empty_like(q)
    for h in range(q.shape[1]):
        s = q[:, h] @ k[:, h // group].T * np.asarray(scale, q.dtype)
        s = cap * np.tanh(s / cap) if cap else s
        s = np.where(seen, s, np.asarray(-np.inf, q.dtype))
        s = s if sinks is None else np.append(s, np.full_like(s[:, :1], sinks[h]), 1)
        out[:, h] = softmax(s)[:, : len(v)] @ v[:, h // group]
    return out.reshape(len(q), -1)


def windows(config):
    """Of each layer how many keys a query sees, its own with them; None: all before it."""
    layers, width = config["num_hidden_layers"], config.get("sliding_window")
    if "layer_types" in config:
        return [width if t == "sliding_attention" else None for t in config["layer_types"]]
    if config["model_type"] in ("mistral", "phi3"):
        return [width] * layers
    every = {"gemma2": 2, "gpt_oss": 2, "gemma3_text": 6}.get(config["model_type"])
    if every:
        return [None if (layer + 1) % every == 0 else width for layer in range(layers)]
    if config["model_type"] == "modernbert":
        return [None if layer % 3 == 0 else config["local_attention"] for layer in range(layers)]
    if config["model_type"] in ("qwen2", "qwen3") and config.get("use_sliding_window"):
        return [width if layer >= config["max_window_layers"] else None for layer in range(layers)]
    return [None] * layers


# What Llama's tensors are called elsewhere.
RENAMED = {
    "gpt2": {"model.layers.": "transformer.h.", "model.embed_tokens": "transformer.wte", "model.norm": "transformer.ln_f",
             "input_layernorm": "ln_1", "post_attention_layernorm": "ln_2", "self_attn.qkv_proj": "attn.c_attn",
             "self_attn.o_proj": "attn.c_proj", "mlp.up_proj": "mlp.c_fc", "mlp.down_proj": "mlp.c_proj"},
    "gpt_neox": {"model.layers.": "gpt_neox.layers.", "model.embed_tokens": "gpt_neox.embed_in", "lm_head": "embed_out",
                 "model.norm": "gpt_neox.final_layer_norm", "self_attn.qkv_proj": "attention.query_key_value",
                 "self_attn.o_proj": "attention.dense", "mlp.up_proj": "mlp.dense_h_to_4h",
                 "mlp.down_proj": "mlp.dense_4h_to_h"},
    "modernbert": {"model.embed_tokens": "model.embeddings.tok_embeddings", "input_layernorm": "attn_norm",
                   "post_attention_layernorm": "mlp_norm", "self_attn.qkv_proj": "attn.Wqkv", "self_attn.o_proj": "attn.Wo",
                   "mlp.gate_up_proj": "mlp.Wi", "mlp.down_proj": "mlp.Wo"}}
FUSED = ("phi3", "gpt2", "gpt_neox", "modernbert")  # q, k and v in one matrix
LAYER_NORMS = ("stablelm", "gpt2", "gpt_neox", "modernbert")
ALL_BIASES = ("gpt2", "gpt_neox")


class Decoder:
    """Keeps the keys and values of the tokens so far, so that a text may come in pieces (not with dynamic scaling)."""

    def __init__(self, config, weights, dtype=np.float64):
        c = dict(config)
        for theirs, name in ("n_embd", "hidden_size"), ("n_layer", "num_hidden_layers"), ("n_head", "num_attention_heads"):
            c[name] = c.get(theirs, c.get(name))
        self.c, self.w, self.dtype, self.kind = c, weights, dtype, c["model_type"]
        self.heads = c["num_attention_heads"]
        self.kv_heads = c.get("num_key_value_heads", self.heads)
        self.d = c.get("head_dim") or c["hidden_size"] // self.heads
        self.windows = windows(c)
        self.eps = dtype(c.get("rms_norm_eps", c.get("layer_norm_eps", c.get("norm_eps", c.get("layer_norm_epsilon", 1e-6)))))
        self.kept = [None] * c["num_hidden_layers"]
        self.qkv = [None] * c["num_hidden_layers"]
        self.activation = ACTIVATIONS[c.get("hidden_activation", c.get("activation_function", c.get("hidden_act")))]

    def called(self, name):
        for ours, theirs in RENAMED.get(self.kind, {}).items():
            name = name.replace(ours, theirs)
        return "model.final_norm.weight" if name == "model.norm.weight" and self.kind == "modernbert" else name

    def get(self, name):
        return np.asarray(self.w(self.called(name)), self.dtype)

    def linear(self, x, name, bias):
        w = self.get(name + ".weight")
        y = x @ (w if self.kind == "gpt2" else w.T)
        return y + self.get(name + ".bias") if bias or self.kind in ALL_BIASES else y

    def norm(self, x, name):
        w = self.get(name + ".weight")
        if self.kind in LAYER_NORMS:
            y = rms(x - x.mean(-1, keepdims=True), w, self.eps)
            return y if self.kind == "modernbert" else y + self.get(name + ".bias")
        return rms(x, w + 1 if self.kind.startswith("gemma") else w, self.eps)

    def project(self, p, h, bias):
        n, heads, kv = len(h), self.heads, self.kv_heads
        if self.kind not in FUSED:
            bias = bias or self.kind in ("qwen2", "qwen2_moe") or bool(self.c.get("use_qkv_bias"))
            q, k, v = (self.linear(h, p + f"self_attn.{t}_proj", bias) for t in "qkv")
            if self.kind == "olmo2":  # all heads at once
                q, k = self.norm(q, p + "self_attn.q_norm"), self.norm(k, p + "self_attn.k_norm")
            q, k, v = (x.reshape(n, -1, self.d) for x in (q, k, v))
            if self.kind in ("qwen3", "gemma3_text"):
                q, k = self.norm(q, p + "self_attn.q_norm"), self.norm(k, p + "self_attn.k_norm")
            if self.c.get("qk_layernorm"):  # each head's own
                q, k = (np.stack([rms(x[:, h] - x[:, h].mean(-1, keepdims=True),
                                      self.get(p + f"self_attn.{t}_layernorm.norms.{h}.weight"), self.eps)
                                  for h in range(x.shape[1])], axis=1) for t, x in zip("qk", (q, k)))
            return q, k, v
        qkv = self.linear(h, p + "self_attn.qkv_proj", bias)
        if self.kind == "gpt_neox":  # head by head
            return np.split(qkv.reshape(n, heads, 3 * self.d), 3, axis=-1)
        return np.split(qkv.reshape(n, -1, self.d), [heads, heads + kv], axis=1)

    def turned(self, layer, x, at):
        if self.kind == "gpt2" or not (self.c.get("no_rope_layers") or [1] * 99)[layer]:
            return x
        local = self.kind in ("gemma3_text", "modernbert") and self.windows[layer]
        base = {"gemma3_text": "rope_local_base_freq", "modernbert": "local_rope_theta"}.get(self.kind)
        c = {**self.c, "rope_theta": self.c[base], "rope_scaling": None} if local else self.c
        if self.kind == "modernbert" and not local:
            c = {**c, "rope_theta": c["global_rope_theta"]}
        return rotate(x, *rope_frequencies(c, at[-1] + 1), at)

    def mixture(self, p, h):
        """The experts with the largest weights, normalised over all experts, and a shared expert weighted by its gate."""
        likely = softmax(h @ self.get(p + "mlp.gate.weight").T)
        gate = 1 / (1 + np.exp(-h @ self.get(p + "mlp.shared_expert_gate.weight").T))
        y = gate * self.mlp(p, h, "mlp.shared_expert")
        for row, chosen in enumerate(np.argsort(-likely, axis=-1)[:, : self.c["num_experts_per_tok"]]):
            total = likely[row, chosen].sum() if self.c.get("norm_topk_prob") else 1
            for e in chosen:
                y[row] += likely[row, e] / total * self.mlp(p, h[row : row + 1], f"mlp.experts.{e}")[0]
        return y

    def clamped_mixture(self, p, h):
        """OpenAI 2025: the experts of the largest scores, weighted by these alone; gate and up lie in turn, and are clamped."""
        scores, y, limit = self.linear(h, p + "mlp.router", True), np.zeros_like(h), self.c["swiglu_limit"]
        into, out = (p + f"mlp.experts.{t}_proj" for t in ("gate_up", "down"))
        for row, chosen in enumerate(np.argsort(-scores, axis=-1)[:, : self.c["num_experts_per_tok"]]):
            for e, weight in zip(chosen, softmax(scores[row, chosen])):
                x = h[row] @ self.get(into)[e] + self.get(into + "_bias")[e]
                gate, up = np.minimum(x[::2], limit), np.clip(x[1::2], -limit, limit)
                y[row] += weight * ((up + 1) * gate / (1 + np.exp(-1.702 * gate)) @ self.get(out)[e] + self.get(out + "_bias")[e])
        return y

    def mlp(self, p, h, part="mlp"):
        bias = bool(self.c.get("mlp_bias"))
        if self.kind in ALL_BIASES:
            return self.linear(self.activation(self.linear(h, p + "mlp.up_proj", True)), p + "mlp.down_proj", True)
        if self.kind in ("phi3", "modernbert"):
            gate, up = np.split(self.linear(h, p + "mlp.gate_up_proj", False), 2, axis=-1)
        else:
            gate, up = self.linear(h, p + part + ".gate_proj", bias), self.linear(h, p + part + ".up_proj", bias)
        return self.linear(self.activation(gate) * up, p + part + ".down_proj", bias)

    def embed(self, ids, first):
        x = np.stack([self.row("model.embed_tokens.weight", t) for t in ids])
        if self.kind == "gpt2":
            x = x + np.stack([self.row("transformer.wpe.weight", first + i) for i in range(len(ids))])
        if self.kind == "modernbert":
            return self.norm(x, "model.embeddings.norm")
        return x * (np.sqrt(self.dtype(self.c["hidden_size"])) if self.kind.startswith("gemma")
                    else self.c.get("embedding_multiplier", 1))

    def forward(self, ids, last_only=False):
        """Logits of tokens that follow those before; of an encoder None."""
        c, kind = self.c, self.kind
        bias, encoder = bool(c.get("attention_bias")), kind == "modernbert"
        first = 0 if self.kept[0] is None else len(self.kept[0][0])
        n = len(ids)
        at = np.arange(first, first + n)
        scale = c.get("attention_multiplier")
        scale = c.get("query_pre_attn_scalar", 256) ** -0.5 if kind.startswith("gemma") else scale
        times, after, around = c.get("residual_multiplier", 1), kind == "olmo2", kind in ("gemma2", "gemma3_text")
        x = self.embed(ids, first)
        for layer in range(c["num_hidden_layers"]):
            p = f"model.layers.{layer}."
            bare = after or (encoder and layer == 0)
            q, k, v = self.project(p, x if bare else self.norm(x, p + "input_layernorm"), bias)
            q, k = self.turned(layer, q, at), self.turned(layer, k, at)
            self.qkv[layer] = (q, k, v)
            if first:
                k, v = (np.concatenate(pair) for pair in zip(self.kept[layer], (k, v)))
            self.kept[layer] = (k, v)
            j, width = np.arange(first + n)[None, :], self.windows[layer]
            seen = (j <= at[:, None]) | encoder
            if width:
                seen &= abs(j - at[:, None]) <= width // 2 if encoder else j > at[:, None] - width
            sinks = self.get(p + "self_attn.sinks") if kind == "gpt_oss" else None
            a = attend(q, k, v, seen, scale, c.get("attn_logit_softcapping"), sinks)
            a = self.linear(a, p + "self_attn.o_proj", bias)
            if after or around:
                a = self.norm(a, p + "post_attention_layernorm")
            before, x = x, x + times * a
            middle = p + ("pre_feedforward_layernorm" if around else "post_attention_layernorm")
            source = before if c.get("use_parallel_residual", kind == "gpt_neox") else x
            middle = p + "input_layernorm" if kind == "stablelm" and c.get("use_parallel_residual") else middle
            mixed = kind == "qwen2_moe" and layer not in c.get("mlp_only_layers", ())
            inner = self.clamped_mixture if kind == "gpt_oss" else self.mixture if mixed else self.mlp
            h = inner(p, source if after else self.norm(source, middle))
            x = x + times * (self.norm(h, p + "post_feedforward_layernorm") if after or around else h)
        if encoder:
            return None
        x = self.norm(x[-1:] if last_only else x, "model.norm")
        head = self.get("model.embed_tokens.weight" if c.get("tie_word_embeddings") else "lm_head.weight")
        logits, cap = x @ head.T / c.get("logits_scaling", 1), c.get("final_logit_softcapping")
        return cap * np.tanh(logits / cap) if cap else logits

    def row(self, name, index):
        return np.asarray(self.w(self.called(name))[index], self.dtype)


def encode(config, weights, ids):
    """Devlin et al. 2018: q, k and v of each layer, [n, heads, d]; post-norm, learned positions, gelu by erf."""
    heads, n, made = config["num_attention_heads"], len(ids), []

    def linear(x, name):
        return x @ weights(name + ".weight").T + weights(name + ".bias")

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + config.get("layer_norm_eps", 1e-12))
        return x * weights(name + ".weight") + weights(name + ".bias")

    x = weights("embeddings.word_embeddings.weight")[ids] + weights("embeddings.position_embeddings.weight")[:n]
    x = norm(x + weights("embeddings.token_type_embeddings.weight")[0], "embeddings.LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        p = f"encoder.layer.{layer}."
        q, k, v = (linear(x, p + f"attention.self.{t}").reshape(n, heads, -1) for t in ("query", "key", "value"))
        made.append((q, k, v))
        mixed = attend(q, k, v, np.ones((n, n), bool))
        x = norm(x + linear(mixed, p + "attention.output.dense"), p + "attention.output.LayerNorm")
        h = linear(x, p + "intermediate.dense")
        x = norm(x + linear(ACTIVATIONS["gelu"](h), p + "output.dense"), p + "output.LayerNorm")
    return made
