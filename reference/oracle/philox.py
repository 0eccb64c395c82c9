"""Random numbers that depend on who asks and never on the batch: Philox 4x32-10 as a function of its counter."""

import numpy as np
import numpy.typing as npt

from reference.oracle.inputs import Floats, integers

Words = npt.NDArray[np.uint32]

MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))  # Random123, philox.h
WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))  # the golden ratio and sqrt(3) - 1
ROUNDS = 10
LOW = np.uint64(0xFFFFFFFF)
WORD = np.uint64(32)


def philox4x32_10(counter: npt.ArrayLike, key: npt.ArrayLike) -> Words:
    """Philox 4x32-10 maps a counter of four words and a key of two to four words that look random.

    Args:
        counter: (..., 4) integers in [0, 2**32).
        key: (..., 2) integers in [0, 2**32); leading axes broadcast with those of `counter`.

    Returns:
        (..., 4) uint32.

    Raises:
        ValueError: a word outside [0, 2**32), or a last axis of another length.

    Source: Salmon et al. (2011), "Parallel random numbers: as easy as 1, 2, 3", section 3.3.
    """
    words = integers("counter", counter, least=0, below=1 << 32).astype(np.uint64)
    keys = integers("key", key, least=0, below=1 << 32).astype(np.uint64)
    if words.shape[-1:] != (4,) or keys.shape[-1:] != (2,):
        raise ValueError(
            f"`counter` and `key` have shapes {words.shape} and {keys.shape}, must be (..., 4) and (..., 2)"
        )
    c0, c1, c2, c3 = np.moveaxis(words, -1, 0)
    k0, k1 = np.moveaxis(keys, -1, 0)
    for _ in range(ROUNDS):
        first, second = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2  # 32 x 32 bits fit in 64
        c0, c1, c2, c3 = (second >> WORD) ^ c1 ^ k0, second & LOW, (first >> WORD) ^ c3 ^ k1, first & LOW
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1).astype(np.uint32)


def uniforms(
    seed: int, round_: npt.ArrayLike, prompt: npt.ArrayLike, sample: npt.ArrayLike, token: npt.ArrayLike
) -> Floats:
    """The uniform of token t of sample j of prompt i is the same in every batch and every order.

    Philox with key = (seed mod 2**32, seed div 2**32) and counter = (token, sample, prompt, round) gives the words
    w0 ... w3; u = floor((w0 * 2**32 + w1) / 2**11) / 2**53, w0 being the high word.

    Args:
        seed: in [0, 2**64).
        round_: integers in [0, 2**32); this and the next three broadcast against each other.
        prompt: the prompt's stable index in the data.
        sample: the completion's index within its prompt.
        token: the token's index within its completion.

    Returns:
        float64 in [0, 1), multiples of 2**-53.

    Raises:
        ValueError: a number outside its range.

    Source: semantics.md, "Draws do not depend on the batch".
    """
    words = _words(seed, round_, prompt, sample, token)
    return _unit(words[..., 0], words[..., 1])


def xtc_coins(
    seed: int, round_: npt.ArrayLike, prompt: npt.ArrayLike, sample: npt.ArrayLike, token: npt.ArrayLike
) -> Floats:
    """The coin that decides whether XTC acts on a draw comes from words 2 (high) and 3 of the same counter.

    Args:
        seed: as in `uniforms`.
        round_: as in `uniforms`.
        prompt: as in `uniforms`.
        sample: as in `uniforms`.
        token: as in `uniforms`.

    Returns:
        float64 in [0, 1), multiples of 2**-53; XTC acts where the coin is below its probability.

    Raises:
        ValueError: a number outside its range.

    Source: semantics.md, "Draws do not depend on the batch".
    """
    words = _words(seed, round_, prompt, sample, token)
    return _unit(words[..., 2], words[..., 3])


def _words(
    seed: int, round_: npt.ArrayLike, prompt: npt.ArrayLike, sample: npt.ArrayLike, token: npt.ArrayLike
) -> Words:
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"`seed` is {seed}, must be in [0, 2**64)")
    counter = np.stack(np.broadcast_arrays(token, sample, prompt, round_), axis=-1)
    return philox4x32_10(counter, [seed & 0xFFFFFFFF, seed >> 32])


def _unit(high: Words, low: Words) -> Floats:
    bits = ((high.astype(np.uint64) << WORD) | low) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53
