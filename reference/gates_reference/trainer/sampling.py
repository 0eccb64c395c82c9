"""The definition of the sampler: float64 on the host, with draws keyed by row and step, never by the place in a batch.

Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with key = seed (low word first) and counter =
(t, j, i, round): token t of sample j of prompt i. Words 0 and 1 give u, words 2 and 3 the coin of XTC. Filters act in one of two
orders, each on the distribution renormalised over the tokens kept so far; ties keep the lower id.

The naive rollout uses this module. The fast rollouts draw with `rlkernels` (`rollout.sampler`), so that a mistake in either shows as
a difference.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MULTIPLIERS: Final = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL: Final = (0x9E3779B9, 0xBB67AE85)
ROUNDS: Final = 10
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Settings:
    """The temperature, the repetition penalty and the filters of the distribution that tokens are drawn from.

    `top_p` = 1, `top_k` = 0, `min_p` = 0, `xtc_probability` = 0 and `repetition_penalty` = 1 switch a filter off. `order` is "hf"
    (repetition penalty, temperature, top-k, top-p, min-p, XTC) or "mlx-lm" (repetition penalty, top-p, min-p, XTC, top-k,
    temperature). The penalty applies to the tokens of the prompt and of the completion so far.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repetition_penalty: float = 1.0
    order: str = "hf"

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature is {self.temperature}, must be >= 0 and finite")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}, must be in (0, 1]")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}, must be >= 0 (0 is off)")
        for name in ("min_p", "xtc_probability", "xtc_threshold"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be in [0, 1]")
        if not 0 < self.repetition_penalty < math.inf:
            raise ValueError(f"repetition_penalty is {self.repetition_penalty}, must be > 0 and finite (1 is off)")
        if self.order not in ORDERS:
            raise ValueError(f"order is {self.order!r}, must be one of {sorted(ORDERS)}")

    @property
    def penalises(self) -> bool:
        """Whether the logits depend on the tokens so far."""
        return self.repetition_penalty != 1

    @property
    def plain(self) -> bool:
        """Whether tokens are drawn from the unfiltered distribution: no penalty, no filter, temperature > 0."""
        filtered = self.top_p < 1 or self.top_k > 0 or self.min_p > 0 or self.xtc_probability > 0
        return self.temperature > 0 and not filtered and not self.penalises


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens (R,) and their three log-probs (R,): of the model, temperature_scaled, and after penalty and every filter."""

    tokens: NDArray[np.int32]
    model: Floats
    temperature_scaled: Floats
    behaviour: Floats


def philox(seed: int, counters: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the four output words (N, 4) of Philox 4x32-10 for counters (N, 4) and key = `seed` modulo 2**64."""
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


def _fraction(seed: int, round_: int, indices: NDArray[np.int64], step: int, word: int) -> Floats:
    """Return the 53 high bits of words `word` (high) and `word` + 1 of each row's counter, as a number in [0, 1)."""
    counters = np.empty((len(indices), 4), np.uint32)
    counters[:, 0] = step
    counters[:, 1] = indices[:, 1]
    counters[:, 2] = indices[:, 0]
    counters[:, 3] = round_
    words = philox(seed, counters).astype(np.uint64)
    bits = ((words[:, word] << _HALF) | words[:, word + 1]) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def uniforms(seed: int, round_: int, indices: NDArray[np.int64], step: int) -> Floats:
    """Return one u in [0, 1) with 53 bits for each (prompt i, sample j) of `indices` (R, 2) at token `step`."""
    return _fraction(seed, round_, indices, step, 0)


def coins(seed: int, round_: int, indices: NDArray[np.int64], step: int) -> Floats:
    """Return the coins in [0, 1) that decide whether XTC acts, for the same counters as `uniforms`."""
    return _fraction(seed, round_, indices, step, 2)


def scale_by_temperature(logits: Floats, temperature: float) -> Floats:
    """Divide logits (R, V) by the temperature."""
    return logits / temperature


def log_softmax(logits: Floats) -> Floats:
    """Return the log-probs (R, V) of logits (R, V), in float64; -inf for a logit of -inf."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def penalise(logits: Floats, history: NDArray[np.int32], penalty: float) -> Floats:
    """Divide positive logits (R, V) of tokens in `history` (R, H; -1 for none) by the penalty, and multiply the others by it.

    A token that occurs twice is penalised once. Source: Keskar et al., arXiv 1909.05858, section 4.1.
    """
    seen = np.zeros((logits.shape[0], logits.shape[1] + 1), np.bool_)
    np.put_along_axis(seen, history.astype(np.int64), values=True, axis=1)  # -1 is the last column, cut off below
    return np.where(seen[:, :-1], np.where(logits > 0, logits / penalty, logits * penalty), logits)


def _ranked(weights: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Sort each row by falling weight, the lower id first among equals; return ids and weights."""
    order = np.argsort(-weights, axis=1, kind="stable")
    return order, np.take_along_axis(weights, order, axis=1)


def _unranked(order: NDArray[np.int64], stays: Flags) -> Flags:
    result = np.zeros(order.shape, np.bool_)
    np.put_along_axis(result, order, stays, axis=1)
    return result


def top_k(weights: Floats, settings: Settings, _: Floats | None) -> Flags:
    """Keep the k most probable tokens."""
    order, _ranks = _ranked(weights)
    first = np.arange(order.shape[1]) < (settings.top_k or order.shape[1])
    return _unranked(order, np.broadcast_to(first, order.shape))


def top_p(weights: Floats, settings: Settings, _: Floats | None) -> Flags:
    """Keep the smallest set of most probable tokens whose mass reaches p (Holtzman et al., arXiv 1904.09751)."""
    if settings.top_p == 1:
        return weights > 0
    order, ranked = _ranked(weights)
    mass = np.cumsum(ranked, axis=1)
    before = np.concatenate([np.zeros_like(mass[:, :1]), mass[:, :-1]], axis=1)
    return _unranked(order, before < settings.top_p * mass[:, -1:])


def min_p(weights: Floats, settings: Settings, _: Floats | None) -> Flags:
    """Keep tokens with at least `min_p` times the largest probability (Nguyen et al., arXiv 2407.01082)."""
    return np.asarray(weights >= settings.min_p * weights.max(axis=1, keepdims=True))


def xtc(weights: Floats, settings: Settings, coin: Floats | None) -> Flags:
    """If the coin (R,) is below the probability, remove every token above the threshold except the least probable of them."""
    if settings.xtc_probability == 0:
        return weights > 0
    if coin is None:
        raise ValueError("xtc_probability is above 0, so every row must have a coin")
    shares = weights / weights.sum(axis=1, keepdims=True)
    above = shares > settings.xtc_threshold
    least = np.min(np.where(above, shares, np.inf), axis=1, keepdims=True)
    acts = (coin < settings.xtc_probability)[:, None]
    return np.asarray(~acts | ~above | (shares <= least))


Filter = Callable[[Floats, Settings, Floats | None], Flags]
ORDERS: Final[Mapping[str, tuple[Filter, ...]]] = {
    "hf": (top_k, top_p, min_p, xtc),  # after the temperature
    "mlx-lm": (top_p, min_p, xtc, top_k),  # before it
}


def keep(weights: Floats, settings: Settings, coin: Floats | None = None) -> Flags:
    """Return which tokens (R, V) every filter keeps, in the settings' order, for a distribution with these weights."""
    left = weights
    for filter_ in ORDERS[settings.order]:
        left = np.where(filter_(left, settings, coin), left, 0.0)
    return left > 0


def draw(weights: Floats, u: Floats) -> NDArray[np.int64]:
    """Return the smallest token k (R,) with C_k > u * C_V, where C is the running sum of the weights (R, V) by id."""
    mass = np.cumsum(weights, axis=1)
    return np.argmax(mass > (u * mass[:, -1])[:, None], axis=1)


def sample(
    logits: NDArray[np.float32],
    u: Floats,
    settings: Settings,
    coin: Floats | None = None,
    history: NDArray[np.int32] | None = None,
) -> Drawn:
    """Draw one token for each row of logits (R, V) and uniform u (R,); XTC needs coins (R,), a penalty the history (R, H).

    At temperature 0 the token is the lowest id of the largest penalised logit; its log-probs other than the model's are 0.

    Raises:
        ValueError: the coins or the history that an active filter needs are missing.
    """
    exact = logits.astype(np.float64)
    rows = np.arange(len(exact))
    model = log_softmax(exact)
    penalised = exact
    if settings.penalises:
        if history is None:
            raise ValueError(f"repetition_penalty is {settings.repetition_penalty}, so every row must have a history")
        penalised = penalise(exact, history, settings.repetition_penalty)
    if settings.temperature == 0:
        tokens = np.argmax(penalised, axis=1)
        zeros = np.zeros(len(exact))
        return Drawn(tokens.astype(np.int32), model[rows, tokens], zeros, zeros.copy())
    cold = scale_by_temperature(penalised, settings.temperature)
    weights = np.exp(cold - cold.max(axis=1, keepdims=True))
    filtered = weights if settings.order == "hf" else np.exp(penalised - penalised.max(axis=1, keepdims=True))
    survivors = np.where(keep(filtered, settings, coin), cold, -np.inf)
    left = np.exp(survivors - survivors.max(axis=1, keepdims=True))
    tokens = draw(left, u)
    return Drawn(
        tokens.astype(np.int32),
        model[rows, tokens],
        log_softmax(scale_by_temperature(exact, settings.temperature))[rows, tokens],
        log_softmax(survivors)[rows, tokens],
    )
