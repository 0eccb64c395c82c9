"""Sample the inputs of a case from its seed, until they meet the preconditions of its gate.

By chance a sample may be of no use to a gate: no token is clipped, or two parts of a batch have the same weight. The
preconditions that a check yields before its first call of the subject depend on inputs and oracle alone. Inputs that do
not meet them are drawn again from the same generator.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Never, cast

import numpy as np

from gates.model import Case, Evidence, Gate, Recipe, Wire
from gates.run.oracle_cache import OracleCache
from gates.run.trial import RunningTrial, Scratch

DRAWS = 100  # where one draw in three misses a precondition, this many do once in 10^47


class _FirstCallError(BaseException):
    """The check has come to its first call. No `Exception`, so that no check catches it."""


def inputs(gate: Gate, case: Case, seed: int, cached: OracleCache | None = None) -> Mapping[str, Wire | Recipe]:
    """Return the first inputs of this seed that meet every precondition; the caller may change them.

    After `DRAWS` attempts the last inputs are returned, and the verdict names the precondition that they miss.
    """
    cached = cached or OracleCache()
    key = f"{gate.id}/{case.name}/{seed}".encode()
    return cast("Mapping[str, Wire | Recipe]", cached.once(key, lambda: _drawn(gate, case, seed, cached)))


def with_model(inputs: Mapping[str, Wire | Recipe], model: str | None) -> Mapping[str, Wire | Recipe]:
    """Return a case's inputs with the user's model in place of the tiny one."""
    if model is None:
        return inputs
    return {
        name: Recipe("model", {"path": model}) if isinstance(value, Recipe) and value.kind == "model" else value
        for name, value in inputs.items()
    }


def _drawn(gate: Gate, case: Case, seed: int, cached: OracleCache) -> Mapping[str, Any]:
    rng = np.random.default_rng(seed)
    for _ in range(DRAWS):
        before = rng.bit_generator.state
        made = case.make(rng)
        if not any(item.role == "signal" and not item.holds for item in beforehand(gate, case, made, cached)):
            break
        if rng.bit_generator.state == before:
            break  # nothing was drawn, so another attempt gives the same inputs
    return made


def beforehand(
    gate: Gate, case: Case, made: Mapping[str, Any], cached: OracleCache | None = None
) -> Iterator[Evidence]:
    """Yield the evidence of a check before its first call of a subject. Errors are left to the trial itself."""

    def stop(*_: Any) -> Never:
        raise _FirstCallError

    with Scratch() as scratch:
        trial = RunningTrial(gate, case, copy.deepcopy(made), stop, scratch, cached=cached or OracleCache())
        try:
            yield from gate.check(trial)
        except (_FirstCallError, Exception):  # noqa: BLE001  when the trial runs, `judge` says whose error it is
            return
