"""Functions of JAX for the judge: WRONG_JAX and RIGHT_JAX of Candidates."""
import functools

import jax
import jax.numpy as jnp

from plain_attention import lister

WRONG_JAX, RIGHT_JAX = {}, {}
wrong, right = lister(WRONG_JAX), lister(RIGHT_JAX)


def attend(q, k, v, causal, shift=0, axis=-1):
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
    if causal:
        n_q, n_kv = s.shape[-2:]
        s = jnp.where(jnp.tri(n_q, n_kv, n_kv - n_q + shift, dtype=bool), s, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, axis=axis), v)


@right("jitted")
@functools.partial(jax.jit, static_argnames="causal")
def jax_jitted(q, k, v, causal=False):
    return attend(q, k, v, causal)


@right("mapped over batch entries and heads")
def jax_mapped(q, k, v, causal=False):
    def one(q, k, v):
        return attend(q[None, None], k[None, None], v[None, None], causal)[0, 0]
    return jax.vmap(jax.vmap(one))(q, k, v)


@wrong("jitted, causal off by one")
@functools.partial(jax.jit, static_argnames="causal")
def jax_off_by_one(q, k, v, causal=False):
    return attend(q, k, v, causal, shift=1)


@wrong("jitted, causal without an argument for it")
@jax.jit
def jax_always_causal(q, k, v):
    return attend(q, k, v, True)
