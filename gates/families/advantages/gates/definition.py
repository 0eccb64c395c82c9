"""Do group advantages follow the definition, under every convention that the field uses?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families import arrays, layouts
from gates.families.advantages.gates.inputs import (
    BOUNDS,
    DTYPES,
    OF_GROUP,
    OPTIONAL,
    PRESETS,
    UNSCALED,
    case,
    least_spread,
    rewards,
)
from gates.families.advantages.op import GROUP_ADVANTAGES
from gates.families.units import UNIT
from gates.model import Array, Case, Draw, Evidence, Level, Probe, Trial
from gates.registry import gate
from gates_reference.oracle import advantages as oracle

EPSILON = {"add": 1e-4, "inside": 1e-8, "threshold": 1e-8}  # TRL's, mlxrl's and rlox's constants
OTHER_EPS = {  # which libraries have besides
    "add": (1e-8, 1e-6, 1e-5),
    "inside": (1e-6, 1e-5, 1e-4),
    "threshold": (1e-6, 1e-5, 1e-4),
    "floor": (1e-8, 1e-6, 1e-4),
    "threshold-add": (1e-8, 1e-6, 1e-4),
}
BASELINES = (*OF_GROUP, *OPTIONAL["baseline"])
ACTING = 0.0625  # a threshold above the deviation of every fourth group
QUICK = {"group-mean-add-ddof1", "group-mean-inside-ddof0", "batch-mean-threshold-ddof0", "none-leave-one-out"}
IN_FLOAT64 = ("trl", "rlox", "mlxrl", "batch", "dr-grpo", "rloo")
OFFSET = ("trl", "rlox", "mlxrl", "rloo")


def _conventions() -> Iterator[tuple[str, dict[str, Any]]]:
    for baseline in ("mean", "leave-one-out"):
        yield f"none-{baseline}", {**UNSCALED, "baseline": baseline}
        for scale, ddof, mode in product(("group", "batch"), (0, 1), EPSILON):
            choice = {"scale": scale, "ddof": ddof, "eps": EPSILON[mode], "eps_mode": mode, "baseline": baseline}
            yield f"{scale}-{baseline}-{mode}-ddof{ddof}", choice


def _of_batch() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield conventions with another baseline than the group's, for subjects that declare it."""
    for baseline in ("batch", "none"):
        yield f"none-{baseline}", {**UNSCALED, "baseline": baseline}
        yield f"batch-{baseline}-inside-ddof0", {**PRESETS["mlxrl"], "scale": "batch", "baseline": baseline}
        yield f"batch-{baseline}-add-ddof1", {**PRESETS["batch"], "baseline": baseline}
    whitened = {**PRESETS["mlxrl"], "scale": "batch", "ddof": 1, "baseline": "batch"}
    yield "batch-batch-inside-ddof1", whitened  # masked_whiten of verl, which other libraries have copied


def _ordinary(rng: np.random.Generator, choice: Mapping[str, Any], *, dtype: str) -> dict[str, Any]:
    return {"rewards": rewards(rng, groups=12, size=8, dtype=dtype), "group_size": 8, **choice}


def _in_layouts(rng: np.random.Generator, choice: Mapping[str, Any], *, dtype: str) -> dict[str, Any]:
    return {**_ordinary(rng, choice, dtype=dtype), "layouts": True}


def _offset(rng: np.random.Generator, choice: Mapping[str, Any], *, dtype: str) -> dict[str, Any]:
    return {"rewards": arrays.rewards(rng, groups=12, size=8, dtype=dtype), "group_size": 8, **choice}


MAKERS: Mapping[Level | None, Any] = {None: _ordinary, "hardening": _in_layouts, "precision": _offset}


def _case(name: str, choice: Mapping[str, Any], dtype: str, *, quick: bool = False, level: Level | None = None) -> Case:
    return case(f"{name}-{dtype}", partial(MAKERS[level], dtype=dtype), choice, dtype, quick=quick, level=level)


def _follows(groups: int, size: int, dtype: str) -> Case:
    """Return a case that every subject is asked in the choices that it declares."""

    def make(rng: np.random.Generator, choice: Mapping[str, Any]) -> dict[str, Any]:
        return {"rewards": rewards(rng, groups=groups, size=size, dtype=dtype), "group_size": size, **choice}

    return case(f"as-declared-{groups}x{size}-{dtype}", make, PRESETS["trl"], dtype, follows=BASELINES)


def _cases() -> Iterator[Case]:
    for name, choice in _conventions():
        yield _case(name, choice, "float32", quick=name in QUICK)
    for ddof in (0, 1):
        acting = {"scale": "group", "ddof": ddof, "eps": ACTING, "eps_mode": "threshold", "baseline": "mean"}
        yield _case(f"acting-threshold-ddof{ddof}", acting, "float32", quick=ddof == 0)
    yield _case("verl", PRESETS["verl"], "float32", quick=True)
    yield from (_follows(groups, size, "float32") for groups, size in ((8, 4), (12, 2), (1, 8), (4, 16)))
    yield _follows(8, 5, "float64")
    for ddof, (mode, sizes) in product((0, 1), OTHER_EPS.items()):
        for eps in sizes:
            choice = {"scale": "group", "ddof": ddof, "eps": eps, "eps_mode": mode, "baseline": "mean"}
            yield _case(f"group-mean-{mode}-{eps:g}-ddof{ddof}", choice, "float32")
    for name in IN_FLOAT64:
        yield _case(name, PRESETS[name], "float64", quick=name == "rlox")
    for name, choice in _of_batch():
        yield _case(name, choice, "float32", quick=name == "batch-batch-add-ddof1")
        if choice["scale"] == "none":
            yield _case(name, choice, "float64")
    for dtype in DTYPES:
        yield _case("layouts", PRESETS["trl"], dtype, quick=dtype == "float32", level="hardening")
        for name in OFFSET:  # includes rewards around 1000 that differ by hundredths
            yield _case(f"offset-{name}", PRESETS[name], dtype, quick=name == "trl", level="precision")


def _preconditions(t: Draw) -> Iterator[Evidence]:
    inputs = {name: value for name, value in t.inputs.items() if name != "layouts"}
    want = t.want(GROUP_ADVANTAGES, **inputs)
    yield t.precondition("largest |advantage|", np.max(np.abs(want)), ">", 0.1, "zeros agree with zeros")
    if np.max(np.abs(inputs["rewards"])) < 100.0:  # no offset
        least = least_spread(inputs["rewards"], inputs["group_size"])
        yield t.precondition("least deviation of a group over its largest |reward|", least, ">=", 0.1)
    if inputs["eps"] == ACTING:
        yield t.precondition("advantages that the threshold makes 0", int(np.sum(want == 0.0)), ">=", 8)


@gate(
    "advantages.matches-definition",
    name="group_advantages",
    level="definition",
    question="Are group advantages those of the definition, in the convention that was asked for?",
    why="Conventions differ by 15.5% at G = 4; a swapped group and batch deviation trains on another objective.",
    ops=(GROUP_ADVANTAGES,),
    cases=tuple(_cases()),
    bounds=BOUNDS,
    requires=_preconditions,
    probes=(Probe("group_advantages", ("advantages",)),),
)
def matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare every element with the definition, in textbook limits and in units of its rounding scale."""
    inputs = dict(t.inputs)
    in_layouts = inputs.pop("layouts", False)
    want = t.want(GROUP_ADVANTAGES, **inputs)
    dtype = str(inputs["rewards"].dtype)
    quantity, scale = f"advantage error in 2u·S ({dtype})", scale_of(inputs)
    limits = t.textbook(GROUP_ADVANTAGES, **inputs)["advantages"]
    got = t.got(GROUP_ADVANTAGES, **inputs)["advantages"]
    yield from t.agrees(quantity, got, want, limits, scale=scale)
    if in_layouts:
        for where, outputs in layouts.values(t, GROUP_ADVANTAGES, inputs, ("rewards",)):
            yield from t.agrees(quantity, outputs["advantages"], want, limits, scale=scale, where=where)


def scale_of(inputs: Mapping[str, Any]) -> Array:
    """Return 2u·S of each advantage, float64 (B,)."""
    unit = 2 * UNIT[str(inputs["rewards"].dtype)]
    return np.asarray(unit * oracle.advantage_scale(**inputs))
