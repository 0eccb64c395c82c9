"""What people pass without a second thought: lists, masks of 0 and 1, integer rewards, other spellings, defaults of TRL."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import mlx.core as mx
import numpy as np
import pytest
from calls import bits

import rlkernels
from gates_reference.algorithms import ALGORITHMS

Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(3)
POLICY, OLD, REFERENCE = RNG.normal(-2, 0.6, (3, 4, 5))
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [1, 0, 0, 0, 0]], bool)
ADVANTAGES = np.array([1.0, -0.5, 2.0, -1.5])
STEP = {"policy": POLICY, "old": OLD, "advantages": ADVANTAGES}


def loss(**options: Any) -> rlkernels.PolicyLoss:
    """A step of GRPO, or what the options say."""
    return rlkernels.policy_loss(**{**STEP, "algorithm": "grpo", **options})


class TestMasks:
    """A mask may hold truths, or the numbers 0 and 1."""

    @pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8, np.float16, np.float32, np.float64, ">i4"])
    def test_zeros_and_ones(self, dtype: Any) -> None:
        """The same bits as with bool, in every kernel that takes a mask."""
        for function, inputs in (
            (rlkernels.token_kl, {"policy": POLICY, "reference": REFERENCE, "estimator": "k3"}),
            (rlkernels.gae, {"rewards": POLICY, "values": OLD, "gamma": 0.9, "lam": 0.8}),
            (loss, {}),
        ):
            assert bits(function(**inputs, mask=MASK.astype(dtype))) == bits(function(**inputs, mask=MASK))  # type: ignore[operator]

    def test_lists_and_other_libraries(self) -> None:
        """Nested lists, and MLX arrays of integers or floats."""
        want = bits(loss(mask=MASK))
        for mask in (MASK.tolist(), MASK.astype(int).tolist(), mx.array(MASK.astype(np.int32)), mx.array(MASK * 1.0)):
            assert bits(loss(mask=mask)) == want

    @pytest.mark.parametrize("value", [2, -1, 0.5, np.nan, 1e-30])
    def test_other_numbers(self, value: float) -> None:
        """A count, a weight or a NaN is no mask; the message shows it."""
        mask = np.where(MASK, 1, np.asarray(value))
        with pytest.raises(ValueError, match=rf"`mask` holds {value}, must hold 0 and 1 only, or be of bool"):
            loss(mask=mask)

    def test_bfloat16(self) -> None:
        """NumPy has no such type."""
        with pytest.raises(
            TypeError, match=r"`mask` is an array of bfloat16, must be .* of bool, or of the numbers 0 and 1"
        ):
            loss(mask=MASK.astype(ml_dtypes.bfloat16))


class TestNumbers:
    """Rewards may be integers, and numbers may stand in lists."""

    @pytest.mark.parametrize("rewards", [np.array([1, 0, 0, 1]), [1, 0, 0, 1], (1.0, 0, np.float32(0), np.int8(1))])
    def test_rewards(self, rewards: Any) -> None:
        """float64, as if they had been converted."""
        want = rlkernels.group_advantages(np.array([1.0, 0.0, 0.0, 1.0]), 2)
        assert bits(rlkernels.group_advantages(rewards, 2)) == bits(want)

    def test_rewards_beside_values(self) -> None:
        """Integer rewards take the type of the critic's values, integer weights that of the rewards."""
        values = OLD.astype(np.float32)
        rewards = (POLICY > -2).astype(int)
        want = rlkernels.gae(rewards.astype(np.float32), values, gamma=0.9, lam=0.9)
        assert bits(rlkernels.gae(rewards, values, gamma=0.9, lam=0.9)) == bits(want)
        options = {"group_size": 2, "group_ddof": 1, "group_eps": 1e-4, "batch_ddof": 1, "batch_eps": 1e-4}
        scores = POLICY[:, :2].astype(np.float32)
        want = rlkernels.normalise_then_sum(scores, np.array([2, 1], np.float32), **options)
        assert bits(rlkernels.normalise_then_sum(scores, [2, 1], **options)) == bits(want)  # type: ignore[arg-type]

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_lists_take_the_type_of_the_first_array(self, dtype: Any) -> None:
        """float64 where there is none."""
        step = {name: value.astype(dtype) for name, value in STEP.items()}
        want = bits(loss(**step))
        assert bits(loss(**{**step, "advantages": step["advantages"].tolist(), "old": step["old"].tolist()})) == want
        assert bits(loss(**{name: value.tolist() for name, value in STEP.items()})) == bits(loss())
        logits = POLICY.astype(dtype)
        want = rlkernels.selective_log_softmax_backward(logits, np.array([0, 1, 2, 3]), ADVANTAGES.astype(dtype))
        got = rlkernels.selective_log_softmax_backward(logits, [0, 1, 2, 3], ADVANTAGES.tolist())  # type: ignore[type-var]
        assert bits(got) == bits(want)

    @pytest.mark.parametrize(
        ("value", "error", "message"),
        [
            (
                ["1"],
                TypeError,
                "`rewards` holds an element of type str, must hold float32, float64, integers or booleans",
            ),
            ([None], TypeError, "`rewards` holds an element of type NoneType"),
            ([np.ma.masked_array([1.0], [True])], TypeError, "`rewards` holds an element of type MaskedArray"),
            (
                [[1.0], [1.0, 2.0]],
                ValueError,
                "`rewards` is of type list, must be one that numpy.asarray makes an array",
            ),
            ([10**400], ValueError, "`rewards` is of type list, must be one that .* too large"),
            ([], ValueError, "`rewards` is empty"),
        ],
    )
    def test_lists_that_are_refused(self, value: Any, error: type[Exception], message: str) -> None:
        """The argument and the element are named."""
        with pytest.raises(error, match=message):
            rlkernels.group_advantages(value, 1)

    def test_a_list_that_holds_itself(self) -> None:
        """No endless recursion."""
        value: list[Any] = []
        value.append(value)
        with pytest.raises(TypeError, match="`rewards` holds an element of type list"):
            rlkernels.group_advantages(value, 1)

    def test_true_is_no_size(self) -> None:
        """A flag in the place of a number is a mistake."""
        for name, call in (
            ("group_size", lambda: rlkernels.group_advantages(np.zeros(2), True)),
            ("ddof", lambda: rlkernels.group_advantages(np.zeros(2), 2, ddof=True)),
            ("max_length", lambda: rlkernels.pack_sequences([1], True)),
        ):
            with pytest.raises(TypeError, match=f"`{name}` is of type bool, must be an integer"):
                call()

    def test_masked_arrays_keep_their_mask(self) -> None:
        """Refused, and the advice works."""
        masked = np.ma.masked_array(POLICY, ~MASK)
        advice = r"pass policy.data, and its mask as mask=~numpy.ma.getmaskarray\(policy\)"
        with pytest.raises(TypeError, match=advice):
            loss(policy=masked)
        assert bits(loss(policy=masked.data, mask=~np.ma.getmaskarray(masked))) == bits(loss(mask=MASK))
        rewards = np.ma.masked_array([1.0, 9.0, 3.0, 5.0], [False, True, False, False])
        with pytest.raises(TypeError, match=r"pass rewards.filled\(numpy.nan\), where NaN means \"not scored\""):
            rlkernels.group_advantages(rewards, 4)
        assert rlkernels.group_advantages(rewards.filled(np.nan), 4)[1] == 0


class TestNames:
    """Names with `-` or `_`, and TRL's."""

    @pytest.mark.parametrize(
        ("name", "others"),
        [("dr_grpo", ["dr-grpo"]), ("gspo-token", ["gspo_token"]), ("bnpo-trl", ["bnpo", "bnpo_trl"])],
    )
    def test_algorithms(self, name: str, others: list[str]) -> None:
        """The same loss."""
        constants = {key: x for key, x in ALGORITHMS[name].constants.items() if key != "micro_batches"}
        constants |= {"micro_batches": [1, 3]} if name == "bnpo-trl" else {}
        want = bits(loss(algorithm=name, **constants))
        assert all(bits(loss(algorithm=other, **constants)) == want for other in others)

    def test_other_choices(self) -> None:
        """In every function."""
        rewards = np.array([1.0, 2.0])
        for baseline in ("leave-one-out", "leave_one_out"):
            assert rlkernels.group_advantages(rewards, 2, scale="none", baseline=baseline).tolist() == [-1, 1]  # type: ignore[call-overload]
        one, other = (rlkernels.importance_ratio(POLICY, OLD, level=level) for level in ("seq_mean", "seq-mean"))  # type: ignore[arg-type]
        assert bits(one) == bits(other)
        with pytest.raises(ValueError, match='`algorithm` is "grpo_", must be one of "grpo", "dapo", "bnpo-trl"'):
            loss(algorithm="grpo_")


#: docs/definitions.md, "Policy losses by name", default constants.
DEFAULTS = {
    **dict.fromkeys(("grpo", "bnpo-trl", "dr_grpo"), (0.2, 0.2)),
    **dict.fromkeys(("gspo", "gspo-token", "luspo"), (3e-4, 4e-4)),
    "dapo": (0.2, 0.28),
    "gmpo": (0.4, 0.4),
    "cispo": (None, 0.28),
    "rloo": (None, None),
    "sapo": (None, None),
}


class TestDefaultWidths:
    """Clip widths that are not given."""

    @pytest.mark.parametrize("algorithm", DEFAULTS)
    def test_the_algorithms_own(self, algorithm: str) -> None:
        """Those of its paper, else TRL's 0.2."""
        widths = dict(zip(("epsilon_low", "epsilon_high"), DEFAULTS[algorithm], strict=True))
        constants = {key: x for key, x in ALGORITHMS[algorithm].constants.items() if key not in widths}
        constants |= {"micro_batches": [1, 3]} if "micro_batches" in constants else {}
        assert bits(loss(algorithm=algorithm, **constants)) == bits(loss(algorithm=algorithm, **constants, **widths))

    def test_the_upper_is_the_lower_where_that_is_given(self) -> None:
        """As TRL's epsilon_high; for DAPO too."""
        for algorithm, constants in (("grpo", {}), ("dapo", {"dapo_denominator": "global"}), ("gspo", {})):
            both = loss(algorithm=algorithm, **constants, epsilon_low=0.1, epsilon_high=0.1)
            assert bits(loss(algorithm=algorithm, **constants, epsilon_low=0.1)) == bits(both)
            own = DEFAULTS[algorithm][0]
            both = loss(algorithm=algorithm, **constants, epsilon_low=own, epsilon_high=0.5)
            assert bits(loss(algorithm=algorithm, **constants, epsilon_high=0.5)) == bits(both)


class TestRowMask:
    """Rows that do not train have no tokens."""

    KEEP = np.array([True, False, True, False])

    @pytest.mark.parametrize("algorithm", ["grpo", "rloo", "luspo"])
    def test_is_a_mask_without_these_rows(self, algorithm: str) -> None:
        """Whatever says which slots are tokens: a mask, lengths or nothing; and whatever holds the row mask."""
        lengths = np.array([3, 5, 0, 1])
        prefix = np.arange(5) < lengths[:, None]
        for layout, mask in (({"mask": MASK}, MASK), ({"lengths": lengths}, prefix), ({}, np.ones((4, 5), bool))):
            want = bits(loss(algorithm=algorithm, mask=mask & self.KEEP[:, None]))
            for keep in (self.KEEP, self.KEEP.astype(int), self.KEEP.tolist(), mx.array(self.KEEP)):
                assert bits(loss(algorithm=algorithm, **layout, row_mask=keep)) == want

    def test_excluded_rows_may_hold_anything(self) -> None:
        """NaN, as padding may."""
        policy = np.where(self.KEEP[:, None], POLICY, np.nan)
        assert np.isfinite(loss(policy=policy, row_mask=self.KEEP).loss)
        assert not loss(policy=policy, row_mask=self.KEEP).gradient[~self.KEEP].any()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"row_mask": np.ones(3, bool)}, r"`row_mask` has shape \(3,\), must be \(4,\) like the rows of `policy`"),
            ({"row_mask": np.array([0, 1, 2, 1])}, "`row_mask` holds 2, must hold 0 and 1 only"),
            ({"row_mask": np.ones(4, bool), "lengths": np.array([9, 0, 0, 0])}, r"`lengths\[0\]` is 9"),
            (
                {"policy": POLICY[0], "old": OLD[0], "lengths": [2, 3], "advantages": [1, 2], "row_mask": [1, 0]},
                "`row_mask` is given with `lengths` of flat rows",
            ),
        ],
    )
    def test_errors(self, options: dict[str, Any], message: str) -> None:
        """Named, with what to do."""
        with pytest.raises(ValueError, match=message):
            loss(**options)


class TestIds:
    """Several ids of a position, and ids that are ignored; the gates judge the numbers."""

    LOGITS = RNG.normal(size=(2, 3, 7))

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_several(self, dtype: Any) -> None:
        """Each has the bits of a call with it alone; the shapes are those of ids and of positions."""
        logits, ids = self.LOGITS.astype(dtype), RNG.integers(0, 7, (2, 3, 4))
        got, entropy = rlkernels.selective_log_softmax(logits, ids, entropy=True)
        want = [rlkernels.selective_log_softmax(logits, ids[..., k]) for k in range(4)]
        assert bits(got) == bits(np.stack(want, axis=-1))
        assert np.shape(entropy) == (2, 3)
        gradient = rlkernels.selective_log_softmax_backward(logits, ids, np.ones((2, 3, 4), got.dtype))
        assert gradient.shape == logits.shape

    def test_one_row(self) -> None:
        """Logits (V,) with ids (K,)."""
        row = self.LOGITS[0, 0]
        got = rlkernels.selective_log_softmax(row, [0, 6])
        assert bits(got) == bits(np.array([rlkernels.selective_log_softmax(row, np.array(i)) for i in (0, 6)]))

    def test_ignored(self) -> None:
        """0, and what stands in their rows is not read; the gradient there is 0."""
        logits, ids = self.LOGITS.copy(), np.array([[0, 1, -100], [-100, 2, 3]])
        logits[ids == -100] = np.nan
        got, entropy = rlkernels.selective_log_softmax(logits, ids, entropy=True, ignore_index=-100)
        gradient = rlkernels.selective_log_softmax_backward(
            logits, ids, np.ones((2, 3)), grad_entropy=np.ones((2, 3)), ignore_index=-100
        )
        ignored = ids == -100
        assert not got[ignored].any()  # type: ignore[index]
        assert not entropy[ignored].any()  # type: ignore[index]
        assert not gradient[ignored].any()
        want = rlkernels.selective_log_softmax(logits[~ignored], ids[~ignored])
        assert bits(got[~ignored]) == bits(want)  # type: ignore[index]
        assert np.isfinite(gradient).all()

    @pytest.mark.parametrize(
        ("ids", "options", "message"),
        [
            ([[0, 1, -100], [0, 0, 0]], {}, r"`ids\[2\]` is -100, must be between 0 and 6 .* or `ignore_index`"),
            ([[0, 1, -100], [0, 0, 0]], {"ignore_index": -1}, r"`ids\[2\]` is -100"),
            ([[0, 1], [0, 0]], {}, r"`ids` has shape \(2, 2\), must be \(2, 3\) like .*, or have one more dimension"),
            (np.zeros((2, 3, 0), int), {}, r"`ids` has shape \(2, 3, 0\)"),
        ],
    )
    def test_errors(self, ids: Any, options: dict[str, Any], message: str) -> None:
        """What an id may be, and the shapes."""
        with pytest.raises(ValueError, match=message):
            rlkernels.selective_log_softmax(self.LOGITS, ids, **options)
