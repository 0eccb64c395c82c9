"""Draw the inputs of a case from its seed, until they meet the preconditions of its gate.

A draw may be useless to a gate by chance: no token is clipped, or two parts of a batch have the same weight.
`Gate.requires` measures that from inputs and oracle alone. Inputs that fail it are drawn again from the same generator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gates.model import Case, Evidence, Gate, Recipe, Wire
from gates.run.oracle_cache import OracleCache
from gates.run.trial import RunningDraw

DRAWS = 100  # if one draw in three misses a precondition, all of these do once in 10^47


def inputs(gate: Gate, case: Case, seed: int, cached: OracleCache | None = None) -> Mapping[str, Wire | Recipe]:
    """Return the first inputs of this seed that meet every precondition of the gate; the caller may change them."""
    return drawn(gate, case, seed, cached or OracleCache())[0]


def drawn(
    gate: Gate, case: Case, seed: int, cached: OracleCache
) -> tuple[Mapping[str, Wire | Recipe], tuple[Evidence, ...]]:
    """Return the first inputs of this seed that meet every precondition of the gate, with the evidence that they do.

    If none of `DRAWS` draws does, return the last one; its evidence names the unmet precondition. Later subjects get the
    same inputs from the cache.
    """
    key = f"{gate.id}/{case.name}/{seed}/{sorted(case.conventions.items())}/{sorted(case.declared.items())}".encode()
    kept: tuple[Mapping[str, Any], tuple[Evidence, ...]] | None = cached.find(key)
    if kept is not None:
        return kept
    rng = np.random.default_rng(seed)
    for _ in range(DRAWS):
        before = rng.bit_generator.state
        sample = case.make(rng)
        preconditions = tuple(gate.requires(RunningDraw(sample, cached)))
        if (
            all(item.holds for item in preconditions) or rng.bit_generator.state == before
        ):  # the inputs do not depend on the generator
            break
    cached.keep(key, (sample, preconditions))
    return sample, preconditions


def with_model(inputs: Mapping[str, Wire | Recipe], model: str | None) -> Mapping[str, Wire | Recipe]:
    """Return a case's inputs with the user's model in place of the tiny one."""
    if model is None:
        return inputs
    return {
        name: Recipe("model", {"path": model}) if isinstance(value, Recipe) and value.kind == "model" else value
        for name, value in inputs.items()
    }
