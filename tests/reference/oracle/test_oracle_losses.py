"""Policy losses equal a literal transcription of the papers, and their gradients its complex-step derivative."""

import math
from typing import Any

import numpy as np
import pytest
from literal import (
    BY_ROW,
    DELTA,
    HIGH,
    IN_REWARD,
    LOW,
    MASK,
    NAN,
    VARIANTS,
    batch,
    combinations,
    complex_step,
    literal,
    options,
)

from gates_reference.oracle.losses import PolicyLoss, policy_loss


def run(given: dict[str, Any], **change: Any) -> PolicyLoss:
    """The oracle on one combination."""
    return policy_loss(**given | change)


class TestEveryCombination:
    """Algorithm x clip x KL against the literal definition."""

    @pytest.mark.parametrize(("variant", "kl", "delta"), combinations())
    def test_loss_and_gradient(self, variant: str, kl: str, delta: float | None) -> None:
        """The loss agrees to 1e-14 and the gradient to 1e-13 of its largest element, and masked slots are exactly 0."""
        given = options(variant, kl, delta)
        got = run(given)
        assert got.loss == pytest.approx(literal(given["policy"], given).real, rel=1e-13)
        want = complex_step(given)
        np.testing.assert_allclose(got.gradient, want, rtol=0, atol=1e-13 * np.abs(want).max())
        assert not np.any(got.gradient[~MASK])
        assert not np.any(got.gradient_scale[~MASK])
        assert np.all(got.gradient_scale >= np.abs(got.gradient) * (1 - 1e-15))
        assert got.loss_scale >= abs(got.loss) * (1 - 1e-15)
        assert not np.any(got.near_branch)
        np.testing.assert_array_equal(got.gradient_other, got.gradient)

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_on_policy(self, variant: str) -> None:
        """Without old log-probs r is 1 in value and alive in the gradient."""
        given = options(variant, "no KL", None)
        got = run(given, old=None)
        given["old"] = given["policy"]
        assert got.loss == run(given).loss == pytest.approx(literal(given["policy"], given).real, rel=1e-14)
        want = complex_step(given)
        assert np.all(np.abs(want[MASK]) > 0)
        np.testing.assert_allclose(got.gradient, want, rtol=0, atol=1e-13 * np.abs(want).max())

    @pytest.mark.parametrize("variant", VARIANTS)
    @pytest.mark.parametrize("per_token", [False, True])
    def test_off_policy_weights(self, variant: str, per_token: bool) -> None:
        """A weight multiplies the clipped term, and neither the KL nor a denominator."""
        kl = "no KL" if variant in IN_REWARD else "KL by token ratio"
        given = options(variant, kl, DELTA)
        if per_token and variant in BY_ROW:
            with pytest.raises(ValueError, match=r"`weights` has shape \(6, 4\)"):
                run(given, weights=np.ones(MASK.shape))
            return
        rng = np.random.default_rng(4)
        given["weights"] = np.where(MASK, rng.uniform(0, 2, MASK.shape), NAN) if per_token else rng.uniform(0, 2, 6)
        got, want = run(given), complex_step(given)
        assert got.loss == pytest.approx(literal(given["policy"], given).real, rel=1e-13)
        np.testing.assert_allclose(got.gradient, want, rtol=0, atol=1e-13 * np.abs(want).max())

    @pytest.mark.parametrize("variant", [v for v in VARIANTS if v not in BY_ROW])
    def test_advantages_per_token(self, variant: str) -> None:
        """A token ratio takes an advantage per token, NaN where masked."""
        given = options(variant, "no KL" if variant in IN_REWARD else "KL", DELTA)
        given["advantages"] = np.where(MASK, np.random.default_rng(5).normal(0, 1, MASK.shape), NAN)
        got, want = run(given), complex_step(given)
        assert got.loss == pytest.approx(literal(given["policy"], given).real, rel=1e-13)
        np.testing.assert_allclose(got.gradient, want, rtol=0, atol=1e-13 * np.abs(want).max())

    @pytest.mark.parametrize("level", ["token", "row"])
    def test_the_batch_meets_every_bound(self, level: str) -> None:
        """The combinations above are not vacuous: each clip is active and inactive, at each level."""
        given = batch()
        difference = np.where(MASK, given["policy"] - given["old"], 0)
        if level == "row":
            difference = np.where(MASK, (difference.sum(axis=1) / np.maximum(MASK.sum(axis=1), 1))[:, None], 0)
        ratio, advantages = np.exp(difference[MASK]), np.broadcast_to(given["advantages"][:, None], MASK.shape)[MASK]
        for condition in (
            (advantages > 0) & (ratio > 1 + HIGH),
            (advantages > 0) & (ratio < 1 + HIGH),
            (advantages < 0) & (ratio < 1 - LOW),
            (advantages < 0) & (ratio > DELTA),
            (advantages < 0) & (ratio > 1 + HIGH) & (ratio < DELTA),
        ):
            assert np.any(condition)
        for bound in (1 - LOW, 1 + HIGH, DELTA):
            assert np.min(np.abs(ratio - bound)) > 1e-4


def one(ratio: float, advantage: float, **change: Any) -> PolicyLoss:
    """GRPO of a single token with a given ratio; bounds 0.8 and 1.25, which are exact or nearly so."""
    given: dict[str, Any] = {
        "old": [[0.0]],
        "reference": None,
        "advantages": [advantage],
        "mask": [[1]],
        "algorithm": "grpo",
        "epsilon_low": 0.5,
        "epsilon_high": 0.25,
        "delta": None,
        "beta": 0.0,
        "kl_ratio": None,
    }
    return policy_loss([[math.log(ratio)]], **given | change)


class TestByHand:
    """One token, clip at [0.5, 1.25]."""

    @pytest.mark.parametrize(
        ("ratio", "advantage", "delta", "loss", "gradient"),
        [
            pytest.param(1.0, 2.0, None, -2.0, -2.0, id="on-policy: -A and -A r"),
            pytest.param(2.0, 2.0, None, -2.5, 0.0, id="good, clipped above: -1.25 A"),
            pytest.param(0.25, 2.0, None, -0.5, -0.5, id="good, below: not clipped"),
            pytest.param(0.25, -2.0, None, 1.0, 0.0, id="bad, clipped below: -0.5 A"),
            pytest.param(4.0, -2.0, None, 8.0, 8.0, id="bad, above: not clipped"),
            pytest.param(4.0, -2.0, 3.0, 6.0, 0.0, id="bad, above delta: -3 A"),
            pytest.param(2.0, -2.0, 3.0, 4.0, 4.0, id="bad, between the clip and delta"),
            pytest.param(4.0, 2.0, 3.0, -2.5, 0.0, id="good: delta changes nothing"),
            pytest.param(2.0, 0.0, None, 0.0, 0.0, id="no advantage"),
        ],
    )
    def test_branches(self, ratio: float, advantage: float, delta: float | None, loss: float, gradient: float) -> None:
        got = one(ratio, advantage, delta=delta)
        assert got.loss == pytest.approx(loss, rel=1e-15)
        assert got.gradient[0, 0] == pytest.approx(gradient, rel=1e-15)

    @pytest.mark.parametrize(("ratio", "advantage", "delta"), [(0.5, -1.0, None), (1.25, 1.0, None), (2.0, -1.0, 2.0)])
    def test_at_a_bound_both_branches_stand(self, ratio: float, advantage: float, delta: float | None) -> None:
        """Within 16 ulp the element is near, and the two gradients are -A r and 0 in some order."""
        for offset, near in ((0, True), (15, True), (-15, True), (17, False), (-17, False)):
            moved = ratio + offset * float(np.spacing(np.float32(ratio)))
            got = one(moved, advantage, delta=delta, branch_dtype="float32")
            assert got.near_branch[0, 0] == near
            pair = {got.gradient[0, 0], got.gradient_other[0, 0]}
            assert (len(pair) == 2) == near
            assert got.branch_slack == pytest.approx(abs(moved - ratio) if near else 0, abs=1e-15)
            if near:
                assert 0 in pair
                assert got.gradient_scale[0, 0] == pytest.approx(moved, rel=1e-14)

    def test_exactly_at_a_bound_the_gradient_is_alive(self) -> None:
        """A clip acts only strictly outside its bound: r = 1 at 1 - 0 and 1 + 0."""
        for advantage in (-2.0, 2.0):
            assert one(1.0, advantage, epsilon_low=0.0, epsilon_high=0.0).gradient[0, 0] == -advantage

    def test_the_ulp_follows_the_policy(self) -> None:
        """12 float32 ulp from a bound is near for float32 data and far for float64 data."""
        common: dict[str, Any] = {
            "reference": None, "advantages": [1.0], "mask": [[1]], "algorithm": "grpo", "epsilon_low": 0.2,
            "epsilon_high": 0.25, "delta": None, "beta": 0.0, "kl_ratio": None,
        }  # fmt: skip
        policy = np.array([[math.log(1.25) + 8 * 2.0**-24]])
        assert not policy_loss(policy, old=[[0.0]], **common).near_branch[0, 0]
        assert policy_loss(policy.astype(np.float32), old=[[0.0]], **common).near_branch[0, 0]

    def test_the_side_of_a_bound_that_does_not_clip_is_not_near(self) -> None:
        """At r = 1.25 a bad token is not clipped, so there is no second branch."""
        assert not one(1.25, -1.0).near_branch[0, 0]

    def test_overflowing_ratio(self) -> None:
        """An infinite ratio is an infinite loss under a bad advantage, a clipped one under a good, 0 under none."""
        far: dict[str, Any] = {"old": [[-800.0]]}
        assert one(1.0, -1.0, **far).loss == one(1.0, -1.0, **far).gradient[0, 0] == math.inf
        assert one(1.0, 1.0, **far).loss == -1.25
        assert one(1.0, 0.0, **far).loss == one(1.0, 0.0, **far).gradient[0, 0] == 0

    def test_kl_gradient_scale_is_its_parts(self) -> None:
        """On-policy, r = 1, A = 1, d = 1, token ratio: policy part -1, KL part -d = -1 times beta 1."""
        got = one(1.0, 1.0, reference=[[1.0]], beta=1.0, kl_ratio="token", kl_estimator="k3")
        assert (got.gradient[0, 0], got.gradient_scale[0, 0]) == (-2.0, 2.0)
        assert got.loss == pytest.approx(-1 + math.e - 2, rel=1e-15)
        assert got.loss_scale == pytest.approx(1 + math.e - 2, rel=1e-15)


class TestMask:
    """Masked slots are selected away."""

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_poison_changes_no_bit(self, variant: str) -> None:
        """NaN, infinity and zeros in masked slots give the same loss and gradient."""
        given = options(variant, "no KL" if variant in IN_REWARD else "KL by sequence ratio", None)
        want = run(given)
        for poison in (0.0, math.inf, -1e308):
            changed = {name: np.where(MASK, given[name], poison) for name in ("policy", "old")}
            got = run(given, **changed)
            assert got.loss == want.loss
            np.testing.assert_array_equal(got.gradient, want.gradient)

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_no_token_at_all(self, variant: str) -> None:
        """A step without tokens has loss 0 and gradient 0."""
        got = run(options(variant, "no KL", None), mask=MASK & False)
        assert got.loss == 0
        assert not np.any(got.gradient)


@pytest.mark.parametrize(
    ("variant", "change", "message"),
    [
        ("grpo", {"algorithm": "none such"}, "`algorithm` is 'none such'"),
        ("grpo", {"delta": 1 + HIGH}, "`delta` is 1.08"),
        ("grpo", {"epsilon_low": None}, "`epsilon_low` is None"),
        ("grpo", {"epsilon_high": -0.1}, "`epsilon_high` is -0.1"),
        ("grpo", {"beta": -1.0}, "`beta` is -1.0"),
        ("grpo", {"beta": 1.0}, "`reference` is None"),
        (
            "grpo",
            {"beta": 1.0, "reference": np.zeros((6, 4)), "kl_ratio": None, "kl_estimator": "k3"},
            "`kl_ratio` is None",
        ),
        ("grpo", {"beta": 1.0, "reference": np.zeros((6, 4)), "kl_ratio": "none"}, "`kl_estimator` is None"),
        ("grpo", {"mask": np.ones((4, 6))}, "`mask` has shape"),
        ("grpo", {"mask": np.ones((6, 4))}, r"`policy` is nan.*index \(0, 1\)"),
        ("grpo", {"advantages": np.ones(5)}, "`advantages` has shape"),
        ("grpo", {"advantages": np.full(6, NAN)}, "`advantages` is nan"),
        ("gspo", {"advantages": np.ones((6, 4))}, "`advantages` has shape"),
        ("rloo", {"epsilon_low": 0.2}, "`epsilon_high` is None, must be a finite number"),
        ("rloo", {"beta": 0.1}, "must be 0 for 'rloo'"),
        ("dr_grpo", {"max_length": None}, "`max_length` is None"),
        ("bnpo-trl", {"micro_batches": [3, 2]}, r"`micro_batches` gives blocks of \[3, 2\]"),
        ("bnpo-trl", {"micro_batches": None}, "`micro_batches`"),
        ("dapo-global", {"dapo_denominator": None}, "`dapo_denominator` is None"),
        ("dapo-group", {"group_size": 4}, "`group_size`"),
        ("dapo-trl", {"tokens_in_step": None}, "`tokens_in_step` is None"),
    ],
)
def test_what_does_not_fit_is_refused(variant: str, change: dict[str, Any], message: str) -> None:
    """Each message names the argument and its value."""
    with pytest.raises(ValueError, match=message):
        run(options(variant, "no KL", None), **change)
