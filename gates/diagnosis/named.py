"""A diagnosis, and how candidates that match become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from gates.diagnosis.search import APART, MATCH, Candidate, Search, first_matches
from gates.families.program import Choices, Edit

Kind = Literal[
    "as asked", "convention", "mistake", "scaled", "constant", "lower precision", "ambiguous", "nothing known"
]
BESIDE = (0.95, 1.05)  # of a size: one that gives the same outputs leaves the size open
SMALLEST, LARGEST = 0.02, 1e6  # of a size that is checked so; an ε may be below rounding


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a subject computes.

    Attributes:
        kind: the type of the result; "ambiguous": two candidates with different meanings match; "constant": the gradient
            fits, the loss is off by a constant or a factor.
        words: text to follow "computes:"; empty if nothing is known.
        where: the elements that differ, if nothing is known.
        rho: the largest error of the named candidate, in its limits.
        next_rho: the same, or a lower bound of it, for the nearest candidate of another meaning.
        tried: number of candidates compared.
        changes: the choices that a named convention makes instead of those asked.
        edits: the edits of a name.
        factor: the words of the factor of a name.
        outputs: the outputs that a name is about; empty: all.
    """

    kind: Kind
    words: str = ""
    where: str = ""
    rho: float = float("nan")
    next_rho: float = float("nan")
    tried: int = 0
    changes: Choices = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()
    factor: str = ""
    outputs: tuple[str, ...] = ()


def matched(search: Search, candidates: Sequence[Candidate], tried: int) -> Diagnosis | None:
    """Name the candidate that matches, if its sizes are those of the outputs and no other edit coincides with it."""
    matches = [pair for pair in first_matches(search, candidates) if _decided(search, pair[0])]
    diagnosis = diagnosis_of(matches, tried)
    twin = None if diagnosis is None or diagnosis.kind == "ambiguous" else search.coincides(matches[0][0])
    if diagnosis is None or twin is None:
        return diagnosis
    words = f"cannot tell “{diagnosis.words}” or “{twin.sentence}”"
    return replace(diagnosis, kind="ambiguous", words=words, changes={})


def _decided(search: Search, candidate: Candidate) -> bool:
    """Whether a size in a name is that of the outputs: with a size a little off, some output would be another."""
    for edit in candidate.edits:
        if edit.alone and len(edit.changes) == 1:
            ((name, size),) = edit.changes.items()
            if not isinstance(size, float) or not SMALLEST < abs(size) < LARGEST:
                continue
            near = (Candidate((replace(edit, changes={name: share * size}),)) for share in BESIDE)
            if any(search.same(candidate, beside) for beside in near):
                return False
    return True


def diagnosis_of(matches: Sequence[tuple[Candidate, float]], tried: int) -> Diagnosis | None:
    """Return the name of the first match; "ambiguous" if there are others, None if there is none."""
    if not matches or matches[0][1] > MATCH:
        return None
    (best, rho), *others = matches
    following = others[0][1] if others else APART
    if others:
        both = " or ".join(f"“{candidate.sentence}”" for candidate, _ in matches[:2])
        return Diagnosis("ambiguous", f"cannot tell {both}", rho=rho, next_rho=following, tried=tried)
    if best.factor.words:
        times = best.factor.words
        return Diagnosis("scaled", _times(best), "", rho, following, tried, edits=best.edits, factor=times)
    kind: Kind = "convention" if all(edit.convention for edit in best.edits) else "mistake"
    changes = {name: choice for edit in best.edits for name, choice in edit.changes.items()}
    return Diagnosis(kind, best.sentence, "", rho, following, tried, changes, best.edits)


def _times(candidate: Candidate) -> str:
    return f"{candidate.sentence if candidate.edits else 'what is asked'}, times {candidate.factor.words}"
