"""The NumPy baseline's sampler: filters over sorted rows, the inverse-CDF draw, and Philox 4x32-10."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gates.subjects.numpy_baseline import arguments

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def filtered_logprobs(  # noqa: PLR0913  the op's keywords
    logits: Array,
    *,
    order: str,
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    xtc_probability: float = 0.0,
    xtc_threshold: float = 0.1,
    xtc_coin: Array | None = None,
    repetition_penalty: float = 1.0,
    history: Array | None = None,
    ties: str = "library",
    min_tokens_to_keep: int = 1,
    xtc_special_tokens: Array | None = None,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    generated: Array | None = None,
    logit_bias: Array | None = None,
) -> Array:
    """Log-probs (B, V) after penalty, temperature and filters, float64 and normalised, −inf where removed."""
    arguments.one_of("order", order, ("hf", "mlx-lm"))
    arguments.one_of("ties", ties, ("library", "all", "lower-id"))
    arguments.within("temperature", temperature, 0.0)
    for name, share in (("top_p", top_p), ("min_p", min_p), ("xtc_probability", xtc_probability)):
        arguments.within(name, share, 0.0, 1.0)
    arguments.within("xtc_threshold", xtc_threshold, 0.0, 1.0)
    arguments.within("top_k", top_k, 0)
    arguments.within("min_tokens_to_keep", min_tokens_to_keep, 1)
    values = arguments.vocabulary("logits", logits)
    if values.ndim != 2 or not np.all(np.isfinite(values.max(axis=1))):
        raise ValueError(f"`logits` of shape {values.shape} must be (B, V), each row with a finite maximum and no NaN")
    if xtc_probability > 0.0 and xtc_coin is None:
        raise ValueError(f"`xtc_coin` is None, must be given where xtc_probability is {xtc_probability}")
    acts = np.zeros(len(values), bool)
    if xtc_coin is not None:
        acts = arguments.wide("xtc_coin", xtc_coin, values.shape[:1]) < xtc_probability
    values = _processed(
        values, logit_bias, (repetition_penalty, history), (presence_penalty, frequency_penalty, generated)
    )
    special = np.array([], np.int64) if xtc_special_tokens is None else np.asarray(xtc_special_tokens)
    result = np.full(values.shape, -np.inf)
    for row, target, act in zip(values, result, acts, strict=True):
        if temperature == 0.0:
            target[largest_token(row)] = 0.0
            continue
        kept = np.lexsort((np.arange(row.size), -row))  # most likely first, lower ids first among equals
        kept = kept[: np.count_nonzero(row > -np.inf)]
        heat, stages, after = plan(order, temperature)
        for stage in stages:
            weights = np.exp((row[kept] - row[kept[0]]) / heat)
            stays = _stage(stage, weights, top_k, top_p, min_p, xtc_threshold if act else None)
            if stage == "xtc":
                kept = kept[np.isin(kept, kept[stays]) | never_removed(kept, special)]
                continue
            stays = slice(0, at_least(len(kept[stays]), order, stage, min_tokens_to_keep))
            kept = kept[with_ties(row[kept], stays, tie_rule(ties, order, stage))]
        tail = (row[kept] - row[kept[0]]) / (heat * after)
        target[kept] = tail - np.log(np.exp(tail).sum())
    return result


def sample_tokens(logits: Array, uniforms: Array, **filters: Any) -> tuple[Array, Array]:
    """Return the tokens (B,) that the uniforms draw from the filtered rows, and their log-probs."""
    logprobs = filtered_logprobs(logits, **filters)
    draws = arguments.wide("uniforms", uniforms, logprobs.shape[:1])
    if not np.all((draws >= 0.0) & (draws < 1.0)):
        raise ValueError("`uniforms` holds a number outside [0, 1)")
    tokens = np.array([draw(np.exp(row), u) for row, u in zip(logprobs, draws, strict=True)], np.int64)
    return tokens, behaviour(logits, logprobs, tokens)


def _processed(values: Array, bias: Array | None, repetition: tuple[Any, ...], counting: tuple[Any, ...]) -> Array:
    """Return the logits after bias and penalties, in this order."""
    if bias is not None:
        values = biased(values, arguments.wide("logit_bias", bias, values.shape[1:]))
    penalty, history = repetition
    if penalty != 1.0:
        if history is None or not penalty > 0.0:
            raise ValueError(f"`repetition_penalty` is {penalty}, must be above 0, with `history`")
        seen = arguments.whole("history", history, -1, values.shape[1])
        values = np.stack([penalise(row, ids, penalty) for row, ids in zip(values, seen, strict=True)])
    presence, frequency, generated = counting
    if presence or frequency:
        if generated is None:
            raise ValueError("`generated` is None, must be given with a presence or frequency penalty")
        ids_of_rows = arguments.whole("generated", generated, -1, values.shape[1])
        counts = np.stack([occurrences(ids, values.shape[1]) for ids in ids_of_rows])
        values = subtract(values, counts, presence, frequency)
    return values


def plan(order: str, temperature: float) -> tuple[float, tuple[str, ...], float]:
    """Return the temperature before the filters, the filters in order, and the temperature after them."""
    if order == "hf":
        return temperature, ("top_k", "top_p", "min_p", "xtc"), 1.0
    return 1.0, ("top_p", "min_p", "xtc", "top_k"), temperature


def _stage(name: str, weights: Array, top_k: int, top_p: float, min_p: float, threshold: float | None) -> slice:
    """Return the slice of survivors, sorted by decreasing weight, that stay."""
    if name == "top_k" and top_k > 0:
        return slice(0, top_k_length(weights, top_k))
    if name == "top_p" and top_p < 1.0:
        return slice(0, top_p_length(weights / weights.sum(), top_p))
    if name == "min_p" and min_p > 0.0:
        return slice(0, min_p_length(weights / weights.sum(), min_p))
    if name == "xtc" and threshold is not None:
        return slice(xtc_skip(weights / weights.sum(), threshold), None)
    return slice(None)


def tie_rule(ties: str, order: str, stage: str) -> str:
    """Return which tokens a filter keeps among those tied with its last one: all, lower-id or higher-id."""
    library = {
        "hf": {"top_k": "all", "top_p": "higher-id", "min_p": "lower-id"},
        "mlx-lm": {"top_k": "lower-id", "top_p": "all", "min_p": "higher-id"},
    }
    return library[order][stage] if ties == "library" else ties


def at_least(length: int, order: str, stage: str, least: int) -> int:
    """Return the least number of tokens that a filter keeps: every filter in transformers, min-p in mlx-lm."""
    return max(length, least) if order == "hf" or stage == "min_p" else length


def never_removed(ids: Array, special: Array) -> Array:
    """Return the ids that XTC never removes."""
    return np.isin(ids, special)


def with_ties(logits: Array, stays: slice, rule: str) -> slice | Array:
    """Return the survivors that stay under a tie rule, given the slice that stays by logit and id."""
    count = min(stays.stop, logits.size)
    if rule == "lower-id" or count == logits.size:
        return stays
    least = logits[count - 1]
    above, reached = int(np.count_nonzero(logits > least)), int(np.count_nonzero(logits >= least))
    if rule == "all":
        return slice(0, reached)
    return np.r_[0:above, reached - (count - above) : reached]


def top_k_length(weights: Array, top_k: int) -> int:
    """Return the number of most likely tokens that stay: k."""
    return min(top_k, weights.size)


def top_p_length(probabilities: Array, top_p: float) -> int:
    """Return the size of the smallest set of most likely tokens whose mass reaches p; never 0."""
    return 1 + int(np.count_nonzero(np.cumsum(probabilities)[:-1] < top_p))


def min_p_length(probabilities: Array, min_p: float) -> int:
    """Return the number of tokens with at least min_p times the largest probability."""
    return int(np.count_nonzero(probabilities >= min_p * probabilities[0]))


def xtc_skip(probabilities: Array, threshold: float) -> int:
    """Return the number of removed tokens: all above the threshold except the least likely of them."""
    above = int(np.count_nonzero(probabilities > threshold))
    return int(np.count_nonzero(probabilities > probabilities[above - 1])) if above else 0


def penalise(row: Array, history: Array, penalty: float) -> Array:
    """Return the row with lower logits of earlier tokens: divided if positive, else multiplied."""
    ids = np.unique(history[history >= 0])
    result = row.copy()
    result[ids] = np.where(row[ids] > 0.0, row[ids] / penalty, row[ids] * penalty)
    return result


def biased(logits: Array, bias: Array) -> Array:
    """Return the logits with one number added for each token."""
    return logits + bias


def occurrences(ids: Array, size: int) -> Array:
    """Return the count of each token of the vocabulary in the ids; -1 is padding."""
    return np.bincount(ids[ids >= 0], minlength=size)


def subtract(logits: Array, counts: Array, presence: float, frequency: float) -> Array:
    """Return the logits minus the frequency penalty per occurrence and the presence penalty if there is any."""
    return logits - frequency * counts - np.where(counts > 0, presence, 0.0)


def largest_token(row: Array) -> int:
    """Return the lowest id of the maximum."""
    return int(np.argmax(row))


def draw(probabilities: Array, u: float) -> int:
    """Return the least k with C_k > u C_V, C the running sum in id order."""
    sums = np.add.accumulate(probabilities)
    return int(np.searchsorted(sums, u * sums[-1], side="right"))


def behaviour(logits: Array, logprobs: Array, tokens: Array) -> Array:
    """Return the log-probs of the tokens under the distribution that they were drawn from."""
    del logits
    return np.take_along_axis(logprobs, tokens[:, None], axis=1)[:, 0]


def philox4x32_10(counter: Array, key: Array) -> Array:
    """Return the four words of Philox 4x32-10 for counters (…, 4) and keys (…, 2), uint32."""
    limit = 1 << 32
    words = arguments.whole("counter", counter, 0, limit).astype(np.uint64)
    keys = arguments.whole("key", key, 0, limit).astype(np.uint64)
    if words.shape[-1:] != (4,) or keys.shape[-1:] != (2,):
        raise ValueError(f"`counter`, `key` have shapes {words.shape}, {keys.shape}, must be (…, 4) and (…, 2)")
    shape = np.broadcast_shapes(words.shape[:-1], keys.shape[:-1])
    state = [np.broadcast_to(words[..., lane], shape) for lane in range(4)]
    return np.stack(rounds(state, [keys[..., 0], keys[..., 1]], 10), axis=-1).astype(np.uint32)


def rounds(state: list[Array], key: list[Array], count: int) -> list[Array]:
    """Return the state after `count` rounds, with the key bumped between rounds."""
    low = np.uint64(0xFFFFFFFF)
    for number in range(count):
        bump = np.uint64(number)
        products = state[0] * np.uint64(0xD2511F53), state[2] * np.uint64(0xCD9E8D57)
        subkeys = (key[0] + bump * np.uint64(0x9E3779B9)) & low, (key[1] + bump * np.uint64(0xBB67AE85)) & low
        state = [
            (products[1] >> np.uint64(32)) ^ state[1] ^ subkeys[0],
            products[1] & low,
            (products[0] >> np.uint64(32)) ^ state[3] ^ subkeys[1],
            products[0] & low,
        ]
    return state


def uniforms(seed: int, round_: Array, prompt: Array, sample: Array, token: Array) -> Array:
    """Return u in [0, 1) with 53 bits from words 0 and 1 of each draw's counter."""
    return fraction(keyed_words(seed, round_, prompt, sample, token)[..., :2])


def xtc_coins(seed: int, round_: Array, prompt: Array, sample: Array, token: Array) -> Array:
    """Return the coin in [0, 1) with 53 bits from words 2 and 3 of each draw's counter."""
    return fraction(keyed_words(seed, round_, prompt, sample, token)[..., 2:])


def keyed_words(seed: int, round_: Array, prompt: Array, sample: Array, token: Array) -> Array:
    """Return Philox of the counter (token, sample, prompt, round) with the seed as key, low word first."""
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"`seed` is {seed}, must be in [0, 2**64)")
    counter = np.stack(np.broadcast_arrays(token, sample, prompt, round_), axis=-1)
    return philox4x32_10(counter, np.array([seed % (1 << 32), seed >> 32]))


def fraction(pair: Array) -> Array:
    """Return two words, the high one first, as a multiple of 2**-53 in [0, 1)."""
    high, low = pair[..., 0].astype(np.uint64), pair[..., 1].astype(np.uint64)
    return ((high << np.uint64(21)) + (low >> np.uint64(11))).astype(np.float64) / 2.0**53
