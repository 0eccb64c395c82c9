"""Is generalised advantage estimation the recurrence of its definition, token by token?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from gates.families import arrays, layouts
from gates.families.advantages.gates.definition import BOUNDS
from gates.families.units import UNIT
from gates.model import Case, Evidence, Op, Output, Probe, Trial
from gates.registry import gate
from reference.oracle import gae as oracle

GAE = Op(
    name="gae",
    outputs={"advantages": Output(like="rewards")},
    inputs={
        "rewards": "(B, T), or (N,) with lengths: float32 or float64, the reward of each token",
        "values": "of the same shape and dtype, the critic's estimate before each token",
        "gamma": "the discount, in [0, 1]",
        "lam": "the decay of the trace, in [0, 1]",
        "bootstrap": "(B,) of the same dtype, the estimate after each row's last token; or None: 0",
        "terminal": "of the shape of the rewards, bool: the episode ends with this token; or None: nowhere",
        "mask": "(B, T) bool, true on tokens; or None",
        "lengths": "(B,) int64 valid prefixes, or of the rows of a flat array; or None",
    },
    source="J. Schulman et al., arXiv 1506.02438, eq. 16",
    formula="δ = r + γ(1 − f)V⁺ − V; A = δ + γλ(1 − f)A⁺, from a row's last token to its first",
    oracle=oracle.gae,
)


def _make(
    rng: np.random.Generator,
    dtype: str,
    *,
    rows: str = "mask",
    gamma: float = 0.99,
    lam: float = 0.95,
    ends: bool = True,
) -> dict[str, Any]:
    count, width = 8, 24
    mask = arrays.ragged_mask(rng, count, width)
    if rows == "holes":
        mask &= rng.random(mask.shape) > 0.3
    reward, value = (rng.normal(0.0, spread, (count, width)).astype(dtype) for spread in (1.0, 2.0))
    terminal = rng.random(mask.shape) < 0.1
    made: dict[str, Any] = {
        "rewards": reward,
        "values": value,
        "gamma": gamma,
        "lam": lam,
        "bootstrap": rng.normal(0.0, 2.0, (count,)).astype(dtype) if ends else None,
        "terminal": terminal if ends else None,
        "mask": mask,
        "lengths": None,
    }
    if rows == "lengths":
        made |= {"mask": None, "lengths": mask.sum(axis=1)}
    if rows == "flat":
        flat = {name: made[name][mask] for name in ("rewards", "values", "terminal")}
        made |= {**flat, "mask": None, "lengths": mask.sum(axis=1)}
    if rows == "whole":
        made |= {"mask": None}
    return made


def _cases() -> Iterator[Case]:
    for dtype in ("float32", "float64"):
        for rows in ("mask", "holes", "lengths", "flat", "whole"):
            make = partial(_make, dtype=dtype, rows=rows)
            yield Case(f"{rows}-{dtype}", make, quick=rows in {"holes", "flat"}, conventions={"dtype": dtype})
        for name, gamma, lam in (("td", 1.0, 0.0), ("returns", 1.0, 1.0), ("undiscounted", 1.0, 0.95)):
            make = partial(_make, dtype=dtype, gamma=gamma, lam=lam)
            yield Case(f"{name}-{dtype}", make, quick=True, conventions={"dtype": dtype})
        make = partial(_make, dtype=dtype, ends=False)
        yield Case(f"nothing-after-{dtype}", make, quick=True, conventions={"dtype": dtype})


@gate(
    "advantages.gae.matches-definition",
    name="gae",
    question="Are the estimates those of the recurrence, across masked slots, ends of episodes and ends of rows?",
    why="A terminal flag that cuts the wrong value, or a masked slot that is stepped through, biases every token before it.",
    ops=(GAE,),
    cases=tuple(_cases()),
    bounds=BOUNDS,
    probes=(Probe("gae", ("advantages",)),),
)
def gae_matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare every token with the exact recurrence, in units of the same recurrence over absolute values."""
    wanted = t.want(GAE, **t.inputs)
    dtype = str(t.inputs["rewards"].dtype)
    yield t.precondition("largest |advantage|", np.max(np.abs(wanted)), ">", 0.1, "zeros agree with zeros")
    if t.inputs["terminal"] is not None:
        yield t.precondition("tokens that end an episode", int(np.sum(t.inputs["terminal"])), ">=", 3)
    scale = 2 * UNIT[dtype] * oracle.gae_scale(**t.inputs)
    quantity = f"advantage error in 2u·S ({dtype})"
    yield t.within(quantity, t.got(GAE, **t.inputs)["advantages"], wanted, scale=scale)
    for where, other in layouts.values(t, GAE, t.inputs, ("rewards", "values")):
        yield t.within(quantity, other["advantages"], wanted, scale=scale, where=where)
