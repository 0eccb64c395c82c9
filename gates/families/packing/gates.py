"""Does packing keep every sequence once, in the bins of its strategy, and cut nothing unless it was asked to?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from gates.families.packing.op import PACK_PIECES, PACK_SEQUENCES
from gates.model import Array, Bound, Case, Evidence, Probe, Trial
from gates.registry import gate
from reference.oracle import packing as oracle

FFD, BFD = oracle.STRATEGIES

KINDS = ("geometric", "ties", "full-bins", "one")
MANY = 1000  # sequences, enough for the two strategies to give different bins
SHORT = {FFD: "", BFD: "-best-fit"}  # first fit was the first strategy, and its cases keep their names


def _make(rng: np.random.Generator, kind: str, strategy: str) -> dict[str, Any]:
    limit = 2048
    if kind == "geometric":
        lengths = np.minimum(rng.geometric(1 / 300, 2000), limit)
    elif kind == "ties":
        lengths = rng.integers(1, 9, 1500) * 256
    elif kind == "full-bins":
        lengths = np.concatenate([np.full(40, limit), np.full(80, limit // 2), rng.integers(0, 3, 50)])
    else:
        lengths = np.array([limit])
    return {"lengths": np.asarray(lengths, np.int64), "max_length": limit, "strategy": strategy, "over_long": "error"}


@gate(
    "packing.bins-hold-every-sequence-once",
    name="pack_sequences",
    question="Does packing fill bins without overflow, lose or repeat nothing, and give the same bins each time?",
    why="A lost sequence is lost data; an overflowing bin is cut later, in silence; unstable ties undo reproducibility.",
    ops=(PACK_SEQUENCES,),
    cases=tuple(
        Case(
            f"{kind}{SHORT[strategy]}",
            partial(_make, kind=kind, strategy=strategy),
            quick=kind in {"ties", "full-bins"},
            conventions={"strategy": strategy, "over_long": "error"},
        )
        for kind, strategy in product(KINDS, oracle.STRATEGIES)
    ),
    bounds={
        "tokens above max_length in the fullest bin": Bound("exact", "a bin holds at most max_length tokens", 0),
        "sequences lost or repeated": Bound("exact", "every sequence is in one bin, once", 0),
        "indices that differ between two calls": Bound(
            "exact", "ties go by original index, so nothing is left to chance", 0
        ),
        "bins above first-fit's guarantee": Bound(
            "derived", "any fit leaves at most one bin half empty or less, so bins ≤ 2·⌈Σ lengths / max_length⌉", 0
        ),
    },
)
def bins_hold_every_sequence_once(t: Trial) -> Iterator[Evidence]:
    """Count what every bin holds, from the lengths alone."""
    lengths, limit = t.inputs["lengths"], t.inputs["max_length"]
    yield t.precondition("tokens in all", int(lengths.sum()), ">=", limit, "an empty pack holds nothing to lose")
    got = t.got(PACK_SEQUENCES, **t.inputs)
    indices, offsets = got["indices"], got["offsets"]
    yield t.number("sequences lost or repeated", _lost(indices, offsets, lengths.size), "<=")
    if offsets.size < 2 or not _is_partition(indices, offsets, lengths.size):
        return  # sums over broken bins add no information
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


def _exact_make(rng: np.random.Generator, kind: str, strategy: str, over_long: str) -> dict[str, Any]:
    if kind == "nothing":
        return {"lengths": np.zeros(0, np.int64), "max_length": 64, "strategy": strategy, "over_long": over_long}
    limit = 1000
    lengths = rng.integers(0, 1400 if over_long == "truncate" else limit + 1, 600)
    if kind == "ties":
        lengths = lengths // 100 * 100
    if (
        kind == "uneven"
    ):  # two or three to a bin, so that later bins are fuller than earlier ones: where first and best fit part
        lengths = np.concatenate([rng.integers(250, 450, 900), rng.integers(1, 120, 300)])
    if over_long == "truncate":
        lengths[::17] += limit
    return {"lengths": lengths, "max_length": limit, "strategy": strategy, "over_long": over_long}


def _exact_cases() -> Iterator[Case]:
    for kind, strategy, over_long in product(("ties", "uneven", "nothing"), oracle.STRATEGIES, oracle.OVER_LONG):
        yield Case(
            f"{kind}-{strategy}-{over_long}",
            partial(_exact_make, kind=kind, strategy=strategy, over_long=over_long),
            quick=True,
            conventions={"strategy": strategy, "over_long": over_long},
        )


@gate(
    "packing.matches-definition",
    name="pack_sequences[bins]",
    question="Are the bins those of first- or best-fit-decreasing, and is the efficiency their tokens over their room?",
    why="A best fit that is a first fit wastes the room it was chosen to save; an efficiency above 1 hides what was cut.",
    ops=(PACK_SEQUENCES,),
    cases=tuple(_exact_cases()),
    bounds={
        "indices and offsets that differ": Bound(
            "exact", "ties go by index, then by bin: nothing is left to choose", 0
        ),
        "efficiency error": Bound("derived", "one division of whole numbers", 2.0**-52),
    },
    probes=(Probe("pack_sequences", ("efficiency",)),),
)
def matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare every index, every offset and the efficiency with the definition."""
    inputs = dict(t.inputs)
    indices, offsets, efficiency = t.want(PACK_SEQUENCES, **inputs)
    if inputs["lengths"].size > MANY:
        other = t.want(PACK_SEQUENCES, **{**inputs, "strategy": BFD if inputs["strategy"] == FFD else FFD})
        yield t.precondition(
            "places that the other strategy fills otherwise", int(np.sum(other[0] != indices)), ">=", 1
        )
    if inputs["lengths"].size:
        tied = inputs["lengths"].size - np.unique(inputs["lengths"]).size
        yield t.precondition("sequences as long as another", tied, ">=", 50)
        cut = int(np.maximum(inputs["lengths"] - inputs["max_length"], 0).sum())
        yield t.precondition("tokens too many", cut, ">=" if inputs["over_long"] == "truncate" else "<=", cut and 1)
    got = t.got(PACK_SEQUENCES, **inputs)
    differing = _differing(got["indices"], indices) + _differing(got["offsets"], offsets)
    yield t.number("indices and offsets that differ", differing, "<=")
    yield t.within("efficiency error", got["efficiency"], efficiency)


def _differing(got: Array, wanted: Array) -> int:
    return int(np.sum(got != wanted)) if got.shape == wanted.shape else max(1, wanted.size)


@gate(
    "packing.truncates-only-by-name",
    name="pack_sequences[over-long]",
    question="Is a sequence longer than a bin an error that names `lengths`, unless truncation was asked for?",
    why="A completion that is cut in silence trains on a sentence without its end.",
    ops=(PACK_SEQUENCES,),
    cases=tuple(
        Case(
            strategy,
            partial(_exact_make, kind="ties", strategy=strategy, over_long="truncate"),
            quick=True,
            conventions={"strategy": strategy},
        )
        for strategy in oracle.STRATEGIES
    ),
    bounds={
        "over-long sequences packed without a word": Bound(
            "exact", "an error unless truncation is asked for by name", 0
        ),
        "errors that do not name `lengths`": Bound("exact", "an error names its argument", 0),
    },
)
def truncates_only_by_name(t: Trial) -> Iterator[Evidence]:
    """Ask for an error and, as the control, for truncation of the same lengths."""
    over = int(np.sum(t.inputs["lengths"] > t.inputs["max_length"]))
    yield t.precondition("over-long sequences", over, ">=", 10)
    asked = t.call(PACK_SEQUENCES, **{**t.inputs, "over_long": "error"})
    silent = asked.kind != "raised"
    yield t.number("over-long sequences packed without a word", over * silent, "<=", where=asked.kind)
    yield t.number("errors that do not name `lengths`", int(not silent and "lengths" not in asked.error), "<=")
    packed = t.got(PACK_SEQUENCES, **t.inputs)["indices"].size
    yield t.negative_control(
        "sequences packed when truncation is asked for", packed, ">=", 10, "refusing all is no answer"
    )


def _piece_inputs(rng: np.random.Generator, strategy: str, kind: str) -> dict[str, Any]:
    limit = 64
    lengths = rng.integers(1, 3 * limit, 300)
    lengths[::11] = 0
    if kind == "whole-bins":
        lengths = rng.integers(0, 4, 60) * limit
    elif kind == "nothing":
        lengths = np.zeros(3, np.int64)
    return {"lengths": lengths, "max_length": limit, "strategy": strategy, "over_long": oracle.SPLIT}


@gate(
    "packing.pieces.match-definition",
    name="pack_sequences[split]",
    question="Split or wrapped, does each token lie in one bin, once, and where the strategy puts it?",
    why="A lost remainder is lost data, most of it ends of answers; a piece with a wrong start trains on another's tokens.",
    ops=(PACK_PIECES,),
    cases=tuple(
        Case(
            f"{kind}-{strategy}",
            partial(_piece_inputs, strategy=strategy, kind=kind),
            quick=True,
            conventions={"strategy": strategy, "over_long": oracle.SPLIT},
        )
        for kind, strategy in product(("uneven", "whole-bins", "nothing"), (*oracle.STRATEGIES, oracle.WRAPPED))
    ),
    bounds={
        "tokens lost or repeated": Bound("exact", "pieces are cut and none is thrown away", 0),
        "tokens above max_length in the fullest bin": Bound("exact", "a bin holds at most max_length tokens", 0),
        "indices, offsets, starts and sizes that differ": Bound(
            "exact", "ties go by piece, then by bin: nothing is left to choose", 0
        ),
        "efficiency error": Bound("derived", "one division of whole numbers", 2.0**-52),
    },
    probes=(Probe("pack_sequences", ("efficiency",)),),
)
def pieces_match_definition(t: Trial) -> Iterator[Evidence]:
    """Count every token from the pieces alone, then compare them with the definition."""
    inputs = dict(t.inputs)
    lengths, limit = inputs["lengths"], inputs["max_length"]
    indices, offsets, efficiency, starts, sizes = t.want(PACK_PIECES, **inputs)
    if lengths.any():
        yield t.precondition("sequences without a token", int(np.sum(lengths == 0)), ">=", 5)
        yield t.precondition("sequences longer than a bin", int(np.sum(lengths > limit)), ">=", 5)
        yield t.precondition("most pieces of a sequence", int(np.bincount(indices).max()), ">=", 3)
    got = t.got(PACK_PIECES, **inputs)
    held = [got[name] for name in ("indices", "starts", "sizes")]
    same = len({part.shape for part in held}) == 1 and _lies_within(held[0], held[1], held[2], lengths)
    counts = np.zeros(int(lengths.sum()) + 1, np.int64)
    if same:
        first = (np.cumsum(lengths) - lengths)[held[0]] + held[1]
        np.add.at(counts, first, 1)
        np.add.at(counts, first + held[2], -1)
    yield t.number("tokens lost or repeated", int(np.sum(np.cumsum(counts)[:-1] != 1)), "<=")
    ends = np.cumsum(np.append(0, held[2]))
    if same and got["offsets"].size and np.all((got["offsets"] >= 0) & (got["offsets"] < ends.size)):
        fullest = int(np.diff(ends[got["offsets"]]).max(initial=0))
        yield t.number("tokens above max_length in the fullest bin", max(0, fullest - limit), "<=")
    wanted = {"indices": indices, "offsets": offsets, "starts": starts, "sizes": sizes}
    differing = sum(_differing(got[name], value) for name, value in wanted.items())
    yield t.number("indices, offsets, starts and sizes that differ", differing, "<=")
    yield t.within("efficiency error", got["efficiency"], efficiency)


def _lies_within(indices: Array, starts: Array, sizes: Array, lengths: Array) -> bool:
    if not np.all((indices >= 0) & (indices < lengths.size)):
        return False
    return bool(np.all((starts >= 0) & (sizes >= 0) & (starts + sizes <= lengths[indices])))
