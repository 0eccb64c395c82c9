"""Designed calls of the ops of preference learning: pairs on which one mistake does not look like another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gates.families import row_inputs
from gates.families.preference.inputs import prompts
from gates.families.program import Inputs
from gates.model import Array

SHAPES = ((6, 10), (4, 13), (10, 9), (8, 12), (2, 11), (12, 8), (6, 14), (14, 9))  # rows and slots; no two are alike
SPREAD = 0.35  # nats of a token's log-ratio
MARGIN = 4.0  # the largest |argument| of a sigmoid: beyond, 1 − σ loses the digits by which one loss is another
APART = 6.0  # the largest difference of two sums of log-probs, in nats


def designed(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches of pairs with the settings of a call and its layout.

    Prompts and completions differ in length, some of one token; every second batch is wider than its longest row, and in the
    others a row starts in the first column and one ends in the last.
    """
    for index, (rows, width) in enumerate(SHAPES):
        yield batch(example, rng, rows, width, narrow=index % 2 == 1)


def examples(inputs: Inputs) -> Iterator[Inputs]:
    """Yield a call with label smoothing or the mask of all tokens, where a loss has one, then the call as it is."""
    if inputs["loss"] == "dpo" and not inputs.get("label_smoothing"):
        yield {**inputs, "label_smoothing": 0.2}
    yield inputs


def batch(example: Inputs, rng: np.random.Generator, rows: int, width: int, *, narrow: bool) -> dict[str, Any]:
    """Return one call; `narrow`: rows reach both ends of the array."""
    dtype = np.asarray(example["policy"]).dtype
    given = dict(example)
    starts, lengths = _lengths(
        rng, rows, width, narrow=narrow, shared=_shared(example), odds=example.get("loss") == "orpo"
    )
    ends = starts + lengths
    left = width - ends if _left_padded(example) else np.zeros(rows, np.int64)
    places = np.arange(width) - left[:, None]
    policy: Array = np.asarray(-0.35 - rng.gamma(1.5, 0.7, places.shape))
    if example.get("reference") is None:
        policy = _without_reference(policy, (places >= starts[:, None]) & (places < ends[:, None]), example, rng)
    reference = policy - rng.normal(0.0, SPREAD, policy.shape)
    if _shared(example):
        prompt = (places < starts[:, None])[1::2]
        policy[1::2], reference[1::2] = (np.where(prompt, x[0::2], x[1::2]) for x in (policy, reference))
    given["policy"] = policy.astype(dtype)
    given["reference"] = None if example.get("reference") is None else reference.astype(dtype)
    given["mask"] = (places >= starts[:, None]) & (places < ends[:, None])
    if example.get("attention_mask") is not None:
        given["attention_mask"] = (places >= 0) & (places < ends[:, None])
    return given


def _lengths(
    rng: np.random.Generator, rows: int, width: int, *, narrow: bool, shared: bool, odds: bool
) -> tuple[Array, Array]:
    """Return where completions start and how long they are; the odds of one without tokens are infinite."""
    starts = rng.integers(1, 4, rows)
    most = width - 3 - (0 if narrow else 2)
    least = 2 if odds or rows == 2 else 1
    lengths = rng.permutation(np.linspace(least, most, rows).round().astype(np.int64))
    if narrow:
        starts[0] = 0
    if shared:
        starts[1::2] = starts[0::2]
    if narrow:
        lengths[-1] = width - starts[-1]
    return starts, lengths


def _without_reference(policy: Array, mask: Array, example: Inputs, rng: np.random.Generator) -> Array:
    """Return log-probs whose margins are small though no reference is subtracted, and have both signs."""
    if example["loss"] in {"orpo", "simpo"}:  # of means
        return np.asarray(policy * rng.uniform(0.4, 1.8, (len(policy), 1)))
    policy = policy * (0.3 if example["loss"] == "dpop" else 1.0)  # whose penalty is λ times a whole sum
    reach = min(MARGIN / float(example["beta"]), APART)
    sums = np.where(mask, policy, 0.0).sum(axis=1)
    factor = np.ones(len(policy))
    factor[1::2] = (sums[0::2] + np.clip(sums[1::2] - sums[0::2], -reach, reach)) / sums[1::2]
    return np.asarray(policy * factor[:, None])


def _left_padded(example: Inputs) -> bool:
    last = np.asarray(example["mask"], bool)[:, -1]
    return bool(last.all())


def _shared(example: Inputs) -> bool:
    """Whether both completions of every pair start with the same prompt."""
    before = prompts({"mask": example["mask"]})
    tokens = np.where(before, np.asarray(example["policy"], np.float64), 0.0)
    return np.array_equal(before[0::2], before[1::2]) and np.array_equal(tokens[0::2], tokens[1::2])


def places(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:
    """Yield sets of slots by name."""
    if output != "gradient":
        return
    mask = np.asarray(inputs["mask"], bool)
    before = prompts(inputs)
    chosen = (np.arange(len(mask)) % 2 == 0)[:, None]
    n, (first, last) = mask.sum(axis=1), row_inputs.edges(mask)
    yield "in chosen completions", mask & chosen
    yield "in rejected completions", mask & ~chosen
    yield "in prompts", before
    yield "in slots that hold neither prompt nor completion", ~before & ~mask
    yield "outside completions", ~mask
    yield "at the first token of a completion", mask & first
    yield "after the first token of a completion", mask & ~first
    yield "at the last token of a completion", mask & last
    yield "before the last token of a completion", mask & ~last
    yield "in completions of fewer than three tokens", mask & (n < 3)[:, None]
    longer = np.repeat(n[0::2] > n[1::2], 2)[:, None]
    yield "in pairs whose chosen completion is the longer one", mask & longer
    yield "in pairs whose rejected completion is at least as long", mask & ~longer
    sums = _log_ratios(inputs, mask)
    ahead = np.repeat(sums[0::2] > sums[1::2], 2)[:, None]
    yield "in pairs with a margin above 0", mask & ahead
    yield "in pairs with a margin below 0", mask & ~ahead
    gained = (sums > 0.0)[:, None]
    for side, rows in (("chosen", chosen), ("rejected", ~chosen)):
        yield f"in {side} completions that gained on the reference", mask & rows & gained
        yield f"in {side} completions that fell behind the reference", mask & rows & ~gained


def _log_ratios(inputs: Inputs, mask: Array) -> Array:
    lp = np.asarray(inputs["policy"], np.float64)
    base = 0.0 if inputs.get("reference") is None else np.asarray(inputs["reference"], np.float64)
    return np.asarray(np.where(mask, lp - base, 0.0).sum(axis=1))


def designed_of_kto(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches of labelled rows; the mean of the mismatched log-ratios has both signs."""
    for index, (rows, width) in enumerate(SHAPES):
        given = batch(example, rng, rows, width, narrow=index % 2 == 1)
        given["desirable"] = np.arange(rows) % 3 > 0
        others = rng.normal(0.0, 0.5, 5 + index)
        away = (-1.0) ** index * (1.0 + 0.2 * index)
        given["mismatched"] = (others - others.mean() + away).astype(np.asarray(example["policy"]).dtype)
        yield given


def places_of_kto(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:
    """Yield sets of slots by name."""
    if output != "gradient":
        return
    mask, good = np.asarray(inputs["mask"], bool), np.asarray(inputs["desirable"], bool)[:, None]
    yield "in desirable rows", mask & good
    yield "in undesirable rows", mask & ~good
    yield "outside completions", ~mask
    yield "in completions of fewer than three tokens", mask & (mask.sum(axis=1) < 3)[:, None]
