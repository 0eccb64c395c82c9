"""Mutate a module in small ways, one at a time: replace an operator or a constant, leave out an argument or a statement."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

Node = ast.expr | ast.stmt
OTHER: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
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
REFUSALS = ("arguments.", "_refuse", "_need", "_one_of")  # what refuses inputs: no gate asks for a refusal
KEYWORDS = ("where", "initial", "keepdims", "axis", "ddof", "dtype", "kind", "minlength")


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of a module."""

    line: int
    function: str
    words: str
    tree: ast.Module


def mutations(source: str) -> Iterator[Mutation]:
    """Yield the module with one small mutation after the other, in the bodies of its functions."""
    tree = ast.parse(source)
    places = {id(node): place for place, node in enumerate(ast.walk(tree))}
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for node in _computing(function):
            for words, other in _others(node):
                whole = copy.deepcopy(tree)
                target = next(n for place, n in enumerate(ast.walk(whole)) if place == places[id(node)])
                changed = _Swap(target, ast.copy_location(copy.deepcopy(other), node)).visit(whole)
                said = f"{words}: {ast.unparse(node)}".replace("\n", "; ")
                yield Mutation(node.lineno, function.name, said, ast.fix_missing_locations(changed))


class _Swap(ast.NodeTransformer):
    def __init__(self, target: ast.AST, other: ast.AST) -> None:
        self._target, self._other = target, other

    def visit(self, node: ast.AST) -> ast.AST:
        return self._other if node is self._target else self.generic_visit(node)


def _computing(node: ast.AST) -> Iterator[Node]:
    """Yield what computes below a node, without docstrings, annotations and what only refuses an input."""
    for child in ast.iter_child_nodes(node):
        text = ast.unparse(child) if isinstance(child, ast.Expr | ast.Call) else ""
        refuses = isinstance(child, ast.If) and all(isinstance(step, ast.Raise) for step in child.body)
        if isinstance(child, ast.Raise | ast.arguments | ast.FunctionDef) or refuses or text.startswith(REFUSALS):
            continue
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if child in (getattr(node, "returns", None), getattr(node, "annotation", None)):
            continue
        if isinstance(child, ast.expr | ast.stmt):
            yield child
        yield from _computing(child)


def _others(node: Node) -> Iterator[tuple[str, ast.AST]]:
    """Yield what may stand in a node's place, and words for it."""
    yield from _operators(node)
    yield from _values(node)
    yield from _steps(node)


def _operators(node: Node) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(left, [op], rest):
            for other in OTHER.get(type(op), ()):
                yield f"{other.__name__} for {type(op).__name__}", ast.Compare(left, [other()], rest)  # type: ignore[list-item]
        case ast.BinOp(left, op, right):
            for other in OTHER.get(type(op), ()):
                yield f"{other.__name__} for {type(op).__name__}", ast.BinOp(left, other(), right)  # type: ignore[arg-type]
            yield "left side only", left
            if isinstance(op, ast.Add | ast.Mult):
                yield "right side only", right
        case ast.BoolOp(op, values):
            yield "the other of and and or", ast.BoolOp(OTHER[type(op)][0](), values)  # type: ignore[arg-type]
        case ast.UnaryOp(ast.USub() | ast.Not() | ast.Invert(), operand):
            yield "no sign", operand


def _values(node: Node) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Constant(bool() as value):
            yield "the other", ast.Constant(not value)
        case ast.Constant(int() as value):
            yield from ((f"{other}", ast.Constant(other)) for other in (value + 1, value - 1))
        case ast.Constant(float() as value):
            yield from ((f"{other}", ast.Constant(other)) for other in {1.5 * value, 0.0, 1.0} - {value})
        case ast.Attribute(value, name, context):
            yield from ((other, ast.Attribute(value, other, context)) for other in NAMES.get(name, ()))
        case ast.IfExp(_, body, orelse):
            yield from (("always", body), ("never", orelse))
        case ast.Subscript(value, ast.Slice(), ast.Load()):
            yield "all of it", value
        case ast.Call():
            yield from _calls(node)


def _steps(node: Node) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.If(_, body, orelse):
            yield from (
                (word, ast.If(ast.Constant(value), body, orelse)) for word, value in (("always", 1), ("never", 0))
            )
        case ast.AugAssign() | ast.Assign([ast.Subscript()], _) | ast.Expr(ast.Call()):
            yield "left out", ast.Pass()


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "where" and len(node.args) == 3:
        yield "sides swapped", ast.Call(node.func, [node.args[0], node.args[2], node.args[1]], node.keywords)
    if name in {"where", "minimum", "maximum", "min", "max"} and len(node.args) > 1:
        yield from ((f"argument {place} only", side) for place, side in enumerate(node.args[-2:], len(node.args) - 1))
    for keyword in node.keywords:
        if keyword.arg in KEYWORDS:
            others = [other for other in node.keywords if other is not keyword]
            yield f"no {keyword.arg}", ast.Call(node.func, node.args, others)
