"""The gradient of log-probs and entropies: each mistake is named, and nothing is named that is not so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from edited import cases_of, changed, designed, gates_of, misnamed, of_oracle

from gates.diagnosis.diagnose import diagnose, identify
from gates.families.program import Inputs
from gates.families.programs import programs
from reference.oracle import logprobs

PROGRAM = programs()["selective_log_softmax_backward"]
CASES = {f"{gate.id}-{case.name}": (gate, case) for gate in gates_of(PROGRAM) for case in cases_of(gate)}


def oracle(**given: Any) -> Any:
    return logprobs.selective_log_softmax_backward(**given)


def calls(name: str) -> list[Inputs]:
    return designed(PROGRAM, *CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_the_oracle_computes_the_requested_choice(name: str) -> None:
    """The forward definition's gradient is the oracle's, which is written out."""
    found = diagnose(PROGRAM, of_oracle(PROGRAM, calls(name), oracle))
    assert (found.kind, found.rho < 0.5) == ("as asked", True)


@pytest.mark.parametrize("name", CASES)
def test_each_edit_is_named(name: str) -> None:
    """By its own words, or by those of another edit that is the same function of every input."""
    assert misnamed(PROGRAM, calls(name), every=3, first=len(name)) == []


def test_an_unknown_formula_has_a_location() -> None:
    """What no edit describes gets no name, but the place where it differs."""

    def given_ids(inputs: Inputs) -> Any:
        logits, ids = np.asarray(inputs["logits"]), np.asarray(inputs["ids"])
        each = ids.reshape(*logits.shape[:-1], -1)
        return (each[..., None] == np.arange(logits.shape[-1])).any(axis=-2)

    name = next(iter(CASES))
    found = diagnose(PROGRAM, changed(of_oracle(PROGRAM, calls(name), oracle), "gradient", given_ids))
    assert (found.kind, found.where) == ("nothing known", "gradient differs only at the given ids")


def test_the_temperature_is_identified() -> None:
    """With nothing asked: log-softmax at the temperature, or at 1."""
    for name in CASES:
        samples = of_oracle(PROGRAM, calls(name), oracle)
        found = identify(PROGRAM, samples)
        assert found.words.startswith("log-softmax of the ids at ") or found.kind == "as asked", found
