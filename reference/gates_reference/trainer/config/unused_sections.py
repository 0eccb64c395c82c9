"""Rules for keys of the sections: when a key is used, and what to change otherwise."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple


class Rule(NamedTuple):
    """A key "section.name", the condition under which it is used, and how to meet that condition."""

    key: str
    used: Callable[[Any], bool]
    remedy: str


def _optimizer(*names: str) -> Callable[[Any], bool]:
    return lambda config: config.optimizer.name in names


def _kind(name: str) -> Callable[[Any], bool]:
    return lambda config: config.data.kind == name


def _fresh(config: Any) -> bool:
    """Return whether the adapters start from random values; saved adapters replace all of them."""
    return config.model.adapter_path is None


def sampled(config: Any) -> bool:
    """Return whether completions are sampled; pairs that come with the data are neither sampled nor rewarded."""
    return not config.data.offline


def _warm(config: Any) -> bool:
    """Return whether tokens are drawn at random; at temperature 0 only the repetition penalty can change the token."""
    return bool(config.rollout.temperature > 0)


def filtered(rollout: Any) -> bool:
    """Return whether a filter or the repetition penalty changes the distribution that tokens are drawn from."""
    return bool(
        rollout.top_p < 1
        or rollout.top_k > 0
        or rollout.min_p > 0
        or rollout.xtc_probability > 0
        or rollout.repetition_penalty != 1
    )


def _ordered(config: Any) -> bool:
    """Return whether the order of the filters can matter; the two orders differ in the place of the temperature and of top-k.

    Top-k keeps the same tokens at every temperature. Its order relative to min-p does not matter either: both keep the most probable
    tokens, and neither depends on the remaining mass, as top-p and XTC do.
    """
    rollout = config.rollout
    by_mass = rollout.top_p < 1 or rollout.xtc_probability > 0
    return bool((rollout.temperature != 1 and (by_mass or rollout.min_p > 0)) or (by_mass and rollout.top_k > 0))


def _behaves_otherwise(config: Any) -> bool:
    """Return whether the log-probs of the draws differ from the unfiltered ones at the scoring temperature."""
    return filtered(config.rollout) or config.rollout.temperature != config.scoring_temperature()


ROLLOUTS: Final = "train on rollouts: remove data.chosen_column and data.rejected_column"
WARMER: Final = "set rollout.temperature > 0"
ADAM: Final = "set optimizer.name = 'adam' or 'adamw'"

RULES: Final = (
    Rule(
        "adapter.seed",
        lambda config: _fresh(config) or config.adapter.dropout > 0,
        "remove model.adapter_path, or set adapter.dropout",
    ),
    Rule("adapter.b_std", _fresh, "remove model.adapter_path"),
    Rule("optimizer.betas", _optimizer("adam", "adamw"), ADAM),
    Rule("optimizer.epsilon", _optimizer("adam", "adamw"), ADAM),
    Rule("optimizer.weight_decay", _optimizer("adamw", "sgd", "muon"), "set optimizer.name = 'adamw'"),
    Rule("optimizer.momentum", _optimizer("sgd", "muon"), "set optimizer.name = 'sgd' or 'muon'"),
    Rule(
        "optimizer.final_share",
        lambda config: config.optimizer.schedule != "constant",
        "set optimizer.schedule = 'linear' or 'cosine'",
    ),
    Rule("data.style", _kind("sums"), "set data.kind = 'sums'"),
    Rule("data.sums_seed", _kind("sums"), "set data.kind = 'sums'"),
    Rule("data.split", _kind("datasets"), "set data.kind = 'datasets'"),
    Rule("rewards.functions", sampled, ROLLOUTS),
    Rule("algorithm.max_resamples", sampled, ROLLOUTS),
    Rule(
        "algorithm.sampling_logprobs",
        lambda config: config.algorithm.settings.get("correction") is not None,
        "set algorithm.settings.correction = 'tis' or 'mis'",
    ),
    Rule(
        "algorithm.sampling_logprobs",
        _behaves_otherwise,
        "set a filter such as rollout.top_p: without one both log-probs are the same",
    ),
    Rule(
        "output.completions_rows",
        lambda config: config.output.completions_every_steps > 0,
        "set output.completions_every_steps >= 1",
    ),
    Rule(
        "output.keep_checkpoints",
        lambda config: config.output.checkpoint_every_steps > 0,
        "set output.checkpoint_every_steps >= 1",
    ),
    Rule("output.dequantize", lambda config: config.output.fused, "set output.fused = true"),
    Rule("output.wandb_project", lambda config: config.output.wandb, "set output.wandb = true"),
)
"""Rules for keys that training uses; the other commands accept any configuration of a run."""

PAIRS: Final = (
    *(
        Rule(f"rollout.{name}", sampled, ROLLOUTS)
        for name in (
            *("top_p", "top_k", "min_p", "xtc_probability", "xtc_threshold", "repetition_penalty"),
            *("order", "seed", "path", "stop_ids", "kv_bits"),
        )
    ),
    Rule(
        "rollout.temperature",
        lambda config: sampled(config) or config.algorithm.scoring_temperature is None,
        "remove algorithm.scoring_temperature: at one of them the given completions are scored",
    ),
    Rule(
        "rollout.temperature",
        lambda config: sampled(config) or _warm(config),
        "set it above 0: the given completions are scored at 1 where it is 0",
    ),
)
"""Rules for keys of [rollout] that are unused if pairs come with the data; `gates trainer generate` samples all the same."""

DRAWS: Final = (
    *(
        Rule(f"rollout.{name}", _warm, WARMER)
        for name in ("top_p", "top_k", "min_p", "xtc_probability", "xtc_threshold", "order", "seed")
    ),
    Rule("rollout.xtc_threshold", lambda config: config.rollout.xtc_probability > 0, "set rollout.xtc_probability > 0"),
    Rule(
        "rollout.xtc_probability",
        lambda config: config.rollout.xtc_threshold < 0.5,
        "set rollout.xtc_threshold < 0.5: XTC acts where two tokens have more than that",
    ),
    Rule("rollout.order", _ordered, "set two filters whose order matters, such as rollout.top_k and rollout.top_p"),
)
"""Rules for keys of [rollout] that can be without effect beside the other keys of [rollout]."""
