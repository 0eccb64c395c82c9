"""Packing many sequences into bins."""

from __future__ import annotations

import numpy as np

from benches import inputs
from benches.versus import proof, statements
from benches.versus.model import Row, Side
from reference.oracle import packing as oracle

OP = "pack_sequences"
GOAL = 5.0
BINS = "decreasing fits use at most 11/9 of the best number of bins + 1 (Johnson 1973); the best is at least ⌈Σ/max⌉"
SLOW_ROUNDS = 3  # rlox takes two minutes for a million sequences


def rows():
    """Best fit against TRL, first fit against rlox."""
    found = []
    for shape, count in inputs.LENGTHS.items():
        common = {"needs": ("pack_sequences",), "reads": 8 * count, "writes": 8 * count, "quick": shape == "1000"}
        common["goal"] = None if shape == "1000" else GOAL
        best, first = (lambda shape=shape, fit=fit: _ours(shape, fit) for fit in ("best", "first"))
        found.append(Row(f"{OP} best-fit", shape, "TRL", best, (lambda shape=shape: _trl(shape),), **common))
        common["most_rounds"] = SLOW_ROUNDS if count >= 1_000_000 else 1000
        found.append(Row(f"{OP} first-fit", shape, "rlox", first, (lambda shape=shape: _rlox(shape),), **common))
    return sorted(found, key=lambda row: row.op)


def _valid(name, lengths, bins):
    least = oracle.lower_bound(lengths, inputs.LONGEST)
    problems = oracle.check_packing(lengths, inputs.LONGEST, bins)
    return [
        proof.equal(f"{name}: problems of the packing", len(problems), 0, "every sequence once, no bin too full"),
        proof.at_most(f"{name}: bins", len(bins), 11 / 9 * least + 1, BINS),
    ]


def _ours(shape, fit):
    import rlkernels

    lengths = inputs.lengths(shape)
    option = ', strategy="best-fit-decreasing"' if fit == "best" else ""

    def verify(got):
        indices, offsets = got[:2]
        return _valid("ours", lengths, np.split(indices, offsets[1:-1]))

    names = {"pack_sequences": rlkernels.pack_sequences, "lengths": lengths}
    return Side(f"pack_sequences(lengths, {inputs.LONGEST}{option})", names, verify)


def _trl(shape):
    import pyarrow as pa
    from trl import data_utils

    lengths = inputs.lengths(shape)
    pack = statements.cut(
        data_utils._pack_bfd, "ids = np.arange", "for length, idx in", ("examples", "lengths", "seq_length"), "bins"
    )
    names = {"pack": pack, "examples": range(len(lengths)), "lengths": pa.array(lengths.astype(np.int32))}
    # Of `examples` the statements ask for its len() only.
    note = "the statements of trl.data_utils._pack_bfd from ids to the end of its loop: the bins alone, no tokens moved"
    verify = lambda got: _valid("TRL", lengths, [bin_["ids"] for bin_ in got])  # noqa: E731  a line
    return Side(f"pack(examples, lengths, {inputs.LONGEST})", names, verify, note)


def _rlox(shape):
    from rlox import _rlox_core

    lengths = inputs.lengths(shape)
    tokens = np.arange(inputs.LONGEST, dtype=np.uint32)
    names = {"pack_sequences": _rlox_core.pack_sequences, "sequences": [tokens[:length] for length in lengths]}

    def verify(got):
        packed = [np.diff([*bin_["sequence_starts"], len(bin_["input_ids"])]) for bin_ in got]
        least = oracle.lower_bound(lengths, inputs.LONGEST)
        same = np.array_equal(np.sort(np.concatenate(packed)), np.sort(lengths))
        return [
            proof.equal("rlox: the packed lengths are those given", same, 1, "every sequence once"),
            proof.at_most(
                "rlox: tokens of the fullest bin", max(map(np.sum, packed)), inputs.LONGEST, "no bin too full"
            ),
            proof.at_most("rlox: bins", len(packed), 11 / 9 * least + 1, BINS),
        ]

    note = "it takes whole sequences and returns tokens, masks and positions: the copying is in its time"
    return Side(f"pack_sequences(sequences, {inputs.LONGEST})", names, verify, note)
