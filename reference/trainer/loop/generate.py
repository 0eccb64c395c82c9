"""Completions of given prompts, by the same rollout as in training."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reference.trainer import lora
from reference.trainer import model as models
from reference.trainer import rollout as rollouts
from reference.trainer.adapters import files
from reference.trainer.checkpoint import folders
from reference.trainer.config.errors import ConfigurationError
from reference.trainer.config.read import Config
from reference.trainer.data import prompts, text
from reference.trainer.engine.rollout import eos_ids, request


def adapter_folder(config: Config, asked: Path | None) -> Path | None:
    """The folder of the adapters to use: the one asked for, else the run's newest whole checkpoint, else `model.adapter_path`."""
    if asked is not None:
        return asked
    found = folders.newest(Path(config.output.folder) / "checkpoints")[0]
    return found or (Path(config.model.adapter_path) if config.model.adapter_path else None)


@contextlib.contextmanager
def policy(config: Config, asked: Path | None, *, base: bool) -> Iterator[models.Loaded]:
    """The model with the adapters of a folder, or without any where there is none; the untouched base afterwards.

    Raises:
        ConfigurationError: the model or the folder cannot be used.
    """
    try:
        loaded = models.load(config.model.spec())
    except ValueError as error:
        raise ConfigurationError(f"[model]: {error}") from None
    folder = None if base else adapter_folder(config, asked)
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


def run(config: Config, texts: Sequence[str], adapter: Path | None, *, base: bool) -> list[dict[str, Any]]:
    """Every completion of every prompt, prompt-major, with its tokens and the sum of its log-probs as drawn."""
    with policy(config, adapter, base=base) as loaded:
        data = config.data
        every = prompts.make(
            [{"prompt": one} for one in texts],
            loaded.tokenizer,
            prompt_column="prompt",
            answer_column="answer",
            chat=data.chat,
            system=data.system_prompt,
            max_tokens=data.max_prompt_tokens,
            too_long="error",
            options=data.chat_options,
        )
        asked = request(every, range(len(every)), config.rollout, eos_ids(loaded.tokenizer), 0)
        result = rollouts.run(loaded.model, asked, config.rollout.path)
    made: list[dict[str, Any]] = []
    for row, (place, sample) in enumerate(result.rows.tolist()):
        length, ended = int(result.lengths[row]), bool(result.ended[row])
        tokens = result.tokens[row, :length].tolist()
        made.append(
            {
                "prompt": texts[place],
                "sample": sample,
                "completion": text.decode(loaded.tokenizer, tokens[: length - ended]),
                "tokens": tokens,
                "ended": ended,
                "logprob": float(result.behaviour[row, :length].sum()),
                "path": result.path,
            }
        )
    return made
