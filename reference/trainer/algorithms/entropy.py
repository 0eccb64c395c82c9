"""The top-entropy mask and the entropy bonus, both of the policy's own distribution at the scoring temperature.

Only the tokens with H >= quantile_{1 - share}, the linear quantile over the completion tokens of the step, train the policy
(Wang et al. 2025, "Beyond the 80/20 rule", arXiv 2506.01939). No denominator shrinks and the KL keeps every token (TRL).
"""

from typing import NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from reference.trainer.algorithms import pairs, ratio
from reference.trainer.algorithms.protocol import Scored, Whole


class Threshold(NamedTuple):
    """The least entropy of a trained token, in nats, and how many tokens of the step reach it."""

    least: float
    tokens: int


def threshold(entropies: NDArray[np.floating], mask: NDArray[np.bool_], share: float) -> Threshold:
    """The threshold over a step's entropies and mask, (R, T) each, so that about `share` of the tokens reach it.

    The quantile is rounded up to float32, so that float32 entropies compare with it as with the exact one.
    """
    counted = np.asarray(entropies, np.float64)[np.asarray(mask, np.bool_)]
    if not counted.size:
        return Threshold(float("inf"), 0)
    exact = float(np.quantile(counted, 1.0 - share))
    rounded = np.float32(exact)
    least = float(rounded if float(rounded) >= exact else np.nextafter(rounded, np.float32(np.inf)))
    return Threshold(least, int((counted >= least).sum()))


def of_step(part: Scored, whole: Whole, share: float) -> Threshold:
    """The threshold of the step that the part belongs to: told by `whole`, or measured where the part is all of it.

    Raises:
        ValueError: the step has several parts and `whole` does not tell.
    """
    if share >= 1.0:
        return Threshold(float("-inf"), whole.tokens)
    if whole.entropy_threshold is not None and whole.entropy_tokens is not None:
        return Threshold(whole.entropy_threshold, whole.entropy_tokens)
    if whole.parts > 1 or part.entropy is None:
        raise ValueError(
            f"entropy_share is {share}, the step has {whole.parts} parts and Whole.entropy_threshold, entropy_tokens "
            "are None; must be given (`entropy.threshold` of the step's entropies), for no part knows the others"
        )
    return threshold(np.array(mx.stop_gradient(part.entropy)), np.array(part.mask), share)


def chosen(part: Scored, least: float) -> mx.array:
    """Which tokens (B, T) train the policy: completion tokens whose entropy reaches the threshold."""
    return part.mask if part.entropy is None else part.mask & (mx.stop_gradient(part.entropy) >= least)


def bonus(part: Scored, tokens: mx.array, step_tokens: int) -> mx.array:
    """The mean entropy of the chosen tokens over those of the whole step: a scalar, the part's share of it."""
    if part.entropy is None:
        raise ValueError("an entropy bonus needs Scored.entropy, found None; score with `entropy=True`")
    return pairs.total(ratio.select(tokens, part.entropy)) / max(step_tokens, 1)
