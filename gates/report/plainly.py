"""Say a measured number to people: `loss is off by 0.26 (limit 2e-07): got 0.39, want 0.13`, and on what rare input.

The sentence of a verdict counts in textbook limits or units of rounding, as its evidence does. On the screen the distance
itself and the largest one that rounding explains are shown instead.
"""

from __future__ import annotations

import math
import re

NUMBER = r"-?(?:nan|inf|\d[\d.]*(?:e[+-]?\d+)?)"
MEASURED = re.compile(
    rf"(?P<noun>[^:;()]+?) error in (?:textbook limits|2u·S(?: \(\w+\))?) is (?P<off>{NUMBER}), must be <= (?P<most>{NUMBER}) "
    rf"\((?P<where>[^()]*?)got (?P<got>{NUMBER}), want (?P<want>{NUMBER})\)"
)
UNIT = re.compile(r"(\w+) error in (?:textbook limits|2u·S(?: \(\w+\))?)(?=: )")  # of a difference that is shown
RARE = (  # part of the name of a case, or of a gate, and what is rare about its input
    ("found-groups-of-one", "group of one"),
    ("constant-group-is-zero", "equal rewards"),
    ("constant", "equal rewards"),
    ("empty", "row without tokens"),
    ("without-tokens", "completion without tokens"),
    ("nothing-chosen", "completion without tokens"),
    ("impossible", "tokens of probability 0"),
    ("kl-far", "reference up to 8 nats away"),
    ("far-ratios", "ratios up to e^20"),
    ("-far-", "ratios up to e^20"),
    ("huge", "reference up to 20 nats away"),
)


def plainly(reason: str) -> str:
    """Return a verdict's reason with distances in place of multiples of a limit; other reasons are unchanged."""
    return UNIT.sub(r"\1", MEASURED.sub(_distance, reason))


def _distance(match: re.Match[str]) -> str:
    noun, where = match["noun"], match["where"].strip(" :,")
    got, want, multiple, most = (float(match[name]) for name in ("got", "want", "off", "most"))
    place = f" {where}" if where else ""
    if not math.isfinite(got):
        return f"{noun} is {match['got']}{place}, want {want:.6g}"
    off = abs(got - want)
    if off == 0.0:
        return match[0]
    if not math.isfinite(multiple):
        return f"{noun} is {got:.6g}{place}, must be {want:.6g}"
    values = f"got {got:.6g}, want {want:.6g}" if f"{got:.6g}" != f"{want:.6g}" else f"got {got:.9g}, want {want:.9g}"
    return f"{noun} is off by {off:.2g} (limit {off * most / multiple:.0e}){place}: {values}"


def rare(gate: str, case: str) -> str:
    """Return what is rare about the input of a case, such as "row without tokens"; empty if nothing is known."""
    return next((words for part, words in RARE if part in case or part in gate), "")
