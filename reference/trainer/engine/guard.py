"""When a loss or a gradient is not finite: which sample did it, written to a file, and then skip or stop."""

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from reference.trainer.checkpoint import storage
from reference.trainer.engine.micro_batches import Part
from reference.trainer.engine.rollout import Generation
from reference.trainer.loop import passes


class NonFiniteError(ArithmeticError):
    """The loss or its gradient is not finite; the message names the file with the sample."""


def finite(loss: float, gradient_norm: float) -> bool:
    """Whether both are finite numbers."""
    return math.isfinite(loss) and math.isfinite(gradient_norm)


def offenders(model: Any, parts: Sequence[Part], loss: Callable[[Part], mx.array], unit: int) -> list[int]:
    """The rows whose own share of the loss, or its gradient, is not finite; each `unit` of rows is computed alone."""
    found: list[int] = []
    for part in parts:
        for k in range(0, len(part.rows), unit):
            single = alone(part, slice(k, k + unit))
            value, gradient = passes.loss_and_grad(model, functools.partial(loss, single))
            if not finite(float(value), passes.global_norm(gradient)):
                found += single.rows.tolist()
    return found


def record(path: Path, generation: Generation, rows: Sequence[int], step: int) -> None:
    """Write the offending samples: texts, tokens, rewards and the sampler's log-probs; non-finite numbers as strings."""
    samples = []
    for row in rows:
        length = int(generation.lengths[row])
        sample = generation.samples[row]
        samples.append(
            {
                "row": row,
                "data_index": generation.prompts[row // generation.group_size].index,
                "prompt": sample.prompt,
                "completion": sample.completion,
                "tokens": generation.tokens[row, :length].tolist(),
                "rewards": generation.rewards.values[row].tolist(),
                "sampler_logprobs": generation.tempered[row, :length].tolist(),
            }
        )
    content = {"step": step, "offending_rows": list(rows), "samples": samples}
    storage.write(path, storage.encoded(content, indent=2) + b"\n")


def alone(part: Part, some: slice) -> Part:
    """Some rows of a part as a part of their own."""

    def of(values: mx.array | None) -> mx.array | None:
        return None if values is None else values[some]

    batch = type(part.batch)(
        part.batch.ids[some], part.batch.prompt_lengths[some], part.batch.lengths[some], part.batch.width
    )
    return Part(
        np.asarray(part.rows[some]),
        batch,
        part.groups[some],
        of(part.sampling),
        of(part.old),
        of(part.reference),
        of(part.advantages),
    )
