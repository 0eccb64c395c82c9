"""The top-entropy mask and the entropy bonus, both of the policy's own distribution at the scoring temperature.

Only tokens with H >= quantile_{1 - share} train the policy; the quantile is linear, over the completion tokens of the step (Wang
et al. 2025, "Beyond the 80/20 rule", arXiv 2506.01939). As in TRL, no denominator shrinks and the KL keeps every token.
"""

from typing import NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer import double
from gates_reference.trainer.algorithms import ratio
from gates_reference.trainer.algorithms.protocol import MicroBatch, StepTotals


class Threshold(NamedTuple):
    """The smallest entropy of a token that trains, in nats, and how many tokens of the step reach it."""

    least: float
    tokens: int


def threshold(entropies: NDArray[np.floating], mask: NDArray[np.bool_], share: float) -> Threshold:
    """Return the threshold that about `share` of a step's tokens reach, from its entropies and mask, (R, T) each.

    The quantile is rounded up to float32, so that comparing float32 entropies with it gives the same result as the exact one.
    """
    counted = np.asarray(entropies, np.float64)[np.asarray(mask, np.bool_)]
    if not counted.size:
        return Threshold(float("inf"), 0)
    exact = float(np.quantile(counted, 1.0 - share))
    rounded = np.float32(exact)
    least = float(rounded if float(rounded) >= exact else np.nextafter(rounded, np.float32(np.inf)))
    return Threshold(least, int((counted >= least).sum()))


def of_step(batch: MicroBatch, totals: StepTotals, share: float) -> Threshold:
    """Return the threshold of the micro-batch's step: from `totals`, or computed here if it is the only micro-batch.

    Raises:
        ValueError: the step has several micro-batches and `totals` has no threshold.
    """
    if share >= 1.0:
        return Threshold(float("-inf"), totals.tokens)
    if totals.entropy_threshold is not None and totals.entropy_tokens is not None:
        return Threshold(totals.entropy_threshold, totals.entropy_tokens)
    if totals.micro_batches > 1 or batch.entropy is None:
        raise ValueError(
            f"entropy_share is {share}, the step has {totals.micro_batches} micro-batches and StepTotals.entropy_threshold, "
            "entropy_tokens are None; they must be given (`entropy.threshold` of the step's entropies)"
        )
    return threshold(np.array(mx.stop_gradient(batch.entropy)), np.array(batch.mask), share)


def chosen(batch: MicroBatch, least: float) -> mx.array:
    """Return which tokens (B, T) train the policy: completion tokens whose entropy reaches the threshold."""
    return batch.mask if batch.entropy is None else batch.mask & (mx.stop_gradient(batch.entropy) >= least)


def bonus(batch: MicroBatch, tokens: mx.array, step_tokens: int) -> mx.array:
    """Return the micro-batch's share of the mean entropy over the chosen tokens of the step, a scalar."""
    if batch.entropy is None:
        raise ValueError("an entropy bonus needs MicroBatch.entropy, found None; score with `entropy=True`")
    return double.total(ratio.select(tokens, batch.entropy)) / max(step_tokens, 1)
