"""Filters of the next-token distribution in their two orders, and the draw from what they leave."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.definitions import sampling as definition
from gates_reference.oracle.inputs import Bools, Floats, Ints, choice, floats, integers, number
from gates_reference.oracle.logprobs import log_softmax

ORDERS = ("hf", "mlx-lm")
TIES = ("library", "all", "lower-id")
LIBRARY = {  # of the tokens at the threshold of top-k, of top-p and of the tokens that min-p must leave, those that stay
    "hf": ("all", "higher-id", "lower-id"),  # scores < kth go; an ascending sort, of which the end stays; a top-k's ids
    "mlx-lm": ("lower-id", "all", "higher-id"),  # the first k of a partition; log-probs < threshold go; its last k
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
    min_tokens_to_keep: int = 1,
    xtc_special_tokens: npt.ArrayLike | None = None,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    generated: npt.ArrayLike | None = None,
    logit_bias: npt.ArrayLike | None = None,
) -> Floats:
    """Each filter acts on the distribution renormalised over the survivors so far; the result is normalised too.

    "hf": penalties, temperature, top-k, top-p, min-p, XTC. "mlx-lm": penalties, then on the distribution at
    temperature 1 top-p, min-p, XTC, top-k, and the temperature last.
    Penalties: first `logit_bias` is added. Then the logit of a token in `history` is divided by the repetition penalty
    if positive, else multiplied by it. Then the frequency penalty is subtracted for each time that a token is in
    `generated`, and the presence penalty once.
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
            ids for top-p, in "mlx-lm" the lower ids for top-k and all for top-p; of the tokens that min-p must leave the lower ids in
            "hf", the higher in "mlx-lm".
        min_tokens_to_keep: at least 1: how many of the likeliest each of top-k, top-p and min-p leaves at least in
            "hf", and min-p in "mlx-lm".
        xtc_special_tokens: ids that XTC never removes, or None.
        presence_penalty: finite; 0.0 disables.
        frequency_penalty: finite; 0.0 disables.
        generated: (..., H) ids, -1 for none; None where both these penalties are disabled.
        logit_bias: (V,) finite or -inf, or None.

    Returns:
        (..., V) float64 log-probs, -inf for removed tokens.

    Raises:
        ValueError: an unknown order, a parameter outside its range, or one that an active filter needs is missing.

    Source: docs/definitions.md, "Sampling"; top-p: Holtzman et al. (arXiv 1904.09751); min-p: Nguyen et al. (arXiv
        2407.01082); repetition penalty: Keskar et al. (arXiv 1909.05858), section 4.1.
    """
    choice("order", order, ORDERS)
    choice("ties", ties, TIES)
    ties_k, ties_p, ties_m = LIBRARY[order] if ties == "library" else (ties, ties, ties)
    if min_tokens_to_keep < 1:
        raise ValueError(f"`min_tokens_to_keep` is {min_tokens_to_keep}, must be at least 1")
    least = min_tokens_to_keep if order == "hf" else 1  # mlx-lm has it in min-p only
    number("temperature", temperature, least=0)
    penalised = _penalised(_biased(floats("logits", logits), logit_bias), repetition_penalty, history)
    penalised = _counted(penalised, presence_penalty, frequency_penalty, generated)
    keep_k, keep_p = _top_k(top_k, least, ties_k), _top_p(top_p, least, ties_p)
    keep_min_p = _min_p(min_p, min_tokens_to_keep, ties_m)
    keep_xtc = _xtc(xtc_probability, xtc_threshold, xtc_coin, xtc_special_tokens, penalised.shape)
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


def _top_k(top_k: int, least: int, ties: str) -> Keep | None:
    if top_k < 0:
        raise ValueError(f"`top_k` is {top_k}, must be at least 0")
    return None if top_k == 0 else lambda p: definition.top_k(p, max(top_k, least), ties)


def _top_p(top_p: float, least: int, ties: str) -> Keep | None:
    if number("top_p", top_p, least=0, most=1) == 1:
        return None
    return lambda p: definition.likeliest(p, definition.top_p(p, top_p, ties), least, ties)


def _min_p(min_p: float, least: int, ties: str) -> Keep | None:
    if number("min_p", min_p, least=0, most=1) == 0:
        return None
    return lambda p: definition.likeliest(p, definition.min_p(p, min_p), least, ties)


def _xtc(
    probability: float,
    threshold: float,
    coin: npt.ArrayLike | None,
    special_tokens: npt.ArrayLike | None,
    shape: tuple[int, ...],
) -> Keep | None:
    number("xtc_probability", probability, least=0, most=1)
    number("xtc_threshold", threshold, least=0, most=1)
    if probability == 0:
        return None
    if coin is None:
        raise ValueError(f"`xtc_coin` is None, must be given where xtc_probability is {probability}")
    acts = floats("xtc_coin", coin, shape=shape[:-1]) < probability
    special = np.zeros(shape[-1], np.bool_)
    special[
        integers("xtc_special_tokens", [] if special_tokens is None else special_tokens, least=0, below=len(special))
    ] = True
    return lambda p: definition.xtc(p, threshold, acts, special)


def _biased(logits: Floats, bias: npt.ArrayLike | None) -> Floats:
    if not logits.ndim:
        raise ValueError("`logits` is a scalar, must have a vocabulary axis")
    if bias is None:
        return logits
    added = floats("logit_bias", bias, shape=logits.shape[-1:])
    if not np.all(added < np.inf):  # nor NaN
        raise ValueError("`logit_bias` holds NaN or +inf, must be finite or -inf")
    return logits + added


def _counted(logits: Floats, presence: float, frequency: float, generated: npt.ArrayLike | None) -> Floats:
    number("presence_penalty", presence, least=-np.inf)
    number("frequency_penalty", frequency, least=-np.inf)
    if presence == 0 and frequency == 0:
        return logits
    if generated is None:
        raise ValueError(f"`generated` is None, must be given with penalties {presence} and {frequency}")
    ids = _ids_of_rows("generated", generated, logits)
    counts = np.sum(ids[..., None] == np.arange(logits.shape[-1]), axis=-2)
    return definition.counted(logits, presence, frequency, counts)


def _ids_of_rows(name: str, given: npt.ArrayLike, logits: Floats) -> Ints:
    ids = integers(name, given, least=-1, below=logits.shape[-1])
    if ids.shape[:-1] != logits.shape[:-1] or ids.ndim != logits.ndim:
        raise ValueError(f"`{name}` has shape {ids.shape}, must be {(*logits.shape[:-1], 'H')}")
    return ids


def _penalised(logits: Floats, penalty: float, history: npt.ArrayLike | None) -> Floats:
    if number("repetition_penalty", penalty, least=0) == 1:
        return logits
    if penalty == 0 or history is None:
        raise ValueError(f"`repetition_penalty` is {penalty}, must be above 0, with `history` given unless it is 1")
    ids = _ids_of_rows("history", history, logits)
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
