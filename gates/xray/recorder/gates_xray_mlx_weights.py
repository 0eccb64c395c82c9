"""The trained numbers of an MLX model: where they are held, and other numbers in their place for a while.

It runs in the interpreter of the script: standard library, NumPy and mlx only.
"""

from __future__ import annotations

import contextlib

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten

HALF = {mx.float16, mx.bfloat16}


class Slot:
    """The place of a parameter: the module, list or dictionary that holds it, and the module around that."""

    def __init__(self, root, name):
        *path, last = name.split(".")
        self.module = self.holder = root
        for part in path:
            self.holder = self.holder[int(part) if isinstance(self.holder, (list, tuple)) else part]
            if isinstance(self.holder, nn.Module):
                self.module = self.holder
        self.key = int(last) if isinstance(self.holder, (list, tuple)) else last

    def get(self):
        """Return the parameter."""
        return self.holder[self.key]

    def set(self, value):
        """Replace the parameter; nothing else of the module changes."""
        if isinstance(self.holder, list):
            self.holder[self.key] = value
        else:
            dict.__setitem__(self.holder, self.key, value)


class Weights:
    """The fitted parameters of a model.

    Attributes:
        slots: by name.
        own: the parameters, as the script has them.
        wide: the same, in float32 where they have half precision.
    """

    def __init__(self, slots):
        self.slots = slots
        self.own = {name: slot.get() for name, slot in slots.items()}
        self.wide = dict(self.own)
        self._halves = []

    @property
    def size(self):
        """How many numbers are fitted."""
        return sum(value.size for value in self.own.values())

    @contextlib.contextmanager
    def using(self, weights):
        """Use other weights inside the block."""
        before = [(slot, slot.get()) for name, slot in self.slots.items() if name in weights]
        try:
            for name, slot in self.slots.items():
                if name in weights:
                    slot.set(weights[name])
            yield
        finally:
            for slot, weight in before:
                slot.set(weight)

    @contextlib.contextmanager
    def in_float32(self, modules):
        """Use float32 for every number in half precision inside the block."""
        halves = {}
        for module in modules:
            for name, value in tree_flatten(module.parameters()):
                if value.dtype in HALF:
                    slot = Slot(module, name)
                    halves[id(slot.holder), slot.key] = (slot, value, value.astype(mx.float32))
        self._halves = list(halves.values())
        try:
            for slot, _, wide in self._halves:
                slot.set(wide)
            self.wide = {name: slot.get() for name, slot in self.slots.items()}
            yield
        finally:
            for slot, own, _ in self._halves:
                slot.set(own)

    @contextlib.contextmanager
    def in_own_precision(self):
        """Use the script's own numbers again inside a block of `in_float32`."""
        try:
            for slot, own, _ in self._halves:
                slot.set(own)
            yield
        finally:
            for slot, _, wide in self._halves:
                slot.set(wide)


def numbers(array):
    """Return an array's numbers in float64."""
    return np.array(array.astype(mx.float32) if array.dtype in HALF else array).astype(np.float64)


def picked(array, places):
    """Return the numbers at places of a flattened array."""
    return numbers(array.reshape(-1)[mx.array(places)])
