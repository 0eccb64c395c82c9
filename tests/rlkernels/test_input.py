"""How arrays of every layout and type come in: read in place, copied, or refused with a remedy."""

from __future__ import annotations

import mmap
import sys
import threading
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import rlkernels

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]


def strided(values: Array) -> Array:
    """Every other element of a longer array."""
    return np.repeat(values, 2, axis=-1)[..., ::2]


def reversed_twice(values: Array) -> Array:
    """Negative strides."""
    return values[..., ::-1].copy()[..., ::-1]


def fortran(values: Array) -> Array:
    """Column-major."""
    return np.asfortranarray(values)


def read_only(values: Array) -> Array:
    """Not writable."""
    values = values.copy()
    values.flags.writeable = False
    return values


def big_endian(values: Array) -> Array:
    """The other byte order on every machine that we run on."""
    return values.astype(values.dtype.newbyteorder(">"))


def misaligned(values: Array) -> Array:
    """One byte off."""
    buffer = np.empty(values.nbytes + 1, np.uint8)[1:]
    result: Array = buffer.view(values.dtype).reshape(values.shape)
    result[...] = values
    assert not result.flags.aligned or values.itemsize == 1
    return result


LAYOUTS = [strided, reversed_twice, fortran, read_only, big_endian, misaligned]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
class TestLayouts:
    """The layout of an array changes nothing."""

    def test_rewards(self, layout: Callable[[Array], Array], dtype: Any) -> None:
        """Advantages have the same bits, and the input keeps its values."""
        rewards = np.random.default_rng(1).normal(size=24).astype(dtype)
        laid_out = layout(rewards)
        want = rlkernels.group_advantages(rewards, 4)
        got = rlkernels.group_advantages(laid_out, 4)
        assert (got.dtype, got.tobytes()) == (want.dtype, want.tobytes())
        assert np.array_equal(laid_out, rewards)

    def test_log_probabilities_mask_and_lengths(self, layout: Callable[[Array], Array], dtype: Any) -> None:
        """KL has the same bits, whatever the layout of any of its arrays."""
        generator = np.random.default_rng(2)
        policy, reference = generator.normal(size=(2, 5, 6)).astype(dtype)
        mask = generator.random((5, 6)) < 0.5
        lengths = np.array([0, 1, 3, 6, 2])
        options: list[tuple[dict[str, Any], dict[str, Any]]] = [
            ({"mask": mask}, {"mask": layout(mask)}),
            ({"lengths": lengths}, {"lengths": layout(lengths)}),
        ]
        for plain, laid_out in options:
            want = rlkernels.token_kl(policy, reference, estimator="k3", **plain)
            got = rlkernels.token_kl(layout(policy), layout(reference), estimator="k3", **laid_out)
            assert (got.dtype, got.tobytes()) == (want.dtype, want.tobytes())


class TestTypes:
    """Nothing is converted silently."""

    @pytest.mark.parametrize(
        ("rewards", "found"),
        [
            pytest.param(np.array([1, 0], np.float16), "an array of float16", id="half"),
            pytest.param(np.array([1, 0], ml_dtypes.bfloat16), "an array of bfloat16", id="bfloat16"),
            pytest.param(np.array([1, 0], np.longdouble), "an array of (float128|longdouble|float64)", id="long"),
            pytest.param(np.array([1, 0], complex), "an array of complex128", id="complex"),
            pytest.param(np.array([1, 0], object), "an array of object", id="objects"),
            pytest.param(np.array(["a"]), "an array of <U1", id="text"),
            pytest.param(1.0, "of type float", id="number"),
            pytest.param(None, "of type NoneType", id="none"),
        ],
    )
    def test_type_error(self, rewards: Any, found: str) -> None:
        """The message says what was found and how to convert it."""
        if type(rewards) is np.ndarray and rewards.dtype == np.float64:
            pytest.skip("long double is float64 on this machine")
        with pytest.raises(TypeError, match=rf"`rewards` is {found}, must be .* convert it with numpy.asarray"):
            rlkernels.group_advantages(rewards, 2)

    def test_rewards_have_one_dimension(self) -> None:
        """A matrix of rewards and a 0-d array are refused with their shape."""
        with pytest.raises(ValueError, match=r"`rewards` has shape \(2, 2\), must have one dimension"):
            rlkernels.group_advantages(np.zeros((2, 2)), 2)
        with pytest.raises(ValueError, match=r"`rewards` has shape \(\), must have one dimension"):
            rlkernels.group_advantages(np.array(1.0), 1)

    def test_a_boolean_of_any_byte_is_true(self) -> None:
        """A mask viewed from bytes counts every non-zero byte, as NumPy does."""
        mask = np.array([0, 1, 2, 255], np.uint8).view(bool)
        got = rlkernels.token_kl(np.ones(4), np.zeros(4), estimator="k1", mask=mask)
        assert got.tolist() == [0, 1, 1, 1]

    def test_group_size_may_be_a_numpy_integer(self) -> None:
        """What `len` and shapes yield is welcome, a float is not."""
        assert rlkernels.group_advantages(np.array([1.0, 3.0]), np.int64(2), eps=0.0, ddof=0).tolist() == [-1, 1]
        with pytest.raises(TypeError, match="`group_size` is of type float, must be an integer"):
            rlkernels.group_advantages(np.array([1.0, 3.0]), 2.0)


class TestScalars:
    """Arguments that are one number or one word name themselves."""

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            pytest.param(
                {"group_size": 2.0}, TypeError, "`group_size` is of type float, must be an integer", id="float"
            ),
            pytest.param({"group_size": None}, TypeError, "`group_size` is of type NoneType, must be an", id="none"),
            pytest.param(
                {"group_size": 2**64}, ValueError, "is 18446744073709551616, must fit into 64 bits", id="wide"
            ),
            pytest.param(
                {"group_size": 10**999}, ValueError, "is a number of hundreds of digits, must fit", id="wider"
            ),
            pytest.param({"eps": "1e-4"}, TypeError, "`eps` is of type str, must be a number", id="text-for-number"),
            pytest.param({"eps": 10**309}, ValueError, "`eps` is a number of .*, must fit into float64", id="huge"),
            pytest.param({"scale": 1}, TypeError, "`scale` is of type int, must be a string", id="number-for-text"),
            pytest.param({"scale": "\ud800"}, ValueError, "`scale` holds half a surrogate pair", id="surrogate"),
            pytest.param({"scale": "Group"}, ValueError, '`scale` is "Group", must be one of "group"', id="case"),
        ],
    )
    def test_errors(self, options: dict[str, Any], error: type[Exception], message: str) -> None:
        """Expected and found; beyond the range is a wrong value like any other."""
        with pytest.raises(error, match=message):
            rlkernels.group_advantages(**{"rewards": np.array([1.0, 2.0]), "group_size": 2, **options})


class TestSize:
    """Large inputs, with and without the GIL, and huge ones."""

    def test_a_huge_copy_is_refused(self) -> None:
        """2**31 elements that cannot be read in place would take 8 GiB and more: the remedy is the caller's to choose."""
        policy = np.broadcast_to(np.float32(0), (2, 2**30))
        message = "`policy` has 2147483648 elements and cannot be read in place, .* numpy.ascontiguousarray"
        with pytest.raises(ValueError, match=message):
            rlkernels.token_kl(policy, policy, estimator="k1")
        lengths = np.broadcast_to(np.int64(1), (2**31,))
        with pytest.raises(ValueError, match="`lengths` has 2147483648 elements and cannot be read in place"):
            rlkernels.pack_sequences(lengths, 1)

    @pytest.mark.parametrize("huge", [2**31, 2**32 + 1, 2**40, 2**63 - 1])
    def test_numbers_beyond_32_bits(self, huge: int) -> None:
        """Sizes, ids and lengths are 64 bits wide: refused with their value where they do not fit, else exact."""
        row = np.zeros((1, 4))
        for call, message in (
            (lambda: rlkernels.group_advantages(np.zeros(4), huge), f"must be a multiple of `group_size` {huge}"),
            (lambda: rlkernels.selective_log_softmax(row, [huge]), rf"`ids\[0\]` is {huge}, must be between 0 and 3"),
            (lambda: rlkernels.token_kl(row, row, estimator="k1", lengths=[huge]), rf"`lengths\[0\]` is {huge}"),
            (lambda: rlkernels.token_kl(row[0], row[0], estimator="k1", lengths=[huge, huge]), rf"is {huge}"),
            (
                lambda: rlkernels.policy_loss(
                    row, advantages=[1.0], algorithm="dapo", dapo_denominator="group", group_size=huge
                ),
                f"`group_size` is {huge}, must divide 1",
            ),
        ):
            with pytest.raises(ValueError, match=message):
                call()  # type: ignore[no-untyped-call]
        loss = rlkernels.policy_loss(row, advantages=[1.0], algorithm="dr_grpo", max_length=huge)
        assert loss.loss == -4.0 / huge
        indices, offsets, _ = rlkernels.pack_sequences([huge, 1, huge // 2], huge)
        assert (indices.tolist(), offsets.tolist()) == ([0, 2, 1], [0, 1, 3])

    @pytest.mark.parametrize("shape", [(2**31, 1), (2**16, 2**16), (2**31, 0), (2**40, 0)])
    def test_huge_views_of_one_element(self, shape: tuple[int, int]) -> None:
        """2**31 rows or elements with strides of 0: refused before anything is made of their size."""
        logits, ids = np.broadcast_to(np.float32(0), shape), np.broadcast_to(np.int64(0), shape[:1])
        mask = np.broadcast_to(np.int8(1), shape)
        for call in (
            lambda: rlkernels.selective_log_softmax(logits, ids),
            lambda: rlkernels.token_kl(logits, logits, estimator="k1", mask=mask),
            lambda: rlkernels.group_advantages(np.broadcast_to(np.int8(1), (2**31,)), 2),
        ):
            with pytest.raises(ValueError, match=r"fewer than 2\*\*31|vocabulary of at least 1"):
                call()  # type: ignore[no-untyped-call]

    @pytest.mark.slow
    @pytest.mark.skipif(sys.platform != "linux", reason="pages of zeros that take no memory are Linux's")
    def test_a_huge_array_is_read_in_place(self) -> None:
        """2**31 + 2 elements, past every 32-bit index; all but the last are one page of zeros, mapped again and again."""
        no_reserve = 0x4000  # Linux's MAP_NORESERVE, which the module mmap does not name
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
        count = 2**31 + 2
        policy, reference = (
            np.frombuffer(mmap.mmap(-1, 4 * count, flags=flags), np.float32).reshape(2, -1) for _ in range(2)
        )
        policy[1, -1] = 4.0
        lengths = np.array([0, count // 2])  # the second row alone, up to its end
        got = rlkernels.token_kl(policy, reference, estimator="k1", lengths=lengths, reduction="sum")
        assert got.tolist() == [0, 4]

    def test_more_than_eight_dimensions(self) -> None:
        """Shapes stand on the stack."""
        with pytest.raises(ValueError, match="`policy` has 9 dimensions, must have at most 8; reshape it"):
            rlkernels.token_kl(np.zeros((1,) * 9), np.zeros((1,) * 9), estimator="k1")

    def test_a_million_rewards(self) -> None:
        """A large input gives what its pieces give."""
        rewards = np.random.default_rng(4).normal(size=2**20)
        whole = rlkernels.group_advantages(rewards, 16)
        pieces = [rlkernels.group_advantages(piece, 16) for piece in np.split(rewards, 1024)]
        assert np.array_equal(whole, np.concatenate(pieces))

    def test_threads_get_the_same_bits(self) -> None:
        """Several threads on the same read-only data do not disturb each other."""
        policy, reference = np.random.default_rng(5).normal(size=(2, 64, 512))
        want = rlkernels.token_kl(policy, reference, estimator="k3").tobytes()
        results: list[bytes] = []

        def work() -> None:
            results.extend(rlkernels.token_kl(policy, reference, estimator="k3").tobytes() for _ in range(5))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [want] * 20
