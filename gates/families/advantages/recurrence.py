"""The forward definition of generalised advantage estimation, written once over an arithmetic.

Source: docs/definitions.md, "GAE"; Schulman et al., arXiv 1506.02438, eq. 16; λ-returns: Sutton and Barto, 2nd ed.,
section 12.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value, sqrt, where
from gates.arithmetic.number import Floats, Number, constant
from gates.families.advantages import edits, inputs
from gates.families.limits import limits
from gates.families.program import Choices, Data, Inputs, Program
from gates.families.rows import Grid
from gates.model import Array

CUTS_VALUE = frozenset(("given", "value only", "inverted", "early"))
CUTS_TRACE = frozenset(("given", "trace only", "inverted", "early"))


def asked(call: Inputs) -> Choices:
    """Return the choices that a call of `gae` asks for."""
    return {
        "gamma": float(call["gamma"]),
        "lam": float(call["lam"]),
        "bootstrap": "given" if call.get("bootstrap") is not None else "none",
        "terminal": "given" if call.get("terminal") is not None else "none",
        "padding": "skipped",
        "value": "less V",
        "trace": "γλ",
        "own": "subtracted",
        "values": "given",
        "rewards": "given",
        "next": "γ V",
        "recurrence": "of A",
        "after": "nothing",
        "sign": 1.0,
    }


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001  no gradient is asked
    """Return the advantages."""
    grid = Grid.of(data.inputs, "rewards")
    counts = np.asarray(grid.counts)
    advantages = RECURRENCES[chosen["recurrence"]](data, chosen, grid)
    if chosen["value"] == "returns":
        advantages = advantages + grid.lifted(data, "values")
    if chosen["after"] != "nothing":
        advantages = _whitened(advantages, counts, chosen["after"])
    if chosen["sign"] != 1.0:
        advantages = advantages * chosen["sign"]
    return {"advantages": grid.back(where(counts, advantages, 0.0))}


def _of_advantages(data: Data, chosen: Choices, grid: Grid) -> Value:
    """Return A = δ + γλA⁺, from the last token to the first."""
    reward, value = _shifted(data, chosen, grid)
    read, cuts = _read(chosen, grid), _cuts(data, chosen, grid)
    discount, decay = (_held(data, chosen[name]) for name in ("gamma", "lam"))
    trace = {"γλ": discount * decay, "λ": decay, "γ": discount, "1": 1.0}[chosen["trace"]]
    share = {"γ V": discount, "V": 1.0, "0": 0.0, "−γ V": -discount}[chosen["next"]]
    own = {"subtracted": -1.0, "added": 1.0, "left out": 0.0}[chosen["own"]]
    following, columns = _bootstrap(data, chosen, len(read)), []
    advantage = _nothing(data, len(read))
    for t in reversed(range(read.shape[1])):
        after, kept = (1.0 - cuts[:, t] * (chosen["terminal"] in whose) for whose in (CUTS_VALUE, CUTS_TRACE))
        moved = reward[:, t] + following * share * after + value[:, t] * own + trace * advantage * kept
        advantage = where(read[:, t], moved, advantage)
        following = where(read[:, t], value[:, t], following)
        columns.append(advantage)
    return _stacked(columns[::-1])


def _of_returns(data: Data, chosen: Choices, grid: Grid) -> Value:
    """Return G − V with G = r + γ((1 − λ)V⁺ + λG⁺), from the last token to the first."""
    reward, value = (grid.lifted(data, name) for name in ("rewards", "values"))
    read, cuts = _read(chosen, grid), _cuts(data, chosen, grid)
    discount, decay = (_held(data, chosen[name]) for name in ("gamma", "lam"))
    left, columns = 1.0 - decay, []
    following = returned = _bootstrap(data, chosen, len(read))
    for t in reversed(range(read.shape[1])):
        moved = reward[:, t] + discount * (1.0 - cuts[:, t]) * (left * following + decay * returned)
        returned = where(read[:, t], moved, returned)
        columns.append(returned - value[:, t])
        following = where(read[:, t], value[:, t], following)
    return _stacked(columns[::-1])


RECURRENCES: Mapping[str, Callable[[Data, Choices, Grid], Value]] = {"of A": _of_advantages, "of G": _of_returns}


def _shifted(data: Data, chosen: Choices, grid: Grid) -> tuple[Value, Value]:
    """Return rewards and values of each slot, (B, T) each."""
    reward, value = (grid.lifted(data, name) for name in ("rewards", "values"))
    columns = np.arange(grid.counts.shape[1])
    if chosen["rewards"] == "next":
        reward = reward[:, np.minimum(columns + 1, columns[-1])]
    if chosen["values"] == "before":
        value = value[:, np.maximum(columns - 1, 0)]
    return reward, value


def _held(data: Data, value: float) -> Value:
    """Return a constant that a program may or may not round to the dtype."""
    if not data.bounded:
        return value
    return constant(value, data.lift(data["rewards"]).dtype).plus_relative(1.0)


def _nothing(data: Data, rows: int) -> Value:
    return data.lift(np.zeros(rows, np.asarray(data["rewards"]).dtype))


def _bootstrap(data: Data, chosen: Choices, rows: int) -> Value:
    """Return the value after each row's last token."""
    return data.lift(data["bootstrap"]) if chosen["bootstrap"] == "given" else _nothing(data, rows)


def _read(chosen: Choices, grid: Grid) -> Array:
    """Return the slots that the recurrence steps through."""
    counts = np.asarray(grid.counts)
    return counts if chosen["padding"] == "skipped" else np.ones(counts.shape, bool)


def _cuts(data: Data, chosen: Choices, grid: Grid) -> Array:
    """Return 1 where an episode ends with the token, (B, T)."""
    ends = data.get("terminal")
    shape = np.shape(data["rewards"])
    cuts = np.asarray(grid.wide(np.zeros(shape) if ends is None else np.asarray(ends, np.float64)))
    if chosen["terminal"] == "early":
        return np.pad(cuts[:, 1:], ((0, 0), (0, 1)))
    return 1.0 - cuts if chosen["terminal"] == "inverted" else cuts


def _stacked(columns: Sequence[Value]) -> Value:
    """Stack columns to (B, T); no gradient passes."""
    first = columns[0]
    if not isinstance(first, Number):
        return np.stack(columns, axis=1)
    parts = [np.stack([getattr(x, name) for x in columns], axis=1) for name in ("value", "error", "void")]
    return Number(parts[0], first.dtype, parts[1], parts[2])


def _whitened(advantages: Value, counts: Array, kind: str) -> Value:
    """Return the advantages less their mean over tokens, over their deviation unless they are only centred."""
    n = float(counts.sum())
    off = advantages - where(counts, advantages, 0.0).sum() / n
    if kind == "centred":
        return off
    squares = where(counts, off * off, 0.0).sum() / (n if kind == "whitened by n" else max(n - 1.0, 1.0))
    return off / sqrt(squares + 1e-8)


GAE = Program(
    op="gae",
    asked=asked,
    compute=compute,
    edits=edits.edits_of_gae,
    inputs=inputs.designed_of_gae,
    outputs=("advantages",),
    places=inputs.places_of_gae,
    presets=edits.presets_of_gae,
)
PROGRAMS = (GAE,)


def gae(**call: Any) -> dict[str, Floats]:
    """Return the textbook limits of `advantages`, over the recurrences of A and of the λ-returns less V."""
    return limits(GAE, call, [{"recurrence": name} for name in RECURRENCES])
