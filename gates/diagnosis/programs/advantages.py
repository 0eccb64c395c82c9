"""The forward definition of group advantages, and what people write instead.

An advantage is a reward less its baseline, over a divisor. Source: docs/definitions.md, "Advantages".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gates.diagnosis.arithmetic import Value, absolute, clip, maximum, sqrt, where
from gates.diagnosis.program import Choices, Data, Inputs, Program
from gates.diagnosis.programs import advantages_edits, advantages_inputs
from gates.diagnosis.programs.advantages_terms import BASELINES, divided
from gates.model import Array


def asked(inputs: Inputs) -> Choices:
    """Return the choices that the keywords of `group_advantages` ask for."""
    return {
        "layout": "given",
        "output": "given",
        "nan": "unscored",
        "has_nan": bool(np.isnan(np.asarray(inputs["rewards"])).any()),
        "baseline": inputs["baseline"],
        "scale": inputs["scale"],
        "spread": "deviation",
        "ddof": inputs["ddof"],
        "eps": inputs["eps"],
        "eps_mode": inputs["eps_mode"],
        "times": "1",
        "clip": None,
        "after": "nothing",
    }


LAYOUTS: Mapping[str, Callable[[Array, int], Array]] = {
    "given": lambda rows, size: rows.reshape(-1, size),
    "every P-th row": lambda rows, size: rows.reshape(size, -1).T,
    "every G-th row": lambda rows, size: rows.reshape(-1, size).T,
    "P rows": lambda rows, size: rows.reshape(size, -1),
    "batch": lambda rows, size: rows.reshape(1, -1),  # noqa: ARG005
    "pairs": lambda rows, size: rows.reshape(-1, 2) if rows.size % 2 == 0 else rows.reshape(-1, size),
}
TIMES: Mapping[str, Callable[[float], float]] = {
    "1": lambda size: 1.0,  # noqa: ARG005
    "−1": lambda size: -1.0,  # noqa: ARG005
    "√G": lambda size: size**0.5,
    "1/√G": lambda size: size**-0.5,
    "1/G": lambda size: 1.0 / size,
    "G": lambda size: size,
}


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001  no gradient is asked
    """Return the advantages."""
    rewards = np.asarray(data["rewards"])
    table = LAYOUTS[chosen["layout"]](np.arange(rewards.size), int(data["group_size"]))
    scored = ~np.isnan(rewards)[table] if chosen["nan"] != "zero" else np.ones(table.shape, bool)
    groups = data.lift(np.nan_to_num(rewards).astype(rewards.dtype))[table]
    centred = where(scored, BASELINES[chosen["baseline"]](groups, scored), 0.0)
    found = divided(data, chosen, groups, centred, scored) * TIMES[chosen["times"]](float(table.shape[1]))
    found = where(scored, found, 0.0)
    if chosen["nan"] == "spreads":
        found = found + np.where(scored.all(axis=1, keepdims=True), 0.0, np.nan)
    found = found.reshape(-1)[np.argsort(table.reshape(-1))]
    found = AFTER[chosen["after"]](found)
    if chosen["clip"] is not None:
        found = clip(found, -chosen["clip"], chosen["clip"])
    return {"advantages": found[_output(chosen, rewards.size, int(data["group_size"]))]}


def _output(chosen: Choices, rows: int, size: int) -> Array:
    places = np.arange(rows)
    return places.reshape(-1, size).T.reshape(-1) if chosen["output"] == "member-major" else places


def _whitened(found: Value, ddof: float) -> Value:
    off = found - found.mean()
    return off / (sqrt((off * off).sum() / max(found.shape[0] - ddof, 1.0)) + 1e-8)


AFTER: Mapping[str, Callable[[Value], Value]] = {
    "nothing": lambda found: found,
    "whitened": lambda found: _whitened(found, 1.0),
    "whitened, ddof 0": lambda found: _whitened(found, 0.0),
    "centred": lambda found: found - found.mean(),
    "positive": lambda found: maximum(found, 0.0),
    "absolute": absolute,
}
PROGRAM = Program(
    op="group_advantages",
    asked=asked,
    compute=compute,
    edits=advantages_edits.edits,
    inputs=advantages_inputs.designed,
    outputs=("advantages",),
    places=advantages_inputs.places,
    fitted=advantages_edits.fitted,
    presets=advantages_edits.presets,
)
PROGRAMS = (PROGRAM,)
