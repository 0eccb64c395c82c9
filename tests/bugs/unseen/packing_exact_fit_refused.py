"""Packing that compares with < where <= belongs: a sequence that would fill a bin exactly opens another."""

import numpy as np

OP = "pack_sequences"
BUG = "a sequence that fills a bin exactly is refused: the comparison is strict"
SAYS = ("exact|strict|full|equal|<|fill|one token",)
CONVENTIONS = {
    "pack_sequences": {
        "over_long": ("error", "truncate"),
        "strategy": ("first-fit-decreasing", "best-fit-decreasing"),
    }
}


def choose(loads, size, max_length, strategy):
    open_bins = [b for b, load in enumerate(loads) if load + size < max_length]
    if not open_bins:
        return None
    return open_bins[0] if strategy.startswith("first") else max(open_bins, key=lambda b: loads[b])


def pack_sequences(*, lengths, max_length, strategy, over_long):
    sizes = np.asarray(lengths)
    if over_long == "error" and len(sizes) and sizes.max() > max_length:
        raise ValueError("a sequence is longer than a bin")
    sizes = np.minimum(sizes, max_length)
    bins, loads = [], []
    for index in np.argsort(-sizes, kind="stable"):
        size = int(sizes[index])
        place = choose(loads, size, max_length, strategy)
        if place is None:
            bins.append([])
            loads.append(0)
            place = len(bins) - 1
        bins[place].append(int(index))
        loads[place] += size
    offsets = np.concatenate([[0], np.cumsum([len(b) for b in bins])]).astype(np.int64)
    indices = np.array([index for b in bins for index in b], np.int64)
    efficiency = sum(loads) / (len(bins) * max_length) if bins else 1.0
    return {"indices": indices, "offsets": offsets, "efficiency": float(efficiency)}


OPS = {"pack_sequences": pack_sequences}
