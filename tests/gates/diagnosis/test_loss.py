"""The policy losses: what is asked is recognised, each edit is named, and nothing is named that is not so."""

from __future__ import annotations

import numpy as np
import pytest
from edited import by_sentence, cases_of, designed, gates_of, of_edits, of_oracle, same

from gates.diagnosis.diagnose import diagnose, identify
from gates.families.loss import program as loss
from gates.families.program import Sample
from gates.families.programs import programs
from gates.model import Case, Gate
from reference.algorithms import ALGORITHMS, AXES, VARIANTS
from reference.oracle import losses

PROGRAM = programs()["policy_loss"]
GATES = {gate.name or gate.id: gate for gate in gates_of(PROGRAM)}
CASES = [(gate, case) for gate in GATES.values() for case in cases_of(gate) if designed(PROGRAM, gate, case)]
GATES = {gate.name or gate.id: gate for gate, _ in CASES}
SHARE = 6  # of the edits of one loss, so that all losses together take seconds


def names(pair: tuple[Gate, Case]) -> str:
    return f"{pair[0].id}-{pair[1].name}"


@pytest.mark.parametrize("pair", CASES, ids=names)
def test_the_oracle_computes_the_requested_choice(pair: tuple[Gate, Case]) -> None:
    """The forward definition shares no formula with the oracle, and gives the same loss and gradient."""
    found = diagnose(PROGRAM, of_oracle(PROGRAM, designed(PROGRAM, *pair), losses.policy_loss))
    assert (found.kind, found.rho < 0.5) == ("as asked", True)


@pytest.mark.parametrize("gate", GATES.values(), ids=lambda gate: gate.id)
def test_each_edit_is_named(gate: Gate) -> None:
    """By its own words, or by those of another edit that is the same function of every input."""
    case = next(case for one, case in CASES if one is gate)
    calls = designed(PROGRAM, gate, case)
    edits = dict(by_sentence(PROGRAM, calls))
    assert len(edits) >= 20
    for sentence, edit in list(edits.items())[list(GATES.values()).index(gate) % SHARE :: SHARE]:
        found = diagnose(PROGRAM, of_edits(PROGRAM, calls, (edit,)))
        if found.words == sentence:
            continue
        other = () if found.kind == "as asked" else (edits[found.words],)
        assert same(PROGRAM, calls, (edit,), other), f"{sentence}: named {found.words}"


def test_pairs_are_named() -> None:
    """Two mistakes at once are named by both words, or by words that are the same function."""
    gate = GATES["policy_loss[dapo]"]
    calls = designed(PROGRAM, gate, cases_of(gate)[0])
    edits = dict(by_sentence(PROGRAM, calls))
    chosen = list(edits.items())
    rng = np.random.default_rng(3)
    for _ in range(6):
        (first, a), (second, b) = (chosen[i] for i in rng.choice(len(chosen), 2, replace=False))
        if a.changes.keys() & b.changes.keys():
            continue
        found = diagnose(PROGRAM, of_edits(PROGRAM, calls, (a, b)))
        if found.kind == "scaled":
            continue
        other = tuple(edits[words] for words in found.words.split(" · ") if words in edits)
        assert found.words in {f"{first} · {second}", f"{second} · {first}"} or same(PROGRAM, calls, (a, b), other)


class TestNothingKnown:
    """A loss that no edit describes gets no name, but the place where it differs."""

    def samples(self, change: float) -> list[Sample]:
        gate = GATES["policy_loss[grpo]"]
        calls = designed(PROGRAM, gate, cases_of(gate)[0])
        found = []
        for sample in of_oracle(PROGRAM, calls, losses.policy_loss):
            rows = np.asarray(sample.inputs["advantages"]) < 0.0
            factor = np.where(rows[:, None], change, 1.0) * np.ones(sample.got["gradient"].shape)
            factor[:, ::2] **= 2.0
            found.append(Sample(sample.inputs, {**sample.got, "gradient": sample.got["gradient"] * factor}))
        return found

    def test_where(self) -> None:
        """It is the rows with a negative advantage."""
        found = diagnose(PROGRAM, self.samples(1.37))
        assert (found.kind, found.words) == ("nothing known", "")
        assert found.where == "gradient differs only where A < 0"

    def test_half_precision(self) -> None:
        """The definition, rounded to half precision, is what it is."""
        gate = GATES["policy_loss[grpo]"]
        calls = designed(PROGRAM, gate, cases_of(gate)[0])
        samples = [
            Sample(s.inputs, {name: x.astype(np.float16).astype(np.float64) for name, x in s.got.items()})
            for s in of_oracle(PROGRAM, calls, losses.policy_loss)
        ]
        found = diagnose(PROGRAM, samples)
        assert (found.kind, found.words) == ("lower precision", "what is asked, in lower precision")


def test_a_scale_is_named() -> None:
    """One factor on everything."""
    gate = GATES["policy_loss[gspo]"]
    calls = designed(PROGRAM, gate, cases_of(gate)[0])
    samples = of_oracle(PROGRAM, calls, losses.policy_loss)
    found = diagnose(PROGRAM, [Sample(s.inputs, {name: 0.37 * x for name, x in s.got.items()}) for s in samples])
    assert (found.kind, found.words) == ("scaled", "what is asked, times 0.37")


def test_a_gradient_alone_is_named() -> None:
    """The loss is right, its gradient is another one's."""
    gate = GATES["policy_loss[grpo]"]
    calls = designed(PROGRAM, gate, cases_of(gate)[0])
    edit = next(x for words, x in by_sentence(PROGRAM, calls) if words.startswith("a clip that lets the gradient"))
    right, other = of_oracle(PROGRAM, calls, losses.policy_loss), of_edits(PROGRAM, calls, (edit,))
    samples = [
        Sample(a.inputs, {"loss": a.got["loss"], "gradient": b.got["gradient"]})
        for a, b in zip(right, other, strict=True)
    ]
    found = diagnose(PROGRAM, samples)
    assert (
        found.words == "the loss as asked, its gradient that of: a clip that never acts: r·A"
        or found.words.endswith(edit.sentence)
        or "r·A without a clip" in found.words
    )


@pytest.mark.parametrize("gate", GATES.values(), ids=lambda gate: gate.id)
def test_each_loss_is_identified(gate: Gate) -> None:
    """With nothing asked the presets of libraries have their names."""
    case = next(case for one, case in CASES if one is gate)
    given = designed(PROGRAM, gate, case)[0]
    calls = list(PROGRAM.inputs(next(iter(PROGRAM.examples(given))), np.random.default_rng(5)))
    found = identify(PROGRAM, of_oracle(PROGRAM, calls, losses.policy_loss))
    row = loss.row_of(given)
    alike = [
        other.text
        for other in (*ALGORITHMS.values(), *VARIANTS)
        if all(getattr(other, x) == getattr(row, x) for x in AXES)
    ]
    assert found.kind == "convention", found
    assert found.words.startswith(tuple(alike)), found.words


def test_every_choice_has_a_description() -> None:
    """What is asked of each algorithm is a choice that the edits know."""
    for gate in GATES.values():
        for case in cases_of(gate):
            for inputs in designed(PROGRAM, gate, case)[:1]:
                assert list(PROGRAM.edits(loss.asked(inputs)))
