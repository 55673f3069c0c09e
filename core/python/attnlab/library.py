"""libattn by ctypes: where it is, what it declares, what it refuses. Loaded when it is first needed."""
from __future__ import annotations

import ctypes
import ctypes.util
import functools
import os
import pathlib
from ctypes import POINTER, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint, c_uint32, c_void_p

ABI = 18  # of attn.h, whose structs are repeated here
HERE = pathlib.Path(__file__).resolve().parent
# Builds of the source tree that another process cannot load, or whose faults are meant.
NOT_FOR_USE = {"asan-ubsan", "tsan", "fuzz", "mutants", "neon"}


class Error(RuntimeError):
    """What the library or the program refuses. str(error) is its line; error.status the kind of failure, such as
    "invalid argument", "unsupported" or "not found", or "exit 2" of the program."""

    def __init__(self, line: str, status: str):
        super().__init__(line)
        self.status = status


class Stride(ctypes.Structure):
    _fields_ = [("batch", c_int64), ("head", c_int64), ("row", c_int64), ("stored", c_int)]


class Bias(ctypes.Structure):
    _fields_ = [("at", c_void_p), ("dtype", c_int), ("batch", c_int64), ("head", c_int64), ("row", c_int64)]


class Score(ctypes.Structure):
    _fields_ = [("softcap", c_double), ("leaky", c_double), ("relative", POINTER(c_double)),
                ("relative_heads", c_int64), ("span", c_int64), ("zero", c_int64), ("dense", Bias),
                ("sink", POINTER(c_double))]


class Mask(ctypes.Structure):
    _fields_ = [("kind", c_int), ("size", c_int64), ("offsets", POINTER(c_int64)), ("count", c_int64),
                ("pattern", c_void_p)]


class Positions(ctypes.Structure):
    _fields_ = [("shift", c_int64), ("key", POINTER(c_int64)), ("keys", c_int64)]


class Problem(ctypes.Structure):
    _fields_ = [("batch", c_int64), ("heads", c_int64), ("kv_heads", c_int64), ("n_q", c_int64), ("n_kv", c_int64),
                ("d_qk", c_int64), ("d_v", c_int64), ("q", Stride), ("k", Stride), ("v", Stride), ("o", Stride),
                ("dtype", c_int), ("causal", c_bool), ("scale", c_double), ("score", Score), ("mask", Mask),
                ("positions", Positions)]


class KeyPositions(ctypes.Structure):
    _fields_ = [("at", POINTER(c_int64)), ("batch", c_int64), ("head", c_int64)]


class Extra(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int), ("at", c_void_p), ("batch", c_int64), ("heads", c_int64),
                ("n", c_int64), ("columns", c_int64)]


class Tensors(ctypes.Structure):
    _fields_ = [("q", c_void_p), ("k", c_void_p), ("v", c_void_p), ("kv_len", POINTER(c_int64)),
                ("q_position", POINTER(c_int64)), ("k_position", KeyPositions), ("o", c_void_p), ("work", c_void_p),
                ("lse", c_void_p), ("stages", c_void_p), ("extra", POINTER(Extra)), ("extras", c_int64),
                ("state", c_void_p), ("state_after", c_void_p)]


class Gradients(ctypes.Structure):
    _fields_ = [("d_o", c_void_p), ("d_o_at", Stride), ("dlse", c_void_p), ("dq", c_void_p), ("dk", c_void_p),
                ("dv", c_void_p), ("dsink", c_void_p), ("drelative", c_void_p), ("ddense", c_void_p),
                ("dextra", POINTER(c_void_p))]


class Blocks(ctypes.Structure):
    _fields_ = [("query", c_int64), ("key", c_int64)]


class Options(ctypes.Structure):
    _fields_ = [("threads", c_int), ("isa", c_char_p), ("allocator", c_void_p), ("blocks", Blocks)]


class Cost(ctypes.Structure):
    """Operations of one execution by the variant's formula: multiply-adds, exponentials, and bytes of memory traffic."""
    _fields_ = [("mul_add", c_double), ("exp", c_double), ("bytes", c_double)]

    def __repr__(self) -> str:
        return f"Cost(mul_add={self.mul_add:g}, exp={self.exp:g}, bytes={self.bytes:g})"


class VariantHead(ctypes.Structure):
    """The first members of attn_variant."""
    _fields_ = [("abi", c_uint32), ("size", c_uint32), ("name", c_char_p), ("summary", c_char_p), ("cite", c_char_p),
                ("formula", c_char_p), ("caps", c_uint32)]


CAP_LSE = 1 << 8  # ATTN_CAP_LSE of attn_variant.h


STRUCTS = {"stride": Stride, "bias": Bias, "score": Score, "mask": Mask, "positions": Positions,
           "problem": Problem, "key_positions": KeyPositions, "tensors": Tensors,
           "gradients": Gradients, "blocks": Blocks, "options": Options,
           "cost": Cost}
SIGNATURES = {
    "attn_abi": (c_uint,),
    "attn_version": (c_char_p,),
    "attn_sizeof": (c_size_t, c_char_p),
    "attn_last_error": (c_char_p,),
    "attn_status_name": (c_char_p, c_int),
    "attn_all_finite": (c_bool, c_void_p, c_int64, c_int64, c_int64, c_int),
    "attn_alibi": (c_int, c_int64, c_int64, POINTER(c_double)),
    "attn_plan_create": (c_int, POINTER(c_void_p), POINTER(Problem), c_char_p, POINTER(Options)),
    "attn_plan_destroy": (None, c_void_p),
    "attn_plan_run": (c_int, c_void_p, POINTER(Tensors)),
    "attn_plan_backward": (c_int, c_void_p, POINTER(Tensors), POINTER(Gradients)),
    "attn_plan_backward_size": (c_int, c_void_p, POINTER(c_size_t)),
    "attn_plan_work_size": (c_size_t, c_void_p),
    "attn_plan_bytes": (c_size_t, c_void_p),
    "attn_plan_cost": (Cost, c_void_p),
    "attn_plan_spec": (c_char_p, c_void_p),
    "attn_plan_isa": (c_char_p, c_void_p),
    "attn_plan_variant": (POINTER(VariantHead), c_void_p),
    "attn_kv_cache_create": (c_int, POINTER(c_void_p), POINTER(Problem), c_char_p, POINTER(Options)),
    "attn_kv_cache_destroy": (None, c_void_p),
    "attn_kv_cache_append": (c_int, c_void_p, c_int64, POINTER(c_int64), c_void_p, c_void_p, c_void_p),
    "attn_kv_cache_attend": (c_int, c_void_p, c_int64, c_void_p, c_void_p, c_void_p),
    "attn_kv_cache_look": (c_int, c_void_p, c_int64, c_int64, c_void_p),
    "attn_kv_cache_bytes": (c_size_t, c_void_p),
    "attn_kv_cache_truncate": (c_int, c_void_p, POINTER(c_int64)),
    "attn_kv_cache_copy": (c_int, c_void_p, POINTER(c_void_p)),
    "attn_variant_count": (c_size_t,),
    "attn_variant_at": (POINTER(VariantHead), c_size_t),
    "attn_plugin_load": (c_int, c_char_p),
    "attn_plugin_load_path": (c_int, c_char_p),
}


def newest_of_tree(pattern: str) -> pathlib.Path | None:
    """The newest match below build/ of the source tree that this file is in, if it is in one."""
    tree = HERE.parents[2]
    if not (tree / "core" / "attn.h").exists():
        return None
    builds = [b for b in (tree / "build").glob("*") if b.name not in NOT_FOR_USE]
    found = [match for build in builds for match in build.glob(pattern)]
    return max(found, key=os.path.getmtime) if found else None


def prefix() -> pathlib.Path:
    """What a wheel brings; else where this file is installed: PREFIX/lib/python3/dist-packages/attnlab."""
    bundled = HERE / "bundled"
    if bundled.is_dir():
        return bundled
    return HERE.parents[3] if len(HERE.parents) > 3 else HERE


def library_path() -> str:
    """ATTNLAB_LIBRARY, the newest build of the source tree, that of the same prefix, or the system's."""
    named = os.environ.get("ATTNLAB_LIBRARY")
    if named:
        return named
    found = newest_of_tree("core/libattn.so")
    if found is None:
        matches = [*prefix().glob("lib*/libattn.so.*"), *prefix().glob("lib*/*/libattn.so.*")]
        found = max(matches, key=lambda match: len(str(match)), default=None)
    path = str(found) if found else ctypes.util.find_library("attn")
    if path is None:
        raise ImportError("libattn is not here: build it (cmake --preset release && cmake --build --preset release), "
                          "install it, or name it in ATTNLAB_LIBRARY")
    return path


@functools.lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The library with its functions declared. ImportError: there is none, or one of another interface."""
    path = library_path()
    try:
        lib = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)  # plug-ins are not linked with it
        for name, (result, *arguments) in SIGNATURES.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise ImportError(f"{path}: {error}") from error
    if lib.attn_abi() != ABI:
        raise ImportError(f"{path} has the interface {lib.attn_abi()}, and this module is for {ABI}")
    for name, struct in STRUCTS.items():
        if lib.attn_sizeof(name.encode()) != ctypes.sizeof(struct):
            raise ImportError(f"{path}: attn_{name} has {lib.attn_sizeof(name.encode())} bytes, not "
                              f"{ctypes.sizeof(struct)}")
    status = lib.attn_plugin_load_path(os.environ.get("ATTN_PLUGIN_PATH", "").encode())
    if status:
        raise Error(lib.attn_last_error().decode(), lib.attn_status_name(status).decode())
    return lib


def check(status: int) -> None:
    """Error, if a function of the library returned one."""
    if status:
        lib = library()
        raise Error(lib.attn_last_error().decode(), lib.attn_status_name(status).decode())


def version() -> str:
    """Of the library, such as "0.1.0"."""
    return library().attn_version().decode()


def variants() -> list[str]:
    """Names of the variants, those of plug-ins among them."""
    lib = library()
    return [lib.attn_variant_at(i).contents.name.decode() for i in range(lib.attn_variant_count())]


plugins: list[str] = []  # that were loaded, for the program


def load_plugin(path: str | os.PathLike[str]) -> None:
    """Registers the variant of a shared object (experiments/examples/strided.c). Also: ATTN_PLUGIN_PATH, a list of
    them joined by colons, before the first use. Error: it has none, or one for another interface."""
    # With a slash, or the loader would look for it elsewhere.
    absolute = os.path.abspath(path)
    check(library().attn_plugin_load(absolute.encode()))
    if absolute not in plugins:
        plugins.append(absolute)
