"""Log-probs of parts: with a gradient inside the loss, and as constants before it."""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from reference.trainer import logprobs, loop
from reference.trainer.engine_parts import Step


def policy(
    model: Any, batch: logprobs.Batch, temperature: float, *, entropy: bool
) -> tuple[mx.array, mx.array, mx.array | None]:
    """The policy's log-probs (B, T), their mask, and the entropy of each distribution if asked for.

    Raises:
        NotImplementedError: the entropy is asked for and `logprobs` has none.
    """
    if not entropy:
        values, mask = logprobs.of_model(model, batch, temperature)
        return values, mask, None
    scored = getattr(logprobs, "scored", None)
    if scored is None:
        raise NotImplementedError("this version has no entropy of the policy's distribution")
    scores = scored(model, batch, temperature, entropy=True)
    return scores.values, scores.mask, scores.entropy


@dataclass(frozen=True, slots=True)
class Constants:
    """Which constant passes a step needs; a pass that is not needed is not run."""

    old: bool
    reference: bool


def fill(model: Any, steps: list[Step], temperature: float, need: Constants) -> None:
    """Run the constant passes of every part, before the first update."""
    for step in steps:
        for part in step.parts:
            if need.old:
                part.old = loop.old_logprobs(model, part.batch, temperature)
            if need.reference:
                part.reference = loop.reference_logprobs(model, part.batch, temperature)


def summed_difference(steps: list[Step], rows: int) -> NDArray[np.float64]:
    """The sum over each completion of old - reference (R,), the k1 that belongs to a reward; in float64, which is exact here."""
    sums = np.zeros(rows)
    for step in steps:
        for part in step.parts:
            if part.old is None or part.reference is None:
                raise ValueError("old and reference log-probs must be there before their difference")
            live = np.arange(part.batch.width)[None, :] < part.batch.lengths[:, None]
            terms = np.array(part.old, np.float64) - np.array(part.reference, np.float64)
            sums[part.rows] = np.where(live, terms, 0.0).sum(axis=1)
    return sums
