"""Do the KL estimators keep their value, and full relative precision, from tiny to huge differences?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families import arrays, layouts
from gates.families.kl.op import FULL_KL, TOKEN_KL
from gates.families.units import UNIT
from gates.model import Bound, Case, Evidence, Probe, Trial
from gates.registry import gate
from reference.oracle import kl as oracle
from reference.oracle import logprobs

SMALLEST, LARGEST = 1e-8, 30.0  # |d|: from the last bit of a log-prob to a token the reference finds absurd
LARGE = 151_936  # tokens of Qwen's vocabulary
DTYPES = ("float32", "float64")

ROUNDING = "k·2u·S with S = |value| (sums: Σ|terms|): every estimator is positive or one term, so nothing cancels"
BOUNDS = {
    "kl error in 2u·S (float32)": Bound("derived", f"{ROUNDING}; k = 4, d and its exp in float64", 4.0),
    "kl error in 2u·S (float64)": Bound("derived", f"{ROUNDING}; k = 8, with the oracle's own rounding", 8.0),
}


def _make(rng: np.random.Generator, form: str, dtype: str, estimator: str, reduction: str) -> dict[str, Any]:
    shape = {"single": (257,), "batch": (9, 65), "masked": (9, 65), "prefix": (9, 65), "ragged": (300,)}[form]
    policy, reference = arrays.logprob_pairs(rng, shape, dtype, SMALLEST, LARGEST)
    mask = lengths = None
    if form == "masked":
        mask = arrays.ragged_mask(rng, *shape, empty_row=True)
        policy, reference = (np.where(mask, x, np.nan).astype(dtype) for x in (policy, reference))
    if form == "prefix":
        lengths = rng.integers(0, shape[1] + 1, shape[0])
    if form == "single" and reduction != "none":
        lengths = np.array(shape)  # a flat array needs to be told where its sequences end
    if form == "ragged":
        lengths = np.array([7, 0, 93, 1, 199], np.int64)
    return {
        "policy": policy,
        "reference": reference,
        "estimator": estimator,
        "mask": mask,
        "lengths": lengths,
        "reduction": reduction,
        "old": None,
        "kl_ratio": "none",
    }


def _cases(estimator: str) -> Iterator[Case]:
    for form, reduction, dtype in product(
        ("single", "batch", "masked", "prefix", "ragged"), ("none", "sum", "mean"), DTYPES
    ):
        yield Case(
            f"{form}-{reduction}-{dtype}",
            partial(_make, form=form, dtype=dtype, estimator=estimator, reduction=reduction),
            quick=form == "masked" and reduction != "mean",
            conventions={"estimator": estimator, "reduction": reduction, "dtype": dtype, "kl_ratio": "none"},
        )


def _check(t: Trial) -> Iterator[Evidence]:
    inputs = dict(t.inputs)
    distance = np.abs(inputs["reference"].astype(np.float64) - inputs["policy"])
    distance = distance[np.isfinite(distance)]
    yield t.precondition("smallest |d|", distance.min(), "<=", 1e-6)
    yield t.precondition("largest |d|", distance.max(), ">=", 15.0)
    dtype = str(inputs["policy"].dtype)
    wanted = t.want(TOKEN_KL, **inputs)
    scale = 2 * UNIT[dtype] * oracle.kl_scale(**inputs)
    yield t.within(f"kl error in 2u·S ({dtype})", t.got(TOKEN_KL, **inputs)["kl"], wanted, scale=scale)
    for where, other in layouts.values(t, TOKEN_KL, inputs, ("policy", "reference")):
        yield t.within(f"kl error in 2u·S ({dtype})", other["kl"], wanted, scale=scale, where=where)


def _register(estimator: str, formula: str, why: str) -> Callable[[Trial], Iterator[Evidence]]:
    return gate(
        f"kl.{estimator}.matches-definition",
        name=f"token_kl[{estimator}]",
        question=f"Is {estimator} = {formula}, d = reference − policy, per token and per sequence, for |d| from 1e-8 to 30?",
        why=why,
        ops=(TOKEN_KL,),
        cases=tuple(_cases(estimator)),
        bounds=BOUNDS,
        probes=(Probe("token_kl", ("kl",)),),
    )(_check)


_register("k1", "−d", "A swapped sign rewards drift instead of punishing it.")
_register("k2", "d²/2", "A missing half doubles the penalty and no curve shows it.")
_register(
    "k3",
    "exp(d) − d − 1",
    "Swapped arguments bias it (0.62 against a true 0.52); expm1(d) − d loses a relative u/|d| and gives 0 at 1e-8.",
)


def _ratio_make(rng: np.random.Generator, form: str, dtype: str, estimator: str, kl_ratio: str) -> dict[str, Any]:
    inputs = _make(rng, form, dtype, estimator, "none" if form == "prefix" else "sum")
    change = rng.normal(0.0, 0.7, inputs["policy"].shape)
    return {**inputs, "old": (inputs["policy"].astype(np.float64) - change).astype(dtype), "kl_ratio": kl_ratio}


def _ratio_cases() -> Iterator[Case]:
    forms, estimators = ("masked", "prefix", "ragged"), oracle.ESTIMATORS
    for kl_ratio, estimator, form, dtype in product(oracle.KL_RATIOS, estimators, forms, DTYPES):
        yield Case(
            f"{kl_ratio}-{estimator}-{form}-{dtype}",
            partial(_ratio_make, form=form, dtype=dtype, estimator=estimator, kl_ratio=kl_ratio),
            quick=estimator == "k3" or form == "masked",
            conventions={"estimator": estimator, "dtype": dtype, "kl_ratio": kl_ratio},
        )


@gate(
    "kl.ratio.matches-definition",
    name="token_kl[kl_ratio]",
    question="Is the estimate multiplied by exp(policy − old) of its token, of its sequence's mean, or not at all?",
    why="The default of TRL follows the loss's level: the other level weights every KL term by another token's drift.",
    ops=(TOKEN_KL,),
    cases=tuple(_ratio_cases()),
    bounds={
        name: replace(bound, because=f"{bound.because}; a sequence's term counts max(1, |log r|) times")
        for name, bound in BOUNDS.items()
    },
    probes=(Probe("token_kl", ("kl",)),),
)
def ratio_matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare off-policy values with the definition; on-policy, without `old`, every ratio is 1."""
    inputs = dict(t.inputs)
    dtype, level = str(inputs["policy"].dtype), inputs["kl_ratio"]
    wanted = t.want(TOKEN_KL, **inputs)
    plain = t.want(TOKEN_KL, **{**inputs, "kl_ratio": "none"})
    for other in sorted({*oracle.KL_RATIOS} - {level}):
        distance = np.nanmax(np.abs(t.want(TOKEN_KL, **{**inputs, "kl_ratio": other}) - wanted))
        yield t.precondition(f"largest distance to kl_ratio {other!r}", distance, ">=", 1e-2)
    quantity = f"kl error in 2u·S ({dtype})"
    got = t.got(TOKEN_KL, **inputs)["kl"]
    yield t.within(quantity, got, wanted, scale=2 * UNIT[dtype] * oracle.kl_scale(**inputs))
    fresh = {**inputs, "old": None}
    scale = 2 * UNIT[dtype] * oracle.kl_scale(**fresh)
    yield t.within(quantity, t.got(TOKEN_KL, **fresh)["kl"], plain, scale=scale, where="on-policy, without `old`")


def _full_make(rng: np.random.Generator, kind: str, dtype: str, size: int) -> dict[str, Any]:
    rows = 6 if size < LARGE else 2
    logits = rng.normal(0.0, 3.0, (rows, size))
    others = logits + rng.normal(0.0, 1e-3 if kind == "near" else 1.0, logits.shape)
    if kind == "masked":
        logits[:, ::3] = -np.inf  # top-k of the policy: these add nothing
        others[0, ::6] = -np.inf  # where the policy cannot draw the reference may be 0 too
        others[1, 1] = -np.inf  # here it may not: +inf
    if kind == "batch":  # (B, T, V), as it comes out of a model
        logits, others = logits.reshape(2, 3, size), others.reshape(2, 3, size)
    left, right = (logprobs.log_softmax(x, temperature=1.0) for x in (logits, others))
    return {"policy_logprobs": left.astype(dtype), "reference_logprobs": right.astype(dtype)}


def _full_cases() -> Iterator[Case]:
    for kind, dtype in product(("near", "far", "masked", "batch"), DTYPES):
        make = partial(_full_make, kind=kind, dtype=dtype, size=1000)
        yield Case(f"{kind}-{dtype}", make, quick=True, conventions={"dtype": dtype})
    for kind, dtype in product(("near", "far"), DTYPES):
        make = partial(_full_make, kind=kind, dtype=dtype, size=LARGE)
        yield Case(f"{kind}-{LARGE}-{dtype}", make, conventions={"dtype": dtype})


@gate(
    "kl.full.matches-definition",
    name="full_kl",
    question="Is the divergence Σ_v p_v (log p_v − log q_v) over the whole vocabulary, policy first?",
    why="KL(q ‖ p) covers modes where KL(p ‖ q) seeks them; the sampled estimators estimate the latter only.",
    ops=(FULL_KL,),
    cases=tuple(_full_cases()),
    bounds=BOUNDS,
    probes=(Probe("full_kl", ("kl",)),),
)
def full_matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare rows of near and far distributions, with tokens that one or both of them cannot draw."""
    inputs = dict(t.inputs)
    dtype = str(inputs["policy_logprobs"].dtype)
    wanted = t.want(FULL_KL, **inputs)
    possible = inputs["policy_logprobs"] > -np.inf
    left, right = (np.where(possible, x, -np.inf) for x in inputs.values())
    other = t.want(FULL_KL, policy_logprobs=right, reference_logprobs=left)
    finite = np.isfinite(wanted) & np.isfinite(other)
    moved = np.max(np.abs(other - wanted)[finite] / np.abs(wanted)[finite])
    yield t.precondition("rows with a finite divergence", int(finite.sum()), ">=", 2)
    yield t.precondition("largest relative change when the arguments are swapped", moved, ">=", 1e-5)
    quantity = f"kl error in 2u·S ({dtype})"
    scale = 2 * UNIT[dtype] * oracle.full_kl_scale(**inputs)
    yield t.within(quantity, t.got(FULL_KL, **inputs)["kl"], wanted, scale=scale)
    for where, got in layouts.values(t, FULL_KL, inputs, tuple(inputs)):
        yield t.within(quantity, got["kl"], wanted, scale=scale, where=where)
