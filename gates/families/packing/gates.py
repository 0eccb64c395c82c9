"""Does packing keep every sequence once, in the bins of its strategy, and truncate only on request?

Bins are compared by content, up to ties: free are their order, the order within a bin, the placement of sequences of equal
length, and with best fit the choice among equally full bins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np

from gates.families.packing.op import PACK_PIECES, PACK_SEQUENCES
from gates.model import Array, Bound, Case, Draw, Evidence, Probe, Trial
from gates.registry import gate
from gates_reference.oracle import packing as oracle

FFD, BFD = oracle.STRATEGIES

KINDS = ("geometric", "ties", "full", "one")
ORDER = {"order": "as-placed"}  # a convention that fixes all ties
EFFICIENCY = "efficiency error"
MANY = 1000  # sequences, enough for the two strategies to give different bins
SHORT = {FFD: "", BFD: "-best-fit"}  # first fit came first; the names of its cases are recorded


def _make(rng: np.random.Generator, kind: str, strategy: str) -> dict[str, Any]:
    limit = 2048
    if kind == "geometric":
        lengths = np.minimum(rng.geometric(1 / 300, 2000), limit)
    elif kind == "ties":
        lengths = rng.integers(1, 9, 1500) * 256
    elif kind == "full":
        lengths = np.concatenate([np.full(40, limit), np.full(80, limit // 2), rng.integers(1, 3, 50)])
    else:
        lengths = np.array([limit])
    return {"lengths": np.asarray(lengths, np.int64), "max_length": limit, "strategy": strategy, "over_long": "error"}


def _holds_tokens(t: Draw) -> Iterator[Evidence]:
    tokens, because = int(t.inputs["lengths"].sum()), "an empty pack holds nothing to lose"
    yield t.precondition("tokens in all", tokens, ">=", t.inputs["max_length"], because)


@gate(
    "packing.bins-hold-every-sequence-once",
    name="pack_sequences",
    question="Does packing fill bins without overflow, lose or repeat nothing, and give the same bins each time?",
    why="A lost sequence is lost data; an overflowing bin is cut later, in silence; unstable ties undo reproducibility.",
    level="law",
    ops=(PACK_SEQUENCES,),
    cases=tuple(
        Case(
            f"{kind}{SHORT[strategy]}",
            partial(_make, kind=kind, strategy=strategy),
            quick=kind in {"ties", "full"},
            conventions={"strategy": strategy, "over_long": "error"},
        )
        for kind, strategy in product(KINDS, oracle.STRATEGIES)
    ),
    bounds={
        "tokens above max_length in the fullest bin": Bound("exact", "a bin holds at most max_length tokens", 0),
        "sequences lost or repeated": Bound("exact", "every sequence is in one bin, once", 0),
        "indices that differ between two calls": Bound(
            "exact", "packing is a function of the lengths: nothing is left to chance", 0
        ),
        "bins above first-fit's guarantee": Bound(
            "derived", "any fit leaves at most one bin half empty or less, so bins ≤ 2·⌈Σ lengths / max_length⌉", 0
        ),
    },
    requires=_holds_tokens,
)
def bins_hold_every_sequence_once(t: Trial) -> Iterator[Evidence]:
    """Count the content of every bin from the lengths alone."""
    lengths, limit = t.inputs["lengths"], t.inputs["max_length"]
    got = t.got(PACK_SEQUENCES, **t.inputs)
    indices, offsets = got["indices"], got["offsets"]
    yield t.number("sequences lost or repeated", _lost(indices, offsets, lengths.size), "<=")
    if offsets.size < 2 or not _is_partition(indices, offsets, lengths.size):
        return  # sums over broken bins tell nothing more
    fills = np.add.reduceat(np.append(lengths[indices], 0), offsets[:-1])
    yield t.number("tokens above max_length in the fullest bin", max(0, int(fills.max()) - limit), "<=")
    again = t.got(PACK_SEQUENCES, **t.inputs)
    same = again["indices"].shape == indices.shape and again["offsets"].shape == offsets.shape
    differing = int(np.sum(again["indices"] != indices) + np.sum(again["offsets"] != offsets)) if same else lengths.size
    yield t.number("indices that differ between two calls", differing, "<=")
    guarantee = max(1, 2 * -(-int(lengths.sum()) // limit))
    yield t.number("bins above first-fit's guarantee", max(0, offsets.size - 1 - guarantee), "<=")


def _is_partition(indices: Array, offsets: Array, size: int) -> bool:
    if not offsets.size or indices.size != size:
        return False
    return bool(offsets[0] == 0 and offsets[-1] == size and np.all(np.diff(offsets.astype(np.int64)) > 0))


def _lost(indices: Array, offsets: Array, size: int) -> int:
    valid = indices[(indices >= 0) & (indices < size)]
    counts = np.bincount(valid.astype(np.int64), minlength=size)
    wrong = int(np.sum(counts != 1)) + (indices.size - valid.size)
    return wrong + int(not _is_partition(indices, offsets, size))


def _exact_make(rng: np.random.Generator, kind: str, strategy: str, over_long: str) -> dict[str, Any]:
    limit = 1000
    if kind == "uneven":  # two or three to a bin, so that later bins are fuller, where first and best fit differ
        lengths = np.concatenate([rng.integers(250, 450, 900), rng.integers(1, 120, 300)])
    elif kind == "tied":
        lengths = rng.integers(1, 14 if over_long == "truncate" else 11, 600) * 100
    else:
        lengths = rng.integers(0, limit + 1, 0 if kind == "nothing" else 300)
        lengths[::7] = 0
    if over_long == "truncate":
        lengths[::17] += limit
    return {"lengths": lengths, "max_length": limit, "strategy": strategy, "over_long": over_long}


def _exact_cases() -> Iterator[Case]:
    for kind, strategy, over_long in product(("tied", "uneven"), oracle.STRATEGIES, oracle.OVER_LONG):
        yield _exact_case(kind, strategy, over_long)
    for kind, strategy in product(("nothing", "empty-sequences"), oracle.STRATEGIES):
        yield _exact_case(kind, strategy, "error", level="robustness")


def _exact_case(kind: str, strategy: str, over_long: str, **more: Any) -> Case:
    return Case(
        f"{kind}-{strategy}-{over_long}",
        partial(_exact_make, kind=kind, strategy=strategy, over_long=over_long),
        quick=kind != "tied",
        proof=True,
        conventions={"strategy": strategy, "over_long": over_long},
        **more,
    )


def _fills_bins(t: Draw) -> Iterator[Evidence]:
    inputs = t.inputs
    lengths = np.minimum(inputs["lengths"], inputs["max_length"])
    if lengths.size > MANY:
        both = (t.want(PACK_SEQUENCES, **{**inputs, "strategy": strategy})[:2] for strategy in oracle.STRATEGIES)
        first, second = (_held(lengths[indices], offsets, inputs["strategy"]) for indices, offsets in both)
        yield t.precondition("bins that the other strategy fills otherwise", _apart(first, second), ">=", 1)
    if lengths.size:
        tied = lengths.size - np.unique(inputs["lengths"]).size
        yield t.precondition("sequences as long as another", tied, ">=", 50)
        cut = int(np.maximum(inputs["lengths"] - inputs["max_length"], 0).sum())
        yield t.precondition("tokens too many", cut, ">=" if inputs["over_long"] == "truncate" else "<=", cut and 1)


@gate(
    "packing.matches-definition",
    name="pack_sequences[bins]",
    question="Do the bins hold what first- or best-fit-decreasing puts there, and is the efficiency their tokens over their room?",
    why="A best fit that is a first fit wastes the room it was chosen to save; an efficiency above 1 hides what was cut.",
    level="definition",
    ops=(PACK_SEQUENCES,),
    cases=tuple(_exact_cases()),
    bounds={
        "sequences lost or repeated": Bound("exact", "every sequence is in one bin, once", 0),
        "bins that hold other lengths": Bound(
            "exact", "which of several sequences of one length lies where is free; lengths are not", 0
        ),
        EFFICIENCY: Bound("derived", "one division of whole numbers", 2.0**-52, level="precision"),
    },
    requires=_fills_bins,
    probes=(Probe("pack_sequences", ("efficiency",)),),
)
def matches_definition(t: Trial) -> Iterator[Evidence]:
    """Compare the bins' content with the definition's, up to ties, and the efficiency."""
    inputs = dict(t.inputs)
    lengths = np.minimum(inputs["lengths"], inputs["max_length"])
    indices, offsets, efficiency = t.want(PACK_SEQUENCES, **inputs)
    want = _held(lengths[indices], offsets, inputs["strategy"])
    got = t.got(PACK_SEQUENCES, **inputs)
    lost = _lost(got["indices"], got["offsets"], lengths.size)
    yield t.number("sequences lost or repeated", lost, "<=")
    if not lost:
        held = _held(lengths[got["indices"]], got["offsets"], inputs["strategy"])
        yield t.number("bins that hold other lengths", _apart(held, want), "<=")
    yield from _efficient(t, got["efficiency"], efficiency)


def _efficient(t: Trial, got: Any, want: float) -> Iterator[Evidence]:
    limits = t.textbook(PACK_SEQUENCES, **t.inputs)["efficiency"]
    yield from t.agrees(EFFICIENCY, got, want, limits, scale=1.0)


def _held(sizes: Array, offsets: Array, strategy: str) -> Counter[Any]:
    """Count the bins by content: their sorted lengths, or with best fit their tokens.

    Best fit may put a sequence into any of several equally full bins, so only the fill of the bins is determined.
    """
    bins = [sizes[start:end] for start, end in pairwise(offsets)]
    return Counter(int(np.sum(held)) if strategy == BFD else tuple(np.sort(held).tolist()) for held in bins)


def _apart(got: Counter[Any], want: Counter[Any]) -> int:
    return max((got - want).total(), (want - got).total())


def _differing(got: Array, want: Array) -> int:
    return int(np.sum(got != want)) if got.shape == want.shape else max(1, want.size)


def _over_long(t: Draw) -> int:
    return int(np.sum(t.inputs["lengths"] > t.inputs["max_length"]))


def _some_over_long(t: Draw) -> Iterator[Evidence]:
    yield t.precondition("over-long sequences", _over_long(t), ">=", 10)


@gate(
    "packing.truncates-only-by-name",
    name="pack_sequences[over-long]",
    question="Is a sequence longer than a bin an error that names `lengths`, unless truncation was asked for?",
    why="A completion that is cut in silence trains on a sentence without its end.",
    level="law",
    ops=(PACK_SEQUENCES,),
    cases=tuple(
        Case(
            f"{strategy}-tied",
            partial(_exact_make, kind="tied", strategy=strategy, over_long="truncate"),
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
    requires=_some_over_long,
)
def truncates_only_by_name(t: Trial) -> Iterator[Evidence]:
    """Request an error and, as the control, truncation of the same lengths."""
    over = _over_long(t)
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
    if kind == "empty-sequences":
        lengths[::11] = 0
    elif kind == "whole":
        lengths = rng.integers(1, 4, 60) * limit
    elif kind == "nothing":
        lengths = np.zeros(3, np.int64)
    elif kind == "found-no-sequences":
        lengths = np.zeros(0, np.int64)
    return {"lengths": lengths, "max_length": limit, "strategy": strategy, "over_long": oracle.SPLIT}


def _piece_case(kind: str, strategy: str, **more: Any) -> Case:
    return Case(
        f"{kind}-{strategy}",
        partial(_piece_inputs, strategy=strategy, kind=kind),
        quick=kind == "ragged" or strategy == oracle.WRAPPED,
        proof=True,
        conventions={"strategy": strategy, "over_long": oracle.SPLIT},
        **more,
    )


CUTS = (*oracle.STRATEGIES, oracle.WRAPPED)


def _placed_case(kind: str, strategy: str, over_long: str) -> Case:
    make = (
        partial(_piece_inputs, strategy=strategy, kind=kind)
        if over_long == oracle.SPLIT
        else partial(_exact_make, kind=kind, strategy=strategy, over_long=over_long)
    )
    conventions = {"strategy": strategy, "over_long": over_long}
    quick = kind != "uneven"
    name = f"{kind}-{strategy}-{over_long}"
    return Case(name, make, quick=quick, proof=True, conventions=conventions, declared=ORDER)


def _some_tied(t: Draw) -> Iterator[Evidence]:
    inputs = t.inputs
    sizes = inputs["lengths"] if inputs["over_long"] == "error" else np.minimum(inputs["lengths"], inputs["max_length"])
    yield t.precondition("sequences as long as another", sizes.size - np.unique(sizes).size, ">=", 50)


@gate(
    "packing.order.as-placed",
    name="pack_sequences[order]",
    question="Are bins given as they were opened, sequences as they were placed, and do ties go by index and by bin?",
    why="Then a packing can be compared by its bits, and two implementations train on the same batches.",
    level="rule",
    ops=(PACK_SEQUENCES,),
    cases=(
        *(_placed_case(kind, way, "error") for kind, way in product(("tied", "uneven"), oracle.STRATEGIES)),
        *(_placed_case("ragged", way, oracle.SPLIT) for way in CUTS),
    ),
    bounds={
        "indices and offsets that differ": Bound(
            "exact", "longest first, ties by index, of equally full bins the first: nothing is left to choose", 0
        ),
    },
    requires=_some_tied,
)
def order_is_as_placed(t: Trial) -> Iterator[Evidence]:
    """Compare every index and offset with the definition."""
    inputs: Mapping[str, Any] = t.inputs
    indices, offsets, *_ = t.want(PACK_SEQUENCES, **inputs)
    got = t.got(PACK_SEQUENCES, **inputs)
    differing = _differing(got["indices"], indices) + _differing(got["offsets"], offsets)
    yield t.number("indices and offsets that differ", differing, "<=")


def _some_cut(t: Draw) -> Iterator[Evidence]:
    if t.inputs["lengths"].any():
        yield t.precondition("sequences longer than a bin", _over_long(t), ">=", 5)
        indices, *_ = t.want(PACK_PIECES, **t.inputs)
        yield t.precondition("most pieces of a sequence", int(np.bincount(indices).max()), ">=", 3)


@gate(
    "packing.pieces.match-definition",
    name="pack_sequences[split]",
    question="Split or wrapped, does each token lie in one bin, once, and in a piece and a bin of the strategy?",
    why="A lost remainder is lost data, most of it ends of answers; a piece with a wrong start trains on another's tokens.",
    level="definition",
    ops=(PACK_PIECES,),
    cases=(
        *(_piece_case(kind, strategy) for kind, strategy in product(("ragged", "whole"), CUTS)),
        *(
            _piece_case(kind, strategy, level="robustness")
            for kind, strategy in product(("empty-sequences", "nothing"), CUTS)
        ),
        # caught a program that reads the end of the last sequence when there is none
        _piece_case("found-no-sequences", oracle.WRAPPED, level="robustness"),
    ),
    bounds={
        "tokens lost or repeated": Bound("exact", "pieces are cut and none is thrown away", 0),
        "tokens above max_length in the fullest bin": Bound("exact", "a bin holds at most max_length tokens", 0),
        "pieces that the definition does not cut": Bound("exact", "where a sequence is cut is not free", 0),
        "bins that hold other pieces": Bound("exact", "which of several pieces of one length lies where is free", 0),
        EFFICIENCY: Bound("derived", "one division of whole numbers", 2.0**-52, level="precision"),
    },
    requires=_some_cut,
    probes=(Probe("pack_sequences", ("efficiency",)),),
)
def pieces_match_definition(t: Trial) -> Iterator[Evidence]:
    """Count every token by the pieces, then compare pieces and bins with the definition, up to ties."""
    lengths, limit, strategy = t.inputs["lengths"], t.inputs["max_length"], t.inputs["strategy"]
    indices, offsets, efficiency, starts, sizes = t.want(PACK_PIECES, **t.inputs)
    got = t.got(PACK_PIECES, **t.inputs)
    held = [got[name] for name in ("indices", "starts", "sizes")]
    possible = len({part.shape for part in held}) == 1 and _lies_within(held[0], held[1], held[2], lengths)
    counts = np.zeros(int(lengths.sum()) + 1, np.int64)
    if possible:
        first = (np.cumsum(lengths) - lengths)[held[0]] + held[1]
        np.add.at(counts, first, 1)
        np.add.at(counts, first + held[2], -1)
    wrong = int(np.sum(np.cumsum(counts)[:-1] != 1)) + int(not possible)
    yield t.number("tokens lost or repeated", wrong, "<=")
    pieces = Counter(zip(*(part.tolist() for part in held), strict=False))
    cut = Counter(zip(indices.tolist(), starts.tolist(), sizes.tolist(), strict=True))
    yield t.number("pieces that the definition does not cut", _apart(pieces, cut), "<=")
    if not wrong and _is_partition(np.arange(held[0].size), got["offsets"], held[0].size):
        fullest = int(np.add.reduceat(np.append(held[2], 0), got["offsets"][:-1]).max(initial=0))
        yield t.number("tokens above max_length in the fullest bin", max(0, fullest - limit), "<=")
        bins = _of_pieces(held[0], held[1], held[2], got["offsets"], strategy)
        yield t.number(
            "bins that hold other pieces", _apart(bins, _of_pieces(indices, starts, sizes, offsets, strategy)), "<="
        )
    elif not wrong:
        yield t.number("bins that hold other pieces", max(1, offsets.size - 1), "<=", where="offsets are no bins")
    yield from _efficient(t, got["efficiency"], efficiency)


def _of_pieces(indices: Array, starts: Array, sizes: Array, offsets: Array, strategy: str) -> Counter[Any]:
    """Count bins of pieces as `_held` does; wrapped bins are fixed up to their order."""
    if strategy != oracle.WRAPPED:
        return _held(sizes, offsets, strategy)
    pieces = list(zip(indices.tolist(), starts.tolist(), sizes.tolist(), strict=True))
    return Counter(tuple(sorted(pieces[start:end])) for start, end in pairwise(offsets.tolist()))


def _lies_within(indices: Array, starts: Array, sizes: Array, lengths: Array) -> bool:
    if not np.all((indices >= 0) & (indices < lengths.size)):
        return False
    return bool(np.all((starts >= 0) & (sizes >= 0) & (starts + sizes <= lengths[indices])))
