"""Are importance ratios, off-policy corrections and their statistics those of their definitions?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families import layouts
from gates.families.ratio.op import IMPORTANCE_RATIO, IMPORTANCE_WEIGHTS, RATIO_STATISTICS
from gates.families.units import UNIT
from gates.model import Array, Bound, Case, Evidence, Probe, SubjectFaultError, Trial
from gates.registry import gate
from reference.oracle import ratio
from reference.oracle.statistics import SHARES

DTYPES = ("float32", "float64")
FORMS = ("whole", "masked", "holes", "prefix", "wider", "flat")
ROUNDING = (
    "k·2u·S with S = |value|, of sequences |r|(1 + u·Σ|d|): differences without error, sums in float64 or compensated"
)


def _bounds(quantity: str) -> dict[str, Bound]:
    return {
        f"{quantity} error in 2u·S ({dtype})": Bound("derived", f"{ROUNDING}; k = {k:g}", k)
        for dtype, k in (("float32", 4.0), ("float64", 8.0))
    }


def _pair(
    rng: np.random.Generator, form: str, dtype: str, spread: float, *, rows: int = 7, drift: float = 0.0
) -> dict[str, Any]:
    """Return two policies' log-probs of rows of up to 31 tokens, one of them empty, NaN in masked slots.

    The sum of a row's differences runs from -drift to drift over the rows, besides what `spread` adds to each token.
    """
    tokens = 31
    lengths = rng.integers(1, tokens + 1, rows)
    lengths[2], lengths[4], lengths[-1] = 0, tokens, tokens
    mask = np.arange(tokens) < lengths[:, None]
    if form == "holes":
        mask &= rng.random(mask.shape) < 0.6
        mask[4, ::2] = True
    first = -rng.gamma(1.5, 0.8, mask.shape)
    along = np.roll(np.linspace(-drift, drift, rows), rows // 2)  # at both ends the weights that no bound stops
    along /= np.maximum(mask.sum(axis=1), 1)
    second = first - rng.normal(0.0, spread, mask.shape) - along[:, None]
    pair = [x.astype(dtype) for x in (first, second)]
    if form == "flat":
        return {"pair": [x[mask] for x in pair], "mask": None, "lengths": lengths}
    if form == "whole":
        return {"pair": pair, "mask": None, "lengths": None}
    poisoned = [np.where(mask, x, np.nan).astype(dtype) for x in pair]
    by_length = form in {"prefix", "wider"}
    if form == "wider":  # a column behind the longest row, so that it is not the width
        poisoned = [np.pad(x, ((0, 0), (0, 1)), constant_values=np.nan) for x in poisoned]
    return {
        "pair": poisoned,
        "mask": None if by_length else mask,
        "lengths": lengths if by_length else None,
    }


def _ratio_case(rng: np.random.Generator, form: str, dtype: str, level: str, spread: float) -> dict[str, Any]:
    drawn = _pair(rng, form, dtype, spread)
    policy, old = drawn.pop("pair")
    return {"policy": policy, "old": old, "level": level, **drawn}


@gate(
    "ratio.matches-definition",
    name="importance_ratio",
    question="Is the importance ratio exp of policy − old: of a token, of a sequence's mean, of its sum?",
    why="A sum for a mean turns a ratio of 1.1 per token into 20 for a row; rounding D costs 8 ulp at |D| = 10.",
    ops=(IMPORTANCE_RATIO,),
    cases=tuple(
        Case(
            f"{level}-{form}-{size}-{dtype}",
            partial(_ratio_case, form=form, dtype=dtype, level=level, spread=spread),
            quick=form in {"holes", "flat"} and size != "near",
            conventions={"level": level, "dtype": dtype},
        )
        for level, form, dtype, (size, spread) in product(
            ("token", "seq_mean", "seq_sum"), FORMS, DTYPES, (("near", 0.1), ("far", 4.0), ("huge", 25.0))
        )
    ),
    bounds=_bounds("ratio"),
    probes=(Probe("importance_ratio", ("ratio",)),),
)
def ratio_matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare every ratio, also in other memory layouts."""
    inputs = dict(t.inputs)
    wanted = t.want(IMPORTANCE_RATIO, **inputs)
    dtype = str(inputs["policy"].dtype)
    moved = _moved(inputs["policy"], inputs["old"])
    yield t.precondition("largest |policy − old|", np.abs(moved).max(), ">=", 0.1, "a ratio of 1 hides every ratio")
    yield t.precondition("tokens", moved.size, ">=", 30, "one token hides the difference of mean and sum")
    scale = 2 * UNIT[dtype] * ratio.ratio_scale(**inputs, u=UNIT[dtype])
    scale, wanted = _storable(scale, wanted, dtype)
    got = t.got(IMPORTANCE_RATIO, **inputs)["ratio"]
    yield t.within(f"ratio error in 2u·S ({dtype})", got, wanted, scale=scale)
    for where, other in layouts.values(t, IMPORTANCE_RATIO, inputs, ("policy", "old")):
        yield t.within(f"ratio error in 2u·S ({dtype})", other["ratio"], wanted, scale=scale, where=where)


def _moved(left: Array, right: Array) -> Array:
    difference = np.abs(left.astype(np.float64) - right)
    return difference[np.isfinite(difference)]


def _storable(scale: Array, wanted: Array, dtype: str) -> tuple[Array, Array]:
    """Allow what the dtype cannot hold: fewer bits below its normal range, infinity above it."""
    info = np.finfo(dtype)
    with np.errstate(over="ignore"):
        stored = np.where(wanted > float(info.max), np.inf, wanted)
    return np.where(wanted > 0.0, np.maximum(scale, 2 * UNIT[dtype] * float(info.tiny)), scale), stored


def _weights_case(
    rng: np.random.Generator,
    form: str,
    dtype: str,
    choice: Mapping[str, Any],
    unrecorded: bool,  # noqa: FBT001  a keyword of partial
) -> dict[str, Any]:
    by_token = choice["level"] == "token"
    drawn = _pair(rng, form, dtype, 1.0 if by_token else 0.05, rows=24, drift=0.0 if by_token else 3.0)
    old, sampling = drawn.pop("pair")
    same = rng.random(old.shape) < 0.15
    sampling = np.where(same, old, sampling)  # Δ = 0, so that the ratio is exactly 1
    if unrecorded:
        sampling = np.where(rng.random(old.shape) < 0.2, np.nan, sampling)
    return {"old": old, "sampling": sampling.astype(dtype), **choice, **drawn}


BOUNDS_OF = {"one-sided": (None, 1.5), "two-sided": (0.5, 2.0), "from-one": (1.0, 3.0), "to-one": (0.25, 1.0)}


def _weights_cases() -> Iterator[Case]:
    for correction, level, (name, (low, high)), form, dtype in product(
        ("tis", "mis"), ("token", "seq_sum"), BOUNDS_OF.items(), ("masked", "holes", "flat"), DTYPES
    ):
        choice = {"correction": correction, "level": level, "c_min": low, "c_max": high}
        for unrecorded in (False, True):
            yield Case(
                f"{correction}-{level}-{name}-{form}-{dtype}{'-unrecorded' if unrecorded else ''}",
                partial(_weights_case, form=form, dtype=dtype, choice=choice, unrecorded=unrecorded),
                quick=form == "holes" and dtype == "float32",
                conventions={"correction": correction, "level": level, "dtype": dtype},
            )


@gate(
    "weights.matches-definition",
    name="importance_weights",
    question="Are TIS and MIS weights exp(old − sampling), clamped or dropped at their bounds, 1 where nothing was recorded?",
    why="A bound that is exclusive, one-sided or missing keeps the weight that it exists to hold back.",
    ops=(IMPORTANCE_WEIGHTS,),
    cases=tuple(_weights_cases()),
    bounds=_bounds("weight"),
    probes=(Probe("importance_weights", ("weights",)),),
)
def weights_match_definition(t: Trial) -> Iterator[Evidence]:
    """Compare weights; at a bound of MIS that only rounding reaches, the ratio and 0 are both right."""
    inputs = dict(t.inputs)
    dtype = inputs["old"].dtype
    rounded = {k: None if inputs[k] is None else float(dtype.type(inputs[k])) for k in ("c_min", "c_max")}
    wanted = t.want(IMPORTANCE_WEIGHTS, **{**inputs, **rounded})
    pair: dict[str, Any] = {
        "policy": inputs["old"],
        "old": ratio.recorded(inputs["old"], inputs["sampling"]),
        "mask": inputs["mask"],
        "lengths": inputs["lengths"],
    }
    r = ratio.importance_ratio(**pair, level=inputs["level"])
    bounds = tuple(bound for bound in rounded.values() if bound is not None)
    mis = inputs["correction"] == "mis"
    near = ratio.near_bound(r, bounds, dtype) & (r != 1.0) if mis else np.zeros(r.shape, bool)
    yield t.precondition("largest ratio against the upper bound", r.max() / bounds[-1], ">", 1.0)
    if len(bounds) > 1:
        yield t.precondition("smallest ratio against the lower bound", r[r > 0.0].min() / bounds[0], "<", 1.0)
    yield t.precondition("share of ratios at a bound", near.mean(), "<", 0.01)
    got = t.got(IMPORTANCE_WEIGHTS, **inputs)["weights"]
    if got.shape != wanted.shape:
        raise SubjectFaultError("shape", f"weights have shape {got.shape}, must be {wanted.shape}")
    scale = 2 * UNIT[str(dtype)] * ratio.ratio_scale(**pair, level=inputs["level"], u=UNIT[str(dtype)])
    off = np.where(near & ((got == 0.0) | (np.abs(got - r) <= 8.0 * scale)), wanted, got)
    yield t.within(f"weight error in 2u·S ({dtype})", off, wanted, scale=scale)


def _statistics_case(
    rng: np.random.Generator,
    form: str,
    dtype: str,
    spread: float,
    signs: bool,  # noqa: FBT001  a keyword of partial
) -> dict[str, Any]:
    rows = 24
    drawn = _pair(rng, form, dtype, spread, rows=rows)
    policy, behaviour = drawn.pop("pair")
    return {
        "policy": policy,
        "behaviour": behaviour,
        "epsilon_low": 0.2,
        "epsilon_high": 0.28,
        "advantages": np.resize(np.array([1.1, -0.6, 0.4, -1.3, 0.0], dtype), rows) if signs else None,
        **drawn,
    }


@gate(
    "statistics.match-definition",
    name="ratio_statistics",
    question="Are the statistics of importance ratios, per token and per sequence, those of their definitions?",
    why="They are what tells a healthy step from one that has left its policy; k3 of −D reads 1e-3 where 0.4 is true.",
    ops=(RATIO_STATISTICS,),
    cases=tuple(
        Case(
            f"{form}-{size}-{dtype}{'' if signs else '-without-advantages'}",
            partial(_statistics_case, form=form, dtype=dtype, spread=spread, signs=signs),
            quick=form in {"holes", "flat"},
            conventions={"dtype": dtype},
        )
        for form, dtype, (size, spread), signs in product(
            FORMS, DTYPES, (("near", 0.02), ("typical", 0.25), ("far", 2.0)), (True, False)
        )
    ),
    bounds={
        **_bounds("statistic"),
        "share error beyond ratios at a bound": Bound("derived", "a share is a count over n: one rounding", 2.0**-52),
        "clipped shares without advantages": Bound("exact", "without advantages nobody knows what a clip stops", 0.0),
    },
    probes=(Probe("ratio_statistics", tuple(RATIO_STATISTICS.outputs)),),
)
def statistics_match_definition(t: Trial) -> Iterator[Evidence]:
    """Compare every statistic by name, each in the unit of its own error."""
    inputs = dict(t.inputs)
    dtype = inputs["policy"].dtype
    rounded = {k: float(dtype.type(inputs[k])) for k in ("epsilon_low", "epsilon_high")}
    wanted = t.want(RATIO_STATISTICS, **{**inputs, **rounded})
    moved = _moved(inputs["policy"], inputs["behaviour"])
    yield t.precondition("tokens", moved.size, ">=", 100, "a percentile of few values is their largest")
    if moved.max() > 0.5:
        high, low = wanted.values["outside_high"], wanted.values["outside_low"]
        yield t.precondition("share of ratios outside the clip range", min(high, low), ">", 0.0)
    got = t.got(RATIO_STATISTICS, **inputs)
    if inputs["advantages"] is None:
        extra = sum(name in got for name in got if "clipped" in name)
        yield t.number("clipped shares without advantages", extra, "<=")
    for name, want in wanted.values.items():
        value = float(got.get(name, np.nan))
        if name.removeprefix("seq_sum_") in SHARES:
            off = abs(value - want) - wanted.near[name]
            off = max(off, 0.0) if off == off else off  # noqa: PLR0124  NaN stays
            yield t.number("share error beyond ratios at a bound", off, "<=", where=name)
            continue
        scale = 2 * UNIT[str(dtype)] * wanted.scales[name]
        yield t.within(f"statistic error in 2u·S ({dtype})", value, want, scale=scale, where=name)
