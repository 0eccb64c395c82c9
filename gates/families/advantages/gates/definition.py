"""Do group advantages follow the definition, under every convention that the field uses?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families import arrays, layouts
from gates.families.advantages.op import GROUP_ADVANTAGES, NORMALISE_THEN_SUM
from gates.families.units import UNIT
from gates.model import Bound, Case, Evidence, Probe, Trial
from gates.registry import gate
from reference.oracle import advantages as oracle

EPSILON = {"add": 1e-4, "inside": 1e-8, "threshold": 1e-8}  # TRL's, mlxrl's and rlox's constants
UNSCALED: dict[str, Any] = {"scale": "none", "ddof": None, "eps": None, "eps_mode": None}  # nothing divides
QUICK = {"group-ddof1-add-mean", "group-ddof0-inside-mean", "batch-ddof0-threshold-mean", "none-leave-one-out"}
DTYPES = ("float32", "float64")

ROUNDING = "k·2u·S with S = max|R_g|/(std ⊕ ε): a subtraction and a division conditioned by the rewards' size"
BOUNDS = {
    "advantage error in 2u·S (float32)": Bound("derived", f"{ROUNDING}; k = 4, sums of float32 data in float64", 4.0),
    "advantage error in 2u·S (float64)": Bound(
        "derived", f"{ROUNDING}; k = 8, compensated sums and the oracle's own rounding", 8.0
    ),
}


def _conventions() -> Iterator[tuple[str, dict[str, Any]]]:
    for baseline in ("mean", "leave-one-out"):
        yield f"none-{baseline}", {**UNSCALED, "baseline": baseline}
        for scale, ddof, mode in product(("group", "batch"), (0, 1), EPSILON):
            choice = {"scale": scale, "ddof": ddof, "eps": EPSILON[mode], "eps_mode": mode, "baseline": baseline}
            yield f"{scale}-ddof{ddof}-{mode}-{baseline}", choice


def _definition_cases() -> Iterator[Case]:
    for (name, choice), dtype in product(_conventions(), DTYPES):

        def make(rng: np.random.Generator, choice: dict[str, Any] = choice, dtype: str = dtype) -> dict[str, Any]:
            return {"rewards": arrays.rewards(rng, groups=12, size=8, dtype=dtype), "group_size": 8, **choice}

        yield Case(f"{name}-{dtype}", make, quick=name in QUICK, conventions={**choice, "dtype": dtype})
    for ddof, dtype in product((0, 1), DTYPES):
        # Above rlox's 1e-8: of the four kinds of rewards two have a deviation of 0.01 or less, which is then 0 by rule.
        acting = {"scale": "group", "ddof": ddof, "eps": 0.0625, "eps_mode": "threshold", "baseline": "mean"}

        def make(rng: np.random.Generator, choice: dict[str, Any] = acting, dtype: str = dtype) -> dict[str, Any]:
            return {"rewards": arrays.rewards(rng, groups=12, size=8, dtype=dtype), "group_size": 8, **choice}

        yield Case(
            f"group-ddof{ddof}-acting-threshold-{dtype}", make, quick=True, conventions={**acting, "dtype": dtype}
        )


@gate(
    "advantages.matches-definition",
    name="group_advantages",
    question="Are group advantages those of the definition, in the convention that was asked for?",
    why="Conventions differ by 15.5% at G = 4; a swapped group and batch deviation trains on another objective.",
    ops=(GROUP_ADVANTAGES,),
    cases=tuple(_definition_cases()),
    bounds=BOUNDS,
    probes=(Probe("group_advantages", ("advantages",)),),
)
def matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare every element with the float64 definition, in units of its rounding scale."""
    wanted = t.want(GROUP_ADVANTAGES, **t.inputs)
    yield t.precondition("largest |advantage|", np.max(np.abs(wanted)), ">", 1e-4, "zeros agree with zeros")
    dtype = str(t.inputs["rewards"].dtype)
    if t.inputs["eps"] == 0.0625:
        yield t.precondition("advantages that the threshold makes 0", int(np.sum(wanted == 0.0)), ">=", 8)
    got = t.got(GROUP_ADVANTAGES, **t.inputs)["advantages"]
    yield t.within(f"advantage error in 2u·S ({dtype})", got, wanted, scale=_scale(t, dtype))
    for where, other in layouts.values(t, GROUP_ADVANTAGES, t.inputs, ("rewards",)):
        quantity = f"advantage error in 2u·S ({dtype})"
        yield t.within(quantity, other["advantages"], wanted, scale=_scale(t, dtype), where=where)


def _scale(t: Trial, dtype: str) -> np.ndarray[Any, Any]:
    scale: np.ndarray[Any, Any] = 2 * UNIT[dtype] * oracle.advantage_scale(**t.inputs)
    return scale


def _constant_case(name: str, dtype: str, *, quick: bool = False, **choice: Any) -> Case:
    def make(rng: np.random.Generator) -> dict[str, Any]:
        size = 10  # sums of 10 equal floats leave a residue in both dtypes; sums of 4 or 8 often leave none
        groups = [np.full(size, value) for value in (0.35, 0.1, 0.7, 1 / 3, 2.3, 123.456)]
        moving = rng.normal(0.0, 1.0, size)
        return {"rewards": np.concatenate([*groups, moving]).astype(dtype), "group_size": size, **choice}

    return Case(f"{name}-{dtype}", make, quick=quick, conventions={**choice, "dtype": dtype})


_PRESETS: dict[str, dict[str, Any]] = {
    "trl": {"scale": "group", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"},
    "rlox": {"scale": "group", "ddof": 0, "eps": 1e-8, "eps_mode": "threshold", "baseline": "mean"},
    "mlxrl": {"scale": "group", "ddof": 0, "eps": 1e-8, "eps_mode": "inside", "baseline": "mean"},
    "no-epsilon": {"scale": "group", "ddof": 0, "eps": 0.0, "eps_mode": "add", "baseline": "mean"},
    "dr-grpo": {**UNSCALED, "baseline": "mean"},
    "rloo": {**UNSCALED, "baseline": "leave-one-out"},
}


@gate(
    "advantages.constant-group-is-zero",
    name="group_advantages[constant group]",
    question="Is the advantage of a group with equal rewards exactly zero?",
    why="The mean of equal floats is not always that float; a division by a tiny deviation amplifies the residue.",
    ops=(GROUP_ADVANTAGES,),
    cases=tuple(
        _constant_case(name, dtype, quick=name in {"trl", "mlxrl"}, **choice)
        for (name, choice), dtype in product(_PRESETS.items(), DTYPES)
    ),
    bounds={"largest |advantage| of a constant group": Bound("exact", "max = min gives A = 0 by rule", 0.0)},
)
def constant_group_is_zero(t: Trial) -> Iterator[Evidence]:
    """Look at groups of equal rewards whose naive mean leaves a residue, beside one group that varies."""
    size = t.inputs["group_size"]
    grouped = t.inputs["rewards"].reshape(-1, size)
    naive = np.array([sum(row.tolist(), grouped.dtype.type(0)) / size for row in grouped[:-1]], grouped.dtype)
    residues = int(np.sum(naive != grouped[:-1, 0]))
    yield t.precondition("groups whose naive mean leaves a residue", residues, ">=", 1)
    got = t.got(GROUP_ADVANTAGES, **t.inputs)["advantages"].reshape(-1, size)
    flat = np.abs(got[:-1])
    at = np.unravel_index(int(np.argmax(np.where(np.isnan(flat), np.inf, flat))), flat.shape)
    where = f"reward {grouped[at]:.6g}, element {at[1]}"
    yield t.number("largest |advantage| of a constant group", float(flat[at]), "<=", where=where)
    moves = float(np.max(np.abs(got[-1])))
    yield t.negative_control(
        "largest |advantage| of a varying group", moves, ">", 0.1, "zero must not be all it returns"
    )


def _unscored_case(preset: str, dtype: str, *, quick: bool) -> Case:
    def make(rng: np.random.Generator) -> dict[str, Any]:
        grouped = arrays.rewards(rng, groups=8, size=6, dtype=dtype).reshape(-1, 6)
        grouped[0, 2] = np.nan
        grouped[1, [0, 4]] = np.nan
        grouped[2, 1:] = np.nan  # a group with one scored member: its advantage is 0
        return {"rewards": grouped.reshape(-1), "group_size": 6, **_PRESETS[preset]}

    return Case(f"{preset}-{dtype}", make, quick=quick, conventions={**_PRESETS[preset], "dtype": dtype})


@gate(
    "advantages.unscored-rewards",
    name="group_advantages[unscored]",
    question="Is a NaN reward left out as unscored, without touching the other members of its group?",
    why="One reward function that could not score must not turn a whole group into NaN or shift its mean.",
    ops=(GROUP_ADVANTAGES,),
    cases=tuple(
        _unscored_case(preset, dtype, quick=preset == "trl" and dtype == "float32")
        for preset, dtype in product(("trl", "mlxrl"), DTYPES)
    ),
    bounds=BOUNDS,
    probes=(Probe("group_advantages", ("advantages",)),),
)
def unscored_rewards(t: Trial) -> Iterator[Evidence]:
    """Compare groups with unscored members, one of them with a single scored member, with the definition."""
    rewards = t.inputs["rewards"]
    yield t.precondition("unscored rewards", int(np.isnan(rewards).sum()), ">=", 3)
    dtype = str(rewards.dtype)
    got = t.got(GROUP_ADVANTAGES, **t.inputs)["advantages"]
    yield t.within(
        f"advantage error in 2u·S ({dtype})", got, t.want(GROUP_ADVANTAGES, **t.inputs), scale=_scale(t, dtype)
    )


STAGES = (
    ("trl", 1, 1e-4, 1, 1e-4),
    ("mixed", 1, 1e-4, 0, 1e-2),
    ("mixed-back", 0, 1e-2, 1, 1e-4),
    ("no-epsilon", 0, 0.0, 0, 0.0),
)


def _several(rng: np.random.Generator, dtype: str, kind: str, stages: dict[str, Any]) -> dict[str, Any]:
    size, prompts = 4, 3
    correct = np.tile(
        [0.0, 1.0, 1.0, 0.0], prompts
    )  # a verifier, a length penalty in tens, a style score in hundredths
    rewards = np.stack([correct, rng.uniform(-50.0, 0.0, correct.size), rng.normal(0.0, 0.02, correct.size)], axis=1)
    rewards[:size, 2] = 0.1  # a constant group of one function adds nothing there
    if kind == "unscored":
        rewards[5, 0] = np.nan  # one function could not score: a 0 in the sum
        rewards[[2, 9]] = np.nan  # no function could: the row is unscored
    weights = np.array([1.0, 0.5, -2.0], dtype)
    return {"rewards": rewards.astype(dtype), "weights": weights, "group_size": size, **stages}


def _several_cases() -> Iterator[Case]:
    for (name, group_ddof, group_eps, batch_ddof, batch_eps), kind, dtype in product(
        STAGES, ("scored", "unscored"), DTYPES
    ):
        stages = {
            "group_ddof": group_ddof,
            "group_eps": float(np.dtype(dtype).type(group_eps)),
            "batch_ddof": batch_ddof,
            "batch_eps": float(np.dtype(dtype).type(batch_eps)),
        }
        yield Case(
            f"{name}-{kind}-{dtype}",
            partial(_several, dtype=dtype, kind=kind, stages=stages),
            quick=name == "mixed" or dtype == "float32",
            conventions={**stages, "dtype": dtype},
        )


@gate(
    "advantages.normalise-then-sum",
    name="normalise_then_sum",
    question="Is each reward function normalised in its group, and then their weighted sum over the batch?",
    why="Summed first, a reward function with large numbers drowns the others; two deviations are two conventions each.",
    ops=(NORMALISE_THEN_SUM,),
    cases=tuple(_several_cases()),
    bounds=BOUNDS,
    probes=(Probe("normalise_then_sum", ("advantages",)),),
)
def normalise_then_sum(t: Trial) -> Iterator[Evidence]:
    """Compare three reward functions of different sizes with the definition, unscored ones among them."""
    inputs = dict(t.inputs)
    dtype = str(inputs["rewards"].dtype)
    wanted = t.want(NORMALISE_THEN_SUM, **inputs)
    summed = np.nansum(inputs["rewards"].astype(np.float64) * inputs["weights"], axis=1)
    distance = np.max(np.abs((summed - summed.mean()) / summed.std() - wanted))
    yield t.precondition("largest distance to the z-score of the plain sum", distance, ">=", 0.1)
    scale = 2 * UNIT[dtype] * oracle.normalise_then_sum_scale(**inputs)
    quantity = f"advantage error in 2u·S ({dtype})"
    yield t.within(quantity, t.got(NORMALISE_THEN_SUM, **inputs)["advantages"], wanted, scale=scale)
    for where, got in layouts.values(t, NORMALISE_THEN_SUM, inputs, ("rewards",)):
        yield t.within(quantity, got["advantages"], wanted, scale=scale, where=where)
