"""A generation cut into optimizer steps, and each of those into parts (micro-batches) that share the step's denominators."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from reference.trainer import logprobs
from reference.trainer.algorithms import protocol
from reference.trainer.engine.rollout import Generation


@dataclass(slots=True)
class Part:
    """Rows of one forward and backward pass, and the constants of their loss; arrays are (B, T) but `advantages` (B,).

    `rows` are places in the generation, `groups` (B,) numbers the prompts of the optimizer step from 0.
    """

    rows: NDArray[np.int64]
    batch: logprobs.Batch
    groups: NDArray[np.int64]
    sampling: mx.array | None = None
    old: mx.array | None = None
    reference: mx.array | None = None
    advantages: mx.array | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step: its parts and the counts of all of them together."""

    parts: list[Part]
    whole: protocol.Whole


def _packed(generation: Generation, rows: NDArray[np.int64], width: int) -> logprobs.Batch:
    prompts = [generation.prompts[row // generation.group_size].ids for row in rows.tolist()]
    return logprobs.pack(prompts, generation.tokens[rows, :width], generation.lengths[rows])


def cut(generation: Generation, minibatches: int, micro_batch_rows: int, max_length: int) -> list[Step]:
    """The optimizer steps of one pass over the generation: prompts are dealt in order, a prompt's rows stay in one step.

    Every part has the same width, that of the longest completion, so that its sums have the same shape however the step is
    cut. `micro_batch_rows` 0 is one part; with two completions a prompt it is rounded up to an even number, for they may be a
    pair, which is never split.
    """
    size = generation.group_size
    micro_batch_rows += micro_batch_rows % 2 if size == 2 else 0
    width = max(int(generation.lengths.max(initial=0)), 1)
    window = float(generation.lengths.sum())
    steps: list[Step] = []
    for prompts in np.array_split(np.arange(len(generation.prompts)), min(minibatches, len(generation.prompts))):
        rows = np.arange(prompts[0] * size, (prompts[-1] + 1) * size)
        groups = rows // size - prompts[0]
        parts = [
            Part(rows[some], _packed(generation, rows[some], width), groups[some])
            for some in _spans(len(rows), micro_batch_rows)
        ]
        whole = protocol.whole_step(generation.lengths[rows], groups, parts=len(parts), max_length=max_length)
        share = window * len(rows) / len(generation.lengths)
        steps.append(Step(parts, replace(whole, window_tokens=share)))
    return steps


def _spans(count: int, size: int) -> Iterator[NDArray[np.int64]]:
    for start in range(0, count, size or count):
        yield np.arange(start, min(start + (size or count), count))


def padded(values: NDArray[np.float64], rows: NDArray[np.int64], width: int) -> mx.array:
    """Rows of the sampler's log-probs as float32 (B, width)."""
    return mx.array(values[rows, :width].astype(np.float32))
