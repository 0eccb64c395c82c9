"""`rlkernels.token_kl` with a ratio, and `rlkernels.full_kl`, against mpmath and the oracle."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import rlkernels
from gates_reference.oracle import kl as oracle

INF, NAN = np.inf, np.nan
FLOATS = [np.float32, np.float64]
LIMIT = {np.float32: 4 * 2 * 2.0**-24, np.float64: 8 * 2 * 2.0**-53}


def log_probabilities(dtype: Any, *shape: int, seed: int = 5) -> list[Any]:
    """Policy, reference and old, about 0.3 nats apart."""
    generator = np.random.default_rng(seed)
    policy = generator.normal(-2, 1, shape)
    return [(policy + 0.3 * generator.normal(size=shape)).astype(dtype) for _ in range(3)]


class TestRatio:
    """Every estimate times exp(policy - old), of the token or averaged over its sequence."""

    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
    def test_token_against_mpmath(self, estimator: str, dtype: Any) -> None:
        """The product is as accurate as the estimate alone."""
        policy, reference, old = log_probabilities(dtype, 200)
        options: dict[str, Any] = {"estimator": estimator, "old": old, "kl_ratio": "token"}
        got = rlkernels.token_kl(policy, reference, **options)
        with mpmath.workdps(60):
            for p, r, o, have in zip(policy, reference, old, got, strict=True):
                d = mpmath.mpf(float(r)) - mpmath.mpf(float(p))
                value = {"k1": -d, "k2": d * d / 2, "k3": mpmath.expm1(d) - d}[estimator]
                want = value * mpmath.exp(mpmath.mpf(float(p)) - mpmath.mpf(float(o)))
                assert abs(float(have) - want) <= LIMIT[dtype] * abs(want)

    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("kl_ratio", ["none", "token", "sequence"])
    @pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
    @pytest.mark.parametrize("layout", ["all", "mask", "prefix", "ragged"])
    def test_layouts_against_the_oracle(self, layout: str, reduction: Any, kl_ratio: Any, dtype: Any) -> None:
        """Rows that no vector divides, under every layout and reduction."""
        policy, reference, old = log_probabilities(dtype, 5, 37)
        lengths = np.array([37, 0, 1, 17, 30])
        options: dict[str, Any] = {"estimator": "k3", "reduction": reduction, "kl_ratio": kl_ratio}
        if layout == "mask":
            options["mask"] = np.random.default_rng(1).random((5, 37)) < 0.6
        elif layout == "prefix":
            options["lengths"] = lengths
        elif layout == "ragged":
            chosen = np.arange(37) < lengths[:, None]
            policy, reference, old = policy[chosen], reference[chosen], old[chosen]
            options["lengths"] = lengths
        got = rlkernels.token_kl(policy, reference, old=old, **options)
        want = oracle.token_kl(policy, reference, old=old, **options)
        scale = oracle.kl_scale(policy, reference, old=old, **options)
        assert np.all(np.abs(got - want) <= LIMIT[dtype] * scale)

    @pytest.mark.parametrize("kl_ratio", ["token", "sequence"])
    def test_on_policy_every_ratio_is_1(self, kl_ratio: Any) -> None:
        """Without `old` nothing is multiplied."""
        policy, reference, _ = log_probabilities(np.float32, 3, 50)
        plain = rlkernels.token_kl(policy, reference, estimator="k3")
        assert rlkernels.token_kl(policy, reference, estimator="k3", kl_ratio=kl_ratio).tobytes() == plain.tobytes()

    def test_overflow_is_infinite(self) -> None:
        """exp(800) is +inf, and so is what it multiplies; 0 times it means nothing."""
        policy, reference, old = np.array([0.0, 0.0]), np.array([-1.0, 0.0]), np.array([-800.0, -800.0])
        got = rlkernels.token_kl(policy, reference, estimator="k3", old=old, kl_ratio="token")
        assert got[0] == INF
        assert got.view(np.uint64)[1] == 0x7FF8000000000000

    def test_errors(self) -> None:
        """A wrong option or shape is named."""
        line = np.zeros(3)
        with pytest.raises(ValueError, match='`kl_ratio` is "row", must be one of "none", "token", "sequence"'):
            rlkernels.token_kl(line, line, estimator="k3", kl_ratio="row")  # type: ignore[call-overload]
        with pytest.raises(ValueError, match=r"`old` has shape \(2,\), must be \(3,\) like `policy`"):
            rlkernels.token_kl(line, line, estimator="k3", old=np.zeros(2), kl_ratio="token")


class TestFull:
    """The sum over the vocabulary."""

    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("shape", [(1,), (7,), (3, 16), (2, 3, 1003)])
    def test_against_mpmath(self, shape: tuple[int, ...], dtype: Any) -> None:
        """Within k * 2u of the sum of the absolute terms."""
        generator = np.random.default_rng(2)
        logits = generator.normal(0, 3, (2, *shape))
        tables = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
        policy, reference = tables.astype(dtype)
        got = np.asarray(rlkernels.full_kl(policy, reference))
        assert (got.shape, got.dtype) == (shape[:-1], dtype)
        rows = zip(policy.reshape(-1, shape[-1]), reference.reshape(-1, shape[-1]), got.flat, strict=True)
        with mpmath.workdps(40):
            for p_row, q_row, have in rows:
                pairs = [(mpmath.mpf(float(p)), mpmath.mpf(float(q))) for p, q in zip(p_row, q_row, strict=True)]
                terms = [mpmath.exp(p) * (p - q) for p, q in pairs]
                assert abs(float(have) - mpmath.fsum(terms)) <= LIMIT[dtype] * mpmath.fsum(terms, absolute=True)

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_tokens_that_cannot_be_drawn(self, dtype: Any) -> None:
        """-inf of the policy adds 0 whatever the reference; -inf of the reference alone gives +inf."""
        half = np.log(0.5)
        policy = np.array([[0.0, -INF, -INF], [half, half, -INF], [half, -800.0, half]], dtype)
        reference = np.array([[half, half, NAN], [half, half, -1.0], [half, -INF, half]], dtype)
        got = rlkernels.full_kl(policy, reference)
        assert got.tolist() == pytest.approx([np.log(2.0), 0.0, INF], rel=1e-7)

    def test_errors(self) -> None:
        """No vocabulary and shapes that differ are named."""
        with pytest.raises(ValueError, match=r"`policy_logprobs` has shape \(\)"):
            rlkernels.full_kl(np.zeros(()), np.zeros(()))
        with pytest.raises(ValueError, match=r"`policy_logprobs` has shape \(2, 0\)"):
            rlkernels.full_kl(np.zeros((2, 0)), np.zeros((2, 0)))
        with pytest.raises(ValueError, match=r"`reference_logprobs` has shape \(3,\), must be \(2,\)"):
            rlkernels.full_kl(np.zeros(2), np.zeros(3))
        assert rlkernels.full_kl(np.zeros((0, 4)), np.zeros((0, 4))).shape == (0,)
