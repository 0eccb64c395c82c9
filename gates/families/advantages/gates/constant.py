"""Is the advantage of a group with equal rewards zero?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families.advantages.gates.inputs import BOUNDS, DTYPES, OF_GROUP, PRESETS, case
from gates.families.advantages.op import GROUP_ADVANTAGES
from gates.model import Bound, Case, Evidence, Trial
from gates.registry import gate

PLAIN = ("trl", "verl", "mlxrl", "batch", "dr-grpo", "rloo")
AWKWARD = {name: PRESETS[name] for name in ("trl", "rlox", "mlxrl", "dr-grpo", "rloo")} | {
    "no-epsilon": {"scale": "group", "ddof": 0, "eps": 0.0, "eps_mode": "add", "baseline": "mean"}
}
LARGEST = "largest |advantage| of a constant group"
EXACTLY = "largest |advantage| of a constant group, by rule"
NOTICED = 1e-3  # of an ordinary advantage, which is 1


def _solved_alike(rng: np.random.Generator, choice: Mapping[str, Any], *, dtype: str) -> dict[str, Any]:
    """Return groups in which all succeed, fail, or get half: their sums and means are exact in any order."""
    groups = [np.full(8, value) for value in (1.0, 0.0, -1.0, 0.5)]
    return {"rewards": np.concatenate([*groups, rng.normal(0.0, 1.0, 8)]).astype(dtype), "group_size": 8, **choice}


def _awkward(rng: np.random.Generator, choice: Mapping[str, Any], *, dtype: str) -> dict[str, Any]:
    """Return groups of 10 equal rewards, whose sum leaves a rounding residue in both dtypes."""
    groups = [np.full(10, value) for value in (0.35, 0.1, 0.7, 1 / 3, 2.3, 123.456)]
    return {"rewards": np.concatenate([*groups, rng.normal(0.0, 1.0, 10)]).astype(dtype), "group_size": 10, **choice}


def _alone(rng: np.random.Generator, choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return groups of one reward, which are always constant."""
    return {"rewards": rng.normal(0.0, 1.0, 8).astype(np.float32), "group_size": 1, **choice}


def _cases() -> Iterator[Case]:
    solved = partial(_solved_alike, dtype="float32")
    for name in PLAIN:
        quick = name in {"trl", "rloo"}
        yield case(f"solved-alike-{name}-float32", solved, PRESETS[name], "float32", quick=quick, level="law")
    follows = partial(case, choice=PRESETS["trl"], follows=OF_GROUP)
    yield follows("solved-alike-as-declared-float32", solved, dtype="float32", level="law")
    for (name, choice), dtype in product(AWKWARD.items(), DTYPES):
        yield case(f"{name}-{dtype}", partial(_awkward, dtype=dtype), choice, dtype, quick=name in {"trl", "mlxrl"})
    for dtype in DTYPES:
        yield follows(f"as-declared-{dtype}", partial(_awkward, dtype=dtype), dtype=dtype)

    # a subject refused groups of one, which only a leave-one-out baseline may
    yield case("found-groups-of-one", _alone, PRESETS["trl"], "float32")


@gate(
    "advantages.constant-group-is-zero",
    name="group_advantages[constant group]",
    level="robustness",
    question="Is the advantage of a group with equal rewards zero?",
    why="The mean of equal floats is not always that float; a division by a tiny deviation amplifies the residue.",
    ops=(GROUP_ADVANTAGES,),
    cases=tuple(_cases()),
    bounds={
        **BOUNDS,
        LARGEST: Bound(
            "derived", "equal rewards have advantage 0; no update notices a thousandth of an ordinary one", NOTICED
        ),
        EXACTLY: Bound("exact", "max = min gives A = 0 by rule", 0.0, level="hardening"),
    },
)
def constant_group_is_zero(t: Trial) -> Iterator[Evidence]:
    """Measure groups of equal rewards in a batch with a varying one: within the textbook limit of 0, or nearly 0.

    Where the naive mean leaves a residue no update may notice it; exactly 0 is hardening.
    """
    size = t.inputs["group_size"]
    if size == 1:  # nothing varies
        alone = np.abs(np.asarray(t.got(GROUP_ADVANTAGES, **t.inputs)["advantages"], np.float64))
        yield from _of_constant(t, float(alone.max()))
        return
    grouped = t.inputs["rewards"].reshape(-1, size)
    naive = np.array([sum(row.tolist(), grouped.dtype.type(0)) / size for row in grouped[:-1]], grouped.dtype)
    residues = int(np.sum(naive != grouped[:-1, 0]))
    got = np.asarray(t.got(GROUP_ADVANTAGES, **t.inputs)["advantages"], np.float64).reshape(-1, size)
    flat = np.abs(got[:-1])
    if size == 8:
        yield t.precondition("groups whose naive mean leaves a residue", residues, "<=", 0)
        limits = t.textbook(GROUP_ADVANTAGES, **t.inputs)["advantages"].reshape(-1, size)[:-1]
        yield from t.agrees(LARGEST, flat, np.zeros(flat.shape), limits)
    else:
        yield t.precondition("groups whose naive mean leaves a residue", residues, ">=", 1)
        at = np.unravel_index(int(np.argmax(np.where(np.isnan(flat), np.inf, flat))), flat.shape)
        yield from _of_constant(t, float(flat[at]), where=f"reward {grouped[at]:.6g}, element {at[1]}")
    moves = float(np.max(np.abs(got[-1])))
    yield t.negative_control(
        "largest |advantage| of a varying group", moves, ">", 0.1, "zero must not be all it returns"
    )


def _of_constant(t: Trial, largest: float, where: str = "") -> Iterator[Evidence]:
    yield t.number(LARGEST, largest, "<=", where=where)
    yield t.number(EXACTLY, largest, "<=", where=where)
