"""What all micro-batches of a step need before the first loss: constant log-probs, the KL in the reward, an entropy threshold."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference.trainer import logprobs
from reference.trainer.algorithms import entropy
from reference.trainer.engine import passes
from reference.trainer.engine.micro_batches import Inputs, Step


@dataclass(frozen=True, slots=True)
class Needed:
    """Which constant passes a step needs; the others are not run.

    Old log-probs are needed if a rollout gets several updates, for the ratio and its metrics, and for a KL in the reward.
    """

    old: bool
    reference: bool


def fill(model: Any, steps: list[Step], temperature: float, need: Needed, *, head_rows: int | None = None) -> None:
    """Run the constant passes of every micro-batch, before the first update; `head_rows` as in `logprobs.scored`."""
    for inputs in (one for step in steps for one in step.micro_batches):
        if need.old:
            inputs.old = passes.old_logprobs(model, inputs.batch, temperature, head_rows=head_rows)
        if need.reference:
            inputs.reference = passes.reference_logprobs(model, inputs.batch, temperature, head_rows=head_rows)


def entropy_threshold(
    model: Any,
    step: Step,
    temperature: float,
    share: float,
    around: Callable[[Inputs], contextlib.AbstractContextManager[None]],
    *,
    head_rows: int | None = None,
) -> Step:
    """Return the step with its top-entropy threshold, computed from the current model over all its micro-batches.

    `around` gives the context in which a micro-batch is scored, the same as in its update.
    """
    scores = []
    for one in step.micro_batches:
        with around(one):
            scores.append(logprobs.scored(model, one.batch, temperature, entropy=True, head_rows=head_rows))
    entropies = np.concatenate([np.array(one.entropy) for one in scores])
    found = entropy.threshold(entropies, np.concatenate([np.array(one.mask) for one in scores]), share)
    totals = replace(step.totals, entropy_threshold=found.least, entropy_tokens=found.tokens)
    return Step(step.micro_batches, totals)


def summed_difference(steps: list[Step], rows: int) -> NDArray[np.float64]:
    """Sum old - reference over each completion (R,), the k1 of a KL in the reward; in float64, which is exact here."""
    sums = np.zeros(rows)
    for inputs in (one for step in steps for one in step.micro_batches):
        if inputs.old is None or inputs.reference is None:
            raise ValueError("old and reference log-probs must be there before their difference")
        live = np.arange(inputs.batch.width)[None, :] < inputs.batch.lengths[:, None]
        terms = np.array(inputs.old, np.float64) - np.array(inputs.reference, np.float64)
        sums[inputs.rows] = np.where(live, terms, 0.0).sum(axis=1)
    return sums
