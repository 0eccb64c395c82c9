"""Sample the inputs of a case from its seed, until they meet the preconditions of its gate.

By chance a sample may be of no use to a gate: no token is clipped, or two parts of a batch have the same weight. The
preconditions that a check yields before its first call of the subject depend on inputs and oracle alone. Inputs that do
not meet them are drawn again from the same generator.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Never

import numpy as np

from gates.model import Case, Evidence, Gate, Recipe, Wire
from gates.run.oracle_cache import OracleCache
from gates.run.trial import RunningTrial, Scratch

DRAWS = 100  # where one draw in three misses a precondition, this many do once in 10^47


class _FirstCallError(BaseException):
    """The check has come to its first call. No `Exception`, so that no check catches it."""


class RedrawError(BaseException):
    """The inputs miss a precondition, and others can be drawn. No `Exception`, so that no check catches it."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Inputs of a case, and whether a check that finds a precondition unmet may ask for others."""

    inputs: Mapping[str, Any]
    again: bool


def attempts(gate: Gate, case: Case, seed: int, cached: OracleCache) -> Iterator[Drawn]:
    """Yield inputs until the caller takes some: those that were taken before, else `DRAWS` attempts.

    `take` notes which were taken. After the last attempt the verdict names the precondition that they miss.
    """
    known = cached.find(_key(gate, case, seed))
    if known is not None:
        yield Drawn(known, again=False)
        return
    rng = np.random.default_rng(seed)
    for left in reversed(range(DRAWS)):
        before = rng.bit_generator.state
        made = case.make(rng)
        again = left > 0 and rng.bit_generator.state != before  # else another attempt gives the same inputs
        yield Drawn(made, again=again)
        if not again:
            return


def take(gate: Gate, case: Case, seed: int, cached: OracleCache, taken: Mapping[str, Any]) -> None:
    """Note the inputs that meet every precondition, for the subjects that follow."""
    cached.keep(_key(gate, case, seed), taken)


def inputs(gate: Gate, case: Case, seed: int, cached: OracleCache | None = None) -> Mapping[str, Wire | Recipe]:
    """Return the first inputs of this seed that meet every precondition before the first call; the caller may change them.

    `judge` gets the same ones from `attempts`, in the one pass in which it calls the subject.
    """
    cached = cached or OracleCache()
    for drawn in attempts(gate, case, seed, cached):
        unmet = (item.role == "signal" and not item.holds for item in beforehand(gate, case, drawn.inputs, cached))
        if not (any(unmet) and drawn.again):
            take(gate, case, seed, cached, drawn.inputs)
            return drawn.inputs
    raise AssertionError("the last attempt is always taken")


def _key(gate: Gate, case: Case, seed: int) -> bytes:
    return f"{gate.id}/{case.name}/{seed}".encode()


def with_model(inputs: Mapping[str, Wire | Recipe], model: str | None) -> Mapping[str, Wire | Recipe]:
    """Return a case's inputs with the user's model in place of the tiny one."""
    if model is None:
        return inputs
    return {
        name: Recipe("model", {"path": model}) if isinstance(value, Recipe) and value.kind == "model" else value
        for name, value in inputs.items()
    }


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
