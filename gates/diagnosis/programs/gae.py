"""The forward definition of generalised advantage estimation, and what people write instead.

Source: docs/definitions.md, "GAE".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from gates.diagnosis.arithmetic import Value, sqrt, where
from gates.diagnosis.program import Choices, Data, Edit, Inputs, Program
from gates.diagnosis.programs import row_inputs
from gates.diagnosis.programs.rows import Grid
from gates.model import Array

GAMMAS, LAMBDAS = (1.0, 0.99, 0.95, 0.9), (1.0, 0.97, 0.95, 0.9, 0.0)  # as people write them


def asked(inputs: Inputs) -> Choices:
    """Return the choices that the keywords of `gae` ask for."""
    return {
        "gamma": float(inputs["gamma"]),
        "lam": float(inputs["lam"]),
        "bootstrap": "given" if inputs.get("bootstrap") is not None else "none",
        "terminal": "given" if inputs.get("terminal") is not None else "none",
        "padding": "skipped",
        "value": "less V",
        "trace": "γλ",
        "next": "γ V",
        "after": "nothing",
        "sign": 1.0,
    }


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001  no gradient is asked
    """Return the advantages."""
    grid = Grid.of(data.inputs, "rewards")
    counts = np.asarray(grid.counts)
    read = counts if chosen["padding"] == "skipped" else np.ones(counts.shape, bool)
    reward, value = (grid.lifted(data, name) for name in ("rewards", "values"))
    cuts = _cuts(data, grid)
    dtype = np.asarray(data["rewards"]).dtype.name
    discount, decay = data.scalar(chosen["gamma"], dtype), data.scalar(chosen["lam"], dtype)
    trace = {"γλ": discount * decay, "λ": decay}[chosen["trace"]]
    following = data.lift(data["bootstrap"]) if chosen["bootstrap"] == "given" else value[:, 0] * 0.0
    advantage, found = value[:, 0] * 0.0, value * 0.0
    for t in reversed(range(counts.shape[1])):
        after, kept = (1.0 - cuts[:, t] * (chosen["terminal"] in whose) for whose in (CUTS_VALUE, CUTS_TRACE))
        next_value = following * (discount if chosen["next"] == "γ V" else 1.0)
        moved = reward[:, t] + next_value * after - value[:, t] + trace * advantage * kept
        advantage = where(read[:, t], moved, advantage)
        following = where(read[:, t], value[:, t], following)
        found = where(np.arange(counts.shape[1]) == t, advantage.reshape(-1, 1), found)
    if chosen["value"] == "returns":
        found = found + value
    if chosen["after"] == "whitened":
        found = _whitened(found, counts)
    return {"advantages": grid.back(where(counts, found * chosen["sign"], 0.0))}


CUTS_VALUE = frozenset(("given", "value only"))
CUTS_TRACE = frozenset(("given", "trace only"))


def _cuts(data: Data, grid: Grid) -> Array:
    """Return 1 where an episode ends with a token, (B, T)."""
    ends = data.get("terminal")
    shape = np.shape(data["rewards"])
    return np.asarray(grid.wide(np.zeros(shape) if ends is None else np.asarray(ends, np.float64)))


def _whitened(found: Value, counts: Array) -> Value:
    """Return the numbers less the mean of the tokens', over their deviation."""
    n = float(counts.sum())
    off = found - where(counts, found, 0.0).sum() / n
    variance = where(counts, off * off, 0.0).sum() / max(n - 1.0, 1.0)
    return off / sqrt(variance + 1e-8)


def edits(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of a recurrence with these choices, conventions first."""
    gamma, lam = asked["gamma"], asked["lam"]
    yield Edit("advantages whitened over the batch's tokens afterwards", {"after": "whitened"}, convention=True)
    yield from (Edit(f"γ = {x:g}", {"gamma": x}, True, f"{gamma:g}") for x in GAMMAS if x != gamma)
    yield from (Edit(f"λ = {x:g}", {"lam": x}, True, f"{lam:g}") for x in LAMBDAS if x != lam)
    if gamma != lam:
        yield Edit("γ and λ exchanged", {"gamma": lam, "lam": gamma})
    yield Edit("the trace decays by λ, not by γλ", {"trace": "λ"})
    yield Edit("the value that follows is not discounted by γ", {"next": "V"})
    yield Edit("returns: the advantages plus the values", {"value": "returns"}, convention=True)
    yield Edit("slots without a token stepped through, as if they were tokens", {"padding": "stepped through"})
    yield Edit("advantages with the wrong sign", {"sign": -1.0})
    if asked["bootstrap"] == "given":
        yield Edit("the value after a row's last token taken for 0", {"bootstrap": "none"}, convention=True)
    if asked["terminal"] == "given":
        yield Edit("the ends of episodes ignored", {"terminal": "none"}, convention=True)
        yield Edit("the end of an episode cuts the value that follows, not the trace", {"terminal": "value only"})
        yield Edit("the end of an episode cuts the trace, not the value that follows", {"terminal": "trace only"})


def designed(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight batches with the settings of a call."""
    for mask in row_inputs.masks(example, "rewards", rng):
        arrays = {"rewards": rng.normal(0.2, 1.0, mask.shape), "values": rng.normal(0.3, 2.0, mask.shape)}
        given = row_inputs.laid_out(example, "rewards", {name: np.asarray(x) for name, x in arrays.items()}, mask)
        if example.get("bootstrap") is not None:
            given["bootstrap"] = rng.normal(0.5, 2.0, len(mask)).astype(np.asarray(example["bootstrap"]).dtype)
        if example.get("terminal") is not None:
            ends = (rng.random(mask.shape) < 0.2) & mask
            given["terminal"] = ends[mask] if np.ndim(example["rewards"]) == 1 else ends
        yield given


def places(inputs: Inputs, output: str) -> Iterator[tuple[str, Array]]:  # noqa: ARG001  there is one
    """Yield sets of tokens by name."""
    yield from row_inputs.places(inputs, "rewards")
    if inputs.get("terminal") is not None:
        yield "where an episode ends", np.asarray(inputs["terminal"], bool)


def presets(asked: Choices) -> Iterator[Edit]:  # noqa: ARG001  every setting can be named
    """Yield the recurrence, and verl's (docs/definitions.md, "Presets")."""
    yield Edit("gae, A = δ + γλA⁺", {"after": "nothing"}, convention=True)
    words = "gae whitened over the batch's tokens afterwards (verl adv_estimator=gae)"
    yield Edit(words, {"after": "whitened"}, convention=True)


PROGRAM = Program(
    op="gae",
    asked=asked,
    compute=compute,
    edits=edits,
    inputs=designed,
    outputs=("advantages",),
    places=places,
    presets=presets,
)
PROGRAMS = (PROGRAM,)
