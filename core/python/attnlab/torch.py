"""PyTorch and Hugging Face transformers. Importing this module registers

    torch.ops.attnlab.attention(q, k, v, spec="tiled", *, causal=False, scale=None, layout="bhnd")

for tensors of the CPU and, from PyTorch 2 on, meta tensors. There is no gradient: call it under torch.no_grad().

For transformers, 4.53 or later,

    from transformers import AttentionInterface, AttentionMaskInterface
    AttentionInterface.register("attnlab", attnlab.torch.hf_attention("longformer:window=256"))
    AttentionMaskInterface.register("attnlab", attnlab.torch.hf_mask)
    model.set_attn_implementation("attnlab")

Without the second a model passes no mask at all. The tests hold both functions against a stand-in for transformers,
which Debian has not."""
from __future__ import annotations

from typing import Any, Callable, Collection

import torch

from .compute import attention

_ops = torch.library.Library("attnlab", "DEF")
_ops.define("attention(Tensor q, Tensor k, Tensor v, str spec=\"tiled\", *, bool causal=False, float? scale=None, "
            "str layout=\"bhnd\") -> Tensor")


def _on_cpu(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spec: str = "tiled", *, causal: bool = False,
            scale: float | None = None, layout: str = "bhnd") -> torch.Tensor:
    return attention(q, k, v, spec, causal=causal, scale=scale, layout=layout)


def _on_meta(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spec: str = "tiled", *, causal: bool = False,
             scale: float | None = None, layout: str = "bhnd") -> torch.Tensor:
    return q.new_empty(q.shape[:-1] + v.shape[-1:])


_ops.impl("attention", _on_cpu, "CPU")
_ops.impl("attention", _on_meta, "Meta")


def hf_attention(spec: str, layers: Collection[int] | None = None, phase: str = "both",
                 threads: int = 0) -> Callable[..., tuple[torch.Tensor, None]]:
    """A function for transformers' AttentionInterface: the variant in `layers` (all of them without) and in `phase`,
    "prefill", "decode" (fewer queries than keys) or "both"; exact attention elsewhere.

    It takes query [batch, heads, n_q, d], key and value [batch, kv_heads, n_kv, d] and gives [batch, n_q, heads, d]."""
    if phase not in ("prefill", "decode", "both"):
        raise ValueError(f"phase={phase!r}; expected \"prefill\", \"decode\" or \"both\"")

    def forward(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                attention_mask: torch.Tensor | None = None, scaling: float | None = None, dropout: float = 0.0,
                is_causal: bool | None = None, softcap: float | None = None, s_aux: torch.Tensor | None = None,
                **_: Any) -> tuple[torch.Tensor, None]:
        if dropout:
            raise ValueError(f"dropout={dropout}: attnlab has no dropout; call model.eval()")
        n_q, n_kv = query.shape[2], key.shape[2]
        replaced = layers is None or getattr(module, "layer_idx", None) in layers
        replaced = replaced and phase in ("both", "decode" if n_q < n_kv else "prefill")
        if is_causal is None:
            is_causal = getattr(module, "is_causal", True)
        target = {"causal": is_causal} if attention_mask is None else _of_mask(
            attention_mask, (query.shape[0], query.shape[1], n_q, n_kv))
        out = query.new_empty(query.shape[0], n_q, query.shape[1], value.shape[3])
        attention(query, key, value, spec if replaced else "tiled", scale=scaling, softcap=softcap, sink=s_aux,
                  out=out.transpose(1, 2), threads=threads, **target)
        return out, None

    return forward


def _of_mask(given: torch.Tensor, shape: tuple[int, int, int, int]) -> dict[str, Any]:
    """A mask of transformers, True or 0 where a key is seen, as arguments of `attention`. One that is causal and no more
    becomes `causal`, which every variant may take that is causal at all."""
    n_q, n_kv = shape[2:]
    whole, given = given, given[..., :n_kv]
    own = (1,) * (4 - given.ndim) + given.shape
    if len(own) != 4 or not all(length in (1, wanted) for length, wanted in zip(own, shape)):
        raise ValueError(f"attention_mask has the shape {tuple(whole.shape)}; expected what broadcasts to {list(shape)}")
    given = given.expand(*given.shape[:-2], n_q, n_kv)
    number = given.is_floating_point()
    seen = given > torch.finfo(given.dtype).min / 2 if number else given
    triangle = torch.ones(n_q, n_kv, dtype=torch.bool).tril(n_kv - n_q)
    target: dict[str, Any] = {"causal": not bool((seen & ~triangle).any())}
    if not bool((seen == triangle).all() if target["causal"] else seen.all()):
        target["mask"] = seen
    if number and bool(torch.where(seen, given, torch.zeros_like(given)).any()):
        target["bias"] = given.contiguous()
    return target


def hf_mask(*arguments: Any, **named: Any) -> torch.Tensor | None:
    """A function for transformers' AttentionMaskInterface: the mask of booleans that its own SDPA gets, or None where
    causality says all."""
    from transformers.masking_utils import sdpa_mask
    return sdpa_mask(*arguments, **named)
