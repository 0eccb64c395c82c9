"""Seeded calls of the ops of preference learning, and the designed ones of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gates.families import arrays
from gates.families.program import Inputs
from gates.model import Array

PAIRS, WIDTH, PROMPT = 16, 20, 5
SCALARS = ("beta", "label_smoothing", "penalty", "margin", "nll", "desirable_weight", "undesirable_weight")
NONE: dict[str, Any] = dict.fromkeys(("label_smoothing", "lengths", "penalty", "margin", "nll"))
ALONE = ("orpo", "simpo", "cpo")  # they have no reference model
RAREST = 8.0  # nats of the least likely token
NEAR, FAR = (
    0.3,
    3.0,
)  # deviation of a token's log-ratio, in nats: of training, and of models that have nothing in common


def rows(
    rng: np.random.Generator, count: int, spread: float, dtype: str, *, padding: str = "right", shared: bool = False
) -> dict[str, Array]:
    """Return log-probs of prompts and completions of unequal lengths, the completions' mask and that of all tokens.

    Prompts and padding hold log-probs like any token's. With `shared` both rows of a pair have the same prompt.
    """
    lengths = rng.integers(2, WIDTH - PROMPT, count)
    starts = rng.integers(1, PROMPT, count)
    starts[0] = 0  # rows at both ends of the array, the only ones that show a lost first or last column
    lengths[-1] = WIDTH - starts[-1]
    lengths[1] = 1
    if shared:
        starts[1::2] = starts[0::2]
        lengths[-1] = WIDTH - starts[-1]
    begins = np.zeros(count, np.int64) if padding == "right" else WIDTH - starts - lengths
    places = np.arange(WIDTH) - begins[:, None]
    ends = (starts + lengths)[:, None]
    policy = -np.minimum(rng.gamma(1.5, 0.8, places.shape), RAREST) - 1e-3
    reference = np.minimum(policy + rng.normal(0.0, spread, places.shape), -1e-3)
    if shared:
        prompt = (places < starts[:, None])[1::2]
        policy[1::2], reference[1::2] = (np.where(prompt, x[0::2], x[1::2]) for x in (policy, reference))
    return {
        "policy": policy.astype(dtype),
        "reference": reference.astype(dtype),
        "mask": (places >= starts[:, None]) & (places < ends),
        "attention_mask": (places >= 0) & (places < ends),
    }


def pairs(
    rng: np.random.Generator,
    loss: str,
    constants: Mapping[str, Any],
    *,
    dtype: str,
    spread: float = NEAR,
    free: bool = False,
    all_tokens: bool = False,
    **layout: Any,
) -> dict[str, Any]:
    """Return a call of `preference_loss`; without a reference if `free`, with ORPO's likelihood of `all_tokens`."""
    inputs: dict[str, Any] = rows(rng, 2 * PAIRS, spread, dtype, **layout)
    if free or loss in ALONE:
        inputs["reference"] = None
    if not all_tokens:
        del inputs["attention_mask"]
    return {**inputs, "loss": loss, **NONE, **constants}


def without_tokens(rng: np.random.Generator, *asked: Any, **choices: Any) -> dict[str, Any]:
    """Return pairs of which one has an empty chosen side, and another an empty rejected one."""
    inputs = pairs(rng, *asked, **choices)
    inputs["mask"][[2, 5]] = False
    return inputs


def one_pair(rng: np.random.Generator, *asked: Any, **choices: Any) -> dict[str, Any]:
    """Return one pair, of whose chosen completion one token is all that there is."""
    inputs = pairs(rng, *asked, **choices)
    for name in ("policy", "reference", "mask"):
        inputs[name] = None if inputs[name] is None else inputs[name][:2]
    inputs["mask"][0] &= np.cumsum(inputs["mask"][0]) == 1
    return inputs


def nothing_chosen(rng: np.random.Generator, *asked: Any, **choices: Any) -> dict[str, Any]:
    """Return pairs of which no chosen side has a token."""
    inputs = pairs(rng, *asked, **choices)
    inputs["mask"][0::2] = False
    return inputs


def unreadable(inputs: dict[str, Any]) -> dict[str, Any]:
    """Put NaN and infinities where neither prompt nor completion stands."""
    after = np.logical_or.accumulate(inputs["mask"], axis=1) & ~inputs["mask"]
    for name in ("policy", "reference"):
        if inputs[name] is not None:
            garbage = np.resize(np.array([np.nan, -np.inf, np.inf], inputs[name].dtype), after.shape)
            inputs[name] = np.where(after, garbage, inputs[name])
    return inputs


def unreadable_pairs(rng: np.random.Generator, *asked: Any, **choices: Any) -> dict[str, Any]:
    """Return pairs whose padding cannot be read."""
    return unreadable(pairs(rng, *asked, **choices))


def labelled(
    rng: np.random.Generator, *, dtype: str, shift: float, padding: str = "right", garbage: bool = False
) -> dict[str, Any]:
    """Return a call of `kto_loss`, the mean of the mismatched log-ratios around `shift`."""
    inputs: dict[str, Any] = rows(rng, 2 * PAIRS, 0.5, dtype, padding=padding)
    del inputs["attention_mask"]
    return {
        **(unreadable(inputs) if garbage else inputs),
        "desirable": np.arange(2 * PAIRS) % 3 > 0,
        "mismatched": rng.normal(shift, 1.0, 12).astype(dtype),
        "beta": 0.4,
        "desirable_weight": 1.0,
        "undesirable_weight": 1.33,
    }


def before(mask: Array) -> Array:
    """Return the slots before a row's last completion token that are not in it: those of its prompt."""
    return np.flip(np.logical_or.accumulate(np.flip(mask, axis=1), axis=1), axis=1) & ~mask


def rounded(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs with the scalars that a kernel rounds to the data's dtype, rounded."""
    return arrays.rounded(inputs, SCALARS)


def scores(rng: np.random.Generator, kind: str, size: int) -> dict[str, Any]:
    """Return scores of 12 groups, all different, or with ties, with some that are NaN, or with infinities."""
    if kind == "distinct":
        return {"scores": rng.permutation(12 * size) / 8.0 - 1.0}
    groups = rng.integers(0, 3, (12, size)).astype(np.float64)
    groups[0], groups[1] = 1.0, np.arange(size)
    groups[2] = np.arange(size)[::-1]
    if kind in {"not-scored", "infinities"}:
        groups += rng.permutation(12 * size).reshape(groups.shape) / 64.0  # no ties
    if kind == "not-scored":
        groups[3:9][rng.random((6, size)) < 0.4] = np.nan
        groups[3], groups[4] = np.r_[np.nan, -2.0 - np.arange(size - 1)], np.r_[-2.0 - np.arange(size - 1), np.nan]
        groups[np.isnan(groups).all(axis=1), -1] = 0.0
    if kind == "infinities":
        groups[5], groups[6, 0] = -np.inf, np.inf
        groups[5, -1] = 0.0
    return {"scores": groups.reshape(-1)}


def groups(rng: np.random.Generator, kind: str, size: int) -> dict[str, Any]:
    """Return a call of `best_of_n`."""
    return {**scores(rng, kind, size), "group_size": size}


def winners(rng: np.random.Generator, *, garbage: bool = False) -> dict[str, Any]:
    """Return a call of `winner_loss` in uneven parts."""
    made: dict[str, Any] = {**rows(rng, 12, NEAR, "float32"), "scores": rng.permutation(12) / 4.0}
    made = unreadable(made) if garbage else made
    return {name: made[name] for name in ("policy", "mask", "scores")} | {"group_size": 4, "parts": [5, 1, 6]}


def prompts(inputs: Inputs) -> Array:
    """Return the slots before a completion: those of its prompt, with left padding where no mask of attention is given."""
    mask = np.asarray(inputs["mask"], bool)
    attended = inputs.get("attention_mask")
    return before(mask) if attended is None else np.asarray(np.asarray(attended, bool) & ~mask)


# --- designed calls: pairs on which one mistake does not look like another

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
    columns, n = np.arange(mask.shape[1]), mask.sum(axis=1)
    first = columns == mask.argmax(axis=1)[:, None]
    last = columns == (mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1))[:, None]
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
