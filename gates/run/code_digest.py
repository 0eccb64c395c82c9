"""A digest of what decides a gate's verdicts: its check, what that imports of Gates and of the oracle, the judge."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from gates.model import Gate
from gates.run.judge import judge

FIRST_PARTY = ("gates.", "gates_reference.oracle")


def codes(gates: Iterable[Gate]) -> dict[str, str]:
    """Return the digest of each gate."""
    found = {}
    for gate in gates:
        digest = hashlib.sha256()
        for module in sorted(closure((gate.check.__module__, judge.__module__))):
            digest.update(module.encode() + source(module))
        found[gate.id] = digest.hexdigest()[:16]
    return found


def closure(modules: Iterable[str]) -> set[str]:
    """Return the modules and their transitive first-party imports."""
    visited: set[str] = set()
    pending = list(modules)
    while pending:
        module = pending.pop()
        if module not in visited:
            visited.add(module)
            pending += _imports(module)
    return visited


@cache
def _imports(module: str) -> tuple[str, ...]:
    return tuple(
        name for name in set(_named(ast.parse(source(module)))) if name.startswith(FIRST_PARTY) and _file(name)
    )


def _named(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)  # a submodule or another name


@cache
def source(module: str) -> bytes:
    """Return a module's source, empty for a module without a file."""
    file = _file(module)
    return file.read_bytes() if file else b""


@cache
def _file(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ModuleNotFoundError, ValueError):  # not a module, or one without a spec
        return None
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None
