"""Mutations of filters and draws; loaded in workers only."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np

from gates.families.patching import Fn, mutation
from gates.subjects.numpy_baseline import sampling


@mutation
def other_order(original: Fn, order: Any, temperature: Any) -> Any:
    """Run the filters in the other library's order."""
    other = {"hf": "mlx-lm", "mlx-lm": "hf"}
    return original(other[order], temperature)


@mutation
def temperature_last(original: Fn, order: str, temperature: float) -> Any:
    """Filter the untempered distribution in transformers' order of filters too."""
    heat, stages, after = original(order, temperature)
    return 1.0, stages, heat * after


@mutation
def exclusive(original: Fn, probabilities: Any, top_p: Any) -> Any:
    """Drop the token that reaches p."""
    return max(1, original(probabilities, top_p) - 1)


@mutation
def one_more(original: Fn, values: Any, limit: Any) -> Any:
    """Keep one token more."""
    return min(original(values, limit) + 1, values.size)


@mutation
def all_tied(original: Fn, values: Any, limit: Any) -> Any:
    """Keep every token that is as likely as the last one kept."""
    length = original(values, limit)
    return int(np.count_nonzero(values >= values[length - 1]))


@mutation
def lower_ids(_original: Fn, *_: Any) -> Any:
    """Keep the lower ids of equals, whatever was asked for."""
    return "lower-id"


@mutation
def library_is_all(original: Fn, ties: str, *rest: Any) -> Any:
    """Keep all tied tokens where a library is named."""
    return original("all" if ties == "library" else ties, *rest)


@mutation
def absolute_floor(_original: Fn, probabilities: Any, min_p: Any) -> Any:
    """Compare probabilities with min_p itself, not with its share of the largest."""
    return max(1, int(np.count_nonzero(probabilities >= min_p)))


@mutation
def above_the_bound(_original: Fn, probabilities: Any, min_p: Any) -> Any:
    """Remove the token whose probability is the bound itself."""
    return int(np.count_nonzero(probabilities > min_p * probabilities[0]))


@mutation
def all_above(_original: Fn, probabilities: Any, threshold: Any) -> Any:
    """Remove every token above the threshold, the least likely of them too, as long as one is left."""
    return min(int(np.sum(probabilities > threshold)), probabilities.size - 1)


@mutation
def nothing_above(_original: Fn, *_: Any) -> Any:
    """Remove nothing."""
    return 0


@mutation
def coin_ignored(original: Fn, *arguments: Any, **options: Any) -> Any:
    """Let XTC act on every draw."""
    if options.get("xtc_coin") is not None:
        options["xtc_coin"] = np.zeros_like(options["xtc_coin"])
    return original(*arguments, **options)


@mutation
def least_of_the_batch(original: Fn, *arguments: Any, **options: Any) -> Any:
    """Let XTC cut every row of a call above the least likely token above the threshold in any of them.

    The rows go one by one in this host, so the call runs twice: to see that token's probability, and to cut by it. One
    token is left to a row that would lose all.
    """
    least = np.inf

    def see(probabilities: Any, threshold: float) -> int:
        nonlocal least
        least = min(least, float(np.min(probabilities, where=probabilities > threshold, initial=np.inf)))
        return 0

    def cut(probabilities: Any, threshold: float) -> int:
        del threshold
        return min(int(np.count_nonzero(probabilities > least)), probabilities.size - 1)

    with mock.patch.object(sampling, "xtc_skip", see):
        original(*arguments, **options)
    with mock.patch.object(sampling, "xtc_skip", cut):
        return original(*arguments, **options)


@mutation
def divide_always(_original: Fn, row: Any, history: Any, penalty: float) -> Any:
    """Divide negative logits too, which makes earlier tokens likelier."""
    result = row.copy()
    result[np.unique(history[history >= 0])] /= penalty
    return result


@mutation
def padding_is_a_token(original: Fn, row: Any, history: Any, penalty: Any) -> Any:
    """Read the -1 of the padding as an index: the last token of the vocabulary is penalised."""
    return original(row, np.where(history < 0, row.size - 1, history), penalty)


@mutation
def penalty_twice(original: Fn, row: Any, history: Any, penalty: Any) -> Any:
    """Apply the penalty a second time, as for a token that occurred twice."""
    return original(original(row, history, penalty), history, penalty)


@mutation
def reaches(_original: Fn, probabilities: Any, u: float) -> Any:
    """Take the least k with C_k >= u C_V: u = 0 picks token 0, filtered or not."""
    sums = np.add.accumulate(probabilities)
    return int(np.searchsorted(sums, u * sums[-1], side="left"))


@mutation
def float32_running_sum(_original: Fn, probabilities: Any, u: float) -> Any:
    """Sum the probabilities in float32 and compare with u itself, as if they ended at 1."""
    sums = np.add.accumulate(probabilities.astype(np.float32))
    return min(int(np.searchsorted(sums, np.float32(u), side="right")), probabilities.size - 1)


@mutation
def by_likelihood(original: Fn, probabilities: Any, u: float) -> Any:
    """Run through the tokens from likely to unlikely instead of by id."""
    order = np.argsort(-probabilities, kind="stable")
    return int(order[original(probabilities[order], u)])


@mutation
def model_logprobs(original: Fn, logits: Any, logprobs: Any, tokens: Any) -> Any:
    """Record the log-prob of the unfiltered distribution at temperature 1."""
    del logprobs
    plain = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return original(logits, plain - np.log(np.exp(plain).sum(axis=1, keepdims=True)), tokens)


@mutation
def highest_id(original: Fn, row: Any) -> Any:
    """Take the last of the tokens on the maximum."""
    return row.size - 1 - original(row[::-1])


@mutation
def once_per_occurrence(original: Fn, row: Any, history: Any, penalty: float) -> Any:
    """Apply the penalty for every token of the history, the same one again and again."""
    for one in history.reshape(-1):
        row = original(row, np.atleast_1d(one), penalty)
    return row


@mutation
def one_means_all(original: Fn, weights: Any, top_k: Any) -> Any:
    """Take a top-k of 1 for no top-k."""
    return original(weights, weights.size if top_k == 1 else top_k)


@mutation
def never_all(original: Fn, weights: Any, top_k: Any) -> Any:
    """Clamp k below the number of tokens."""
    return min(original(weights, top_k), max(1, weights.size - 1))


@mutation
def acts_at_one(original: Fn, name: str, weights: Any, top_k: int, top_p: float, *rest: Any) -> Any:
    """Let top-p cut at 1 too: what follows where the running sum has come to 1 goes."""
    if name == "top_p":
        return slice(0, sampling.top_p_length(weights / weights.sum(), top_p))
    return original(name, weights, top_k, top_p, *rest)


@mutation
def overflowing(original: Fn, logits: Any, **options: Any) -> Any:
    """Give NaN to a row whose exponentials, its maximum not subtracted, overflow the dtype of the logits."""
    result = original(logits, **options)
    with np.errstate(over="ignore"):
        total = np.exp(logits).sum(axis=1)
    return np.where(np.isfinite(total)[:, None], result, np.nan)


@mutation
def nothing_at_least(_original: Fn, length: int, *_: Any) -> Any:
    """Leave what the filter leaves."""
    return length


@mutation
def at_least_everywhere(original: Fn, length: int, _order: str, *rest: Any) -> Any:
    """Let every filter leave so many, as transformers does."""
    return original(length, "hf", *rest)


@mutation
def none_is_special(_original: Fn, ids: Any, _special: Any) -> Any:
    """Know no special token."""
    return np.zeros(ids.shape, bool)


@mutation
def once(original: Fn, logits: Any, counts: Any, *penalties: Any) -> Any:
    """Count a token that occurred n times once."""
    return original(logits, np.minimum(counts, 1), *penalties)


@mutation
def presence_each_time(_original: Fn, logits: Any, counts: Any, presence: float, frequency: float) -> Any:
    """Subtract both penalties for each occurrence."""
    return logits - counts * (presence + frequency)


@mutation
def padding_occurs(original: Fn, ids: Any, size: int) -> Any:
    """Read the -1 of the padding as an index from the end."""
    return original(np.where(ids < 0, size - 1, ids), size)


@mutation
def bias_last(original: Fn, logits: Any, **options: Any) -> Any:
    """Apply the repetition penalty first, and add the bias to what it leaves."""
    penalty = options["repetition_penalty"]
    if options.get("logit_bias") is None or penalty == 1.0:
        return original(logits, **options)
    rows = zip(logits.astype(np.float64), options["history"], strict=True)
    penalised = np.stack([sampling.penalise(row, ids, penalty) for row, ids in rows])
    return original(penalised, **{**options, "repetition_penalty": 1.0, "history": None})
