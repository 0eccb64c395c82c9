"""Ops of sequence packing."""

from __future__ import annotations

from dataclasses import replace

from gates.families.packing import textbook
from gates.model import Op, Output
from gates_reference.oracle import packing

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
        "strategy": '"first-fit-decreasing" or "best-fit-decreasing", with ties in any order; '
        'with "split" also "wrapped": one sequence after the other, cut where bins end',
        "over_long": 'a sequence longer than a bin: "error", "truncate" to max_length, or "split" into pieces of it',
    },
    source="D. S. Johnson, Near-optimal bin packing algorithms, 1973; pieces: TRL's bfd_split and wrapped",
    formula="bin b is indices[offsets[b]:offsets[b+1]]; efficiency = tokens kept / (bins·max_length), 1.0 without bins; "
    "with `order` as-placed bins lie as they were opened, sequences as they were placed, ties by index and by bin",
    oracle=packing.pack_sequences,
    textbook=textbook.pack_sequences,
    key=("strategy", "over_long"),
)
PACK_PIECES = replace(
    PACK_SEQUENCES,
    outputs={**PACK_SEQUENCES.outputs, "starts": Output(kind="i", ndim=1), "sizes": Output(kind="i", ndim=1)},
    formula="piece j is tokens starts[j] to starts[j] + sizes[j] of sequence indices[j]; bins as without pieces",
)
