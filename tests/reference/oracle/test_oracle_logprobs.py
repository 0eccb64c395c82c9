"""Log-probabilities equal mpmath, sit in the right slots, and their gradient equals finite differences."""

import math
from typing import Any

import mpmath
import numpy as np
import pytest

from gates_reference.oracle.logprobs import (
    backward_scale,
    completion_logprobs,
    completion_slots,
    entropy,
    log_softmax,
    logits_gradient,
    logprob_scale,
    selective_log_softmax,
    selective_log_softmax_backward,
)

NAN = math.nan


class TestLogSoftmax:
    """Values of rows."""

    def test_by_hand(self) -> None:
        """Logits log 1, log 2, log 5 have p = 1/8, 2/8, 5/8; at tau 1/2 the squares 1 4 25 over 30."""
        logits = np.log([1.0, 2.0, 5.0])
        np.testing.assert_allclose(np.exp(log_softmax(logits, temperature=1.0)), [1 / 8, 2 / 8, 5 / 8], rtol=1e-15)
        got = selective_log_softmax(logits, 1, temperature=0.5)
        assert got == pytest.approx(math.log(4 / 30), rel=1e-15)
        p = np.array([1, 2, 5]) / 8
        assert entropy(logits, temperature=1.0) == pytest.approx(-np.sum(p * np.log(p)), rel=1e-15)
        # |log 2 - log 5| / 0.5 + max(1, log((1 + 4 + 25) / 25))
        assert logprob_scale(logits, 1, temperature=0.5) == pytest.approx(2 * math.log(2.5) + 1, rel=1e-15)

    @pytest.mark.parametrize("offset", [0.0, 1e4, -1e4])
    @pytest.mark.parametrize("temperature", [0.1, 1.0, 3.0])
    def test_agrees_with_mpmath(self, offset: float, temperature: float) -> None:
        """Within 4 * 2u of the stated scale, also for peaked rows and large offsets."""
        logits = np.random.default_rng(3).normal(0, 20, 50) + offset
        ids = np.arange(50)
        got = log_softmax(logits, temperature=temperature)
        scale = logprob_scale(np.tile(logits, (50, 1)), ids, temperature=temperature)
        with mpmath.workdps(40):
            x = [mpmath.mpf(v) / temperature for v in logits]
            total = mpmath.log(mpmath.fsum(map(mpmath.exp, x)))
            want = [v - total for v in x]
            h = -mpmath.fsum(mpmath.exp(v) * v for v in want)
            assert all(abs(g - w) <= 8 * 2.0**-53 * s for g, w, s in zip(got, want, scale, strict=True))
            assert abs(entropy(logits, temperature=temperature) - h) <= 8 * 2.0**-53 * max(1, h)

    def test_several_and_ignored_tokens_by_hand(self) -> None:
        """Ids 2, none and 0 of a row with p = 1/8, 2/8, 5/8; the other row is not read."""
        logits = np.array([np.log([1.0, 2.0, 5.0]), [NAN] * 3])
        asked: dict[str, Any] = {"ids": [[2, -100, 0], [-100] * 3], "temperature": 1.0, "ignore_index": -100}
        got = selective_log_softmax(logits, **asked)
        np.testing.assert_allclose(got, [[math.log(5 / 8), 0, math.log(1 / 8)], [0, 0, 0]], rtol=1e-15)
        p = np.array([1, 2, 5]) / 8
        np.testing.assert_allclose(entropy(logits, **asked), [-np.sum(p * np.log(p)), 0], rtol=1e-15)
        gradient = selective_log_softmax_backward(
            logits, grad_logprobs=[[2.0, NAN, 1.0], [NAN] * 3], grad_entropy=None, **asked
        )
        np.testing.assert_allclose(gradient, [[1 - 3 / 8, -6 / 8, 2 - 15 / 8], [0, 0, 0]], rtol=1e-14)

    def test_impossible_tokens(self) -> None:
        """A logit of -inf has probability 0 and adds no entropy; a certain token has entropy 0."""
        np.testing.assert_array_equal(log_softmax([0.0, -math.inf], temperature=1.0), [0, -math.inf])
        assert entropy([0.0, -math.inf], temperature=1.0) == 0
        assert not np.signbit(entropy([0.0, -math.inf], temperature=1.0))

    @pytest.mark.parametrize(
        ("logits", "ids", "temperature", "message"),
        [
            ([[0.0, NAN]], [0], 1.0, r"maximum nan.*row \(0,\)"),
            ([[0.0, math.inf]], [0], 1.0, "maximum inf"),
            ([[-math.inf, -math.inf]], [0], 1.0, "maximum -inf"),
            ([[0.0, 1.0]], [2], 1.0, r"`ids` is 2, must be in \[0, 2\)"),
            ([[0.0, 1.0]], [-1], 1.0, "`ids` is -1"),
            ([[0.0, 1.0]], [0.0], 1.0, "dtype float64"),
            ([[0.0, 1.0]], [0, 1], 1.0, "`ids` has shape"),
            ([[0.0, 1.0]], [0], 0.0, "`temperature` is 0.0"),
            (1.0, 0, 1.0, "vocabulary axis"),
        ],
    )
    def test_errors(self, logits: Any, ids: Any, temperature: float, message: str) -> None:
        """Rows without a distribution and ids without a token are refused."""
        for function in (selective_log_softmax, logprob_scale):
            with pytest.raises(ValueError, match=message):
                function(logits, ids, temperature=temperature)


class TestCompletionSlots:
    """Logits at t score token t + 1."""

    def test_by_hand(self) -> None:
        """Width 6. Prompt 2, completion 3: tokens 2 3 4 are scored at 1 2 3. Prompt 1, 0 tokens: none. 4 + 2: 3 4."""
        got = completion_slots([2, 1, 4], [3, 0, 2], 6)
        np.testing.assert_array_equal(got, [[0, 1, 1, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 1, 1]])

    @pytest.mark.parametrize(
        ("prompts", "lengths", "message"),
        [([0], [1], "`prompt_lengths` is 0"), ([4], [3], r"row 0 has 4 \+ 3"), ([1, 1], [1], "`lengths` has shape")],
    )
    def test_errors(self, prompts: list[int], lengths: list[int], message: str) -> None:
        """A completion needs a prompt before it and room behind it."""
        with pytest.raises(ValueError, match=message):
            completion_slots(prompts, lengths, 6)


class TestCompletion:
    """From sequences to completions and back."""

    PROMPTS, LENGTHS = np.array([2, 1, 3]), np.array([3, 0, 2])

    @pytest.fixture
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Logits that are NaN and ids that are -1 wherever nobody should look."""
        rng = np.random.default_rng(6)
        logits, ids = rng.normal(0, 2, (3, 6, 5)), rng.integers(0, 5, (3, 6))
        read = np.pad(completion_slots(self.PROMPTS, self.LENGTHS, 6), ((0, 0), (0, 1)))
        scored = np.roll(read, 1, axis=1)
        return np.where(read[..., None], logits, NAN), np.where(scored, ids, -1)

    def test_values(self, data: tuple[np.ndarray, np.ndarray]) -> None:
        """Row 0: its third token is scored by logits 1; row 2: its fourth by logits 2."""
        logits, ids = data
        got = completion_logprobs(logits, ids, self.PROMPTS, self.LENGTHS, 4, temperature=0.7)
        assert got.shape == (3, 4)
        assert got[0, 0] == selective_log_softmax(logits[0, 1], ids[0, 2], temperature=0.7)
        assert got[0, 2] == selective_log_softmax(logits[0, 3], ids[0, 4], temperature=0.7)
        assert got[2, 1] == selective_log_softmax(logits[2, 3], ids[2, 4], temperature=0.7)
        np.testing.assert_array_equal(got == 0, [[0, 0, 0, 1], [1, 1, 1, 1], [0, 0, 1, 1]])

    def test_gradient(self, data: tuple[np.ndarray, np.ndarray]) -> None:
        """Fourth-order differences of sum upstream * logprob agree to 1e-9 of the largest element."""
        logits, ids = data
        upstream = np.random.default_rng(7).normal(0, 1, (3, 4))
        poisoned = np.where(np.arange(4) < self.LENGTHS[:, None], upstream, NAN)

        def loss(x: np.ndarray) -> float:
            values = completion_logprobs(x, ids, self.PROMPTS, self.LENGTHS, 4, temperature=0.7)
            return float(np.sum(upstream * values))

        got = logits_gradient(logits, ids, self.PROMPTS, self.LENGTHS, poisoned, temperature=0.7)
        want, h = np.zeros(logits.shape), 1e-3
        for index in np.argwhere(~np.isnan(logits)):
            step = np.zeros(logits.shape)
            step[tuple(index)] = h
            slopes = [(loss(logits + k * step) - loss(logits - k * step)) / (2 * k * h) for k in (1, 2)]
            want[tuple(index)] = (4 * slopes[0] - slopes[1]) / 3
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-9 * np.abs(want).max())
        assert not np.any(got[np.isnan(logits)])
        np.testing.assert_allclose(got.sum(axis=-1), 0, atol=1e-15)  # a shift of all logits changes nothing

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"completion_width": 2}, r"`lengths` is 3, must be in \[0, 3\)"),
            ({"ids": np.zeros((3, 5), int)}, "`ids` has shape"),
            ({"ids": np.full((3, 6), 5)}, "`ids` is 5"),
            ({"logits": np.zeros((3, 6))}, "`logits` has shape"),
            ({"prompt_lengths": [2, 1], "lengths": [3, 0]}, "`lengths` has shape"),
        ],
    )
    def test_errors(self, change: dict[str, Any], message: str) -> None:
        """Shapes and lengths that do not fit are refused."""
        given: dict[str, Any] = {
            "logits": np.zeros((3, 6, 5)), "ids": np.zeros((3, 6), int), "prompt_lengths": self.PROMPTS,
            "lengths": self.LENGTHS, "completion_width": 4, "temperature": 1.0,
        }  # fmt: skip
        with pytest.raises(ValueError, match=message):
            completion_logprobs(**given | change)

    def test_gradient_shape_error(self) -> None:
        """One upstream row per sequence."""
        with pytest.raises(ValueError, match="`loss_gradient` has shape"):
            logits_gradient(
                np.zeros((3, 6, 5)), np.zeros((3, 6), int), self.PROMPTS, self.LENGTHS, np.ones((2, 4)), temperature=1.0
            )


class TestBackward:
    """The gradient of a loss that reads log-probs and entropies."""

    @pytest.mark.parametrize("temperature", [0.7, 1.0, 2.5])
    @pytest.mark.parametrize("with_entropy", [False, True])
    def test_equals_central_differences(self, temperature: float, with_entropy: bool) -> None:
        """Fourth-order differences of sum g lp + g_H H over every logit, a -inf one included as unmovable."""
        rng = np.random.default_rng(2)
        logits, ids = rng.normal(0, 2, (3, 6)), np.array([1, 5, 0])
        logits[2, 4] = -math.inf
        upstream, of_entropy = rng.normal(size=(2, 3))
        of_entropy = of_entropy * with_entropy

        def loss(x: Any) -> float:
            scored = upstream @ selective_log_softmax(x, ids, temperature=temperature)
            return float(scored + of_entropy @ entropy(x, temperature=temperature))

        got = selective_log_softmax_backward(
            logits, ids, upstream, temperature=temperature, grad_entropy=of_entropy if with_entropy else None
        )
        want, h = np.zeros(logits.shape), 1e-3
        for index in np.argwhere(np.isfinite(logits)):
            step = np.zeros(logits.shape)
            step[tuple(index)] = h
            slopes = [(loss(logits + k * step) - loss(logits - k * step)) / (2 * k * h) for k in (1, 2)]
            want[tuple(index)] = (4 * slopes[0] - slopes[1]) / 3
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-9)
        assert got[2, 4] == 0
        assert np.abs(want).max() > 0.1

    def test_agrees_with_mpmath_within_its_scale(self) -> None:
        """Within 8 * 2u of the stated scale for a peaked row, where most gradients are far below one ulp of 1."""
        logits = np.random.default_rng(5).normal(0, 20, 40) + 1e3
        options: dict[str, Any] = {"temperature": 0.6, "grad_entropy": np.array(0.7)}
        got = selective_log_softmax_backward(logits, 3, np.array(-1.3), **options)
        scale = backward_scale(logits, 3, np.array(-1.3), **options)
        with mpmath.workdps(60):
            x = [mpmath.mpf(v) / mpmath.mpf(0.6) for v in logits]
            total = mpmath.log(mpmath.fsum(map(mpmath.exp, x)))
            lp = [v - total for v in x]
            h = -mpmath.fsum(mpmath.exp(v) * v for v in lp)
            for index, v in enumerate(lp):
                p = mpmath.exp(v)
                want = (mpmath.mpf(-1.3) * ((index == 3) - p) - mpmath.mpf(0.7) * p * (v + h)) / mpmath.mpf(0.6)
                assert abs(got[index] - want) <= 8 * 2.0**-53 * scale[index]
        assert scale.min() < 1e-10
        assert scale.max() > 1

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"grad_logprobs": [1.0, 1.0]}, "`grad_logprobs` has shape"),
            ({"grad_entropy": [1.0, 1.0]}, "`grad_entropy` has shape"),
            ({"ids": [2]}, "`ids` is 2"),
            ({"ids": [0, 0]}, "`ids` has shape"),
        ],
    )
    def test_errors(self, change: dict[str, Any], message: str) -> None:
        """One upstream gradient per scored token."""
        given: dict[str, Any] = {"logits": [[0.0, 1.0]], "ids": [0], "grad_logprobs": [1.0], "temperature": 1.0}
        for function in (selective_log_softmax_backward, backward_scale):
            with pytest.raises(ValueError, match=message):
                function(**given | {"grad_entropy": [1.0]} | change)
