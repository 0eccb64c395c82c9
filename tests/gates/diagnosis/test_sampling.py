"""Filters of samplers: what is asked is recognised, each edit is named, and nothing is named that is not so."""

from __future__ import annotations

import numpy as np
import pytest
from edited import by_sentence, cases_of, designed, gates_of, of_edits, of_oracle, same

from gates.diagnosis.diagnose import diagnose, identify
from gates.diagnosis.search import APART, MATCH, evaluate
from gates.families.program import Inputs, Sample
from gates.families.programs import programs
from gates.model import Case, Gate
from reference.oracle import sampling

PROGRAM = programs()["filtered_logprobs"]
GATE = next(gate for gate in gates_of(PROGRAM) if gate.name == "filtered_logprobs")
CASES = {
    case.name: (gate, case) for gate in gates_of(PROGRAM) for case in cases_of(gate) if not case.name.endswith("151936")
}
EDITED = {  # with the share of its edits that is tried
    "all-hf-float32": 4,
    "all-mlx-lm-float32": 5,
    "top-k-top-p-hf-float32": 2,
    "min-tokens-top-p-hf-float32": 3,
    "xtc-special-mlx-lm-float32": 3,
    "penalties-mlx-lm-float32": 4,
}


def calls_of(case: str) -> list[Inputs]:
    return designed(PROGRAM, *CASES[case])


def samples_of(case: str) -> list[Sample]:
    return of_oracle(PROGRAM, calls_of(case), sampling.filtered_logprobs)


@pytest.mark.parametrize("pair", CASES.values(), ids=lambda pair: pair[1].name)
def test_the_oracle_computes_the_requested_choice(pair: tuple[Gate, Case]) -> None:
    """The forward definition shares no formula with the oracle, and keeps the same tokens with the same log-probs."""
    calls = designed(PROGRAM, *pair)
    assert len(calls) == 8
    found = diagnose(PROGRAM, of_oracle(PROGRAM, calls, sampling.filtered_logprobs))
    assert (found.kind, found.rho < 0.5) == ("as asked", True)


@pytest.mark.parametrize("case", EDITED)
def test_rounding_decides_no_token(case: str) -> None:
    """A threshold lies in a gap of the mass in nearly every row; of the others nothing is claimed."""
    void = [np.isinf(evaluate(PROGRAM, x, PROGRAM.asked(x))["logprobs"][1]).any(axis=1) for x in calls_of(case)]
    assert np.concatenate(void).mean() <= 0.05


@pytest.mark.parametrize("case", EDITED)
def test_each_edit_is_named(case: str) -> None:
    """By its own words, or by those of another edit that is the same function of every input."""
    calls = calls_of(case)
    edits = dict(by_sentence(PROGRAM, calls))
    assert len(edits) >= 12
    for sentence, edit in list(edits.items())[list(EDITED).index(case) % EDITED[case] :: EDITED[case]]:
        found = diagnose(PROGRAM, of_edits(PROGRAM, calls, (edit,)))
        if found.words != sentence:
            other = () if found.kind == "as asked" else (edits[found.words],)
            assert same(PROGRAM, calls, (edit,), other), f"{sentence}: named {found.words}"


def test_pairs_are_named() -> None:
    """Two mistakes at once are named by both words."""
    calls = calls_of("all-hf-float32")
    edits = dict(by_sentence(PROGRAM, calls))
    for first, second in (
        ("top-k keeps one token more: k + 1", "repetition penalty divides negative logits too"),
        ("XTC on every row, whatever its coin", "log-probs not renormalised over the tokens that stay"),
    ):
        found = diagnose(PROGRAM, of_edits(PROGRAM, calls, (edits[first], edits[second])))
        assert set(found.words.split(" · ")) == {first, second}
        assert (found.rho <= MATCH, found.next_rho >= APART) == (True, True)


class TestNothingKnown:
    """Filters that no edit describes get no name, but the place where they differ."""

    def test_where(self) -> None:
        """It is the likeliest token."""
        samples = samples_of("all-hf-float32")
        for sample in samples:
            found = sample.got["logprobs"]
            found[found == found.max(axis=1, keepdims=True)] -= 0.37
        samples = [s for s in samples if s.inputs["xtc_coin"] is not None]
        diagnosis = diagnose(PROGRAM, samples)
        assert (diagnosis.kind, diagnosis.words) == ("nothing known", "")

    def test_one_token_of_many(self) -> None:
        """A kept set that differs in a single token of one call is not what is asked."""
        samples = samples_of("top-p-hf-float32")
        found = samples[3].got["logprobs"]
        found[0, np.argmax(np.where(np.isfinite(found[0]), -found[0], -np.inf))] = -np.inf
        diagnosis = diagnose(PROGRAM, samples)
        assert (diagnosis.kind, diagnosis.words) == ("nothing known", "")


def test_a_scale_is_named() -> None:
    """Logarithms of base 2; what is removed stays removed."""
    samples = [Sample(s.inputs, {"logprobs": s.got["logprobs"] / np.log(2.0)}) for s in samples_of("top-k-hf-float32")]
    found = diagnose(PROGRAM, samples)
    assert (found.kind, found.words) == ("scaled", f"what is asked, times {1.0 / np.log(2.0):.6g}")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("all-hf-float32", "hf (transformers generate()): temperature, top-k, top-p, min-p, XTC"),
        ("all-mlx-lm-float32", "mlx-lm (make_sampler): top-p, min-p, XTC, top-k, temperature"),
    ],
)
def test_each_order_is_identified(case: str, words: str) -> None:
    """With nothing asked the orders of libraries have their names."""
    given = next(iter(PROGRAM.examples(calls_of(case)[0])))
    calls = list(PROGRAM.inputs(given, np.random.default_rng(5)))
    found = identify(PROGRAM, of_oracle(PROGRAM, calls, sampling.filtered_logprobs))
    assert (found.kind, found.words) == ("convention", words)


def test_the_other_order_is_a_convention() -> None:
    """Asked for transformers' order, mlx-lm's is named as such."""
    calls = calls_of("all-hf-float32")
    other = of_oracle(PROGRAM, [{**x, "order": "mlx-lm"} for x in calls], sampling.filtered_logprobs)
    found = diagnose(PROGRAM, [Sample(inputs, s.got) for inputs, s in zip(calls, other, strict=True)])
    assert found.kind == "convention"
    assert found.words.startswith("filters in the order top-p, min-p, XTC, top-k, temperature (as in mlx-lm)")
