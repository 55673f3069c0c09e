"""attnlab: attention and its approximations from Python, without copies, and the results of experiments.

    import attnlab
    o = attnlab.attention(q, k, v, "longformer:window=256", causal=True)  # NumPy, PyTorch, JAX, [batch, heads, n, d]
    dq, dk, dv = attnlab.backward(q, k, v, grad_o, "tiled", causal=True)  # the gradients
    plan = attnlab.Plan(q, k, v, "performer:features=256")                # the same variant often
    cache = attnlab.Cache("evict:score=h2o,budget=512", heads=8, d=64)    # decoding: append(k, v, q), attend(q)
    weights = attnlab.matrix(q, k, "linformer:k=64")                      # what it gives to each key
    attnlab.variants(); print(attnlab.describe("longformer"))
    attnlab.advise(q, k, v, error=0.05)["best"]                           # the cheapest within 5 % on these tensors
    attnlab.save("qkv.npz", q, k, v)                                      # for `attnlab --in` and experiments
    verdict = attnlab.judge(my_attention)                                 # does your function compute attention?

    runs = attnlab.run("sweep.yaml")                                      # an experiment, a row a run; or a dict
    runs = attnlab.load("results/default.h5")                             # pandas.DataFrame, a row a run
    attnlab.plot.error(runs, causal=True)                                 # matplotlib

    import attnlab.torch                                                  # torch.ops.attnlab.attention; Hugging Face

libattn is loaded when it is first needed: ATTNLAB_LIBRARY, else that of the newest build of the source tree or of the
same installation. `describe` and `advise` run the program: ATTNLAB_PROGRAM, else that of the same build or
installation. NumPy, pandas, h5py and matplotlib are imported by what uses them."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cache import Cache
from .compute import Plan, attention, backward, matrix
from .library import Error, load_plugin, variants, version
from .program import advise, compare, describe, save
from .results import bounds, load, run
from . import plot

if TYPE_CHECKING:
    from .claims import variant
    from .verdict import Verdict, judge

__all__ = ["Cache", "Error", "Plan", "Verdict", "advise", "attention", "backward", "bounds", "compare", "describe", "judge", "load",
           "load_plugin", "matrix", "plot", "run", "save", "variant", "variants", "version"]


def __getattr__(name: str) -> Any:
    """The judge when it is asked for: it needs NumPy, and attention does not."""
    if name not in ("Verdict", "judge", "variant"):
        raise AttributeError(f"module 'attnlab' has no attribute '{name}'")
    from . import claims, verdict
    return getattr(claims if name == "variant" else verdict, name)
