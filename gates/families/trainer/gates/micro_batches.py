"""Do the micro-batches of a step add up to the step?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from gates.families.loss import calls, cases
from gates.families.loss.op import POLICY_LOSS, POLICY_LOSS_IN_PARTS
from gates.families.units import FLOAT32_U
from gates.model import Array, Bound, Case, Draw, Evidence, Probe, Trial
from gates.registry import gate
from gates_reference.algorithms import ALGORITHMS
from gates_reference.oracle import losses

PARTS: dict[
    str, dict[int, tuple[int, ...]]
] = {  # rows of each part, of eight rows in two groups of four, and of twenty-four
    "any": {8: (1, 4, 3), 24: (5, 12, 7)},  # the second part holds rows of both groups
    "equal": {8: (2, 2, 2, 2), 24: (6, 6, 6, 6)},
}


def _part_case(algorithm: str, name: str, *, quick: bool = True, sizes: str = "any", **changes: Any) -> Case:
    whole = cases.case(algorithm, f"{algorithm}-{name}", quick=quick, **changes)

    def make(rng: np.random.Generator, whole_step: Callable[[np.random.Generator], Any]) -> Mapping[str, Any]:
        inputs: dict[str, Any] = dict(whole_step(rng))
        return {**inputs, "parts": list(PARTS[sizes][len(inputs["mask"])])}

    return cases.derived(whole, make, {"parts": sizes})


def _part_cases() -> Iterator[Case]:
    for algorithm, row in ALGORITHMS.items():
        if row.aggregation == "micro-batch":
            continue  # depends on the split by definition
        yield _part_case(algorithm, "uneven")
        yield _part_case(algorithm, "equal", sizes="equal", quick=algorithm == "grpo")
        if row.kl_in_loss:
            yield _part_case(algorithm, "uneven-kl", beta=0.3, quick=False)
            yield _part_case(algorithm, "equal-kl", sizes="equal", beta=0.3, quick=False)
        if "dapo_denominator" in row.constants:
            yield _part_case(algorithm, "uneven-by-prompt", dapo_denominator="group", group_size=4)
            yield _part_case(algorithm, "uneven-window", dapo_denominator="trl", tokens_in_step=171.5, quick=False)
            window = {"dapo_denominator": "trl", "tokens_in_step": 171.5}
            yield _part_case(algorithm, "equal-window", sizes="equal", quick=False, **window)


def _scale(want: losses.PolicyLoss) -> Array:
    return np.maximum(want.gradient_scale, float(np.finfo(np.float32).tiny))


def _preconditions(t: Draw) -> Iterator[Evidence]:
    inputs = dict(t.inputs)
    sizes = inputs.pop("parts")
    want = t.want(POLICY_LOSS, **calls.rounded(inputs))
    tokens = [int(part.sum()) for part in np.split(inputs["mask"], np.cumsum(sizes)[:-1])]
    yield t.precondition("different numbers of tokens in a part", len(set(tokens)), ">=", 2)
    if len(set(sizes)) > 1:  # for means over rows, equal parts have the mean of the step
        naive = np.abs(_means_of_parts(inputs, sizes) - want.gradient)
        change = float((naive / (2 * FLOAT32_U * _scale(want))).max())
        yield t.precondition("largest change by denominators of parts, in 2u·S", change, ">", 1e4)
    yield t.precondition("share of elements at a clip bound", want.near_branch[inputs["mask"]].mean(), "<", 0.01)


@gate(
    "trainer.micro-batches.add-up",
    level="definition",
    name="policy_loss_in_parts[micro-batches]",
    question="Do loss and gradient of a step in uneven parts add up to those of the step in one?",
    why="A denominator of the micro-batch instead of the step's weighs short answers, and the last part, by accident.",
    ops=(POLICY_LOSS, POLICY_LOSS_IN_PARTS),
    cases=tuple(_part_cases()),
    bounds={
        "loss error in 2u·S": Bound("derived", f"{cases.PART_BECAUSE}; k = 4", 4.0, "precision"),
        "gradient error in 2u·S": Bound("derived", f"{cases.PART_BECAUSE}; k = 4", 4.0, "precision"),
        "distance from the step in one part in 2u·S": Bound(
            "derived", f"{cases.PART_BECAUSE}; both err by at most k = 4", 8.0, "precision"
        ),
    },
    requires=_preconditions,
    probes=(Probe("policy_loss_in_parts", ("loss", "gradient")),),
)
def parts_add_up(t: Trial) -> Iterator[Evidence]:
    """Compare the split step with the definition of the whole step, and with the subject's own unsplit step."""
    inputs = dict(t.inputs)
    sizes = inputs.pop("parts")
    want = t.want(POLICY_LOSS, **calls.rounded(inputs))
    unit, scale = 2 * FLOAT32_U, _scale(want)
    got, whole = t.got(POLICY_LOSS_IN_PARTS, **inputs, parts=sizes), t.got(POLICY_LOSS, **inputs)
    sure = ~want.near_branch
    loss_unit = unit * want.loss_scale
    limits = t.textbook(POLICY_LOSS_IN_PARTS, **inputs, parts=sizes)
    off = max(abs(float(got["loss"]) - want.loss) - want.branch_slack, 0.0)
    loss = want.loss + off
    yield from t.agrees("loss error in 2u·S", loss, want.loss, limits["loss"], scale=loss_unit)
    gradient = np.where(sure, got["gradient"], want.gradient)
    slopes = limits["gradient"]
    yield from t.agrees("gradient error in 2u·S", gradient, want.gradient, slopes, scale=unit * scale)
    quantity = "distance from the step in one part in 2u·S"
    yield from t.agrees(quantity, got["loss"], float(whole["loss"]), 2 * limits["loss"], scale=loss_unit, where="loss")
    unsplit = np.where(sure, whole["gradient"], want.gradient)
    yield from t.agrees(quantity, gradient, unsplit, 2 * slopes, scale=unit * scale)


def _means_of_parts(inputs: Mapping[str, Any], sizes: list[int]) -> Array:
    """Return the gradient of a mistake: each part divides by its own rows and tokens, and parts are averaged."""
    gradients, ends = [], np.cumsum(sizes)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        rows: dict[str, Any] = {
            name: x[start:end] if isinstance(x, np.ndarray) and len(x) == ends[-1] else x for name, x in inputs.items()
        }
        if rows["dapo_denominator"] in {"group", "trl"}:
            rows["dapo_denominator"] = "global"
        gradients.append(losses.policy_loss(**rows).gradient / len(sizes))
    return np.concatenate(gradients)
