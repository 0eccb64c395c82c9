"""Tell lower precision from a mistake, as far as it can be told."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gates.arithmetic.narrow import narrowed
from gates.diagnosis.named import Diagnosis
from gates.diagnosis.search import APART, SURE, Candidate, Search
from gates.families.program import Sample

COARSE = 1e5  # limits: half precision where float32 is asked; what lies farther has no name
COARSE_OF_FLOAT64 = 1e9  # float32 where float64 is asked: 2⁵³/2²⁴ is 5e8
HALF = 0.05  # relative error of a loss in half precision
ASKED = "what is asked"
FROM_HALF = "cannot be told from half-precision arithmetic of"  # it may be a mistake too: at half precision many hide
SHIFTED = 3.0  # the mean error in deviations: a rounding's, truncated ones included, has less


def of_half_precision(search: Search, candidates: Sequence[Candidate], tried: int) -> Diagnosis | None:
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
