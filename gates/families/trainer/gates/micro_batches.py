"""Do the micro-batches of a step add up to it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gates.families.loss import cases
from gates.families.loss.op import POLICY_LOSS, POLICY_LOSS_IN_PARTS
from gates.families.units import FLOAT32_U
from gates.model import Array, Bound, Case, Evidence, Probe, Trial
from gates.registry import gate
from reference.algorithms import ALGORITHMS
from reference.oracle import losses

PARTS = (1, 4, 3)  # of eight rows in two groups of four: uneven, and the second part holds rows of both
WIDE_PARTS = (5, 12, 7)  # of twenty-four


def _part_case(algorithm: str, name: str, *, quick: bool = True, **changes: Any) -> Case:
    whole = cases.case(algorithm, f"{algorithm}-{name}", data={"empty_row": True}, quick=quick, **changes)

    def make(rng: np.random.Generator) -> Mapping[str, Any]:
        inputs: dict[str, Any] = dict(whole.make(rng))
        return {**inputs, "parts": list(PARTS if len(inputs["mask"]) == sum(PARTS) else WIDE_PARTS)}

    return replace(whole, make=make)


def _part_cases() -> Iterator[Case]:
    for algorithm, one in ALGORITHMS.items():
        if one.aggregation == "micro-batch":
            continue  # by definition its value depends on the split
        yield _part_case(algorithm, "plain")
        if one.kl:
            yield _part_case(algorithm, "kl", beta=0.3, quick=False)
        if "dapo_denominator" in one.constants:
            yield _part_case(algorithm, "by-prompt", dapo_denominator="group", group_size=4)
            yield _part_case(algorithm, "window", dapo_denominator="trl", tokens_in_step=171.5, quick=False)


@gate(
    "trainer.micro-batches.add-up",
    name="policy_loss[micro-batches]",
    question="Do loss and gradient of a step in uneven parts add up to those of the step in one?",
    why="A denominator of the micro-batch instead of the step's weighs short answers, and the last part, by accident.",
    ops=(POLICY_LOSS, POLICY_LOSS_IN_PARTS),
    cases=tuple(_part_cases()),
    bounds={
        "loss error in 2u·S": Bound("derived", f"{cases.PART_BECAUSE}; k = 4", 4.0),
        "gradient error in 2u·S": Bound("derived", f"{cases.PART_BECAUSE}; k = 4", 4.0),
        "distance from the step in one part in 2u·S": Bound(
            "derived", f"{cases.PART_BECAUSE}; both err by at most k = 4", 8.0
        ),
    },
    probes=(Probe("policy_loss_in_parts", ("loss", "gradient")),),
)
def parts_add_up(t: Trial) -> Iterator[Evidence]:
    """Compare the split step with the definition of the whole, and with the subject's own unsplit step."""
    inputs = dict(t.inputs)
    sizes = inputs.pop("parts")
    wanted = t.want(POLICY_LOSS, **cases.rounded(inputs))
    tokens = [int(part.sum()) for part in np.split(inputs["mask"], np.cumsum(sizes)[:-1])]
    yield t.precondition("different numbers of tokens in a part", len(set(tokens)), ">=", 2)
    unit, scale = 2 * FLOAT32_U, np.maximum(wanted.gradient_scale, float(np.finfo(np.float32).tiny))
    naive = np.abs(_means_of_parts(inputs, sizes) - wanted.gradient)
    yield t.precondition(
        "largest change by denominators of parts, in 2u·S", float((naive / (unit * scale)).max()), ">", 1e4
    )
    yield t.precondition("share of elements at a clip bound", wanted.near_branch[inputs["mask"]].mean(), "<", 0.01)
    got, one = t.got(POLICY_LOSS_IN_PARTS, **inputs, parts=sizes), t.got(POLICY_LOSS, **inputs)
    sure = ~wanted.near_branch
    loss_unit = unit * wanted.loss_scale
    off = max(abs(float(got["loss"]) - wanted.loss) - wanted.branch_slack, 0.0)
    yield t.within("loss error in 2u·S", wanted.loss + off, wanted.loss, scale=loss_unit)
    gradient = np.where(sure, got["gradient"], wanted.gradient)
    yield t.within("gradient error in 2u·S", gradient, wanted.gradient, scale=unit * scale)
    quantity = "distance from the step in one part in 2u·S"
    yield t.within(quantity, got["loss"], float(one["loss"]), scale=loss_unit, where="loss")
    yield t.within(quantity, gradient, np.where(sure, one["gradient"], wanted.gradient), scale=unit * scale)


def _means_of_parts(inputs: Mapping[str, Any], sizes: list[int]) -> Array:
    """Return the gradient of the mistake: each part divides by its own rows and tokens, and the parts are averaged."""
    found, ends = [], np.cumsum(sizes)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        rows: dict[str, Any] = {
            name: x[start:end] if isinstance(x, np.ndarray) and len(x) == ends[-1] else x for name, x in inputs.items()
        }
        if rows["dapo_denominator"] in {"group", "trl"}:
            rows["dapo_denominator"] = "global"
        found.append(losses.policy_loss(**rows).gradient / len(sizes))
    return np.concatenate(found)
