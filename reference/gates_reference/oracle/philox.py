"""Random numbers of a token, the same in every batch: Philox 4x32-10 as a function of its counter."""

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.definitions import philox as definition
from gates_reference.oracle.inputs import Floats, integers

Words = npt.NDArray[np.uint32]


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
    return definition.philox4x32_10(words, keys).astype(np.uint32)


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

    Source: docs/definitions.md, "Draws do not depend on the batch".
    """
    words = _words(seed, round_, prompt, sample, token)
    return definition.unit(words[..., 0], words[..., 1])


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

    Source: docs/definitions.md, "Draws do not depend on the batch".
    """
    words = _words(seed, round_, prompt, sample, token)
    return definition.unit(words[..., 2], words[..., 3])


def _words(
    seed: int, round_: npt.ArrayLike, prompt: npt.ArrayLike, sample: npt.ArrayLike, token: npt.ArrayLike
) -> definition.Words:
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"`seed` is {seed}, must be in [0, 2**64)")
    counter = np.stack(np.broadcast_arrays(token, sample, prompt, round_), axis=-1)
    return philox4x32_10(counter, [seed & 0xFFFFFFFF, seed >> 32]).astype(np.uint64)
