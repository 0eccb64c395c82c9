"""How far one policy's log-probs have moved from another's, on completion tokens only, by the kernel of rlkernels."""

import importlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


def statistics(
    policy: NDArray[np.float64],
    behaviour: NDArray[np.float64],
    mask: NDArray[np.bool_],
    *,
    bounds: tuple[float, float],
    advantages: NDArray[np.float64] | None,
) -> Mapping[str, float]:
    """Moments, tails and shares of r = exp(policy - behaviour), per token and with the prefix `seq_sum_` per completion.

    Log-probs are (R, T) in nats, read where `mask` (R, T) is true; `bounds` are the clip's widths (epsilon_low, epsilon_high),
    and the sign of `advantages` (R,) decides what a clip stops: without them nothing is said of that.

    Raises:
        ValueError: the mask holds no token.

    Source: ESS: Kong (1992); k3: Schulman (2020), with D = policy - behaviour.
    """
    rlkernels = importlib.import_module("rlkernels")  # compiled; sampling and scoring do without it
    found: Mapping[str, float] = rlkernels.ratio_statistics(
        policy,
        np.ascontiguousarray(behaviour),
        mask=np.ascontiguousarray(mask),
        epsilon_low=bounds[0],
        epsilon_high=bounds[1],
        advantages=advantages,
    )
    return found
