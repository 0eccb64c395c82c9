"""Arrays of libraries that are not installed here, as far as DLPack shows them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

CPU, CUDA, PINNED, METAL = 1, 2, 3, 8


class Tensor:
    """Offers DLPack and nothing else, as a torch tensor on the CPU does."""

    def __init__(self, array: Array, device: int = CPU, *, requires_grad: bool = False) -> None:
        self.array = array
        self.dtype = array.dtype
        self.device = device
        self.requires_grad = requires_grad

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device, 0)

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> Any:
        return self.array.__dlpack__(max_version=max_version)


class Old(Tensor):
    """From before DLPack 1.0: its method knows no version."""

    def __dlpack__(self, stream: None = None) -> Any:  # type: ignore[override]
        return self.array.__dlpack__()


class Negated(Tensor):
    """Its memory holds the values with the other sign, as that of torch's `conj().imag` does; DLPack cannot say so."""

    def is_neg(self) -> bool:
        """As torch says it."""
        return True


class Fast(Tensor):
    """Offers DLPack's table of C functions, as torch 2.15 does; its Python method says that it was called."""

    refuses = False

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("the Python method was called")


_PYTHON = ctypes.pythonapi
_PYTHON.PyCapsule_GetPointer.restype = ctypes.c_void_p
_PYTHON.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_PYTHON.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_PYTHON.PyCapsule_New.restype = ctypes.py_object
_PYTHON.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
def _from_object(tensor: Fast, result: Any) -> int:
    """`managed_tensor_from_py_object_no_sync`: the caller owns the tensor from here on."""
    if tensor.refuses:
        return -1
    capsule = tensor.array.__dlpack__(max_version=(1, 0))
    result[0] = _PYTHON.PyCapsule_GetPointer(capsule, b"dltensor_versioned")
    _PYTHON.PyCapsule_SetName(capsule, b"used_dltensor_versioned")
    return 0


class _Table(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocator", ctypes.c_void_p),
        ("from_object", ctypes.c_void_p),
        ("to_object", ctypes.c_void_p),
        ("view", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )


def _table(major: int) -> Any:
    table = _Table(major=major, minor=3, from_object=ctypes.cast(_from_object, ctypes.c_void_p).value)
    _KEPT.append(table)
    return _PYTHON.PyCapsule_New(ctypes.addressof(table), b"dlpack_exchange_api", None)


_KEPT: list[Any] = []  # capsules of tables do not own them
Fast.__dlpack_c_exchange_api__ = _table(1)  # type: ignore[attr-defined]


class Later(Tensor):
    """A table of a version to come, beside methods of today."""

    __dlpack_c_exchange_api__ = _table(2)


class Unified(bytearray):
    """On a GPU that shares the CPU's memory, which the buffer protocol shows: MLX on Apple's machines."""

    def __init__(self, array: Array) -> None:
        super().__init__(1)
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (METAL, 0)

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> Any:
        return self.array.__dlpack__(max_version=max_version)


class Answering:
    """Return a fixed answer; raise it if it is an exception."""

    def __init__(self, capsule: Any, device: Any = (CPU, 0)) -> None:
        self.capsule = capsule
        self.device = device

    def __dlpack_device__(self) -> Any:
        return _answer(self.device)

    def __dlpack__(self, **_: Any) -> Any:
        return _answer(self.capsule)


def _answer(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


def used_capsule() -> Any:
    """A capsule whose memory somebody has taken."""
    kept: list[Any] = []

    class Keeping(Tensor):
        def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **_: Any) -> Any:
            kept.append(self.array.__dlpack__(max_version=max_version))
            return kept[0]

    np.from_dlpack(Keeping(np.arange(3.0)))
    return kept[0]
