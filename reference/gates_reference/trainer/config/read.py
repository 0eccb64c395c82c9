"""Read a configuration from TOML and overrides, and validate it as a whole before any model is loaded."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from pydantic import Field, ValidationError, ValidationInfo, model_validator

from gates_reference.trainer.config import errors, functions, sections, unused
from gates_reference.trainer.config.errors import ConfigurationError

QUANTISED: Final = ("auto", "cached", "prefix")
"""Rollout paths that can store keys and values in 8 or 4 bits."""


class Config(sections.Section):
    """A whole configuration."""

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
        """Check what every command needs."""
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
        """Check what only training needs."""
        if _use(info).verb != "train":
            return self
        if self.loop.minibatches > self.loop.prompts_per_step:
            raise ValueError(
                f"loop.minibatches is {self.loop.minibatches}, must be at most loop.prompts_per_step = "
                f"{self.loop.prompts_per_step}: a prompt's completions stay together"
            )
        if self.loop.evaluate_every_steps and not self.data.validation_rows:
            raise ValueError("loop.evaluate_every_steps needs data.validation_rows >= 1")
        if self.rollout.temperature == 0 and self.rollout.samples_per_prompt > 1 and not self.data.offline:
            raise ValueError(
                f"rollout.temperature is 0 and rollout.samples_per_prompt {self.rollout.samples_per_prompt}: the completions of a prompt "
                "would all be the same, and nothing can be learned from their comparison; set rollout.temperature > 0"
            )
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
        """Return whether the sampler records its unfiltered log-probs at the scoring temperature."""
        return self.data.offline or self.scoring_temperature() in {1.0, self.rollout.temperature}

    def _stored(self) -> None:
        """Check that the sampler's log-probs can be the old ones: recorded, exact, and at the scoring temperature."""
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
    def _nothing_unused(self, info: ValidationInfo) -> Self:
        if sentences := unused.sentences(self, _use(info)):
            raise ValueError("\n".join(sentences))
        return self

    def scoring_temperature(self) -> float:
        """Return the temperature of the log-probs in the loss."""
        return self.algorithm.scoring_temperature or self.rollout.temperature or 1.0


def _use(info: ValidationInfo) -> unused.Use:
    used: unused.Use = (info.context or {}).get("use", unused.TRAIN)
    return used


def _value(text: str) -> Any:
    """Parse a TOML value; anything else is a string."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def override(raw: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Set every "section.key=value" in the tables; a path of dots goes through tables and list items (by number).

    Raises:
        ConfigurationError: a setting has no "=", or its path goes through something that is not a table or list.
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


def validate(raw: Mapping[str, Any], use: unused.Use = unused.TRAIN) -> Config:
    """Validate parsed tables, for training or for another `use`.

    Raises:
        ConfigurationError: with every mistake, one line each.
    """
    try:
        return Config.model_validate(_tuples(raw), context={"use": use})
    except ValidationError as error:
        raise ConfigurationError(errors.sentences(error, Config)) from None


def _tuples(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Convert lists to tuples where the types need them: TOML has lists only."""
    tables = dict(raw)
    optimizer = tables.get("optimizer")
    if isinstance(optimizer, Mapping) and isinstance(optimizer.get("betas"), list):
        tables["optimizer"] = {**optimizer, "betas": tuple(optimizer["betas"])}
    return tables


def reader(verb: unused.Verb, settings: Sequence[str]) -> unused.Use:
    """Return the use of a configuration by a command with these overrides, each "section.key=value"."""
    return unused.Use(verb, frozenset(setting.partition("=")[0].strip() for setting in settings))


def read(path: Path, settings: Sequence[str] = (), verb: unused.Verb = "train") -> Config:
    """Read the configuration of a TOML file with overrides, for a command.

    Raises:
        ConfigurationError: the file cannot be read, is not TOML, or is not a valid configuration.
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
