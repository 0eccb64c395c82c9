"""Read what a subject's file declares: OPS, CONVENTIONS and further tables, and the arguments of its functions.

Standard library only. The worker loads this file by path, as it does frames.py.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import platform
import re
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

INNER = ("__wrapped__", "_orig_mod", "forward")  # behind a decorator, torch.compile of a Module, and Module.__call__
BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
EXAMPLE = (
    'such as OPS = {"token_kl": token_kl}; `gates ops` lists the names, `gates init NAME` writes a file to fill in'
)


class _FromSource(SourceFileLoader):
    """Loads a file as it is: bytecode is kept by the second of a change and its size, which two edits may have in common."""

    def path_stats(self, path: str) -> Any:
        """Refuse, so that no bytecode is read or written.

        Raises:
            OSError: always.
        """
        raise OSError(f"no bytecode of {path} is used")


class UsageError(Exception):
    """The file cannot be judged as it is written: Python cannot read it, or one of its tables is not what it must be."""


def load(name: str, path: str, settings: Mapping[str, Any]) -> ModuleType:
    """Load a subject's file under its dotted name, even if that is not importable in this interpreter.

    Raises:
        UsageError: this Python cannot compile the file.
    """
    loader = _FromSource(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise ImportError(f"{path} is not a Python file")
    try:
        loader.get_code(name)
    except (SyntaxError, ValueError) as error:  # ValueError: null bytes, before Python 3.12
        raise UsageError(_unreadable(path, error)) from None
    module = importlib.util.module_from_spec(spec)
    module.__dict__["SETTINGS"] = dict(settings)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def _unreadable(path: str, error: SyntaxError | ValueError) -> str:
    """Return a sentence with file, line and remedy."""
    line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
    text = f": {error.text.strip()}" if isinstance(error, SyntaxError) and error.text else ""
    what = error.msg if isinstance(error, SyntaxError) else str(error)
    remedy = f"correct {'that line' if line else 'the file'}, or name another interpreter with --python"
    return f"{_shown(path)}{line}: Python {platform.python_version()} cannot read it: {what}{text}; {remedy}"


def _shown(path: str) -> str:
    """Return a path relative to the working directory if it is below it."""
    near = os.path.relpath(path)
    return path if near.startswith(os.pardir) else near


def operations(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return OPS, with the mutated function, if any.

    Raises:
        UsageError: the file has no OPS, or it is not a dict from names to functions.
    """
    ops: Any = getattr(module, "OPS", None)
    where = _where(module, "OPS")
    if ops is None:
        raise UsageError(f"{where} must define OPS, a dict from the name of an op to a function, {EXAMPLE}")
    if not isinstance(ops, dict):
        raise UsageError(
            f"{where}: OPS is a {type(ops).__name__}, must be a dict from the name of an op to a function, {EXAMPLE}"
        )
    for name, op in ops.items():
        if not isinstance(name, str):
            raise UsageError(f"{where}: OPS has the key {name!r}, its keys must be names of ops, {EXAMPLE}")
        if not callable(op):
            raise UsageError(f"{where}: OPS[{name!r}] is a {type(op).__name__}, must be a function, {EXAMPLE}")
    return {name: _mutated(module, op) for name, op in ops.items()}


def _mutated(module: ModuleType, op: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that a mutation or the file itself has put in an op's place, else the op."""
    current: Any = getattr(module, getattr(op, "__name__", ""), op)
    return current if getattr(current, "__wrapped__", None) is op else op


def conventions(module: ModuleType, known: Mapping[str, Any]) -> dict[str, dict[str, list[Any]]]:
    """Return CONVENTIONS; a string of choices is refused, since it would be read letter by letter."""
    declared: dict[str, dict[str, list[Any]]] = {}
    where = _where(module, "CONVENTIONS")
    for op, of_op in table(module, "CONVENTIONS").items():
        if op not in known:
            raise UsageError(f"{where}: CONVENTIONS names {op!r}, which OPS does not define")
        if not isinstance(of_op, dict):
            raise UsageError(
                f"{where}: CONVENTIONS[{op!r}] is {of_op!r}, must be a dict from a convention to its choices"
            )
        declared[op] = {}
        for name, choices in of_op.items():
            if not isinstance(choices, list | tuple | set | frozenset):
                raise UsageError(
                    f"{where}: CONVENTIONS[{op!r}][{name!r}] is {choices!r}, must be a tuple of the choices, "
                    f"such as ({choices!r},)"
                )
            declared[op][name] = list(choices)
    return declared


def table(module: ModuleType, name: str) -> dict[str, Any]:
    """Return an optional dict of the subject's module."""
    value: Any = getattr(module, name, {})
    if not isinstance(value, dict):
        raise UsageError(f"{_where(module, name)}: {name} is a {type(value).__name__}, must be a dict")
    return value


def _where(module: ModuleType, name: str) -> str:
    """Return the file, and the line that sets a name at the top level."""
    path = str(module.__file__)
    lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    setting = re.compile(rf"{name}\s*(:.*)?=")
    number = next((n for n, line in enumerate(lines, 1) if setting.match(line)), 0)
    return f"{_shown(path)}, line {number}" if number else _shown(path)


def arguments(function: Any) -> list[str] | None:
    """Return the names by which a function takes arguments; None if it takes any, [] if it has no signature.

    What a decorated function takes beyond its own names goes to the function behind it.
    """
    names: list[str] = []
    for depth in range(100):  # a decorator may be its own `__wrapped__`
        inner = next((getattr(function, name) for name in INNER if callable(getattr(function, name, None))), None)
        try:
            parameters = list(inspect.signature(function, follow_wrapped=False).parameters.values())
        except (TypeError, ValueError):  # a builtin, such as that of jax.jit, which has the Python function in it
            if inner is None:
                return None if depth else []
        else:
            names += [parameter.name for parameter in parameters if parameter.kind in BY_KEYWORD]
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
                return names
        if inner is None:
            return None
        function = inner
    return None


def location(function: Any) -> tuple[str, int] | None:
    """Return file and line of a Python function, behind its decorators; None of a builtin."""
    known: tuple[str, int] | None = None
    for _ in range(100):  # a decorator may be its own `__wrapped__`
        code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
        if code is not None:
            known = _shown(code.co_filename), code.co_firstlineno
        inner = (getattr(function, name, None) for name in (*INNER, "func"))  # `func` of functools.partial
        function = next((part for part in inner if callable(part)), None)
        if function is None:
            break
    return known
