"""The common factors that a program can have: counts of the call, its settings, powers of ten and short decimals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from gates.families.program import Inputs
from gates.families.rows import Grid
from gates.model import Array

SETTINGS = {"beta": "β", "eps": "ε", "epsilon_low": "ε_low", "epsilon_high": "ε_high", "temperature": "τ"}
CERTAIN = 1e-3  # largest share of rounding in a number from which a factor is read
CLOSE = 1e-6  # relative distance at which a factor is taken for a constant, when rounding is smaller
LARGEST = 1e3  # of a constant factor; its inverse is the smallest
SMALL = 64.0  # the largest integer whose half or inverse is a factor
DIGITS = 2  # of a short decimal, such as a weight of 0.37
LOGARITHMS = (math.log(2.0), math.log(10.0), 1.0 / math.log(2.0), 1.0 / math.log(10.0))  # of another base
FEW = frozenset((-1.0, 2.0, 0.5, *(10.0**power for power in range(-3, 4))))  # read from one number alone


@dataclass(frozen=True, slots=True)
class Factor:
    """A common factor of every output.

    Attributes:
        words: text to follow "times"; empty for the factor 1.
        of: its value for the inputs of one call.
    """

    words: str = ""
    of: Callable[[Inputs], float] = lambda inputs: 1.0  # noqa: ARG005


NONE = Factor()
Factors = Callable[..., Iterator[Factor]]  # those that an observed one may be, given calls, number and rounding


def constant(calls: Sequence[Inputs], observed: float, room: float, *, single: bool) -> Iterator[Factor]:  # noqa: ARG001
    """Yield the constant that an observed factor may be.

    Args:
        calls: the inputs of all calls.
        observed: the quotient of two numbers of the first call.
        room: its relative rounding error.
        single: whether no other number confirms the factor; then only the commonest constants are tried.
    """
    for value in FEW if single else _constants(observed):
        if _near(value, observed, room) and not _near(1.0, observed, room):
            yield Factor(f"{value:.6g}", lambda _, x=value: x)  # type: ignore[misc]
            return


def quotient(calls: Sequence[Inputs], observed: float, room: float, *, single: bool) -> Iterator[Factor]:  # noqa: ARG001
    """Yield the counts and settings of the calls, and their quotients, that an observed factor may be."""
    sizes = [counts(inputs) for inputs in calls]
    common = [name for name in sizes[0] if all(name in others for others in sizes)]
    for words, over, under in _quotients(common):
        value = _quotient(sizes[0], over, under)
        if _near(value, observed, room) and not _near(1.0, value, room):
            yield Factor(words, lambda inputs, a=over, b=under: _quotient(counts(inputs), a, b))  # type: ignore[misc]


def table(calls: Sequence[Inputs]) -> Array:
    """Return the values of each quotient for all calls, (quotients, calls)."""
    sizes = [counts(inputs) for inputs in calls]
    common = [name for name in sizes[0] if all(name in others for others in sizes)]
    rows = [[_quotient(each, over, under) for each in sizes] for _, over, under in _quotients(common)]
    return np.asarray(rows, np.float64).reshape(-1, len(calls))


def _constants(observed: float) -> Iterator[float]:
    """Yield the constants nearest to a number: a short decimal, a half, the inverse of an integer, a logarithm."""
    size = abs(observed)
    if not 0.999 / LARGEST <= size <= 1.001 * LARGEST:  # as read from rounded numbers
        return
    yield float(f"{observed:.{DIGITS}g}")
    if size <= SMALL:
        yield 0.5 * round(2.0 * observed)
    if 1.0 <= round(1.0 / size) <= SMALL:
        yield 1.0 / round(1.0 / observed)
    yield from LOGARITHMS


def _near(value: float, observed: float, room: float) -> bool:
    return abs(value - observed) <= room * abs(value)


def counts(inputs: Inputs) -> Mapping[str, float]:
    """Return the counts and settings of a call by which a program may multiply or divide."""
    sizes: dict[str, float] = {}
    if np.ndim(inputs.get("policy", 0.0)) in {1, 2}:
        marked = {**inputs, "lengths": None} if isinstance(inputs.get("lengths"), str) else inputs  # of IPO: a choice
        mask = Grid.of(marked, "policy").counts
        slots = "the row's tokens" if mask.all() else "slots"
        sizes |= {"rows": len(mask), slots: mask.shape[1], "tokens": mask.sum()}
        sizes |= {"rows with tokens": mask.any(axis=1).sum(), "tokens of the longest row": mask.sum(axis=1).max()}
    elif inputs.get("rewards") is not None:
        sizes["rows"] = len(inputs["rewards"])
    if (size := inputs.get("group_size")) and "rows" in sizes:
        sizes |= {"rows of a prompt": size, "prompts": sizes["rows"] / size}
    if inputs.get("micro_batches"):
        sizes["the number of micro-batches"] = len(inputs["micro_batches"])
    settings = {words: inputs.get(name) for name, words in SETTINGS.items()}
    sizes |= {words: value for words, value in settings.items() if isinstance(value, float)}
    return {name: float(value) for name, value in sizes.items() if value > 0.0}


def _quotients(names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each name, its inverse and each quotient of two, in words and as numerator and denominator."""
    yield from ((name, name, "") for name in names)
    yield from ((f"1 / {name}", "", name) for name in names)
    yield from ((f"{over} / {under}", over, under) for over, under in permutations(names, 2))


def _quotient(sizes: Mapping[str, float], over: str, under: str) -> float:
    return (sizes[over] if over else 1.0) / (sizes[under] if under else 1.0)
