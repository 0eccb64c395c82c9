"""The op that runs a kernel on every instruction set of the machine."""

from __future__ import annotations

from gates.model import Op, Output

KERNEL_BITS = Op(
    name="kernel_bits",
    outputs={"bits": Output(kind="i", ndim=2)},
    inputs={"kernel": "the name of another op", "inputs": "its inputs"},
    source="one body, many machines: scalar, AVX2, AVX-512 and NEON, any number of threads, the same bits",
    formula="`variants`, instruction set and threads; `bits` (variants, bytes), all outputs of each as they lie in memory",
)
