"""What hf_attention and hf_mask meet in Hugging Face transformers, which Debian has not: the registries, the mask function
of SDPA, and a model whose attention is called as that of Llama is. Written from transformers' documented contract."""
import sys
import types

import torch


class Registry:
    """AttentionInterface, AttentionMaskInterface."""

    def __init__(self):
        self.functions = {}

    def register(self, name, function):
        self.functions[name] = function


attention_interface, mask_interface = Registry(), Registry()


def sdpa_mask(batch_size, cache_position, kv_length, kv_offset=0, mask_function=None, attention_mask=None,
              allow_is_causal_skip=True, **_):
    """[batch, 1, n_q, n_kv] of booleans, or None where is_causal says the same."""
    keys = torch.arange(kv_length) + kv_offset
    seen = (keys <= cache_position[:, None]).expand(batch_size, 1, -1, -1)
    if attention_mask is not None and not bool(attention_mask.all()):
        return seen & attention_mask[:, None, None, :].bool()
    if allow_is_causal_skip and (len(cache_position) == 1 or len(cache_position) == kv_length):
        return None
    return seen


def install():
    masking_utils = types.ModuleType("transformers.masking_utils")
    masking_utils.sdpa_mask = sdpa_mask
    sys.modules["transformers"] = types.ModuleType("transformers")
    sys.modules["transformers.masking_utils"] = masking_utils


class Layer(torch.nn.Module):
    """LlamaAttention without rotations: queries of 4 heads, keys and values of 2."""

    def __init__(self, layer_idx, width=48):
        super().__init__()
        self.layer_idx, self.is_causal, self.width = layer_idx, True, width
        self.q, self.k, self.v = (torch.nn.Linear(width, heads * 12, bias=False) for heads in (4, 2, 2))
        self.o = torch.nn.Linear(48, width, bias=False)

    def forward(self, x, attend, mask, cache):
        shape = x.shape[:-1]
        q, k, v = (project(x).view(*shape, -1, 12).transpose(1, 2) for project in (self.q, self.k, self.v))
        if cache is not None:
            before = cache.setdefault(self.layer_idx, (k[:, :, :0], v[:, :, :0]))
            k, v = (torch.cat(pair, 2) for pair in zip(before, (k, v)))
            cache[self.layer_idx] = k, v
        out, weights = attend(self, q, k, v, mask, dropout=0.0, scaling=12**-0.5, sliding_window=None)
        assert weights is None
        return x + self.o(out.reshape(*shape, -1).contiguous())


class Model(torch.nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(Layer(i) for i in range(layers))

    def forward(self, x, implementation, attention_mask=None, cache=None):
        n, before = x.shape[1], cache[0][0].shape[2] if cache else 0
        mask = mask_interface.functions[implementation](
            batch_size=x.shape[0], cache_position=torch.arange(before, before + n), kv_length=before + n,
            mask_function=None, attention_mask=attention_mask, dtype=x.dtype, config=None)
        for layer in self.layers:
            x = layer(x, attention_interface.functions[implementation], mask, cache)
        return x


def eager_mask(**named):
    """As transformers' eager attention has it: 0, or the least number of the type."""
    seen = sdpa_mask(**{**named, "allow_is_causal_skip": False})
    return torch.where(seen, 0.0, torch.finfo(named["dtype"]).min).to(named["dtype"])


def eager(module, q, k, v, mask, scaling, dropout=0.0, **_):
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    p = torch.softmax((q @ k.transpose(2, 3) * scaling + mask[..., :k.shape[2]]).double(), -1)
    return (p @ v.double()).to(q.dtype).transpose(1, 2).contiguous(), None
