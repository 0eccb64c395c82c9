"""Philox 4x32-10: random numbers as a function of a counter and a key.

Salmon et al. (2011), "Parallel random numbers: as easy as 1, 2, 3", section 3.3. Words are integers in [0, 2**32), kept in
uint64, in which their products fit.
"""

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.inputs import Floats

Words = npt.NDArray[np.uint64]

MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))  # Random123, philox.h
WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))  # the golden ratio and sqrt(3) - 1
ROUNDS = 10
LOW = np.uint64(0xFFFFFFFF)
WORD = np.uint64(32)


def philox4x32_10(counter: Words, key: Words) -> Words:
    """Ten rounds of multiplications and exclusive ors, between which the key is raised by the Weyl constants."""
    c0, c1, c2, c3 = np.moveaxis(counter, -1, 0)
    k0, k1 = np.moveaxis(key, -1, 0)
    for _ in range(ROUNDS):
        first, second = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2  # 32 x 32 bits fit in 64
        c0, c1, c2, c3 = (second >> WORD) ^ c1 ^ k0, second & LOW, (first >> WORD) ^ c3 ^ k1, first & LOW
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1)


def unit(high: Words, low: Words) -> Floats:
    """The number floor((high * 2**32 + low) / 2**11) / 2**53 in [0, 1)."""
    bits = ((high << WORD) | low) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53
