"""When a key of the sections is read, and what to do where it is not; `inert` says it."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple


class Rule(NamedTuple):
    """A key "section.name", when it is read, and what to do for it to be."""

    key: str
    read: Callable[[Any], bool]
    remedy: str


def _optimizer(*names: str) -> Callable[[Any], bool]:
    return lambda config: config.optimizer.name in names


def _kind(name: str) -> Callable[[Any], bool]:
    return lambda config: config.data.kind == name


def _fresh(config: Any) -> bool:
    """Whether the adapters start from random numbers: saved ones replace them all."""
    return config.model.adapter_path is None


def sampled(config: Any) -> bool:
    """Whether training and evaluation draw completions; pairs that come with the data are neither sampled nor rewarded."""
    return not config.data.offline


def _warm(config: Any) -> bool:
    """Whether tokens are drawn; at temperature 0 the likeliest one is taken, which no filter but the penalty can change."""
    return bool(config.rollout.temperature > 0)


def filtered(rollout: Any) -> bool:
    """Whether tokens are drawn from another distribution than the tempered model's."""
    return bool(
        rollout.top_p < 1
        or rollout.top_k > 0
        or rollout.min_p > 0
        or rollout.xtc_probability > 0
        or rollout.repetition_penalty != 1
    )


def _ordered(config: Any) -> bool:
    """Whether the order of the filters can matter: what it moves is the temperature, and top-k, against the others.

    Top-k keeps the same tokens at every temperature. Against min-p it may come first or last: both keep a set of heaviest
    tokens and neither asks for the mass, as top-p and XTC do.
    """
    rollout = config.rollout
    by_mass = rollout.top_p < 1 or rollout.xtc_probability > 0
    return bool((rollout.temperature != 1 and (by_mass or rollout.min_p > 0)) or (by_mass and rollout.top_k > 0))


def _behaves_otherwise(config: Any) -> bool:
    """Whether the log-probs of the draws differ from the sampler's unfiltered ones at the temperature of the loss."""
    return filtered(config.rollout) or config.rollout.temperature != config.scoring_temperature()


ROLLOUTS: Final = "train on rollouts: remove data.chosen_column and data.rejected_column"
WARMER: Final = "set rollout.temperature > 0"
ADAM: Final = "set optimizer.name = 'adam' or 'adamw'"

RULES: Final = (
    Rule("adapter.seed", _fresh, "remove model.adapter_path"),
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
    Rule("output.wandb_project", lambda config: config.output.wandb, "set output.wandb = true"),
)
"""What training reads; the other commands take a configuration that a run could have."""

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
"""Keys of [rollout] that nothing reads where pairs come with the data; `gates trainer generate` draws completions all the same."""

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
"""Keys of [rollout] that cannot change a draw beside the others."""
