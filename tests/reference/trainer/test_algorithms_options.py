"""No setting is inert: for every algorithm, every key that is changed changes what the algorithm computes."""

from dataclasses import fields, replace
from typing import Any, get_args

import mlx.core as mx
import numpy as np
import pytest

from gates_reference.trainer.algorithms import entropy, options, protocol, ratio, registry

ROWS, WIDTH, GROUP = 8, 6, 4
MASK = np.arange(WIDTH) < np.array([6, 2, 5, 3, 1, 6, 4, 4])[:, None]
CORRECTED = {"correction": "tis", "correction_level": "seq_sum", "correction_high": 1.1}
SCALED = {"advantage_scale": "group", "advantage_baseline": "mean"}
CHANGES: dict[str, tuple[dict[str, Any], Any]] = {  # key: what must hold for it to be read, and another value
    "aggregation": ({"aggregation": "row-mean"}, "constant"),
    "beta": ({}, 0.3),
    "kl_estimator": ({"beta": 0.3, "kl_estimator": "k3"}, "k2"),
    "kl_ratio": ({"beta": 0.3}, "sequence"),
    "kl_in_reward": ({"beta": 0.3, "kl_estimator": "k1"}, True),
    "advantage": (SCALED, "normalise-then-sum"),
    "advantage_scale": ({"advantage_scale": "none"}, "batch"),
    "advantage_ddof": (SCALED, 0),
    "advantage_epsilon": (SCALED, 0.5),
    "advantage_epsilon_mode": (SCALED | {"advantage_epsilon": 0.1, "advantage_epsilon_mode": "add"}, "inside"),
    "advantage_baseline": ({"advantage_baseline": "mean", "advantage_scale": "group"}, "leave-one-out"),
    "correction": ({}, "tis"),
    "correction_level": (CORRECTED, "token"),
    "correction_low": (CORRECTED, 1.05),
    "correction_high": (CORRECTED, 1.5),
    "entropy_share": ({}, 0.5),
    "entropy_bonus": ({}, 0.1),
    "epsilon_low": ({"epsilon_low": 1e-3}, 0.05),
    "epsilon_high": ({"epsilon_high": 1e-3}, 0.05),
    "delta": ({"advantage_baseline": "mean"}, 1.5),
    "k_positive": ({}, 1.0),
    "lambda_positive": ({}, 1.0),
    "k_negative": ({}, 1.0),
    "lambda_negative": ({}, 1.0),
    "bound": ({"epsilon_high": 0.9}, "absolute"),
    "temperature_positive": ({}, 2.0),
    "temperature_negative": ({}, 2.0),
    "dynamic_sampling": ({"dynamic_sampling": "total"}, "accuracy"),
    "overlong_limit": ({}, 5),
    "overlong_buffer": ({"overlong_limit": 6}, 4),
    "overlong_weight": ({"overlong_limit": 5, "overlong_buffer": 3}, 0.5),
    "loss": ({}, "hinge"),
    "label_smoothing": ({}, 0.2),
    "ipo_lengths": ({"loss": "ipo"}, "mean"),
    "reference_free": ({}, True),
}
FIXED = {(name, key) for name in ("rloo", "reinforce++") for key in ("kl_in_reward", "kl_estimator", "kl_ratio")}
"""Their KL is the summed k1 in the reward; other values are refused."""


def outcome(name: str, settings: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """All that an algorithm says of one batch: advantages, kept groups, loss, gradients."""
    algorithm = registry.create(name, settings)
    rng = np.random.default_rng(11)
    policy = -rng.gamma(2.0, 0.6, MASK.shape).astype(np.float32)
    old, reference, sampling = (policy + rng.normal(0, s, MASK.shape).astype(np.float32) for s in (0.4, 0.5, 0.1))
    heights = rng.gamma(1.0, 1.0, MASK.shape).astype(np.float32)
    size = 2 if name in {"dpo", "online_dpo"} else GROUP
    values = np.stack([np.array([1, 1, 1, 1, 0, 1, 0, 1]), np.array([0.1, 0.4, 0, 0, 0.2, 0.1, 0.3, 0])], axis=1)
    rewards = protocol.Rewards(values.astype(np.float64), np.ones(2), size, MASK.sum(axis=1), accuracy=0)
    penalty = ratio.kl_in_reward(old, reference, MASK)
    gains = algorithm.advantages(rewards, old_kl=penalty)
    found = entropy.threshold(heights, MASK, settings.get("entropy_share", 1.0))
    groups = np.arange(ROWS) // size
    counts = protocol.step_totals(MASK.sum(axis=1), groups, micro_batches=1, max_length=9)
    whole = replace(counts, window_tokens=30.0, width=WIDTH, entropy_threshold=found.least, entropy_tokens=found.tokens)

    def loss(x: mx.array, h: mx.array) -> mx.array:
        others = (mx.array(y) for y in (old, reference, sampling))
        return algorithm.loss(protocol.MicroBatch(x, mx.array(MASK), mx.array(gains), groups, *others, h), whole).value

    value, slopes = mx.value_and_grad(loss, argnums=(0, 1))(mx.array(policy), mx.array(heights))
    return [gains, algorithm.keep(rewards), np.array(value), *(np.array(x) for x in slopes)]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (name, field.name)
        for name, (_, kind) in registry.ALGORITHMS.items()
        for field in fields(kind)
        if field.name != "mask_truncated_completions"  # the step masks them: test_loop_updates
    ],
    ids=lambda value: value,
)
def test_every_key_has_an_effect(name: str, key: str) -> None:
    """Another value gives another loss, gradient, advantage or filter; one that cannot be read is refused."""
    known = {field.name for field in fields(registry.settings_of(name))}
    context, other = CHANGES[key]
    base = {name: value for name, value in context.items() if name in known}
    if key == "correction":
        base["correction_level"] = "seq_sum"
    if key == "delta" and name in {"gspo", "gspo-token", "luspo"}:
        other = 1.01  # their ratio is a mean
    by_row = getattr(registry.ALGORITHMS[name][0], "by_row", False)
    if (name, key) in FIXED or (key == "correction_level" and by_row):
        with pytest.raises(ValueError, match="must be"):
            registry.create(name, {**base, "beta": 0.3, key: False if key == "kl_in_reward" else other})
        return
    before, after = outcome(name, base), outcome(name, {**base, key: other})
    assert any(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(np.isfinite(x).all() for x in after)


@pytest.mark.parametrize("aggregation", get_args(options.Aggregation))
def test_every_aggregation_is_its_own(aggregation: str) -> None:
    """On one ragged batch no two aggregations give the same loss."""
    others = {*get_args(options.Aggregation)} - {aggregation}
    here = float(outcome("grpo", {"aggregation": aggregation})[2])
    same = [other for other in others if abs(float(outcome("grpo", {"aggregation": other})[2]) - here) < 1e-6]
    assert same == (["global"] if aggregation == "micro-batch" else ["micro-batch"] if aggregation == "global" else [])
