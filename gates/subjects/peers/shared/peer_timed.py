"""The type of an adapter's TIMED functions: a call as the library's users write it, and how to read its result.

It is copied next to an adapter, since Gates is not installed in a peer's environment. It has no formula of any op.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Timed(NamedTuple):
    """A statement to time, with the objects that it uses."""

    statement: str
    names: dict[str, Any]
    """What the names in the statement mean."""
    answer: Callable[[Any], dict[str, Any]]
    """Converts the result of the statement into the outputs of the op; not timed."""
    note: str = ""
    """What is computed, where it is not plainly the op."""


def only_output(name: str) -> Callable[[Any], dict[str, Any]]:
    """Return the `answer` of a call whose result is one array."""
    return lambda output: {name: np.asarray(output)}


def cut(function: Any, first: str, last: str, parameters: tuple[str, ...], result: str) -> Any:
    """Return a function of some statements of a library's function, read from the installed source.

    An op inside a long method can so be timed without a copy.

    Args:
        function: whose source is read; the names of its module stay visible.
        first: prefix of the first statement, as `ast.unparse` writes it.
        last: prefix of the last statement.
        parameters: names that the statements read.
        result: the name that is returned.

    Raises:
        LookupError: this version of the library lacks the statements.
    """
    (source,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(source, ast.FunctionDef)
    heads = [ast.unparse(statement) for statement in source.body]
    start, end = (next((i for i, head in enumerate(heads) if head.startswith(prefix)), -1) for prefix in (first, last))
    if start < 0 or end < start:
        raise LookupError(f"{function.__qualname__} has no statements from {first!r} to {last!r}: another version?")
    (built,) = ast.parse(f"def {source.name}({', '.join(parameters)}):\n    return {result}").body
    assert isinstance(built, ast.FunctionDef)
    built.body = [*source.body[start : end + 1], *built.body]
    names = dict(vars(inspect.getmodule(function)))
    code = compile(ast.fix_missing_locations(ast.Module([built], [])), str(inspect.getsourcefile(function)), "exec")
    exec(code, names)  # noqa: S102  the library's installed code
    return names[source.name]
