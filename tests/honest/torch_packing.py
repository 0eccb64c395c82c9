"""Packing as TRL writes it: tensors, an unstable descending sort, the room of the bins in a tensor.

gates check packing --subject tests/honest/torch_packing.py --python PYTHON
"""

from __future__ import annotations

from typing import Any

import torch

VERSIONS = {"torch": torch.__version__}


def _place(sizes: torch.Tensor, max_length: int, *, best: bool) -> list[list[int]]:
    bins: list[list[int]] = []
    room = torch.full((len(sizes) + 1,), max_length)
    for index in torch.argsort(sizes, descending=True).tolist():
        size = int(sizes[index])
        left = room[: len(bins) + 1]
        fits = left >= size
        left = torch.where(fits, left, max_length + 1)
        chosen = int(left.argmin()) if best else int(fits.int().argmax())
        if best and int(left[chosen]) == max_length:
            chosen = len(bins)
        if chosen == len(bins):
            bins.append([])
        bins[chosen].append(index)
        room[chosen] -= size
    return bins


def _answer(bins: list[list[int]], kept: torch.Tensor, max_length: int) -> dict[str, Any]:
    ends = torch.tensor([0, *(len(one) for one in bins)]).cumsum(0)
    share = kept / torch.tensor(len(bins) * max_length) if bins else torch.tensor(1.0)
    indices = torch.tensor([index for one in bins for index in one], dtype=torch.int64)
    return {"indices": indices.numpy(), "offsets": ends.numpy(), "efficiency": share.item()}


def pack_sequences(*, lengths: Any, max_length: int, strategy: str, over_long: str) -> dict[str, Any]:
    """Fill the bins with the longest first."""
    given = torch.from_numpy(lengths)
    best = strategy.startswith("best")
    if over_long != "split":
        if over_long == "error" and bool((given > max_length).any()):
            raise ValueError("lengths: a sequence is longer than a bin")
        sizes = given.clamp(max=max_length)
        return _answer(_place(sizes, max_length, best=best), sizes.sum(), max_length)
    if strategy == "wrapped":
        raise NotImplementedError("wrapped")
    cut = [
        (index, start, min(max_length, int(length) - start))
        for index, length in enumerate(given)
        for start in range(0, int(length), max_length)
    ]
    table = torch.tensor(cut, dtype=torch.int64).reshape(-1, 3)
    found = _answer(_place(table[:, 2], max_length, best=best), given.sum(), max_length)
    rows = table[torch.from_numpy(found["indices"])]
    return {**found, **dict(zip(("indices", "starts", "sizes"), rows.T.contiguous().numpy(), strict=True))}


OPS = {"pack_sequences": pack_sequences}
