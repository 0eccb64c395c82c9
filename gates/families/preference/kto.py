"""The forward definition of KTO's loss of labelled rows, written once over an arithmetic.

The loss of a row is λ(1 − σ(±β(lr − z0))), where lr is its summed log-ratio. Source: docs/definitions.md, "Preference losses"; KTO
(arXiv 2402.01306), section 4, as TRL's KTOTrainer writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gates.arithmetic import bounded
from gates.arithmetic.functions import Value, absolute, detached, maximum, minimum, sigmoid, where
from gates.arithmetic.number import Floats, gradient, number
from gates.families.preference import designed, kto_edits
from gates.families.preference.program import minus_log_sigmoid, widest_of
from gates.families.preference.sides import Sides, either, rounded_constant
from gates.families.program import Choices, Data, Inputs, Program
from gates.model import Array


def asked(call: Inputs) -> Choices:
    """Return the choices that a call of `kto_loss` asks for."""
    return {
        "mask": "given",
        "row": "sum",
        "count_eps": 0.0,
        "reference": "given",
        "quantity": "log-probs",
        "beta": call["beta"],
        "anchor": "clamped",
        "labels": "given",
        "weights": (call["desirable_weight"], call["undesirable_weight"]),
        "loss": "1 − σ",
        "mean": "rows",
        "sign": 1.0,
        "written": "in any form",
    }


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:
    """Return the loss."""
    sides = Sides(data, chosen, variable)
    z, good, weight = _rows(sides)
    loss = _mean(chosen["mean"], _losses(chosen, z, weight), weight, good)
    return {"loss": loss if chosen["sign"] == 1.0 else loss * chosen["sign"]}


def _rows(sides: Sides) -> tuple[Value, Array, Value]:
    """Return the argument of the sigmoid, whether the row is desirable, and the weight, (B,) each."""
    data, chosen, beta = sides.data, sides.chosen, sides.scalar("beta")
    good = np.asarray(data["desirable"], bool) ^ (chosen["labels"] == "swapped")
    sign = {"all desirable": 1.0, "all undesirable": -1.0}.get(chosen["labels"], np.where(good, 1.0, -1.0))
    up, down = (rounded_constant(data, x) for x in chosen["weights"])
    anchor = _anchor(data, chosen["anchor"], sides.rows, good)
    if chosen["anchor"] == "both sides":
        anchor = anchor * sign
    if chosen["anchor"] in {"desirable only", "undesirable only"}:
        anchor = anchor * (good == (chosen["anchor"] == "desirable only")).astype(np.float64)
    z = beta * (sides.rows - anchor) if chosen["anchor"] != "without β" else beta * sides.rows - anchor
    return z * sign, good, where(good, up * np.ones(good.shape), down * np.ones(good.shape))


def _anchor(data: Data, choice: str, log_ratio: Value, good: Array) -> Value:
    """Return z0, one number or (B,) of rows."""
    if choice.startswith("other label"):
        others = [maximum(0.0, _mean_of(rows, log_ratio)) for rows in (~good, good)]
        by_row = where(good, *(mean * np.ones(good.shape) for mean in others))
        return by_row if choice == "other label, alive" else detached(by_row)
    if choice.startswith("own"):
        own = log_ratio.mean()
        own = own if choice == "own, alive" else detached(own)
        return own if choice == "own, unclamped" else maximum(0.0, own)
    others = data.lift(data["mismatched"])
    mean = others.mean()
    anchors: Mapping[str, Callable[[], Value]] = {
        "unclamped": lambda: mean,
        "none": lambda: mean * 0.0,
        "absolute": lambda: absolute(mean),
        "sum": lambda: maximum(0.0, others.sum()),
        "added": lambda: -maximum(0.0, mean),
        "smaller": lambda: minimum(0.0, mean),
        "first": lambda: maximum(0.0, others[0]),
        "rows": lambda: maximum(0.0, others.sum() / float(log_ratio.shape[0])),
    }
    return anchors.get(choice, lambda: maximum(0.0, mean))()


def _losses(chosen: Choices, z: Value, weight: Value) -> Value:
    choice = chosen["loss"]
    if choice == "log":
        return weight * minus_log_sigmoid(z)
    if choice == "weight inside":
        return 1.0 - sigmoid(weight * z)
    if choice in OTHER_LOSSES:
        return weight * OTHER_LOSSES[choice](z)
    if chosen["written"] in MISSES:
        return weight * MISSES[chosen["written"]](z)
    return weight * either(1.0 - sigmoid(z), sigmoid(-z))


def _mean(choice: str, loss: Value, weight: Value, good: Array) -> Value:
    if choice in {"by label", "half by label"}:
        parts = [_mean_of(rows, loss) for rows in (good, ~good)]
        return (parts[0] + parts[1]) * (1.0 if choice == "by label" else 0.5)
    counts = {"desirable": float(good.sum()), "undesirable": float((~good).sum()), "pairs": 0.5 * len(good)}
    divisor = {"sum": 1.0, **{name: max(n, 1.0) for name, n in counts.items()}}.get(choice, float(len(good)))
    return loss.sum() / (weight.sum() if choice == "weights" else divisor)


def _mean_of(rows: Array, values: Value) -> Value:
    return where(rows, values, 0.0).sum() / max(float(rows.sum()), 1.0)


OTHER_LOSSES: Mapping[str, Callable[[Value], Value]] = {  # in the place of 1 − σ(z)
    "value": sigmoid,
    "negative value": lambda z: -sigmoid(z),
    "square": lambda z: sigmoid(-z) * sigmoid(-z),
    "linear": lambda z: -z,
}
MISSES: Mapping[str, Callable[[Value], Value]] = {  # forms of 1 − σ
    "1 − σ(z)": lambda z: 1.0 - bounded.sigmoid(z),
    "σ(−z)": lambda z: bounded.sigmoid(-z),
}


KTO = Program(
    op="kto_loss",
    asked=asked,
    compute=compute,
    edits=kto_edits.edits_of_kto,
    inputs=designed.designed_of_kto,
    outputs=("loss", "gradient"),
    variable="policy",
    places=designed.places_of_kto,
    presets=kto_edits.presets_of_kto,
)
PROGRAMS = (KTO,)


def kto_loss(**call: Any) -> dict[str, Floats]:
    """Return the textbook limits of `loss` and `gradient`, over gradients by autograd and by hand."""
    data, chosen = Data(call, bounded=True), asked(call)
    leaf = number(np.asarray(call["policy"]))
    losses = [compute(data, {**chosen, "written": form}, leaf)["loss"] for form in MISSES]
    gradients = [gradient(loss, leaf)[0] for loss in losses]
    sides = Sides(data, chosen, leaf)
    z, good, weight = _rows(sides)
    for miss in MISSES.values():
        slope = weight * sides.scalar("beta") * (miss(z) * bounded.sigmoid(z)) * np.where(good, -1.0, 1.0)
        gradients.append(sides.spread(slope / float(len(good))))
    return widest_of(losses, gradients)
