"""Draws from a filtered row: each mistake is named, and nothing is named that is not so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from edited import cases_of, changed, designed, gates_of, misnamed, of_oracle

from gates.diagnosis.diagnose import diagnose, identify
from gates.families.program import Inputs
from gates.families.programs import programs
from reference.oracle import sampling

PROGRAM = programs()["sample_tokens"]
GATE = "sampling.draw.inverse-cdf"
CASES = {
    case.name: (gate, case)
    for gate in gates_of(PROGRAM)
    if gate.id == GATE
    for case in cases_of(gate)
    if "tied" not in case.name and "151936" not in case.name and "wide" not in case.name
}


def oracle(*, uniforms: Any, **filters: Any) -> Any:
    """Return what the oracle's intervals give."""
    filtered = sampling.filtered_logprobs(**filters)
    low, high = sampling.token_intervals(filtered)
    u = np.asarray(uniforms)[:, None]
    tokens = np.argmax((filtered > -np.inf) & (u >= low) & (u < high), axis=1)
    return SimpleNamespace(tokens=tokens, logprobs=filtered[np.arange(len(tokens)), tokens])


def calls(name: str) -> list[Inputs]:
    return designed(PROGRAM, *CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_the_oracle_computes_the_requested_choice(name: str) -> None:
    """The forward definition draws the tokens of the oracle's intervals."""
    found = diagnose(PROGRAM, of_oracle(PROGRAM, calls(name), oracle))
    assert (found.kind, found.rho < 1.0) == ("as asked", True)


@pytest.mark.parametrize(
    "name", ["none-hf-float32", "all-hf-float32", "top-p-mlx-lm-float32", "penalties-mlx-lm-float32"]
)
def test_each_edit_is_named(name: str) -> None:
    """By its own words, or by those of another edit that is the same function of every input."""
    assert misnamed(PROGRAM, calls(name), every=2, first=len(name)) == []


def test_a_token_that_cannot_be_drawn() -> None:
    """What no edit describes gets no name, but the place where it differs."""
    samples = of_oracle(PROGRAM, calls("none-hf-float32"), oracle)
    found = diagnose(PROGRAM, changed(samples, "tokens", lambda inputs: np.asarray(inputs["uniforms"]) < 0.5))
    assert (found.kind, found.where) == ("nothing known", "tokens differs only where u is below 1/2")


def test_the_order_of_filters_is_identified() -> None:
    """With nothing asked, by the library that has it."""
    samples = of_oracle(PROGRAM, calls("all-mlx-lm-float32"), oracle)
    assert identify(PROGRAM, samples).words.startswith("mlx-lm (make_sampler)")
