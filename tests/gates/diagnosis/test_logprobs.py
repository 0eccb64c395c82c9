"""Log-probs of ids and entropies: each mistake is named, and nothing is named that is not so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from edited import cases_of, changed, designed, gates_of, misnamed, of_oracle, pairs_misnamed

from gates.diagnosis.diagnose import diagnose, identify
from gates.families.program import Inputs
from gates.families.programs import programs
from gates.model import Array
from reference.oracle import logprobs

PROGRAM = programs()["selective_log_softmax"]
CASES = {f"{gate.id}-{case.name}": (gate, case) for gate in gates_of(PROGRAM) for case in cases_of(gate)}
PLAIN, ENTROPY = "logprobs.selective.matches-definition", "logprobs.entropy.matches-definition"


def oracle(*, entropy: bool = False, **given: Any) -> Any:
    found = logprobs.selective_log_softmax(**given)
    return SimpleNamespace(logprobs=found, entropy=logprobs.entropy(**given)) if entropy else found


def calls(name: str) -> list[Inputs]:
    return designed(PROGRAM, *CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_the_oracle_computes_the_requested_choice(name: str) -> None:
    """The forward definition shares no formula with the oracle, and gives the same log-probs and entropies."""
    samples = of_oracle(PROGRAM, calls(name), oracle)
    assert ("entropy" in samples[0].got) == name.startswith(ENTROPY)
    found = diagnose(PROGRAM, samples)
    assert (found.kind, found.rho < 0.5) == ("as asked", True)


@pytest.mark.parametrize(
    "name",
    [
        f"{PLAIN}-normal-float32",
        f"{PLAIN}-normal-float16",
        f"{PLAIN}-batch-float32",
        f"{PLAIN}-hot-float32",
        f"{PLAIN}-several-some-ignored-float64",
        f"{ENTROPY}-hot-float32",
        f"{ENTROPY}-cold-float64",
        f"{ENTROPY}-some-ignored-float32",
    ],
)
def test_each_edit_is_named(name: str) -> None:
    """By its own words, or by those of another edit that is the same function of every input."""
    assert misnamed(PROGRAM, calls(name)) == []


def test_pairs_are_named() -> None:
    """Two mistakes at once have the names of both, or of words that are the same function."""
    assert pairs_misnamed(PROGRAM, calls(f"{ENTROPY}-hot-float32"), seed=2, count=12) == []


class TestNothingKnown:
    """What no edit describes gets no name, but the place where it differs."""

    def test_the_likeliest_ids(self) -> None:
        """A place of the log-probs."""

        def likeliest(inputs: Inputs) -> Array:
            return np.asarray(np.asarray(inputs["logits"]).argmax(axis=-1) == inputs["ids"])

        samples = of_oracle(PROGRAM, calls(f"{PLAIN}-normal-float32"), oracle)
        found = diagnose(PROGRAM, changed(samples, "logprobs", likeliest))
        assert (found.kind, found.where) == (
            "nothing known",
            "logprobs differs only at the likeliest id of a position",
        )

    def test_the_ignored_ids(self) -> None:
        """A place of the entropy where log-probs are right."""

        def all_ignored(inputs: Inputs) -> Array:
            return np.asarray(np.asarray(inputs["ids"]) == inputs["ignore_index"])

        samples = of_oracle(PROGRAM, calls(f"{ENTROPY}-some-ignored-float32"), oracle)
        moved = [
            type(s)(s.inputs, {**s.got, "entropy": s.got["entropy"] + 0.37 * all_ignored(s.inputs)}) for s in samples
        ]
        found = diagnose(PROGRAM, moved)
        assert (found.kind, found.where) == ("nothing known", "entropy differs only where an id is ignored")


@pytest.mark.parametrize(("scored", "words"), [(1.5, "at the temperature"), (1.0, "at τ = 1")])
def test_a_temperature_is_identified(scored: float, words: str) -> None:
    """From a call at τ = 1, which gets a temperature and asks for the entropy."""
    example = next(iter(PROGRAM.examples(calls(f"{PLAIN}-normal-float32")[0])))
    assert (example["temperature"], example["entropy"]) == (1.5, True)
    given = list(PROGRAM.inputs(example, np.random.default_rng(4)))
    found = identify(PROGRAM, of_oracle(PROGRAM, given, lambda **one: oracle(**{**one, "temperature": scored})))
    assert (found.kind, found.words) == ("convention", f"log-softmax of the ids {words}")
