"""What people pass and what it means: booleans, half types, tables, columns, dicts; and errors that name the cause."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import mlx.core as mx
import numpy as np
import pandas as pd
import pytest

import rlkernels

Array = np.ndarray[Any, Any]
REWARDS = [True, False, False, True]
POLICY = np.array([[-1.0, -0.5, -2.0], [-0.25, -1.5, -0.75]], np.float32)  # exact in bfloat16 and float16
OLD = np.array([[-1.25, -0.5, -1.0], [-0.5, -1.25, -0.75]], np.float32)
LOGITS = np.array([[1.0, 0.5, -1.0, 2.0], [0.0, 3.0, 1.0, -2.0]])


def bfloat(values: Array) -> Array:
    """The numbers in the type of the package ml_dtypes."""
    return values.astype(ml_dtypes.bfloat16)


class TestBooleanRewards:
    """True is 1."""

    @pytest.mark.parametrize(
        "rewards",
        [
            REWARDS,
            tuple(REWARDS),
            [np.True_, np.False_, False, True],
            np.array(REWARDS),
            mx.array(REWARDS),
            pd.Series(REWARDS),
        ],
        ids=["list", "tuple", "numpy-scalars", "array", "mlx", "series"],
    )
    def test_advantages(self, rewards: Any) -> None:
        """As those of 1.0 and 0.0."""
        want = rlkernels.group_advantages([1.0, 0.0, 0.0, 1.0], 2)
        assert rlkernels.group_advantages(rewards, 2).tolist() == want.tolist()

    def test_several_functions_and_tokens(self) -> None:
        """Of `normalise_then_sum` and `gae` too."""
        columns = np.array([[1, 0], [0, 1], [1, 1], [0, 0]])
        stages = {"group_ddof": 1, "group_eps": 1e-4, "batch_ddof": 1, "batch_eps": 1e-4}
        got = rlkernels.normalise_then_sum(columns.astype(bool), [True, True], 2, **stages)
        assert got.tolist() == rlkernels.normalise_then_sum(columns.astype(float), [1.0, 1.0], 2, **stages).tolist()
        got = rlkernels.gae([False, True], [0.5, 0.25], gamma=0.9, lam=0.8)
        assert got.tolist() == rlkernels.gae([0.0, 1.0], [0.5, 0.25], gamma=0.9, lam=0.8).tolist()

    def test_booleans_are_no_log_probabilities_and_no_ids(self) -> None:
        """There True would be a mistake."""
        with pytest.raises(TypeError, match="`policy` is an array of bool"):
            rlkernels.token_kl(np.array([True]), np.array([True]), estimator="k1")
        with pytest.raises(TypeError, match="`lengths` holds an element of type bool"):
            rlkernels.pack_sequences([True], 2)


class TestHalfTypes:
    """Log-probabilities of two bytes are the float32 numbers that they are."""

    @pytest.mark.parametrize(
        "half",
        [
            bfloat,
            lambda x: x.astype(np.float16),
            lambda x: mx.array(x).astype(mx.bfloat16),
            lambda x: mx.array(x).astype(mx.float16),
        ],
        ids=["bfloat16", "float16", "mlx-bfloat16", "mlx-float16"],
    )
    def test_every_kernel_of_log_probabilities(self, half: Any) -> None:
        """Results and gradients are float32, with the bits of float32 arguments."""
        policy, old = half(POLICY), half(OLD)
        calls = [
            lambda p, q: rlkernels.token_kl(p, q, estimator="k3"),
            rlkernels.full_kl,
            lambda p, q: rlkernels.importance_ratio(p, q, level="seq_mean"),
            lambda p, q: rlkernels.importance_weights(p, q, correction="tis", level="token", c_max=2.0),
            lambda p, q: rlkernels.policy_loss(p, old=q, advantages=[1.0, -1.0], algorithm="grpo").gradient,
        ]
        for call in calls:
            for arguments in ((policy, old), (POLICY, old), (policy, OLD)):
                got, want = call(*arguments), call(POLICY, OLD)
                assert (got.dtype, got.tobytes()) == (np.float32, want.tobytes())
        got = rlkernels.ratio_statistics(policy, old, epsilon_low=0.2, epsilon_high=0.2)
        assert got == rlkernels.ratio_statistics(POLICY, OLD, epsilon_low=0.2, epsilon_high=0.2)

    def test_every_value(self) -> None:
        """All 65,536 bit patterns of bfloat16, strided too."""
        bits = np.arange(2**16, dtype=np.uint16)
        values = bits.view(ml_dtypes.bfloat16)
        want = (bits.astype(np.uint32) << 16).view(np.float32)
        finite = np.isfinite(want)
        for given in (values[finite], np.repeat(values[finite], 2)[::2]):
            got = rlkernels.token_kl(given, np.zeros(finite.sum(), np.float32), estimator="k1")
            assert got.tobytes() == (want[finite] - np.float32(0)).tobytes()

    def test_float64_beside_it_is_refused(self) -> None:
        """As float32 beside float64."""
        with pytest.raises(TypeError, match="`policy` is float64 and `reference` is bfloat16, must be the same type"):
            rlkernels.token_kl(POLICY.astype(float), bfloat(OLD), estimator="k1")

    def test_rewards_of_two_bytes_are_refused(self) -> None:
        """Their type would decide that of the advantages."""
        with pytest.raises(TypeError, match="`rewards` is an array of bfloat16"):
            rlkernels.group_advantages(bfloat(np.array([1.0, 0.0])), 2)


class TestShapes:
    """Matrices of rewards and columns of advantages."""

    def test_a_matrix_of_rewards_is_told_to_be_flat(self) -> None:
        """(P, G)."""
        with pytest.raises(ValueError, match=r"shape \(2, 2\), must have one dimension; pass rewards.reshape\(-1\)"):
            rlkernels.group_advantages(np.zeros((2, 2)), 2)

    @pytest.mark.parametrize("width", [1, 3])
    def test_a_column_of_advantages(self, width: int) -> None:
        """(B, 1), of advantages and weights."""
        policy, column = POLICY[:, :width], np.array([[1.0], [-0.5]], np.float32)
        call = {"old": OLD[:, :width], "algorithm": "grpo"}
        got = rlkernels.policy_loss(policy, advantages=column, weights=np.abs(column), **call)
        want = rlkernels.policy_loss(policy, advantages=column[:, 0], weights=np.abs(column[:, 0]), **call)
        assert (got.loss, got.gradient.tobytes()) == (want.loss, want.gradient.tobytes())


class TestArrayProtocol:
    """What NumPy reads by `__array__`."""

    def test_pandas(self) -> None:
        """A Series, a column of a table, and a whole table."""
        table = pd.DataFrame({"rewards": [1.0, 0.0, 0.0, 1.0], "length": [3, 2, 1, 3]})
        assert np.array_equal(
            rlkernels.group_advantages(table["rewards"], 2), rlkernels.group_advantages([1.0, 0.0, 0.0, 1.0], 2)
        )
        assert rlkernels.pack_sequences(table["length"], 3)[2] == 1.0
        policy = pd.DataFrame(POLICY.astype(float))
        assert np.array_equal(
            rlkernels.token_kl(policy, OLD.astype(float), estimator="k1"), (POLICY - OLD).astype(float)
        )

    @pytest.mark.parametrize(
        "values", [pd.Series(["a", "b"]), pd.Series([1.0, None], dtype=object)], ids=["text", "objects"]
    )
    def test_other_elements_are_refused(self, values: Any) -> None:
        """By the name of the argument."""
        with pytest.raises(TypeError, match="`rewards` is of type Series, must be"):
            rlkernels.group_advantages(values, 2)

    def test_what_numpy_refuses_is_refused(self) -> None:
        """With the reason, a masked array included."""

        class Broken:
            def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
                raise RuntimeError("on fire")

        class Masked:
            def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
                return np.ma.masked_array([1.0, 2.0], [True, False])

        with pytest.raises(ValueError, match=r"`rewards` is of type Broken, must be .*: on fire"):
            rlkernels.group_advantages(Broken(), 2)
        with pytest.raises((TypeError, ValueError), match="`rewards`"):
            rlkernels.group_advantages(np.ma.masked_array([1.0, 2.0], [True, False]), 2)

    def test_a_range(self) -> None:
        """A list of integers that nobody has written down; a huge one is refused, not listed."""
        assert rlkernels.uniforms(7, 0, range(3), 0, 5).tolist() == rlkernels.uniforms(7, 0, [0, 1, 2], 0, 5).tolist()
        with pytest.raises(TypeError, match="`lengths` is of type range"):
            rlkernels.pack_sequences(range(2**40), 2)


class TestBias:
    """`logit_bias` by id, and what spoils a row."""

    def test_a_dict(self) -> None:
        """Ids to numbers; the others get 0."""
        call = {"order": "hf", "temperature": 1.0}
        got = rlkernels.filtered_logprobs(LOGITS, logit_bias={3: -1.5, np.int64(0): 2, 1: -np.inf}, **call)
        want = rlkernels.filtered_logprobs(LOGITS, logit_bias=[2.0, -np.inf, 0.0, -1.5], **call)
        assert got.tobytes() == want.tobytes()
        assert rlkernels.filtered_logprobs(LOGITS, logit_bias={}, **call).tolist() == pytest.approx(
            rlkernels.filtered_logprobs(LOGITS, **call)
        )

    @pytest.mark.parametrize(
        ("bias", "error", "message"),
        [
            ({4: 1.0}, ValueError, "`logit_bias` has the key 4, must have ids of the vocabulary, 0 to 3"),
            ({-1: 1.0}, ValueError, "`logit_bias` has the key -1"),
            ({"3": 1.0}, TypeError, "`logit_bias key` is of type str, must be an integer"),
            ({3: "1"}, TypeError, "`logit_bias value` is of type str, must be a number"),
            ({3: np.nan}, ValueError, r"`logit_bias\[3\]` is NaN, must be finite or -inf"),
        ],
    )
    def test_wrong_dicts(self, bias: Any, error: type[Exception], message: str) -> None:
        """Key, value and what is legal."""
        with pytest.raises(error, match=message):
            rlkernels.filtered_logprobs(LOGITS, logit_bias=bias, order="hf", temperature=1.0)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"logit_bias": [-np.inf] * 4}, "`logit_bias` makes row 0 of `logits` -inf everywhere"),
            ({"logit_bias": [1e308] * 4, "scale": 1e308}, "`logit_bias` makes row 0 of `logits` inf at token 0"),
            (
                {"repetition_penalty": 1e300, "history": [[0, 1, 2, 3]] * 2, "scale": -1e300},
                "`repetition_penalty` makes row",
            ),
            (
                {"repetition_penalty": 1e-300, "history": [[0, 1, 2, 3]] * 2, "scale": 1e300},
                "`repetition_penalty` makes row",
            ),
            (
                {"frequency_penalty": 1.7e308, "generated": [[0, 0, 1, 1, 2, 2, 3, 3]] * 2},
                "`frequency_penalty` makes row 0",
            ),
            (
                {"presence_penalty": 1.7e308, "generated": [[0, 1, 2, 3]] * 2, "scale": -1e308},
                "`presence_penalty` makes row",
            ),
        ],
    )
    def test_the_cause_of_a_spoilt_row(self, options: dict[str, Any], message: str) -> None:
        """The bias or the penalty, not the logits."""
        scale = options.pop("scale", 1.0)
        logits = scale * np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
        for call in (
            lambda: rlkernels.filtered_logprobs(logits, order="hf", temperature=1.0, **options),
            lambda: rlkernels.sample_tokens(logits, [0.5, 0.5], order="hf", temperature=0.0, **options),
        ):
            with pytest.raises(ValueError, match=message):
                call()  # type: ignore[no-untyped-call]

    def test_spoilt_logits_are_named_themselves(self) -> None:
        """Where a penalty acts too."""
        logits = np.array([[1.0, np.inf], [0.0, 1.0]])
        with pytest.raises(ValueError, match=r"`logits\[0, 1\]` is inf, must be finite or -inf"):
            rlkernels.filtered_logprobs(logits, order="hf", temperature=1.0, logit_bias=[-np.inf, -np.inf])


def test_version() -> None:
    """Where packages have it."""
    assert rlkernels.__version__ == rlkernels.build_info()["version"]


def test_help_says_when_an_interrupt_acts() -> None:
    """Ctrl-C."""
    assert "Ctrl-C acts when a call ends" in (rlkernels.__doc__ or "")
