"""Scores and margins of a proof, from hand-made records."""

import math
from dataclasses import replace
from typing import Any

import pytest

from gates.report.proof_table import Margin, margins, scores, share
from gates.results.records import EvidenceRecord, MutantRecord, SensitivityRecord, VerdictRecord


def evidence(observed: float, limit: float, **changes: Any) -> EvidenceRecord:
    """Return a claim `observed <= limit`."""
    values: dict[str, Any] = {"relation": "<=", "because": "a test", "where": "", "role": "claim"}
    return EvidenceRecord(quantity="y", observed=observed, limit=limit, holds=observed <= limit, **(values | changes))


def verdict(mutant: str | None, *items: EvidenceRecord, cause: str = "bound", **changes: Any) -> VerdictRecord:
    """Return a pass without a mutant, or a failure with one."""
    values: dict[str, Any] = {"gate": "g.x", "subject": "s", "case": "c", "seed": 0, "reason": "", "seconds": 0.0}
    values |= {"op": "x", "level": "definition"}
    status = "correct" if mutant is None else "wrong"
    return VerdictRecord(**(values | changes), status=status, cause=cause, evidence=list(items), mutant=mutant)


def record(name: str, gate: str, state: Any) -> MutantRecord:
    """Return the outcome of a gate's mutant."""
    words = dict.fromkeys(("mistake", "host", "seam", "source", "arises", "reason"), "")
    return MutantRecord(mutant=name, caught_by=[gate], state=state, **words)


def test_only_caught_mutants_raise_the_score() -> None:
    """Missed, equivalent and failed mutants do not count as caught."""
    states = ("caught", "missed", "equivalent", "error")
    found = scores([record(s, "kl.k1", s) for s in states] + [record("m", "loss.grpo", "caught")])
    assert [(s.family, s.declared, s.caught) for s in found] == [("kl", 4, 1), ("loss", 1, 1)]


class TestMargins:
    """Noise, least effect and sensitivity."""

    def test_noise_and_least_effect(self) -> None:
        """Noise is the largest share, 3 of 4; the least effect is the smaller of the mutants' largest, 10 and 100 limits."""
        verdicts = [
            verdict(None, evidence(1, 4)),
            verdict(None, evidence(3, 4), case="near"),
            verdict("weak", evidence(20, 4), evidence(40, 4)),
            verdict("weak", evidence(8, 4)),
            verdict("strong", evidence(400, 4)),
        ]
        seen = [SensitivityRecord(gate="g.x", subject="s", case=c, noticed=n) for c, n in (("a", 1e-6), ("b", 1e-4))]
        assert margins(verdicts, seen, ["g.x"]) == [Margin("g.x", 0.75, "s, near", 10.0, "weak", 1e-4)]

    def test_exact_claims_have_no_noise(self) -> None:
        """With a limit of 0 there is no noise, and a mutant's effect is its count."""
        (found,) = margins([verdict(None, evidence(0, 0)), verdict("m", evidence(7, 0))], [], ["g.x"])
        assert (found.noise, found.effect) == (0.0, 7.0)

    @pytest.mark.parametrize(
        "broken",
        [
            verdict("m", cause="crashed"),
            verdict("m", evidence(math.nan, 1)),
            verdict("m", evidence(1, 2, relation=">=")),
        ],
        ids=["crash", "nan", "other relation"],
    )
    def test_without_a_share_the_effect_is_infinite(self, broken: VerdictRecord) -> None:
        """A crash, a NaN and a lower bound have no share of a limit."""
        items = [replace(item, holds=False) for item in broken.evidence]
        (found,) = margins([broken.model_copy(update={"evidence": items})], [], ["g.x"])
        assert found.effect == math.inf

    def test_missing_measurements_are_reported(self) -> None:
        """A gate without records has no numbers, and an insensitive case no sensitivity."""
        blind = [SensitivityRecord(gate="g.x", subject="s", case=c, noticed=n) for c, n in (("a", 1e-6), ("b", None))]
        assert margins([], blind, ["g.x"]) == [Margin("g.x", None, "", None, "", None)]
        assert [share(x) for x in (None, math.inf, 0.123)] == ["–", "∞", "0.12"]
