"""Arrays of libraries that are not installed here, as far as DLPack shows them."""

from __future__ import annotations

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
    """Answers with whatever it is told to; an exception is raised."""

    def __init__(self, capsule: Any, device: Any = (CPU, 0)) -> None:
        self.capsule = capsule
        self.device = device

    def __dlpack_device__(self) -> Any:
        return _answer(self.device)

    def __dlpack__(self, **_: Any) -> Any:
        return _answer(self.capsule)


def _answer(told: Any) -> Any:
    if isinstance(told, Exception):
        raise told
    return told


def used_capsule() -> Any:
    """A capsule whose memory somebody has taken."""
    kept: list[Any] = []

    class Keeping(Tensor):
        def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **_: Any) -> Any:
            kept.append(self.array.__dlpack__(max_version=max_version))
            return kept[0]

    np.from_dlpack(Keeping(np.arange(3.0)))
    return kept[0]
