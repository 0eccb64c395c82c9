"""Keys that are set and could have no effect beside the others: refused, so that no run's configuration says what it did not do.

A seed is none of them: one sets it once and for all, whether something is drawn or not.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple


class Rule(NamedTuple):
    """A key "section.name", when it is read, and what to set for it to be."""

    key: str
    read: Callable[[Any], bool]
    remedy: str


def _optimizer(*names: str) -> Callable[[Any], bool]:
    return lambda config: config.optimizer.name in names


def _kind(name: str) -> Callable[[Any], bool]:
    return lambda config: config.data.kind == name


RULES: Final = (
    Rule("optimizer.betas", _optimizer("adam", "adamw"), "optimizer.name = 'adam' or 'adamw'"),
    Rule("optimizer.epsilon", _optimizer("adam", "adamw"), "optimizer.name = 'adam' or 'adamw'"),
    Rule("optimizer.weight_decay", _optimizer("adamw", "sgd", "muon"), "optimizer.name = 'adamw'"),
    Rule("optimizer.momentum", _optimizer("sgd", "muon"), "optimizer.name = 'sgd' or 'muon'"),
    Rule(
        "optimizer.final_share",
        lambda config: config.optimizer.schedule != "constant",
        "optimizer.schedule = 'linear' or 'cosine'",
    ),
    Rule("data.style", _kind("sums"), "data.kind = 'sums'"),
    Rule("data.sums_seed", _kind("sums"), "data.kind = 'sums'"),
    Rule("data.split", _kind("datasets"), "data.kind = 'datasets'"),
    Rule("rollout.xtc_threshold", lambda config: config.rollout.xtc_probability > 0, "rollout.xtc_probability > 0"),
    Rule(
        "algorithm.sampling_logprobs",
        lambda config: config.algorithm.settings.get("correction") is not None,
        "algorithm.settings.correction = 'tis' or 'mis'",
    ),
    Rule(
        "output.completions_rows",
        lambda config: config.output.completions_every_steps > 0,
        "output.completions_every_steps >= 1",
    ),
    Rule("output.wandb_project", lambda config: config.output.wandb, "output.wandb = true"),
)


SETTINGS: Final = {
    "kl_estimator": "beta",
    "kl_ratio": "beta",
    "kl_in_reward": "beta",
    "correction_level": "correction",
    "correction_low": "correction",
    "correction_high": "correction",
    "overlong_buffer": "overlong_limit",
    "overlong_weight": "overlong_limit",
}
"""Settings of algorithms, and the one without which (0 or none) nothing reads them."""


def settings(chosen: Any) -> list[str]:
    """The same of an algorithm's settings, a dataclass with defaults."""
    usual = type(chosen)()
    said: list[str] = []
    for name, reader in SETTINGS.items():
        value = getattr(chosen, name, None)
        if value != getattr(usual, name, None) and not getattr(chosen, reader, True):
            said.append(f"settings.{name} is {value!r} and nothing reads it; remove it, or set settings.{reader}")
    return said


def sentences(config: Any) -> list[str]:
    """One sentence for each key that differs from its default and is not read under the rest of the configuration."""
    said: list[str] = []
    for rule in RULES:
        section_name, name = rule.key.split(".")
        section = getattr(config, section_name)
        value = getattr(section, name)
        if value != type(section).model_fields[name].default and not rule.read(config):
            said.append(f"{rule.key} is {value!r} and nothing reads it; remove it, or set {rule.remedy}")
    return said
