"""The forward definition of KTO's loss of labelled rows, and what people write instead.

λ(1 − σ(±β(lr − z0))) of each row, lr its summed log-ratio. Source: docs/definitions.md, "Preference losses".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from gates.diagnosis.arithmetic import Value, absolute, detached, maximum, sigmoid, where
from gates.diagnosis.program import Choices, Data, Edit, Inputs, Program
from gates.diagnosis.programs import preference_inputs
from gates.diagnosis.programs.preference_edits import REFERENCES, ROWS
from gates.diagnosis.programs.preference_rows import Sides, either
from gates.diagnosis.programs.preference_terms import minus_log_sigmoid
from gates.diagnosis.programs.rows import MASKS
from gates.model import Array

ANCHORS = {
    "unclamped": "z0 without max(0, ·)",
    "none": "no z0",
    "absolute": "|z0| in the place of max(0, z0)",
    "sum": "z0 as the sum of the mismatched log-ratios, not their mean",
    "own": "z0 from the rows' own log-ratios, not from mismatched ones",
    "own, alive": "z0 from the rows' own log-ratios, with gradient",
    "own, unclamped": "z0 from the rows' own log-ratios, without max(0, ·)",
    "added": "z0 added, not subtracted",
    "without β": "z0 not multiplied by β",
}
LOSSES = {
    "log": "λ·(−log σ) in the place of λ·(1 − σ)",
    "value": "λ·σ, the value in the place of the loss",
    "negative value": "−λ·σ without its constant λ",
    "weight inside": "λ inside the sigmoid: 1 − σ(λ·z)",
}
LABELS = {
    "swapped": "desirable and undesirable swapped",
    "all desirable": "every row taken as desirable in the sigmoid",
    "all undesirable": "every row taken as undesirable in the sigmoid",
}
MEANS = {
    "by label": "the mean over desirable rows plus that over undesirable rows",
    "half by label": "half of the mean over desirable rows plus half of that over undesirable rows",
    "sum": "summed over rows, not averaged",
    "weights": "divided by the sum of the weights λ",
    "desirable": "divided by the number of desirable rows",
}
OTHERS = frozenset(("next token", "added", "none", "own"))  # references of rows that are no pairs


def asked(inputs: Inputs) -> Choices:
    """Return the choices that the keywords of `kto_loss` ask for."""
    return {
        "mask": "given",
        "row": "sum",
        "reference": "given",
        "beta": inputs["beta"],
        "anchor": "clamped",
        "labels": "given",
        "weights": (inputs["desirable_weight"], inputs["undesirable_weight"]),
        "loss": "1 − σ",
        "mean": "rows",
        "sign": 1.0,
    }


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:
    """Return the loss."""
    sides = Sides(data, chosen, variable)
    log_ratio, beta, good = sides.rows(), sides.scalar("beta"), np.asarray(data["desirable"], bool)
    if chosen["labels"] == "swapped":
        good = ~good
    sign = {"all desirable": 1.0, "all undesirable": -1.0}.get(chosen["labels"], np.where(good, 1.0, -1.0))
    dtype = np.asarray(data["policy"]).dtype.name
    up, down = (data.scalar(x, dtype) for x in chosen["weights"])
    weight = where(good, up * np.ones(good.shape), down * np.ones(good.shape))
    anchor = _anchor(data, chosen["anchor"], log_ratio)
    z = beta * (log_ratio - anchor) if chosen["anchor"] != "without β" else beta * log_ratio - anchor
    loss = _loss(chosen["loss"], z * sign, weight)
    return {"loss": _mean(chosen["mean"], loss, weight, good) * chosen["sign"]}


def _anchor(data: Data, choice: str, log_ratio: Value) -> Value:
    """Return z0."""
    if choice.startswith("own"):
        own = log_ratio.mean()
        own = own if choice == "own, alive" else detached(own)
        return own if choice == "own, unclamped" else maximum(0.0, own)
    others = data.lift(data["mismatched"])
    mean = others.mean()
    found: Mapping[str, Callable[[], Value]] = {
        "unclamped": lambda: mean,
        "none": lambda: mean * 0.0,
        "absolute": lambda: absolute(mean),
        "sum": lambda: maximum(0.0, others.sum()),
        "added": lambda: -maximum(0.0, mean),
    }
    return found.get(choice, lambda: maximum(0.0, mean))()


def _loss(choice: str, z: Value, weight: Value) -> Value:
    if choice == "log":
        return weight * minus_log_sigmoid(z)
    if choice == "weight inside":
        return 1.0 - sigmoid(weight * z)
    if choice in {"value", "negative value"}:
        return weight * sigmoid(z) * (1.0 if choice == "value" else -1.0)
    return weight * either(1.0 - sigmoid(z), sigmoid(-z))


def _mean(choice: str, loss: Value, weight: Value, good: Array) -> Value:
    if choice in {"by label", "half by label"}:
        parts = [where(rows, loss, 0.0).sum() / max(float(rows.sum()), 1.0) for rows in (good, ~good)]
        return (parts[0] + parts[1]) * (1.0 if choice == "by label" else 0.5)
    divisor = {"sum": 1.0, "desirable": max(float(good.sum()), 1.0)}.get(choice, float(len(good)))
    return loss.sum() / (weight.sum() if choice == "weights" else divisor)


def edits(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of KTO's loss, conventions first."""
    own = "z0 from the rows' own log-ratios, not from mismatched ones"
    yield Edit(own, {"anchor": "own"}, convention=True)
    yield Edit('no z0 (as in TRL loss_type="apo_zero_unpaired")', {"anchor": "none"}, convention=True)
    for name, words in ANCHORS.items():
        if name not in {"own", "none"}:
            yield Edit(words, {"anchor": name})
    yield from (Edit(words, {"loss": name}) for name, words in LOSSES.items())
    yield from (Edit(words, {"labels": name}) for name, words in LABELS.items())
    yield from (Edit(words, {"mean": name}) for name, words in MEANS.items())
    yield from (Edit(words, {"mask": name}) for name, words in MASKS.items() if name != "filled")
    yield Edit("the prompt counted", {"mask": "prompt too"})
    yield Edit("the last column of the batch not counted", {"mask": "without last column"})
    yield Edit("the first column of the batch not counted", {"mask": "without first column"})
    yield from (Edit(REFERENCES[name], {"reference": name}) for name in sorted(OTHERS))
    for name in ("mean", "width", "longest", "root"):
        yield Edit(ROWS[name][0], {"row": name}, asked="summed over tokens")
    yield from _constants(asked)


def _constants(asked: Choices) -> Iterator[Edit]:
    up, down = asked["weights"]
    beta = asked["beta"]
    if up != down:
        yield Edit("λ_D and λ_U swapped", {"weights": (down, up)})
        yield Edit("λ_D on every row", {"weights": (up, up)})
        yield Edit("λ_U on every row", {"weights": (down, down)})
    if {up, down} != {1.0}:
        yield Edit("no weights λ", {"weights": (1.0, 1.0)})
    yield Edit("undesirable rows left out", {"weights": (up, 0.0)})
    yield Edit("β missing (1)", {"beta": 1.0}, asked=f"{beta:g}")
    yield Edit("β squared", {"beta": beta * beta})
    yield Edit("the loss with the wrong sign", {"sign": -1.0})


def presets(asked: Choices) -> Iterator[Edit]:
    """Yield KTO's loss with its reference point, and without."""
    del asked
    yield Edit('kto (TRL KTOTrainer loss_type="kto")', {"anchor": "clamped"}, convention=True)
    yield Edit("kto without a reference point z0", {"anchor": "none"}, convention=True)


def designed(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches of labelled rows; the mean of the mismatched log-ratios has both signs."""
    for index, (rows, width) in enumerate(preference_inputs.SHAPES):
        given = preference_inputs.batch(example, rng, rows, width, narrow=index % 2 == 1)
        given["desirable"] = np.arange(rows) % 3 > 0
        others = rng.normal(0.0, 0.5, 5 + index)
        away = (-1.0) ** index * (1.0 + 0.2 * index)
        given["mismatched"] = (others - others.mean() + away).astype(np.asarray(example["policy"]).dtype)
        yield given


def places(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:
    """Yield sets of slots by name."""
    if output != "gradient":
        return
    mask, good = np.asarray(inputs["mask"], bool), np.asarray(inputs["desirable"], bool)[:, None]
    yield "in desirable rows", mask & good
    yield "in undesirable rows", mask & ~good
    yield "outside completions", ~mask
    yield "in completions of fewer than three tokens", mask & (mask.sum(axis=1) < 3)[:, None]


PROGRAM = Program(
    op="kto_loss",
    asked=asked,
    compute=compute,
    edits=edits,
    inputs=designed,
    outputs=("loss", "gradient"),
    variable="policy",
    places=places,
    presets=presets,
)
PROGRAMS = (PROGRAM,)
