"""The sampler: float64 on the host, its draws keyed by row and step, never by the batch.

Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with key = seed (low word first)
and counter = (t, j, i, round): token t of sample j of prompt i. Words 0 and 1 give u. Filters follow the order `hf`:
temperature, top-k, top-p, min-p, each on the distribution renormalised over the survivors so far; ties keep the lower id.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MULTIPLIERS: Final = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL: Final = (0x9E3779B9, 0xBB67AE85)
ROUNDS: Final = 10
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Settings:
    """What shapes the distribution that tokens are drawn from; `top_p = 1`, `top_k = 0` and `min_p = 0` are off."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        if not self.temperature >= 0:
            raise ValueError(f"temperature is {self.temperature}, must be >= 0")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}, must be in (0, 1]")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}, must be >= 0 (0 is off)")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p is {self.min_p}, must be in [0, 1]")


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens (R,) and their three log-probs (R,): of the model, tempered, and after every filter."""

    tokens: NDArray[np.int32]
    model: Floats
    tempered: Floats
    behaviour: Floats


def philox(seed: int, counters: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The four output words (N, 4) of Philox 4x32-10 for counters (N, 4), key = `seed` modulo 2**64."""
    c0, c1, c2, c3 = (counters[:, n].astype(np.uint64) for n in range(4))
    k0, k1 = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    for _ in range(ROUNDS):
        left, right = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (right >> _HALF) ^ c1 ^ np.uint64(k0),
            right & _LOW,
            (left >> _HALF) ^ c3 ^ np.uint64(k1),
            left & _LOW,
        )
        k0, k1 = (k0 + WEYL[0]) & 0xFFFFFFFF, (k1 + WEYL[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def uniforms(seed: int, round_: int, indices: NDArray[np.int64], step: int) -> Floats:
    """One u in [0, 1) with 53 bits for each (prompt i, sample j) of `indices` (R, 2) at token `step`."""
    counters = np.empty((len(indices), 4), np.uint32)
    counters[:, 0] = step
    counters[:, 1] = indices[:, 1]
    counters[:, 2] = indices[:, 0]
    counters[:, 3] = round_
    words = philox(seed, counters).astype(np.uint64)
    bits = ((words[:, 0] << _HALF) | words[:, 1]) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def temper(logits: Floats, temperature: float) -> Floats:
    """Logits (R, V) divided by the temperature."""
    return logits / temperature


def log_softmax(logits: Floats) -> Floats:
    """The log-probs (R, V) of logits (R, V), in float64."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def keep(weights: Floats, settings: Settings) -> NDArray[np.bool_]:
    """The tokens (R, V) that survive top-k, top-p and min-p of a distribution with these weights."""
    alive = weights > 0
    if settings.top_k or settings.top_p < 1:
        order = np.argsort(-weights, axis=1, kind="stable")
        ranked = np.take_along_axis(weights, order, axis=1)
        if 0 < settings.top_k < weights.shape[1]:
            ranked[:, settings.top_k :] = 0
        if settings.top_p < 1:
            mass = np.cumsum(ranked, axis=1)
            before = np.concatenate([np.zeros_like(mass[:, :1]), mass[:, :-1]], axis=1)
            ranked[before >= settings.top_p * mass[:, -1:]] = 0
        np.put_along_axis(alive, order, ranked > 0, axis=1)
    if settings.min_p > 0:
        alive &= weights >= settings.min_p * weights.max(axis=1, keepdims=True)
    return alive


def draw(weights: Floats, u: Floats) -> NDArray[np.int64]:
    """The least token k (R,) with C_k > u * C_V, C the running sum of the weights (R, V) in the order of the ids."""
    mass = np.cumsum(weights, axis=1)
    return np.argmax(mass > (u * mass[:, -1])[:, None], axis=1)


def sample(logits: NDArray[np.float32], u: Floats, settings: Settings) -> Drawn:
    """One token for each row of logits (R, V) and uniform u (R,).

    At temperature 0 the token is the lowest id of the largest logit, and its tempered and behaviour log-probs are 0.
    """
    exact = logits.astype(np.float64)
    rows = np.arange(len(exact))
    model = log_softmax(exact)
    if settings.temperature == 0:
        tokens = np.argmax(exact, axis=1)
        zeros = np.zeros(len(exact))
        return Drawn(tokens.astype(np.int32), model[rows, tokens], zeros, zeros.copy())
    tempered = temper(exact, settings.temperature)
    shifted = tempered - tempered.max(axis=1, keepdims=True)
    weights = np.exp(shifted)
    total = weights.sum(axis=1)
    kept = np.where(keep(weights, settings), weights, 0.0)
    tokens = draw(kept, u)
    chosen = shifted[rows, tokens]
    return Drawn(
        tokens.astype(np.int32),
        model[rows, tokens],
        chosen - np.log(total),
        chosen - np.log(kept.sum(axis=1)),
    )
