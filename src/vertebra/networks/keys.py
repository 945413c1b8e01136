"""A fast generator for the noise of training and of posterior draws.

JAX's threefry is made for parallel safety, and on a CPU it costs more than the networks here: more time than a step's
forward and backward pass, and seconds of compilation. `fast(key)` turns any key into one of a counter-based hash: word
c of a key is the finaliser of MurmurHash3 applied to c·φ + k₀, with k₁ let in between its two rounds. It is a
bijection of c, fuses into the code that uses it, and obeys every function of `jax.random`. It is for Monte Carlo, not
for secrets.
"""

import math
from functools import partial

import jax
import jax.extend.random as jer
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray, UInt32

_GOLDEN = np.uint32(0x9E3779B9)


def fast(key: PRNGKeyArray) -> PRNGKeyArray:
    """The same randomness from the fast generator; a key that is fast already is handed through."""
    if jr.key_impl(key) is HASH or jr.key_impl(key) == HASH:
        return key
    return _hashed(key)


@jax.jit
def _hashed(key: PRNGKeyArray) -> PRNGKeyArray:
    words = jr.key_data(key).ravel()
    return jr.wrap_key_data(_fold(words[:2], words[-1]), impl=HASH)


@partial(jax.jit, static_argnums=1)
def fast_split(key: PRNGKeyArray, n: int) -> Key[Array, " n"]:
    """n keys from the fast generator, as one program."""
    return jr.split(fast(key), n)


def _mix(x: UInt32[Array, "*shape"], between: UInt32[Array, ""] | np.uint32 = _GOLDEN) -> UInt32[Array, "*shape"]:
    x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
    x = x ^ between
    x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def _words(key: UInt32[Array, " 2"], counter: UInt32[Array, "*shape"]) -> UInt32[Array, "*shape"]:
    # Both halves of the key enter both places, mixed: keys that differ in one bit are as far apart as any two. The
    # second enters between the rounds, so that other keys are other permutations of the words, not shifts of one.
    start, between = _mix(key[0] ^ _mix(key[1])), _mix(key[1] + _mix(key[0]))
    return _mix(counter * _GOLDEN + start, between)


def _seed(seed: Array) -> UInt32[Array, " 2"]:
    return _fold(jnp.array([0x243F6A88, 0x85A308D3], dtype=jnp.uint32), seed)


def _fold(key: UInt32[Array, " 2"], data: int | Array) -> UInt32[Array, " 2"]:
    # Two words from a stream of their own: the key is moved away from the one that draws bits.
    data = jnp.asarray(data).astype(jnp.uint32)
    first = _words(key ^ np.uint32(0x13198A2E), data)
    second = _words(key ^ np.uint32(0x03707344), first + data)
    return jnp.stack([first, second])


def _split(key: UInt32[Array, " 2"], shape: tuple[int, ...]) -> UInt32[Array, "*shape 2"]:
    counter = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    return jnp.stack(
        [_words(key ^ np.uint32(0xA4093822), counter), _words(key ^ np.uint32(0x299F31D0), counter)], axis=-1
    )


def _random_bits(key: UInt32[Array, " 2"], bit_width: int, shape: tuple[int, ...]) -> Array:
    n_words = math.prod(shape) * (2 if bit_width == 64 else 1)
    words = _words(key, jnp.arange(n_words, dtype=jnp.uint32))
    if bit_width == 64:
        low, high = jnp.split(words.astype(jnp.uint64), 2)
        return (low | (high << 32)).reshape(shape)
    return words.astype(jnp.dtype(f"uint{bit_width}")).reshape(shape)


HASH = jer.define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold,
    name="vertebra_hash",
    tag="vh",
)
