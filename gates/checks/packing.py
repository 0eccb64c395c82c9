"""Does packing keep every sequence once, in bins that never overflow, the same way each time?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from gates.checks.ops import PACK_SEQUENCES
from gates.model import Array, Bound, Case, Evidence, Trial
from gates.registry import gate


def _make(rng: np.random.Generator, kind: str) -> dict[str, Any]:
    limit = 2048
    if kind == "geometric":
        lengths = np.minimum(rng.geometric(1 / 300, 2000), limit)
    elif kind == "ties":
        lengths = rng.integers(1, 9, 1500) * 256
    elif kind == "full-bins":
        lengths = np.concatenate([np.full(40, limit), np.full(80, limit // 2), rng.integers(0, 3, 50)])
    else:
        lengths = np.array([limit])
    return {"lengths": np.asarray(lengths, np.int64), "max_length": limit}


@gate(
    "packing.bins-hold-every-sequence-once",
    name="pack_sequences",
    question="Does packing fill bins without overflow, lose or repeat nothing, and give the same bins each time?",
    why="A lost sequence is lost data; an overflowing bin is cut later, in silence; unstable ties undo reproducibility.",
    ops=(PACK_SEQUENCES,),
    cases=tuple(
        Case(k, partial(_make, kind=k), quick=k in {"ties", "full-bins"})
        for k in ("geometric", "ties", "full-bins", "one")
    ),
    bounds={
        "tokens above max_length in the fullest bin": Bound("exact", "a bin holds at most max_length tokens", 0),
        "sequences lost or repeated": Bound("exact", "every sequence is in one bin, once", 0),
        "indices that differ between two calls": Bound(
            "exact", "ties go by original index, so nothing is left to chance", 0
        ),
        "bins above first-fit's guarantee": Bound(
            "derived", "first fit leaves at most one bin half empty or less, so bins ≤ 2·⌈Σ lengths / max_length⌉", 0
        ),
    },
)
def bins_hold_every_sequence_once(t: Trial) -> Iterator[Evidence]:
    """Count what every bin holds, from the lengths alone."""
    lengths, limit = t.inputs["lengths"], t.inputs["max_length"]
    yield t.signal("tokens in all", int(lengths.sum()), ">=", limit, "an empty pack holds nothing to lose")
    got = t.got(PACK_SEQUENCES, **t.inputs)
    indices, offsets = got["indices"], got["offsets"]
    yield t.number("sequences lost or repeated", _lost(indices, offsets, lengths.size), "<=")
    if offsets.size < 2 or not _is_partition(indices, offsets, lengths.size):
        return  # sums over broken bins would say nothing more
    fills = np.add.reduceat(np.append(lengths[indices], 0), offsets[:-1])
    yield t.number("tokens above max_length in the fullest bin", max(0, int(fills.max()) - limit), "<=")
    again = t.got(PACK_SEQUENCES, **t.inputs)
    same = again["indices"].shape == indices.shape and again["offsets"].shape == offsets.shape
    differing = int(np.sum(again["indices"] != indices) + np.sum(again["offsets"] != offsets)) if same else lengths.size
    yield t.number("indices that differ between two calls", differing, "<=")
    guarantee = max(1, 2 * -(-int(lengths.sum()) // limit))
    yield t.number("bins above first-fit's guarantee", max(0, offsets.size - 1 - guarantee), "<=")


def _is_partition(indices: Array, offsets: Array, size: int) -> bool:
    return bool(offsets[0] == 0 and offsets[-1] == size and np.all(np.diff(offsets) > 0) and indices.size == size)


def _lost(indices: Array, offsets: Array, size: int) -> int:
    valid = indices[(indices >= 0) & (indices < size)]
    counts = np.bincount(valid.astype(np.int64), minlength=size)
    wrong = int(np.sum(counts != 1)) + (indices.size - valid.size)
    return wrong + int(not _is_partition(indices, offsets, size))
