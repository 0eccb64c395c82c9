"""The forward definitions of group advantages and of several reward functions, written once over an arithmetic.

An advantage is (reward − baseline) / divisor. The one-pass deviation, sqrt(mean(x²) − mean(x)²), is not among the forms:
it loses every digit if the rewards are close together.
Source: docs/definitions.md, "Advantages" and "Normalise, then sum"; TRL's GRPOTrainer and RLOOTrainer, verl's core_algos.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value, absolute, clip, maximum, plain, sqrt, where
from gates.arithmetic.number import Floats
from gates.families.advantages import edits, inputs
from gates.families.advantages.baselines import BASELINES, LEAVE_ONE_OUT, count, mean, ranked, total
from gates.families.limits import limits
from gates.families.program import Choices, Data, Inputs, Program
from gates.model import Array

STAGES = ("group", "batch")


def asked(call: Inputs) -> Choices:
    """Return the choices that a call of `group_advantages` asks for."""
    return {
        "layout": "given",
        "output": "given",
        "nan": "unscored",
        "divides": "difference",
        "has_nan": bool(np.isnan(np.asarray(call["rewards"])).any()),
        "baseline": call["baseline"],
        "scale": call["scale"],
        "spread": "deviation",
        "ddof": call["ddof"],
        "eps": call["eps"],
        "eps_mode": call["eps_mode"],
        "quotient": "divided",
        "times": "1",
        "clip": None,
        "after": "nothing",
    }


def forms(chosen: Choices) -> Iterator[Choices]:
    """Yield the usual algebraic forms of advantages with these choices."""
    baselines = LEAVE_ONE_OUT if chosen["baseline"] == "leave-one-out" else (chosen["baseline"],)
    quotients = ("divided",) if chosen["scale"] == "none" else tuple(QUOTIENTS)
    for baseline, quotient in product(baselines, quotients):
        yield {"baseline": baseline, "quotient": quotient}


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001  no gradient is asked
    """Return the advantages."""
    rewards, size = np.asarray(data["rewards"]), int(data["group_size"])
    table = LAYOUTS[chosen["layout"]](np.arange(rewards.size), size)
    scored = ~np.isnan(rewards)[table] if chosen["nan"] != "zero" else np.ones(table.shape, bool)
    groups = data.lift(np.nan_to_num(rewards).astype(rewards.dtype))[table]
    among = scored if chosen["nan"] != "zero in statistics" else np.ones(scored.shape, bool)
    centred = where(scored, BASELINES[chosen["baseline"]](groups, among), 0.0)
    if chosen["divides"] == "difference":
        advantages = where(scored, divided(chosen, groups, centred, among), 0.0)
    else:  # one of reward and baseline alone
        whole, part = (groups, centred - groups) if chosen["divides"] == "baseline" else (centred - groups, groups)
        advantages = where(scored, whole + divided(chosen, groups, part, among), 0.0)
    if chosen["times"] != "1":
        advantages = advantages * TIMES[chosen["times"]](float(table.shape[1]))
    if chosen["nan"] == "spreads":
        advantages = advantages + np.where(scored.all(axis=1, keepdims=True), 0.0, np.nan)
    advantages = AFTER[chosen["after"]](advantages.reshape(-1)[np.argsort(table.reshape(-1))])
    if chosen["clip"] is not None:
        advantages = clip(advantages, -chosen["clip"], chosen["clip"])
    return {"advantages": advantages[_output(chosen, rewards.size, size)]}


def _output(chosen: Choices, rows: int, size: int) -> Array:
    places = np.arange(rows)
    return places.reshape(-1, size).T.reshape(-1) if chosen["output"] == "member-major" else places


LAYOUTS: Mapping[str, Callable[[Array, int], Array]] = {
    "given": lambda rows, size: rows.reshape(-1, size),
    "every P-th row": lambda rows, size: rows.reshape(size, -1).T,
    "every G-th row": lambda rows, size: rows.reshape(-1, size).T,
    "P rows": lambda rows, size: rows.reshape(size, -1),
    "batch": lambda rows, size: rows.reshape(1, -1),  # noqa: ARG005
    "pairs": lambda rows, size: rows.reshape(-1, 2) if rows.size % 2 == 0 else rows.reshape(-1, size),
    "halves": lambda rows, size: rows.reshape(-1, size // 2 if size % 2 == 0 else size),
    "two groups": lambda rows, size: rows.reshape(-1, size * 2 if rows.size % (2 * size) == 0 else size),
    "shifted": lambda rows, size: np.roll(rows, -1).reshape(-1, size),
}
TIMES: Mapping[str, Callable[[float], float]] = {
    "−1": lambda size: -1.0,  # noqa: ARG005
    "√G": lambda size: size**0.5,
    "1/√G": lambda size: size**-0.5,
    "1/G": lambda size: 1.0 / size,
    "G": lambda size: size,
    "G/(G − 1)": lambda size: size / max(size - 1.0, 1.0),
    "(G − 1)/G": lambda size: max(size - 1.0, 1.0) / size,
}


# --- divisors


def divided(chosen: Choices, groups: Value, centred: Value, scored: Array) -> Value:
    """Return the centred rewards over the divisor of the chosen scale, ddof and ε."""
    if chosen["scale"] == "none":
        return centred
    among = scored
    if chosen["scale"] == "batch":
        groups, among = groups.reshape(1, -1), scored.reshape(1, -1)
    off = centred.reshape(*groups.shape) if chosen["spread"] == "of the centred" else groups
    squared = VARIANCES.get(chosen["spread"], variance)(off, among, float(chosen["ddof"]))
    if chosen["scale"] == "mean of the groups'":
        divisor = sqrt(squared).sum(0, keepdims=True) / float(len(scored))
    else:
        divisor = SPREADS[chosen["spread"]](groups, among, squared)
    if divisor.shape == groups.shape:  # one divisor for each member
        divisor, squared = divisor.reshape(*centred.shape), squared.reshape(*centred.shape)
    return _over(chosen, centred, divisor, squared)


def _over(chosen: Choices, centred: Value, divisor: Value, squared: Value) -> Value:
    """Return the quotient, with ε as its mode applies it."""
    mode, eps, quotient = chosen["eps_mode"], chosen["eps"], QUOTIENTS[chosen["quotient"]]
    if mode == "inside":
        return quotient(centred, sqrt((squared if chosen["spread"] == "deviation" else divisor * divisor) + eps))
    if mode == "floor":
        return quotient(centred, maximum(divisor, eps))
    if mode in {"threshold", "threshold-add"}:
        divided = quotient(centred, divisor + eps if mode == "threshold-add" else divisor)
        return where(divisor < eps, 0.0, divided)
    if mode == "one below":
        return quotient(centred, where(divisor < eps, divisor * 0.0 + 1.0, divisor))
    return quotient(centred, divisor if mode == "nothing" else divisor + eps)


QUOTIENTS: Mapping[str, Callable[[Value, Value], Value]] = {
    "divided": lambda a, b: a / b,
    "times the reciprocal": lambda a, b: a * (1.0 / b),
}


def variance(groups: Value, scored: Array, ddof: float) -> Value:
    """Return Σ(x − mean)² / (n − ddof) of each group, (groups, 1); void for a complete group of one with ddof 1."""
    off = where(scored, groups - mean(groups, scored), 0.0)
    whole = scored.all(axis=1, keepdims=True)
    return (off * off).sum(1, keepdims=True) / np.where(whole, scored.shape[1] - ddof, count(scored, ddof))


def _about_zero(groups: Value, scored: Array, ddof: float) -> Value:
    return total(groups * groups, scored) / count(scored, ddof)


def _of_others(groups: Value, scored: Array, ddof: float) -> Value:
    """Return the variance of the other members, (groups, members)."""
    members = np.arange(scored.shape[1])
    others = np.array([members[members != member] for member in members])
    table, among = groups[:, others], scored[:, others]
    middle = where(among, table, 0.0).sum(-1, keepdims=True) / np.maximum(among.sum(-1, keepdims=True), 1.0)
    off = where(among, table - middle, 0.0)
    return (off * off).sum(-1) / np.maximum(among.sum(-1) - ddof, 1.0)


def _of_next(groups: Value, scored: Array, ddof: float) -> Value:
    return variance(groups, scored, ddof)[np.roll(np.arange(len(scored)), -1)]


def _of_means(groups: Value, scored: Array, ddof: float) -> Value:
    means = mean(groups, scored).reshape(1, -1)
    return variance(means, np.ones(means.shape, bool), ddof) * np.ones((len(scored), 1))


def _of_halves(groups: Value, scored: Array, ddof: float) -> Value:
    """Return the variance of each half of the batch, for every group or, of one row, for every member."""
    table, among = groups.reshape(1, -1), scored.reshape(1, -1)
    places, half = np.arange(scored.size), scored.size // 2
    halves = [(places < half)[None], (places >= half)[None]]
    first, second = (variance(table, among & rows, ddof) for rows in halves)
    starts = places if len(scored) == 1 else np.arange(len(scored)) * scored.shape[1]
    shape = scored.shape if len(scored) == 1 else (len(scored), 1)
    return where((starts < half).reshape(shape), first * np.ones(shape), second * np.ones(shape))


VARIANCES: Mapping[str, Callable[[Value, Array, float], Value]] = {
    "next group": _of_next,
    "group means": _of_means,
    "√(n + 1)": lambda groups, scored, ddof: variance(groups, scored, -1.0),  # noqa: ARG005
    "sum of squares": lambda groups, scored, ddof: variance(groups, scored, ddof) * count(scored, ddof),
    "about zero": _about_zero,
    "of the others": _of_others,
    "previous group": lambda groups, scored, ddof: variance(groups, scored, ddof)[np.arange(len(scored)) - 1],
    "first group": lambda groups, scored, ddof: variance(groups, scored, ddof)[np.zeros(len(scored), np.int64)],
    "half batch": _of_halves,
}


def _mean_absolute(groups: Value, scored: Array, squared: Value) -> Value:  # noqa: ARG001
    return mean(absolute(groups - mean(groups, scored)), scored)


def _root(groups: Value, scored: Array, squared: Value) -> Value:  # noqa: ARG001
    return sqrt(squared)


SPREADS: Mapping[str, Callable[[Value, Array, Value], Value]] = {
    "deviation": _root,
    "about zero": _root,
    "of the centred": _root,
    "of the others": _root,
    "next group": _root,
    "group means": _root,
    "√(n + 1)": _root,
    "sum of squares": _root,
    "previous group": _root,
    "first group": _root,
    "half batch": _root,
    "variance": lambda groups, scored, squared: squared,  # noqa: ARG005
    "standard error": lambda groups, scored, squared: sqrt(squared) / np.sqrt(count(scored)),  # noqa: ARG005
    "mean absolute deviation": _mean_absolute,
    "range": lambda groups, scored, squared: ranked(groups, scored, 1.0) - ranked(groups, scored, 0.0),  # noqa: ARG005
    "largest": lambda groups, scored, squared: ranked(absolute(groups - mean(groups, scored)), scored, 1.0),  # noqa: ARG005
    "mean": lambda groups, scored, squared: absolute(mean(groups, scored)),  # noqa: ARG005
    "median absolute deviation": lambda groups, scored, squared: ranked(  # noqa: ARG005
        absolute(groups - ranked(groups, scored, 0.5)), scored, 0.5
    ),
    "largest magnitude": lambda groups, scored, squared: ranked(absolute(groups), scored, 1.0),  # noqa: ARG005
    "mean magnitude": lambda groups, scored, squared: mean(absolute(groups), scored),  # noqa: ARG005
    "quarter root": lambda groups, scored, squared: sqrt(sqrt(squared)),  # noqa: ARG005
}


def _whitened(advantages: Value, ddof: float) -> Value:
    return (advantages - advantages.mean()) / (_deviation(advantages, ddof) + 1e-8)


def _deviation(advantages: Value, ddof: float) -> Value:
    off = advantages - advantages.mean()
    return sqrt((off * off).sum() / max(advantages.shape[0] - ddof, 1.0))


AFTER: Mapping[str, Callable[[Value], Value]] = {
    "nothing": lambda advantages: advantages,
    "whitened": lambda advantages: _whitened(advantages, 1.0),
    "whitened, ddof 0": lambda advantages: _whitened(advantages, 0.0),
    "centred": lambda advantages: advantages - advantages.mean(),
    "divided": lambda advantages: advantages / (_deviation(advantages, 1.0) + 1e-8),
    "signs": lambda advantages: where(plain(advantages) > 0.0, 1.0, where(plain(advantages) < 0.0, -1.0, advantages)),
    "positive": lambda advantages: maximum(advantages, 0.0),
    "absolute": absolute,
}


# --- several reward functions


def asked_of_several(call: Inputs) -> Choices:
    """Return the choices that a call of `normalise_then_sum` asks for."""
    names = (f"{stage}_{name}" for stage in STAGES for name in ("ddof", "eps"))
    return {
        **{name: call[name] for name in names},
        "layout": "given",
        "first": "group",
        "second": "batch",
        "weights": "given",
        "group_divided": True,
        "group_centred": True,
        "batch_divided": True,
        "batch_centred": True,
        "inside": "none",
        "group_quotient": "divided",
        "batch_quotient": "divided",
        "sign": 1.0,
    }


def compute_several(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001  no gradient is asked
    """Return the advantages."""
    rewards, size = np.asarray(data["rewards"]), int(data["group_size"])
    table = LAYOUTS[chosen["layout"]](np.arange(len(rewards)), size)
    stages = {"group": table, "batch": table.reshape(1, -1)}
    scored = ~np.isnan(rewards)
    values, factors = data.lift(np.nan_to_num(rewards).astype(rewards.dtype)), data.lift(data["weights"])
    if chosen["first"] != "none":
        values = _z_scores(chosen, values, scored, stages[chosen["first"]], "group")
    factors = WEIGHTS[chosen["weights"]](factors)
    summed = (values * factors if chosen["weights"] != "ones" else values).sum(1, keepdims=True)
    counted = scored.any(axis=1, keepdims=True)
    summed = where(counted, summed, 0.0)
    if chosen["second"] != "none":
        summed = _z_scores(chosen, summed, counted, stages[chosen["second"]], "batch")
    return {"advantages": summed[:, 0] if chosen["sign"] == 1.0 else summed[:, 0] * chosen["sign"]}


WEIGHTS: Mapping[str, Callable[[Value], Value]] = {  # of the reward functions, (F,)
    "given": lambda w: w,
    "ones": lambda w: w,
    "magnitudes": absolute,
    "signs": lambda w: w / np.maximum(np.abs(plain(w)), 1e-300),
    "squared": lambda w: w * w,
    "reversed": lambda w: w[::-1],
    "shares": lambda w: w / w.sum(),
    "first": lambda w: w * (np.arange(w.shape[0]) == 0),
    "last": lambda w: w * (np.arange(w.shape[0]) == w.shape[0] - 1),
}


def _z_scores(chosen: Choices, values: Value, scored: Array, table: Array, stage: str) -> Value:
    """Return the z-scores of (B, F) values by column and group of rows, 0 where unscored."""
    columns = values.shape[1]
    index = (table[:, None, :] * columns + np.arange(columns)[:, None]).reshape(-1, table.shape[1])
    groups, among = values.reshape(-1)[index], scored.reshape(-1)[index]
    eps = chosen[f"{stage}_eps"]
    scores = groups - mean(groups, among) if chosen.get(f"{stage}_centred", True) else groups
    squared = variance(groups, among, float(chosen[f"{stage}_ddof"]))
    divisor = sqrt(squared + eps) if chosen["inside"] in {stage, "both"} else sqrt(squared) + eps
    if chosen[f"{stage}_divided"]:
        scores = QUOTIENTS[chosen[f"{stage}_quotient"]](where(among, scores, 0.0), divisor)
    return where(among, scores, 0.0).reshape(-1)[np.argsort(index.reshape(-1))].reshape(*values.shape)


GROUP = Program(
    op="group_advantages",
    asked=asked,
    compute=compute,
    edits=edits.edits,
    inputs=inputs.designed,
    outputs=("advantages",),
    places=inputs.places,
    fitted=edits.fitted,
    presets=edits.presets,
    declares=edits.DECLARED,
)
SEVERAL = Program(
    op="normalise_then_sum",
    asked=asked_of_several,
    compute=compute_several,
    edits=edits.edits_of_several,
    inputs=inputs.designed_of_several,
    outputs=("advantages",),
    places=inputs.places_of_several,
    presets=edits.presets_of_several,
)
PROGRAMS = (GROUP, SEVERAL)


def group_advantages(**call: Any) -> dict[str, Floats]:
    """Return the textbook limits of `advantages`; inf where the divisor may be 0."""
    return limits(GROUP, call, forms(asked(call)))


def normalise_then_sum(**call: Any) -> dict[str, Floats]:
    """Return the textbook limits of `advantages`; inf where a divisor may be 0."""
    return limits(SEVERAL, call, [{"group_quotient": a, "batch_quotient": b} for a, b in product(QUOTIENTS, repeat=2)])
