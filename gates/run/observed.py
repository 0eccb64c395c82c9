"""Arithmetic is observed: an answer to float64 data is right if it lies within the reach of float32 arithmetic.

Code that casts its inputs to float32 is right code. So a check whose textbook limits do not hold on float64 data is run once
more with the limits of float32 arithmetic on the same inputs. If every claim then holds, the evidence says so.

- Claims of full precision beside a textbook limit are not asked of such an answer. Gates without textbook limits are about
  precision itself (`loss.full-precision`, rows of a whole vocabulary): there it is `imprecise`.
- An op that declares `arithmetic=("float64",)` promises float64, and is held to it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gates.model import IN_LIMITS, Evidence
from gates.run.trial import RunningTrial
from gates.worker.process import Hello


def observed(trial: RunningTrial, evidence: Sequence[Evidence], hello: Hello) -> list[Evidence]:
    """Return the evidence of a check, with float32 claims in place of those that only float32 arithmetic explains."""
    beyond = any(not item.holds and item.quantity.endswith(IN_LIMITS) for item in evidence)
    if not beyond or not in_float64(trial.inputs) or promises_float64(trial, hello):
        return list(evidence)
    narrow = replace(trial, in_float32=True, facts={}, comparisons=[])
    precise = {quantity for quantity, bound in trial.gate.bounds.items() if bound.level == "precision"}
    return granted(evidence, list(trial.gate.check(narrow)), precise)


def in_float64(value: Any) -> bool:
    """Whether a value is a float64 array, or holds one."""
    if isinstance(value, Mapping | list | tuple):
        return any(map(in_float64, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, np.ndarray) and value.dtype == np.float64


def promises_float64(trial: RunningTrial, hello: Hello) -> bool:
    """Whether an op of the gate declares float64 arithmetic."""
    provided = (hello.provides.get(op.name) for op in trial.gate.ops)
    return any(op is not None and "float64" in op.conventions.get("arithmetic", ()) for op in provided)


def granted(first: Sequence[Evidence], second: Sequence[Evidence], precise: Container[str]) -> list[Evidence]:
    """Return the evidence with each failed claim replaced by the one in float32, if all of these hold, else the first.

    Claims of the `precise` quantities are left out where they do not hold.
    """
    before, asked = list(first[: len(first) - len(second)]), first[len(first) - len(second) :]
    if [item.quantity for item in asked] != [item.quantity for item in second]:
        return list(first)
    result = before
    for wide, narrow in zip(asked, second, strict=True):
        if wide.holds or narrow.holds:
            result.append(wide if wide.holds else narrow)
        elif wide.quantity not in precise:
            return list(first)
    return result
