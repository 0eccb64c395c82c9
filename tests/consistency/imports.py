"""Helpers of test_layering.py: the graph of imports, and its circles."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]


@cache
def graph() -> grimp.ImportGraph:
    """Return who imports whom in gates and reference; imports inside functions and for type checkers count too."""
    return grimp.build_graph("gates", "reference", include_external_packages=True, cache_dir=None)


def circles() -> set[frozenset[str]]:
    """Return the groups of modules that import each other, directly or through others of the group (Tarjan, 1972)."""
    found: set[frozenset[str]] = set()
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for imported in graph().find_modules_directly_imported_by(module):
            if imported not in index:
                visit(imported)
                low[module] = min(low[module], low[imported])
            elif imported in stack:
                low[module] = min(low[module], index[imported])
        if low[module] == index[module]:
            place = stack.index(module)
            group = frozenset(stack[place:])
            del stack[place:]
            if len(group) > 1:
                found.add(group)

    for module in sorted(graph().modules):
        if module not in index:
            visit(module)
    return found


def external(package: str) -> dict[str, set[str]]:
    """Return the packages outside gates and reference that modules of a package import: package → modules."""
    found: dict[str, set[str]] = {}
    for module in sorted({package, *graph().find_descendants(package)}):
        for imported in graph().find_modules_directly_imported_by(module):
            if graph().is_module_squashed(imported):
                found.setdefault(imported, set()).add(module)
    return found


def imports_of(file: Path) -> set[str]:
    """Return what a file imports, by its text."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found
