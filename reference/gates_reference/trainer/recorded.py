"""The settings of a run in the words of a recorded step, the format of `gates judge` (docs/recorded-steps.md)."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from gates_reference.trainer.algorithms import protocol
from gates_reference.trainer.algorithms.objective import PolicyGradient
from gates_reference.trainer.config.read import Config

VERSION: Final = "1"
ADVANTAGES: Final = {
    "scale": "advantage_scale",
    "ddof": "advantage_ddof",
    "eps": "advantage_epsilon",
    "eps_mode": "advantage_epsilon_mode",
    "baseline": "advantage_baseline",
}
LOSS: Final = {
    "epsilon_low": "epsilon_low",
    "epsilon_high": "epsilon_high",
    "delta": "delta",
    "cispo_bound": "bound",
    "sapo_temperature_positive": "temperature_positive",
    "sapo_temperature_negative": "temperature_negative",
    "vespo_k_positive": "k_positive",
    "vespo_lambda_positive": "lambda_positive",
    "vespo_k_negative": "k_negative",
    "vespo_lambda_negative": "lambda_negative",
}
KL: Final = ("beta", "kl_estimator", "kl_ratio")
CORRECTION: Final = ("correction", "correction_level", "correction_low", "correction_high")
TOKEN_MEANS: Final = ("global", "group", "trl")


def of_advantages(algorithm: protocol.Algorithm) -> dict[str, str]:
    """Return the settings of the advantages; none where totals alone do not decide them."""
    if not isinstance(algorithm, PolicyGradient):
        return {}
    settings = algorithm.settings
    if algorithm.kl_in_reward or settings.advantage != "group":
        return {}
    words = {word: getattr(settings, name) for word, name in ADVANTAGES.items()}
    if settings.advantage_scale == "none":
        words = {word: words[word] for word in ("scale", "baseline")}
    return _text(words)


def of_loss(
    algorithm: protocol.Algorithm, config: Config, micro_batches: Sequence[int], totals: protocol.StepTotals
) -> dict[str, str]:
    """Return the settings of the loss of a step with micro-batches of so many rows; none for losses without such words."""
    if not isinstance(algorithm, PolicyGradient) or algorithm.entropy_share < 1:
        return {}
    settings = asdict(algorithm.settings)
    words: dict[str, Any] = {word: settings[name] for word, name in LOSS.items() if name in settings}
    words |= {"algorithm": algorithm.name, **_mean(settings["aggregation"], micro_batches, totals, config)}
    if settings["beta"] and not algorithm.kl_in_reward:
        words |= {word: settings[word] for word in KL}
    if settings["correction"] is not None:
        words |= {word: settings[word] for word in CORRECTION}
    if settings["entropy_bonus"]:
        words["entropy_bonus"] = settings["entropy_bonus"]
    return _text(words)


def _mean(
    aggregation: str, micro_batches: Sequence[int], totals: protocol.StepTotals, config: Config
) -> dict[str, Any]:
    if aggregation in TOKEN_MEANS:
        window = {"tokens_in_step": totals.window_tokens} if aggregation == "trl" else {}
        return {"aggregation": "token-mean", "dapo_denominator": aggregation, **window}
    constant = {"max_length": config.rollout.max_tokens} if aggregation == "constant" else {}
    parts = {"micro_batches": ",".join(map(str, micro_batches))} if aggregation == "micro-batch" else {}
    return {"aggregation": aggregation, **constant, **parts}


def _text(words: dict[str, Any]) -> dict[str, str]:
    return {word: str(value) for word, value in words.items() if value is not None}
