"""Mutate a module in small ways, one at a time: operators, constants, bounds, conditions, terms, arguments, calls, statements.

Published engines do not suffice: cosmic-ray swaps operators and numbers; mutmut also omits arguments. Neither swaps two
arguments, drops a call or a term, negates a condition or omits the bound of a slice, which are the mistakes of array code,
and both run a test suite for each mutation.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

Node = ast.expr | ast.stmt | ast.comprehension
Change = tuple[str, ast.AST]  # description, and the replacement of a node
OTHER: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)  # operators that are not commutative
NAMES = {
    "minimum": ("maximum",),
    "maximum": ("minimum",),
    "min": ("max",),
    "max": ("min",),
    "sum": ("mean", "max"),
    "mean": ("sum",),
    "exp": ("expm1",),
    "expm1": ("exp",),
    "log": ("log1p",),
    "log1p": ("log",),
    "argmax": ("argmin",),
    "any": ("all",),
    "all": ("any",),
    "zeros": ("ones",),
    "ones": ("zeros",),
    "abs": ("asarray",),
    "isnan": ("isfinite",),
    "isfinite": ("isnan",),
    "float64": ("float32",),
}
REFUSALS = ("arguments.", "_refuse", "_need", "_one_of")  # code that refuses inputs, which no gate tests


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of a module."""

    line: int
    function: str
    words: str
    tree: ast.Module


def mutations(source: str) -> Iterator[Mutation]:
    """Yield the distinct small mutations of the module's functions."""
    tree = ast.parse(source)
    places = {id(node): index for index, node in enumerate(ast.walk(tree))}
    modules = frozenset(
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    )
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        seen = {ast.unparse(function)}
        for node in _computing(function):
            line = node.target.lineno if isinstance(node, ast.comprehension) else node.lineno
            for description, replacement in _others(node, modules):
                changed, text = _with(source, places[id(function)], places[id(node)], replacement)
                if text not in seen:
                    seen.add(text)
                    change = f"{description}: {ast.unparse(node).strip()}".replace("\n", "; ")
                    yield Mutation(line, function.name, change, changed)


def _with(source: str, function: int, index: int, new: ast.AST) -> tuple[ast.Module, str]:
    """Return a copy of the program with one node of a function replaced, and the function's text.

    Parsing is faster than copying a tree.
    """
    whole = ast.parse(source)
    nodes = list(ast.walk(whole))
    target, copied = nodes[index], copy.deepcopy(new)
    _Swap(target, ast.copy_location(copied, target) if hasattr(target, "lineno") else copied).visit(nodes[function])
    return ast.fix_missing_locations(whole), ast.unparse(nodes[function])


class _Swap(ast.NodeTransformer):
    def __init__(self, target: ast.AST, new: ast.AST) -> None:
        self._target, self._other = target, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._other if node is self._target else self.generic_visit(node)


def _computing(node: ast.AST) -> Iterator[Node]:
    """Yield the computing nodes below a node, without docstrings, annotations and refusals of inputs."""
    for child in ast.iter_child_nodes(node):
        text = ast.unparse(child) if isinstance(child, ast.Expr | ast.Call) else ""
        refuses = isinstance(child, ast.If) and isinstance(child.body[-1], ast.Raise) and not child.orelse
        if isinstance(child, ast.Raise | ast.arguments | ast.FunctionDef) or refuses or text.startswith(REFUSALS):
            continue
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if child in (getattr(node, "returns", None), getattr(node, "annotation", None)):
            continue
        if isinstance(child, ast.expr | ast.stmt | ast.comprehension):
            yield child
        yield from _computing(child)


def _others(node: Node, modules: frozenset[str]) -> Iterator[Change]:
    """Yield the replacements of a node with their descriptions."""
    yield from _operators(node)
    yield from _logic(node)
    yield from _values(node)
    yield from _steps(node)
    if isinstance(node, ast.Call):
        yield from _calls(node, modules)


def _operators(node: Node) -> Iterator[Change]:
    match node:
        case ast.Compare(left, ops, rest):
            for index, op in enumerate(ops):
                for new in OTHER.get(type(op), ()):
                    changed = [*ops[:index], new(), *ops[index + 1 :]]
                    yield f"{new.__name__} for {type(op).__name__}", ast.Compare(left, changed, rest)  # type: ignore[arg-type]
        case ast.BinOp(left, op, right):
            for new in OTHER.get(type(op), ()):
                yield f"{new.__name__} for {type(op).__name__}", ast.BinOp(left, new(), right)  # type: ignore[arg-type]
            yield "left side only", left
            if isinstance(op, ast.Add | ast.Mult | ast.BitAnd | ast.BitOr):
                yield "right side only", right
            if isinstance(op, ORDERED):
                yield "sides swapped", ast.BinOp(right, op, left)


def _logic(node: Node) -> Iterator[Change]:
    match node:
        case ast.BoolOp(op, values):
            yield "the other of and and or", ast.BoolOp(OTHER[type(op)][0](), values)  # type: ignore[arg-type]
            for index, value in enumerate(values):
                rest = [term for term in values if term is not value]
                yield f"without term {index + 1}", rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.UnaryOp(ast.USub() | ast.Not() | ast.Invert(), operand):
            yield "no sign", operand


def _values(node: Node) -> Iterator[Change]:
    match node:
        case ast.Constant(bool() as value):
            yield "the other", ast.Constant(not value)
        case ast.Constant(int() as value):
            yield from ((f"{new}", ast.Constant(new)) for new in (value + 1, value - 1))
        case ast.Constant(float() as value):
            yield from ((f"{new}", ast.Constant(new)) for new in sorted({1.5 * value, 0.0, 1.0} - {value}))
        case ast.Attribute(value, name, context):
            yield from ((new, ast.Attribute(value, new, context)) for new in NAMES.get(name, ()))
        case ast.IfExp(test, body, orelse):
            yield from (("always", body), ("never", orelse), ("negated", ast.IfExp(test, orelse, body)))
        case ast.Subscript(value, ast.Slice(), ast.Load()):
            yield "all of it", value
        case ast.Slice(lower, upper, step):
            bounds = {"lower": lower, "upper": upper, "step": step}
            yield from ((f"no {name} bound", ast.Slice(**{**bounds, name: None})) for name, x in bounds.items() if x)


def _steps(node: Node) -> Iterator[Change]:
    match node:
        case ast.If(test, body, orelse):
            changed = {"always": ast.Constant(1), "never": ast.Constant(0), "negated": ast.UnaryOp(ast.Not(), test)}
            yield from ((text, ast.If(new, body, orelse)) for text, new in changed.items())
        case ast.AugAssign() | ast.Assign([ast.Subscript()], _) | ast.Expr(ast.Call()) | ast.Continue():
            yield "left out", ast.Pass()
        case ast.Return(ast.Tuple(elements)):
            yield from (("results swapped", ast.Return(ast.Tuple(new, ast.Load()))) for new in _exchanged(elements))
        case ast.comprehension(target, source, [_, *_], asynchronous):
            yield "no condition", ast.comprehension(target, source, [], asynchronous)


def _exchanged(parts: list[ast.expr]) -> Iterator[list[ast.expr]]:
    """Yield a list with two neighbours exchanged."""
    for index in range(len(parts) - 1):
        yield [*parts[:index], parts[index + 1], parts[index], *parts[index + 2 :]]


def _calls(node: ast.Call, modules: frozenset[str]) -> Iterator[Change]:
    """Yield a call without an argument, with two exchanged, or replaced by its argument."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    starred = any(isinstance(argument, ast.Starred) for argument in node.args)
    if not starred:
        for args in _exchanged(node.args):
            yield "arguments swapped", ast.Call(node.func, args, node.keywords)
    if name in {"where", "minimum", "maximum", "min", "max"} and len(node.args) > 1:
        yield from ((f"argument {index} only", side) for index, side in enumerate(node.args[-2:], len(node.args) - 1))
    for keyword in node.keywords:
        if keyword.arg is not None:
            others = [kept for kept in node.keywords if kept is not keyword]
            yield f"no {keyword.arg}", ast.Call(node.func, node.args, others)
    method = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") not in modules
    if method and isinstance(node.func, ast.Attribute):
        yield "not called", node.func.value
    elif node.args and not starred:
        yield "not called", node.args[0]
