"""PyTorch and Hugging Face transformers: `attention` has gradients by q, k, v, sink and bias. Importing this module registers

    torch.ops.attnlab.attention(q, k, v, spec="tiled", *, causal=False, scale=None, layout="bhnd")

for tensors of the CPU, with gradients, and, from PyTorch 2 on, meta tensors.

For transformers, 4.53 or later,

    from transformers import AttentionInterface, AttentionMaskInterface
    AttentionInterface.register("attnlab", attnlab.torch.hf_attention("longformer:window=256"))
    AttentionMaskInterface.register("attnlab", attnlab.torch.hf_mask)
    model.set_attn_implementation("attnlab")

Without the second a model passes no mask at all. The tests hold both functions against a stand-in for transformers,
which Debian has not."""
from __future__ import annotations

import re
from typing import Any, Callable, Collection, NamedTuple

import torch

from . import compute, tensors
from .compute import Operands, Plan
from .library import Error


class _Call(NamedTuple):
    """What a call gives beside tensors that may have a gradient."""
    plan: Plan
    layout: str
    kv_len: Any
    q_position: Any
    lse: bool


class _Attention(torch.autograd.Function):
    """The output and the log-sum-exp of each query, None where the variant gives none."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: Any, bias: Any,
                call: _Call) -> tuple[torch.Tensor, torch.Tensor | None]:
        operands = Operands(q, k, v, None, call.layout)
        results = call.plan._run(operands, call.kv_len, call.q_position, call.lse, None, None, False)
        o, lse = results if call.lse else (results, None)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, k, v, o, lse, bias if isinstance(bias, torch.Tensor) else None)
        ctx.call, ctx.sink = call, sink if isinstance(sink, torch.Tensor) else None
        return o, lse

    @staticmethod
    def backward(ctx: Any, *of: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        grad_o, grad_lse = of
        q, k, v, o, lse, bias = ctx.saved_tensors
        names = "q", "k", "v", "sink", "bias"
        wanted = tuple(name for name, needed in zip(names, ctx.needs_input_grad) if needed)
        if grad_o is None:
            grad_o = torch.zeros_like(o)
        found = dict(zip(wanted, _Gradients.apply(q, k, v, o, lse, grad_o, grad_lse, ctx.sink, ctx.call, wanted)))
        if "bias" in found:
            found["bias"] = found["bias"].to(bias.dtype)
        return *(found.get(name) for name in names), None


class _Gradients(torch.autograd.Function):
    """The backward pass as a function of its tensors, so that who differentiates it learns that it cannot be."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor | None,
                grad_o: torch.Tensor, grad_lse: torch.Tensor | None, sink: torch.Tensor | None, call: _Call,
                wanted: tuple[str, ...]) -> tuple[torch.Tensor, ...]:
        ctx.spec = call.plan.spec
        found = call.plan._backward(Operands(q, k, v, o, call.layout), lse, grad_o,
                                    None if grad_lse is None else grad_lse.contiguous(), call.kv_len, call.q_position, None,
                                    wanted)
        if sink is not None and "sink" in wanted:
            found["sink"] = found["sink"].sum_to_size(sink.shape).to(sink.dtype)
        return tuple(found[name] for name in wanted)

    @staticmethod
    def backward(ctx: Any, *of: torch.Tensor) -> Any:
        raise Error(f"variant {ctx.spec.split(':')[0]}: attention has no second derivative here", "unsupported")


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spec: str = "tiled", *, layout: str = "bhnd",
              sink: Any = None, kv_len: Any = None, q_position: Any = None, return_lse: bool = False, threads: int = 0,
              isa: str | None = None, **target: Any) -> Any:
    """attnlab.attention with gradients by q, k, v, sink and bias, and through the log-sum-exp that return_lse gives.
    Arguments as there, without out, extra and state. What is differentiated is the function that the variant computes,
    with its draws and selections held fixed.

    Error: a gradient is required and the variant has none; a gradient is differentiated."""
    tensors.refuse_lossy(target.get("mask"), "mask")
    bias = target.get("bias")
    where = {"layout": layout, "kv_len": kv_len, "q_position": q_position}
    if not torch.is_grad_enabled() or not any(isinstance(x, torch.Tensor) and x.requires_grad for x in (q, k, v, sink, bias)):
        return compute.attention(q, k, v, spec, sink=sink, return_lse=return_lse, threads=threads, isa=isa, **where, **target)
    with torch.no_grad():
        plan = compute._kept_plan(Operands(q, k, v, None, layout), spec, {"sink": sink, **target}, threads, isa)
    plan._backward_bytes()
    wanted = compute._flag(return_lse, "return_lse")
    o, lse = _Attention.apply(q, k, v, sink, bias, _Call(plan, **where, lse=wanted or plan._gives_lse))
    return (o, lse) if wanted else o


_ops = torch.library.Library("attnlab", "DEF")
_ops.define("attention(Tensor q, Tensor k, Tensor v, str spec=\"tiled\", *, bool causal=False, float? scale=None, "
            "str layout=\"bhnd\") -> Tensor")


def _on_meta(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spec: str = "tiled", *, causal: bool = False,
             scale: float | None = None, layout: str = "bhnd") -> torch.Tensor:
    return q.new_empty(q.shape[:-1] + v.shape[-1:])


_ops.impl("attention", compute.attention, "CPU")
_ops.impl("attention", attention, "AutogradCPU")
_ops.impl("attention", _on_meta, "Meta")


def _by_layer(spec: str) -> dict[int, str] | None:
    """"A@0-2,5;B@3" as the spec of each layer; None: it names no layers."""
    items = [re.fullmatch(r"(.+)@([0-9][0-9,-]*)", item) for item in spec.strip().split(";")]
    if not any(items):
        return None
    found: dict[int, str] = {}
    for item in items:
        if not item:
            raise ValueError(f"{spec!r}: expected layers for each variant, as in \"topk:k=64@0-2,5;streaming@3\"")
        for part in item[2].split(","):
            bounds = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
            layers = range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1) if bounds else ()
            if not layers or found.keys() & layers:
                raise ValueError(f"{spec!r}: {part!r}: expected layers such as 3 or 0-2, each once")
            found.update(dict.fromkeys(layers, item[1]))
    return found


def hf_attention(spec: str, layers: Collection[int] | None = None, phase: str = "both", threads: int = 0,
                 captured: dict[Any, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] | None = None,
                 ) -> Callable[..., tuple[torch.Tensor, None]]:
    """A function for transformers' AttentionInterface: the variant in `layers` (all of them without) and in `phase`,
    "prefill", "decode" (fewer queries than keys) or "both"; exact attention elsewhere. captured: a dict that gets query,
    key and value of the latest call of each layer, by its number, as `save` and `advise` take them. A spec such as
    "topk:k=64@2-7;topk:k=16@0,1", which `attnlab advise --assignment` writes, has a variant for each layer that it names.

    It takes query [batch, heads, n_q, d], key and value [batch, kv_heads, n_kv, d] and gives [batch, n_q, heads, d]."""
    if phase not in ("prefill", "decode", "both"):
        raise ValueError(f"phase={phase!r}; expected \"prefill\", \"decode\" or \"both\"")
    assigned = _by_layer(spec)

    def forward(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                attention_mask: torch.Tensor | None = None, scaling: float | None = None, dropout: float = 0.0,
                is_causal: bool | None = None, softcap: float | None = None, s_aux: torch.Tensor | None = None,
                **_: Any) -> tuple[torch.Tensor, None]:
        if dropout:
            raise ValueError(f"dropout={dropout}: attnlab has no dropout; set the model's attention_dropout to 0, or call "
                             "model.eval()")
        n_q, n_kv = query.shape[2], key.shape[2]
        if captured is not None:
            captured[getattr(module, "layer_idx", None)] = tuple(x.detach().clone() for x in (query, key, value))  # type: ignore[assignment]
        layer = getattr(module, "layer_idx", None)
        replaced = layers is None or layer in layers
        replaced = replaced and phase in ("both", "decode" if n_q < n_kv else "prefill")
        variant = assigned.get(layer, "tiled") if assigned else spec  # type: ignore[arg-type]
        if is_causal is None:
            is_causal = getattr(module, "is_causal", True)
        target = {"causal": is_causal} if attention_mask is None else _of_mask(
            attention_mask, (query.shape[0], query.shape[1], n_q, n_kv))
        out = attention(*(x.transpose(1, 2) for x in (query, key, value)), variant if replaced else "tiled", layout="bnhd",
                        scale=scaling, softcap=softcap, sink=s_aux, threads=threads, **target)
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
