"""A small op and gate on which the judge itself is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gates.model import Bound, Case, Evidence, Gate, Op, Output, Probe, Trial

DOUBLE = Op(
    "double", {"y": Output(like="x")}, source="arithmetic", formula="y = 2x", oracle=lambda x: 2.0 * np.asarray(x)
)


def _check(t: Trial) -> Iterator[Evidence]:
    wanted = t.want(DOUBLE, **t.inputs)
    yield t.precondition("largest |x|", np.abs(t.inputs["x"]).max(), ">", 0.5)
    yield t.within("y", t.got(DOUBLE, **t.inputs)["y"], wanted, scale=np.abs(wanted))


def make_gate(check: Callable[[Trial], Iterator[Evidence]] = _check, **changes: Any) -> Gate:
    """Return a gate that asks whether y = 2x."""
    case = Case("some", lambda rng: {"x": rng.normal(size=8)}, quick=True, limit_s=5.0)
    values: dict[str, Any] = {
        "id": "double.matches-definition",
        "question": "Is y = 2x?",
        "why": "It is a test.",
        "ops": (DOUBLE,),
        "cases": (case,),
        "bounds": {"y": Bound("derived", "one rounding", 1e-12)},
        "check": check,
        "name": "double",
        "probes": (Probe("double", ("y",)),),
    }
    return Gate(**{**values, **changes})
