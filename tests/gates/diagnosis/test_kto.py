"""KTO's loss: what is asked is recognised, each edit is named, and nothing is named that is not so."""

from __future__ import annotations

import numpy as np
import pytest
from edited import by_sentence, cases_of, designed, gates_of, of_edits, of_oracle, same

from gates.diagnosis.diagnose import diagnose, identify
from gates.families.programs import programs
from gates.model import Case
from reference.oracle import preference

PROGRAM = programs()["kto_loss"]
(GATE,) = gates_of(PROGRAM)
CASES = cases_of(GATE)
SHARE = 5  # of the edits for each case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_oracle_computes_the_requested_choice(case: Case) -> None:
    """The forward definition shares no formula with the oracle, and gives the same loss and gradient."""
    calls = designed(PROGRAM, GATE, case)
    assert len(calls) == 8
    found = diagnose(PROGRAM, of_oracle(PROGRAM, calls, preference.kto_loss))
    assert (found.kind, found.rho < 0.5) == ("as asked", True)


@pytest.mark.parametrize("first", range(2))
def test_each_edit_is_named(first: int) -> None:
    """By its own words, or by those of another edit that is the same function of every input."""
    calls = designed(PROGRAM, GATE, CASES[first])
    edits = dict(by_sentence(PROGRAM, calls))
    assert len(edits) >= 40
    for sentence, edit in list(edits.items())[first::SHARE]:
        found = diagnose(PROGRAM, of_edits(PROGRAM, calls, (edit,)))
        if found.words != sentence and found.kind != "scaled":
            assert same(PROGRAM, calls, (edit,), (edits[found.words],)), f"{sentence}: named {found.words}"


def test_a_pair_is_named() -> None:
    """By both words."""
    calls = designed(PROGRAM, GATE, CASES[0])
    edits = dict(by_sentence(PROGRAM, calls))
    pair = ("z0 without max(0, ·)", "λ_D and λ_U swapped")
    found = diagnose(PROGRAM, of_edits(PROGRAM, calls, (edits[pair[0]], edits[pair[1]])))
    assert set(found.words.split(" · ")) == set(pair)


def test_without_a_known_formula() -> None:
    """Rows of one label."""
    samples = of_oracle(PROGRAM, designed(PROGRAM, GATE, CASES[0]), preference.kto_loss)
    for sample in samples:
        good = np.asarray(sample.inputs["desirable"])[:, None]
        sample.got["gradient"][...] *= np.where(good, 1.0, np.resize([1.4, 1.9], good.shape))
    found = diagnose(PROGRAM, samples)
    assert (found.kind, found.where) == ("nothing known", "gradient differs only in undesirable rows")


def test_it_is_identified() -> None:
    """With nothing asked."""
    found = identify(PROGRAM, of_oracle(PROGRAM, designed(PROGRAM, GATE, CASES[0]), preference.kto_loss))
    assert (found.kind, found.words) == ("convention", 'kto (TRL KTOTrainer loss_type="kto")')
