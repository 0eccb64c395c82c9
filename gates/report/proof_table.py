"""Compute mutation scores and margins from the records of a proof.

The margin of a gate has two numbers, as shares of the limit: its noise, the largest share of a correct subject, and the
smallest share of a mutant that was caught. Only claims `observed <= limit` with a limit above 0 have shares. A gate that
counts (limit 0) has no noise, and the effect of a mutant on it is the count.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gates.model import FAILURES
from gates.report.failures import largest_effect
from gates.results.records import EvidenceRecord, MutantRecord, SensitivityRecord, VerdictRecord


@dataclass(frozen=True, slots=True)
class Score:
    """How many mutants a family of gates has, and how many of them were caught."""

    family: str
    declared: int
    caught: int


@dataclass(frozen=True, slots=True)
class Margin:
    """How a gate separates correct subjects from mutants, as shares of its limits; None: no claim has a share."""

    gate: str
    noise: float | None
    noisiest: str  # subject and case
    effect: float | None
    weakest: str  # the mutant of the least effect
    noticed: float | None  # the least relative error of the outputs that it notices, in its worst case


def scores(mutants: Iterable[MutantRecord]) -> list[Score]:
    """Return the mutation score of each family; a mutant belongs to the family of its first gate."""
    found: dict[str, list[bool]] = defaultdict(list)
    for mutant in mutants:
        found[mutant.caught_by[0].partition(".")[0]].append(mutant.state == "caught")
    return [Score(family, len(caught), sum(caught)) for family, caught in sorted(found.items())]


def margins(
    verdicts: Iterable[VerdictRecord], sensitivities: Iterable[SensitivityRecord], gates: Iterable[str]
) -> list[Margin]:
    """Return the margin of each gate."""
    noise: dict[str, tuple[float, str]] = {}
    effects: dict[tuple[str, str], float] = {}
    for v in verdicts:
        if v.mutant is None and v.status == "correct":
            worst = max(_shares(v.evidence), default=None)
            if worst is not None and worst >= noise.get(v.gate, (-1.0, ""))[0]:
                noise[v.gate] = (worst, f"{v.subject}, {v.case}")
        elif v.mutant is not None and v.status in FAILURES:
            worst = largest_effect(v)
            effects[v.gate, v.mutant] = max(worst, effects.get((v.gate, v.mutant), 0.0))
    noticed: dict[str, list[float | None]] = defaultdict(list)
    for s in sensitivities:
        noticed[s.gate].append(s.noticed)
    result = []
    for gate in gates:
        share, where = noise.get(gate, (None, ""))
        effect, weakest = min(((e, m) for (g, m), e in effects.items() if g == gate), default=(None, ""))
        seen = noticed.get(gate, [])
        worst_seen = None if not seen or None in seen else max(x for x in seen if x is not None)
        result.append(Margin(gate, share, where, effect, weakest, worst_seen))
    return result


def _shares(evidence: Iterable[EvidenceRecord]) -> Iterator[float]:
    """Yield the share of the limit of each claim, 0 for exact claims."""
    for item in evidence:
        if item.role == "claim" and item.relation == "<=" and math.isfinite(item.limit):
            yield item.observed / item.limit if item.limit > 0 else 0.0


def share(value: float | None) -> str:
    """Return a share of a limit in words."""
    if value is None:
        return "–"
    return "∞" if math.isinf(value) else f"{value:.2g}"
