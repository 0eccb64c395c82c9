"""Is each reward function normalised in its group, and then the weighted sum over the batch?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from gates.families import layouts
from gates.families.advantages.gates.inputs import BOUNDS
from gates.families.advantages.op import NAN_UNSCORED, NORMALISE_THEN_SUM
from gates.families.units import UNIT
from gates.model import Case, Draw, Evidence, Level, Probe, Trial
from gates.registry import gate
from gates_reference.oracle import advantages as oracle

STAGES = {  # ddof and ε of the groups, then of the batch
    "trl": (1, 1e-4, 1, 1e-4),
    "mixed": (1, 1e-4, 0, 1e-2),
    "mixed-back": (0, 1e-2, 1, 1e-4),
    "no-epsilon": (0, 0.0, 0, 0.0),
}
ASKED: dict[str, Level] = {
    "constant": "robustness",
    "unscored": "rule",
    "found-tiny": "hardening",
    "found-one-scored": "rule",
    "found-unscored-alone": "rule",
}
NAMES = ("group_ddof", "group_eps", "batch_ddof", "batch_eps")


def _make(rng: np.random.Generator, dtype: str, stages: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return rewards of a verifier, a length penalty in tens, and a style score in hundredths."""
    size = 2 if kind == "found-pairs" else 4
    correct = np.tile([0.0, 1.0, 1.0, 0.0], 3)
    rewards = np.stack([correct, rng.uniform(-50.0, 0.0, correct.size), rng.normal(0.0, 0.02, correct.size)], axis=1)
    if kind == "constant":
        rewards[:size, 2] = 0.1  # constant in this group: contributes 0
    if kind == "unscored":
        rewards[5, 0] = np.nan  # unscored by one function: 0 in the sum
        rewards[[2, 9]] = np.nan  # unscored by every function
    if kind == "found-one-scored":
        rewards[:], rewards[0, 0] = np.nan, 1.0
    if kind == "found-tiny":
        rewards *= 1e-12
    weights = np.array([1.0, 0.5, -2.0], dtype)
    if kind == "found-unscored-alone":
        rewards, weights, size = np.full((1, 1), np.nan), weights[:1], 1
    inputs = {"rewards": rewards.astype(dtype), "weights": weights, "group_size": size, **stages}
    return inputs | ({"layouts": True} if kind == "constant" else {})


def _case(name: str, dtype: str, kind: str, *, quick: bool = False) -> Case:
    stages = dict(zip(NAMES, STAGES[name], strict=True))
    return Case(
        f"{kind}-{name}-{dtype}",
        partial(_make, dtype=dtype, kind=kind, stages=stages),
        quick=quick,
        conventions={**stages, "dtype": dtype},
        level=ASKED.get(kind),
        declared=NAN_UNSCORED if ASKED.get(kind) == "rule" else {},
    )


CASES = (
    *(_case(name, "float32", "three", quick=True) for name in STAGES),
    _case("trl", "float64", "three"),
    _case("trl", "float32", "constant", quick=True),
    _case("mixed", "float32", "unscored", quick=True),
    _case("trl", "float64", "unscored"),
    _case("trl", "float32", "found-pairs"),  # caught max(n − ddof, 2): two members less ddof 1 leave one
    _case("no-epsilon", "float64", "found-tiny"),  # caught a 1 for the smallest reward, where all are far smaller
    _case("no-epsilon", "float64", "found-one-scored"),  # caught 0/0 where nothing varies and no ε is added
    _case("mixed", "float64", "found-unscored-alone"),  # caught an uninitialised result where nothing is scored
)


def _rounded(x: Mapping[str, Any]) -> dict[str, Any]:
    """Return the op's inputs with each ε rounded to the data's dtype."""
    rounded = {name: float(x["rewards"].dtype.type(x[name])) for name in ("group_eps", "batch_eps")}
    return {name: value for name, value in x.items() if name != "layouts"} | rounded


def _unlike_the_sum(t: Draw) -> Iterator[Evidence]:
    """Require that the z-score of the plain sum differs."""
    summed = np.nansum(t.inputs["rewards"].astype(np.float64) * t.inputs["weights"], axis=1)
    if len(summed) > 1:
        want = t.want(NORMALISE_THEN_SUM, **_rounded(t.inputs))
        distance = np.max(np.abs((summed - summed.mean()) / summed.std() - want))
        yield t.precondition("largest distance to the z-score of the plain sum", distance, ">=", 0.1)


@gate(
    "advantages.normalise-then-sum",
    name="normalise_then_sum",
    level="definition",
    question="Is each reward function normalised in its group, and then their weighted sum over the batch?",
    why="Summed first, a reward function with large numbers drowns the others; two deviations are two conventions each.",
    ops=(NORMALISE_THEN_SUM,),
    cases=CASES,
    bounds=BOUNDS,
    requires=_unlike_the_sum,
    probes=(Probe("normalise_then_sum", ("advantages",)),),
)
def normalise_then_sum(t: Trial) -> Iterator[Evidence]:
    """Compare the advantages of three reward functions of different magnitudes with the definition."""
    inputs = dict(t.inputs)
    in_layouts = inputs.pop("layouts", False)
    dtype, rounded = str(inputs["rewards"].dtype), _rounded(t.inputs)
    want = t.want(NORMALISE_THEN_SUM, **rounded)
    scale = 2 * UNIT[dtype] * oracle.normalise_then_sum_scale(**rounded)
    quantity = f"advantage error in 2u·S ({dtype})"
    limits = t.textbook(NORMALISE_THEN_SUM, **inputs)["advantages"]
    yield from t.agrees(quantity, t.got(NORMALISE_THEN_SUM, **inputs)["advantages"], want, limits, scale=scale)
    if in_layouts:
        for where, got in layouts.values(t, NORMALISE_THEN_SUM, inputs, ("rewards",)):
            yield from t.agrees(quantity, got["advantages"], want, limits, scale=scale, where=where)
