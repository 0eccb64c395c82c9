"""The preference losses: what is asked is recognised, each edit is named, and nothing is named that is not so."""

from __future__ import annotations

import numpy as np
import pytest
from edited import by_sentence, cases_of, designed, gates_of, of_edits, of_oracle, same

from gates.diagnosis.diagnose import diagnose, identify
from gates.diagnosis.search import APART, MATCH
from gates.families.program import Inputs, Sample
from gates.families.programs import programs
from gates.model import Case, Gate
from reference.oracle import preference

PROGRAM = programs()["preference_loss"]
GATES = {gate.id.split(".")[1]: gate for gate in gates_of(PROGRAM)}
CASES = [(gate, case) for gate in GATES.values() for case in cases_of(gate)]
SHARE = 17  # of the edits of one loss, so that all losses together take seconds
IDENTIFIED = {  # with nothing asked
    "dpo": "dpo with label smoothing (conservative DPO)",
    "hinge": 'hinge (TRL loss_type="hinge")',
    "ipo": "ipo with sums (TRL Online DPO)",
    "dpop": "dpop",
    "orpo": "orpo, likelihood of each completion",
    "simpo": 'simpo (TRL CPOTrainer loss_type="simpo")',
    "cpo": "cpo (TRL CPOTrainer)",
}


def calls_of(loss: str, case: str) -> list[Inputs]:
    gate = GATES[loss]
    return designed(PROGRAM, gate, next(one for one in cases_of(gate) if one.name == case))


@pytest.mark.parametrize("pair", CASES, ids=lambda pair: f"{pair[0].id}-{pair[1].name}")
def test_the_oracle_computes_the_requested_choice(pair: tuple[Gate, Case]) -> None:
    """The forward definition shares no formula with the oracle, and gives the same loss and gradient."""
    calls = designed(PROGRAM, *pair)
    assert len(calls) == 8
    found = diagnose(PROGRAM, of_oracle(PROGRAM, calls, preference.preference_loss))
    assert (found.kind, found.rho < 0.5) == ("as asked", True)


@pytest.mark.parametrize("loss", GATES)
def test_each_edit_is_named(loss: str) -> None:
    """By its own words, or by those of another edit that is the same function of every input."""
    calls = designed(PROGRAM, GATES[loss], cases_of(GATES[loss])[0])
    edits = dict(by_sentence(PROGRAM, calls))
    assert len(edits) >= 50
    for sentence, edit in list(edits.items())[list(GATES).index(loss) % SHARE :: SHARE]:
        found = diagnose(PROGRAM, of_edits(PROGRAM, calls, (edit,)))
        if found.words != sentence and found.kind != "scaled":
            other = () if found.kind == "as asked" else (edits[found.words],)
            assert same(PROGRAM, calls, (edit,), other), f"{sentence}: named {found.words}"


def test_pairs_are_named() -> None:
    """Two mistakes at once are named by both words, or by words that are the same function."""
    calls = calls_of("dpo", "smoothed-ordinary-float32")
    edits = dict(by_sentence(PROGRAM, calls))
    for first, second in (
        ("chosen and rejected swapped", "summed over pairs, not averaged"),
        ("the prompt counted", "no gradient of the rejected side (detached)"),
        (
            "β outside the sigmoid: it multiplies the loss",
            "the last token of each row, its end-of-sequence token, left out",
        ),
    ):
        found = diagnose(PROGRAM, of_edits(PROGRAM, calls, (edits[first], edits[second])))
        assert set(found.words.split(" · ")) == {first, second}
        assert (found.rho <= MATCH, found.next_rho >= APART) == (True, True)


class TestNothingKnown:
    """A loss that no edit describes gets no name, but the place where it differs."""

    @pytest.mark.parametrize(
        ("rows", "where"),
        [(0, "gradient differs only in chosen completions"), (1, "gradient differs only in rejected completions")],
    )
    def test_where(self, rows: int, where: str) -> None:
        """It is one of the two sides."""
        samples = of_oracle(PROGRAM, calls_of("dpo", "plain-ordinary-float32"), preference.preference_loss)
        for sample in samples:
            gradient = sample.got["gradient"]
            gradient[rows::2] *= np.resize([1.37, 1.9, 2.3], gradient.shape[1])
        found = diagnose(PROGRAM, samples)
        assert (found.kind, found.words, found.where) == ("nothing known", "", where)

    def test_a_number_that_is_not_finite(self) -> None:
        """Nothing is named where the subject returned NaN."""
        samples = of_oracle(PROGRAM, calls_of("orpo", "plain-ordinary-float32"), preference.preference_loss)
        found = diagnose(PROGRAM, [Sample(s.inputs, {**s.got, "loss": np.asarray(np.nan)}) for s in samples])
        assert (found.kind, found.words) == ("nothing known", "")


@pytest.mark.parametrize("loss", GATES)
def test_each_loss_is_identified(loss: str) -> None:
    """With nothing asked the presets of libraries have their names."""
    given = designed(PROGRAM, GATES[loss], cases_of(GATES[loss])[0])[0]
    calls = list(PROGRAM.inputs(next(iter(PROGRAM.examples(given))), np.random.default_rng(5)))
    found = identify(PROGRAM, of_oracle(PROGRAM, calls, preference.preference_loss))
    assert (found.kind, found.words) == ("convention", IDENTIFIED[loss])


@pytest.mark.parametrize(
    ("loss", "case", "words"),
    [
        ("dpo", "plain-ordinary-float32", 'dpo (TRL DPOTrainer loss_type="sigmoid")'),
        ("ipo", "mean-ordinary-float32", 'ipo with means (TRL DPOTrainer and CPOTrainer loss_type="ipo")'),
        ("orpo", "plain-all-tokens-float32", "orpo, likelihood of all tokens (TRL ORPOTrainer)"),
    ],
)
def test_presets(loss: str, case: str, words: str) -> None:
    """The settings of libraries in docs/definitions.md, "Presets"."""
    found = identify(PROGRAM, of_oracle(PROGRAM, calls_of(loss, case), preference.preference_loss))
    assert (found.kind, found.words) == ("convention", words)


def test_smoothing_that_trl_does_not_read() -> None:
    """Asked with label smoothing, TRL's sigmoid loss is a convention and no mistake."""
    calls = calls_of("dpo", "smoothed-ordinary-float32")
    samples = [
        Sample(inputs, of_oracle(PROGRAM, [{**inputs, "label_smoothing": 0.0}], preference.preference_loss)[0].got)
        for inputs in calls
    ]
    found = diagnose(PROGRAM, samples)
    assert (found.kind, found.words) == ("convention", 'label smoothing ignored (as TRL loss_type="sigmoid" does)')
