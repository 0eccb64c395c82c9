"""The forward formulas of what DAPO does before its loss: which groups are kept, and the penalty of long completions.

Source: DAPO, arXiv 2503.14476, eqs. 11 and 13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value, clip, sqrt, where
from gates.families.edits import conventions_first, mistakes, others
from gates.families.program import Choices, Data, Edit, Inputs, Program
from gates.model import Array

SCORES = {  # of a row
    "accuracy": ("the accuracy alone", True),
    "total": ("the weighted sum of the rewards", True),
    "plain sum": ("the sum of the rewards, without their weights", False),
    "mean": ("the mean of the rewards, without their weights", False),
    "first": ("the first column of the rewards, whatever the accuracy's", False),
    "last": ("the last column of the rewards, whatever the accuracy's", False),
    "largest": ("the largest of a row's rewards", False),
    "smallest": ("the smallest of a row's rewards", False),
    "product": ("the product of the rewards", False),
    "any column": ("each of the rewards: one that differs is enough", False),
    "every column": ("each of the rewards: all must differ", False),
}
TESTS: Mapping[str, tuple[str, Callable[[Array], Any]]] = {  # words, and a function of (groups, members) scores
    "differ": ("max > min", lambda x: np.nanmax(x, axis=1) > np.nanmin(x, axis=1)),
    "alike": ("groups of equal rewards kept, others dropped: inverted", lambda x: np.nanmax(x, 1) == np.nanmin(x, 1)),
    "some above 0": (
        "groups with a reward above 0 kept, also those of equal positive rewards",
        lambda x: np.nanmax(x, 1) > 0,
    ),
    "some below 1": ("groups with a reward below 1 kept, also those of equal rewards", lambda x: np.nanmin(x, 1) < 1),
    "all above 0": ("groups whose rewards are all above 0 kept", lambda x: np.nanmin(x, 1) > 0),
    "mean above 0": ("groups with a mean above 0 kept", lambda x: np.nanmean(x, 1) > 0),
    "mean below 1": ("groups with a mean below 1 kept", lambda x: np.nanmean(x, 1) < 1),
    "mean inside": (
        "groups with a mean above 0 and below 1 kept",
        lambda x: (np.nanmean(x, 1) > 0) & (np.nanmean(x, 1) < 1),
    ),
    "some right": (
        "groups kept whose number of positive rewards is neither 0 nor G",
        lambda x: (x > 0).any(axis=1) & ~(x > 0).all(axis=1),
    ),
    "some 1": (
        "groups kept whose number of rewards of 1 is neither 0 nor G",
        lambda x: (x == 1).any(1) & ~(x == 1).all(1),
    ),
    "not zero": ("groups with a reward that is not 0 kept", lambda x: (np.nan_to_num(x) != 0).any(axis=1)),
    "all differ": (
        "groups without two equal rewards kept",
        lambda x: np.array([len(set(row)) == len(row) for row in x.tolist()]),
    ),
    "first and last": ("groups kept whose first and last reward differ", lambda x: x[:, 0] != x[:, -1]),
    "half": ("groups kept whose rewards differ by more than ½", lambda x: np.nanmax(x, 1) - np.nanmin(x, 1) > 0.5),
    "mean above ½": ("groups with a mean above ½ kept", lambda x: np.nanmean(x, 1) > 0.5),
    "mean below ½": ("groups with a mean below ½ kept", lambda x: np.nanmean(x, 1) < 0.5),
    "some 0": ("groups with a reward of 0 kept", lambda x: (x == 0).any(axis=1)),
    "some of 1": ("groups with a reward of 1 kept", lambda x: (x == 1).any(axis=1)),
    "first two": ("groups kept whose first two rewards differ", lambda x: (x[:, :1] != x[:, 1:2]).any(axis=1)),
    "all": ("every group kept", lambda x: np.ones(len(x), bool)),
    "none": ("no group kept", lambda x: np.zeros(len(x), bool)),
}
LAYOUTS = {
    "strided": "groups of every P-th row (P prompts), as if rows were member-major",
    "P rows": "groups of P consecutive rows: the number of prompts taken for that of members",
}
WHOSE = {
    "next": "the flag of the next group",
    "batch": "one flag for the whole batch",
    "last first": "flags from the last group on",
    "previous": "the flag of the previous group",
}


def asked_of_groups(call: Inputs) -> Choices:
    """Return the choices that a call of `keep_groups` asks for."""
    holes = bool(np.isnan(np.asarray(call["rewards"], np.float64)).any())
    return {
        "score": call["convention"],
        "test": "differ",
        "layout": "given",
        "whose": "own",
        "nan": "out",
        "holes": holes,
    }


def compute_groups(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001
    """Return 1 for each group that is kept, 0 for others."""
    rewards, size = np.asarray(data["rewards"], np.float64), int(data["group_size"])
    if chosen["nan"] == "zero":
        rewards = np.nan_to_num(rewards)
    rows = np.arange(len(rewards))
    table = {"strided": rows.reshape(size, -1).T, "P rows": rows.reshape(size, -1)}.get(
        chosen["layout"], rows.reshape(-1, size)
    )
    if chosen["score"] in {"any column", "every column"}:
        columns = [_kept(chosen, column[table]) for column in rewards.T]
        kept = np.any(columns, axis=0) if chosen["score"] == "any column" else np.all(columns, axis=0)
    else:
        kept = _kept(chosen, _score(data, chosen["score"], rewards)[table])
    if chosen["whose"] in {"next", "previous"}:
        kept = np.roll(kept, -1 if chosen["whose"] == "next" else 1)
    if chosen["whose"] == "batch":
        kept = np.full(kept.shape, kept.any())
    kept = kept[::-1] if chosen["whose"] == "last first" else kept
    return {"keep": data.lift(kept.astype(np.float64), "float64")}


def _kept(chosen: Choices, scores: Array) -> Array:
    """Return the groups that a test keeps, given (groups, members) scores."""
    none = np.asarray(np.isnan(scores).all(axis=1))
    kept = np.asarray(TESTS[chosen["test"]][1](np.where(none[:, None], 0.0, scores)), bool)
    if chosen["nan"] == "drops":
        kept = kept & ~np.isnan(scores).any(axis=1)
    return np.asarray(kept & ~(none & (chosen["test"] == "differ")))


def _score(data: Data, kind: str, rewards: Array) -> Array:
    unscored = np.isnan(rewards).all(axis=1)
    weights = np.asarray(data["weights"], np.float64)
    if kind == "accuracy":
        return rewards[:, int(data["accuracy"])]
    if kind in {"first", "last"}:
        return rewards[:, 0 if kind == "first" else -1]
    filled = np.nan_to_num(rewards)
    if kind in {"smallest", "product"}:
        part = filled.min(axis=1) if kind == "smallest" else filled.prod(axis=1)
        return np.where(unscored, np.nan, part)
    sums = {"plain sum": filled.sum(axis=1), "mean": filled.mean(axis=1), "largest": filled.max(axis=1)}
    return np.where(unscored, np.nan, sums.get(kind, filled @ weights))


@conventions_first
def edits_of_groups(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of dynamic sampling."""
    yield from others("score", SCORES, asked, "groups judged by {}")
    yield from mistakes("test", {name: words for name, (words, _) in TESTS.items()}, without=("differ",))
    yield from mistakes("layout", LAYOUTS)
    yield from mistakes("whose", WHOSE)
    if asked["holes"]:
        yield Edit("unscored rewards counted as 0", {"nan": "zero"})
        yield Edit("groups with an unscored reward dropped", {"nan": "drops"})


LEVELS = (0.0, 1.0, 0.5, -1.0, 2.0)  # rewards of groups whose members are equal


def designed_groups(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches: groups of equal rewards of several sizes, and groups that differ in accuracy, style or both."""
    columns, accuracy = np.shape(example["rewards"])[1], int(example["accuracy"] or 0)
    for index, size in enumerate((4, 3, 2, 5, 4, 6, 3, 4)):
        groups = 10 + index
        rewards = np.where(rng.random((groups, size, columns)) < 0.5, 0.25, 0.0)
        rewards[: groups // 2] = rng.choice((0.0, 0.25), (groups // 2, 1, columns))
        graded = rng.choice(LEVELS, (groups, size)) if index % 2 else rng.integers(0, 2, (groups, size))
        rewards[:, :, accuracy] = graded
        for group in range(0, groups, 2):
            rewards[group, :, accuracy] = LEVELS[(group // 2) % len(LEVELS)]
        rewards[1, :, accuracy] = 0.5 + 0.25 * (np.arange(size) % 2)  # a small difference
        if np.isnan(np.asarray(example["rewards"], np.float64)).any():
            rewards[rng.random(rewards.shape) < 0.1] = np.nan
        yield {**example, "rewards": rng.permutation(rewards).reshape(-1, columns), "group_size": size}


GROUPS = Program(
    op="keep_groups",
    asked=asked_of_groups,
    compute=compute_groups,
    edits=edits_of_groups,
    inputs=designed_groups,
    outputs=("keep",),
)

# --- the penalty of over-long completions


STARTS: Mapping[str, tuple[str, Callable[[int, int], int]]] = {  # of the ramp: functions of L_max and L_c
    "one buffer before": ("L_max − L_c", lambda limit, buffer: limit - buffer),
    "limit": ("the penalty starts at the limit L_max, not one buffer L_c before it", lambda limit, buffer: limit),  # noqa: ARG005
    "two buffers": ("the penalty starts two buffers before the limit", lambda limit, buffer: limit - 2 * buffer),
    "half a buffer": ("the penalty starts half a buffer before the limit", lambda limit, buffer: limit - buffer // 2),
    "buffer": ("the penalty starts at L_c tokens, not at L_max − L_c", lambda limit, buffer: buffer),  # noqa: ARG005
    "zero": ("the penalty starts at 0 tokens, not at L_max − L_c", lambda limit, buffer: 0),  # noqa: ARG005
    "one late": ("the penalty starts one token late", lambda limit, buffer: limit - buffer + 1),
    "one early": ("the penalty starts one token early", lambda limit, buffer: limit - buffer - 1),
}
WIDTHS: Mapping[str, tuple[str, Callable[[int, int], float]]] = {  # of the ramp
    "buffer": ("L_c", lambda limit, buffer: float(buffer)),  # noqa: ARG005
    "limit": ("the excess over L_max, not over L_c", lambda limit, buffer: float(limit)),  # noqa: ARG005
    "rest": ("the excess over L_max − L_c, not over L_c", lambda limit, buffer: float(max(limit - buffer, 1))),
    "one more": ("the excess over L_c + 1", lambda limit, buffer: buffer + 1.0),  # noqa: ARG005
    "one less": ("the excess over L_c − 1", lambda limit, buffer: max(buffer - 1.0, 1.0)),  # noqa: ARG005
    "twice": ("the excess over 2·L_c", lambda limit, buffer: 2.0 * buffer),  # noqa: ARG005
    "1": ("the excess in tokens, not over L_c", lambda limit, buffer: 1.0),  # noqa: ARG005
}
RAMPS = {
    "step at the limit": "−1 beyond the limit and no ramp before it",
    "step at the start": "−1 from the start of the buffer on, without a ramp",
    "not above": "the penalty not bounded by 0: short completions gain",
    "not below": "the penalty not bounded by −1: it falls on beyond the limit",
    "not bounded": "the penalty not bounded on either side",
    "0 beyond": "no penalty beyond the limit, only inside the buffer",
    "squared": "the square of the ramp",
    "falling": "the ramp falls from −1 to 0 inside the buffer",
    "positive": "the penalty with the wrong sign",
    "less": "1 less the penalty's size, not the penalty",
    "half beyond": "−½ beyond the limit, not −1",
    "twice": "a ramp from 0 to −2",
    "half": "a ramp from 0 to −½",
    "step at the limit, included": "−1 from the limit on, its own length included, and no ramp before it",
    "root": "the root of the ramp",
}


def asked_of_lengths(call: Inputs) -> Choices:  # noqa: ARG001  the op has no conventions
    """Return the choices of `overlong_penalty`."""
    return {"start": "one buffer before", "width": "buffer", "ramp": "linear", "lengths": 0, "exchanged": False}


def compute_penalty(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001
    """Return the penalty of each completion."""
    limit, buffer = int(data["limit"]), int(data["buffer"])
    if chosen["exchanged"]:
        limit, buffer = buffer, limit
    n = np.asarray(data["lengths"], np.float64) + chosen["lengths"]
    start, width = STARTS[chosen["start"]][1](limit, buffer), WIDTHS[chosen["width"]][1](limit, buffer)
    excess = data.lift(n - start, "float32") / width
    return {"penalty": _ramp(chosen["ramp"], data, n, limit, start, excess)}


def _ramp(kind: str, data: Data, n: Array, limit: int, start: int, excess: Value) -> Value:
    ramp = clip(excess, 0.0, 1.0)
    steps = {"step at the limit": n > limit, "step at the start": n > start, "step at the limit, included": n >= limit}
    if kind in steps:
        return data.lift(-steps[kind].astype(np.float64), "float32")
    return RAMPED[kind](excess, ramp, n > limit)


RAMPED: Mapping[str, Callable[[Value, Value, Array], Value]] = {
    "linear": lambda excess, ramp, beyond: -ramp,  # noqa: ARG005
    "not above": lambda excess, ramp, beyond: -clip(excess, None, 1.0),  # noqa: ARG005
    "not below": lambda excess, ramp, beyond: -clip(excess, 0.0, None),  # noqa: ARG005
    "not bounded": lambda excess, ramp, beyond: -excess,  # noqa: ARG005
    "0 beyond": lambda excess, ramp, beyond: where(beyond, 0.0, -ramp),  # noqa: ARG005
    "squared": lambda excess, ramp, beyond: -(ramp * ramp),  # noqa: ARG005
    "falling": lambda excess, ramp, beyond: where(excess > 0.0, where(beyond, -1.0, ramp - 1.0), ramp * 0.0),
    "positive": lambda excess, ramp, beyond: ramp,  # noqa: ARG005
    "less": lambda excess, ramp, beyond: 1.0 - ramp,  # noqa: ARG005
    "half beyond": lambda excess, ramp, beyond: where(beyond, -0.5, -ramp),  # noqa: ARG005
    "twice": lambda excess, ramp, beyond: -(ramp * 2.0),  # noqa: ARG005
    "half": lambda excess, ramp, beyond: -(ramp * 0.5),  # noqa: ARG005
    "root": lambda excess, ramp, beyond: -sqrt(ramp),  # noqa: ARG005
}


def edits_of_lengths(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of the penalty."""
    for choice, kinds in (("start", STARTS), ("width", WIDTHS)):
        yield from mistakes(choice, {name: words for name, (words, _) in kinds.items()}, without=(asked[choice],))
    yield from mistakes("ramp", RAMPS)
    yield Edit("the limit and the buffer exchanged", {"exchanged": True})
    yield Edit("the step −1 at the limit, the ramp behind it", {"start": "limit", "ramp": "not above"})
    yield Edit("lengths without the last token", {"lengths": -1})
    yield Edit("lengths one too long", {"lengths": 1})


SIZES = ((64, 16), (100, 7), (32, 32), (50, 12), (40, 9), (90, 33), (128, 20), (24, 5))  # L_max and L_c


def designed_lengths(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:  # noqa: ARG001  settings vary
    """Yield eight batches with every length inside the buffer and some on both sides; limit and buffer vary."""
    for limit, buffer in SIZES:
        inside = np.arange(limit - buffer - 2, limit + 3)
        lengths = np.r_[inside[inside >= 0], rng.integers(1, 2 * limit, 12)]
        yield {"lengths": lengths, "limit": limit, "buffer": buffer}


LENGTHS = Program(
    op="overlong_penalty",
    asked=asked_of_lengths,
    compute=compute_penalty,
    edits=edits_of_lengths,
    inputs=designed_lengths,
    outputs=("penalty",),
)
PROGRAMS = (GROUPS, LENGTHS)
