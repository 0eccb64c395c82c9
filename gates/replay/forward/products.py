"""Matrix products, small ones without threads.

OpenBLAS, which NumPy's wheels contain, shares a product of more than 2¹⁸ multiply-adds among threads, and one with a vector from
9,216 on (interface/gemm.c and interface/gemv.c). The judge runs beside its workers, where a thread waits for a core: log-probs of
16 rows of 24 tokens under a tiny Qwen3 with adapters took 20 ms of processor time with threads, and take 5 in blocks below these
sizes. Products with large matrices keep their threads.
"""

from itertools import pairwise
from typing import Final

import numpy as np

from gates.replay.forward.arrays import Array

MATRIX: Final = 1 << 18
"""The most multiply-adds of a product of matrices without threads."""
VECTOR: Final = 9216
"""The fewest multiply-adds of a product with a vector for which there are threads."""
ROWS: Final = 8
"""The fewest rows of a block: matrices that would need fewer are large."""


def product(x: Array, matrix: Array) -> Array:
    """Return x @ matrix for x (…, inputs) and a matrix (inputs, outputs)."""
    inputs, outputs = matrix.shape
    flat = x.reshape(-1, inputs)
    rows = (VECTOR - 1) // inputs if outputs == 1 else MATRIX // matrix.size
    if len(flat) <= rows or rows < ROWS:
        return np.asarray(flat @ matrix).reshape(*x.shape[:-1], outputs)
    y = np.empty((len(flat), outputs))
    blocks = -(-len(flat) // rows)
    bounds = [len(flat) * n // blocks for n in range(blocks + 1)]  # even ones, so that none is a single row
    for start, end in pairwise(bounds):
        np.matmul(flat[start:end], matrix, out=y[start:end])
    return y.reshape(*x.shape[:-1], outputs)
