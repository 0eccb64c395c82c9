"""A constant added to a count of tokens, Σ m·x / (Σ m + ε), as masked means have it: edits with ε solved for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gates.arithmetic.functions import Value, plain
from gates.families.program import Choices, Data, Edit, Inputs, Sample
from gates.model import Array

PROBE = 1e-4  # the ε by which outputs are probed; they are linear in it
LEAST, LARGEST = 1e-12, 1e-2  # sizes that programs have
SIZES = tuple(float(f"{digit}e{power}") for power in range(-12, -1) for digit in range(1, 10))  # those of `_usual`
NEAR = 1e-2  # share of the largest output by which ε moves outputs at most
ROUND = 0.3  # relative distance at which a size is taken for a power of ten


@dataclass(frozen=True, slots=True)
class Counted:
    """Solves for a constant added to counts of tokens.

    Attributes:
        compute: the forward definition, which reads the constants from its choices.
        edits: its edits, of whose conventions one may be made too.
        variable: the variable of the gradient, if any.
        names: of each set of counts its words and the choices that hold its constant.
    """

    compute: Callable[[Data, Choices, Value], Mapping[str, Value]]
    edits: Callable[[Choices], Iterable[Edit]]
    variable: str
    names: Mapping[str, tuple[str, ...]]

    def fitted(self, asked: Choices, samples: Sequence[Sample]) -> Iterator[Edit]:
        """Yield the edits that add a constant to counts, to what is asked and to the conventions near the outputs."""
        bases = [Edit("", {}), *(edit for edit in self.edits(asked) if edit.convention)]
        for base in bases:
            chosen = {**asked, **base.changes}
            values = [self._values(sample.inputs, chosen) for sample in samples]
            if not all(_near(value, sample.got) for value, sample in zip(values, samples, strict=True)):
                continue
            for words, choices in self.names.items():
                if base.changes.keys() & set(choices):
                    continue
                size = self._solved(samples, values, chosen, choices)
                if LEAST <= size <= LARGEST:
                    changes = {**base.changes, **dict.fromkeys(choices, size)}
                    name = f"{size:g} added to {words}"
                    yield Edit(f"{base.sentence} · {name}" if base.words else name, changes, convention=True)

    def _solved(
        self, samples: Sequence[Sample], values: Sequence[Mapping[str, Array]], chosen: Choices, names: tuple[str, ...]
    ) -> float:
        """Return the constant by the element that it moves most; 0 if it moves none."""
        most, size = 0.0, 0.0
        before = float(chosen.get(names[0], 0.0))  # what is asked
        probed = {**chosen, **dict.fromkeys(names, before + PROBE)}
        for sample, value in zip(samples, values, strict=True):
            for output, moved in self._values(sample.inputs, probed).items():
                slope, off = moved - value[output], sample.got[output] - value[output]
                with np.errstate(all="ignore"):
                    share = np.nan_to_num(np.abs(slope / value[output]), nan=0.0, posinf=0.0)
                if share.size and share.max() > most:
                    most, index = float(share.max()), np.unravel_index(np.argmax(share), share.shape)
                    size = before + PROBE * float(off[index] / slope[index])
        return _usual(size)

    def _values(self, inputs: Inputs, chosen: Choices) -> dict[str, Array]:
        leaf = np.asarray(inputs[self.variable]).astype(np.float64) if self.variable else None
        with np.errstate(all="ignore"):
            outputs = self.compute(Data(inputs, bounded=False), chosen, leaf)
        return {name: np.asarray(plain(x)) for name, x in outputs.items()}


def _near(values: Mapping[str, Array], got: Mapping[str, Array]) -> bool:
    return all(
        got[name].shape == value.shape
        and bool(np.all(np.abs(got[name] - value) <= NEAR * np.abs(got[name]).max(initial=0.0)))
        for name, value in values.items()
    )


def _usual(size: float) -> float:
    """Return the power of ten near a size, or its first digit."""
    if not LEAST <= size <= LARGEST:
        return 0.0
    power = float(f"1e{round(math.log10(size))}")
    return power if abs(power - size) <= ROUND * size else float(f"{size:.1g}")
