"""Filters of the next-token distribution in their two orders, and the draw from what they leave."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from reference.oracle.definitions import sampling as definition
from reference.oracle.inputs import Bools, Floats, Ints, choice, floats, integers, number
from reference.oracle.logprobs import log_softmax

ORDERS = ("hf", "mlx-lm")
TIES = ("library", "all", "lower-id")
LIBRARY = {  # of the tokens at the threshold of top-k and of top-p, those that stay
    "hf": ("all", "higher-id"),  # scores < kth go; an ascending sort, of which the end stays
    "mlx-lm": ("lower-id", "all"),  # the first k of a partition; log-probs < threshold go
}


def filtered_logprobs(
    logits: npt.ArrayLike,
    *,
    order: str,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    xtc_probability: float,
    xtc_threshold: float,
    xtc_coin: npt.ArrayLike | None,
    repetition_penalty: float,
    history: npt.ArrayLike | None,
    ties: str = "library",
) -> Floats:
    """Each filter acts on the distribution renormalised over the survivors so far; the result is normalised too.

    "hf": repetition penalty, temperature, top-k, top-p, min-p, XTC. "mlx-lm": repetition penalty, then on the
    distribution at temperature 1 top-p, min-p, XTC, top-k, and the temperature last.
    Repetition penalty: the logit of a token in `history` is divided by it if positive, else multiplied by it.
    Top-k keeps the k likeliest, top-p the smallest set of likeliest tokens whose mass reaches p, at least one token.
    Min-p removes tokens below min_p times the largest probability. XTC, where its coin is below its probability,
    removes every token above its threshold except the least likely of them (all of those, if several are equally
    unlikely). Temperature 0 puts all mass on the lowest id of the maximum of the penalised logits; no other filter
    acts.

    Args:
        logits: (..., V), finite or -inf.
        order: "hf" or "mlx-lm".
        temperature: at least 0.
        top_k: at least 0; 0 disables.
        top_p: in [0, 1]; 1.0 disables, 0.0 keeps one token.
        min_p: in [0, 1]; 0.0 disables.
        xtc_probability: in [0, 1]; 0.0 disables.
        xtc_threshold: in [0, 1], a probability.
        xtc_coin: (...) in [0, 1), or None where XTC is disabled.
        repetition_penalty: above 0; 1.0 disables.
        history: (..., H) ids of earlier tokens, -1 for none; None where the penalty is disabled.
        ties: which tokens stay of those as likely as the last that top-k or top-p keeps: "all", the lower ids until the
            filter has enough ("lower-id"), or what the library of the order keeps: in "hf" all for top-k and the higher
            ids for top-p, in "mlx-lm" the lower ids for top-k and all for top-p.

    Returns:
        (..., V) float64 log-probs, -inf for removed tokens.

    Raises:
        ValueError: an unknown order, a parameter outside its range, or one that an active filter needs is missing.

    Source: docs/definitions.md, "Sampling"; top-p: Holtzman et al. (arXiv 1904.09751); min-p: Nguyen et al. (arXiv
        2407.01082); repetition penalty: Keskar et al. (arXiv 1909.05858), section 4.1.
    """
    choice("order", order, ORDERS)
    choice("ties", ties, TIES)
    ties_k, ties_p = LIBRARY[order] if ties == "library" else (ties, ties)
    number("temperature", temperature, least=0)
    penalised = _penalised(floats("logits", logits), repetition_penalty, history)
    keep_k, keep_p = _top_k(top_k, ties_k), _top_p(top_p, ties_p)
    keep_min_p, keep_xtc = _min_p(min_p), _xtc(xtc_probability, xtc_threshold, xtc_coin, penalised.shape[:-1])
    if temperature == 0:
        return _greedy(penalised)
    if order == "hf":
        result = log_softmax(penalised, temperature=temperature)
        for keep in (keep_k, keep_p, keep_min_p, keep_xtc):
            result = _restrict(result, keep)
        return result
    result = log_softmax(penalised, temperature=1.0)
    for keep in (keep_p, keep_min_p, keep_xtc, keep_k):
        result = _restrict(result, keep)
    return log_softmax(result, temperature=temperature)


def draw(logprobs: npt.ArrayLike, u: npt.ArrayLike) -> Ints:
    """The token drawn by u is the least k with C_k > u C_V, C the running sum of the probabilities in id order.

    Args:
        logprobs: (..., V) log-probs, -inf for tokens that cannot be drawn; need not be normalised.
        u: (...) in [0, 1).

    Returns:
        (...) int64; never a token of probability 0.

    Raises:
        ValueError: u outside [0, 1), or shapes that do not fit.

    Source: docs/definitions.md, "Draws do not depend on the batch"; inverse transform sampling.
    """
    sums = _running_sums(logprobs)
    uniform = floats("u", u, shape=sums.shape[:-1])
    if not np.all((uniform >= 0) & (uniform < 1)):
        raise ValueError(f"`u` is {uniform[~((uniform >= 0) & (uniform < 1))][0]}, must be in [0, 1)")
    return definition.draw(sums, uniform)


def token_intervals(logprobs: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Token k is drawn by the u of [C_{k-1} / C_V, C_k / C_V).

    Args:
        logprobs: (..., V) as in `draw`.

    Returns:
        The lower and the upper ends, each (..., V) float64; equal for a token that cannot be drawn.

    Raises:
        ValueError: no vocabulary axis, or no token that can be drawn.

    Source: as `draw`.
    """
    return definition.intervals(_running_sums(logprobs))


Keep = Callable[[Floats], Bools]  # of a normalised distribution, as probabilities: the tokens that stay


def _restrict(logprobs: Floats, keep: Keep | None) -> Floats:
    if keep is None:
        return logprobs
    return definition.restrict(logprobs, keep(np.exp(logprobs)))


def _top_k(top_k: int, ties: str) -> Keep | None:
    if top_k < 0:
        raise ValueError(f"`top_k` is {top_k}, must be at least 0")
    return None if top_k == 0 else lambda p: definition.top_k(p, top_k, ties)


def _top_p(top_p: float, ties: str) -> Keep | None:
    return None if number("top_p", top_p, least=0, most=1) == 1 else lambda p: definition.top_p(p, top_p, ties)


def _min_p(min_p: float) -> Keep | None:
    return None if number("min_p", min_p, least=0, most=1) == 0 else lambda p: definition.min_p(p, min_p)


def _xtc(probability: float, threshold: float, coin: npt.ArrayLike | None, shape: tuple[int, ...]) -> Keep | None:
    number("xtc_probability", probability, least=0, most=1)
    number("xtc_threshold", threshold, least=0, most=1)
    if probability == 0:
        return None
    if coin is None:
        raise ValueError(f"`xtc_coin` is None, must be given where xtc_probability is {probability}")
    acts = floats("xtc_coin", coin, shape=shape) < probability
    return lambda p: definition.xtc(p, threshold, acts)


def _penalised(logits: Floats, penalty: float, history: npt.ArrayLike | None) -> Floats:
    if not logits.ndim:
        raise ValueError("`logits` is a scalar, must have a vocabulary axis")
    if number("repetition_penalty", penalty, least=0) == 1:
        return logits
    if penalty == 0 or history is None:
        raise ValueError(f"`repetition_penalty` is {penalty}, must be above 0, with `history` given unless it is 1")
    ids = integers("history", history, least=-1, below=logits.shape[-1])
    if ids.shape[:-1] != logits.shape[:-1] or ids.ndim != logits.ndim:
        raise ValueError(f"`history` has shape {ids.shape}, must be {(*logits.shape[:-1], 'H')}")
    seen = np.zeros((*logits.shape[:-1], logits.shape[-1] + 1), np.bool_)
    np.put_along_axis(seen, ids, values=True, axis=-1)  # -1 marks the last column, which is then cut off
    return definition.penalised(logits, penalty, seen[..., :-1])


def _greedy(logits: Floats) -> Floats:
    log_softmax(logits, temperature=1.0)  # raises on rows without a maximum
    return definition.greedy(logits)


def _running_sums(logprobs: npt.ArrayLike) -> Floats:
    values = floats("logprobs", logprobs)
    if not values.ndim or not values.shape[-1]:
        raise ValueError(f"`logprobs` has shape {values.shape}, must have a vocabulary axis with at least one token")
    sums = definition.running_sums(values)
    if not np.all((sums[..., -1] > 0) & np.isfinite(sums[..., -1])):
        raise ValueError("`logprobs` has a row whose probabilities sum to 0, NaN or inf, must be above 0 and finite")
    return sums
