"""Whether the name of one failing case explains another: the same edits, with the choices that the other case asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gates.arithmetic.narrow import in_float32
from gates.diagnosis.factors import Factors, constant, quotient
from gates.diagnosis.named import Diagnosis
from gates.diagnosis.precision import in_float64
from gates.diagnosis.search import MATCH, Candidate, Search, scaled
from gates.families.program import Edit, Program, Sample

FACTORS: Sequence[Factors] = (constant, quotient)


def explains(program: Program, diagnosis: Diagnosis, samples: Sequence[Sample]) -> bool:
    """Return whether what a diagnosis names gives a subject's outputs for the calls of another case.

    What is asked in lower precision explains every case; a constant explains none, and another case has its own.

    Args:
        program: the forward definition of the op.
        diagnosis: a name that has edits or a factor.
        samples: the subject's answers to the designed calls of the other case.
    """
    if not diagnosis.edits and not diagnosis.factor:
        return diagnosis.kind != "constant"

    def fits() -> bool:
        search = Search(program, samples, program.asked(samples[0].inputs))
        return any(_fits(search, candidate, diagnosis) for candidate in _candidates(search, diagnosis.edits))

    if fits():
        return True
    if not in_float64(samples):
        return False
    with in_float32():
        return fits()


def _candidates(search: Search, named: Sequence[Edit]) -> Iterator[Candidate]:
    """Yield the candidates with the edits of these names: with one or two edits, each that makes the same choice."""
    known = [_alike(search, edit) for edit in named]
    if len(known) == 2:
        yield from (Candidate((first, second)) for first in known[0] for second in known[1])
        yield from (Candidate((edit,)) for alike in known for edit in alike)  # the other edit may not act here
    else:
        yield from (Candidate((edit,)) for edit in known[0]) if known else (Candidate(),)


def _alike(search: Search, named: Edit) -> list[Edit]:
    """Return the edits of a case that have a name or make its choice with the constants of the case, then the edit itself.

    A case may lack an edit because another one says the same where there is no KL, or because it asks for no mask.
    """
    edits = [*search.program.edits(search.asked), *search.program.fitted(search.asked, search.samples)]
    exact = [edit for edit in edits if edit.words == named.words or edit.changes == named.changes]
    if exact or named.alone:
        return exact
    alike = (edit for edit in edits if _without_digits(edit.words) == _without_digits(named.words) and not edit.alone)
    return [*alike, named]


def _without_digits(words: str) -> str:
    return "".join(character for character in words if not character.isdigit())


def _fits(search: Search, candidate: Candidate, diagnosis: Diagnosis) -> bool:
    """Return whether a candidate gives the outputs that a diagnosis names, and the other outputs are as asked."""
    outputs = diagnosis.outputs or search.outputs
    others = [output for output in search.outputs if output not in outputs]
    if others and search.distance(Candidate(), outputs=others, enough=MATCH) > MATCH:
        return False
    if not diagnosis.factor:
        try:
            return search.distance(candidate, outputs=outputs, enough=MATCH) <= MATCH
        except (KeyError, TypeError):  # a choice that needs a constant which the case lacks
            return False
    return any(
        times.factor.words == diagnosis.factor and search.distance(times, outputs=outputs, enough=MATCH) <= MATCH
        for by in FACTORS
        for times in scaled(search, candidate, tuple(outputs), by=by)
    )
