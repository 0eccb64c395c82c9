"""Do the KL estimators have the value of their definition, for ordinary and for extreme log-ratios?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families import layouts, row_inputs
from gates.families.kl import inputs as generators
from gates.families.kl.op import FULL_KL, TOKEN_KL
from gates.families.units import UNIT
from gates.model import Bound, Case, Draw, Evidence, Level, Probe, Trial
from gates.registry import gate
from gates_reference.oracle import kl as oracle

TINY = (1e-8, 1e-2)  # |d| from the last bit of a log-prob up to where exp(d) − d − 1 keeps two digits
HUGE = (1e-2, 20.0)  # |d| up to a token that the reference all but excludes
CLAMP = 10.0  # verl's bound on low_var_kl
LARGE = 151_936  # tokens of Qwen's vocabulary
DTYPES = ("float32", "float64")

ROUNDING = "k·2u·S with S = |value| (sums: Σ|terms|): every estimator is positive or one term, so nothing cancels"
BOUNDS = {
    "kl error in 2u·S (float32)": Bound(
        "derived", f"{ROUNDING}; k = 4, d and its exp in float64", 4.0, level="precision"
    ),
    "kl error in 2u·S (float64)": Bound(
        "derived", f"{ROUNDING}; k = 8, with the oracle's own rounding", 8.0, level="precision"
    ),
}


def _case(
    estimator: str,
    rows: str,
    reduction: str,
    dtype: str = "float32",
    *,
    name: str = "",
    make: Callable[..., dict[str, Any]] = generators.batch,
    level: Level | None = None,
    quick: bool = False,
    **changes: Any,
) -> Case:
    """Return a case of `token_kl`; `changes` are keywords of `make`."""
    clamp = changes.get("kl_clamp")
    return Case(
        "-".join(part for part in (name, rows, reduction, dtype) if part),
        partial(make, rows=rows, dtype=dtype, estimator=estimator, reduction=reduction, **changes),
        quick=quick,
        conventions={
            "estimator": estimator,
            "reduction": reduction,
            "dtype": dtype,
            **_arithmetic(dtype),
            "kl_ratio": changes.get("kl_ratio", "none"),
            "kl_clamp": clamp,
            "rows": {"right": "mask", "left": "left-padded"}.get(rows, rows),
        },
        level=level,
        declared={} if clamp is None else {"kl_clamp": clamp},
    )


def _arithmetic(dtype: str) -> dict[str, str]:
    """Return the convention that float64 data requires of programs that compute in float32."""
    return {"arithmetic": "float64"} if dtype == "float64" else {}


def _cases(estimator: str) -> Iterator[Case]:
    case = partial(_case, estimator)
    yield case("right", "none", quick=True)
    yield case("right", "sum", quick=True)
    yield case("left", "sum")
    yield case("holes", "mean", quick=True)
    yield case("lengths", "mean")
    yield case("flat", "none")
    yield case("flat", "sum", quick=True)
    yield case("all", "none")
    yield case("all", "mean")
    yield case("right", "none", "float64", quick=True)
    yield case("flat", "mean", "float64")
    for dtype in DTYPES:
        yield case("right", "none", dtype, name="tiny", level="precision", sizes=TINY, quick=True)
        yield case("flat", "sum", dtype, name="tiny", level="precision", sizes=TINY)
        yield case("right", "none", dtype, name="huge", level="robustness", sizes=HUGE)
    rare = partial(case, level="robustness")
    yield case("right", "none", name="unreadable", make=generators.unreadable, quick=True, level="hardening")
    yield case("right", "sum", name="unreadable", make=generators.unreadable, level="hardening")
    yield rare("right", "mean", name="empty", make=generators.empty, quick=True)
    yield rare("flat", "mean", name="empty", make=generators.empty)
    yield case("right", "none", name="layouts", make=generators.laid_out, quick=True, level="hardening")
    if estimator == "k3":
        clamped = partial(case, name="clamped", spread=3.0, kl_clamp=CLAMP)
        yield clamped("right", "none", quick=True)
        yield clamped("right", "mean")
        yield clamped("flat", "sum", "float64")


def _check(t: Trial) -> Iterator[Evidence]:
    inputs = dict(t.inputs)
    other_layouts = inputs.pop(generators.LAYOUTS, False)
    dtype = str(inputs["policy"].dtype)
    quantity, scale = f"kl error in 2u·S ({dtype})", 2 * UNIT[dtype] * oracle.kl_scale(**inputs)
    want, limits = t.want(TOKEN_KL, **inputs), t.textbook(TOKEN_KL, **inputs)["kl"]
    yield from t.agrees(quantity, t.got(TOKEN_KL, **inputs)["kl"], want, limits, scale=scale)
    if other_layouts:
        for where, outputs in layouts.values(t, TOKEN_KL, inputs, ("policy", "reference")):
            yield from t.agrees(quantity, outputs["kl"], want, limits, scale=scale, where=where)


def _preconditions(t: Draw) -> Iterator[Evidence]:
    inputs = {name: value for name, value in t.inputs.items() if name != generators.LAYOUTS}
    distance = np.abs(inputs["reference"].astype(np.float64) - inputs["policy"])
    counts = row_inputs.tokens(inputs, "policy")
    yield t.precondition("largest |d|", distance[counts].max(), ">=", 0.9 * TINY[1])
    if inputs.get("kl_clamp") is not None:
        free = t.want(TOKEN_KL, **{**inputs, "kl_clamp": None, "reduction": "none"})
        yield t.precondition("estimates beyond the clamp", int(np.sum(np.abs(free) > CLAMP)), ">=", 3)
    if not np.all(counts) and np.all(np.isfinite(distance)):
        yield t.precondition("largest |d| of padding", distance[~counts].max(), ">=", 0.9 * TINY[1])


def _register(estimator: str, formula: str, why: str) -> Callable[[Trial], Iterator[Evidence]]:
    return gate(
        f"kl.{estimator}.matches-definition",
        level="definition",
        name=f"token_kl[{estimator}]",
        question=f"Is {estimator} = {formula}, d = reference − policy, per token and per sequence, for |d| from 1e-8 to 30?",
        why=why,
        ops=(TOKEN_KL,),
        cases=tuple(_cases(estimator)),
        bounds=BOUNDS,
        requires=_preconditions,
        probes=(Probe("token_kl", ("kl",)),),
    )(_check)


_register("k1", "−d", "A swapped sign rewards drift instead of punishing it.")
_register("k2", "d²/2", "A missing half doubles the penalty and no curve shows it.")
_register(
    "k3",
    "exp(d) − d − 1",
    "Swapped arguments bias it (0.62 against a true 0.52); expm1(d) − d loses a relative u/|d| and gives 0 at 1e-8.",
)


def _ratio_cases() -> Iterator[Case]:
    for kl_ratio in oracle.KL_RATIOS:
        case = partial(_case, make=generators.off_policy, kl_ratio=kl_ratio)
        yield case("k3", "holes", "sum", name=kl_ratio, quick=True)
        yield case("k3", "lengths", "none", name=kl_ratio)
        yield case("k3", "flat", "mean", name=kl_ratio, quick=True)
        yield case("k3", "right", "sum", "float64", name=kl_ratio)
        if kl_ratio != "none":
            yield case("k1", "right", "sum", name=f"{kl_ratio}-k1")
            yield case("k2", "right", "sum", name=f"{kl_ratio}-k2")
            yield case(
                "k3", "right", "sum", name=f"{kl_ratio}-unreadable", make=generators.unreadable, level="hardening"
            )


def _levels_differ(t: Draw) -> Iterator[Evidence]:
    want = t.want(TOKEN_KL, **t.inputs)
    for other in sorted({*oracle.KL_RATIOS} - {t.inputs["kl_ratio"]}):
        distance = np.max(np.abs(t.want(TOKEN_KL, **{**t.inputs, "kl_ratio": other}) - want))
        yield t.precondition(f"largest distance to kl_ratio {other!r}", distance, ">=", 1e-2)


@gate(
    "kl.ratio.matches-definition",
    level="definition",
    name="token_kl[kl_ratio]",
    question="Is the estimate multiplied by exp(policy − old) of its token, of its sequence's mean, or not at all?",
    why="The default of TRL follows the loss's level: the other level weights every KL term by another token's drift.",
    ops=(TOKEN_KL,),
    cases=tuple(_ratio_cases()),
    bounds={
        name: replace(bound, because=f"{bound.because}; a sequence's term counts max(1, |log r|) times")
        for name, bound in BOUNDS.items()
    },
    requires=_levels_differ,
    probes=(Probe("token_kl", ("kl",)),),
)
def ratio_matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare off-policy values with the definition, and on-policy values, whose ratios are all 1."""
    inputs = dict(t.inputs)
    dtype = str(inputs["policy"].dtype)
    fresh, plain = {**inputs, "old": None}, {**inputs, "kl_ratio": "none"}
    for call, definition, where in ((inputs, inputs, ""), (fresh, plain, "on-policy, without `old`")):
        yield from t.agrees(
            f"kl error in 2u·S ({dtype})",
            t.got(TOKEN_KL, **call)["kl"],
            t.want(TOKEN_KL, **definition),
            t.textbook(TOKEN_KL, **definition)["kl"],
            scale=2 * UNIT[dtype] * oracle.kl_scale(**definition),
            where=where,
        )


def _full_case(kind: str, dtype: str, size: int, *, quick: bool = True, level: Level | None = None) -> Case:
    make = partial(generators.vocabulary, kind=kind, dtype=dtype, size=size)
    return Case(
        f"{kind}-{size}-{dtype}", make, quick=quick, conventions={"dtype": dtype, **_arithmetic(dtype)}, level=level
    )


def _full_cases() -> Iterator[Case]:
    yield _full_case("batch", "float32", 500)
    for kind, dtype in product(("far",), DTYPES):
        yield _full_case(kind, dtype, 500)
    for dtype in DTYPES:
        yield _full_case("impossible", dtype, 500, level="robustness")
        yield _full_case("near", dtype, 1000, level="precision")
    yield _full_case("layouts", "float32", 500, level="hardening")
    for kind in ("near", "far"):
        yield _full_case(kind, "float32", LARGE, quick=False, level="precision")


def _arguments_differ(t: Draw) -> Iterator[Evidence]:
    inputs = {name: value for name, value in t.inputs.items() if name != generators.LAYOUTS}
    want = t.want(FULL_KL, **inputs)
    possible = inputs["policy_logprobs"] > -np.inf
    left, right = (np.where(possible, x, -np.inf) for x in inputs.values())
    other = t.want(FULL_KL, policy_logprobs=right, reference_logprobs=left)
    finite = np.isfinite(want) & np.isfinite(other)
    moved = np.max(np.abs(other - want)[finite] / np.abs(want)[finite])
    yield t.precondition("rows with a finite divergence", int(finite.sum()), ">=", 2)
    yield t.precondition("largest relative change when the arguments are swapped", moved, ">=", 1e-5)


@gate(
    "kl.full.matches-definition",
    level="definition",
    name="full_kl",
    question="Is the divergence Σ_v p_v (log p_v − log q_v) over the whole vocabulary, policy first?",
    why="KL(q ‖ p) covers modes where KL(p ‖ q) seeks them; the sampled estimators estimate the latter only.",
    ops=(FULL_KL,),
    cases=tuple(_full_cases()),
    bounds={
        **BOUNDS,
        "rows whose divergence is infinite on one side only": Bound(
            "exact", "q = 0 under a token that the policy can draw is +inf, and nothing else is", 0.0
        ),
    },
    requires=_arguments_differ,
    probes=(Probe("full_kl", ("kl",)),),
)
def full_matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare rows of near and far distributions, including tokens that one or both cannot draw."""
    inputs = dict(t.inputs)
    other_layouts = inputs.pop(generators.LAYOUTS, False)
    dtype = str(inputs["policy_logprobs"].dtype)
    want, limits = t.want(FULL_KL, **inputs), t.textbook(FULL_KL, **inputs)["kl"]
    possible = inputs["policy_logprobs"] > -np.inf
    quantity, scale = f"kl error in 2u·S ({dtype})", 2 * UNIT[dtype] * oracle.full_kl_scale(**inputs)
    got = t.got(FULL_KL, **inputs)["kl"]
    yield from t.agrees(quantity, got, want, limits, scale=scale)
    if not np.all(possible):
        apart = int(np.sum(np.isposinf(got) != np.isposinf(want)))
        yield t.number("rows whose divergence is infinite on one side only", apart, "<=")
    if other_layouts:
        for where, outputs in layouts.values(t, FULL_KL, inputs, tuple(inputs)):
            yield from t.agrees(quantity, outputs["kl"], want, limits, scale=scale, where=where)
