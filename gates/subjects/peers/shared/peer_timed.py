"""What an adapter's TIMED functions return: a call as the library's users write it, and how to read its result.

An adapter finds it beside itself: Gates is not installed in a peer's environment. It holds no formula of any op.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Timed(NamedTuple):
    """A statement to time. Its arrays and objects are made beforehand."""

    statement: str
    names: dict[str, Any]
    """What the names in the statement mean."""
    answer: Callable[[Any], dict[str, Any]]
    """Converts the result of the statement into the outputs of the op; not timed."""
    note: str = ""
    """What is computed, where it is not plainly the op."""


def only_output(name: str) -> Callable[[Any], dict[str, Any]]:
    """Return the `answer` of a call whose result is one array."""
    return lambda found: {name: np.asarray(found)}


def cut(function: Any, first: str, last: str, parameters: tuple[str, ...], result: str) -> Any:
    """Return a function made of some statements of a library's own function, read from the installed source.

    An op inside a long method is timed this way without a copy of it.

    Args:
        function: whose source is read; the names of its module stay visible.
        first: how the first statement begins, as `ast.unparse` writes it.
        last: how the last statement begins.
        parameters: names that the statements read.
        result: the name that is returned.

    Raises:
        LookupError: the statements are not there: another version of the library.
    """
    (whole,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(whole, ast.FunctionDef)
    heads = [ast.unparse(statement) for statement in whole.body]
    start, end = (next((i for i, head in enumerate(heads) if head.startswith(words)), -1) for words in (first, last))
    if start < 0 or end < start:
        raise LookupError(f"{function.__qualname__} has no statements from {first!r} to {last!r}: another version?")
    (made,) = ast.parse(f"def {whole.name}({', '.join(parameters)}):\n    return {result}").body
    assert isinstance(made, ast.FunctionDef)
    made.body = [*whole.body[start : end + 1], *made.body]
    names = dict(vars(inspect.getmodule(function)))
    code = compile(ast.fix_missing_locations(ast.Module([made], [])), str(inspect.getsourcefile(function)), "exec")
    exec(code, names)  # noqa: S102  the library's installed code
    return names[whole.name]
