"""Find the samples that make a loss or gradient non-finite, and write them to a file."""

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from reference.trainer import storage
from reference.trainer.engine import passes
from reference.trainer.engine.micro_batches import Inputs
from reference.trainer.engine.rollout import Generation


class NonFiniteError(ArithmeticError):
    """The loss or its gradient is not finite; the message names the file with the samples."""


def finite(loss: float, gradient_norm: float) -> bool:
    """Return whether both numbers are finite."""
    return math.isfinite(loss) and math.isfinite(gradient_norm)


def offenders(model: Any, micro_batches: Sequence[Inputs], loss: Callable[[Inputs], mx.array], unit: int) -> list[int]:
    """Return the rows whose own loss or gradient is not finite; rows are tried alone, `unit` at a time."""
    found: list[int] = []
    for inputs in micro_batches:
        for k in range(0, len(inputs.rows), unit):
            single = inputs.only(slice(k, k + unit))
            value, gradient = passes.loss_and_grad(model, functools.partial(loss, single))
            if not finite(float(value), passes.global_norm(gradient)):
                found += single.rows.tolist()
    return found


def record(path: Path, generation: Generation, rows: Sequence[int], step: int) -> None:
    """Write these samples: texts, tokens, rewards and the sampler's log-probs; non-finite numbers as strings."""
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
                "sampler_logprobs": generation.temperature_scaled[row, :length].tolist(),
            }
        )
    content = {"step": step, "offending_rows": list(rows), "samples": samples}
    storage.write(path, storage.encoded(content, indent=2) + b"\n")
