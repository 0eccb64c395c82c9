"""Decreasing first-fit and best-fit packing; what the bins list are places in the sorted order, not the sequences' own ids."""

import numpy as np

OP = "pack_sequences"
BUG = "the indices returned are positions in the sorted list, not mapped back through the sort order to the original sequences"
SAYS = ("sorted|sort order|sorting|argsort|permut|rank", "position|index|indices|map|original|ids|place")
CONVENTIONS = {
    "pack_sequences": {"over_long": ("error", "truncate"), "strategy": ("first-fit-decreasing", "best-fit-decreasing")}
}


class Bin:
    def __init__(self, capacity):
        self.room = capacity
        self.items = []

    def put(self, item, size):
        self.items.append(item)
        self.room -= size


def choose(bins, size, strategy):
    fitting = [b for b in bins if b.room >= size]
    if not fitting:
        return None
    return fitting[0] if strategy == "first-fit-decreasing" else min(fitting, key=lambda b: b.room)


def pack_sequences(*, lengths, max_length, strategy, over_long):
    sizes = np.asarray(lengths, np.int64)
    if strategy == "wrapped" or over_long == "split":
        raise NotImplementedError("pieces")
    if (sizes > max_length).any():
        if over_long == "error":
            raise ValueError(f"lengths: a sequence is longer than a bin of {max_length}")
        sizes = np.minimum(sizes, max_length)
    order = np.argsort(-sizes, kind="stable")
    bins = []
    for k, size in enumerate(sizes[order].tolist()):
        target = choose(bins, size, strategy)
        if target is None:
            target = Bin(max_length)
            bins.append(target)
        target.put(k, size)
    indices = np.array([i for b in bins for i in b.items], np.int64)
    offsets = np.cumsum([0] + [len(b.items) for b in bins]).astype(np.int64)
    efficiency = float(sizes.sum() / (len(bins) * max_length)) if bins else 1.0
    return {"indices": indices, "offsets": offsets, "efficiency": efficiency}


OPS = {"pack_sequences": pack_sequences}
