"""Prepare a run from its configuration: the model, its adapters, and the sources of completions."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gates_reference.trainer import lora
from gates_reference.trainer import model as models
from gates_reference.trainer.adapters import files, saved
from gates_reference.trainer.checkpoint import folders, layout
from gates_reference.trainer.config.errors import ConfigurationError
from gates_reference.trainer.config.read import Config
from gates_reference.trainer.data import order, pairs, prompts, rows
from gates_reference.trainer.engine import rollout
from gates_reference.trainer.engine.pairs import PairSource
from gates_reference.trainer.engine.rollout import Source
from gates_reference.trainer.loop import inputs as loop_inputs
from gates_reference.trainer.metrics import progress
from gates_reference.trainer.rewards import combine


def load(config: Config) -> models.Loaded:
    """Load the model of a configuration.

    Raises:
        ConfigurationError: the section [model] cannot be used.
    """
    warmup = config.model.warmup
    report = progress.WarmUp(warmup.steps) if config.output.console and warmup is not None else None
    try:
        return models.load(config.model.spec(), report)
    except ValueError as error:
        raise ConfigurationError(f"[model]: {error}") from None


def attach(model: Any, config: Config) -> None:
    """Put the configured adapters on the model, fresh or with saved values, and freeze everything else."""
    lora.detach(model)
    try:
        lora.attach(model, config.adapter.spec())
    except (ValueError, NotImplementedError) as error:
        raise ConfigurationError(f"[adapter]: {error}") from None
    lora.freeze(model)
    lora.require_only_adapters(model)
    if config.model.adapter_path is not None:
        folder = Path(config.model.adapter_path)
        names = layout.arrays(folder / files.WEIGHTS)
        saved.require_blocks(folder, names, layout.parameters(model), config.adapter.layers)
        layout.load(folder, model)


def adapter_folder(config: Config, wanted: Path | None) -> Path | None:
    """Return the folder of adapters to use: `wanted`, else the run's newest intact checkpoint, else `model.adapter_path`."""
    if wanted is not None:
        return wanted
    newest = folders.newest(Path(config.output.folder) / "checkpoints")[0]
    return newest or (Path(config.model.adapter_path) if config.model.adapter_path else None)


@contextlib.contextmanager
def trained(config: Config, folder: Path | None) -> Iterator[models.Loaded]:
    """Give the model with the adapters of a folder, or without any if it is None; leave the untouched base behind.

    Raises:
        ConfigurationError: the model or the folder cannot be used.
    """
    loaded = load(config)
    lora.detach(loaded.model)
    try:
        if folder is not None:
            try:
                files.load(loaded.model, folder)
            except (ValueError, FileNotFoundError) as error:
                raise ConfigurationError(str(error)) from None
        yield loaded
    finally:
        lora.detach(loaded.model)


def split(config: Config, tokenizer: Any, records: Sequence[rows.Row]) -> order.Split:
    """Return the training and validation prompts of a configuration's rows."""
    data = config.data
    every = prompts.make(records, tokenizer, data)
    if data.chosen_column is not None and data.rejected_column is not None:
        every = pairs.fitting(
            every,
            tokenizer,
            (data.chosen_column, data.rejected_column),
            pairs.end_id(tokenizer, rollout.eos_ids(tokenizer)),
            max_tokens=config.rollout.max_tokens,
            too_long=data.too_long,
        )
    return order.split(every, data.validation_rows, data.seed)


def sources(
    config: Config, tokenizer: Any, inputs: loop_inputs.Inputs | None = None
) -> tuple[Source, Source | None, list[str]]:
    """Return the sources of training and validation completions, and the names of the reward functions.

    `inputs` is the result of `loop_inputs.read`, if it was called before the model was loaded.
    """
    inputs = inputs or loop_inputs.read(config)
    functions = inputs.functions
    parts = split(config, tokenizer, inputs.rows)

    score = functools.partial(combine.score, functions)
    eos = rollout.eos_ids(tokenizer)
    names = ["chosen"] if config.data.offline else [function.name for function in functions]

    def of(some: list[prompts.Prompt]) -> Source:
        chosen, rejected = config.data.chosen_column, config.data.rejected_column
        if chosen is None or rejected is None:
            return Source(tokenizer, some, config.rollout, eos, score)
        return PairSource(tokenizer, some, config.rollout, eos, score, chosen_column=chosen, rejected_column=rejected)

    return of(parts.train), of(parts.validation) if parts.validation else None, names
