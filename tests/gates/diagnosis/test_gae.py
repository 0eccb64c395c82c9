"""Generalised advantage estimation: each mistake is named, and verl's whitening is identified."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from edited import cases_of, changed, designed, gates_of, misnamed, of_oracle

from gates.diagnosis.diagnose import diagnose, identify
from gates.families.program import Inputs
from gates.families.programs import programs
from gates.model import Array, Case
from reference.oracle.gae import gae

PROGRAM = programs()["gae"]
(GATE,) = gates_of(PROGRAM)
CASES = {case.name: case for case in cases_of(GATE)}
HOLES = "tokens-holes-float32"


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_the_oracle_computes_the_requested_choice(case: Case) -> None:
    """The forward definition shares no formula with the oracle, and gives the same advantages."""
    found = diagnose(PROGRAM, of_oracle(PROGRAM, designed(PROGRAM, GATE, case), gae))
    assert (found.kind, found.rho < 0.5) == ("as asked", True)


@pytest.mark.parametrize("name", [HOLES, "tokens-flat-float32", "tokens-td-float32"])
def test_each_edit_is_named(name: str) -> None:
    """By its own words, or by those of another edit that is the same function of every input."""
    assert misnamed(PROGRAM, designed(PROGRAM, GATE, CASES[name]), every=2) == []


def test_an_unknown_formula_has_a_location() -> None:
    """It is the tokens with which an episode ends."""
    samples = of_oracle(PROGRAM, designed(PROGRAM, GATE, CASES[HOLES]), gae)
    found = diagnose(PROGRAM, changed(samples, "advantages", lambda inputs: np.asarray(inputs["terminal"])))
    assert (found.kind, found.where) == ("nothing known", "advantages differs only where an episode ends")


def test_whitened_advantages_are_identified() -> None:
    """As verl gives them."""

    def whitened(*, mask: Array, **given: Any) -> Array:
        found = np.asarray(gae(mask=mask, **given))
        return np.where(mask, (found - found[mask].mean()) / np.sqrt(found[mask].var(ddof=1) + 1e-8), 0.0)

    calls: list[Inputs] = designed(PROGRAM, GATE, CASES[HOLES])
    found = identify(PROGRAM, of_oracle(PROGRAM, calls, whitened))
    assert (found.kind, "verl adv_estimator=gae" in found.words) == ("convention", True), found
