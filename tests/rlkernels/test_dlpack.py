"""Arrays of other libraries: read where they lie, or refused with the call that helps."""

from __future__ import annotations

import sys
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from foreign import CUDA, METAL, PINNED, Answering, Fast, Later, Negated, Old, Tensor, Unified, used_capsule

import rlkernels

POLICY = np.array([-1.0, -2.0, -0.5, -3.0])
REFERENCE = np.array([-1.5, -1.0, -0.5, -2.0])
WANT = [0.5, -1.0, 0.0, -1.0]  # k1 = policy - reference


def k1(policy: Any, reference: Any = REFERENCE, **options: Any) -> Any:
    return rlkernels.token_kl(policy, reference, estimator="k1", **options)


class TestAccepted:
    """The same values, whoever holds them."""

    @pytest.mark.parametrize("wrap", [Tensor, Old, Unified, Fast, Later], ids=lambda kind: kind.__name__.lower())
    def test_protocol(self, wrap: Any) -> None:
        """Both versions of the capsule, a GPU whose memory is the CPU's, and tables of C functions."""
        assert k1(wrap(POLICY), wrap(REFERENCE)).tolist() == WANT

    def test_pinned_memory(self) -> None:
        """Pinned memory is the CPU's; NumPy's own capsule says CPU."""
        assert k1(Tensor(POLICY, PINNED)).tolist() == WANT

    def test_read_only(self) -> None:
        """What NumPy may export with a version only."""
        policy = POLICY.copy()
        policy.flags.writeable = False
        assert k1(Tensor(policy)).tolist() == WANT

    @pytest.mark.parametrize("stride", [2, -1])
    def test_strided(self, stride: int) -> None:
        """Any strides; the elements between are not read."""
        wide = np.full(2 * len(POLICY), np.nan)
        wide[::2] = POLICY
        policy = wide[::2] if stride == 2 else POLICY[::-1].copy()[::-1]
        assert k1(Tensor(policy)).tolist() == WANT

    def test_two_dimensions_with_mask_and_lengths(self) -> None:
        """Booleans and integers come the same way."""
        policy, reference = Tensor(POLICY.reshape(2, 2)), Tensor(REFERENCE.reshape(2, 2))
        masked = k1(policy, reference, mask=Tensor(np.array([[True, False], [True, True]])))
        assert masked.tolist() == [[0.5, 0], [0, -1]]
        for dtype in (np.int8, np.int32, np.int64, np.uint16, np.uint64):
            assert k1(policy, reference, lengths=Tensor(np.array([1, 0], dtype))).tolist() == [[0.5, 0], [0, 0]]

    def test_empty(self) -> None:
        """No elements, whose memory may be nowhere."""
        assert k1(Tensor(np.empty(0)), np.empty(0)).tolist() == []
        assert k1(Tensor(np.empty((3, 0))), np.empty((3, 0))).shape == (3, 0)

    def test_the_memory_is_read_in_place(self) -> None:
        """Without a copy, `out` may not be the tensor's memory."""
        policy = POLICY.copy()
        with pytest.raises(ValueError, match="`out` shares memory with an input"):
            k1(Tensor(policy), out=policy)

    @pytest.mark.parametrize("wrap", [Tensor, Old, Fast], ids=lambda kind: kind.__name__.lower())
    def test_the_memory_is_released(self, wrap: Any) -> None:
        """No reference to it is left behind."""
        policy = POLICY.copy()
        tensor = wrap(policy)
        before = _references(policy)
        for _ in range(10):
            k1(tensor)
            with pytest.raises(ValueError, match="reference"):
                k1(tensor, np.zeros(3))
        assert _references(policy) == before


def _references(array: Any) -> int:
    return sys.getrefcount(array)


class TestMlx:
    """MLX arrays, lazy or not."""

    def test_lazy(self) -> None:
        """An expression is evaluated by the call."""
        policy, reference = (mx.array(a.astype(np.float32)) for a in (POLICY, REFERENCE))
        got = k1(policy + 1, reference + 1)
        assert (got.dtype, got.tolist()) == (np.float32, WANT)

    def test_transposed(self) -> None:
        """A transposed array is read by its strides."""
        policy = mx.array(POLICY.astype(np.float32).reshape(2, 2))
        got = k1(policy.T, REFERENCE.astype(np.float32).reshape(2, 2).T)
        assert got.tolist() == [[0.5, 0], [-1, -1]]

    def test_mask_and_lengths(self) -> None:
        """MLX booleans and integers."""
        policy, reference = (mx.array(a.astype(np.float32).reshape(2, 2)) for a in (POLICY, REFERENCE))
        assert k1(policy, reference, lengths=mx.array([1, 2])).tolist() == [[0.5, 0], [0, -1]]
        assert k1(policy, reference, mask=policy < -0.75).tolist() == [[0.5, -1], [0, -1]]

    def test_bfloat16(self) -> None:
        """It is not taken for the float16 of the same size, and is float32 beside float64."""
        half = mx.array(POLICY.astype(np.float32)).astype(mx.bfloat16)
        assert k1(half, REFERENCE.astype(np.float32)).tolist() == WANT
        with pytest.raises(TypeError, match="`policy` is float32 and `reference` is float64, must be the same type"):
            k1(half)


class TestRefused:
    """A clear error that says what helps."""

    @pytest.mark.parametrize(("device", "shown"), [(CUDA, "a CUDA device"), (METAL, "a Metal device"), (14, "kind 14")])
    def test_other_devices(self, device: int, shown: str) -> None:
        """Nothing is copied from a device behind the caller's back."""
        with pytest.raises(
            ValueError, match=rf"`policy` is a foreign.Tensor of float64 on .*{shown}, .* policy.cpu\(\)"
        ):
            k1(Tensor(POLICY, device))

    def test_gradients(self) -> None:
        """A tensor that requires grad would silently lose it."""
        with pytest.raises(ValueError, match=r"`reference` is .* that requires grad, .* pass reference.detach\(\)"):
            k1(POLICY, Tensor(REFERENCE, requires_grad=True))

    def test_negated_views(self) -> None:
        """What torch exports of `conj().imag` is memory whose sign is still to be applied: a silent mistake."""
        with pytest.raises(
            ValueError, match=r"`policy` is .* negated view, must be resolved; pass policy.resolve_neg\(\)"
        ):
            k1(Negated(POLICY))

    def test_a_table_that_refuses(self) -> None:
        """The Python method is asked, which gives the reason; of a long one the first line is shown."""
        tensor = Fast(POLICY)
        tensor.refuses = True
        with pytest.raises(ValueError, match=r"\(the Python method was called\)"):
            k1(tensor)
        with pytest.raises(ValueError, match=r"\(first line\); convert"):
            k1(Answering(BufferError("first line\nsecond line")))

    @pytest.mark.parametrize("dtype", [np.int64, np.complex128, bool])
    def test_other_types(self, dtype: Any) -> None:
        """The type is named as its library names it."""
        with pytest.raises(
            TypeError, match=rf"`policy` is a foreign.Tensor of {np.dtype(dtype)}, must be .* its own library"
        ):
            k1(Tensor(POLICY.astype(dtype)))

    @pytest.mark.parametrize(
        "value",
        [
            pytest.param(Answering(BufferError("not today")), id="export-raises"),
            pytest.param(Answering(TypeError("no arguments, please")), id="type-error-twice"),
            pytest.param(Answering(None), id="no-capsule"),
            pytest.param(Answering(np.arange(3.0)), id="array-for-capsule"),
            pytest.param(Answering(None, None), id="no-device"),
            pytest.param(Answering(None, (1, 2, 3)), id="device-of-three"),
            pytest.param(Answering(None, ("cpu", 0)), id="device-by-name"),
            pytest.param(Answering(None, OSError("lost")), id="device-raises"),
            pytest.param(Answering(used_capsule()), id="used-capsule"),
            pytest.param(Tensor(np.zeros(3, ">f8")), id="big-endian"),
            pytest.param(Tensor, id="class"),
        ],
    )
    def test_broken_exporters(self, value: Any) -> None:
        """The library's own refusal is passed on, with the argument's name."""
        with pytest.raises(ValueError, match=r"`policy` is a .*, must be readable through DLPack"):
            k1(value)
