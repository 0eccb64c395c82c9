"""What different algorithms, layouts and limits of policy losses have in common."""

import math
from typing import Any, ClassVar

import numpy as np
import pytest
from literal import BY_ROW, HIGH, IN_REWARD, LOW, MASK, VARIANTS, options

from gates_reference.oracle.losses import PolicyLoss, policy_loss


def same(a: PolicyLoss, b: PolicyLoss, rtol: float = 1e-14) -> None:
    """Both have one loss and one gradient."""
    assert a.loss == pytest.approx(b.loss, rel=rtol)
    np.testing.assert_allclose(a.gradient, b.gradient, rtol=rtol, atol=1e-16)


def run(variant: str, kl: str = "KL", **change: Any) -> PolicyLoss:
    """The oracle on the shared batch."""
    return policy_loss(**options(variant, "no KL" if variant in IN_REWARD else kl, None) | change)


class TestRelations:
    """Equalities that follow from the definitions."""

    def test_gmpo_of_one_token_is_one_sided_grpo(self) -> None:
        """On one token GMPO's min(D, eps) is GRPO's clip at exp(eps) above, and max(D, -eps) at exp(-eps) below."""
        mask = np.zeros(MASK.shape, bool)
        mask[:, 0] = True
        mask[3] = False
        clip = {"epsilon_low": -math.expm1(-LOW), "epsilon_high": math.expm1(HIGH)}
        same(run("gmpo", mask=mask), run("grpo", mask=mask, **clip))

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_without_beta_the_reference_is_not_read(self, variant: str) -> None:
        """At beta 0 the reference and the conventions of the KL have no part."""
        given = options(variant, "no KL", None)
        stranger = np.full(MASK.shape, 9.0)
        same(policy_loss(**given | {"reference": stranger, "kl_ratio": "?"}), policy_loss(**given), rtol=0)


class TestByHand:
    """Numbers a hand can check."""

    common: ClassVar[dict[str, Any]] = {
        "old": [[0.0]], "reference": None, "mask": [[1]], "epsilon_low": None, "epsilon_high": None, "delta": None,
        "beta": 0.0, "kl_ratio": None,
    }  # fmt: skip

    def one(self, ratio: float, advantage: float, **change: Any) -> PolicyLoss:
        """One token of a given ratio."""
        return policy_loss([[math.log(ratio)]], advantages=[advantage], **self.common | change)

    def test_sapo_of_an_infinite_ratio(self) -> None:
        """An overflowing ratio is a gate of 4 / tau, wide open, with slope 0 and no NaN."""
        got = self.one(
            1.0, -1.0, old=[[-800.0]], algorithm="sapo", sapo_temperature_positive=1.0, sapo_temperature_negative=2.0
        )
        assert (got.loss, got.gradient[0, 0]) == (2.0, 0.0)

    @pytest.mark.parametrize(("bound", "coefficient"), [("relative", 1.25), ("absolute", 0.25)])
    def test_cispo_cap(self, bound: str, coefficient: float) -> None:
        """A ratio of 2 under epsilon_high 1/4 weighs 5/4 relative to 1, and 1/4 absolutely; the gradient is alive."""
        got = self.one(2.0, 1.0, algorithm="cispo", cispo_bound=bound, epsilon_high=0.25, dapo_denominator="global")
        assert got.gradient[0, 0] == -coefficient
        assert got.loss == pytest.approx(-coefficient * math.log(2))
        assert not got.near_branch[0, 0]

    @pytest.mark.parametrize(("sign", "bound"), [(1.0, 0.25), (-1.0, -0.25)])
    def test_gmpo_near_its_bound(self, sign: float, bound: float) -> None:
        """At D = the bound the gradient is alive, within 16 float32 ulp of it near, and 0 beyond."""
        step = float(np.spacing(np.float32(0.25)))
        for ulps, near, alive in ((0, True, True), (15, True, False), (-15, True, True), (17, False, False)):
            got = policy_loss(
                [[bound + sign * ulps * step]], advantages=[sign], algorithm="gmpo", branch_dtype="float32",
                **self.common | {"epsilon_low": 0.25, "epsilon_high": 0.25},
            )  # fmt: skip
            assert got.near_branch[0, 0] == near
            assert (got.gradient[0, 0] != 0) == alive
            assert (got.gradient_other[0, 0] != 0) == (alive != near)
            assert got.branch_slack == pytest.approx(abs(ulps) * step * math.exp(bound) if near else 0.0, rel=1e-5)


class TestLayouts:
    """A mask, valid prefixes and flat rows are one batch."""

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_every_layout_is_one_loss(self, variant: str) -> None:
        """Lengths equal the mask that they mean, and (N,) is the (B, T) without its padding."""
        lengths = np.array([4, 2, 3, 0, 1, 4])
        mask = np.arange(4) < lengths[:, None]
        given = options(variant, "no KL" if variant in IN_REWARD else "KL by sequence ratio", None) | {"mask": None}
        for name in ("policy", "old", "reference"):
            if given[name] is not None:
                given[name] = np.where(mask, np.nan_to_num(given[name], nan=-1.0), math.nan)
        if variant not in BY_ROW:
            given["advantages"] = np.where(mask, np.linspace(-2.0, 2.0, 24).reshape(6, 4), math.nan)
        want = policy_loss(**given | {"mask": mask})
        same(policy_loss(**given | {"lengths": lengths}), want, rtol=0)
        flat = {
            name: value[mask] if isinstance(value, np.ndarray) and value.shape == mask.shape else value
            for name, value in given.items()
        }
        got = policy_loss(**flat | {"lengths": lengths})
        assert got.loss == want.loss
        for name in ("gradient", "gradient_scale", "near_branch", "gradient_other"):
            np.testing.assert_array_equal(getattr(got, name), getattr(want, name)[mask])

    @pytest.mark.parametrize(
        ("variant", "change", "message"),
        [
            ("grpo", {"lengths": np.ones(6, int)}, "`mask` and `lengths` are both given"),
            ("grpo", {"mask": None, "lengths": np.full(6, 5)}, "`lengths` is .*, must be 6 numbers of at most 4"),
            ("grpo", {"policy": np.zeros(24), "mask": None}, r"`policy` has shape \(24,\)"),
            ("cispo-relative", {"delta": 2.0}, "`delta` is 2.0, must be None for 'cispo'"),
            ("cispo-relative", {"cispo_bound": None}, "`cispo_bound` is None"),
            ("sapo", {"epsilon_high": 0.2}, "`epsilon_high` is 0.2, must be None for 'sapo'"),
            ("sapo", {"sapo_temperature_positive": None}, "`sapo_temperature_positive` is None"),
            ("sapo", {"sapo_temperature_negative": 0.0}, "`sapo_temperature_negative` is 0.0"),
            ("gmpo", {"delta": 2.0}, "`delta` is 2.0, must be None for 'gmpo'"),
            ("gmpo", {"epsilon_low": None}, "`epsilon_low` is None"),
            ("luspo", {"advantages": np.ones(MASK.shape)}, "`advantages` has shape"),
        ],
    )
    def test_refused(self, variant: str, change: dict[str, Any], message: str) -> None:
        """Each message names the argument and its value."""
        with pytest.raises(ValueError, match=message):
            policy_loss(**options(variant, "no KL", None) | change)
