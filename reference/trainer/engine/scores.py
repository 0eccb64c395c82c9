"""What must be known of all parts of a step before its first loss: constant log-probs, thresholds."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.trainer import logprobs
from reference.trainer.algorithms import entropy
from reference.trainer.engine.micro_batches import Step
from reference.trainer.loop import passes


@dataclass(frozen=True, slots=True)
class Constants:
    """Which constant passes a step needs; a pass that is not needed is not run.

    The old log-probs are needed where a rollout gets several updates, for the ratio and what the metrics say of it, and for a KL
    in the reward.
    """

    old: bool
    reference: bool


def fill(model: Any, steps: list[Step], temperature: float, need: Constants, *, head_rows: int | None = None) -> None:
    """Run the constant passes of every part, before the first update; `head_rows` as in `logprobs.scored`."""
    for step in steps:
        for part in step.parts:
            if need.old:
                part.old = passes.old_logprobs(model, part.batch, temperature, head_rows=head_rows)
            if need.reference:
                part.reference = passes.reference_logprobs(model, part.batch, temperature, head_rows=head_rows)


def entropy_threshold(
    model: Any, step: Step, temperature: float, share: float, *, head_rows: int | None = None
) -> Step:
    """The step with the threshold of its top-entropy mask, over the entropies of all its parts under the model as it is."""
    scores = [logprobs.scored(model, part.batch, temperature, entropy=True, head_rows=head_rows) for part in step.parts]
    entropies = np.concatenate([np.array(one.entropy) for one in scores])
    found = entropy.threshold(entropies, np.concatenate([np.array(one.mask) for one in scores]), share)
    whole = replace(step.whole, entropy_threshold=found.least, entropy_tokens=found.tokens)
    return Step(step.parts, whole)


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
