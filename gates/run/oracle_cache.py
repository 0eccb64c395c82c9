"""Cache the inputs of cases and the results of the oracle for all subjects, and the slow answers of each subject.

The key is a digest of the oracle's arguments, so a check that passes a subject's outputs to the oracle has its own key.
"""

from __future__ import annotations

import copy
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache, partial, wraps
from typing import Any

import numpy as np

from gates.arithmetic.narrow import in_float32
from gates.model import Op, Outcome, Recipe, Wire

KEPT = 48 << 20  # bytes of arrays: all cases of pure ops at one seed need 29 MiB, without values above `LARGEST`
LARGEST = 1 << 20  # bytes of one value: the 64 larger ones, of long rows, take 142 MiB and save a tenth of the time
ANSWERS = 64 << 20  # bytes: the slow rollouts that the cases of one model share, each with its logits
_PLAIN = (type(None), bool, int, float, str, bytes)


class OracleCache:
    """A least-recently-used cache in front of the oracle. Threads may share it."""

    def __init__(self, kept: int = KEPT, largest: int = LARGEST) -> None:
        self._kept, self._largest = kept, largest
        self._lock = threading.Lock()
        self._kept_values: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()  # value and size, oldest first
        self._size = 0
        self._making: dict[bytes, threading.Lock] = {}  # of the values that are being computed

    def ask(self, op: Op, inputs: Mapping[str, Wire]) -> Any:
        """Return the oracle's result for these inputs; the caller may change it."""
        if op.oracle is None:
            raise TypeError(f"{op.name} has no oracle")
        return self._asked(op, op.oracle, inputs)

    def limits(self, op: Op, inputs: Mapping[str, Wire]) -> Any:
        """Return the textbook limits for these inputs; the caller may change them."""
        if op.textbook is None:
            raise TypeError(f"{op.name} has no textbook program")
        return self._asked(op, op.textbook, inputs)

    def limits_in_float32(self, op: Op, inputs: Mapping[str, Wire]) -> Any:
        """Return the textbook limits of a program that computes in float32 whatever the dtype of these inputs."""
        if op.textbook is None:
            raise TypeError(f"{op.name} has no textbook program")
        return self._asked(op, narrow_limits(op.textbook), inputs)

    def _asked(self, op: Op, function: Callable[..., Any], inputs: Mapping[str, Wire]) -> Any:
        key = key_of(op, inputs, function)
        return function(**inputs) if key is None else self.once(key, partial(function, **inputs))

    def find(self, key: bytes) -> Any:
        """Return a copy of the value kept under this key, or None."""
        with self._lock:
            known = self._kept_values.get(key)
            if known is not None:
                self._kept_values.move_to_end(key)
        return copy.deepcopy(known[0]) if known is not None else None

    def keep(self, key: bytes, value: Any) -> None:
        """Keep a copy of a value under this key, unless it is too large; the oldest values make room for it."""
        size = _size(value)
        if size > min(self._largest, self._kept // 8):
            return
        with self._lock:
            if key not in self._kept_values:
                self._kept_values[key] = (copy.deepcopy(value), size)
                self._size += size
            while self._size > self._kept:
                _, (_, dropped) = self._kept_values.popitem(last=False)
                self._size -= dropped

    def once(self, key: bytes, make: Callable[[], Any]) -> Any:
        """Return the value that `make` returned at the first call with this key; the caller may change it.

        Subjects that are judged in parallel ask for the same value at the same time: the second waits for the first. A value
        too large to be kept is then computed twice, one after the other.
        """
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        try:
            with making:
                known = self.find(key)
                if known is None:
                    known = make()
                    self.keep(key, known)
        finally:
            with self._lock:
                self._making.pop(key, None)
        return known


@cache
def narrow_limits(textbook: Callable[..., Any]) -> Callable[..., Any]:
    """Return the textbook program, bounded in float32; the same function for the same program, so that it has one key."""

    @wraps(textbook)
    def narrow(**inputs: Wire) -> Any:
        with in_float32():
            return textbook(**inputs)

    return narrow


def key_of(op: Op, inputs: Mapping[str, Wire], function: Callable[..., Any] | None = None) -> bytes | None:
    """Return a digest of op, function (by default the oracle) and inputs with their memory layout.

    None if an input cannot be digested.
    """
    digest = hashlib.blake2b(f"{op.name} {id(function or op.oracle)}".encode(), digest_size=20)
    return digest.digest() if _feed(digest, dict(inputs)) else None


class Answers:
    """A cache of the outcomes of slow calls (`Trial.got_once`), which several checks share. Threads may share it."""

    def __init__(self, kept: int = ANSWERS) -> None:
        self._cache = OracleCache(kept, largest=kept)

    def ask(self, subject: str, op: str, inputs: Mapping[str, Wire | Recipe], call: Callable[[], Outcome]) -> Outcome:
        """Return the subject's earlier outcome for these inputs, else that of `call`; only values are kept."""
        digest = hashlib.blake2b(f"{subject} {op}".encode(), digest_size=20)
        if not _feed(digest, dict(inputs)):
            return call()
        known = self._cache.find(digest.digest())
        if known is not None:
            return Outcome("value", known)
        outcome = call()
        if outcome.kind == "value":
            self._cache.keep(digest.digest(), dict(outcome.value))
        return outcome


def _feed(digest: Any, value: Any) -> bool:
    """Add a value with its type and layout to the digest, because a sum over other strides may round differently."""
    type_ = type(value)
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.hasobject:
            return False
        array = np.asarray(value)
        digest.update(f"{type_.__name__}{array.dtype.str}{array.dtype.name}{array.shape}{array.strides}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b"")
        return True
    if type_ in _PLAIN:
        digest.update(f"{type_.__name__}{value!r};".encode())
        return True
    if type_ is Recipe:
        digest.update(value.kind.encode())
        return _feed(digest, dict(value.spec))
    if type_ not in {dict, list, tuple}:
        return False
    digest.update(f"{type_.__name__}{len(value)}".encode())
    parts = [part for pair in value.items() for part in pair] if type_ is dict else value
    return all(_feed(digest, part) for part in parts)


def _size(value: Any) -> int:
    """Return the bytes of all arrays in a value plus about 200 for each object."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes) + 200
    if isinstance(value, dict):
        return 200 + sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return 200 + sum(map(_size, value))
    return 200
