"""The memory preflight of a configuration, as printed by the verbs `train` and `memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gates_reference.trainer.config.read import Config


def estimated(config: Config, prompt_tokens: int) -> dict[str, Any]:
    """Return the estimate as plain data, in bytes."""
    import dataclasses

    from gates_reference.trainer.memory import estimate as estimates
    from gates_reference.trainer.memory import preflight

    shape = preflight.shape(config)
    plan = preflight.plan(config, prompt_tokens)
    estimate = estimates.estimate(shape, plan)
    return {**dataclasses.asdict(estimate), "peak": estimate.peak, "plan": dataclasses.asdict(plan)}


def lines(config: Config, prompt_tokens: int, available_gb: float | None) -> list[str]:
    """Return the estimate and the advice as lines of text."""
    import psutil

    from gates_reference.trainer.memory import estimate as estimates
    from gates_reference.trainer.memory import preflight

    shape = preflight.shape(config)
    available = psutil.virtual_memory().total if available_gb is None else available_gb * estimates.GIGA
    return preflight.sentences(shape, preflight.plan(config, prompt_tokens), float(available))


def lines_or_note(config: Config, prompt_tokens: int) -> list[str]:
    """Return the lines for this machine, or one note if there is no estimate; such a model may still be trained."""
    from gates_reference.trainer.config.errors import TrainerError

    try:
        return lines(config, prompt_tokens, None)
    except TrainerError as error:
        return [f"note: whether the memory is enough is not known ({error})"]
