"""List the public names of an installed package by parsing its files, without importing it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from gates.subjects.peers.discovery import PeerError

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.ClassDef | Function


def names(source: str, packages: Path) -> list[str]:
    """Return the distinct names of a source in the order of the file.

    Args:
        source: a kind and a location. `fields MODULE:CLASS`, the annotated fields of a class, not those it inherits ·
            `functions MODULE` and `classes MODULE`, the public ones defined there · `methods MODULE:CLASS` ·
            `parameters MODULE:NAME`, of a function or of the `__init__` of a class · `values MODULE:NAME`, the strings with
            which a variable or attribute NAME is compared · `registered MODULE:NAME`, the first argument of each call or
            decorator NAME("…").
        packages: the site-packages folder of the environment.

    Raises:
        PeerError: the kind, the module or the class is unknown.
    """
    kind, _, location = source.partition(" ")
    module, _, inner = location.partition(":")
    if kind not in KINDS:
        raise PeerError(f"{source}: {kind!r} must be one of {', '.join(KINDS)}")
    tree = _parsed(source, module, packages)
    scope: Scope = tree
    if kind in {"fields", "methods"}:
        scope = _class(source, tree, inner)
    if kind == "parameters":
        scope = _function(source, tree, inner)
    return list(dict.fromkeys(KINDS[kind](scope, inner)))


def module_file(module: str, packages: Path) -> Path | None:
    """Return the file of a module, by its dotted name."""
    base = packages.joinpath(*module.split("."))
    return next(
        (file for file in (base.with_suffix(".py"), base.with_suffix(".pyi"), base / "__init__.py") if file.is_file()),
        None,
    )


def _parsed(source: str, module: str, packages: Path) -> ast.Module:
    file = module_file(module, packages)
    if file is None:
        raise PeerError(f"{source}: {packages} has no module {module}")
    try:
        return ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise PeerError(f"{source}: {file} is not Python: {error}") from None


def _class(source: str, tree: ast.Module, name: str) -> ast.ClassDef:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    raise PeerError(f"{source}: the module has no class {name}")


def _function(source: str, tree: ast.Module, name: str) -> Function:
    nodes: dict[str, ast.AST] = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | Function)}
    node = nodes.get(name)
    if isinstance(node, ast.ClassDef):
        node = next((own for own in node.body if isinstance(own, Function) and own.name == "__init__"), None)
    if not isinstance(node, Function):
        raise PeerError(f"{source}: the module has no function {name}, and no class {name} with an __init__")
    return node


def _parameters(scope: Scope, _: str) -> Iterator[str]:
    assert isinstance(scope, Function)
    for argument in (*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs):
        if argument.arg not in {"self", "cls"} and _public(argument.arg):
            yield argument.arg


def _fields(scope: Scope, _: str) -> Iterator[str]:
    for node in scope.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _public(node.target.id):
            yield node.target.id


def _functions(scope: Scope, _: str) -> Iterator[str]:
    for node in scope.body:
        if isinstance(node, Function) and _public(node.name):
            yield node.name


def _classes(scope: Scope, _: str) -> Iterator[str]:
    yield from (node.name for node in scope.body if isinstance(node, ast.ClassDef) and _public(node.name))


def _values(scope: Scope, name: str) -> Iterator[str]:
    for node in ast.walk(scope):
        if isinstance(node, ast.Compare) and any(_last(side) == name for side in (node.left, *node.comparators)):
            for side in (node.left, *node.comparators):
                yield from (
                    constant.value
                    for constant in ast.walk(side)
                    if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
                )


def _registered(scope: Scope, name: str) -> Iterator[str]:
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and _last(node.func) == name and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value
            elif isinstance(first, ast.Attribute):  # a member of an enumeration
                yield first.attr


def _last(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _public(name: str) -> bool:
    return not name.startswith("_")


KINDS: dict[str, Callable[[Scope, str], Iterator[str]]] = {
    "fields": _fields,
    "functions": _functions,
    "classes": _classes,
    "methods": _functions,
    "parameters": _parameters,
    "values": _values,
    "registered": _registered,
}
