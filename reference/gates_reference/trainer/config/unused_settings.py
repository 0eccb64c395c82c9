"""Rules for the settings of an algorithm: when a setting is used, and what to change otherwise."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from gates_reference.trainer.config import unused_sections


class Rule(NamedTuple):
    """A setting, the condition on the other settings and the configuration under which it is used, and how to meet it."""

    name: str
    used: Callable[[Any, Any], bool]
    remedy: str


def _with(reader: str) -> Callable[[Any, Any], bool]:
    """Return a condition: another setting is neither 0 nor None."""
    return lambda settings, _: bool(getattr(settings, reader))


def _by_group(settings: Any, _: Any) -> bool:
    """Return whether the rewards are summed before they are normalised; only then are scale, baseline and mode used."""
    return bool(settings.advantage == "group")


def _divided(settings: Any, _: Any) -> bool:
    """Return whether advantages are divided by a standard deviation."""
    return settings.advantage != "group" or settings.advantage_scale != "none"


def _sampled(_: Any, config: Any) -> bool:
    return unused_sections.sampled(config)


def _corrects(_: Any, config: Any) -> bool:
    """Return whether the old log-probs differ from the sampler's log-probs of the correction."""
    algorithm = config.algorithm
    return algorithm.old_logprobs == "recompute" or algorithm.sampling_logprobs == "behaviour"


GROUP: Final = "set settings.advantage = 'group'"
SCALE: Final = "set settings.advantage_scale = 'group' or 'batch'"
RULES: Final = (
    Rule("kl_estimator", _with("beta"), "set settings.beta"),
    Rule("kl_ratio", _with("beta"), "set settings.beta"),
    Rule("kl_in_reward", _with("beta"), "set settings.beta"),
    Rule("correction_level", _with("correction"), "set settings.correction"),
    Rule("correction_low", _with("correction"), "set settings.correction"),
    Rule("correction_high", _with("correction"), "set settings.correction"),
    Rule("correction", _sampled, unused_sections.ROLLOUTS),
    Rule(
        "correction",
        _corrects,
        "set algorithm.old_logprobs = 'recompute' or algorithm.sampling_logprobs = 'behaviour': stored log-probs are the "
        "sampler's own",
    ),
    Rule("mask_truncated_completions", _sampled, unused_sections.ROLLOUTS),
    Rule("advantage_scale", _by_group, GROUP),
    Rule("advantage_baseline", _by_group, GROUP),
    Rule("advantage_epsilon_mode", _by_group, GROUP),
    Rule("advantage_ddof", _divided, SCALE),
    Rule("advantage_epsilon", _divided, SCALE),
    Rule("advantage_epsilon_mode", _divided, SCALE),
    Rule("advantage_epsilon_mode", _with("advantage_epsilon"), "set settings.advantage_epsilon > 0"),
    Rule("overlong_limit", _with("overlong_weight"), "set settings.overlong_weight > 0"),
    Rule("overlong_buffer", _with("overlong_limit"), "set settings.overlong_limit"),
    Rule("overlong_weight", _with("overlong_limit"), "set settings.overlong_limit"),
)
