"""The limits of policy losses: small, exact where nothing rounds, wide at a bound, and none where the dtype overflows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gates.families.loss import calls, cases, textbook
from gates_reference.algorithms import ALGORITHMS
from gates_reference.oracle import losses

pytestmark = pytest.mark.fast


def one_token(log_ratio: float, advantage: float = 1.0, **changes: Any) -> dict[str, Any]:
    """Return GRPO on one token, and a second slot that is masked."""
    policy = np.array([[-1.0, -2.0]], np.float32)
    return {
        **calls.WHOLE,
        **ALGORITHMS["grpo"].constants,
        "policy": policy,
        "old": (policy - np.float32(log_ratio)).astype(np.float32),
        "reference": None,
        "advantages": np.array([advantage], np.float32),
        "mask": np.array([[True, False]]),
        "algorithm": "grpo",
        "lengths": None,
        "weights": None,
        **changes,
    }


class TestPolicyLoss:
    """Limits by hand, and against the definition."""

    def test_a_masked_slot_has_no_room(self) -> None:
        """Its gradient is exactly 0; the token's may be off by a few ulp."""
        gradient = textbook.policy_loss(**one_token(0.1))["gradient"]
        assert gradient[0, 1] == 0.0
        assert 1e-7 < gradient[0, 0] < 1e-5

    def test_on_policy_a_ratio_is_exact(self) -> None:
        """Of exp(0) · 1 / 1 nothing is left but the divisions."""
        limits = textbook.policy_loss(**one_token(0.0, old=None))
        assert limits["loss"] <= 8 * 2.0**-24

    def test_at_a_bound_either_gradient_is_right(self) -> None:
        """A ratio within its own error of 1.2 may count as clipped or not; farther off it may not."""
        at, off = (textbook.policy_loss(**one_token(x))["gradient"][0, 0] for x in (np.log(1.2), np.log(1.21)))
        assert at >= 1.2
        assert off < 1e-5

    def test_no_claim_where_the_ratio_overflows(self) -> None:
        """exp(95) is no float32; a clip that certainly discards it leaves a claim about the loss."""
        assert np.isinf(textbook.policy_loss(**one_token(95.0, -1.0))["loss"])
        assert np.isfinite(textbook.policy_loss(**one_token(95.0, 1.0))["loss"])

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_limits_are_near_the_roundings(self, algorithm: str) -> None:
        """Nowhere above 2e-5 of the sum of |terms|: a hundredth of any mistake that matters.

        A row's product, whose log-probs may be summed before they are subtracted, has five times as much, and twice that
        under a taper, which multiplies the logarithm by k and λ.
        """
        row = ALGORITHMS[algorithm]
        room = 2e-5 * (5.0 if row.ratio_level == "seq_sum" else 1.0) * (2.0 if row.bound == "taper" else 1.0)
        for case in cases.cases_of(algorithm):
            inputs: Any = case.make(np.random.default_rng(1))
            wanted = losses.policy_loss(**calls.rounded(inputs))
            limits = textbook.policy_loss(**inputs)
            assert limits["loss"] <= room * wanted.loss_scale, case.name
            sure = ~wanted.near_branch
            assert np.median(limits["gradient"][sure]) <= room * wanted.gradient_scale.max(), case.name
            assert np.all(limits["gradient"][~calls.valid(inputs)] == 0.0), case.name
