"""Inputs of a case, drawn from its seed until they show what the gate's signals ask for.

Chance alone can leave a gate nothing to see: clips that happen to stop no token, two parts of a batch that happen to
weigh the same. What a check yields before its first call of the subject is of the inputs and of the definition, and of no
subject; inputs that lack one of those signals are drawn again, from the same generator.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Never, cast

import numpy as np

from gates.model import Case, Evidence, Gate, Recipe, Wire
from gates.run.oracle_cache import OracleCache
from gates.run.trial import RunningTrial, Scratch

DRAWS = 100  # a signal that one draw in three lacks is then lacking once in 10^47; most lack it once in some hundreds


class _FirstCallError(BaseException):
    """The check has come to its first call; no check catches it, for it is no `Exception`."""


def inputs(gate: Gate, case: Case, seed: int, answers: OracleCache | None = None) -> Mapping[str, Wire | Recipe]:
    """Return a case's inputs of a seed, the caller's own: the first that were drawn with every signal.

    After `DRAWS` without, the last ones: then the gate says itself that they have no signal.
    """
    answers = answers or OracleCache()
    key = f"{gate.id}/{case.name}/{seed}".encode()
    return cast("Mapping[str, Wire | Recipe]", answers.once(key, lambda: _drawn(gate, case, seed, answers)))


def _drawn(gate: Gate, case: Case, seed: int, answers: OracleCache) -> Mapping[str, Any]:
    rng = np.random.default_rng(seed)
    for _ in range(DRAWS):
        before = rng.bit_generator.state
        made = case.make(rng)
        if not any(item.role == "signal" and not item.holds for item in beforehand(gate, case, made, answers)):
            break
        if rng.bit_generator.state == before:
            break  # nothing was drawn, so nothing else can be
    return made


def beforehand(
    gate: Gate, case: Case, made: Mapping[str, Any], answers: OracleCache | None = None
) -> Iterator[Evidence]:
    """Yield what a check says of inputs before it first calls a subject; what it raises it will raise again when it is run."""

    def stop(*_: Any) -> Never:
        raise _FirstCallError

    with Scratch() as scratch:
        trial = RunningTrial(gate, case, copy.deepcopy(made), stop, scratch, answers=answers or OracleCache())
        try:
            yield from gate.check(trial)
        except (_FirstCallError, Exception):  # noqa: BLE001  the trial itself tells whose error it is
            return
