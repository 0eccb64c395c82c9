"""Mutations of filters and draws; loaded in workers only."""

from __future__ import annotations

from typing import Any

import numpy as np

from gates.families.edited import edited
from gates.families.patching import Fn, mutation
from gates.families.sampling.program import PROGRAM
from gates.subjects.numpy_baseline import sampling

exclusive = edited(PROGRAM, "top-p without the token whose mass reaches p")
one_more = edited(PROGRAM, "top-k keeps one token more: k + 1")
absolute_floor = edited(PROGRAM, "min-p as an absolute probability, not relative to the largest")
all_above = edited(PROGRAM, "XTC removes every token above the threshold, the least likely too")
nothing_above = edited(PROGRAM, "XTC ignored")
coin_ignored = edited(PROGRAM, "XTC on every row, whatever its coin")
least_of_the_batch = edited(PROGRAM, "XTC with the least likely token of the whole batch, not of the row")
divide_always = edited(PROGRAM, "repetition penalty divides negative logits too")
padding_is_a_token = edited(PROGRAM, "the −1 of an empty place taken for the last token")
penalty_twice = edited(PROGRAM, "repetition penalty twice")
once_per_occurrence = edited(PROGRAM, "repetition penalty for each occurrence in the history")
nothing_at_least = edited(PROGRAM, "min_tokens_to_keep ignored")
at_least_everywhere = edited(PROGRAM, "min_tokens_to_keep of every filter (as in transformers)")
none_is_special = edited(PROGRAM, "XTC removes special tokens too")
once = edited(PROGRAM, "frequency penalty once, however often a token occurred")
presence_each_time = edited(PROGRAM, "presence penalty for each occurrence")
bias_last = edited(PROGRAM, "logit bias after the penalties")


@mutation
def other_order(original: Fn, order: Any, temperature: Any) -> Any:
    """Run the filters in the other library's order."""
    other = {"hf": "mlx-lm", "mlx-lm": "hf"}
    return original(other[order], temperature)


@mutation
def temperature_last(original: Fn, order: str, temperature: float) -> Any:
    """Filter the distribution at temperature 1 in transformers' order too."""
    heat, stages, after = original(order, temperature)
    return 1.0, stages, heat * after


@mutation
def all_tied(original: Fn, values: Any, limit: Any) -> Any:
    """Keep all tokens tied with the last kept one."""
    length = original(values, limit)
    return int(np.count_nonzero(values >= values[length - 1]))


@mutation
def lower_ids(_original: Fn, *_: Any) -> Any:
    """Keep the lower ids of tied tokens for every library."""
    return "lower-id"


@mutation
def library_is_all(original: Fn, ties: str, *rest: Any) -> Any:
    """Keep all tied tokens where a library is named."""
    return original("all" if ties == "library" else ties, *rest)


@mutation
def above_the_bound(_original: Fn, probabilities: Any, min_p: Any) -> Any:
    """Remove tokens exactly at the bound."""
    return int(np.count_nonzero(probabilities > min_p * probabilities[0]))


@mutation
def reaches(_original: Fn, probabilities: Any, u: float) -> Any:
    """Select the least k with C_k >= u C_V, so that u = 0 selects token 0 even if it is filtered out."""
    sums = np.add.accumulate(probabilities)
    return int(np.searchsorted(sums, u * sums[-1], side="left"))


@mutation
def float32_running_sum(_original: Fn, probabilities: Any, u: float) -> Any:
    """Sum the probabilities in float32 and compare with u itself, as if they ended at 1."""
    sums = np.add.accumulate(probabilities.astype(np.float32))
    return min(int(np.searchsorted(sums, np.float32(u), side="right")), probabilities.size - 1)


@mutation
def by_likelihood(original: Fn, probabilities: Any, u: float) -> Any:
    """Order the tokens by probability instead of by id."""
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
    """Return the last token with the maximum."""
    return row.size - 1 - original(row[::-1])


@mutation
def one_means_all(original: Fn, weights: Any, top_k: Any) -> Any:
    """Treat a top-k of 1 as no top-k."""
    return original(weights, weights.size if top_k == 1 else top_k)


@mutation
def never_all(original: Fn, weights: Any, top_k: Any) -> Any:
    """Clamp k below the number of tokens."""
    return min(original(weights, top_k), max(1, weights.size - 1))


@mutation
def acts_at_one(original: Fn, name: str, weights: Any, top_k: int, top_p: float, *rest: Any) -> Any:
    """Apply top-p at 1 too: remove the tokens after the cumulative sum has reached 1."""
    if name == "top_p":
        return slice(0, sampling.top_p_length(weights / weights.sum(), top_p))
    return original(name, weights, top_k, top_p, *rest)


@mutation
def overflowing(original: Fn, logits: Any, **options: Any) -> Any:
    """Return NaN for rows whose exponentials overflow the logits' dtype without subtraction of the maximum."""
    result = original(logits, **options)
    with np.errstate(over="ignore"):
        total = np.exp(logits).sum(axis=1)
    return np.where(np.isfinite(total)[:, None], result, np.nan)


@mutation
def padding_occurs(original: Fn, ids: Any, size: int) -> Any:
    """Read the -1 of the padding as an index from the end."""
    return original(np.where(ids < 0, size - 1, ids), size)
