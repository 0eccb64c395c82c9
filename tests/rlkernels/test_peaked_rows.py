"""`rlkernels.selective_log_softmax` of rows with one likely token: entropy and its gradient within their bounds."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import rlkernels

UNIT = {np.float32: 2 * 2.0**-24, np.float64: 2 * 2.0**-53}
K = {np.float32: 4, np.float64: 8}
Array = np.ndarray[Any, Any]

# In nats below the greatest logit: others vanish beside it in a rounded sum.
DEPTHS = {np.float32: (10.0, 28.0), np.float64: (30.0, 48.0)}


@st.composite
def peaked(draw: st.DrawFn, dtype: type) -> Array:
    """Draw a greatest logit of 0 somewhere, and others of one depth or of several."""
    depths = st.floats(*DEPTHS[dtype])
    several = st.lists(st.one_of(depths, st.just(np.inf)), min_size=1, max_size=80)
    equal = st.builds(lambda depth, count: [depth] * count, depths, st.integers(1, 300))
    below = draw(st.one_of(several, equal))
    below.insert(draw(st.integers(0, len(below))), 0.0)
    return -np.array(below, dtype)


def exact(row: Array) -> tuple[list[mpmath.mpf], mpmath.mpf, mpmath.mpf]:
    """Return log-probabilities, entropy and log sum exp(x - M) in 50 digits; impossible tokens are -inf."""
    with mpmath.workdps(50):
        shifted = [mpmath.mpf(float(x)) - mpmath.mpf(float(row.max())) for x in row]
        log_sum = mpmath.log(mpmath.fsum(mpmath.exp(x) for x in shifted))
        logprobs = [x - log_sum for x in shifted]
        entropy = -mpmath.fsum(mpmath.exp(x) * x for x in logprobs if mpmath.isfinite(x))
        return logprobs, entropy, log_sum


def check_entropy(row: Array) -> None:
    """Compare with k 2u max(1, H)."""
    _, entropy = rlkernels.selective_log_softmax(row, np.array(0), entropy=True)
    _, want, _ = exact(row)
    kind = row.dtype.type
    with mpmath.workdps(50):
        assert abs(mpmath.mpf(float(entropy)) - want) <= K[kind] * UNIT[kind] * max(1, want)


def gradient_bound(row: Array, id_: int, g: float, g_entropy: float) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
    """Return the gradient and its S of docs/definitions.md, "The scales", for every logit."""
    logprobs, entropy, log_sum = exact(row)
    pairs = []
    for v, logprob in enumerate(logprobs):
        chosen = int(v == id_)
        if not mpmath.isfinite(logprob):
            pairs.append((mpmath.mpf(g * chosen), mpmath.mpf(abs(g) * chosen)))
            continue
        p, c = mpmath.exp(logprob), -(logprob + log_sum) + max(1, log_sum)
        above = abs(logprob + entropy)
        want = g * (chosen - p) - g_entropy * p * (logprob + entropy)
        of_entropy = p * ((1 + c) * above + c + max(1, entropy))
        pairs.append((want, abs(g) * (abs(chosen - p) + p * c) + abs(g_entropy) * of_entropy))
    return pairs


def check_gradient(row: Array, id_: int, g: float, g_entropy: float) -> None:
    """Compare with k 2u S, one subnormal number aside."""
    kind = row.dtype.type
    upstream = np.array(g, kind), np.array(g_entropy, kind)
    got = rlkernels.selective_log_softmax_backward(row, np.array(id_), upstream[0], grad_entropy=upstream[1])
    with mpmath.workdps(50):
        for value, (want, size) in zip(got.tolist(), gradient_bound(row, id_, *map(float, upstream)), strict=True):
            assert abs(value - want) <= K[kind] * UNIT[kind] * size + float(np.finfo(kind).smallest_subnormal)


FORTY = np.array([0.0] + [-40.0] * 52)
PAIR = np.array([0.0, -40.0])
LANE = np.full(49, -np.inf, np.float32)
LANE[[0, 16, 32, 48]] = 0, -18, -18, -18


class TestEntropy:
    """Within k * 2u * max(1, H) where the others vanish beside the greatest."""

    @settings(deadline=None)
    @given(peaked(np.float64))
    @example(FORTY)
    def test_float64(self, row: Array) -> None:
        """Others 30 to 48 nats below."""
        check_entropy(row)

    @settings(deadline=None)
    @given(peaked(np.float32))
    @example(LANE)
    def test_float32(self, row: Array) -> None:
        """Others 10 to 28 nats below."""
        check_entropy(row)

    def test_certain_row_is_exactly_0(self) -> None:
        """Padding and impossible tokens add nothing."""
        rows = np.array([[0.0, -np.inf, -1e9], [3.0, -1e300, -np.inf]])
        _, entropy = rlkernels.selective_log_softmax(rows, np.array([0, 0]), entropy=True)
        assert entropy.tolist() == [0.0, 0.0]


class TestGradient:
    """Within k * 2u * S, with the S that docs/definitions.md gives."""

    @pytest.mark.parametrize("id_", [0, 1])
    @pytest.mark.parametrize("row", [PAIR, FORTY, LANE], ids=["pair", "forty", "lane"])
    def test_examples(self, row: Array, id_: int) -> None:
        """Of the entropy alone, and of both."""
        check_gradient(row, id_, 0.0, 1.0)
        check_gradient(row, id_, 0.7, -1.3)

    @settings(deadline=None)
    @given(st.one_of(peaked(np.float64), peaked(np.float32)), st.floats(-2, 2, width=32), st.floats(-2, 2, width=32))
    @example(PAIR, 0.0, 1.0)
    def test_peaked_rows(self, row: Array, g: float, g_entropy: float) -> None:
        """Any upstream gradients."""
        check_gradient(row, len(row) // 2, g, g_entropy)
