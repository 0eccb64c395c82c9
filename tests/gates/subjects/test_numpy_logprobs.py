"""The NumPy baseline's sums over a vocabulary, on hand-worked numbers and finite differences."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gates.subjects.numpy_baseline import logprobs as subject

INF = math.inf
LOGITS = np.log([[1.0, 2.0, 5.0]])  # p = 1/8 2/8 5/8; at τ = 1/2 the squares 1 4 25 over 30


class TestSelectiveLogSoftmax:
    """Log-probs and entropies."""

    def test_hand_worked(self) -> None:
        """Both temperatures, and the entropy of the tempered distribution."""
        for temperature, p in ((1.0, np.array([1, 2, 5]) / 8), (0.5, np.array([1, 4, 25]) / 30)):
            logprobs, entropy = subject.selective_log_softmax(
                LOGITS, np.array([1]), temperature=temperature, entropy=True
            )
            np.testing.assert_allclose(logprobs, [math.log(p[1])], rtol=1e-14)
            np.testing.assert_allclose(entropy, [-np.sum(p * np.log(p))], rtol=1e-14)

    @pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
    def test_offsets_and_impossible_tokens(self, offset: float) -> None:
        """A common offset changes nothing, and -inf neither overflows nor adds entropy."""
        logits = np.array([[0.0, -INF, 0.0]]) + offset
        logprobs, entropy = subject.selective_log_softmax(np.repeat(logits, 2, 0), np.array([0, 1]), entropy=True)
        assert logprobs.tolist() == [-math.log(2), -INF]
        np.testing.assert_allclose(entropy, math.log(2), rtol=1e-15)

    @pytest.mark.parametrize(
        ("dtype", "result"),
        [
            (np.float16, np.float32),
            (ml_dtypes.bfloat16, np.float32),
            (np.float32, np.float32),
            (np.float64, np.float64),
        ],
    )
    def test_half_types_answer_in_float32(self, dtype: Any, result: Any) -> None:
        """Logits 0 0 are exact in every dtype, and log 1/2 is rounded to the result's."""
        logprobs = subject.selective_log_softmax(np.zeros((2, 2), dtype), np.array([0, 1]))
        assert logprobs.dtype == result
        assert logprobs.tolist() == [result(-math.log(2))] * 2

    @pytest.mark.parametrize(
        ("logits", "ids", "message"),
        [
            ([[0.0, math.nan]], [0], "maximum is not finite"),
            ([[-INF, -INF]], [0], "maximum is not finite"),
            ([[0.0, 1.0]], [2], "`ids` is 2"),
            ([[0.0, 1.0]], [0, 1], "`ids` has shape"),
            ([[0, 1]], [0], "`logits` has dtype int64"),
        ],
    )
    def test_errors_name_the_argument(self, logits: Any, ids: Any, message: str) -> None:
        """Rows without a distribution and ids without a token are refused."""
        with pytest.raises(ValueError, match=message):
            subject.selective_log_softmax(np.array(logits), np.array(ids))


class TestBackward:
    """The gradient."""

    @pytest.mark.parametrize("temperature", [0.5, 1.0])
    def test_equals_central_differences(self, temperature: float) -> None:
        """The slope of g lp + g_H H in every logit."""
        rng = np.random.default_rng(3)
        logits, ids = rng.normal(0, 2, (2, 5)), np.array([4, 0])
        upstream, of_entropy = rng.normal(size=(2, 2))

        def loss(x: Any) -> float:
            lp, entropy = subject.selective_log_softmax(x, ids, temperature=temperature, entropy=True)
            return float(upstream @ lp + of_entropy @ entropy)

        gradient = subject.selective_log_softmax_backward(
            logits, ids, upstream, temperature=temperature, grad_entropy=of_entropy
        )
        for index in np.ndindex(logits.shape):
            nudge = np.zeros(logits.shape)
            nudge[index] = 1e-5
            slope = (loss(logits + nudge) - loss(logits - nudge)) / 2e-5
            assert gradient[index] == pytest.approx(slope, abs=1e-9)

    def test_dtype_is_that_of_the_logits(self) -> None:
        """A bfloat16 gradient for bfloat16 logits: g (onehot - 1/2) is exact."""
        gradient = subject.selective_log_softmax_backward(
            np.zeros((1, 2), ml_dtypes.bfloat16), np.array([1]), np.array([2.0], np.float32)
        )
        assert gradient.dtype == ml_dtypes.bfloat16
        assert gradient.astype(float).tolist() == [[-1.0, 1.0]]


class TestFullKl:
    """KL over the vocabulary."""

    def test_hand_worked(self) -> None:
        """3/4 against 1/2, a certain against an even distribution, and a token that only the policy can draw."""
        with np.errstate(divide="ignore"):
            p, q, certain = np.log([0.75, 0.25]), np.log([0.5, 0.5]), np.log([1.0, 0.0])
        got = subject.full_kl(np.array([p, certain, q]), np.array([q, q, certain]))
        want = [0.75 * math.log(1.5) + 0.25 * math.log(0.5), math.log(2), INF]
        np.testing.assert_allclose(got, want, rtol=1e-15)

    def test_shapes_must_agree(self) -> None:
        """The error names the reference."""
        with pytest.raises(ValueError, match="`reference_logprobs` has shape"):
            subject.full_kl(np.zeros((1, 2)), np.zeros((1, 3)))
