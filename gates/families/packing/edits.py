"""The edits of sequence packing: other strategies, and mistakes."""

from __future__ import annotations

from collections.abc import Iterator

from gates.families.edits import conventions_first, mistakes
from gates.families.program import Choices, Edit

ORDERS = {
    "increasing": "shortest first, not longest first",
    "given": "sequences in the order in which they are given, not longest first",
    "reversed": "sequences from the last to the first, not longest first",
    "unmapped": "indices of the sorted sequences reported, not those of the given ones",
    "of over-long ones": "sequences in the order of their lengths before truncation, shortest first",
}
FITS = {
    "first": ("the first bin with room (first fit)", True),
    "best": ("the fullest bin with room (best fit)", True),
    "worst": ("the emptiest bin with room (worst fit)", False),
    "last": ("the last bin with room", False),
    "next": ("the bin that was opened last, or a new one (next fit)", False),
    "alone": ("each sequence in a bin of its own", False),
}
ROOMS = {
    "strict": "a strict comparison: a sequence that fills a bin exactly is refused and opens another",
    "one more": "bins of max_length + 1 tokens",
    "one less each": "one token of room between sequences: each takes one more than it has",
    "two less": "bins of max_length − 2 tokens for all but the first sequence",
    "half": "bins of half of max_length tokens for all but the first sequence",
    "all one less": "bins of max_length − 1 tokens",
    "before": "a bin takes a sequence while it is not full, whatever its length: bins overflow",
}
CUTS = {
    "error": "over-long sequences packed whole",
    "truncate": "over-long sequences truncated to max_length",
    "split": "over-long sequences split into pieces",
    "dropped": "over-long sequences left out",
    "remainder dropped": "only the whole pieces of an over-long sequence kept",
    "one short": "over-long sequences truncated to max_length − 1",
}
EFFICIENCIES = {
    "before truncation": "the efficiency of the tokens before truncation",
    "waste": "the share of empty room in the place of the efficiency",
    "inverse": "the room over the tokens, the inverse of the efficiency",
    "sequences": "sequences over bins in the place of the efficiency",
    "best bins": "the least possible number of bins over the bins, in the place of the efficiency",
    "without last": "the efficiency of all bins but the last",
    "fullest": "the efficiency of the fullest bin",
    "emptiest": "the efficiency of the emptiest bin",
    "of the longest": "the tokens over bins times the longest bin, not times max_length",
    "percent": "the efficiency in percent",
    "mean of bins": "the mean of each bin's tokens over its longest sequence times their number",
    "of the first": "the efficiency of the first bin alone",
    "sequences placed": "the tokens over the room of the sequences, each in a bin of its own",
    "median": "the median efficiency of the bins",
}


@conventions_first
def edits(asked: Choices) -> Iterator[Edit]:
    """Yield the edits of a packing with these choices."""
    if asked["fit"] != "wrapped":
        for name, (words, known) in FITS.items():
            if name != asked["fit"]:
                yield Edit(words, {"fit": name}, known, FITS[asked["fit"]][0])
        alike = () if asked["cut"] == "truncate" else ("of over-long ones",)
        yield from mistakes("order", ORDERS, without=alike)
        yield from mistakes("room", ROOMS)
        for fit in ("first", "best"):
            if fit != asked["fit"]:
                both = {"fit": fit, "room": "strict"}
                yield Edit(f"{FITS[fit][0]}, with a strict comparison", both)
        yield Edit("next fit in the given order", {"fit": "next", "order": "given"})
    else:
        yield from (Edit(words, {"fit": name}, known) for name, (words, known) in FITS.items())
    cuts = ("error", "one short", "truncate") if asked["cut"] == "split" else ("error",)
    yield from mistakes("cut", CUTS, without=(asked["cut"], *(cuts if asked["cut"] != "error" else CUTS)))
    alike = () if asked["cut"] == "truncate" else ("before truncation",)
    yield from mistakes("efficiency", EFFICIENCIES, without=alike)
