"""An evaluation from a configuration: which model, which adapters, which prompts."""

from pathlib import Path
from typing import Any

from reference.trainer.config.read import Config
from reference.trainer.loop import evaluate, generate
from reference.trainer.loop import run as loop_run


def run(config: Config, adapter: Path | None, *, base: bool) -> dict[str, Any]:
    """Evaluate a model as configured, with the adapters of a folder; without validation prompts, on every prompt.

    Raises:
        ConfigurationError, DataError, RewardError: as their messages say.
    """
    folder = None if base else generate.adapter_folder(config, adapter)
    with generate.policy(config, adapter, base=base) as loaded:
        train, validation, names = loop_run.sources(config, loaded.tokenizer)
        source = validation or train
        made = evaluate.generations(loaded.model, source, config.loop.prompts_per_step, 0)
        if config.data.offline:
            found = evaluate.margins(
                loaded.model, made, config.scoring_temperature(), head_rows=config.loop.head_rows or None
            )
            return {"adapter": str(folder or ""), **found}
    return {"adapter": str(folder or ""), **evaluate.numbers(made, names)}
