"""Messages for a training run that was interrupted, ran out of memory or will be slow."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def interrupted(done: int, file: Path, settings: Sequence[str]) -> str:
    """Return the step of the newest checkpoint (0: there is none) and the command that resumes, in one message."""
    options = [word for setting in settings for word in ("--set", setting)]
    command = shlex.join(["gates", "trainer", "train", str(file), *options, "--resume"])
    at = f"the newest checkpoint is of step {done}" if done else "there is no checkpoint yet, so it starts again"
    return f"interrupted; {at}; go on with: {command}"


def no_memory(error: BaseException) -> bool:
    """Return whether an error means out of memory; MLX raises RuntimeError for this and for other failures."""
    message = str(error).lower()
    return isinstance(error, MemoryError) or any(w in message for w in ("malloc", "insufficient memory", "bad_alloc"))


def out_of_memory(config: Any, prompt_tokens: int, error: BaseException) -> str:
    """Return the message for a run out of memory: the preflight's numbers, and what to change in which order."""
    from gates.cli.trainer import preflight

    lines = "\n".join(f"  {line}" for line in preflight.lines_or_note(config, prompt_tokens))
    return (
        f"out of memory ({error}); the preflight says:\n{lines}\n"
        "In general: model.checkpoint_layers = true, then fewer rollout.samples_per_prompt or loop.micro_batch_rows, then a "
        "smaller rollout.max_tokens; what is changed needs another output.folder"
    )


def may_not_fit(config: Any, prompt_tokens: int) -> str:
    """Return the preflight's warning with its advice, "" if a step fits into this machine's memory."""
    from gates.cli.trainer import preflight

    lines = preflight.lines_or_note(config, prompt_tokens)
    if lines[0].startswith("note: "):
        return lines[0]
    start = next((n for n, line in enumerate(lines) if line.startswith(("It may not fit", "It does not fit"))), None)
    return "" if start is None else "\n".join(lines[start - 1 :])


def slow_rollouts(config: Any) -> str:
    """Return why rollouts take no batched path, "" if they do or the configuration names a path; the model is loaded already."""
    from gates_reference.trainer import rollout
    from gates_reference.trainer.loop import prepare

    if config.data.offline or config.rollout.path != "auto" or config.rollout.kv_bits is not None:
        return ""
    path, reason = rollout.fastest(prepare.load(config).model)
    if path in {"batched", "compiled"}:
        return ""
    each = "prompt" if path == "prefix" else "row"
    return f"note: rollouts go one {each} at a time (path '{path}'), slower than a batch: {reason}"
