"""Are the statistics of importance ratios those of their definitions?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from gates.families import layouts
from gates.families.ratio.gates.pairs import FORMS, bounds, moved, pair
from gates.families.ratio.op import RATIO_STATISTICS
from gates.families.units import UNIT
from gates.model import Bound, Case, Draw, Evidence, Probe, Trial
from gates.registry import gate
from gates_reference.oracle.statistics import SHARES, Statistics

SPREADS = {"near": 0.02, "typical": 0.25, "far": 1.0, "hostile": 0.25}  # nats
ROWS = 16  # of up to 31 tokens
BEYOND = "share error beyond ratios at a bound"
UNASKED = "clipped shares without advantages"


def _make(
    rng: np.random.Generator,
    form: str,
    size: str,
    dtype: str,
    signs: bool,  # noqa: FBT001  a keyword of partial
) -> dict[str, Any]:
    names = ("policy", "behaviour")
    drawn = pair(rng, names, form, dtype, SPREADS[size], rows=ROWS, hostile=size == "hostile")
    if size == "near":  # else χ² is 0 by chance, and a plain exp(2D) − 1 has no digit left
        policy, behaviour = (drawn[name] for name in names)
        where = np.ones(policy.shape, bool) if drawn["mask"] is None else drawn["mask"]
        drawn["policy"] = (policy - (policy.astype(np.float64) - behaviour)[where].mean()).astype(dtype)
    advantages = np.resize(np.array([1.1, -0.6, 0.4, -1.3, 0.0], dtype), ROWS) if signs else None
    return {**drawn, "epsilon_low": 0.2, "epsilon_high": 0.28, "advantages": advantages}


def _one_token(rng: np.random.Generator, dtype: str) -> dict[str, Any]:
    """Return a batch of one token, which is its own percentile."""
    inputs = _make(rng, "whole", "typical", dtype, signs=False)
    return {**inputs, **{name: inputs[name][:1, :1] for name in ("policy", "behaviour")}}


def _far_below(rng: np.random.Generator, dtype: str) -> dict[str, Any]:
    """Return rows of one token whose ratios are below e^-400, so that their squares underflow."""
    inputs = _make(rng, "whole", "typical", dtype, signs=False)
    behaviour = np.resize(inputs["behaviour"], (128, 1))
    return {
        **inputs,
        "behaviour": behaviour,
        "policy": behaviour - np.asarray(rng.uniform(400.0, 700.0, behaviour.shape), dtype),
    }


def _far_sequence(rng: np.random.Generator, dtype: str) -> dict[str, Any]:
    """Return one row of 128 tokens with ΣD near −570, whose rounding is 5e-14."""
    inputs = _make(rng, "whole", "typical", dtype, signs=False)
    behaviour = np.resize(inputs["behaviour"], (1, 128))
    return {
        **inputs,
        "behaviour": behaviour,
        "policy": behaviour - np.asarray(rng.uniform(4.0, 5.0, behaviour.shape), dtype),
    }


def _far_apart(rng: np.random.Generator, dtype: str) -> dict[str, Any]:
    """Return rows of one token whose ratios and squares do not overflow, but their quotients do."""
    inputs = _far_below(rng, dtype)
    far = rng.uniform(300.0, 350.0, inputs["behaviour"].shape)
    far[::2] = -rng.uniform(420.0, 460.0, far[::2].shape)
    return {**inputs, "policy": inputs["behaviour"] + np.asarray(far, dtype)}


def _case(form: str, size: str, dtype: str, *, signs: bool = True, quick: bool = False) -> Case:
    return Case(
        f"sixteen-rows-{form}-{size}-{dtype}{'' if signs else '-without-advantages'}",
        partial(_make, form=form, size=size, dtype=dtype, signs=signs),
        quick=quick,
        level="hardening" if size == "hostile" else None,
        conventions={"dtype": dtype},
    )


def _cases() -> Iterator[Case]:
    for form in FORMS:
        yield _case(form, "typical", "float32", quick=form in {"holes", "flat"})
    for size in ("near", "far"):
        yield _case("holes", size, "float32", quick=True)
        yield _case("holes", size, "float64")
    yield _case("holes", "typical", "float32", signs=False, quick=True)
    yield _case("masked", "hostile", "float32", quick=True)
    yield _case("masked", "hostile", "float64")
    # caught ratios that are not divided by their largest, and an error of D added to r² − 1 for every r
    far = partial(_far_below, dtype="float64")
    yield Case("found-far-below-float64", far, level="hardening", conventions={"dtype": "float64"})
    # caught an error of ΣD added to r² − 1, or multiplied by D, for every r
    far = partial(_far_sequence, dtype="float64")
    yield Case("found-far-sequence-float64", far, level="hardening", conventions={"dtype": "float64"})
    # caught ratios that are divided by their smallest
    far = partial(_far_apart, dtype="float64")
    yield Case("found-far-apart-float64", far, level="hardening", conventions={"dtype": "float64"})
    # caught a percentile that reads past the only value
    yield Case("found-one-token-float32", partial(_one_token, dtype="float32"), conventions={"dtype": "float32"})


def _wanted(t: Draw) -> Statistics:
    dtype = t.inputs["policy"].dtype
    rounded = {k: float(dtype.type(t.inputs[k])) for k in ("epsilon_low", "epsilon_high")}
    statistics: Statistics = t.want(RATIO_STATISTICS, **{**t.inputs, **rounded})
    return statistics


def _preconditions(t: Draw) -> Iterator[Evidence]:
    policy = t.inputs["policy"]
    difference = moved(policy, t.inputs["behaviour"])
    if policy.size > 1:
        yield t.precondition("tokens", difference.size, ">=", 100, "a percentile of few values is their largest")
    if difference.max() > 0.5 and min(policy.shape) > 1:
        values = _wanted(t).values
        outside = min(values["outside_high"], values["outside_low"])
        yield t.precondition("share of ratios outside the clip range", outside, ">", 0.0)


@gate(
    "statistics.match-definition",
    name="ratio_statistics",
    level="definition",
    question="Are the statistics of importance ratios, per token and per sequence, those of their definitions?",
    why="They are what tells a healthy step from one that has left its policy; k3 of −D reads 1e-3 where 0.4 is true.",
    ops=(RATIO_STATISTICS,),
    cases=tuple(_cases()),
    bounds={
        **bounds("statistic"),
        BEYOND: Bound("derived", "a share is a count over n: one rounding", 2.0**-52, level="precision"),
        UNASKED: Bound("exact", "without advantages nobody knows what a clip stops", 0.0, level="robustness"),
    },
    requires=_preconditions,
    probes=(Probe("ratio_statistics", tuple(RATIO_STATISTICS.outputs)),),
)
def statistics_match_definition(t: Trial) -> Iterator[Evidence]:
    """Compare every statistic in textbook limits and in the unit of its own error."""
    inputs, want = dict(t.inputs), _wanted(t)
    got = t.got(RATIO_STATISTICS, **inputs)
    if inputs["advantages"] is None:
        extra = sum(name in got for name in got if "clipped" in name)
        yield t.number(UNASKED, extra, "<=")
    yield from _compared(t, got, want)
    if np.isnan(inputs["policy"]).any():
        for where, outputs in layouts.values(t, RATIO_STATISTICS, inputs, ("policy", "behaviour")):
            yield from _compared(t, outputs, want, where)


def _compared(t: Trial, got: dict[str, Any], wanted: Statistics, where: str = "") -> Iterator[Evidence]:
    dtype = str(t.inputs["policy"].dtype)
    limits = t.textbook(RATIO_STATISTICS, **t.inputs)
    quantity = f"statistic error in 2u·S ({dtype})"
    for name, want in wanted.values.items():
        value, location = float(got.get(name, np.nan)), f"{name}, {where}" if where else name
        if name.removeprefix("seq_sum_") in SHARES:
            yield from t.agrees(quantity, value, want, limits[name], where=location)
            off = abs(value - want) - wanted.near[name]
            off = max(off, 0.0) if off == off else off  # noqa: PLR0124  NaN stays
            yield t.number(BEYOND, off, "<=", where=location)
            continue
        scale = 2 * UNIT[dtype] * wanted.scales[name]
        yield from t.agrees(quantity, value, want, limits[name], scale=scale, where=location)
