"""The forward formula of RLOO with its KL in the reward, composed of choices.

A_i is the leave-one-out advantage of R_i − β Σ_t (old − reference), a constant; the loss is −mean_i exp(Σ_t D) A_i. Source: RLOO,
arXiv 2402.14740, eqs. 1 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value, absolute, detached, exp, maximum, plain, sqrt, where
from gates.arithmetic.number import UNIT, Number
from gates.families import arrays
from gates.families.advantages import edits as of_advantages
from gates.families.advantages.baselines import BASELINES
from gates.families.advantages.program import LAYOUTS, variance
from gates.families.edits import conventions_first, mistakes, numbers, others
from gates.families.loss import edits as of_losses
from gates.families.loss import inputs, program
from gates.families.program import Choices, Data, Edit, Inputs, Program

NONE = dict.fromkeys(("epsilon_low", "epsilon_high", "delta", "kl_ratio", "kl_estimator"))
ESTIMATES: Mapping[str, tuple[str, Callable[[Value], Value]]] = {  # words, and a function of policy − reference
    "k1": ("k1", lambda d: d),
    "k2": ("k2, d²/2", lambda d: d * d * 0.5),
    "k3": ("k3, exp(−d) + d − 1", lambda d: exp(-d) + d - 1.0),
    "absolute": ("|d|", absolute),
    "at least 0": ("max(0, d)", lambda d: maximum(0.0, d)),
}
MODELS = {
    "policy": "the KL of the current policy, not of the old one, as a constant",
    "policy, alive": "the KL of the current policy with its gradient: advantages are not constants",
    "to old": "the KL of the current policy to the old one, not to the reference",
    "reference ignored": "the old log-probs alone in the place of the KL, without the reference",
    "old ignored": "the reference's log-probs alone in the place of the KL, with the wrong sign: without the policy",
    "of probabilities": "the KL of probabilities, not of their logarithms",
    "added": "old and reference log-probs added, not subtracted",
}
SUMS = {
    "mean": "the mean of the KL over a row's tokens, not its sum",
    "width": "the KL of a row over the padded width, not its sum",
    "padding too": "the KL of padding counted: every slot",
    "last": "the KL of the row's last token alone",
    "without last": "the KL without the row's last token",
    "batch": "the mean KL of the batch for each row",
    "next row": "the KL of the next row",
    "first": "the KL of the row's first token alone",
    "largest": "the largest KL of a row's tokens",
    "longest row": "the KL of a row over the tokens of the longest row",
}
PLACES = {
    "after the baseline": "the KL subtracted from the advantages, after the baseline, not from the rewards",
    "in the loss": "the KL added to the loss as a constant, not subtracted from the rewards",
    "baseline alone": "the KL subtracted in the baseline alone, not from the member's own reward",
}
DIVISORS = {
    "deviation": "advantages divided by the deviation of the group",
    "batch deviation": "advantages divided by the deviation of the whole batch",
}
BETAS = (0.01, 0.04, 0.05, 0.1, 1.0)


def asked(call: Inputs) -> Choices:
    """Return the choices that a call of `rewarded_loss` asks for."""
    return {
        **program.asked(_policy_call(call, np.zeros(len(call["rewards"])))),
        "reward β": float(call["beta"]),
        "estimate": "k1",
        "model": "old",
        "summed": "sum",
        "place": "reward",
        "baseline": "leave-one-out",
        "layout": "given",
        "divisor": "none",
    }


def _policy_call(call: Inputs, advantages: Any) -> dict[str, Any]:
    """Return the call of `policy_loss` with these advantages and without a KL."""
    given = {name: call[name] for name in ("policy", "old", "reference", "mask", "group_size")}
    return {**given, **NONE, "algorithm": "rloo", "advantages": advantages, "beta": 0.0}


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:
    """Return the loss and the advantages."""
    counts, dtype = np.asarray(data["mask"], bool), np.asarray(data["policy"]).dtype.name
    kl = _kl(data, chosen, variable, dtype)
    kl = kl if chosen["model"] == "policy, alive" else detached(kl)
    beta = _constant(data, chosen["reward β"], dtype)
    rewards = data.lift(np.asarray(data["rewards"], np.float64), dtype)
    lowered = rewards - kl * beta if chosen["place"] in {"reward", "baseline alone"} else rewards
    table = LAYOUTS[chosen["layout"]](np.arange(len(counts)), int(data["group_size"]))
    scored = np.ones(table.shape, bool)
    groups = lowered[table]
    centred = _divided(chosen["divisor"], groups, BASELINES[chosen["baseline"]](groups, scored))
    advantages = centred.reshape(-1)[np.argsort(table.reshape(-1))]
    if chosen["place"] == "after the baseline":
        advantages = advantages - kl * beta
    if chosen["place"] == "baseline alone":
        advantages = advantages + kl * beta
    call = _policy_call(data.inputs, advantages)
    loss = program.compute(Data(call, data.bounded), chosen, variable)["loss"]
    loss = loss + (kl * beta).mean() if chosen["place"] == "in the loss" else loss
    return {"loss": loss, "advantages": detached(advantages)}


def _constant(data: Data, value: float, dtype: str) -> Value:
    """Return a constant that a program may or may not round to the dtype."""
    return Number(value, dtype, UNIT[dtype] * abs(value)) if data.bounded else float(value)


def _kl(data: Data, chosen: Choices, variable: Value, dtype: str) -> Value:
    """Return the KL of each row, (B,)."""
    counts = np.asarray(data["mask"], bool)
    old, reference = (data.lift(data[name], dtype) for name in ("old", "reference"))
    d = {
        "old": lambda: old - reference,
        "to old": lambda: variable - old,
        "reference ignored": lambda: old,
        "old ignored": lambda: -reference,
        "of probabilities": lambda: exp(old) - exp(reference),
        "added": lambda: old + reference,
    }.get(chosen["model"], lambda: variable - reference)()
    estimate, kind, columns = ESTIMATES[chosen["estimate"]][1](d), chosen["summed"], np.arange(counts.shape[1])
    last = columns == counts.shape[1] - 1 - counts[:, ::-1].argmax(axis=1)[:, None]
    kept = {"padding too": np.ones_like(counts), "last": counts & last, "without last": counts & ~last}
    kept["first"] = counts & (columns == counts.argmax(axis=1)[:, None])
    if kind == "largest":
        column = np.where(counts, plain(estimate), -np.inf).argmax(axis=1)
        return estimate[np.arange(len(counts)), column]
    sums = where(kept.get(kind, counts), estimate, 0.0).sum(1)
    if kind == "mean":
        return sums / np.maximum(counts.sum(axis=1), 1.0)
    if kind in {"width", "longest row"}:
        return sums / float(counts.shape[1] if kind == "width" else max(counts.sum(axis=1).max(), 1))
    if kind == "batch":
        return sums * 0.0 + sums.mean()
    return sums[np.roll(np.arange(len(counts)), -1)] if kind == "next row" else sums


def _divided(kind: str, groups: Value, centred: Value) -> Value:
    if kind == "none":
        return centred
    table = groups if kind == "deviation" else groups.reshape(1, -1)
    return centred / (sqrt(variance(table, np.ones(table.shape, bool), 1.0)) + 1e-4)


@conventions_first
def edits(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of the KL in the reward and of the baseline, then those of the policy loss."""
    beta = asked["reward β"]
    yield Edit("the KL added to the reward: its sign is wrong", {"reward β": -beta})
    yield Edit("no KL in the reward", {"reward β": 0.0})
    yield Edit("the KL in the reward without its weight β", {"reward β": 1.0})
    yield Edit("the KL in the reward twice", {"reward β": 2.0 * beta})
    yield Edit("half of the KL in the reward", {"reward β": 0.5 * beta})
    yield Edit("the KL in the reward times the square of β", {"reward β": beta * beta})
    yield Edit("the KL in the reward divided by β", {"reward β": 1.0 / beta})
    yield from numbers("the KL in the reward with β", "reward β", BETAS, asked)
    estimates = {name: f"the KL in the reward by {words}" for name, (words, _) in ESTIMATES.items()}
    yield from mistakes("estimate", estimates, without=("k1",))
    for name in ("k2", "k3"):
        words = f"the KL of the current policy in the reward, by {ESTIMATES[name][0]}"
        yield Edit(words, {"estimate": name, "model": "policy"})
    yield from mistakes("model", MODELS)
    yield from mistakes("summed", SUMS)
    yield from mistakes("place", PLACES)
    yield from mistakes("divisor", DIVISORS)
    yield from others("baseline", of_advantages.BASELINES, asked, "baseline: {}")
    yield from mistakes("layout", of_advantages.LAYOUTS)
    alike = {"advantages": "batch mean"}  # 0, since the advantages of a group add up to 0
    yield from (edit for edit in of_losses.edits(asked) if edit.changes != alike)


def designed(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight steps with the β of a call, in groups of several sizes."""
    dtype = np.asarray(example["policy"]).dtype
    for rows, width, group in inputs.SHAPES:
        policy = arrays.logprobs(rng, (rows, width))
        lengths = rng.permutation(np.linspace(2, width - 1, rows).round().astype(np.int64))
        yield {
            **example,
            "policy": policy.astype(dtype),
            "old": (policy - rng.normal(0.0, 0.15, policy.shape)).astype(dtype),
            "reference": (policy + rng.normal(0.1, 0.4, policy.shape)).astype(dtype),
            "mask": np.arange(width) < lengths[:, None],
            "rewards": rng.uniform(-1.0, 2.0, rows).astype(np.asarray(example["rewards"]).dtype),
            "group_size": group,
        }


PROGRAM = Program(
    op="rewarded_loss",
    asked=asked,
    compute=compute,
    edits=edits,
    inputs=designed,
    outputs=("loss", "advantages", "gradient"),
    variable="policy",
    pairs=False,
)
PROGRAMS = (PROGRAM,)
