"""TRL's own statements, cut from the installed source: an op inside a long method can be timed without a copy of it."""

from __future__ import annotations

import ast
import inspect
import textwrap


def cut(function, first, last, parameters, result):
    """A function made of the statements of `function` from the one that starts with `first` to that with `last`.

    Args:
        function: whose source is read; its module's names stay visible.
        first: how the first statement begins, as `ast.unparse` writes it.
        last: how the last statement begins.
        parameters: names that the statements read.
        result: the name that is returned.

    Returns:
        The function.

    Raises:
        LookupError: the statements are not there: another version of the library.
    """
    (whole,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    heads = [ast.unparse(statement) for statement in whole.body]
    found = [next((i for i, head in enumerate(heads) if head.startswith(words)), None) for words in (first, last)]
    if None in found or found[0] > found[1]:
        raise LookupError(f"{function.__qualname__} has no statements from {first!r} to {last!r}: another version?")
    (made,) = ast.parse(f"def {whole.name}({', '.join(parameters)}):\n    return {result}").body
    made.body = [*whole.body[found[0] : found[1] + 1], *made.body]
    names = dict(vars(inspect.getmodule(function)))
    exec(compile(ast.fix_missing_locations(ast.Module([made], [])), inspect.getsourcefile(function), "exec"), names)  # noqa: S102  the peer's installed code
    return names[whole.name]
