"""Ops of sequence packing."""

from __future__ import annotations

from gates.model import Op, Output
from reference.oracle import packing

PACK_SEQUENCES = Op(
    name="pack_sequences",
    outputs={
        "indices": Output(kind="i", ndim=1),
        "offsets": Output(kind="i", ndim=1),
        "efficiency": Output(kind="scalar"),
    },
    inputs={
        "lengths": "(N,) int64 tokens of each sequence, at least 0",
        "max_length": "tokens of a bin, at least 1",
        "strategy": '"first-fit-decreasing" or "best-fit-decreasing"; ties by index, and the first of equally full bins',
        "over_long": 'a sequence longer than a bin: "error", or "truncate" to max_length',
    },
    source="D. S. Johnson, Near-optimal bin packing algorithms, 1973",
    formula="bin b is indices[offsets[b]:offsets[b+1]]; efficiency = tokens kept / (bins·max_length), 1.0 without bins",
    oracle=packing.pack_sequences,
)
