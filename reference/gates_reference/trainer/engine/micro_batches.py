"""Split a generation into optimizer steps, and each step into micro-batches that share the step's denominators."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer import logprobs
from gates_reference.trainer.algorithms import protocol
from gates_reference.trainer.engine.rollout import Generation


@dataclass(slots=True)
class Inputs:
    """The rows of one forward and backward pass, and the constants of their loss; arrays are (B, T), `advantages` is (B,).

    `rows` are the rows' positions in the generation; `groups` (B,) numbers the prompts of the optimizer step from 0.
    """

    rows: NDArray[np.int64]
    batch: logprobs.Batch
    groups: NDArray[np.int64]
    sampling: mx.array | None = None
    old: mx.array | None = None
    reference: mx.array | None = None
    advantages: mx.array = field(default_factory=lambda: mx.zeros(0))

    def only(self, chosen: slice) -> "Inputs":
        """Return some of the rows as a micro-batch of their own."""
        b = self.batch
        batch = logprobs.Batch(b.ids[chosen], b.prompt_lengths[chosen], b.lengths[chosen], b.width)
        arrays: dict[str, Any] = {name: getattr(self, name) for name in ("sampling", "old", "reference", "advantages")}
        arrays = {name: x if x is None else x[chosen] for name, x in arrays.items()}
        return Inputs(self.rows[chosen], batch, self.groups[chosen], **arrays)


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step: its micro-batches and the counts of all of them together."""

    micro_batches: list[Inputs]
    totals: protocol.StepTotals


def _packed(generation: Generation, rows: NDArray[np.int64], width: int) -> logprobs.Batch:
    prompts = [generation.prompts[row // generation.rewards.group_size].ids for row in rows.tolist()]
    return logprobs.pack(prompts, generation.tokens[rows, :width], generation.lengths[rows])


def without_truncated(generation: Generation) -> Generation:
    """Return the generation with no token in the rows of truncated completions, which have no end token.

    Their rewards with a KL in them, and so the advantages of their groups, stay. Source: TRL's `mask_truncated_completions`.
    """
    return replace(generation, lengths=np.where(generation.ended, generation.lengths, 0))


def cut(generation: Generation, minibatches: int, micro_batch_rows: int, max_length: int) -> list[Step]:
    """Return the optimizer steps of one pass over the generation: prompts in order, all rows of a prompt in one step.

    Every micro-batch has the width of the generation's longest completion, so that its sums have the same shape however the step
    is split. `micro_batch_rows` = 0 means one micro-batch per step. With two completions per prompt it is rounded up to an even
    number, because they may be a pair, which is never split.
    """
    size = generation.rewards.group_size
    micro_batch_rows += micro_batch_rows % 2 if size == 2 else 0
    width = max(int(generation.lengths.max(initial=0)), 1)
    window = float(generation.lengths.sum())
    steps: list[Step] = []
    for prompts in np.array_split(np.arange(len(generation.prompts)), min(minibatches, len(generation.prompts))):
        rows = np.arange(prompts[0] * size, (prompts[-1] + 1) * size)
        groups = rows // size - prompts[0]
        count = micro_batch_rows or len(rows)
        parts = [slice(start, start + count) for start in range(0, len(rows), count)]
        inputs = [Inputs(rows[part], _packed(generation, rows[part], width), groups[part]) for part in parts]
        totals = protocol.step_totals(
            generation.lengths[rows],
            groups,
            micro_batches=len(inputs),
            max_length=max_length,
            window_tokens=window * len(rows) / len(generation.lengths),
            width=width,
        )
        steps.append(Step(inputs, totals))
    return steps


def take_constants(steps: Sequence[Step], scored: Sequence[Step]) -> None:
    """Give the micro-batches of `steps` the constants of the same rows of `scored`, where rows may have more tokens."""
    pairs = [
        zip(step.micro_batches, whole.micro_batches, strict=True) for step, whole in zip(steps, scored, strict=True)
    ]
    for inputs, source in (pair for parts in pairs for pair in parts):
        mask = mx.array(inputs.batch.mask())
        inputs.advantages = source.advantages
        for name in ("sampling", "old", "reference"):
            values = getattr(source, name)
            if values is not None:
                setattr(inputs, name, mx.where(mask, values[:, : inputs.batch.width], 0.0))


def padded(values: NDArray[np.float64], rows: NDArray[np.int64], width: int) -> mx.array:
    """Return these rows of the sampler's log-probs as float32 (B, width)."""
    return mx.array(values[rows, :width].astype(np.float32))
