"""Find the samples that make a loss or gradient non-finite, and write them to a file."""

from collections.abc import Callable, Sequence
from pathlib import Path

from gates_reference.trainer import storage
from gates_reference.trainer.engine.micro_batches import Inputs
from gates_reference.trainer.engine.rollout import Generation


class NonFiniteError(ArithmeticError):
    """The loss or its gradient is not finite; the message names the file with the samples."""


def offenders(micro_batches: Sequence[Inputs], finite: Callable[[Inputs], bool], unit: int) -> list[int]:
    """Return the rows that are not `finite` in a micro-batch of their own, `unit` rows at a time."""
    parts = (inputs.only(slice(k, k + unit)) for inputs in micro_batches for k in range(0, len(inputs.rows), unit))
    return [row for part in parts if not finite(part) for row in part.rows.tolist()]


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
