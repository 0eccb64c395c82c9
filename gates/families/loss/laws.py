"""Compare two calls of policy_loss that agree by a law, and two that differ because its condition is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gates.families.loss import calls
from gates.families.loss.op import POLICY_LOSS
from gates.families.units import UNIT
from gates.model import Array, Bound, Draw, Evidence, Trial, precondition
from gates_reference.oracle.losses import PolicyLoss

LAW_BECAUSE = (
    "by definition the two are one number, and each errs by at most k·2u·S: in units of 2u·(S plus the other S), k = 4 + |D|max + "
    "the longest row, as in the losses' own gates"
)
BOUNDS = {
    f"distance of the {what} in 2u·S": Bound("derived", LAW_BECAUSE, lambda t: t.facts["roundings"], "precision")
    for what in ("losses", "gradients")
}
NOT_FINITE = "numbers that are not finite"
BOUNDS[NOT_FINITE] = Bound("exact", "finite inputs far from overflow; NaN on both sides is no agreement", 0.0)
APART = 100.0  # limits: least distance of the definition itself where the law is broken on purpose


@dataclass(frozen=True, slots=True)
class Law:
    """The inputs of two calls, and the map from the second call's results to the first's.

    `take` holds the flat index in the second gradient of each element of the first; the second is multiplied by `factor`.
    """

    left: Mapping[str, Any]
    right: Mapping[str, Any]
    take: Array | None = None
    factor: float = 1.0
    with_loss: bool = True


@dataclass(frozen=True, slots=True)
class Sides:
    """Loss and gradient of both sides in the layout of the first, and the units of their errors."""

    losses: tuple[float, float]
    gradients: tuple[Array, Array]
    loss_unit: float
    gradient_unit: float

    def apart(self, *, with_loss: bool) -> float:
        """Return the larger distance of loss and gradient, in units of the errors."""
        gap = float(np.max(np.abs(self.gradients[0] - self.gradients[1]))) / self.gradient_unit
        loss = abs(self.losses[0] - self.losses[1]) / self.loss_unit if with_loss else 0.0
        return float(max(gap, loss))


def law_of(inputs: Mapping[str, Any], broken: str = "") -> Law:
    """Return the law of a case's inputs, or the pair in which it is broken on purpose."""
    changes = inputs["broken"] if broken else {}
    return Law(
        {**inputs["left"], **changes.get("left", {})},
        {**inputs["right"], **changes.get("right", {})},
        inputs.get("take"),
        inputs.get("factor", 1.0),
        inputs.get("with_loss", True),
    )


def hold(t: Trial) -> Iterator[Evidence]:
    """Yield the law's claims, and as the negative control that a broken pair differs."""
    law, broken = law_of(t.inputs), law_of(t.inputs, "broken")
    sides, wrong = _wanted(law, t.want), _wanted(broken, t.want)
    t.facts["roundings"] = _roundings(law, broken)
    got, limits = _measured(t, law, sides), _limits(t, law)
    yield t.number(NOT_FINITE, not_finite(*got.losses, *got.gradients), "<=")
    if law.with_loss:
        loss, quantity = sum(limits.losses), "distance of the losses in 2u·S"
        yield from t.agrees(quantity, got.losses[1], got.losses[0], loss, scale=got.loss_unit)
    slopes, quantity = sum(limits.gradients), "distance of the gradients in 2u·S"
    yield from t.agrees(quantity, got.gradients[1], got.gradients[0], slopes, scale=got.gradient_unit)
    moved = _measured(t, broken, wrong).apart(with_loss=law.with_loss)
    because = "a law that also holds where it must not says nothing: half of the definition's own distance"
    least = APART * t.facts["roundings"] / 2
    yield t.negative_control("distance where the law is broken in 2u·S", moved, ">=", least, because)


def _wanted(law: Law, want: Callable[..., Any]) -> list[PolicyLoss]:
    return [want(POLICY_LOSS, **calls.rounded(side)) for side in (law.left, law.right)]


def _roundings(law: Law, broken: Law) -> float:
    return max(roundings(x) for side in (law, broken) for x in (side.left, side.right))


def preconditions(t: Draw) -> Iterator[Evidence]:
    """Require of the oracle that the law holds, and fails where it is broken on purpose."""
    law, broken = law_of(t.inputs), law_of(t.inputs, "broken")
    sides = _wanted(law, t.want)
    exact, off = _of_oracle(law, sides), _of_oracle(broken, _wanted(broken, t.want))
    yield precondition("largest |∂loss/∂policy| of the definition", np.abs(sides[0].gradient).max(), ">", 1e-3)
    near = max(float(side.near_branch.mean()) for side in sides)
    yield precondition("share of elements at a clip bound", near, "<=", 0.0, "there two branches are right")
    rounded = _roundings(law, broken)
    kept = exact.apart(with_loss=law.with_loss)
    yield precondition("distance of the definition's own two sides in 2u·S", kept, "<=", rounded)
    apart = off.apart(with_loss=law.with_loss)
    yield precondition("distance of the definition where the law is broken", apart, ">=", APART * rounded)


def not_finite(*values: Any) -> int:
    """Count NaN and infinities."""
    return sum(int(np.sum(~np.isfinite(np.asarray(x, np.float64)))) for x in values)


def same(left: Any, right: Any) -> Array:
    """Return where two results are equal and finite."""
    x, y = np.asarray(left), np.asarray(right)
    return np.asarray((x == y) & np.isfinite(y))


def roundings(inputs: Mapping[str, Any]) -> float:
    """Return k of the definition gates: the roundings of a term, of D inside exp, and of the summands of a row."""
    valid = calls.valid(inputs)
    others = [inputs[name] for name in ("old", "reference") if inputs[name] is not None]
    far = [float(np.abs(inputs["policy"].astype(np.float64) - x)[valid].max()) for x in others]
    return 4.0 + max(far, default=0.0) + int(np.bincount(calls.rows_of(inputs)[valid]).max())


def _of_oracle(law: Law, sides: list[PolicyLoss]) -> Sides:
    return _sides(law, sides, [(side.loss, side.gradient) for side in sides])


def _measured(t: Trial, law: Law, sides: list[PolicyLoss]) -> Sides:
    answers = [t.got(POLICY_LOSS, **side) for side in (law.left, law.right)]
    return _sides(law, sides, [(float(x["loss"]), x["gradient"]) for x in answers])


def _limits(t: Trial, law: Law) -> Sides:
    """Return the textbook limits of both sides, in the layout of the first."""
    limits = [t.textbook(POLICY_LOSS, **side) for side in (law.left, law.right)]
    return _aligned(law, [(float(x["loss"]), x["gradient"]) for x in limits], 1.0, 1.0)


def _sides(law: Law, sides: list[PolicyLoss], answers: list[tuple[float, Array]]) -> Sides:
    unit = 2 * UNIT[str(law.left["policy"].dtype)]
    largest = float(sides[0].gradient_scale.max()) + law.factor * float(sides[1].gradient_scale.max())
    return _aligned(law, answers, unit * (sides[0].loss_scale + sides[1].loss_scale), unit * largest)


def _aligned(law: Law, answers: list[tuple[float, Array]], loss_unit: float, gradient_unit: float) -> Sides:
    """Convert the second side to the layout of the first."""
    left, right = (np.asarray(gradient, np.float64) for _, gradient in answers)
    valid = calls.valid(law.left)
    moved = right if law.take is None else right.reshape(-1)[law.take].reshape(left.shape)
    return Sides(
        (answers[0][0], answers[1][0]),
        (np.where(valid, left, 0.0), np.where(valid, law.factor * moved, 0.0)),
        loss_unit,
        gradient_unit,
    )
