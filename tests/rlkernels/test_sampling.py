"""`rlkernels.filtered_logprobs` and `sample_tokens` against the oracle, by hand, and their errors."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlkernels
from gates_reference.oracle.equivalence import admissible
from gates_reference.oracle.filters import draw, filtered_logprobs

INF, NAN = float("inf"), float("nan")
ETA = 2.0**-40  # what a float64 sampler may move u or a threshold by
ORDERS = ["hf", "mlx-lm"]
WORKED = np.log(np.array([[0.5, 0.2, 0.12, 0.08, 0.06, 0.04]]))
OFF: dict[str, Any] = {
    "order": "hf", "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "xtc_probability": 0.0,
    "xtc_threshold": 0.1, "xtc_coin": None, "repetition_penalty": 1.0, "history": None,
}  # fmt: skip


def kept(logits: Any, **change: Any) -> list[int]:
    """The ids that stay in the only row."""
    return np.flatnonzero(np.isfinite(rlkernels.filtered_logprobs(np.atleast_2d(logits), **OFF | change)[0])).tolist()


@st.composite
def batches(data: st.DrawFn) -> tuple[np.ndarray[Any, Any], dict[str, Any], np.ndarray[Any, Any]]:
    """Logits of three rows, filters with a coin and a history, and uniforms."""
    generator = np.random.default_rng(data(st.integers(0, 2**32)))
    width = data(st.sampled_from([1, 2, 7, 8, 9, 100, 257, 1000]))
    logits = generator.normal(0, data(st.sampled_from([0.0, 0.5, 3.0, 20.0])), (3, width))
    if data(st.booleans()):
        logits = np.round(logits * 4) / 4  # ties
    logits = np.where(generator.random((3, width)) < data(st.sampled_from([0.0, 0.5])), -INF, logits)
    logits[:, width // 2] = 1.0
    filters = {
        "order": data(st.sampled_from(ORDERS)),
        "temperature": data(st.sampled_from([0.0, 0.1, 0.7, 1.0, 1.9])),
        "top_k": data(st.sampled_from([0, 1, 5, 50, 900])),
        "top_p": data(st.sampled_from([1.0, 0.97, 0.613, 0.1, 0.0])),
        "min_p": data(st.sampled_from([0.0, 0.013, 0.4])),
        "xtc_probability": data(st.sampled_from([0.0, 0.5])),
        "xtc_threshold": data(st.sampled_from([0.0031, 0.13, 0.6])),
        "xtc_coin": generator.random(3),
        "repetition_penalty": data(st.sampled_from([1.0, 1.3, 0.7])),
        "history": generator.integers(-1, width, (3, 4)),
    }
    return logits.astype(data(st.sampled_from([np.float16, np.float32, np.float64]))), filters, generator.random(3)


class TestOracle:
    """The same sets, numbers and tokens as the oracle, which sorts every row."""

    @settings(max_examples=400, deadline=None)
    @given(batches())
    def test_any_batch(self, batch: tuple[Any, dict[str, Any], Any]) -> None:
        """Tokens are right for eta; log-probs agree wherever no threshold decides by a rounding."""
        logits, filters, uniforms = batch
        tokens, behaviour = rlkernels.sample_tokens(logits, uniforms, **filters)
        assert (tokens.dtype, behaviour.dtype) == (np.int64, np.float64)
        assert np.all(admissible(tokens, logits, uniforms, ETA, **filters))
        got = rlkernels.filtered_logprobs(logits, **filters)
        assert np.array_equal(behaviour, got[np.arange(3), tokens])
        want = filtered_logprobs(logits, **filters)
        for row in range(3):
            if np.array_equal(np.isfinite(got[row]), np.isfinite(want[row])):
                np.testing.assert_allclose(got[row], want[row], rtol=1e-13, atol=1e-13)
            else:  # a threshold within a rounding of a sum: then the sets differ by tokens of one probability
                differ = np.flatnonzero(np.isfinite(got[row]) != np.isfinite(want[row]))
                assert np.ptp(logits[row, differ].astype(np.float64)) < 1e-12

    @pytest.mark.parametrize("order", ORDERS)
    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({}, id="off"),
            pytest.param({"top_p": 0.95}, id="top-p"),
            pytest.param({"top_k": 50}, id="top-k"),
            pytest.param({"top_k": 20_000, "top_p": 0.9, "temperature": 0.6}, id="top-k-large"),
            pytest.param({"min_p": 0.02, "temperature": 1.5}, id="min-p"),
            pytest.param({"xtc_probability": 1.0, "xtc_threshold": 1e-4, "xtc_coin": np.zeros(2)}, id="xtc"),
        ],
    )
    def test_a_real_vocabulary(self, order: str, change: dict[str, Any]) -> None:
        """V = 151,936 in float32, flat and peaked, with a bfloat16 row's crowd of ties."""
        generator = np.random.default_rng(5)
        logits = np.stack([generator.normal(0, scale, 151_936) for scale in (1, 4)]).astype(np.float32)
        logits[1] = (logits[1].view(np.uint32) & 0xFFFF0000).view(np.float32)
        filters, u = OFF | {"order": order} | change, generator.random(2)
        got, want = rlkernels.filtered_logprobs(logits, **filters), filtered_logprobs(logits, **filters)
        assert np.array_equal(np.isfinite(got), np.isfinite(want))
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)
        singles = rlkernels.filtered_logprobs(logits, **filters, out=np.full(logits.shape, np.nan, np.float32))
        assert np.array_equal(singles, got.astype(np.float32))
        tokens, behaviour = rlkernels.sample_tokens(logits, u, **filters)
        assert tokens.tolist() == draw(want, u).tolist()
        assert np.array_equal(behaviour, got[[0, 1], tokens])

    def test_frequencies(self) -> None:
        """Over 20,000 draws every count is within five standard deviations of its expectation."""
        u = rlkernels.uniforms(3, 0, 0, 0, np.arange(20_000))
        tokens, _ = rlkernels.sample_tokens(np.tile(WORKED, (20_000, 1)), u, order="hf", temperature=1.0)
        p = np.exp(WORKED[0])
        counts = np.bincount(tokens, minlength=6)
        assert np.all(np.abs(counts - 20_000 * p) < 5 * np.sqrt(20_000 * p * (1 - p)))


class TestByHand:
    """Sets that anybody can redo on paper, of (.5 .2 .12 .08 .06 .04)."""

    @pytest.mark.parametrize(
        ("change", "want"),
        [
            pytest.param({}, [0, 1, 2, 3, 4, 5], id="off"),
            pytest.param({"top_k": 2}, [0, 1], id="top-k"),
            pytest.param({"top_k": 9}, [0, 1, 2, 3, 4, 5], id="top-k-beyond"),
            pytest.param({"top_p": 0.69}, [0, 1], id="top-p"),
            pytest.param({"top_p": 0.0}, [0], id="one-stays"),
            pytest.param({"min_p": 0.2}, [0, 1, 2], id="min-p"),
            # docs/definitions.md, "Sampling": with temperature 2 the top-p set is 4 tokens or 2
            pytest.param({"top_p": 0.69, "temperature": 2.0}, [0, 1, 2, 3], id="hf-tempers-first"),
            pytest.param({"top_p": 0.69, "temperature": 2.0, "order": "mlx-lm"}, [0, 1], id="mlx-lm-tempers-last"),
            pytest.param({"xtc_probability": 0.5, "xtc_coin": np.array([0.49])}, [2, 3, 4, 5], id="xtc-acts"),
            pytest.param({"xtc_probability": 0.5, "xtc_coin": np.array([0.5])}, [0, 1, 2, 3, 4, 5], id="xtc-does-not"),
            # 2 log(.5) and 2 log(.2): .25 .04 .12 .08 .06 .04
            pytest.param(
                {"repetition_penalty": 2.0, "history": np.array([[0, 1, 1, -1]]), "top_k": 4},
                [0, 2, 3, 4],
                id="penalty",
            ),
        ],
    )
    def test_sets(self, change: dict[str, Any], want: list[int]) -> None:
        """Each filter alone."""
        assert kept(WORKED, **change) == want

    @pytest.mark.parametrize(
        ("order", "ties", "of_top_k", "of_top_p"),
        [
            ("hf", "library", [0, 1, 2, 3], [2, 3]),  # scores < kth; the end of an ascending sort
            ("mlx-lm", "library", [0, 1], [0, 1, 2, 3]),  # the first k of a partition; log-probs < threshold
            ("hf", "all", [0, 1, 2, 3], [0, 1, 2, 3]),
            ("hf", "lower-id", [0, 1], [0, 1]),
        ],
    )
    def test_ties(self, order: str, ties: str, of_top_k: list[int], of_top_p: list[int]) -> None:
        """Which of four equals stay; -0 equals 0."""
        for logits in (np.zeros(4), np.array([0.0, -0.0, 0.0, -0.0])):
            assert kept(logits, order=order, ties=ties, top_k=2) == of_top_k
            assert kept(logits, order=order, ties=ties, top_p=0.5) == of_top_p

    @pytest.mark.parametrize(
        "top",
        [{"top_k": 40}, {"top_p": 0.75}, {"top_p": 0.75, "top_k": 90}, {"min_p": 0.75, "min_tokens_to_keep": 90}],
    )
    def test_ties_are_those_of_mlx_lm(self, top: dict[str, Any]) -> None:
        """On logits of which hundreds are equal the sets are those of mlx-lm's own filters."""
        mx = pytest.importorskip("mlx.core")
        library = pytest.importorskip("mlx_lm.sample_utils")
        logits = np.minimum(np.round(np.random.default_rng(3).normal(0.0, 2.0, (4, 3000))), 9.0)
        left = mx.array((logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32))
        if "top_p" in top:
            left = library.apply_top_p(left, top["top_p"])
        if "min_p" in top:
            left = library.apply_min_p(left, top["min_p"], top["min_tokens_to_keep"])
        if "top_k" in top:
            left = library.apply_top_k(left, top["top_k"])
        got = rlkernels.filtered_logprobs(logits, order="mlx-lm", temperature=1.0, **top)
        assert np.array_equal(got > -INF, np.array(left) > -INF)

    def test_special_tokens_are_those_of_mlx_lm(self) -> None:
        """XTC at probability 1 removes what mlx-lm's removes; ids that it never removes stay, wherever they stand."""
        mx = pytest.importorskip("mlx.core")
        library = pytest.importorskip("mlx_lm.sample_utils")
        logits = np.random.default_rng(4).normal(0.0, 3.0, (4, 3000))
        special = np.argsort(-logits, axis=1)[:, :2].ravel()
        want = np.array(library.apply_xtc(mx.array(logits.astype(np.float32)), 1.0, 0.01, special.tolist())) > -INF
        options = {
            "xtc_probability": 1.0,
            "xtc_threshold": 0.01,
            "xtc_coin": np.zeros(4),
            "xtc_special_tokens": special,
        }
        for order, filters in (("hf", {}), ("mlx-lm", {}), ("hf", {"top_k": 2999})):
            got = rlkernels.filtered_logprobs(logits, order=order, temperature=1.0, **options, **filters)
            assert np.array_equal((got > -INF)[:, logits.min(axis=0) > -9], want[:, logits.min(axis=0) > -9])

    def test_penalties_are_those_of_mlx_lm(self) -> None:
        """Bias, repetition, presence and frequency penalty, in the order of mlx-lm's processors."""
        mx = pytest.importorskip("mlx.core")
        library = pytest.importorskip("mlx_lm.sample_utils")
        logits = np.random.default_rng(5).normal(0.0, 3.0, (1, 300)).astype(np.float32)
        ids, bias = [3, 7, 7, 250, 3, 3], {3: 4.0, 9: -2.5, 250: -6.0}
        found = mx.array(logits)
        for processor in library.make_logits_processors(bias, 1.5, 20, 0.75, 20, 0.25, 20):
            found = processor(mx.array(ids), found)
        dense = np.zeros(300)
        dense[list(bias)] = list(bias.values())
        got = rlkernels.filtered_logprobs(
            logits,
            order="mlx-lm",
            temperature=1.0,
            repetition_penalty=1.5,
            presence_penalty=0.75,
            frequency_penalty=0.25,
            history=np.array([ids]),
            generated=np.array([[-1, *ids]]),
            logit_bias=dense,
        )
        np.testing.assert_allclose(got - got[0, 0], np.array(found - found[0, 0]), atol=2e-6)

    @pytest.mark.parametrize(
        ("change", "want"),
        [
            ({"top_k": 1, "min_tokens_to_keep": 3}, [0, 1, 2]),
            ({"top_p": 0.1, "min_tokens_to_keep": 3}, [0, 1, 2]),
            ({"min_p": 1.0, "min_tokens_to_keep": 3}, [0, 1, 2]),
            ({"min_p": 1.0, "min_tokens_to_keep": 99}, [0, 1, 2, 3, 4, 5]),
            ({"top_k": 1, "min_tokens_to_keep": 3, "order": "mlx-lm"}, [0]),
            ({"top_p": 0.1, "min_tokens_to_keep": 3, "order": "mlx-lm"}, [0]),
            ({"min_p": 1.0, "min_tokens_to_keep": 3, "order": "mlx-lm"}, [0, 1, 2]),
        ],
    )
    def test_min_tokens_to_keep(self, change: dict[str, Any], want: list[int]) -> None:
        """In the order of transformers each filter leaves so many, in mlx-lm min-p."""
        assert kept(WORKED, **change) == want

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"min_tokens_to_keep": 0}, "`min_tokens_to_keep` is 0, must be at least 1"),
            ({"ties": "any"}, '`ties` is "any", must be one of "library", "all", "lower-id"'),
            ({"presence_penalty": 1.0}, "`generated` is missing"),
            ({"frequency_penalty": INF}, "`frequency_penalty` is inf, must be finite"),
            ({"presence_penalty": 1.0, "generated": np.array([[6]])}, r"`generated\[0, 0\]` is 6"),
            ({"logit_bias": np.full(6, INF)}, r"`logit_bias\[0\]` is inf, must be finite or -inf"),
            ({"logit_bias": np.zeros(5)}, "`logit_bias` has"),
            ({"xtc_special_tokens": np.array([-1])}, r"`xtc_special_tokens\[0\]` is -1"),
        ],
    )
    def test_errors_of_the_newer_options(self, change: dict[str, Any], message: str) -> None:
        """Each names the argument, what was found and what is legal."""
        with pytest.raises(ValueError, match=message):
            kept(WORKED, **change)

    def test_ties_in_other_filters(self) -> None:
        """Min-p and XTC keep all equals; lower ids stay across the blocks of long rows."""
        logits = np.zeros(4)
        assert kept(logits, min_p=1.0) == kept(logits, xtc_probability=1.0, xtc_coin=np.zeros(1)) == [0, 1, 2, 3]
        for choice in ({"top_k": 500}, {"top_p": 0.5}):
            assert kept(np.zeros(1000), **choice, ties="lower-id") == list(range(500))

    def test_greedy(self) -> None:
        """Temperature 0 takes the lowest id of the penalised maximum, with log-prob 0."""
        logits, u = np.array([[1.0, 3.0, 3.0]]), np.array([0.9])
        for change, want in [({}, 1), ({"repetition_penalty": 9.0, "history": np.array([[1]])}, 2)]:
            options = OFF | {"temperature": 0.0} | change
            assert kept(logits, **options) == [want]
            tokens, logprobs = rlkernels.sample_tokens(logits, u, **options)
            assert (tokens.tolist(), logprobs.tolist()) == ([want], [0.0])

    def test_a_removed_token_is_never_drawn(self) -> None:
        """A uniform of 0 does not draw an impossible token 0, nor one just below 1 an impossible last one."""
        logits = np.log(np.array([[1e-300, 0.25, 0.5, 1e-300, 0.25, 1e-300]]))
        logits[0, [0, 3, 5]] = -INF
        for u, want in [(0.0, 1), (0.25, 2), (0.5, 2), (1 - 2.0**-53, 4)]:
            assert rlkernels.sample_tokens(logits, np.array([u]), **OFF)[0].tolist() == [want]

    def test_rows_are_independent(self) -> None:
        """A row alone gives the bits that it gives in a batch."""
        generator = np.random.default_rng(1)
        logits, coins, history = (
            generator.normal(0, 2, (6, 9000)),
            generator.random(6),
            generator.integers(-1, 30, (6, 5)),
        )
        active = OFF | {"top_k": 900, "top_p": 0.9, "min_p": 0.001, "temperature": 0.8, "xtc_probability": 0.5}
        active |= {"xtc_threshold": 0.01, "repetition_penalty": 1.3}
        batch = rlkernels.filtered_logprobs(logits, **active | {"xtc_coin": coins, "history": history})
        for i in range(6):
            one = slice(i, i + 1)
            row = rlkernels.filtered_logprobs(logits[one], **active | {"xtc_coin": coins[one], "history": history[one]})
            assert row.tobytes() == batch[one].tobytes()

    def test_bfloat16(self) -> None:
        """MLX's bfloat16 logits give what their numbers give."""
        logits = mx.random.normal((2, 3000), key=mx.random.key(0)).astype(mx.bfloat16)
        wide = np.array(logits.astype(mx.float32))
        got = rlkernels.filtered_logprobs(logits, order="hf", temperature=0.5, top_p=0.9)
        assert np.array_equal(got, rlkernels.filtered_logprobs(wide, order="hf", temperature=0.5, top_p=0.9))


class TestErrors:
    """A wrong input is named with its place and value."""

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"order": "vllm"}, '`order` is "vllm", must be one of "hf", "mlx-lm"'),
            ({"temperature": -1.0}, "`temperature` is -1, must be finite and at least 0"),
            ({"top_k": -1}, "`top_k` is -1, must be at least 0"),
            ({"top_p": 1.5}, r"`top_p` is 1.5, must be within \[0, 1\]"),
            ({"min_p": NAN}, "`min_p` is NaN"),
            ({"xtc_probability": 0.5}, "`xtc_coin` is missing, must be given where `xtc_probability` is above 0"),
            ({"xtc_probability": 0.5, "xtc_coin": np.array([1.0])}, r"`xtc_coin\[0\]` is 1, must be in \[0, 1\)"),
            ({"xtc_coin": np.zeros(2)}, r"`xtc_coin` has shape \(2,\), must be \(1,\)"),
            ({"xtc_threshold": 2.0}, "`xtc_threshold` is 2"),
            ({"repetition_penalty": 1.1}, "`history` is missing, must be given where `repetition_penalty` is not 1"),
            ({"repetition_penalty": 0.0}, "`repetition_penalty` is 0, must be finite and above 0"),
            ({"repetition_penalty": 1.1, "history": np.array([[0, 6]])}, r"`history\[0, 1\]` is 6"),
            ({"history": np.array([0])}, r"`history` has shape \(1,\), must be \(1, ids\)"),
            ({"logits": np.zeros(3)}, r"`logits` has shape \(3,\), must be \(rows, vocabulary\)"),
            ({"logits": np.zeros((1, 0))}, "`logits` is empty"),
            ({"logits": np.array([[0, 1], [0, NAN]])}, r"`logits\[1, 1\]` is NaN, must be finite or -inf"),
            ({"logits": np.array([[0, 1], [INF, 0]]), "temperature": 0.0}, r"`logits\[1, 0\]` is inf, must be finite"),
            ({"logits": np.array([[-INF, -INF]])}, r"`logits\[0\]` is -inf everywhere"),
        ],
    )
    def test_value_error(self, change: dict[str, Any], message: str) -> None:
        """Both functions refuse it with the same words."""
        inputs = {"logits": WORKED} | OFF | change
        with pytest.raises(ValueError, match=message):
            rlkernels.filtered_logprobs(**inputs)
        with pytest.raises(ValueError, match=message):
            rlkernels.sample_tokens(uniforms=np.zeros(len(inputs["logits"])), **inputs)

    def test_a_uniform_for_each_row(self) -> None:
        """Others are refused, with the argument that says how many."""
        with pytest.raises(ValueError, match=r"`uniforms` has shape \(3,\), must be \(1,\) like the rows of `logits`$"):
            rlkernels.sample_tokens(uniforms=np.zeros(3), logits=WORKED, **OFF)

    @pytest.mark.parametrize("u", [1.0, -0.1, NAN])
    def test_uniforms(self, u: float) -> None:
        """A uniform is in [0, 1), and there is one per row."""
        with pytest.raises(ValueError, match=r"`uniforms\[0\]` is .*, must be in \[0, 1\)"):
            rlkernels.sample_tokens(WORKED, np.array([u]), **OFF)
        with pytest.raises(ValueError, match=r"`uniforms` has shape \(2,\), must be \(1,\)"):
            rlkernels.sample_tokens(WORKED, np.zeros(2), **OFF)
