"""Textbook limits of advantages: honest arithmetic lies within, another formula far outside, and 0/0 has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gates.families.advantages import program, recurrence
from gates_reference.oracle import advantages as oracle
from gates_reference.oracle.gae import gae

TRL: dict[str, Any] = {"scale": "group", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"}


def limits(rewards: np.ndarray, size: int, **choice: Any) -> np.ndarray:
    return program.group_advantages(rewards=rewards, group_size=size, **{**TRL, **choice})["advantages"]


class TestGroupAdvantages:
    """One reward function."""

    @pytest.mark.parametrize("offset", [0.0, 100.0])
    def test_one_pass_deviation_is_no_form(self, offset: float) -> None:
        """sqrt(mean(x²) − mean(x)²) leaves the limit once the rewards have an offset; two passes stay within a third of it."""
        x = (offset + np.random.default_rng(0).normal(0.0, 0.1, (50, 8))).astype(np.float32)
        wanted = oracle.group_advantages(x.reshape(-1), 8, **TRL).reshape(x.shape)
        limit = limits(x.reshape(-1), 8).reshape(x.shape)
        centred = x - x.mean(axis=1, keepdims=True)
        assert np.max(np.abs(centred / (x.std(axis=1, ddof=1, keepdims=True) + 1e-4) - wanted) / limit) < 1 / 3
        variance = np.maximum((x**2).mean(axis=1, keepdims=True) - x.mean(axis=1, keepdims=True) ** 2, 0.0) * (8 / 7)
        one_pass = np.max(np.abs(centred / (np.sqrt(variance) + 1e-4) - wanted) / limit)
        assert (one_pass > 100.0) == (offset > 0.0)

    def test_another_ddof_is_far_away(self) -> None:
        """Of eight rewards ddof 0 for 1 is a factor of 1.069, some 10,000 limits."""
        x = np.random.default_rng(1).normal(size=16)
        rewards = x.astype(np.float32)
        apart = oracle.group_advantages(rewards, 8, **{**TRL, "ddof": 0}) - oracle.group_advantages(rewards, 8, **TRL)
        assert np.max(np.abs(apart) / limits(rewards, 8)) > 1e4

    def test_equal_rewards(self) -> None:
        """With ε the limit is what rounding noise over ε may be; without, 0/0 has none; a group of zeros is exact."""
        rewards = np.array([0.35] * 8 + [0.0] * 8, np.float32)
        assert 1e-4 < limits(rewards, 8)[:8].max() < 1e-1
        assert np.all(limits(rewards, 8)[8:] == 0.0)
        assert np.all(np.isinf(limits(rewards, 8, eps=0.0)[:8]))

    def test_leave_one_out_has_a_wider_limit(self) -> None:
        """It subtracts two products in one of its forms."""
        rewards = np.random.default_rng(2).normal(size=16).astype(np.float32)
        unscaled = {"scale": "none", "ddof": None, "eps": None, "eps_mode": None}
        assert np.all(limits(rewards, 8, **unscaled, baseline="leave-one-out") > limits(rewards, 8, **unscaled))


class TestGae:
    """Recurrences of A and of λ-returns."""

    def test_both_forms_and_nothing_in_masked_slots(self) -> None:
        """A float32 loop over λ-returns stays within; masked slots must be exactly 0."""
        rng = np.random.default_rng(3)
        r, v = (rng.normal(size=(2, 9)).astype(np.float32) for _ in range(2))
        mask = np.ones((2, 9), bool)
        mask[1, 4:6] = False
        limit = recurrence.gae(rewards=r, values=v, gamma=0.99, lam=0.9, mask=mask)["advantages"]
        assert np.all(limit[~mask] == 0.0)
        assert np.all(limit[mask] > 0.0)
        gamma, lam, returned, following = np.float32(0.99), np.float32(0.9), np.float32(0), np.float32(0)
        found = np.zeros(9, np.float32)
        for t in reversed(range(9)):
            returned = r[0, t] + gamma * ((1 - lam) * following + lam * returned)
            found[t], following = returned - v[0, t], v[0, t]
        wanted = gae(r, v, gamma=0.99, lam=0.9, mask=mask)
        assert np.max(np.abs(found - wanted[0]) / limit[0]) < 1.0
