"""Statistics of the ratio between two policies on completion tokens, computed by rlkernels."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

import rlkernels


def statistics(
    policy: NDArray[np.float64],
    behaviour: NDArray[np.float64],
    mask: NDArray[np.bool_],
    *,
    bounds: tuple[float, float],
    advantages: NDArray[np.float64] | None,
) -> Mapping[str, float]:
    """Return moments, tails and shares of r = exp(policy - behaviour), per token, and with prefix `seq_sum_` per completion.

    Log-probs are (R, T) in nats, read where `mask` (R, T) is true. `bounds` are the clip's widths (epsilon_low, epsilon_high). The
    sign of `advantages` (R,) decides what is clipped; if they are None, the clipped shares are left out.

    Raises:
        ValueError: the mask holds no token.

    Source: ESS: Kong (1992); k3: Schulman (2020), with D = policy - behaviour.
    """
    values: Mapping[str, float] = rlkernels.ratio_statistics(
        policy,
        np.ascontiguousarray(behaviour),
        mask=np.ascontiguousarray(mask),
        epsilon_low=bounds[0],
        epsilon_high=bounds[1],
        advantages=advantages,
    )
    return values
