"""Are the weights of off-policy corrections those of their definition?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families import layouts
from gates.families.ratio.gates.pairs import bounds, pair
from gates.families.ratio.op import IMPORTANCE_WEIGHTS, NAN_UNRECORDED
from gates.families.units import UNIT
from gates.model import Array, Case, Draw, Evidence, Level, Probe, SubjectFaultError, Trial
from gates.registry import gate
from gates_reference.oracle import ratio

BOUNDS_OF = {"one-sided": (None, 1.5), "two-sided": (0.5, 2.0), "from-one": (1.0, 3.0), "to-one": (0.25, 1.0)}
KINDS = tuple(product(("tis", "mis"), ("token", "seq_sum")))
ASKED: Mapping[str, Level] = {"hostile": "hardening", "unrecorded": "rule"}


def _make(rng: np.random.Generator, form: str, dtype: str, choice: Mapping[str, Any], kind: str) -> dict[str, Any]:
    by_token, hostile = choice["level"] == "token", kind == "hostile"
    spread, drift = (1.0, 0.0) if by_token else (0.05, 3.0)
    drawn = pair(rng, ("old", "sampling"), form, dtype, spread, rows=24, drift=drift, hostile=hostile)
    old, sampling = drawn["old"], drawn["sampling"]
    same = rng.random(old.shape) < 0.15
    sampling = np.where(same, old, sampling)  # Δ = 0, so that the ratio is exactly 1
    if kind == "unrecorded":
        sampling = np.where(rng.random(old.shape) < 0.2, np.nan, sampling)
    return {**drawn, "sampling": sampling.astype(dtype), **choice}


def _case(kind: str, correction: str, level: str, bound: str, form: str, dtype: str) -> Case:
    low, high = BOUNDS_OF[bound]
    choice = {"correction": correction, "level": level, "c_min": low, "c_max": high}
    # Only one token is in the last column; at seed 0 [0.5, 2] clamps its weight and hides mistakes, [1, 3] does not.
    quick_bound = "from-one" if (kind, level) == ("typical", "token") else "two-sided"
    return Case(
        f"{kind}-{correction}-{level}-{bound}-{form}-{dtype}",
        partial(_make, form=form, dtype=dtype, choice=choice, kind=kind),
        quick=form == "holes" and dtype == "float32" and bound == quick_bound,
        proof=form == "holes" and dtype == "float32",
        level=ASKED.get(kind),
        conventions={"correction": correction, "level": level, "dtype": dtype},
        declared=NAN_UNRECORDED if kind == "unrecorded" else {},
    )


def _cases() -> Iterator[Case]:
    for correction, level in KINDS:
        for bound in BOUNDS_OF:
            yield _case("typical", correction, level, bound, "holes", "float32")
        for form in ("masked", "flat"):
            yield _case("typical", correction, level, "two-sided", form, "float32")
        yield _case("typical", correction, level, "two-sided", "holes", "float64")
        yield _case("unrecorded", correction, level, "two-sided", "holes", "float32")
        yield _case("hostile", correction, level, "one-sided", "masked", "float32")


def _bounds(x: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bounds rounded to the data's dtype."""
    return {name: None if x[name] is None else float(x["old"].dtype.type(x[name])) for name in ("c_min", "c_max")}


def _pair(x: Mapping[str, Any]) -> dict[str, Any]:
    """Return the oracle's arguments for the unbounded ratio."""
    shared = {name: x[name] for name in ("mask", "lengths", "level")}
    return {"policy": x["old"], "old": ratio.recorded(x["old"], x["sampling"]), **shared}


def _ratios(x: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return the ratios, and which of them are so near a bound of MIS that rounding decides."""
    r = ratio.importance_ratio(**_pair(x))
    stops = tuple(bound for bound in _bounds(x).values() if bound is not None)
    return r, ratio.near_bound(r, stops, x["old"].dtype) & (r != 1.0) & (x["correction"] == "mis")


def _preconditions(t: Draw) -> Iterator[Evidence]:
    (r, near), stops = _ratios(t.inputs), _bounds(t.inputs)
    limits = t.textbook(IMPORTANCE_WEIGHTS, **t.inputs)["weights"]
    yield t.precondition("largest ratio against the upper bound", r.max() / stops["c_max"], ">", 1.0)
    if stops["c_min"] is not None:
        yield t.precondition("smallest ratio against the lower bound", r[r > 0.0].min() / stops["c_min"], "<", 1.0)
    yield t.precondition("share of ratios at a bound", float(np.mean(near | (limits > 0.1 * r))), "<", 0.01)


@gate(
    "weights.matches-definition",
    name="importance_weights",
    level="definition",
    question="Are TIS and MIS weights exp(old − sampling), clamped or dropped at their bounds, 1 where nothing was recorded?",
    why="A bound that is exclusive, one-sided or missing keeps the weight that it exists to hold back.",
    ops=(IMPORTANCE_WEIGHTS,),
    cases=tuple(_cases()),
    bounds=bounds("weight"),
    requires=_preconditions,
    probes=(Probe("importance_weights", ("weights",)),),
)
def weights_match_definition(t: Trial) -> Iterator[Evidence]:
    """Compare weights; within rounding of a bound of MIS both the ratio and 0 are right."""
    inputs, rounded = dict(t.inputs), _bounds(t.inputs)
    dtype = inputs["old"].dtype
    want = t.want(IMPORTANCE_WEIGHTS, **{**inputs, **rounded})
    of_pair, (r, near) = _pair(inputs), _ratios(inputs)
    limits = t.textbook(IMPORTANCE_WEIGHTS, **inputs)["weights"]
    got = t.got(IMPORTANCE_WEIGHTS, **inputs)["weights"]
    if got.shape != want.shape:
        raise SubjectFaultError("shape", f"weights have shape {got.shape}, must be {want.shape}")
    scale = 2 * UNIT[str(dtype)] * ratio.ratio_scale(**of_pair, u=UNIT[str(dtype)])
    quantity = f"weight error in 2u·S ({dtype})"

    def on_a_branch(got: Array) -> Array:
        return np.where(near & ((got == 0.0) | (np.abs(got - r) <= 8.0 * scale)), want, got)

    yield from t.agrees(quantity, on_a_branch(got), want, limits, scale=scale)
    if np.isnan(inputs["old"]).any():
        for where, outputs in layouts.values(t, IMPORTANCE_WEIGHTS, inputs, ("old", "sampling")):
            yield from t.agrees(quantity, on_a_branch(outputs["weights"]), want, limits, scale=scale, where=where)
