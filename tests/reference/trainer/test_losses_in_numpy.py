"""Losses and gradients of presets and variants against their formulas in float64 NumPy, token by token.

A formula is a function of the policy's log-probs x. What it holds constant is computed from `held`, which has the same values, so that
central differences in x give the gradient of the loss with its stops.
"""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from gates_reference.trainer.algorithms import protocol, registry

ROWS, WIDTH, MAX_LENGTH = 6, 7, 9
LENGTHS = np.array([7, 2, 5, 1, 0, 4])
MASK = np.arange(WIDTH) < LENGTHS[:, None]
TOKENS = LENGTHS.sum()
Array = np.ndarray[Any, Any]
Formula = Callable[[Array, Array, Array, Array], float]


def tokens() -> list[tuple[int, int]]:
    """The places (row, slot) of all tokens."""
    return [(i, t) for i in range(ROWS) for t in range(LENGTHS[i])]


def ppo_term(r: float, advantage: float, low: float, high: float, delta: float = np.inf) -> float:
    """PPO's clip with the dual clip."""
    return -min(min(r, delta) * advantage, min(max(r, 1 - low), 1 + high) * advantage)


def cispo(low: float, high: float, divisor: Callable[[int], float]) -> Formula:
    """Return -clip(r, low, high) A log pi under a weight of 1 / divisor(row)."""

    def loss(x: Array, held: Array, old: Array, advantages: Array) -> float:
        r = np.clip(np.exp(held - old), low, high)
        return -sum(r[i, t] * advantages[i] * x[i, t] / divisor(i) for i, t in tokens())

    return loss


def gspo_token_mean(x: Array, held: Array, old: Array, advantages: Array) -> float:
    """The token mean of PPO's clip on the geometric mean of a row's ratios."""
    del held
    means = [np.exp((x - old)[i, : LENGTHS[i]].mean()) if LENGTHS[i] else 1.0 for i in range(ROWS)]
    return sum(ppo_term(means[i], advantages[i], 0.05, 0.05) for i, _ in tokens()) / TOKENS


def dr_grpo_width(x: Array, held: Array, old: Array, advantages: Array) -> float:
    """PPO's clip over B T, T the padded width."""
    del held
    terms = (ppo_term(np.exp(x[i, t] - old[i, t]), advantages[i], 0.2, 0.2) for i, t in tokens())
    return sum(terms) / (ROWS * WIDTH)


CASES: dict[str, tuple[str, dict[str, Any], Formula]] = {
    "cispo-row-mean": ("cispo", {"aggregation": "row-mean"}, cispo(0.0, 1.28, lambda i: ROWS * LENGTHS[i])),
    "gspo-token-mean": ("gspo", {"aggregation": "global", "epsilon_low": 0.05, "epsilon_high": 0.05}, gspo_token_mean),
    "dr_grpo-width": ("dr_grpo", {"aggregation": "width"}, dr_grpo_width),
}


def of_trainer(name: str, settings: dict[str, Any], x: Array, old: Array, advantages: Array) -> tuple[float, Array]:
    """The trainer's loss and gradient of a step in micro-batches of two and four rows."""
    algorithm = registry.create(name, settings)
    totals = protocol.step_totals(
        LENGTHS, np.zeros(ROWS, np.int64), micro_batches=2, max_length=MAX_LENGTH, width=WIDTH
    )
    loss, gradient = 0.0, np.zeros(x.shape)
    for part in (slice(2), slice(2, ROWS)):

        def share(policy: mx.array, part: slice = part) -> mx.array:
            batch = protocol.MicroBatch(
                policy,
                mx.array(MASK[part]),
                mx.array(advantages[part]),
                np.zeros(len(MASK[part]), np.int64),
                old=mx.array(old[part]),
            )
            return algorithm.loss(batch, totals).value

        value, slope = mx.value_and_grad(share)(mx.array(x[part]))
        loss += float(value)
        gradient[part] = np.array(slope)
    return loss, gradient


@pytest.mark.parametrize(("name", "settings", "formula"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradient_are_the_formulas(seed: int, name: str, settings: dict[str, Any], formula: Formula) -> None:
    """Both agree to float32's precision on ratios from 0.3 to 4, where every bound acts on some token."""
    rng = np.random.default_rng(seed)
    x = -rng.gamma(2.0, 0.7, MASK.shape).astype(np.float32)
    old = (x - rng.normal(0, 0.6, MASK.shape)).astype(np.float32)
    advantages = rng.normal(size=ROWS).astype(np.float32)
    loss, gradient = of_trainer(name, settings, x, old, advantages)
    exact, held = x.astype(np.float64), x.astype(np.float64)
    before, gains = old.astype(np.float64), advantages.astype(np.float64)
    assert loss == pytest.approx(formula(exact, held, before, gains), rel=3e-6, abs=1e-6)
    slopes, h = np.zeros(x.shape), 1e-6
    for place in tokens():
        high, low = exact.copy(), exact.copy()
        high[place] += h
        low[place] -= h
        slopes[place] = (formula(high, held, before, gains) - formula(low, held, before, gains)) / (2 * h)
    assert gradient == pytest.approx(slopes, rel=1e-5, abs=1e-7)


def test_width_must_be_given_for_its_aggregation() -> None:
    """Without `StepTotals.width` the message names it."""
    totals = protocol.step_totals(np.array([2]), np.array([0]), micro_batches=1, max_length=2)
    x = mx.zeros((1, 2))
    batch = protocol.MicroBatch(x, x == 0, mx.ones(1), np.zeros(1, np.int64))
    with pytest.raises(ValueError, match=r"StepTotals\.width is None"):
        registry.create("dr_grpo", {"aggregation": "width"}).loss(batch, totals)


class TestBatchBaseline:
    """advantage_baseline 'batch': the mean of all rewards of the batch."""

    REWARDS = protocol.Rewards(np.array([[0.0], [4.0], [5.0], [7.0]]), np.ones(1), 2, np.ones(4, np.int64))

    def test_reinforce_subtracts_the_mean_of_the_batch(self) -> None:
        """0, 4, 5 and 7 have mean 4."""
        assert registry.create("reinforce", {}).advantages(self.REWARDS).tolist() == [-4, 0, 1, 3]

    def test_reinforce_pp_divides_by_the_deviation_of_the_batch(self) -> None:
        """The squares of -4, 0, 1 and 3 add up to 26, over 3 degrees of freedom."""
        advantages = registry.create("reinforce++", {}).advantages(self.REWARDS)
        assert advantages == pytest.approx(np.array([-4, 0, 1, 3]) / (np.sqrt(26 / 3) + 1e-4), rel=1e-6)

    def test_reinforce_pp_lowers_rewards_by_the_kl(self) -> None:
        """With beta 0.5 and KLs of 0, 0, 2 and 6 the rewards are 0, 4, 4 and 4, with mean 3 and squares of 12."""
        algorithm = registry.create("reinforce++", {"beta": 0.5})
        advantages = algorithm.advantages(self.REWARDS, old_kl=np.array([0.0, 0, 2, 6]))
        assert algorithm.kl_in_reward
        assert advantages == pytest.approx(np.array([-3, 1, 1, 1]) / (2 + 1e-4), rel=1e-6)

    def test_groups_of_one_have_advantages(self) -> None:
        """One completion of each prompt is compared with those of the others."""
        single = protocol.Rewards(np.array([[0.0], [4.0]]), np.ones(1), 1, np.ones(2, np.int64))
        assert registry.create("reinforce", {}).advantages(single).tolist() == [-2, 2]
