"""Calibrations that were recorded before: which seeds of which cells need not be judged again.

A seed counts as judged where the same code of the gate, the same processor and the same draws judged it, and the subject
was there. The code of a gate is that of its check, of all that the check imports of Gates and of the oracle, of the
judge, and the limits that are recorded for it. It is not the code of the subject: the header's commit says which that was.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from gates import calibration_limits
from gates.calibration import Key, judged
from gates.model import ConfigurationError, Gate
from gates.results.jsonl import read
from gates.results.records import HeaderRecord

JUDGE = ("gates.run.plan", "gates.run.judge", "gates.run.trial", "gates.run.compare", "gates.model")
OURS = ("gates.", "reference.oracle")


@dataclass(frozen=True, slots=True)
class Past:
    """Seeds that other files hold, and the names of these files."""

    files: tuple[str, ...] = ()
    seeds: Mapping[Key, frozenset[int]] = field(default_factory=dict)

    def lacking(self, keys: Iterable[Key], seeds: range) -> int:
        """Return how many verdicts are left of these cells."""
        wanted = set(seeds)
        return sum(len(wanted - self.seeds.get(key, frozenset())) for key in keys)


def codes(gates: Iterable[Gate]) -> dict[str, str]:
    """Return a digest of what decides each gate's verdicts."""
    limits = calibration_limits.load().limits
    found = {}
    for gate in gates:
        digest = hashlib.sha256()
        for module in sorted(_closure((gate.check.__module__, *JUDGE))):
            digest.update(module.encode() + _source(module))
        own = sorted((*entry.key, entry.limit) for entry in limits if entry.gate == gate.id)
        digest.update(json.dumps(own).encode())
        found[gate.id] = digest.hexdigest()[:16]
    return found


def past(folder: Path, header: HeaderRecord, only: Iterable[str] | None = None) -> Past:
    """Return what the calibrations of a folder hold that a run with this header need not judge again.

    `only` names the files that a run which is resumed began with; without it all of them are looked at.

    Raises:
        ConfigurationError: if a file of `only` is gone, or a file is none of Gates.
    """
    names = sorted(path.name for path in folder.glob("calibrate-*.jsonl")) if only is None else list(only)
    used: list[str] = []
    seeds: dict[Key, set[int]] = {}
    for name in names:
        if not (folder / name).is_file():
            raise ConfigurationError(f"{folder / name} is gone, and the run that is resumed leaves its seeds out")
        if not (folder / name).stat().st_size:
            continue  # of a run that is about to write its first line
        results = read(folder / name)
        theirs = results.header
        same = [gate for gate, code in header.codes.items() if theirs.codes.get(gate) == code]
        if theirs.full != header.full or theirs.machine.cpu != header.machine.cpu or not same:
            continue
        kept = judged(block for block in results.blocks if block.gate in same and not block.counts.get("skipped"))
        if kept:
            used.append(name)
        for key, numbers in kept.items():
            seeds.setdefault(key, set()).update(numbers)
    return Past(tuple(used), {key: frozenset(numbers) for key, numbers in seeds.items()})


def _closure(modules: Iterable[str]) -> set[str]:
    """Return modules and all that they import of ours."""
    found: set[str] = set()
    left = list(modules)
    while left:
        module = left.pop()
        if module not in found:
            found.add(module)
            left += _imports(module)
    return found


@cache
def _imports(module: str) -> tuple[str, ...]:
    return tuple(name for name in set(_named(ast.parse(_source(module)))) if name.startswith(OURS) and _file(name))


def _named(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)  # a module, or a name that is none


@cache
def _source(module: str) -> bytes:
    file = _file(module)
    return file.read_bytes() if file else b""


@cache
def _file(module: str) -> Path | None:
    if (loaded := sys.modules.get(module)) is not None:
        name = getattr(loaded, "__file__", None)
        return Path(name) if name else None
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None
