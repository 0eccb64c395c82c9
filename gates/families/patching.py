"""Define mutations as functions of the original function and the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

Fn = Callable[..., Any]


def mutation(mistaken: Fn) -> Callable[[Fn], Fn]:
    """Return the patch that replaces a function by `mistaken(original, *arguments)`.

    Workers apply it to the target of a mutant. The replacement is a plain function, so that a method stays a method.
    """

    @wraps(mistaken)
    def patch(original: Fn) -> Fn:
        def replaced(*arguments: Any, **keywords: Any) -> Any:
            return mistaken(original, *arguments, **keywords)

        return replaced

    return patch
