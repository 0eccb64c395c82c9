"""Which tokens are admissible where u and the thresholds of the filters are only known to within eta.

Source: docs/definitions.md, "Token equivalence", clauses 3 to 5.
"""

from collections.abc import Iterator
from itertools import product
from typing import NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

from gates_reference.oracle.inputs import Floats

BELOW_ONE = 1.0 - 2.0**-53


class Sampling(TypedDict):
    """The keywords of `filtered_logprobs`; those that it requires must be given."""

    order: str
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    xtc_probability: float
    xtc_threshold: float
    xtc_coin: npt.ArrayLike | None
    repetition_penalty: float
    history: npt.ArrayLike | None
    ties: NotRequired[str]


def neighbourhood(sampling: Sampling, eta: float) -> Iterator[tuple[Sampling, tuple[float, ...]]]:
    """The exact filters first, then with each active threshold moved by -eta, 0 or eta; with each the shifts of u to try.

    At temperature 0 nothing moves.
    """
    yield sampling, (0.0,)
    if sampling["temperature"] == 0:
        return
    steps = (0.0, -eta, eta)
    for p, m, x in product(
        steps if sampling["top_p"] < 1 else (0.0,),
        steps if sampling["min_p"] > 0 else (0.0,),
        steps if sampling["xtc_probability"] > 0 else (0.0,),
    ):
        moved = sampling.copy()
        moved["top_p"] = _clipped(sampling["top_p"] + p)
        moved["min_p"] = _clipped(sampling["min_p"] + m)
        moved["xtc_threshold"] = _clipped(sampling["xtc_threshold"] + x)
        yield moved, steps


def shifted(u: Floats, shift: float) -> Floats:
    """The uniforms moved by the shift, clipped to [0, 1)."""
    return np.clip(u + shift, 0.0, BELOW_ONE) if shift else u


def _clipped(threshold: float) -> float:
    return min(max(threshold, 0.0), 1.0)
