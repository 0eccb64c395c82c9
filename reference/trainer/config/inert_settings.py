"""When a setting of an algorithm is read, and what to do where it is not; `inert` says it."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from reference.trainer.config import inert_rules


class Rule(NamedTuple):
    """A setting's name, when it is read beside the algorithm's others and the configuration, and what to do for it to be."""

    name: str
    read: Callable[[Any, Any], bool]
    remedy: str


def _with(reader: str) -> Callable[[Any, Any], bool]:
    """Another setting is on: neither 0 nor none."""
    return lambda settings, _: bool(getattr(settings, reader))


def _by_group(settings: Any, _: Any) -> bool:
    """Whether the rewards are summed before they are normalised; the other way has no scale, baseline and mode to choose."""
    return bool(settings.advantage == "group")


def _divided(settings: Any, _: Any) -> bool:
    """Whether a standard deviation divides anything."""
    return settings.advantage != "group" or settings.advantage_scale != "none"


def _sampled(_: Any, config: Any) -> bool:
    return inert_rules.sampled(config)


def _corrects(_: Any, config: Any) -> bool:
    """Whether the old log-probs are others than the sampler's that they are corrected against."""
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
    Rule("correction", _sampled, inert_rules.ROLLOUTS),
    Rule(
        "correction",
        _corrects,
        "set algorithm.old_logprobs = 'recompute' or algorithm.sampling_logprobs = 'behaviour': stored log-probs are the "
        "sampler's own",
    ),
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
