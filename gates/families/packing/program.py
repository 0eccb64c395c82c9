"""The forward formula of sequence packing, composed of choices.

A packing is compared by what ties leave fixed: the fills of the bins, the lengths in each bin with first fit, and the efficiency.
Source: docs/definitions.md, "Packing"; Johnson (1973).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gates.arithmetic.functions import Value
from gates.arithmetic.number import Number
from gates.families.packing import edits
from gates.families.packing.textbook import pack_sequences
from gates.families.program import Choices, Data, Inputs, Program
from gates.model import Array

FITS = {"first-fit-decreasing": "first", "best-fit-decreasing": "best", "wrapped": "wrapped"}


def asked(call: Inputs) -> Choices:
    """Return the choices that a call of `pack_sequences` asks for."""
    return {
        "order": "decreasing",
        "fit": FITS[call["strategy"]],
        "room": "given",
        "cut": call["over_long"],
        "efficiency": "given",
    }


def compute(data: Data, chosen: Choices, variable: Value) -> Mapping[str, Value]:  # noqa: ARG001
    """Return fills, contents and the efficiency of a packing."""
    lengths, room = [int(n) for n in np.asarray(data["lengths"])], int(data["max_length"])
    sizes = CUTS[chosen["cut"]](lengths, room)
    bins = _wrapped(lengths, room) if chosen["fit"] == "wrapped" else _packed(sizes, lengths, room, chosen)
    described = _described(bins, data.inputs)
    efficiency = _efficiency(chosen["efficiency"], bins, lengths, room)
    if not data.bounded:
        return {**described, "efficiency": np.asarray(efficiency)}
    error = float(pack_sequences(lengths, room, strategy="", over_long="")["efficiency"])
    exact = {name: data.lift(values, "float64") for name, values in described.items()}
    return {**exact, "efficiency": Number(efficiency, "float64", 0.5 * error)}


def read(call: Inputs, outputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the same of a subject's outputs: offsets and indices, or the sizes of pieces.

    Raises:
        ValueError: indices or offsets that describe no packing.
    """
    indices, offsets = (np.asarray(outputs[name], np.int64) for name in ("indices", "offsets"))
    lengths = np.minimum(np.asarray(call["lengths"], np.int64), _longest(call))
    if indices.size and not (indices.min() >= 0 and indices.max() < lengths.size):
        raise ValueError("indices of sequences that do not exist")
    sizes = np.asarray(outputs["sizes"], np.int64) if call["over_long"] == "split" else lengths[indices]
    bins = [sizes[start:end].tolist() for start, end in pairwise(offsets.tolist())]
    return {**_described(bins, call), "efficiency": outputs["efficiency"]}


def _longest(call: Inputs) -> int:
    return int(call["max_length"]) if call["over_long"] == "truncate" else int(np.max(call["lengths"], initial=0))


def _described(bins: Sequence[Sequence[int]], call: Inputs) -> dict[str, Array]:
    """Return the sorted fills, and with first fit the sorted contents, in arrays that hold any packing of a call."""
    lengths, room = np.asarray(call["lengths"], np.int64), int(call["max_length"])
    most = int(np.maximum(-(-lengths // room), 1).sum()) if call["over_long"] == "split" else lengths.size
    most = most if call["strategy"] != "wrapped" else most + lengths.size
    width = max(most, len(bins), max((len(held) for held in bins), default=0))
    contents = np.zeros((width, width))
    if call["strategy"] != "best-fit-decreasing":
        ordered = sorted((sorted(held, reverse=True) for held in bins), reverse=True)
        for row, held in enumerate(ordered):
            contents[row, : len(held)] = held
    fills = np.zeros(width)
    fills[: len(bins)] = sorted((sum(held) for held in bins), reverse=True)
    return {"fills": fills, "contents": contents}


def _pieces(lengths: Sequence[int], room: int, *, whole: bool = False) -> list[int]:
    pieces = [min(room, n - start) for n in lengths for start in range(0, n, room)]
    if not whole:
        return pieces
    return [piece for n in lengths for piece in _pieces([n], room) if piece == room or n < room]


CUTS: Mapping[str, Callable[[Sequence[int], int], list[int]]] = {
    "error": lambda lengths, room: list(lengths),  # noqa: ARG005
    "truncate": lambda lengths, room: [min(n, room) for n in lengths],
    "split": _pieces,
    "dropped": lambda lengths, room: [n for n in lengths if n <= room],
    "remainder dropped": lambda lengths, room: _pieces(lengths, room, whole=True),
    "one short": lambda lengths, room: [n if n <= room else room - 1 for n in lengths],
}


def _order(kind: str, sizes: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """Return the numbers of the sequences in the order in which they are placed."""
    numbers = range(len(sizes))
    if kind == "of over-long ones":
        return sorted(numbers, key=lambda number: lengths[number])
    if kind in {"given", "reversed"}:
        return list(numbers) if kind == "given" else list(numbers)[::-1]
    sign = 1 if kind == "increasing" else -1
    return sorted(numbers, key=lambda number: (sign * sizes[number], number))


def _packed(sizes: Sequence[int], lengths: Sequence[int], room: int, chosen: Choices) -> list[list[int]]:
    """Return the sizes in each bin."""
    bins: list[list[int]] = []
    placed: list[tuple[int, int]] = []
    fits, chooses = ROOMS[chosen["room"]], FITTING[chosen["fit"]]
    for number in _order(chosen["order"], sizes, lengths):
        size = sizes[number]
        fitting = [index for index, held in enumerate(bins) if fits(held, size, room)]
        index = chooses(fitting, [sum(held) for held in bins])
        if index is None:
            bins.append([])
            index = len(bins) - 1
        bins[index].append(size)
        placed.append((index, size))
    if chosen["order"] == "unmapped":  # the numbers in the sorted list, read as numbers of the given one
        bins = [[] for _ in bins]
        for number, (index, _) in enumerate(placed):
            bins[index].append(sizes[number])
    return bins


def _wrapped(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Return the pieces of all sequences one after the other, cut where bins end."""
    bins: list[list[int]] = []
    free = 0
    for length in lengths:
        left = length
        while left:
            if not free:
                bins.append([])
                free = room
            taken = min(left, free)
            bins[-1].append(taken)
            left, free = left - taken, free - taken
    return bins


ROOMS: Mapping[
    str, Callable[[Sequence[int], int, int], bool]
] = {  # whether a bin takes a sequence: content, size, room
    "given": lambda held, size, room: sum(held) + size <= room,
    "strict": lambda held, size, room: sum(held) + size < room,
    "one more": lambda held, size, room: sum(held) + size <= room + 1,
    "one less each": lambda held, size, room: sum(held) + len(held) + size <= room,
    "all one less": lambda held, size, room: sum(held) + size <= room - 1,
    "two less": lambda held, size, room: sum(held) + size <= room - 2,
    "half": lambda held, size, room: sum(held) + size <= room // 2,
    "before": lambda held, size, room: sum(held) < room,  # noqa: ARG005
}
FITTING: Mapping[
    str, Callable[[Sequence[int], Sequence[int]], int | None]
] = {  # functions of bins with room, and of all fills
    "first": lambda fitting, fills: fitting[0] if fitting else None,  # noqa: ARG005
    "last": lambda fitting, fills: fitting[-1] if fitting else None,  # noqa: ARG005
    "best": lambda fitting, fills: max(fitting, key=lambda index: (fills[index], -index), default=None),
    "worst": lambda fitting, fills: min(fitting, key=lambda index: (fills[index], index), default=None),
    "next": lambda fitting, fills: fitting[-1] if fitting and fitting[-1] == len(fills) - 1 else None,
    "alone": lambda fitting, fills: None,  # noqa: ARG005
}


def _efficiency(kind: str, bins: Sequence[Sequence[int]], lengths: Sequence[int], room: int) -> float:
    fills = [sum(held) for held in bins]
    tokens, count = sum(fills), len(bins)
    if not count:
        return 1.0
    given = tokens / (count * room)
    if kind == "given":
        return given
    return {
        "before truncation": sum(lengths) / (count * room),
        "waste": 1.0 - given,
        "inverse": (count * room) / max(tokens, 1),
        "sequences": sum(len(held) for held in bins) / count,
        "best bins": -(-tokens // room) / count,
        "without last": sum(fills[:-1]) / (max(count - 1, 1) * room),
        "fullest": max(fills) / room,
        "emptiest": min(fills) / room,
        "of the longest": tokens / (count * max(*fills, 1)),
        "percent": 100.0 * given,
        "mean of bins": sum(sum(held) / (len(held) * max(held)) for held in bins) / count,
        "of the first": fills[0] / room,
        "sequences placed": tokens / (max(len(lengths), 1) * room),
        "median": float(np.median(fills)) / room,
    }[kind]


SIZES = ((22, 40), (26, 50), (18, 32), (24, 64), (30, 48), (20, 36), (28, 56), (16, 30))  # sequences and max_length


def designed(example: Inputs, rng: np.random.Generator) -> Iterator[Inputs]:
    """Yield eight lists of lengths, among them pairs that fill a bin exactly, and over-long ones where they may occur."""
    for count, room in SIZES:
        lengths = np.r_[rng.integers(1, room, count), rng.integers(1, room // 6, count // 2)]
        lengths[1:8:2] = room - lengths[0:8:2]  # exact fits
        if example["over_long"] != "error":
            lengths[8::5] += room
        yield {**example, "lengths": rng.permutation(lengths).astype(np.int64), "max_length": room}


PROGRAM = Program(
    op="pack_sequences",
    asked=asked,
    compute=compute,
    edits=edits.edits,
    inputs=designed,
    outputs=("fills", "contents", "efficiency"),
    reads=read,
)
PROGRAMS = (PROGRAM,)
