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
from gates.families.advantages import inputs, recurrence_edits
from gates.families.limits import limits
from gates.families.program import Choices, Data, Inputs, Program
from gates.families.rows import Grid, misread
from gates.model import Array

MOVED = ("given", "inverted", "early", "late", "last token", "reward too", "zero")  # flags of ends that cut both
CUTS_VALUE = frozenset((*MOVED, "value only"))
CUTS_TRACE = frozenset((*MOVED, "trace only"))


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
    trace = _trace(chosen, discount, decay)
    share = SHARES[chosen["next"]](discount, decay)
    own = {"subtracted": -1.0, "added": 1.0, "left out": 0.0}[chosen["own"]]
    following, columns = _bootstrap(data, chosen, len(read)), []
    advantage = _nothing(data, len(read))
    for t in reversed(range(read.shape[1])):
        after, kept = (1.0 - cuts[:, t] * (chosen["terminal"] in whose) for whose in (CUTS_VALUE, CUTS_TRACE))
        moved = reward[:, t] + following * share * after + value[:, t] * own + trace * advantage * kept
        if chosen["terminal"] == "zero":
            moved = moved * (1.0 - cuts[:, t])
        advantage = where(read[:, t], moved, _skipped(chosen["padding"], advantage, discount, decay))
        following = where(read[:, t], value[:, t], _followed(chosen["padding"], following, value[:, t]))
        columns.append(advantage)
    return _stacked(columns[::-1])


def _trace(chosen: Choices, discount: Value, decay: Value) -> Value:
    traces: Mapping[str, Callable[[], Value]] = {
        "λ": lambda: decay,
        "γ": lambda: discount,
        "1": lambda: 1.0,
        "γ²λ": lambda: discount * discount * decay,
        "γλ²": lambda: discount * decay * decay,
        "γ(1 − λ)": lambda: discount * (1.0 - decay),
    }
    return traces.get(chosen["trace"], lambda: discount * decay)()


SHARES: Mapping[str, Callable[[Value, Value], Value]] = {  # of the value that follows
    "γ V": lambda discount, decay: discount,  # noqa: ARG005
    "V": lambda discount, decay: 1.0,  # noqa: ARG005
    "0": lambda discount, decay: 0.0,  # noqa: ARG005
    "−γ V": lambda discount, decay: -discount,  # noqa: ARG005
    "λ V": lambda discount, decay: decay,  # noqa: ARG005
    "γλ V": lambda discount, decay: discount * decay,
    "γ² V": lambda discount, decay: discount * discount,  # noqa: ARG005
}


def _skipped(padding: str, advantage: Value, discount: Value, decay: Value) -> Value:
    """Return the trace after a slot without a token."""
    decays: Mapping[str, Callable[[], Value]] = {
        "decays": lambda: discount * decay,
        "decays by γ": lambda: discount,
        "decays by λ": lambda: decay,
        "resets": lambda: 0.0,
        "resets both": lambda: 0.0,
    }
    return advantage * decays[padding]() if padding in decays else advantage


def _followed(padding: str, following: Value, value: Value) -> Value:
    """Return the value that follows a token before a slot without one."""
    if padding in {"value 0", "resets both"}:
        return following * 0.0
    return value if padding == "value of slot" else following


def _forward(data: Data, chosen: Choices, grid: Grid) -> Value:
    """Return A = δ + γλA⁻, from the first token to the last."""
    deltas = _of_advantages(data, {**chosen, "lam": 0.0}, grid)
    read, cuts = _read(chosen, grid), _cuts(data, chosen, grid)
    trace = _trace(chosen, *(_held(data, chosen[name]) for name in ("gamma", "lam")))
    advantage, columns = _nothing(data, len(read)), []
    for t in range(read.shape[1]):
        advantage = where(read[:, t], deltas[:, t] + trace * advantage * (1.0 - cuts[:, t]), advantage)
        columns.append(advantage)
    return _stacked(columns)


def _from_the_start(data: Data, chosen: Choices, grid: Grid) -> Value:
    """Return A = Σ (γλ)^k δ over the tokens from here to the end, where k counts from the row's first token."""
    deltas = _of_advantages(data, {**chosen, "lam": 0.0}, grid)
    read = _read(chosen, grid)
    trace = _trace(chosen, *(_held(data, chosen[name]) for name in ("gamma", "lam")))
    power, weighed = _nothing(data, len(read)) + 1.0, []
    for t in range(read.shape[1]):
        weighed.append(where(read[:, t], deltas[:, t] * power, 0.0))
        power = where(read[:, t], power * trace, power)
    total, columns = _nothing(data, len(read)), []
    for t in reversed(range(read.shape[1])):
        total = total + weighed[t]
        columns.append(total)
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


FORMS = ("of A", "of G")  # usual forms of one definition
RECURRENCES: Mapping[str, Callable[[Data, Choices, Grid], Value]] = {
    "of A": _of_advantages,
    "of G": _of_returns,
    "forward": _forward,
    "from the start": _from_the_start,
}


def _shifted(data: Data, chosen: Choices, grid: Grid) -> tuple[Value, Value]:
    """Return rewards and values of each slot, (B, T) each."""
    reward, value = (grid.lifted(data, name) for name in ("rewards", "values"))
    columns = np.arange(grid.counts.shape[1])
    if (chosen["rewards"], chosen["values"]) == ("values", "rewards"):
        reward, value = value, reward
    if chosen["padding"] == "zeros":
        reward, value = (where(np.asarray(grid.counts), x, 0.0) for x in (reward, value))
    following, before = np.minimum(columns + 1, columns[-1]), np.maximum(columns - 1, 0)
    if chosen["rewards"] in {"next", "before"}:
        reward = reward[:, following if chosen["rewards"] == "next" else before]
    if chosen["values"] in {"next", "before"}:
        value = value[:, following if chosen["values"] == "next" else before]
    if chosen["terminal"] == "reward too":
        reward = reward * (1.0 - _cuts(data, chosen, grid))
    return reward * 0.0 if chosen["rewards"] == "left out" else reward, value


def _held(data: Data, value: float) -> Value:
    """Return a constant that a program may or may not round to the dtype."""
    if not data.bounded:
        return value
    return constant(value, data.lift(data["rewards"]).dtype).plus_relative(1.0)


def _nothing(data: Data, rows: int) -> Value:
    return data.lift(np.zeros(rows, np.asarray(data["rewards"]).dtype))


def _bootstrap(data: Data, chosen: Choices, rows: int) -> Value:
    """Return the value after each row's last token."""
    if chosen["bootstrap"] == "last value":
        grid = Grid.of(data.inputs, "rewards")
        last = grid.counts.shape[1] - 1 - np.asarray(grid.counts)[:, ::-1].argmax(axis=1)
        return grid.lifted(data, "values")[np.arange(rows), last]
    if chosen["bootstrap"] == "next row":
        return data.lift(data["bootstrap"])[np.roll(np.arange(rows), -1)]
    return data.lift(data["bootstrap"]) if chosen["bootstrap"] == "given" else _nothing(data, rows)


def _read(chosen: Choices, grid: Grid) -> Array:
    """Return the slots that the recurrence steps through."""
    counts = np.asarray(grid.counts)
    return np.ones(counts.shape, bool) if chosen["padding"] in {"stepped through", "zeros"} else counts


def _cuts(data: Data, chosen: Choices, grid: Grid) -> Array:
    """Return 1 where an episode ends with the token, (B, T)."""
    ends = data.get("terminal")
    shape = np.shape(data["rewards"])
    cuts = np.asarray(grid.wide(np.zeros(shape) if ends is None else np.asarray(ends, np.float64)))
    if chosen["terminal"] == "early":
        return np.pad(cuts[:, 1:], ((0, 0), (0, 1)))
    if chosen["terminal"] == "late":
        return np.pad(cuts[:, :-1], ((0, 0), (1, 0)))
    if chosen["terminal"] == "last token":
        counts = np.asarray(grid.counts)
        return (counts & ~misread(counts, "without last")).astype(np.float64)
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
    if kind == "whitened by row":
        n = np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
        off = advantages - where(counts, advantages, 0.0).sum(1, keepdims=True) / n
        squares = where(counts, off * off, 0.0).sum(1, keepdims=True) / np.maximum(n - 1.0, 1.0)
        return off / sqrt(squares + 1e-8)
    if kind == "whitened over slots":
        advantages, counts = where(counts, advantages, 0.0), np.ones_like(counts)
    n = float(counts.sum())
    off = advantages - where(counts, advantages, 0.0).sum() / n
    if kind == "centred":
        return off
    squares = where(counts, off * off, 0.0).sum() / (n if kind == "whitened by n" else max(n - 1.0, 1.0))
    return (advantages if kind == "divided" else off) / sqrt(squares + 1e-8)


GAE = Program(
    op="gae",
    asked=asked,
    compute=compute,
    edits=recurrence_edits.edits_of_gae,
    inputs=inputs.designed_of_gae,
    outputs=("advantages",),
    places=inputs.places_of_gae,
    presets=recurrence_edits.presets_of_gae,
)
PROGRAMS = (GAE,)


def gae(**call: Any) -> dict[str, Floats]:
    """Return the textbook limits of `advantages`, over the recurrences of A and of the λ-returns less V."""
    return limits(GAE, call, [{"recurrence": name} for name in FORMS])
