"""Name what a subject computes, given its outputs for the designed inputs of an op."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

import numpy as np

from gates.arithmetic.narrow import in_float32, narrowed, of_half
from gates.diagnosis.factors import constant, quotient
from gates.diagnosis.search import APART, MATCH, SURE, Candidate, Search, difference, first_matches, scaled
from gates.families.program import Choices, Edit, Program, Sample
from gates.model import IN_FLOAT32, Array

Kind = Literal[
    "as asked", "convention", "mistake", "scaled", "constant", "lower precision", "ambiguous", "nothing known"
]
COARSE = 1e5  # limits: half precision where float32 is asked; what lies farther has no name
COARSE_OF_FLOAT64 = 1e9  # float32 where float64 is asked: 2⁵³/2²⁴ is 5e8
HALF = 0.05  # relative error of a loss in half precision
COARSEST = 2.0**-7  # relative error of a number of bfloat16, rounded twice
ASKED = "what is asked"
FROM_HALF = "cannot be told from half-precision arithmetic of"  # it may be a mistake too: at half precision many hide
BESIDE = (0.95, 1.05)  # of a size: one that gives the same outputs leaves the size open
SMALLEST, LARGEST = 0.02, 1e6  # of a size that is checked so; an ε may be below rounding
SHIFTED = 3.0  # the mean error in deviations: a rounding's, truncated ones included, has less


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
    stages: list[tuple[Sequence[Candidate], Named]] = [(singles, _matched)]
    if search.near(base, room):
        stages += [([base, *search.singles()], _by_output), (singles, _by_loss), ([base, *singles], _coarse)]
    stages.append((list(scaled(search, base)), _matched))
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
    return _named(first_matches(search, candidates), len(candidates))


Named = Callable[[Search, Sequence[Candidate], int], "Diagnosis | None"]


def _stages(search: Search, *, pairs: bool, coarse: bool) -> Iterator[tuple[Sequence[Candidate], Named]]:
    """Yield groups of candidates in the order of trial, each with the function that names a match."""
    base, singles = Candidate(), list(search.singles())
    yield singles, _matched
    yield [Candidate((edit,)) for edit in search.program.fitted(search.asked, search.samples)], _matched
    yield [base, *singles], _by_output
    yield singles, _by_loss
    yield [base], _by_quantity
    if search.program.pairs:  # two choices of libraries, before one with a factor
        room = search.room()
        choices = (pair for pair in search.pairs() if all(edit.convention for edit in pair.edits))
        yield search.nearest(choices, room), _matched
    yield [times for candidate in (base, *singles) for times in scaled(search, candidate)], _matched
    if pairs and search.program.pairs:
        room = search.room()
        yield search.nearest(search.pairs(), room), _matched
    yield [times for candidate in (base, *singles) for times in scaled(search, candidate, by=quotient)], _matched
    if coarse:
        yield [base, *singles], _coarse


def _matched(search: Search, candidates: Sequence[Candidate], tried: int) -> Diagnosis | None:
    matches = [pair for pair in first_matches(search, candidates) if _decided(search, pair[0])]
    diagnosis = _named(matches, tried)
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


def identify(program: Program, samples: Sequence[Sample]) -> Diagnosis:
    """Name what is computed when nothing is asked: a preset with its libraries, or a preset with one edit."""
    choices = program.asked(samples[0].inputs)
    return _in_either(samples, lambda *, coarse: _identified(program, samples, choices, coarse=coarse))


def _identified(program: Program, samples: Sequence[Sample], choices: Choices, *, coarse: bool) -> Diagnosis:
    search = Search(program, samples, choices)
    presets = [Candidate((edit,)) for edit in program.presets(choices)]
    if found := _named(first_matches(search, presets), len(presets)):
        return found
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
    if diagnosis := _named(first_matches(search, near), len(presets) + len(edited)):
        return diagnosis
    return _diagnosed(search, coarse=coarse)


def _named(matches: Sequence[tuple[Candidate, float]], tried: int) -> Diagnosis | None:
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


def _by_output(search: Search, candidates: Sequence[Candidate], tried: int) -> Diagnosis | None:
    """Name the gradient alone, if the loss is as asked."""
    if not search.program.variable or search.distance(Candidate(), outputs=("loss",), enough=MATCH) > MATCH:
        return None
    diagnosis = _named(first_matches(search, candidates, ("gradient",)), tried)
    if diagnosis is None:
        times = chain.from_iterable(scaled(search, Candidate(), ("gradient",), by=by) for by in (constant, quotient))
        diagnosis = _named(first_matches(search, times, ("gradient",)), tried + 1)
    if diagnosis is None or diagnosis.kind == "ambiguous":
        return diagnosis
    words = f"the loss as asked, its gradient that of: {diagnosis.words}"
    return _of_one_output(diagnosis, words, "gradient")


def _of_one_output(diagnosis: Diagnosis, words: str, output: str) -> Diagnosis:
    """Return the diagnosis of a loss and a gradient of two definitions: a mistake, which no declaration says."""
    kind: Kind = "mistake" if diagnosis.kind == "convention" else diagnosis.kind
    return replace(diagnosis, kind=kind, words=words, outputs=(output,), changes={})


def _by_loss(search: Search, candidates: Sequence[Candidate], tried: int) -> Diagnosis | None:
    """Name the loss alone, if the gradient is as asked: that of an edit, off by a factor, or off by a constant."""
    rho = _fit_of_gradient(search)
    if rho > MATCH or _half(search):
        return None
    if diagnosis := _named(first_matches(search, candidates, ("loss",)), tried):
        words = f"the gradient as asked, its loss that of: {diagnosis.words}"
        return _of_one_output(diagnosis, words, "loss")
    for times in chain.from_iterable(scaled(search, Candidate(), ("loss",), by=by) for by in (constant, quotient)):
        if search.distance(times, outputs=("loss",)) <= MATCH:
            words = f"the gradient fits, the loss is off by a factor: times {times.factor.words}"
            return Diagnosis("constant", words, rho=rho, next_rho=APART, tried=tried)
    excess = _excess(search, "loss")
    words = "" if excess is None else f"the gradient fits, the loss is off by a constant: {excess:+.6g}"
    return Diagnosis("constant", words, rho=rho, next_rho=APART, tried=tried) if words else None


def _fit_of_gradient(search: Search) -> float:
    """Return the distance of the gradient from what is asked; inf if loss and gradient are not both known."""
    if not search.program.variable or not {"loss", "gradient"} <= set(search.outputs):
        return math.inf
    return search.distance(Candidate(), outputs=("gradient",), enough=MATCH)


def _half(search: Search) -> bool:
    """Whether every loss is a number of half precision near what is asked, which explains its error."""
    for index, sample in enumerate(search.samples):
        got, value = float(sample.got["loss"]), float(search.evaluated(Candidate(), index)["loss"][0])
        if not of_half(got).all() or abs(got - value) > COARSEST * abs(value):
            return False
    return True


def _excess(search: Search, output: str) -> float | None:
    """Return what an output has in excess of what is asked, if it is the same for all elements and calls."""
    evaluated = [search.evaluated(Candidate(), index)[output] for index in range(len(search.samples))]
    if any(
        sample.got[output].shape != value.shape for sample, (value, _) in zip(search.samples, evaluated, strict=True)
    ):
        return None
    with np.errstate(all="ignore"):
        excess = np.concatenate(
            [np.ravel(s.got[output] - e[0]) for s, e in zip(search.samples, evaluated, strict=True)]
        )
    limit = np.concatenate([np.ravel(limit) for _, limit in evaluated])
    if excess.size < len(search.samples) or not np.isfinite(excess).all() or not np.isfinite(limit).all():
        return None
    first = int(np.argmin(limit))
    alike = np.all(np.abs(excess - excess[first]) <= MATCH * (limit + limit[first]))
    return float(excess[first]) if alike else None


def _by_quantity(search: Search, candidates: Sequence[Candidate], tried: int) -> Diagnosis | None:  # noqa: ARG001
    """Name a factor or a constant of some outputs, if the others are as asked."""
    if search.program.variable:
        return None
    rhos = {output: search.distance(Candidate(), outputs=(output,), enough=MATCH) for output in search.outputs}
    wrong = [output for output, rho in rhos.items() if rho > MATCH]
    named = {_of_quantity(search, output) for output in wrong}
    words = named.pop() if len(named) == 1 else ""
    if not words or (len(wrong) == len(rhos) and words.startswith("times")):  # a factor of everything has its own stage
        return None
    kind: Kind = "constant" if words.startswith("off") else "scaled"
    only = "" if len(rhos) == 1 else f": {', '.join(wrong)}"
    return Diagnosis(kind, f"what is asked, {words}{only}", rho=MATCH, next_rho=APART, tried=tried)


def _of_quantity(search: Search, output: str) -> str:
    for times in chain.from_iterable(scaled(search, Candidate(), (output,), by=by) for by in (constant, quotient)):
        if search.distance(times, outputs=(output,), enough=MATCH) <= MATCH:
            return f"times {times.factor.words}"
    excess = _excess(search, output) if len(search.samples) > 1 else None
    return "" if excess is None else f"off by a constant, {excess:+.6g}"


def _coarse(search: Search, candidates: Sequence[Candidate], tried: int) -> Diagnosis | None:
    """Return the nearest candidate whose half-precision arithmetic the outputs may be, if every other one is `APART` times farther."""
    double = in_float64(search.samples) and not narrowed()
    coarse = COARSE_OF_FLOAT64 if double else COARSE
    share = SURE if double else HALF
    likely = [one for one in candidates if search.possible(one, within=coarse, share=share)]
    if not any(search.distance(one, enough=coarse) < coarse and _rounded(search, one) for one in likely):
        return None
    (rho, best), *others = _ranked(search, likely, coarse)
    # a loss in half precision tells no two apart by itself
    told = ("gradient",) if "gradient" in search.outputs else ()
    others = [(far, one) for far, one in others if not search.same(one, best, told)]
    best = next(one for one in likely if one is best or search.same(one, best))  # what is asked is named first
    if rho >= coarse or (others and others[0][0] < APART * rho) or not _rounded(search, best):
        return None
    words = f"{FROM_HALF} {best.sentence if best.edits else ASKED}"
    return Diagnosis("lower precision", words, rho=rho, next_rho=others[0][0] if others else APART, tried=tried)


def _ranked(search: Search, candidates: Sequence[Candidate], coarse: float) -> list[tuple[float, Candidate]]:
    """Return candidates with their distances, nearest first; those `APART` times farther have a lower bound of it."""
    ranked, enough = [], coarse
    for candidate in candidates:
        rho = search.distance(candidate, enough=enough)
        enough = min(enough, APART * rho)
        ranked.append((rho, candidate))
    return sorted(ranked, key=lambda pair: pair[0])


def in_float64(samples: Sequence[Sample]) -> bool:
    """Return whether the calls of samples hold float64 data."""
    arrays = [value for value in samples[0].inputs.values() if isinstance(value, np.ndarray)]
    return any(array.dtype == np.float64 for array in arrays)


def _rounded(search: Search, candidate: Candidate) -> bool:
    """Whether the errors look like rounding noise; a systematic error would scale or shift each call."""
    for index, sample in enumerate(search.samples):
        for output, (value, limit) in search.evaluated(candidate, index).items():
            got = sample.got.get(output)
            if got is None or got.shape != value.shape:
                continue
            with np.errstate(all="ignore"):
                off = (got - value) / value
            off = off[np.isfinite(off) & np.isfinite(limit)]
            if off.size > 1 and abs(float(off.mean())) <= SHIFTED * float(off.std()):
                return True
    return False


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
    if not location and _fit_of_gradient(search) <= MATCH:
        return "only the loss differs: the gradient fits"
    return location
