"""Importance ratios and off-policy weights: each mistake is named, and nothing is named that is not so."""

from __future__ import annotations

import numpy as np
import pytest
from edited import cases_of, changed, designed, gates_of, misnamed, of_oracle, pairs_misnamed

from gates.diagnosis.diagnose import diagnose, identify
from gates.families.program import Inputs, Program, Sample
from gates.families.programs import programs
from gates.model import Array
from reference.oracle import ratio

RATIO, WEIGHTS = programs()["importance_ratio"], programs()["importance_weights"]
ORACLES = {RATIO.op: ratio.importance_ratio, WEIGHTS.op: ratio.importance_weights}
CASES = {
    f"{program.op}-{case.name}": (program, gate, case)
    for program in (RATIO, WEIGHTS)
    for gate in gates_of(program)
    for case in cases_of(gate)
}


def calls(name: str) -> tuple[Program, list[Inputs]]:
    program, gate, case = CASES[name]
    return program, designed(program, gate, case)


@pytest.mark.parametrize("name", CASES)
def test_the_oracle_computes_the_requested_choice(name: str) -> None:
    """The forward definition shares no formula with the oracle, and gives the same ratios and weights."""
    program, given = calls(name)
    found = diagnose(program, of_oracle(program, given, ORACLES[program.op]))
    assert (found.kind, found.rho < 0.5) == ("as asked", True)


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("importance_ratio-token-masked-typical-float32", 0),
        ("importance_ratio-seq_mean-holes-apart-float32", 1),
        ("importance_ratio-seq_sum-flat-typical-float32", 2),
        ("importance_weights-typical-tis-token-two-sided-holes-float32", 3),
        ("importance_weights-typical-mis-seq_sum-two-sided-masked-float32", 4),
        ("importance_weights-typical-mis-token-from-one-holes-float32", 5),
        ("importance_weights-typical-tis-seq_sum-one-sided-holes-float32", 6),
    ],
)
def test_each_edit_is_named(name: str, first: int) -> None:
    """By its own words, or by those of another edit that is the same function of every input."""
    program, given = calls(name)
    assert misnamed(program, given, every=5, first=first) == []


@pytest.mark.parametrize(
    "name",
    [
        "importance_ratio-seq_mean-holes-typical-float32",
        "importance_weights-typical-mis-token-two-sided-masked-float32",
    ],
)
def test_pairs_are_named(name: str) -> None:
    """Two mistakes at once have the names of both, or of words that are the same function."""
    assert pairs_misnamed(*calls(name), seed=3, count=6) == []


def test_an_unknown_formula_has_a_location() -> None:
    """It is the ratios above the upper bound, which is 2."""

    def above(inputs: Inputs) -> Array:
        moved = np.asarray(inputs["old"], float) - inputs["sampling"]
        return np.asarray(inputs["mask"] & (moved > np.log(2.0)))

    program, given = calls("importance_weights-typical-tis-token-two-sided-holes-float32")
    found = diagnose(program, changed(of_oracle(program, given, ratio.importance_weights), "weights", above))
    assert (found.kind, found.words) == ("nothing known", "")
    assert found.where == "weights differs only where the ratio is above the upper bound"


@pytest.mark.parametrize("level", ["token", "seq_mean", "seq_sum"])
def test_each_level_is_identified(level: str) -> None:
    """Whatever the call asks for."""
    program, given = calls("importance_ratio-token-holes-typical-float32")
    samples = of_oracle(program, [{**one, "level": level} for one in given], ratio.importance_ratio)
    found = identify(program, [Sample(a, b.got) for a, b in zip(given, samples, strict=True)])
    words = {"token": "(PPO, GRPO)", "seq_mean": "(GSPO)", "seq_sum": "(RLOO)"}[level]
    assert (found.kind, words in found.words) == ("convention", True), found


@pytest.mark.parametrize("mode", ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"])
def test_each_correction_is_identified(mode: str) -> None:
    """TRL's modes, whatever the call asks for."""
    level, correction = mode.split("_")
    setting = {
        "level": {"token": "token", "sequence": "seq_sum"}[level],
        "correction": {"truncate": "tis", "mask": "mis"}[correction],
    }
    program, given = calls("importance_weights-typical-tis-token-two-sided-holes-float32")
    samples = of_oracle(program, [{**one, **setting} for one in given], ratio.importance_weights)
    found = identify(program, [Sample(a, b.got) for a, b in zip(given, samples, strict=True)])
    assert (found.kind, f'vllm_importance_sampling_mode="{mode}"' in found.words) == ("convention", True), found
