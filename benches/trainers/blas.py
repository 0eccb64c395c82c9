"""One fast BLAS for every MLX target, since MLX's wheels for Linux have the reference BLAS, 30 times slower than OpenBLAS."""

from __future__ import annotations

import ctypes.util
import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from gates_reference import tiny

SOURCE: Final = Path(__file__).with_suffix(".c")


@dataclass(frozen=True, slots=True)
class Blas:
    """The library loaded before MLX (a value of LD_PRELOAD, or empty), and its name in a record."""

    preload: str
    name: str


@cache
def chosen() -> Blas:
    """Return this system's OpenBLAS, else that of NumPy's wheel, else MLX's own (always on a Mac)."""
    if sys.platform != "linux":
        return Blas("", "MLX's own")
    if library := ctypes.util.find_library("openblas"):
        return Blas(library, f"OpenBLAS of this system ({library})")
    import numpy as np

    compiler = shutil.which("cc")
    bundled = sorted(Path(np.__file__).parents[1].glob("numpy.libs/libscipy_openblas64*.so"))
    if compiler is None or not bundled:
        return Blas("", "MLX's own: this system has no OpenBLAS, and NumPy's cannot be used")
    return Blas(str(_built(compiler, bundled[0])), f"OpenBLAS of NumPy {np.__version__}")


def _built(compiler: str, library: Path) -> Path:
    """Return the shared object built from `blas.c`, cached with the built models."""
    key = hashlib.sha256(SOURCE.read_bytes() + str(library).encode()).hexdigest()[:24]

    def build(half: Path) -> None:
        out = str(half / "blas.so")
        line = [
            compiler,
            "-O2",
            "-shared",
            "-fPIC",
            "-o",
            out,
            str(SOURCE),
            str(library),
            f"-Wl,-rpath,{library.parent}",
        ]
        subprocess.run(line, check=True, capture_output=True)

    return tiny.cached(f"blas-{key}", build) / "blas.so"
