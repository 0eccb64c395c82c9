"""Do group advantages obey their laws: shift, scale, sign, order, zero sums, leave-one-out as a scaled mean?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families.advantages.gates.inputs import OF_GROUP, PRESETS, UNSCALED, case
from gates.families.advantages.op import GROUP_ADVANTAGES, NORMALISE_THEN_SUM
from gates.families.units import UNIT
from gates.model import Array, Bound, Case, Draw, Evidence, Probe, Trial
from gates.registry import gate
from gates_reference.oracle import advantages as oracle

SIZE, GROUPS = 8, 6
SHIFT, FACTOR = 4.0, 16.0
FIRST, FIRST_OF_SAME = 1.25, 1.5  # the first reward; the second, where both calls of a law have the same rewards
K = {"float32": 4.0, "float64": 8.0}
LAW_BECAUSE = (
    "by definition the two are one number, and each errs by at most k·2u·S, S = max|R_g|/(std ⊕ ε) of its own rewards: "
    "in units of 2u·(S plus the other S)"
)
BOUNDS = {
    f"distance of the two sides in 2u·S ({dtype})": Bound("derived", f"{LAW_BECAUSE}; k = {k:g}", k, level="precision")
    for dtype, k in K.items()
}
NOT_FINITE = "advantages that are not finite"
BOUNDS[NOT_FINITE] = Bound("exact", "finite rewards far from overflow; NaN on both sides is no agreement", 0.0)
CHOICES: dict[str, dict[str, Any]] = {
    **{name: PRESETS[name] for name in ("trl", "rlox", "mlxrl", "batch", "dr-grpo", "rloo")},
    "leave-one-out": {**PRESETS["trl"], "baseline": "leave-one-out"},
}
Inputs = dict[str, Any]


def _rewards(rng: np.random.Generator, dtype: str, size: int, first: float) -> Array:
    """Return multiples of 1/64 up to 3, so that a shift by 4 and a factor of 16 are exact."""
    grid = rng.integers(-128, 128, (GROUPS, size)) / 64.0
    grid[0, 0] = first
    grid[:, 1] = np.where(grid.max(axis=1) - grid.min(axis=1) < 0.5, 3.0, grid[:, 1])
    return grid.reshape(-1).astype(dtype)


def _scaled_eps(choice: Mapping[str, Any]) -> float | None:
    """Return ε for rewards times FACTOR: it has their unit, and inside the root its square."""
    eps = choice["eps"]
    if eps is None:
        return None
    return float(eps * (FACTOR**2 if choice["eps_mode"] == "inside" else FACTOR))


# Each law returns the second call, and how its advantages (B,) map to those of the first.


def _shifted(left: Inputs, rng: np.random.Generator) -> Inputs:
    del rng
    groups = SHIFT * (np.arange(left["rewards"].size) // left["group_size"] % 2 == 0)
    shift = np.full_like(left["rewards"], SHIFT) if left["scale"] == "batch" else groups.astype(left["rewards"].dtype)
    return {"right": {**left, "rewards": left["rewards"] + shift}}


def _multiplied(left: Inputs, rng: np.random.Generator) -> Inputs:
    del rng
    right = {**left, "rewards": left["rewards"] * left["rewards"].dtype.type(FACTOR), "eps": _scaled_eps(left)}
    return {"right": right, "factor": 1.0 if left["scale"] != "none" else 1.0 / FACTOR}


def _negated(left: Inputs, rng: np.random.Generator) -> Inputs:
    del rng
    return {"right": {**left, "rewards": -left["rewards"]}, "factor": -1.0}


def _reordered(left: Inputs, rng: np.random.Generator) -> Inputs:
    size = left["group_size"]
    places = np.stack([size * g + rng.permutation(size) for g in np.roll(np.arange(GROUPS), rng.integers(1, GROUPS))])
    take = np.argsort(places.reshape(-1))
    return {"right": {**left, "rewards": left["rewards"][places.reshape(-1)]}, "take": take}


def _without_itself(left: Inputs, rng: np.random.Generator) -> Inputs:
    """Leave-one-out is the mean baseline times G / (G − 1), for every divisor."""
    del rng
    size = left["group_size"]
    return {"right": {**left, "baseline": "leave-one-out"}, "factor": (size - 1.0) / size}


def _two_samples(left: Inputs, rng: np.random.Generator) -> Inputs:
    """For two samples, leave-one-out is their difference d, and the z-score d / (√2·|d|) = ±1/√2."""
    del rng
    pairs = left["rewards"].astype(np.float64).reshape(-1, 2)
    apart = np.repeat(np.abs(pairs[:, 0] - pairs[:, 1]), 2)
    return {"right": {**left, **UNSCALED, "baseline": "leave-one-out"}, "factor": 1.0 / (2.0**0.5 * apart)}


LAWS: dict[str, Callable[[Inputs, np.random.Generator], Inputs]] = {
    "shifted": _shifted,
    "multiplied": _multiplied,
    "negated": _negated,
    "reordered": _reordered,
    "without-itself": _without_itself,
    "two-samples": _two_samples,
}
Z_SCORE: dict[str, Any] = {"scale": "group", "ddof": 1, "eps": 0.0, "eps_mode": "add", "baseline": "mean"}


def _make(rng: np.random.Generator, choice: Mapping[str, Any], *, law: str, dtype: str, size: int) -> Inputs:
    first = FIRST_OF_SAME if law in {"without-itself", "two-samples"} else FIRST
    left = {"rewards": _rewards(rng, dtype, size, first), "group_size": size, **choice}
    return {"left": left, **LAWS[law](left, rng)}


EVERY = tuple(CHOICES)
ASKED = {  # every choice is shifted and reordered; the other laws depend on divisor or baseline
    "shifted": EVERY,
    "reordered": EVERY,
    "multiplied": ("trl", "mlxrl", "rlox", "dr-grpo"),
    "negated": ("trl", "mlxrl", "rloo"),
    "without-itself": ("trl", "dr-grpo"),
}
IN_FLOAT64 = (("shifted", "trl"), ("shifted", "rlox"), ("reordered", "rlox"), ("without-itself", "dr-grpo"))


def _cases() -> Iterator[Case]:
    named = [(law, name, "float32") for law, names in ASKED.items() for name in names]
    for law, name, dtype in (*named, *((law, name, "float64") for law, name in IN_FLOAT64)):
        made = partial(_make, law=law, dtype=dtype, size=SIZE)
        quick = dtype == "float32" and name in {"trl", "mlxrl", "dr-grpo"}
        open_ = frozenset({"eps"} if law == "multiplied" else ())  # ε changes with the unit of the rewards
        yield case(f"{law}-{name}-of-eight-{dtype}", made, CHOICES[name], dtype, quick=quick, varied=open_)
    for law in ("shifted", "reordered"):
        made = partial(_make, law=law, dtype="float32", size=SIZE)
        yield case(f"{law}-as-declared-float32", made, PRESETS["trl"], "float32", follows=OF_GROUP)
    for (law, choice), dtype in product((("without-itself", CHOICES["dr-grpo"]), ("two-samples", Z_SCORE)), K):
        made = partial(_make, law=law, dtype=dtype, size=2)
        yield case(f"{law}-of-two-{dtype}", made, choice, dtype, quick=dtype == "float32")


def _is_first(inputs: Mapping[str, Any]) -> bool:
    """Return whether a call is the first of its law, by its first reward and its baseline."""
    first = float(inputs["rewards"][0])
    return first == FIRST or (first == FIRST_OF_SAME and inputs["baseline"] == "mean")


def _sides(x: Mapping[str, Any]) -> tuple[Inputs, Inputs, Array, Any]:
    """Return both calls, the index in the second of each advantage of the first, and its factor."""
    left = dict(x["left"])
    return left, dict(x["right"]), x.get("take", np.arange(left["rewards"].size)), x.get("factor", 1.0)


def _scale(x: Mapping[str, Any]) -> Array:
    """Return 2u·S of the difference of the two sides, float64 (B,)."""
    left, right, take, factor = _sides(x)
    size = oracle.advantage_scale(**left) + np.abs(factor) * oracle.advantage_scale(**right)[take]
    return np.asarray(2 * UNIT[str(left["rewards"].dtype)] * size)


def _preconditions(t: Draw) -> Iterator[Evidence]:
    left, right, take, factor = _sides(t.inputs)
    want_left, want_right = t.want(GROUP_ADVANTAGES, **left), t.want(GROUP_ADVANTAGES, **right)
    distance = float(np.max(np.abs(factor * want_right[take] - want_left) / _scale(t.inputs)))
    yield t.precondition("largest |advantage|", np.abs(want_left).max(), ">", 0.1)
    limit = K[str(left["rewards"].dtype)]
    yield t.precondition("distance of the definition's own two sides in 2u·S", distance, "<=", limit)
    moved = float(np.abs(right["rewards"] - left["rewards"]).max()) + len(_differing(left, right))
    yield t.precondition(
        "largest change of a reward, or changes of conventions", moved, ">", 0.1, "the calls must differ"
    )


@gate(
    "advantages.laws-hold",
    name="group_advantages[laws]",
    level="law",
    question="Do advantages ignore a shift, follow scale, sign and order, and is leave-one-out the mean's times G/(G − 1)?",
    why="A reward that is raised by a constant, or measured in other units, must not change what is learned.",
    ops=(GROUP_ADVANTAGES,),
    cases=tuple(_cases()),
    bounds={
        **BOUNDS,
        "largest |ΣA| of a group in 2u·ΣS (float32)": Bound(
            "derived", "G errors of k·2u·S each; k = 4", 4.0, level="precision"
        ),
        "largest |ΣA| of a group in 2u·ΣS (float64)": Bound(
            "derived", "G errors of k·2u·S each; k = 8", 8.0, level="precision"
        ),
    },
    requires=_preconditions,
    probes=(Probe("group_advantages", ("advantages",), _is_first),),
)
def laws_hold(t: Trial) -> Iterator[Evidence]:
    """Compare the two calls, and the sums of groups with 0; a changed reward must change its own group."""
    left, right, take, factor = _sides(t.inputs)
    dtype = str(left["rewards"].dtype)
    unit = 2 * UNIT[dtype]
    scale = _scale(t.inputs)
    of_left = np.asarray(t.got(GROUP_ADVANTAGES, **left)["advantages"], np.float64)
    of_right = np.asarray(t.got(GROUP_ADVANTAGES, **right)["advantages"], np.float64)
    yield t.number(NOT_FINITE, float(np.sum(~np.isfinite(of_left)) + np.sum(~np.isfinite(of_right))), "<=")
    limits = [t.textbook(GROUP_ADVANTAGES, **side)["advantages"] for side in (left, right)]
    both = limits[0] + np.abs(factor) * limits[1][take]
    quantity = f"distance of the two sides in 2u·S ({dtype})"
    yield from t.agrees(quantity, factor * of_right[take], of_left, both, scale=scale)
    size = left["group_size"]
    sums = of_left.reshape(-1, size).sum(axis=1)
    units = unit * oracle.advantage_scale(**left).reshape(-1, size).sum(axis=1)
    quantity, nothing = f"largest |ΣA| of a group in 2u·ΣS ({dtype})", np.zeros(sums.shape)
    yield from t.agrees(quantity, sums, nothing, limits[0].reshape(-1, size).sum(axis=1), scale=units)
    bumped = left["rewards"].copy()
    first = bumped[:size]
    bumped[0] = first.min() - 1 if bumped[0] == first.max() else first.max() + 1
    changed = t.got(GROUP_ADVANTAGES, **{**left, "rewards": bumped})["advantages"].astype(np.float64)
    step = float(np.abs(changed[:size] - of_left[:size]).max())
    yield t.negative_control(
        "change of a group's advantages by one of its rewards", step, ">=", 0.05, "constants obey every law"
    )


def _several(rng: np.random.Generator, dtype: str, group_ddof: int, batch_ddof: int) -> Inputs:
    columns = np.stack([_rewards(rng, dtype, SIZE, FIRST) for _ in range(3)], axis=1)
    stages = {"group_ddof": group_ddof, "group_eps": 0.0, "batch_ddof": batch_ddof, "batch_eps": 0.0}
    return {"rewards": columns, "weights": np.array([1.0, 0.5, -2.0], dtype), "group_size": SIZE, **stages}


def _in_other_units(left: Mapping[str, Any]) -> Inputs:
    kind = left["rewards"].dtype.type
    rewards = left["rewards"] * np.array([1, 4, 16], kind) + np.array([0, SHIFT, -SHIFT], kind)
    return {**left, "rewards": rewards, "weights": left["weights"] * kind(4)}


def _units_matter(t: Draw) -> Iterator[Evidence]:
    plain = [x["rewards"].astype(np.float64) @ t.inputs["weights"] for x in (t.inputs, _in_other_units(t.inputs))]
    scores = [(x - x.mean()) / x.std() for x in plain]
    yield t.precondition("largest |advantage|", np.abs(t.want(NORMALISE_THEN_SUM, **t.inputs)).max(), ">", 0.1)
    yield t.precondition("distance of z-scores of the plain sums", np.abs(scores[0] - scores[1]).max(), ">=", 0.1)


@gate(
    "advantages.normalise-then-sum.ignores-units",
    name="normalise_then_sum[laws]",
    level="law",
    question="Without ε, does it ignore each reward function's own unit and zero, and the unit of the weights?",
    why="It exists so that a reward function measured in hundreds counts no more than one measured in ones.",
    ops=(NORMALISE_THEN_SUM,),
    cases=tuple(
        Case(
            f"own-units-ddof-{group}-{batch}-{dtype}",
            partial(_several, dtype=dtype, group_ddof=group, batch_ddof=batch),
            quick=dtype == "float32",
            conventions={"group_ddof": group, "batch_ddof": batch, "dtype": dtype},
        )
        for group, batch, dtype in ((1, 1, "float32"), (1, 0, "float32"), (0, 1, "float32"), (1, 1, "float64"))
    ),
    bounds=BOUNDS,
    requires=_units_matter,
    probes=(Probe("normalise_then_sum", ("advantages",), lambda inputs: float(inputs["weights"][0]) == 1.0),),
)
def ignores_units(t: Trial) -> Iterator[Evidence]:
    """Scale and shift the rewards of each function differently, and multiply the weights by 4."""
    left, right = dict(t.inputs), _in_other_units(t.inputs)
    dtype = str(left["rewards"].dtype)
    unit = 2 * UNIT[dtype]
    scale = unit * (oracle.normalise_then_sum_scale(**left) + oracle.normalise_then_sum_scale(**right))
    of_left, of_right = (t.got(NORMALISE_THEN_SUM, **side)["advantages"] for side in (left, right))
    yield t.number(NOT_FINITE, float(np.sum(~np.isfinite(of_left)) + np.sum(~np.isfinite(of_right))), "<=")
    both = sum(t.textbook(NORMALISE_THEN_SUM, **side)["advantages"] for side in (left, right))
    yield from t.agrees(f"distance of the two sides in 2u·S ({dtype})", of_right, of_left, both, scale=scale)
    turned = t.got(NORMALISE_THEN_SUM, **{**left, "weights": left["weights"][::-1].copy()})["advantages"]
    step = float(np.abs(turned.astype(np.float64) - of_left).max())
    yield t.negative_control("change of an advantage by other weights", step, ">=", 0.05, "constants obey every law")


def _differing(left: Mapping[str, Any], right: Mapping[str, Any]) -> set[str]:
    return {name for name in left if name != "rewards" and left[name] != right[name]}
