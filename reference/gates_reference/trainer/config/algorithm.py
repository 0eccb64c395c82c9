"""Create the algorithm of a configuration, and check that it fits the group size, the data and the reward functions.

It is apart from `config.read`, so that the engine, which reads configurations, loads no algorithm.
"""

from dataclasses import replace

import numpy as np

from gates_reference.trainer.algorithms import protocol, registry
from gates_reference.trainer.config import unused
from gates_reference.trainer.config.errors import ConfigurationError
from gates_reference.trainer.config.read import Config


def create(config: Config, verb: unused.Verb = "train") -> protocol.Algorithm:
    """Create the algorithm of a configuration by its name; only `train` needs it to fit the rest of the configuration.

    Raises:
        ConfigurationError: the name or a setting is unknown or impossible, or does not fit the group size or the reward functions.
    """
    try:
        algorithm = registry.create(config.algorithm.name, config.algorithm.settings)
        if verb == "train":
            _try(algorithm, config)
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(f"[algorithm]: {error}") from None
    if verb == "train" and (sentences := unused.settings(getattr(algorithm, "settings", None), config)):
        raise ConfigurationError(f"[algorithm]: {'; '.join(sentences)}")
    return algorithm


def _try(algorithm: protocol.Algorithm, config: Config) -> None:
    """Compute advantages of invented rewards in the configuration's shape, so that a misfit is reported before the run."""
    size = config.rollout.samples_per_prompt
    names = ["chosen"] if config.data.offline else [function.name for function in config.rewards.functions]
    values = np.tile(np.arange(2.0 * size)[:, None], (1, len(names)))
    rewards = protocol.Rewards(
        values=values,
        weights=np.ones(len(names)),
        group_size=size,
        lengths=np.ones(2 * size, np.int64),
        accuracy=names.index("accuracy") if "accuracy" in names else None,
    )
    algorithm.keep(rewards)
    advantages = algorithm.advantages(rewards, old_kl=np.zeros(2 * size))
    if size == 1 and not advantages.any():
        raise ValueError(
            f"rollout.samples_per_prompt is 1, so that every advantage is 0: {algorithm.name!r} compares the completions of a "
            "prompt; set it to 2 or more"
        )
    unscored = [getattr(function, "unscored", False) for function in config.rewards.functions]
    equal = np.where(unscored, np.nan, np.zeros_like(values))  # unscored where that is allowed
    if config.algorithm.max_resamples and algorithm.keep(replace(rewards, values=equal)).all():
        raise ValueError(
            f"max_resamples is {config.algorithm.max_resamples} and nothing reads it: {algorithm.name!r} keeps every group of "
            "these rewards; remove it, or use dapo with dynamic_sampling"
        )
