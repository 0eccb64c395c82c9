"""Do the KL estimators keep their value, and full relative precision, from tiny to huge differences?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates import cases
from gates.checks import layouts
from gates.checks.ops import TOKEN_KL, UNIT
from gates.model import Bound, Case, Evidence, Probe, Trial
from gates.registry import gate
from reference.oracle import kl as oracle

SMALLEST, LARGEST = 1e-8, 30.0  # |d|: from the last bit of a log-prob to a token the reference finds absurd
DTYPES = ("float32", "float64")

ROUNDING = "k·2u·S with S = |value| (sums: Σ|terms|): every estimator is positive or one term, so nothing cancels"
BOUNDS = {
    "kl error in 2u·S (float32)": Bound("derived", f"{ROUNDING}; k = 4, d and its exp in float64", 4.0),
    "kl error in 2u·S (float64)": Bound("derived", f"{ROUNDING}; k = 8, with the oracle's own rounding", 8.0),
}


def _make(rng: np.random.Generator, form: str, dtype: str, estimator: str, reduction: str) -> dict[str, Any]:
    shape = {"single": (257,), "batch": (9, 65), "masked": (9, 65), "prefix": (9, 65), "ragged": (300,)}[form]
    policy, reference = cases.logprob_pairs(rng, shape, dtype, SMALLEST, LARGEST)
    mask = lengths = None
    if form == "masked":
        mask = cases.ragged_mask(rng, *shape, empty_row=True)
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
    }


def _cases(estimator: str) -> Iterator[Case]:
    for form, reduction, dtype in product(
        ("single", "batch", "masked", "prefix", "ragged"), ("none", "sum", "mean"), DTYPES
    ):
        yield Case(
            f"{form}-{reduction}-{dtype}",
            partial(_make, form=form, dtype=dtype, estimator=estimator, reduction=reduction),
            quick=form == "masked" and reduction != "mean",
            conventions={"estimator": estimator, "reduction": reduction, "dtype": dtype},
        )


def _check(t: Trial) -> Iterator[Evidence]:
    inputs = dict(t.inputs)
    distance = np.abs(inputs["reference"].astype(np.float64) - inputs["policy"])
    distance = distance[np.isfinite(distance)]
    yield t.signal("smallest |d|", distance.min(), "<=", 1e-6)
    yield t.signal("largest |d|", distance.max(), ">=", 15.0)
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
