"""Helpers of test_layering.py: the graph of imports, and its circles."""

import ast
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]


@cache
def graph() -> grimp.ImportGraph:
    """Return the import graph of gates and reference, including imports inside functions and for type checkers."""
    return grimp.build_graph("gates", "gates_reference", include_external_packages=True, cache_dir=None)


def circles() -> set[frozenset[str]]:
    """Return the groups of modules that import each other, directly or through others of the group (Tarjan, 1972)."""
    groups: set[frozenset[str]] = set()
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
            position = stack.index(module)
            group = frozenset(stack[position:])
            del stack[position:]
            if len(group) > 1:
                groups.add(group)

    for module in sorted(graph().modules):
        if module not in index:
            visit(module)
    return groups


def external(package: str) -> dict[str, set[str]]:
    """Return the packages outside gates and reference that modules of a package import: package → modules."""
    packages: dict[str, set[str]] = {}
    for module in sorted({package, *graph().find_descendants(package)}):
        for imported in graph().find_modules_directly_imported_by(module):
            if graph().is_module_squashed(imported):
                packages.setdefault(imported, set()).add(module)
    return packages


def imports_of(file: Path) -> set[str]:
    """Return the imports of a file by parsing it."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return modules
