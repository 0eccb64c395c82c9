"""`rlkernels.selective_log_softmax` and its backward: against the oracle, mpmath and differences, and its special rows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

import rlkernels
from gates_reference.oracle import logprobs as oracle

INF, NAN = np.inf, np.nan
LIMIT = {np.float32: 4 * 2 * 2.0**-24, np.float64: 8 * 2 * 2.0**-53}
HALVES = [np.float16, ml_dtypes.bfloat16]
Array = np.ndarray[Any, Any]


def logits_of(shape: tuple[int, ...], spread: float, seed: int = 0) -> Array:
    """Normal logits with some impossible tokens."""
    generator = np.random.default_rng(seed)
    values = generator.normal(0, spread, shape)
    values[generator.random(shape) < 0.01] = -INF
    values[..., 0] = spread
    return values


def exact(row: Array, temperature: float) -> tuple[list[mpmath.mpf], mpmath.mpf, mpmath.mpf]:
    """Log-probabilities, their entropy and log sum exp((x - M) / tau) in 50 digits; logits are finite."""
    with mpmath.workdps(50):
        top = mpmath.mpf(float(max(row)))
        shifted = [(mpmath.mpf(float(x)) - top) / mpmath.mpf(temperature) for x in row]
        log_sum = mpmath.log(mpmath.fsum(mpmath.exp(x) for x in shifted))
        logprobs = [x - log_sum for x in shifted]
        return logprobs, -mpmath.fsum(mpmath.exp(x) * x for x in logprobs), log_sum


class TestAccuracy:
    """Within k * 2u of the definition."""

    @pytest.mark.parametrize("temperature", [1.0, 0.75, 2.5])
    @pytest.mark.parametrize("spread", [0.1, 3.0, 30.0])
    @pytest.mark.parametrize("dtype", [np.float32, *HALVES])
    def test_float32_and_halves(self, dtype: Any, spread: float, temperature: float) -> None:
        """(4, 3, 50257) logits; half types are the numbers they are."""
        logits = logits_of((4, 3, 50257), spread).astype(dtype)
        ids = np.random.default_rng(1).integers(0, 50257, (4, 3))
        wide = logits.astype(np.float64)
        ids[0] = np.argmax(wide[0], axis=-1)
        got, entropy = rlkernels.selective_log_softmax(logits, ids, temperature=temperature, entropy=True)
        want = oracle.selective_log_softmax(wide, ids, temperature=temperature)
        scale = oracle.logprob_scale(wide, ids, temperature=temperature)
        assert got.dtype == entropy.dtype == np.float32
        possible = np.isfinite(want)
        assert np.array_equal(got[~possible], want[~possible])
        assert np.all(np.abs(got - want)[possible] <= (LIMIT[np.float32] * scale)[possible])
        want = oracle.entropy(wide, temperature=temperature)
        assert np.all(np.abs(entropy - want) <= LIMIT[np.float32] * np.maximum(1, want))

    @pytest.mark.parametrize("temperature", [1.0, 0.75, 3.0])
    @pytest.mark.parametrize(("spread", "offset"), [(0.1, 0.0), (3.0, 0.0), (40.0, -1e4), (1e4, 1e9)])
    def test_float64(self, spread: float, offset: float, temperature: float) -> None:
        """1500 logits against mpmath."""
        row = np.random.default_rng(2).normal(offset, spread, 1500)
        logprobs, entropy_want, log_sum = exact(row, temperature)
        for id_ in (0, 1499, int(row.argmax())):
            got, entropy = rlkernels.selective_log_softmax(row, np.array(id_), temperature=temperature, entropy=True)
            scale = (row.max() - row[id_]) / temperature + max(1, log_sum)
            assert abs(float(got) - logprobs[id_]) <= LIMIT[np.float64] * scale
            assert abs(float(entropy) - entropy_want) <= LIMIT[np.float64] * max(1, entropy_want)


class TestGradient:
    """Against the definition from the oracle's log-probabilities."""

    @pytest.mark.parametrize("temperature", [1.0, 0.7])
    @pytest.mark.parametrize("with_entropy", [False, True])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64, *HALVES])
    def test_definition(self, dtype: Any, with_entropy: bool, temperature: float) -> None:
        """(3, 2, 5003) logits of every type; a masked row holds NaN and gets 0."""
        logits = logits_of((3, 2, 5003), 4.0).astype(dtype)
        kind = np.float64 if dtype is np.float64 else np.float32
        temperature = float(kind(temperature))
        ids = np.array([[0, 17], [4001, 5002], [1, 2]])
        g = np.array([[1, -2], [0.3, 0], [1e-3, 4]], kind)
        h = np.array([[0.5, 1], [-2, 0], [0, 1e-3]], kind) if with_entropy else None
        wide = logits.astype(np.float64)
        logits[1, 1] = NAN
        got = rlkernels.selective_log_softmax_backward(logits, ids, g, temperature=temperature, grad_entropy=h)
        assert got.dtype == logits.dtype
        assert got.shape == logits.shape
        # In extended precision: float64's log-probabilities of -20 are themselves 16u off, which p inherits.
        shifted = (wide.astype(np.longdouble) - wide.max(axis=-1, keepdims=True)) / np.longdouble(temperature)
        logprobs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        p = np.exp(logprobs)
        finite = np.where(np.isfinite(logprobs), logprobs, 0)
        entropy = -(p * finite).sum(axis=-1, keepdims=True)
        chosen = np.zeros_like(p)
        np.put_along_axis(chosen, ids[..., None], 1, axis=-1)
        h_wide = np.zeros(g.shape) if h is None else h.astype(np.float64)
        want = (g[..., None] * (chosen - p) - h_wide[..., None] * p * (finite + entropy)) / temperature
        scale = np.abs(g)[..., None] * (chosen + p) + np.abs(h_wide)[..., None] * p * (np.abs(finite) + entropy)
        steps = {np.float16: (2.0**-11, 2.0**-25), ml_dtypes.bfloat16: (2.0**-8, 0.0)}
        rounding, least = steps.get(dtype, (0.0, 0.0))
        limit = LIMIT[kind] * scale / temperature + rounding * np.abs(want) + least
        assert np.all(np.abs(got.astype(np.float64) - want) <= limit)
        assert np.all(got[1, 1].astype(np.float64) == 0)

    @pytest.mark.parametrize("dtype", HALVES)
    @pytest.mark.parametrize("with_entropy", [False, True])
    def test_half_types_round_once(self, dtype: Any, with_entropy: bool) -> None:
        """Against mpmath: 0.501 of the type's spacing; with the entropy's gradient half of one and float32's limit."""
        generator = np.random.default_rng(11)
        digits, least = {np.float16: (11, -24), ml_dtypes.bfloat16: (8, -133)}[dtype]
        for temperature, spread, size in ((1.0, 3.0, 1.0), (0.75, 8.0, 1e-3), (2.0, 0.5, 37.0)):
            row = generator.normal(0, spread, 400).astype(dtype)
            ids = generator.integers(0, 400, 2)
            g, h = (generator.normal(0, 1, (2,)) * size).astype(np.float32), np.float32(0.7 * size * with_entropy)
            got = rlkernels.selective_log_softmax_backward(
                row, ids, g, temperature=temperature, grad_entropy=np.array(h) if with_entropy else None
            )
            with mpmath.workdps(30):
                logprobs, entropy, _ = exact(row.astype(np.float64), temperature)
                for v, value in enumerate(got.tolist()):
                    p, of_row = mpmath.exp(logprobs[v]), mpmath.mpf(float(h)) * (logprobs[v] + entropy)
                    own = mpmath.fsum(float(x) for x, i in zip(g, ids, strict=True) if i == v)
                    want = (own - p * (mpmath.fsum(map(float, g)) + of_row)) / temperature
                    sizes = float(np.abs(g).sum()) * ((v in ids) + p) + float(h) * p * (abs(logprobs[v]) + entropy)
                    spacing = mpmath.mpf(2) ** max(mpmath.frexp(want)[1] - digits, least)
                    inside = LIMIT[np.float32] * sizes / temperature
                    limit = spacing / 2 + inside if with_entropy else 0.501 * spacing
                    assert abs(value - want) <= limit

    def test_differences(self) -> None:
        """Central differences of the forward pass, entropy included."""
        generator = np.random.default_rng(5)
        logits, id_ = generator.normal(0, 2, 30), np.array(7)
        g, h, step = np.array(0.7), np.array(-1.3), 1e-5

        def value(x: Array) -> float:
            logprob, entropy = rlkernels.selective_log_softmax(x, id_, temperature=0.8, entropy=True)
            return float(g * logprob + h * entropy)

        got = rlkernels.selective_log_softmax_backward(logits, id_, g, temperature=0.8, grad_entropy=h)
        want = [(value(logits + step * e) - value(logits - step * e)) / (2 * step) for e in np.eye(30)]
        assert np.allclose(got, want, rtol=0, atol=1e-9)


class TestSpecialRows:
    """Rows without a distribution, certain and impossible tokens."""

    @pytest.mark.parametrize("dtype", [np.float32, np.float64, *HALVES])
    @pytest.mark.parametrize("row", [[NAN, 1.0], [INF, 1.0], [-INF, -INF]])
    def test_no_distribution_is_nan(self, row: list[float], dtype: Any) -> None:
        """That row alone."""
        got, entropy = rlkernels.selective_log_softmax(np.array([row, [1, 1]], dtype), np.array([0, 0]), entropy=True)
        assert np.isnan(got[0])
        assert np.isnan(entropy[0])
        assert got[1] == entropy[1] * -1 == pytest.approx(-np.log(2))

    def test_impossible_and_certain(self) -> None:
        """-inf is exactly impossible, and what is left is exactly certain."""
        logits = np.array([[2.5, -INF]] * 2, np.float32)
        got, entropy = rlkernels.selective_log_softmax(logits, np.array([0, 1]), entropy=True)
        assert got.tolist() == [0.0, -INF]
        assert entropy.tolist() == [0.0, 0.0]

    @pytest.mark.parametrize("shape", [(0, 5), (3, 0, 7), (0, 0)])
    def test_empty(self, shape: tuple[int, ...]) -> None:
        """No rows give no results."""
        ids = np.zeros(shape[:-1], int)
        assert rlkernels.selective_log_softmax(np.zeros(shape), ids).shape == shape[:-1]
        assert rlkernels.selective_log_softmax_backward(np.zeros(shape), ids, np.zeros(shape[:-1])).shape == shape


class TestErrors:
    """A wrong input is named with what was found."""

    @pytest.mark.parametrize(
        ("logits", "ids", "options", "message"),
        [
            pytest.param((2, 3), [0, 3], {}, r"`ids\[1\]` is 3, must be between 0 and 2", id="id"),
            pytest.param((2, 3), [-1, 0], {}, r"`ids\[0\]` is -1", id="negative-id"),
            pytest.param((2, 3), [0], {}, r"`ids` has shape \(1,\), must be \(2,\)", id="ids-shape"),
            pytest.param((), 0, {}, r"`logits` has shape \(\)", id="no-dimension"),
            pytest.param((2, 0), [0, 0], {}, "`logits` has rows of 0 tokens", id="no-vocabulary"),
            pytest.param((1, 3), [0], {"temperature": 0.0}, "`temperature` is 0 in float64", id="zero"),
            pytest.param((1, 3), [0], {"temperature": NAN}, "`temperature` is NaN", id="nan"),
            pytest.param((1, 3), [0], {"temperature": -1.0}, "`temperature` is -1", id="negative"),
        ],
    )
    def test_value_error(self, logits: tuple[int, ...], ids: Any, options: dict[str, Any], message: str) -> None:
        """Named argument, value and legal range."""
        with pytest.raises(ValueError, match=message):
            rlkernels.selective_log_softmax(np.zeros(logits), np.array(ids), **options)

    def test_type_error(self) -> None:
        """Gradients from above have the type of the results, bfloat16 has no `out`."""
        logits, ids = np.zeros((1, 3), np.float32), np.array([0])
        with pytest.raises(TypeError, match="`grad_logprobs` is float64, must be float32"):
            rlkernels.selective_log_softmax_backward(logits, ids, np.zeros(1))
        with pytest.raises(TypeError, match="`out` is given with `logits` of bfloat16"):
            rlkernels.selective_log_softmax_backward(
                logits.astype(ml_dtypes.bfloat16), ids, np.zeros(1, np.float32), out=np.zeros((1, 3), np.float16)
            )
