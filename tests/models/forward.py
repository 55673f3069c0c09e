"""forward.py - forward passes of language models in NumPy, from the papers' definitions and the published configurations,
and not from the C code: Llama, Mistral, Qwen2, Qwen3, and BERT's encoder. `weights` gives an array for a tensor's name."""
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
    d = int(d * rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1)))  # components that turn
    i = np.arange(d // 2)
    f = theta ** (-2.0 * i / d)
    if kind == "default":
        return f, 1.0
    most = config.get("max_position_embeddings")
    original = rope.get("original_max_position_embeddings", most)
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


def attend(q, k, v, seen):
    """q [n, heads, d], k and v [m, kv_heads, d], seen [n, m]; query head h reads kv head h / (heads / kv_heads)."""
    group, out = q.shape[1] // k.shape[1], np.empty_like(q)
    for h in range(q.shape[1]):
        s = q[:, h] @ k[:, h // group].T / np.sqrt(q.shape[-1]).astype(q.dtype)
        out[:, h] = softmax(np.where(seen, s, np.asarray(-np.inf, q.dtype))) @ v[:, h // group]
    return out.reshape(len(q), -1)


def windows(config):
    """Of each layer how many keys a query sees, its own with them; None: all before it."""
    layers, width = config["num_hidden_layers"], config.get("sliding_window")
    if "layer_types" in config:
        return [width if t == "sliding_attention" else None for t in config["layer_types"]]
    if config["model_type"] == "mistral":
        return [width] * layers
    if config["model_type"] in ("qwen2", "qwen3") and config.get("use_sliding_window"):
        return [width if layer >= config["max_window_layers"] else None for layer in range(layers)]
    return [None] * layers


class Decoder:
    """Keeps the keys and values of the tokens so far, so that a text may come in pieces (not with dynamic scaling)."""

    def __init__(self, config, weights, dtype=np.float64):
        self.c, self.w, self.dtype = config, weights, dtype
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads", self.heads)
        self.d = config.get("head_dim") or config["hidden_size"] // self.heads
        self.windows = windows(config)
        self.kept = [None] * config["num_hidden_layers"]
        self.qkv = [None] * config["num_hidden_layers"]

    def get(self, name):
        return np.asarray(self.w(name), self.dtype)

    def linear(self, x, name, bias):
        y = x @ self.get(name + ".weight").T
        return y + self.get(name + ".bias") if bias else y

    def forward(self, ids, last_only=False):
        """Logits of tokens that follow those before."""
        c, kind = self.c, self.c["model_type"]
        eps, bias = self.dtype(c.get("rms_norm_eps", 1e-6)), bool(c.get("attention_bias"))
        first = 0 if self.kept[0] is None else len(self.kept[0][0])
        n = len(ids)
        frequency, times = rope_frequencies(c, first + n)
        at = np.arange(first, first + n)
        x = np.stack([self.row("model.embed_tokens.weight", t) for t in ids])
        for layer in range(c["num_hidden_layers"]):
            p = f"model.layers.{layer}."
            h = rms(x, self.get(p + "input_layernorm.weight"), eps)
            q, k, v = (self.linear(h, p + f"self_attn.{t}_proj", bias or kind == "qwen2").reshape(n, -1, self.d)
                       for t in "qkv")
            if kind == "qwen3":
                q = rms(q, self.get(p + "self_attn.q_norm.weight"), eps)
                k = rms(k, self.get(p + "self_attn.k_norm.weight"), eps)
            q, k = rotate(q, frequency, times, at), rotate(k, frequency, times, at)
            self.qkv[layer] = (q, k, v)
            if first:
                k, v = (np.concatenate(pair) for pair in zip(self.kept[layer], (k, v)))
            self.kept[layer] = (k, v)
            j, width = np.arange(first + n)[None, :], self.windows[layer]
            seen = j <= at[:, None]
            if width:
                seen &= j > at[:, None] - width
            x = x + self.linear(attend(q, k, v, seen), p + "self_attn.o_proj", bias)
            h = rms(x, self.get(p + "post_attention_layernorm.weight"), eps)
            mlp = bool(c.get("mlp_bias"))
            gate = self.linear(h, p + "mlp.gate_proj", mlp)
            h = gate / (1 + np.exp(-gate)) * self.linear(h, p + "mlp.up_proj", mlp)
            x = x + self.linear(h, p + "mlp.down_proj", mlp)
        x = rms(x[-1:] if last_only else x, self.get("model.norm.weight"), eps)
        return x @ self.get("model.embed_tokens.weight" if c.get("tie_word_embeddings") else "lm_head.weight").T

    def row(self, name, index):
        return np.asarray(self.w(name)[index], self.dtype)


def erf(x):
    import math

    return np.vectorize(math.erf, otypes=[x.dtype])(x)


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
        x = norm(x + linear(h * (1 + erf(h / np.sqrt(2))) / 2, p + "output.dense"), p + "output.LayerNorm")
    return made
