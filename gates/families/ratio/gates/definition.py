"""Is the importance ratio that of its definition, of tokens and of sequences?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families import layouts
from gates.families.ratio.gates.pairs import DTYPES, FORMS, bounds, moved, pair
from gates.families.ratio.op import IMPORTANCE_RATIO
from gates.families.units import UNIT
from gates.model import Array, Bound, Case, Draw, Evidence, Level, Probe, Trial
from gates.registry import gate
from gates_reference.oracle import ratio

LEVELS = ("token", "seq_mean", "seq_sum")
SPREADS = {"typical": 0.3, "apart": 1.0, "hostile": 0.3, "distant": 25.0}  # nats
NOT_INFINITE = "overflowing ratios that are not +∞"


def _make(rng: np.random.Generator, level: str, form: str, size: str, dtype: str) -> dict[str, Any]:
    drawn = pair(rng, ("policy", "old"), form, dtype, SPREADS[size], hostile=size == "hostile")
    return {**drawn, "level": level}


def _case(level: str, form: str, size: str, dtype: str, *, asks: Level | None = None, quick: bool = False) -> Case:
    return Case(
        f"{level}-{form}-{size}-{dtype}",
        partial(_make, level=level, form=form, size=size, dtype=dtype),
        quick=quick,
        level=asks,
        conventions={"level": level, "dtype": dtype},
    )


def _cases() -> Iterator[Case]:
    for level, form in product(LEVELS, FORMS):
        yield _case(level, form, "typical", "float32", quick=form in {"holes", "flat"})
    for level in LEVELS:
        yield _case(level, "holes", "apart", "float32", quick=True)
        yield _case(level, "holes", "typical", "float64", quick=True)
        for dtype in DTYPES:
            quick = dtype == "float32"
            yield _case(level, "masked", "hostile", dtype, asks="hardening", quick=quick)
            yield _case(level, "holes", "distant", dtype, asks="hardening", quick=not quick)
    for form in ("wider", "flat"):
        yield _case("seq_mean", form, "hostile", "float32", asks="hardening")


def _preconditions(t: Draw) -> Iterator[Evidence]:
    difference = moved(t.inputs["policy"], t.inputs["old"])
    yield t.precondition("largest |policy − old|", difference.max(), ">=", 0.1, "a ratio of 1 hides every ratio")
    yield t.precondition("tokens", difference.size, ">=", 30, "one token hides the difference of mean and sum")


@gate(
    "ratio.matches-definition",
    name="importance_ratio",
    level="definition",
    question="Is the importance ratio exp of policy − old: of a token, of a sequence's mean, of its sum?",
    why="A sum for a mean turns a ratio of 1.1 per token into 20 for a row; rounding D costs 8 ulp at |D| = 10.",
    ops=(IMPORTANCE_RATIO,),
    cases=tuple(_cases()),
    bounds={**bounds("ratio"), NOT_INFINITE: Bound("exact", "overflow is +∞, never NaN and never clamped", 0.0)},
    requires=_preconditions,
    probes=(Probe("importance_ratio", ("ratio",)),),
)
def ratio_matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare every ratio; inputs with NaN in masked slots also in other memory layouts."""
    inputs = dict(t.inputs)
    want = t.want(IMPORTANCE_RATIO, **inputs)
    dtype = str(inputs["policy"].dtype)
    scale = 2 * UNIT[dtype] * ratio.ratio_scale(**inputs, u=UNIT[dtype])
    scale, stored = _storable(scale, want, dtype)
    limits, quantity = t.textbook(IMPORTANCE_RATIO, **inputs)["ratio"], f"ratio error in 2u·S ({dtype})"
    got = t.got(IMPORTANCE_RATIO, **inputs)["ratio"]
    yield from t.agrees(quantity, got, stored, limits, scale=scale)
    overflows = want > 1.01 * float(np.finfo(dtype).max)  # by more than the rounding of D
    if np.any(overflows):
        right = np.isposinf(got) | np.isclose(got, want, rtol=1e-3)  # finite in a wider dtype
        yield t.number(NOT_INFINITE, int(np.sum(overflows & ~right)), "<=")
    if np.isnan(inputs["policy"]).any():
        for where, outputs in layouts.values(t, IMPORTANCE_RATIO, inputs, ("policy", "old")):
            yield from t.agrees(quantity, outputs["ratio"], stored, limits, scale=scale, where=where)


def _storable(scale: Array, want: Array, dtype: str) -> tuple[Array, Array]:
    """Return scale and values that the dtype can hold: fewer bits below its normal range, infinity above it."""
    info = np.finfo(dtype)
    with np.errstate(over="ignore"):
        stored = np.where(want > float(info.max), np.inf, want)
    return np.where(want > 0.0, np.maximum(scale, 2 * UNIT[dtype] * float(info.tiny)), scale), stored
