"""Tell plain cases, in which an exception is a failure, from those that a subject's author may never have thought of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from gates.model import AXES, Case, Gate

NEUTRAL: Final[Mapping[str, Any]] = {  # conventions of a plain case, where it has them
    "rows": "mask",
    "advantages": "row",
    "weights": False,
    "ids_per_position": "one",
    "empty_rows": False,
    "reference_free": False,
}
FULL: Final = ("float32", "float64")


def plain(gate: Gate, case: Case, inputs: Mapping[str, Any]) -> bool:
    """Whether a case holds ordinary numbers in arrays (B, T), and every optional argument has its neutral value.

    Cases of a definition or a law are plain unless their rows are flat, given by lengths or with holes, a dtype is half
    precision, an argument is given that a subject may lack, or top-k asks for more tokens than there are.
    """
    if (case.level or gate.level) not in {"definition", "law"}:
        return False
    if any(case.conventions.get(name, value) != value for name, value in NEUTRAL.items()):
        return False
    optional = {name for op in gate.ops for name in op.optional if name not in {*AXES, *op.settings}}
    if any(inputs.get(name) is not None for name in optional):
        return False
    if (top_k := inputs.get("top_k")) and top_k >= inputs["logits"].shape[-1]:
        return False
    arrays = [value for value in inputs.values() if isinstance(value, np.ndarray)]
    if any(array.dtype.kind == "f" and array.dtype.name not in FULL for array in arrays):
        return False
    policy = inputs.get("policy")
    flat = isinstance(policy, np.ndarray) and policy.ndim == 1
    by_lengths = "mask" in gate.main.inputs and inputs.get("mask") is None and "lengths" in inputs
    return not flat and not by_lengths
