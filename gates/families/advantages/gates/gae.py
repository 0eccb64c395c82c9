"""Is generalised advantage estimation the recurrence of its definition, token by token?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from gates.families import arrays, layouts, row_inputs
from gates.families.advantages import recurrence
from gates.families.advantages.gates.inputs import BOUNDS
from gates.families.units import UNIT
from gates.model import Case, Draw, Evidence, Level, Op, Output, Probe, Trial
from gates.registry import gate
from gates_reference.oracle import gae as oracle

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
    textbook=recurrence.gae,
)


ROWS = ("mask", "holes", "lengths", "flat", "whole")
SETTINGS = {  # γ, λ, and whether values follow and episodes end within rows
    "td": (1.0, 0.0, True),
    "returns": (1.0, 1.0, True),
    "undiscounted": (1.0, 0.95, True),
    "nothing-after": (0.99, 0.95, False),
}


def _make(
    rng: np.random.Generator,
    dtype: str,
    rows: str,
    settings: tuple[float, float, bool] = (0.99, 0.95, True),
    hostile: bool = False,  # noqa: FBT001, FBT002  a keyword of partial
) -> dict[str, Any]:
    count, width = 8, 24
    gamma, lam, ends = settings
    mask = arrays.ragged_mask(rng, count, width)
    if rows == "holes":
        mask &= rng.random(mask.shape) > 0.3
        mask[:, 0] = True
    reward, value = (rng.normal(0.0, spread, (count, width)).astype(dtype) for spread in (1.0, 2.0))
    terminal = (rng.random(mask.shape) < 0.1) & mask
    if hostile:
        mask[3] = False
        reward, value = (np.where(mask, x, bad).astype(dtype) for x, bad in ((reward, np.nan), (value, np.inf)))
        terminal |= ~mask
    made = {
        "rewards": reward,
        "values": value,
        "gamma": gamma,
        "lam": lam,
        "bootstrap": rng.normal(0.0, 2.0, (count,)).astype(dtype) if ends else None,
        "terminal": terminal if ends else None,
    }
    return row_inputs.passed(made, mask, rows)


def _case(
    name: str, rows: str, dtype: str = "float32", *, quick: bool = False, level: Level | None = None, **changes: Any
) -> Case:
    conventions = {"dtype": dtype, "rows": "all" if rows == "whole" else rows}
    make = partial(_make, dtype=dtype, rows=rows, **changes)
    return Case(f"{name}-{dtype}", make, quick=quick, level=level, conventions=conventions)


def _cases() -> Iterator[Case]:
    for rows in ROWS:
        yield _case(f"tokens-{rows}", rows, quick=True)
    for name, settings in SETTINGS.items():
        yield _case(f"tokens-{name}", "mask", settings=settings, quick=True)
    for rows in ("holes", "lengths", "flat", "whole"):  # for libraries without flags and values that follow
        yield _case(f"tokens-{rows}-nothing-after", rows, settings=SETTINGS["nothing-after"])
    for rows in ("holes", "flat"):
        yield _case(f"tokens-{rows}", rows, "float64", quick=rows == "holes")
    for dtype in ("float32", "float64"):
        yield _case("masked-nan", "mask", dtype, hostile=True, quick=dtype == "float32", level="hardening")


def _preconditions(t: Draw) -> Iterator[Evidence]:
    want = t.want(GAE, **t.inputs)
    yield t.precondition("largest |advantage|", np.max(np.abs(want)), ">", 0.1, "zeros agree with zeros")
    if t.inputs["terminal"] is not None:
        inside = t.inputs["mask"] if t.inputs["mask"] is not None else True
        yield t.precondition("tokens that end an episode", int(np.sum(t.inputs["terminal"] & inside)), ">=", 3)


@gate(
    "advantages.gae.matches-definition",
    name="gae",
    level="definition",
    question="Are the estimates those of the recurrence, across masked slots, ends of episodes and ends of rows?",
    why="A terminal flag that cuts the wrong value, or a masked slot that is stepped through, biases every token before it.",
    ops=(GAE,),
    cases=tuple(_cases()),
    bounds=BOUNDS,
    requires=_preconditions,
    probes=(Probe("gae", ("advantages",)),),
)
def gae_matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare every token with the definition; inputs with NaN in masked slots also in other memory layouts."""
    want = t.want(GAE, **t.inputs)
    dtype = str(t.inputs["rewards"].dtype)
    scale = 2 * UNIT[dtype] * oracle.gae_scale(**t.inputs)
    limits = t.textbook(GAE, **t.inputs)["advantages"]
    quantity = f"advantage error in 2u·S ({dtype})"
    yield from t.agrees(quantity, t.got(GAE, **t.inputs)["advantages"], want, limits, scale=scale)
    if np.isnan(t.inputs["rewards"]).any():
        for where, outputs in layouts.values(t, GAE, t.inputs, ("rewards", "values")):
            yield from t.agrees(quantity, outputs["advantages"], want, limits, scale=scale, where=where)
