"""Name what a subject computes, given its outputs for the designed inputs of an op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from gates.arithmetic.narrow import in_float32, narrowed
from gates.diagnosis.factors import quotient
from gates.diagnosis.named import Diagnosis, diagnosis_of, matched
from gates.diagnosis.one_output import by_loss, by_output, by_quantity, fit_of_gradient
from gates.diagnosis.precision import COARSE, in_float64, of_half_precision
from gates.diagnosis.search import MATCH, Candidate, Search, difference, first_matches, scaled
from gates.families.program import Choices, Program, Sample
from gates.model import IN_FLOAT32, Array

Named = Callable[[Search, Sequence[Candidate], int], Diagnosis | None]


def diagnose(
    program: Program,
    samples: Sequence[Sample],
    asked: Choices | None = None,
    *,
    pairs: bool = True,
    coarse: bool = True,
    searches: dict[bool, Search] | None = None,
) -> Diagnosis:
    """Name what was computed, or locate its difference from what was asked.

    Args:
        program: the forward definition of the op.
        samples: the subject's answers.
        asked: the choices that are asked; by default those of the calls.
        pairs: whether two edits at once are tried.
        coarse: whether lower precision is a name.
        searches: those of an earlier diagnosis of the same samples, by whether they are narrowed; what they evaluated is kept.
    """
    choices = program.asked(samples[0].inputs) if asked is None else asked

    def search(*, coarse: bool) -> Diagnosis:
        kept = {} if searches is None else searches
        started = kept.setdefault(narrowed(), Search(program, samples, choices))
        return _diagnosed(started, pairs=pairs, coarse=coarse)

    return _in_either(samples, search, coarse=coarse)


def _in_either(samples: Sequence[Sample], search: Callable[..., Diagnosis], *, coarse: bool = True) -> Diagnosis:
    """Return the result of a search; if float64 samples have no name, of one whose limits are those of float32 arithmetic."""
    diagnosis = search(coarse=coarse)
    if diagnosis.kind not in {"lower precision", "nothing known"} or not in_float64(samples):
        return diagnosis
    with in_float32():
        narrow = search(coarse=coarse)
    if narrow.kind == "lower precision":
        return narrow if diagnosis.kind == "nothing known" else diagnosis
    if narrow.kind in {"nothing known", "ambiguous"}:
        return diagnosis
    return replace(narrow, words=f"{narrow.words} ({IN_FLOAT32})")


def _diagnosed(search: Search, *, pairs: bool = True, coarse: bool = True) -> Diagnosis:
    base = Candidate()
    rho = search.distance(base, enough=COARSE)
    if rho <= MATCH:
        return Diagnosis("as asked", "as asked", rho=rho, tried=1)
    tried = 1
    for candidates, named in _stages(search, pairs=pairs, coarse=coarse):
        tried += len(candidates)
        if diagnosis := named(search, candidates, tried):
            return diagnosis
    return Diagnosis("nothing known", where=where(search.program, search), tried=tried)


def diagnose_near(program: Program, samples: Sequence[Sample]) -> Diagnosis:
    """Name what was computed if it is one edit of what is asked whose loss is near; a short form of `diagnose`."""
    search = Search(program, samples, program.asked(samples[0].inputs))
    base, room = Candidate(), search.room()
    singles = [candidate for candidate in search.singles() if search.near(candidate, room)]
    stages: list[tuple[Sequence[Candidate], Named]] = [(singles, matched)]
    if search.near(base, room):
        stages += [([base, *search.singles()], by_output), (singles, by_loss), ([base, *singles], of_half_precision)]
    stages.append((list(scaled(search, base)), matched))
    tried = 1
    for candidates, named in stages:
        tried += len(candidates)
        if diagnosis := named(search, candidates, tried):
            return diagnosis
    return Diagnosis("nothing known", tried=tried)


def diagnose_rare(program: Program, samples: Sequence[Sample]) -> Diagnosis | None:
    """Name the choice that only rare input shows, such as a clamp; None if there is none."""
    search = Search(program, samples, program.asked(samples[0].inputs))
    candidates = [Candidate((edit,)) for edit in program.rare(search.asked)]
    if not candidates or search.distance(Candidate(), enough=MATCH) <= MATCH:
        return None
    return diagnosis_of(first_matches(search, candidates), len(candidates))


def _stages(search: Search, *, pairs: bool, coarse: bool) -> Iterator[tuple[Sequence[Candidate], Named]]:
    """Yield groups of candidates in the order of trial, each with the function that names a match."""
    base, singles = Candidate(), list(search.singles())
    yield singles, matched
    yield [Candidate((edit,)) for edit in search.program.fitted(search.asked, search.samples)], matched
    yield [base, *singles], by_output
    yield singles, by_loss
    yield [base], by_quantity
    if search.program.pairs:  # two choices of libraries, before one with a factor
        room = search.room()
        choices = (pair for pair in search.pairs() if all(edit.convention for edit in pair.edits))
        yield search.nearest(choices, room), matched
    yield [times for candidate in (base, *singles) for times in scaled(search, candidate)], matched
    if pairs and search.program.pairs:
        room = search.room()
        yield search.nearest(search.pairs(), room), matched
    yield [times for candidate in (base, *singles) for times in scaled(search, candidate, by=quotient)], matched
    if coarse:
        yield [base, *singles], of_half_precision


def identify(program: Program, samples: Sequence[Sample]) -> Diagnosis:
    """Name what is computed when nothing is asked: a preset with its libraries, or a preset with one edit."""
    choices = program.asked(samples[0].inputs)
    return _in_either(samples, lambda *, coarse: _identified(program, samples, choices, coarse=coarse))


def _identified(program: Program, samples: Sequence[Sample], choices: Choices, *, coarse: bool) -> Diagnosis:
    search = Search(program, samples, choices)
    presets = [Candidate((edit,)) for edit in program.presets(choices)]
    if diagnosis := diagnosis_of(first_matches(search, presets), len(presets)):
        return diagnosis
    rho = search.distance(Candidate(), enough=MATCH)
    if rho <= MATCH:  # a composition that the settings of the call spell out, and no library has a name for
        return Diagnosis("as asked", "as asked", rho=rho, tried=len(presets) + 1)
    edited = [
        Candidate((*preset.edits, edit))
        for preset in presets
        for edit in program.edits(preset.choices(choices))
        if not preset.edits[0].changes.keys() & edit.changes.keys()
    ]
    room = search.room()
    near = [candidate for candidate in edited if search.near(candidate, room)]
    if diagnosis := diagnosis_of(first_matches(search, near), len(presets) + len(edited)):
        return diagnosis
    return _diagnosed(search, coarse=coarse)


def where(program: Program, search: Search) -> str:
    """Name the set of elements that contains every difference and few other elements."""
    wrong: dict[str, list[Array]] = {}
    named: dict[tuple[str, str], list[Array]] = {}
    for index, sample in enumerate(search.samples):
        for output, (value, limit) in search.evaluated(Candidate(), index).items():
            got = sample.got.get(output)
            if got is None or got.shape != value.shape or not got.ndim:
                continue
            off = ~(difference(got, value) <= MATCH * limit) & np.isfinite(limit)
            wrong.setdefault(output, []).append(off.reshape(-1))
            for name, elements in program.places(sample.inputs, output):
                named.setdefault((output, name), []).append(np.asarray(elements).reshape(-1))
    best, location = 0.5, ""  # least share of differing elements in a named set
    for (output, name), parts in named.items():
        off, elements = np.concatenate(wrong[output]), np.concatenate(parts)
        if off.any() and off.size == elements.size and not (off & ~elements).any() and elements.any():
            share = float(off[elements].mean())
            if share > best:
                best, location = share, f"{output} differs only {name}"
    if not location and fit_of_gradient(search) <= MATCH:
        return "only the loss differs: the gradient fits"
    return location
