"""Name what some outputs are off by, where the others are as asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from gates.arithmetic.narrow import of_half
from gates.diagnosis.factors import constant, quotient
from gates.diagnosis.named import Diagnosis, Kind, diagnosis_of
from gates.diagnosis.search import APART, MATCH, Candidate, Search, first_matches, scaled

COARSEST = 2.0**-7  # relative error of a number of bfloat16, rounded twice


def by_output(search: Search, candidates: Sequence[Candidate], tried: int) -> Diagnosis | None:
    """Name the gradient alone, if the loss is as asked."""
    if not search.program.variable or search.distance(Candidate(), outputs=("loss",), enough=MATCH) > MATCH:
        return None
    diagnosis = diagnosis_of(first_matches(search, candidates, ("gradient",)), tried)
    if diagnosis is None:
        times = chain.from_iterable(scaled(search, Candidate(), ("gradient",), by=by) for by in (constant, quotient))
        diagnosis = diagnosis_of(first_matches(search, times, ("gradient",)), tried + 1)
    if diagnosis is None or diagnosis.kind == "ambiguous":
        return diagnosis
    words = f"the loss as asked, its gradient that of: {diagnosis.words}"
    return _of_one_output(diagnosis, words, "gradient")


def _of_one_output(diagnosis: Diagnosis, words: str, output: str) -> Diagnosis:
    """Return the diagnosis of a loss and a gradient of two definitions: a mistake, which no declaration says."""
    kind: Kind = "mistake" if diagnosis.kind == "convention" else diagnosis.kind
    return replace(diagnosis, kind=kind, words=words, outputs=(output,), changes={})


def by_loss(search: Search, candidates: Sequence[Candidate], tried: int) -> Diagnosis | None:
    """Name the loss alone, if the gradient is as asked: that of an edit, off by a factor, or off by a constant."""
    rho = fit_of_gradient(search)
    if rho > MATCH or _half(search):
        return None
    if diagnosis := diagnosis_of(first_matches(search, candidates, ("loss",)), tried):
        words = f"the gradient as asked, its loss that of: {diagnosis.words}"
        return _of_one_output(diagnosis, words, "loss")
    for times in chain.from_iterable(scaled(search, Candidate(), ("loss",), by=by) for by in (constant, quotient)):
        if search.distance(times, outputs=("loss",)) <= MATCH:
            words = f"the gradient fits, the loss is off by a factor: times {times.factor.words}"
            return Diagnosis("constant", words, rho=rho, next_rho=APART, tried=tried)
    excess = _excess(search, "loss")
    words = "" if excess is None else f"the gradient fits, the loss is off by a constant: {excess:+.6g}"
    return Diagnosis("constant", words, rho=rho, next_rho=APART, tried=tried) if words else None


def fit_of_gradient(search: Search) -> float:
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


def by_quantity(search: Search, candidates: Sequence[Candidate], tried: int) -> Diagnosis | None:  # noqa: ARG001
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
