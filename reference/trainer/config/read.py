"""A configuration from TOML and overrides, validated as a whole before any model is loaded."""

import importlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from pydantic import Field, ValidationError, ValidationInfo, model_validator

from reference.trainer.algorithms import protocol
from reference.trainer.config import errors, functions, inert, sections
from reference.trainer.config.errors import ConfigurationError

QUANTISED: Final = ("auto", "cached", "prefix")
"""Rollout paths whose keys and values may be in 8 or 4 bits; they hold one prompt's rows at a time."""


class Config(sections.Section):
    """Everything a run depends on."""

    model: sections.Model = Field(default_factory=sections.Model)
    adapter: sections.Adapter = Field(default_factory=sections.Adapter)
    data: sections.Data = Field(default_factory=sections.Data)
    rollout: sections.Rollout = Field(default_factory=sections.Rollout)
    algorithm: sections.Algorithm = Field(default_factory=sections.Algorithm)
    optimizer: sections.Optimizer = Field(default_factory=sections.Optimizer)
    loop: sections.Loop = Field(default_factory=sections.Loop)
    rewards: functions.Rewards = Field(default_factory=functions.Rewards)
    output: sections.Output = Field(default_factory=sections.Output)

    @model_validator(mode="after")
    def _draws_or_reads_pairs(self, info: ValidationInfo) -> Self:
        """What holds for whoever draws completions, or reads pairs in their place."""
        if self.rollout.kv_bits is not None and self.rollout.path not in QUANTISED:
            raise ValueError(
                f"rollout.kv_bits needs rollout.path to be one of {', '.join(QUANTISED)}, found {self.rollout.path!r}: the "
                "other paths have no quantised caches"
            )
        if self.data.offline and self.rollout.samples_per_prompt != 2 and _use(info).verb != "generate":
            raise ValueError(
                "data.chosen_column gives pairs that nobody sampled: set rollout.samples_per_prompt = 2, found "
                f"{self.rollout.samples_per_prompt}"
            )
        return self

    @model_validator(mode="after")
    def _trains(self, info: ValidationInfo) -> Self:
        """What only training asks for."""
        if _use(info).verb != "train":
            return self
        if self.loop.minibatches > self.loop.prompts_per_step:
            raise ValueError(
                f"loop.minibatches is {self.loop.minibatches}, must be at most loop.prompts_per_step = "
                f"{self.loop.prompts_per_step}: a prompt's completions stay together"
            )
        if self.loop.evaluate_every_steps and not self.data.validation_rows:
            raise ValueError("loop.evaluate_every_steps needs data.validation_rows >= 1")
        if self.algorithm.old_logprobs == "stored":
            self._stored()
        correction = self.algorithm.settings.get("correction")
        if correction is not None and self.algorithm.sampling_logprobs == "tempered" and not self._recorded():
            raise ValueError(
                f"settings.correction is {correction!r} and algorithm.scoring_temperature {self.scoring_temperature()}, the "
                f"sampler records unfiltered log-probs at 1 and at rollout.temperature = {self.rollout.temperature}; score at "
                "one of them, or set algorithm.sampling_logprobs = 'behaviour'"
            )
        return self

    def _recorded(self) -> bool:
        """Whether the sampler records its unfiltered log-probs at the temperature of the loss."""
        return self.data.offline or self.scoring_temperature() in {1.0, self.rollout.temperature}

    def _stored(self) -> None:
        """The sampler's log-probs can stand for the old ones: they are there, exact, and at the temperature of the loss."""
        if self.data.offline:
            raise ValueError(
                "data.chosen_column gives pairs that nobody sampled: set algorithm.old_logprobs = 'recompute'"
            )
        if self.rollout.temperature == 0:
            raise ValueError("algorithm.old_logprobs = 'stored' needs rollout.temperature > 0")
        if self.rollout.kv_bits is not None:
            raise ValueError("algorithm.old_logprobs = 'stored' needs exact log-probs; remove rollout.kv_bits")
        if not self._recorded():
            raise ValueError(
                f"algorithm.scoring_temperature is {self.scoring_temperature()}, the sampler stores log-probs at 1 and at "
                f"rollout.temperature = {self.rollout.temperature}; set algorithm.old_logprobs = 'recompute'"
            )

    @model_validator(mode="after")
    def _nothing_inert(self, info: ValidationInfo) -> Self:
        if said := inert.sentences(self, _use(info)):
            raise ValueError("\n".join(said))
        return self

    def scoring_temperature(self) -> float:
        """The temperature of the log-probs in the loss."""
        return self.algorithm.scoring_temperature or self.rollout.temperature or 1.0


def _use(info: ValidationInfo) -> inert.Use:
    used: inert.Use = (info.context or {}).get("use", inert.TRAIN)
    return used


def _value(text: str) -> Any:
    """A value as TOML writes it; what is no TOML value is a string."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def override(raw: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """The tables with every "section.key=value" put in; tables and list items (by number) are found by dots.

    Raises:
        ConfigurationError: a setting has no "=", or runs through something that is no table.
    """
    for setting in settings:
        name, equals, text = setting.partition("=")
        path = name.strip().split(".")
        if not equals or not all(path):
            raise ConfigurationError(f"--set {setting}: must be section.key=value, like loop.steps=10")
        here: Any = raw
        for step in path[:-1]:
            here = _inside(here, step, setting)
        _put(here, path[-1], _value(text.strip()), setting)
    return raw


def _inside(here: Any, step: str, setting: str) -> Any:
    if isinstance(here, dict):
        return here.setdefault(step, {})
    if isinstance(here, list) and re.fullmatch("[0-9]{1,6}", step) and int(step) < len(here):
        return here[int(step)]
    raise ConfigurationError(f"--set {setting}: {step!r} is not inside a table or list of that length")


def _put(here: Any, step: str, value: Any, setting: str) -> None:
    if isinstance(here, dict):
        here[step] = value
    elif isinstance(here, list) and re.fullmatch("[0-9]{1,6}", step) and int(step) < len(here):
        here[int(step)] = value
    else:
        raise ConfigurationError(f"--set {setting}: {step!r} is not inside a table or list of that length")


def validate(raw: Mapping[str, Any], use: inert.Use = inert.TRAIN) -> Config:
    """The configuration of parsed tables, for training or for another `use`.

    Raises:
        ConfigurationError: every mistake, one line each.
    """
    try:
        return Config.model_validate(_tuples(raw), context={"use": use})
    except ValidationError as error:
        raise ConfigurationError(errors.sentences(error, Config)) from None


def _tuples(raw: Mapping[str, Any]) -> dict[str, Any]:
    """TOML has lists where the types say tuple."""
    tables = dict(raw)
    optimizer = tables.get("optimizer")
    if isinstance(optimizer, Mapping) and isinstance(optimizer.get("betas"), list):
        tables["optimizer"] = {**optimizer, "betas": tuple(optimizer["betas"])}
    return tables


def reader(verb: inert.Verb, settings: Sequence[str]) -> inert.Use:
    """Who reads a configuration with these overrides, each "section.key=value"."""
    return inert.Use(verb, frozenset(setting.partition("=")[0].strip() for setting in settings))


def read(path: Path, settings: Sequence[str] = (), verb: inert.Verb = "train") -> Config:
    """The configuration of a TOML file with overrides, for a command.

    Raises:
        ConfigurationError: the file cannot be read, is no TOML, or says something impossible.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read ({error})") from None
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: is no TOML: {error}") from None
    return validate(override(raw, settings), reader(verb, settings))


def algorithm(config: Config, verb: inert.Verb = "train") -> Any:
    """The algorithm object of a configuration; the only place that knows algorithms by name.

    Only `train` asks it for advantages, so for the other verbs it need not go with the rest of the configuration.

    Raises:
        ConfigurationError: the name or one of its settings is unknown or impossible, or does not go with the group size or the
            reward functions.
    """
    registry = importlib.import_module("reference.trainer.algorithms.registry")  # a command's choice, not the engine's
    try:
        made = registry.create(config.algorithm.name, config.algorithm.settings)
        if verb == "train":
            _try(made, config)
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(f"[algorithm]: {error}") from None
    if verb == "train" and (said := inert.settings(getattr(made, "settings", None), config)):
        raise ConfigurationError(f"[algorithm]: {'; '.join(said)}")
    return made


def _try(made: protocol.Algorithm, config: Config) -> None:
    """Ask for advantages of made-up rewards in the configuration's shape, so that what does not fit is told before a run."""
    size = config.rollout.samples_per_prompt
    names = ["chosen"] if config.data.offline else [function.name for function in config.rewards.functions]
    values = np.tile(np.arange(size, dtype=np.float64)[:, None], (2, len(names)))
    rewards = protocol.Rewards(
        values=values,
        weights=np.ones(len(names)),
        group_size=size,
        lengths=np.ones(2 * size, np.int64),
        accuracy=names.index("accuracy") if "accuracy" in names else None,
    )
    made.keep(rewards)
    found = made.advantages(rewards, old_kl=np.zeros(2 * size))
    if size == 1 and not found.any():
        raise ValueError(
            f"rollout.samples_per_prompt is 1, so that every advantage is 0: {made.name!r} compares the completions of a prompt; "
            "set it to 2 or more"
        )
    unscored = [getattr(function, "unscored", False) for function in config.rewards.functions]
    teaching_nothing = np.where(unscored, np.nan, np.zeros_like(values))  # all equal, and unscored where that may be
    if config.algorithm.max_resamples and made.keep(replace(rewards, values=teaching_nothing)).all():
        raise ValueError(
            f"max_resamples is {config.algorithm.max_resamples} and nothing reads it: {made.name!r} keeps every group of these "
            "rewards; remove it, or use dapo with dynamic_sampling"
        )
