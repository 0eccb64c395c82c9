"""Statistics of importance ratios: each mistake is named, and nothing is named that is not so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from edited import cases_of, designed, gates_of, misnamed

from gates.diagnosis.diagnose import diagnose
from gates.families.program import Inputs, Sample
from gates.families.programs import programs
from reference.oracle import statistics

PROGRAM = programs()["ratio_statistics"]
CASES = {case.name: (gate, case) for gate in gates_of(PROGRAM) for case in cases_of(gate)}


def calls(name: str) -> list[Inputs]:
    return designed(PROGRAM, *CASES[name])


def answers(name: str) -> list[Sample]:
    """What the oracle gives, by the names of the outputs."""
    found = []
    for inputs in calls(name):
        values = statistics.measured(**inputs).values
        found.append(Sample(inputs, {key: np.asarray(x) for key, x in values.items() if key in PROGRAM.outputs}))
    return found


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("found-")])
def test_the_oracle_computes_the_requested_choice(name: str) -> None:
    """The forward definition shares no formula with the oracle, and gives the same statistics."""
    found = diagnose(PROGRAM, answers(name))
    assert (found.kind, found.rho < 1.5) == ("as asked", True)


@pytest.mark.parametrize("name", ["sixteen-rows-holes-typical-float32", "sixteen-rows-flat-typical-float32"])
def test_each_edit_is_named(name: str) -> None:
    """By its own words, or by those of another edit that is the same function of every input."""
    assert misnamed(PROGRAM, calls(name)) == []


def test_one_unknown_statistic() -> None:
    """Nothing is named, and nothing wrongly."""
    samples: list[Any] = []
    for index, sample in enumerate(answers("sixteen-rows-holes-typical-float32")):
        samples.append(replace(sample, got={**sample.got, "k3": sample.got["k3"] * (1.3 + 0.1 * index)}))
    assert diagnose(PROGRAM, samples).kind == "nothing known"
